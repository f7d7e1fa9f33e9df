#include "ctrl/ssl_configuration.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ovsdr::ctrl {
namespace {

tl::unexpected<Error> fault(int code, std::string what) { return tl::unexpected(Error{code, std::move(what)}); }

}  // namespace

void SslConfiguration::set(std::optional<SslRow> row) {
    const std::lock_guard guard(mutex_);
    row_ = std::move(row);
}

Result<mirror::TlsFiles> SslConfiguration::files() const {
    const std::lock_guard guard(mutex_);
    if (!row_) {
        return fault(ENOENT, "no SSL configuration: ovs-vsctl set-ssl PRIVATE-KEY CERTIFICATE CA-CERT, or "
                             "options:plain=true for a handshake without TLS");
    }
    const mirror::TlsFiles& files = row_->files;
    for (const auto& [name, column] : {std::pair{&files.private_key, "private_key"},
                                       std::pair{&files.certificate, "certificate"},
                                       std::pair{&files.ca_certificate, "ca_cert"}}) {
        if (name->empty()) return fault(EINVAL, fmt::format("the SSL table's {} names no file", column));
    }
    if (files.ca_certificate == "none") {
        return fault(EINVAL, "the SSL table's ca_cert is \"none\", and a collector is always verified: ovs-vsctl "
                             "set-ssl with the certificate of its CA");
    }
    if (row_->bootstraps && access(files.ca_certificate.c_str(), F_OK) != 0 && errno == ENOENT) {
        return fault(ENOENT, fmt::format("CA certificate {} is not there, and a mirror does not bootstrap it from its "
                                         "collector: put it there", files.ca_certificate));
    }
    return files;
}

}  // namespace ovsdr::ctrl
