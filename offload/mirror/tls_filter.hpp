// TLS around the handshake of a mirror: bytes in, bytes out. It has no socket and waits for nothing.
//
// Model. Both ends show a certificate, and each asks that the other's was signed by the CA in its own file, as OVS does
// with its SSL configuration; a certificate's name is not compared with a host's. TLS 1.2 or later, no renegotiation,
// no resumption: files are read anew for each connection, and a certificate that has expired or been replaced counts
// from the next connection on. There are no revocation lists. A private key with a passphrase is refused: nobody is
// there to type it.
//
// Until established() nothing that is written leaves, and handshake_size bytes are taken at most.
//
// Threads: one at a time. Errors: EPROTO with OpenSSL's reason; files: EINVAL with the file's name.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "offload/dr/result.hpp"

namespace ovsdr::mirror {

/// Paths of PEM files.
struct TlsFiles {
    std::string private_key, certificate;   ///< of this end; the certificate's chain may follow it
    std::string ca_certificate;             ///< who has to have signed the peer's
};

enum class TlsRole : std::uint8_t { client, server };

class TlsFilter {
public:
    /// Of what a peer sends before it is known: certificates, for the most part.
    static constexpr std::size_t handshake_size = 64 << 10;

    [[nodiscard]] static Result<std::unique_ptr<TlsFilter>> create(const TlsFiles& files, TlsRole role);
    TlsFilter(const TlsFilter&) = delete;
    TlsFilter& operator=(const TlsFilter&) = delete;

    [[nodiscard]] bool established() const noexcept { return SSL_is_init_finished(ssl_.get()) != 0; }

    /// What the client says first.
    [[nodiscard]] Result<void> begin(std::vector<std::byte>& to_wire);
    /// Takes what has come, and adds what it contains to `plain`, and what has to be said to `to_wire`: also when it
    /// fails, since the peer is told why.
    [[nodiscard]] Result<void> take(std::span<const std::byte> from_wire, std::vector<std::byte>& plain,
                                    std::vector<std::byte>& to_wire);
    /// Adds `plain`, protected. ENOTCONN before established().
    [[nodiscard]] Result<void> write(std::span<const std::byte> plain, std::vector<std::byte>& to_wire);

private:
    struct Free {
        void operator()(SSL* ssl) const noexcept { SSL_free(ssl); }
        void operator()(SSL_CTX* context) const noexcept { SSL_CTX_free(context); }
    };

    TlsFilter() = default;
    [[nodiscard]] Result<void> read_files(const TlsFiles& files);
    [[nodiscard]] Result<void> advance(std::vector<std::byte>& to_wire);
    [[nodiscard]] Error failure(int returned) const;
    void note_first(std::span<const std::byte> from_wire) noexcept;
    void drain(std::vector<std::byte>& to_wire);

    std::unique_ptr<SSL_CTX, Free> context_;
    std::unique_ptr<SSL, Free> ssl_;
    BIO* in_ = nullptr;    ///< ssl_'s: what has come
    BIO* out_ = nullptr;   ///< ssl_'s: what has to be sent
    std::size_t taken_ = 0;
    std::array<std::byte, 4> first_{};   ///< bytes that came
};

}  // namespace ovsdr::mirror
