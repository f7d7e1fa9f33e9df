// Open vSwitch's SSL configuration, as mirrors are given it: what the database says, or what is to be done.
#include "ctrl/ssl_configuration.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace ovsdr::ctrl {
namespace {

const mirror::TlsFiles files{"/etc/openvswitch/sc-privkey.pem", "/etc/openvswitch/sc-cert.pem",
                             "/etc/openvswitch/cacert.pem"};

std::string fault(const SslConfiguration& of) {
    const auto got = of.files();
    return got ? "none" : got.error().what;
}

TEST(SslConfiguration, SaysTheFilesOfTheDatabase) {
    SslConfiguration configuration;
    configuration.set(SslRow{files});
    const auto got = configuration.files();
    ASSERT_TRUE(got) << got.error().what;
    EXPECT_EQ(got->private_key, files.private_key);
    EXPECT_EQ(got->certificate, files.certificate);
    EXPECT_EQ(got->ca_certificate, files.ca_certificate);
}

TEST(SslConfiguration, WithoutOneSaysWhatToDo) {
    SslConfiguration configuration;
    const std::string said = "no SSL configuration: ovs-vsctl set-ssl PRIVATE-KEY CERTIFICATE CA-CERT, or "
                             "options:plain=true for a handshake without TLS";
    EXPECT_EQ(fault(configuration), said);
    configuration.set(SslRow{files});
    EXPECT_EQ(fault(configuration), "none");
    configuration.set(std::nullopt);   // del-ssl
    EXPECT_EQ(fault(configuration), said);
}

TEST(SslConfiguration, ACollectorIsAlwaysVerified) {
    SslConfiguration configuration;
    configuration.set(SslRow{{files.private_key, files.certificate, "none"}});
    EXPECT_EQ(fault(configuration), "the SSL table's ca_cert is \"none\", and a collector is always verified: "
                                    "ovs-vsctl set-ssl with the certificate of its CA");
}

TEST(SslConfiguration, AFileWithoutANameIsNamedByItsColumn) {
    SslConfiguration configuration;
    configuration.set(SslRow{{"", files.certificate, files.ca_certificate}});
    EXPECT_EQ(fault(configuration), "the SSL table's private_key names no file");
    configuration.set(SslRow{{files.private_key, "", files.ca_certificate}});
    EXPECT_EQ(fault(configuration), "the SSL table's certificate names no file");
    configuration.set(SslRow{{files.private_key, files.certificate, ""}});
    EXPECT_EQ(fault(configuration), "the SSL table's ca_cert names no file");
}

TEST(SslConfiguration, ACaCertificateIsNotBootstrappedFromACollector) {
    char path[] = "/tmp/ovsdr-ca-XXXXXX";
    close(mkstemp(path));
    SslConfiguration configuration;
    configuration.set(SslRow{{files.private_key, files.certificate, path}, true});
    EXPECT_EQ(fault(configuration), "none") << "somebody has put it there";
    unlink(path);
    EXPECT_EQ(configuration.files().error().code, ENOENT);
    EXPECT_EQ(fault(configuration), std::string("CA certificate ") + path +
                                        " is not there, and a mirror does not bootstrap it from its collector: put it "
                                        "there");
    // Without bootstrap it is a file that cannot be read, which whoever reads it says.
    configuration.set(SslRow{{files.private_key, files.certificate, path}});
    EXPECT_EQ(fault(configuration), "none");
}

}  // namespace
}  // namespace ovsdr::ctrl
