#include "offload/mirror/tls_filter.hpp"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>

#include <array>
#include <cerrno>
#include <new>

namespace ovsdr::mirror {
namespace {

// A plain message is 32 KiB at most; a record is half of that.
constexpr std::size_t piece = 16 << 10;

// What a plain handshake begins with (wire/handshake.hpp).
constexpr std::array plain_magic{std::byte{'D'}, std::byte{'R'}, std::byte{'M'}, std::byte{'H'}};

int no_passphrase(char*, int, int, void*) { return 0; }

/// The first thing that OpenSSL has to say; what it said before is forgotten with it.
std::string reason() {
    const unsigned long code = ERR_get_error();
    ERR_clear_error();
    const char* const text = code == 0 ? nullptr : ERR_reason_error_string(code);
    return text == nullptr ? "no reason given" : text;
}

Result<void> file_fault(const char* what, const std::string& path) {
    return tl::unexpected(Error{EINVAL, std::string(what) + " " + path + ": " + reason()});
}

}  // namespace

Result<std::unique_ptr<TlsFilter>> TlsFilter::create(const TlsFiles& files, TlsRole role) {
    ERR_clear_error();
    std::unique_ptr<TlsFilter> made(new TlsFilter);
    made->context_.reset(SSL_CTX_new(role == TlsRole::client ? TLS_client_method() : TLS_server_method()));
    SSL_CTX* const context = made->context_.get();
    if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
        return tl::unexpected(Error{ENOMEM, "TLS: " + reason()});
    }
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_max_cert_list(context, static_cast<long>(handshake_size / 2));
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    if (auto read = made->read_files(files); !read) return tl::unexpected(std::move(read.error()));

    made->ssl_.reset(SSL_new(context));
    BIO* const in = BIO_new(BIO_s_mem());
    BIO* const out = BIO_new(BIO_s_mem());
    if (made->ssl_ == nullptr || in == nullptr || out == nullptr) {
        BIO_free(in);
        BIO_free(out);
        return tl::unexpected(Error{ENOMEM, "TLS: out of memory"});
    }
    // Empty means that more comes, and not that this was the end.
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(made->ssl_.get(), in, out);
    made->in_ = in;
    made->out_ = out;
    if (role == TlsRole::client) SSL_set_connect_state(made->ssl_.get());
    else SSL_set_accept_state(made->ssl_.get());
    return made;
}

Result<void> TlsFilter::read_files(const TlsFiles& files) {
    SSL_CTX* const context = context_.get();
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    if (SSL_CTX_use_PrivateKey_file(context, files.private_key.c_str(), SSL_FILETYPE_PEM) != 1) {
        return file_fault("private key", files.private_key);
    }
    if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1) {
        return file_fault("certificate", files.certificate);
    }
    if (SSL_CTX_check_private_key(context) != 1) {
        return file_fault("the private key is not that of certificate", files.certificate);
    }
    if (SSL_CTX_load_verify_file(context, files.ca_certificate.c_str()) != 1) {
        return file_fault("CA certificate", files.ca_certificate);
    }
    return {};
}

Error TlsFilter::failure(int returned) const {
    if (SSL_get_error(ssl_.get(), returned) == SSL_ERROR_ZERO_RETURN) {
        ERR_clear_error();
        return {ECONNRESET, "the peer has closed the connection"};
    }
    if (!established() && first_ == plain_magic) {
        ERR_clear_error();
        return {EPROTO, "TLS: the peer's handshake is plain"};
    }
    const long verified = SSL_get_verify_result(ssl_.get());
    std::string said = "TLS: " + reason();
    if (!established() && verified != X509_V_OK) {
        said += std::string(": the peer's certificate: ") + X509_verify_cert_error_string(verified);
    }
    return {EPROTO, std::move(said)};
}

void TlsFilter::drain(std::vector<std::byte>& to_wire) {
    std::array<std::byte, 4096> bytes;
    for (int size = 0; (size = BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()))) > 0;) {
        to_wire.insert(to_wire.end(), bytes.begin(), bytes.begin() + size);
    }
}

/// The TLS handshake, as far as it comes with what is there.
Result<void> TlsFilter::advance(std::vector<std::byte>& to_wire) {
    ERR_clear_error();
    const int done = SSL_do_handshake(ssl_.get());
    const bool waits = done != 1 && SSL_get_error(ssl_.get(), done) == SSL_ERROR_WANT_READ;
    Result<void> result{};
    if (done != 1 && !waits) result = tl::unexpected(failure(done));
    drain(to_wire);
    return result;
}

Result<void> TlsFilter::begin(std::vector<std::byte>& to_wire) { return advance(to_wire); }

void TlsFilter::note_first(std::span<const std::byte> from_wire) noexcept {
    for (std::size_t at = taken_; at < first_.size() && at - taken_ < from_wire.size(); ++at) {
        first_[at] = from_wire[at - taken_];
    }
}

Result<void> TlsFilter::take(std::span<const std::byte> from_wire, std::vector<std::byte>& plain,
                             std::vector<std::byte>& to_wire) {
    if (!established()) note_first(from_wire);
    if (!established() && (taken_ += from_wire.size()) > handshake_size) {
        return tl::unexpected(Error{EPROTO, "TLS: the handshake has more than " + std::to_string(handshake_size) +
                                                " bytes"});
    }
    if (BIO_write(in_, from_wire.data(), static_cast<int>(from_wire.size())) != static_cast<int>(from_wire.size())) {
        return tl::unexpected(Error{ENOMEM, "TLS: " + reason()});
    }
    if (!established()) {
        if (auto done = advance(to_wire); !done || !established()) return done;
    }
    for (;;) {
        const std::size_t at = plain.size();
        plain.resize(at + piece);
        ERR_clear_error();
        const int size = SSL_read(ssl_.get(), plain.data() + at, static_cast<int>(piece));
        plain.resize(at + static_cast<std::size_t>(size > 0 ? size : 0));
        if (size > 0) continue;
        Result<void> result{};
        if (SSL_get_error(ssl_.get(), size) != SSL_ERROR_WANT_READ) result = tl::unexpected(failure(size));
        drain(to_wire);
        return result;
    }
}

Result<void> TlsFilter::write(std::span<const std::byte> plain, std::vector<std::byte>& to_wire) {
    if (!established()) return tl::unexpected(Error{ENOTCONN, "TLS: the peer is not known yet"});
    ERR_clear_error();
    std::size_t written = 0;
    if (!plain.empty() && SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &written) != 1) {
        return tl::unexpected(failure(0));
    }
    drain(to_wire);
    return {};
}

}  // namespace ovsdr::mirror
