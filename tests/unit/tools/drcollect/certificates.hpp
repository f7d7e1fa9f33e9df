// Keys and certificates for a test, made by OpenSSL's library: a CA, and ends that it has signed.
#pragma once

#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "offload/mirror/tls_filter.hpp"

namespace ovsdr::drcollect::test {

class Certificates {
public:
    /// PEM files in `folder`, which is there; `name` is a part of their names.
    Certificates(std::string folder, const std::string& name)
        : folder_(std::move(folder)), name_(name), key_(EVP_EC_gen("P-256")), ca_(make(key_.get(), nullptr, 3600)) {
        store(folder_ + "/" + name_ + "-ca.pem", *ca_);
    }

    /// Another end's, signed by this CA; valid from an hour ago for `seconds` from now on.
    [[nodiscard]] mirror::TlsFiles end(const std::string& name, long seconds = 3600) const {
        const std::string path = folder_ + "/" + name_ + "-" + name;
        mirror::TlsFiles files{path + "-key.pem", path + ".pem", folder_ + "/" + name_ + "-ca.pem"};
        const Key key(EVP_EC_gen("P-256"));
        store(files.certificate, *make(key.get(), ca_.get(), seconds));
        FILE* const file = fopen(files.private_key.c_str(), "w");
        EXPECT_EQ(PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
        fclose(file);
        return files;
    }

private:
    struct Free {
        void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
        void operator()(X509* certificate) const { X509_free(certificate); }
    };
    using Key = std::unique_ptr<EVP_PKEY, Free>;
    using Certificate = std::unique_ptr<X509, Free>;

    /// `issuer`: none: it signs itself.
    Certificate make(EVP_PKEY* key, X509* issuer, long seconds) const {
        static long serial = 0;
        Certificate made(X509_new());
        X509_set_version(made.get(), 2);
        ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial);
        X509_gmtime_adj(X509_getm_notBefore(made.get()), -3600);
        X509_gmtime_adj(X509_getm_notAfter(made.get()), seconds);
        X509_set_pubkey(made.get(), key);
        X509_NAME* const subject = X509_get_subject_name(made.get());
        const std::string common_name = issuer == nullptr ? name_ : name_ + " " + std::to_string(serial);
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                   reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1, 0);
        X509_set_issuer_name(made.get(), issuer == nullptr ? subject : X509_get_subject_name(issuer));
        if (issuer == nullptr) {
            X509_EXTENSION* const is_ca =
                X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE");
            X509_add_ext(made.get(), is_ca, -1);
            X509_EXTENSION_free(is_ca);
        }
        EXPECT_GT(X509_sign(made.get(), key_.get(), EVP_sha256()), 0);
        return made;
    }
    static void store(const std::string& path, X509& certificate) {
        FILE* const file = fopen(path.c_str(), "w");
        EXPECT_EQ(PEM_write_X509(file, &certificate), 1);
        fclose(file);
    }

    const std::string folder_, name_;
    const Key key_;
    const Certificate ca_;
};

}  // namespace ovsdr::drcollect::test
