// The handshake through TLS: who shows the right certificate is served, and nobody else hears anything.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "tests/unit/tools/drcollect/certificates.hpp"
#include "tests/unit/tools/drcollect/collector.hpp"

namespace ovsdr::drcollect {
namespace {

using namespace test;

struct Tls : Collector {
    Tls() {
        char name[] = "/tmp/ovsdr-tls-XXXXXX";
        pki_folder = mkdtemp(name);
        ours = std::make_unique<Certificates>(pki_folder, "ours");
        theirs = std::make_unique<Certificates>(pki_folder, "theirs");
        spec.tls = ours->end("collector");
        tls = ours->end("switch");
    }
    ~Tls() override {
        stop();
        std::filesystem::remove_all(pki_folder);
    }

    /// A sender that is not let in: what both ends say of it.
    void expect_refused(const std::string& sender_says, const std::string& collector_says) {
        const auto before = refused();
        const auto mirror = sender();
        append(*mirror, 0);
        EXPECT_TRUE(becomes([&] { return refused() > before && !mirror->stats().last_error.empty(); }));
        EXPECT_NE(mirror->stats().last_error.find(sender_says), std::string::npos) << mirror->stats().last_error;
        EXPECT_EQ(mirror->stats().connections, 0u);
        const auto said = server->counters().json().at("last_refused").get<std::string>();
        EXPECT_NE(said.find(collector_says), std::string::npos) << said;
        EXPECT_TRUE(files().empty());
        EXPECT_TRUE(server->counters().json().at("sessions").empty());
    }
    std::uint64_t refused() const { return server->counters().json().at("refused"); }

    /// All that the collector says to who sends `bytes` and no more, until it closes.
    std::string answer_to(const std::string& bytes) const {
        const auto socket = MessageSocket::connect("127.0.0.1", spec.port, 5s, -1);
        EXPECT_TRUE(socket);
        EXPECT_EQ(::send(socket->fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
        std::string answer;
        for (;;) {
            pollfd polled{socket->fd(), POLLIN, 0};
            char buffer[4096];
            EXPECT_EQ(poll(&polled, 1, 20'000), 1) << "it closes";
            const ssize_t size = recv(socket->fd(), buffer, sizeof buffer, 0);
            if (size <= 0) return answer;
            answer.append(buffer, static_cast<std::size_t>(size));
        }
    }

    std::string pki_folder;
    std::unique_ptr<Certificates> ours, theirs;
};

TEST_F(Tls, EveryFrameIsInTheFile) {
    start();
    const auto mirror = sender();
    append_all(*mirror, 0, 500);
    stop();
    start();
    append_all(*mirror, 500, 800);
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(frames(), all(800));
    EXPECT_TRUE(only_scan().sound());
    EXPECT_GE(mirror->stats().connections, 2u);
}

TEST_F(Tls, ASwitchOfAnotherCaIsNotServed) {
    start();
    const TlsFiles files = theirs->end("switch");
    tls = TlsFiles{files.private_key, files.certificate, spec.tls->ca_certificate};
    expect_refused("unknown ca", "certificate verify failed");
}

TEST_F(Tls, ACollectorOfAnotherCaGetsNothing) {
    const TlsFiles files = theirs->end("collector");
    spec.tls = TlsFiles{files.private_key, files.certificate, tls->ca_certificate};
    start();
    expect_refused("the peer's certificate: ", "unknown ca");
}

TEST_F(Tls, AnExpiredCertificateIsNone) {
    start();
    tls = ours->end("expired", -60);
    expect_refused("certificate expired", "certificate has expired");
    tls = ours->end("switch");
    stop();
    spec.tls = ours->end("expired-collector", -60);
    start();
    expect_refused("certificate has expired", "certificate expired");
}

TEST_F(Tls, ASwitchWithoutACertificateIsNotServed) {
    start();
    // No Sender is without one: OpenSSL by itself.
    auto socket = MessageSocket::connect("127.0.0.1", spec.port, 5s, -1);
    ASSERT_TRUE(socket);
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
    SSL_set_fd(ssl.get(), socket->fd());
    fcntl(socket->fd(), F_SETFL, 0);
    char buffer[100];
    // With TLS 1.3 a client learns what the server thinks of it when it reads.
    const bool shaken = SSL_connect(ssl.get()) == 1;
    EXPECT_FALSE(shaken && SSL_read(ssl.get(), buffer, sizeof buffer) > 0);
    EXPECT_TRUE(becomes([&] { return refused() == 1; }));
    const auto said = server->counters().json().at("last_refused").get<std::string>();
    EXPECT_NE(said.find("peer did not return a certificate"), std::string::npos) << said;
}

TEST_F(Tls, OldVersionsAreNotSpoken) {
    start();
    auto socket = MessageSocket::connect("127.0.0.1", spec.port, 5s, -1);
    ASSERT_TRUE(socket);
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
    SSL_CTX_set_security_level(context.get(), 0);
    SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context.get(), TLS1_1_VERSION);
    SSL_CTX_use_PrivateKey_file(context.get(), tls->private_key.c_str(), SSL_FILETYPE_PEM);
    SSL_CTX_use_certificate_chain_file(context.get(), tls->certificate.c_str());
    const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
    SSL_set_fd(ssl.get(), socket->fd());
    fcntl(socket->fd(), F_SETFL, 0);
    EXPECT_NE(SSL_connect(ssl.get()), 1);
    EXPECT_TRUE(becomes([&] { return refused() == 1; }));
}

TEST_F(Tls, PlainAndTlsDoNotMeet) {
    start();
    const auto files = std::exchange(tls, std::nullopt);
    expect_refused("closed the connection at a plain Hello; it may ask for TLS", "TLS: the peer's handshake is plain");
    stop();
    spec.tls.reset();
    tls = files;
    start();
    expect_refused("TLS: the peer's handshake is plain", "no mirror's handshake, which is plain here; they are TLS's");
}

/// Not even why: an alert of TLS, seven bytes, is all that somebody without a certificate may hear.
TEST_F(Tls, GarbageIsToldNothing) {
    start();
    const std::string garbage[] = {"GET / HTTP/1.0\r\n\r\n", std::string(100'000, '\0'), std::string(300, '\xff'),
                                   std::string("\x16\x03\x01\x40\x00", 5) + std::string(70'000, 'x')};
    std::uint64_t expected = 0;
    for (const std::string& bytes : garbage) {
        SCOPED_TRACE(expected);
        const std::string answer = answer_to(bytes);
        EXPECT_LE(answer.size(), 7u);
        EXPECT_EQ(answer.find("DRMH"), std::string::npos);
        ++expected;
        EXPECT_TRUE(becomes([&] { return refused() == expected; }));
    }
    const auto mirror = sender();
    append_all(*mirror, 0, 50);
    EXPECT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
}

TEST_F(Tls, AHandshakeThatTakesItsTimeIsEnded) {
    spec.hello_within = 200ms;
    start();
    // The beginning of a record, and nothing behind it.
    EXPECT_EQ(answer_to(std::string("\x16\x03\x01\x01\x00\x01", 6)), "");
    EXPECT_TRUE(becomes([&] { return refused() == 1; }));
    EXPECT_EQ(answer_to(""), "");
    EXPECT_TRUE(becomes([&] { return refused() == 2; }));
}

/// A record of alerts' or handshakes' bytes without an end is no way to this process's memory.
TEST_F(Tls, AHandshakeHasALimitInBytes) {
    auto filter = TlsFilter::create(*spec.tls, TlsRole::server);
    ASSERT_TRUE(filter);
    std::vector<std::byte> plain, to_wire;
    // Records with a part of a Hello of 16 MB, a byte each.
    const std::uint8_t first[] = {22, 3, 1, 0, 5, 1, 0, 255, 255, 0};
    auto taken = (*filter)->take(std::as_bytes(std::span(first)), plain, to_wire);
    const std::uint8_t more[] = {22, 3, 1, 0, 1, 0};
    std::size_t bytes = sizeof first;
    while (taken && bytes < 1'000'000) {
        taken = (*filter)->take(std::as_bytes(std::span(more)), plain, to_wire);
        bytes += sizeof more;
    }
    EXPECT_FALSE(taken);
    EXPECT_LE(bytes, TlsFilter::handshake_size + sizeof more);
    EXPECT_TRUE(plain.empty());
    EXPECT_EQ((*filter)->write(plain, to_wire).error().code, ENOTCONN);
}

TEST_F(Tls, FilesAreReadAnewForEachConnection) {
    tls = ours->end("expired", -60);
    start();
    const auto mirror = sender();
    ASSERT_TRUE(append(*mirror, 0));
    EXPECT_TRUE(becomes([&] { return !mirror->stats().last_error.empty(); }));
    EXPECT_EQ(mirror->stats().connections, 0u);
    EXPECT_EQ(ours->end("expired").certificate, tls->certificate) << "in the same file";
    EXPECT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
}

/// Nobody is connected to meanwhile, and the standby's turn does not come.
TEST_F(Tls, ASwitchWithoutFilesSaysWhatItLacks) {
    start();
    standby = {{"127.0.0.1", "1"}};
    std::mutex mutex;
    Result<TlsFiles> files = tl::unexpected(Error{ENOENT, "nobody has told any"});
    source = [&] {
        const std::lock_guard guard(mutex);
        return files;
    };
    const auto mirror = sender();
    append(*mirror, 0);
    EXPECT_TRUE(becomes([&] { return mirror->stats().tls_fault == "nobody has told any"; }));
    const auto set = [&](const TlsFiles& to) {
        const std::lock_guard guard(mutex);
        files = to;
    };
    set({"/none.pem", tls->certificate, tls->ca_certificate});
    EXPECT_TRUE(becomes([&] { return mirror->stats().tls_fault.starts_with("private key /none.pem: "); }));
    std::this_thread::sleep_for(200ms);   // longer than a collector's turn
    EXPECT_EQ(mirror->stats().collector, "127.0.0.1:" + spec.port);
    EXPECT_EQ(refused(), 0u);
    set(theirs->end("switch"));
    EXPECT_TRUE(becomes([&] { return refused() > 0; }));
    EXPECT_EQ(mirror->stats().tls_fault, "");
    set(*tls);
    EXPECT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(frames(), all(1));
}

TEST_F(Tls, AFileThatIsNotOneIsNamed) {
    const TlsFiles right = *tls;
    const auto fault = [](const TlsFiles& files) {
        const auto made = TlsFilter::create(files, TlsRole::server);
        return made ? std::string("none") : made.error().what;
    };
    EXPECT_EQ(fault(right), "none");
    EXPECT_NE(fault({"/none.pem", right.certificate, right.ca_certificate}).find("private key /none.pem: "),
              std::string::npos);
    EXPECT_NE(fault({right.private_key, right.private_key, right.ca_certificate}).find("certificate " +
                                                                                         right.private_key),
              std::string::npos);
    EXPECT_NE(fault({right.private_key, spec.tls->certificate, right.ca_certificate}).find(spec.tls->certificate),
              std::string::npos)
        << "another's key";
    EXPECT_NE(fault({right.private_key, right.certificate, ""}).find("CA certificate "), std::string::npos);
}

TEST_F(Tls, ASenderSaysWhichOfTheTwo) {
    for (const bool plain : {false, true}) {
        const auto made = Sender::create({.device = open_nic(),
                                          .host = "127.0.0.1",
                                          .service = "1",
                                          .tls = plain ? source_of(tls) : nullptr,
                                          .plain = plain,
                                          .mirror = "stor0",
                                          .application_tag = 1,
                                          .geometry = geometry_of({SignatureType::crc32c, 512}, 4),
                                          .interfaces = two_interfaces()});
        ASSERT_FALSE(made);
        EXPECT_EQ(made.error().code, EINVAL);
        EXPECT_NE(made.error().what.find("either plain or has TLS"), std::string::npos) << made.error().what;
    }
}

}  // namespace
}  // namespace ovsdr::drcollect
