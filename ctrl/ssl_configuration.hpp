// Open vSwitch's SSL configuration (the SSL table, `ovs-vsctl set-ssl`), as storage mirrors use it.
//
// Model. The database names three files: this switch's private key and certificate, and the certificate of the CA that
// has to have signed a peer's. A mirror's sender asks for them before each connection and reads them itself, so that
// what `set-ssl` and `del-ssl` change, and what is written into the files, counts from the next connection on. A file
// that is not right is the sender's to report.
//
// What a mirror cannot do exactly as the database says is refused with a sentence that says what to do:
// - without a configuration there is no TLS, and never a plain handshake instead;
// - ca_cert "none", by which Open vSwitch verifies no peer: a collector is always verified;
// - bootstrap_ca_cert, by which Open vSwitch trusts the first peer that it talks to and keeps its CA's certificate: no
//   mirror does that. Once the file is there, because Open vSwitch itself has got it or an operator has put it there,
//   it is used.
//
// Threads: any.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "offload/dr/result.hpp"
#include "offload/mirror/tls_filter.hpp"

namespace ovsdr::ctrl {

/// A row of the SSL table.
struct SslRow {
    mirror::TlsFiles files;
    bool bootstraps = false;   ///< bootstrap_ca_cert
};

class SslConfiguration {
public:
    /// None: the database has no such row.
    void set(std::optional<SslRow> row);
    /// What a connection that is made now has to use. EINVAL, ENOENT: with a sentence for the user.
    [[nodiscard]] Result<mirror::TlsFiles> files() const;

private:
    mutable std::mutex mutex_;
    std::optional<SslRow> row_;
};

}  // namespace ovsdr::ctrl
