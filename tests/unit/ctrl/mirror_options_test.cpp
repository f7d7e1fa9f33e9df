// Options of an interface of type=drmirror: what is right, and what is said of what is wrong.
#include "ctrl/mirror_options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ovsdr::ctrl {
namespace {

using Service = dr::MirrorSteering::Service;

const MirrorOption collector{"collector", "192.0.2.7:4180"};

Result<MirrorOptions> parse(std::vector<MirrorOption> more, bool with_collector = true) {
    if (with_collector) more.insert(more.begin(), collector);
    return parse_mirror_options(more);
}

std::string fault(std::vector<MirrorOption> more) {
    const auto parsed = parse(std::move(more));
    if (parsed) return "accepted";
    EXPECT_EQ(parsed.error().code, EINVAL);
    return parsed.error().what;
}

TEST(MirrorOptions, HaveDefaults) {
    const auto parsed = parse({});
    ASSERT_TRUE(parsed) << parsed.error().what;
    EXPECT_EQ(parsed->collector, (mirror::CollectorAddress{"192.0.2.7", "4180"}));
    EXPECT_EQ(text_of(parsed->collector), "192.0.2.7:4180");
    EXPECT_TRUE(parsed->standby.empty());
    EXPECT_FALSE(parsed->plain) << "TLS, unless plain is asked for by name";
    EXPECT_EQ(parsed->geometry, (mirror::Geometry{126 * 512, 64, {mirror::SignatureType::t10dif_crc, 512}}));
    EXPECT_EQ(parsed->application_tag, 0);
    EXPECT_EQ(parsed->snap_length, 0u);
    EXPECT_EQ(parsed->gid_index, -1);
    EXPECT_EQ(parsed->device, "");
    EXPECT_EQ(parsed->steering, (dr::MirrorSteering{}));
}

TEST(MirrorOptions, AreTakenAsTheyAreWritten) {
    const auto parsed = parse({{"signature", "crc64"}, {"block", "4096"}, {"segment", "131072"}, {"ring", "8"},
                               {"app-tag", "0xBEEF"}, {"snaplen", "128"}, {"filter", "nvme-tcp,udp:9,iscsi,tcp:3260"},
                               {"sampling", "64"}, {"device", "mlx5_1"}, {"gid-index", "3"}});
    ASSERT_TRUE(parsed) << parsed.error().what;
    EXPECT_EQ(parsed->geometry, (mirror::Geometry{131072, 8, {mirror::SignatureType::crc64, 4096}}));
    EXPECT_EQ(parsed->application_tag, 0xBEEF);
    EXPECT_EQ(parsed->snap_length, 128u);
    EXPECT_EQ(parsed->steering.services, (std::vector<Service>{{6, 3260}, {6, 4420}, {6, 8009}, {17, 9}}));
    EXPECT_EQ(parsed->steering.one_of, 64u);
    EXPECT_EQ(parsed->device, "mlx5_1");
    EXPECT_EQ(parsed->gid_index, 3);
}

TEST(MirrorOptions, ASegmentIsAWholeNumberOfBlocks) {
    for (const std::uint32_t block : mirror::block_sizes) {
        for (const auto& [type, field] :
             {std::pair{"crc32c", 4u}, std::pair{"crc64", 8u}, std::pair{"t10dif-crc", 8u}}) {
            const auto parsed = parse({{"block", std::to_string(block)}, {"signature", type}});
            ASSERT_TRUE(parsed) << parsed.error().what;
            EXPECT_EQ(parsed->geometry.segment_size % block, 0u);
            const std::uint32_t on_wire = parsed->geometry.blocks() * (block + field);
            EXPECT_GT(on_wire, 65536u - block - field);
            EXPECT_LE(on_wire, 65536u) << "sixteen packets";
        }
    }
    EXPECT_EQ(fault({{"block", "520"}, {"segment", "65536"}}),
              "options:segment=65536 is not a multiple of options:block=520; 65520 is one");
    EXPECT_EQ(fault({{"block", "4160"}, {"segment", "4100"}}),
              "options:segment=4100 is not a multiple of options:block=4160; 4160 is one");
    EXPECT_EQ(fault({{"segment", "4194304"}, {"ring", "1000"}}),
              "options:ring=1000 of options:segment=4194304 are 4194304000 bytes; a ring has 1073741824 at most, which "
              "is options:ring=256");
}

TEST(MirrorOptions, CollectorsAreHostAndPort) {
    const auto ipv6 = parse({{"collector", "[2001:db8::7]:4180"}}, false);
    ASSERT_TRUE(ipv6);
    EXPECT_EQ(ipv6->collector.host, "2001:db8::7");
    EXPECT_EQ(text_of(ipv6->collector), "[2001:db8::7]:4180");
    EXPECT_TRUE(parse({{"collector", "collector.example:65535"}}, false));
    for (const char* const wrong : {"", "192.0.2.7", "192.0.2.7:", ":4180", "2001:db8::7:4180", "192.0.2.7:0",
                                    "192.0.2.7:65536", "192.0.2.7:41a", "a b:1", "[]:1", "192.0.2.7:0x10",
                                    "192.0.2.7:4180,192.0.2.8:4180", "a,b:1"}) {
        const auto parsed = parse({{"collector", wrong}}, false);
        ASSERT_FALSE(parsed) << wrong;
        EXPECT_EQ(parsed.error().what, std::string("options:collector=") + wrong +
                                           " is not HOST:PORT (192.0.2.7:4180, [2001:db8::7]:4180, or a name and a "
                                           "port)");
    }
    EXPECT_EQ(parse({}, false).error().what, "options:collector is missing (HOST:PORT of a drcollect)");
}

TEST(MirrorOptions, StandbysAreTakenInTheirOrder) {
    const auto parsed = parse({{"standby", "[2001:db8::8]:4180,collector.example:1,192.0.2.7:4181"}});
    ASSERT_TRUE(parsed) << parsed.error().what;
    EXPECT_EQ(parsed->standby, (std::vector<mirror::CollectorAddress>{
                                   {"2001:db8::8", "4180"}, {"collector.example", "1"}, {"192.0.2.7", "4181"}}));
    EXPECT_EQ(fault({{"standby", "192.0.2.8:4180,192.0.2.9"}}),
              "options:standby=192.0.2.8:4180,192.0.2.9 has \"192.0.2.9\", which is not HOST:PORT (192.0.2.7:4180, "
              "[2001:db8::7]:4180, or a name and a port); commas between them");
    for (const char* const wrong : {"", ",", "192.0.2.8:4180,", ",192.0.2.8:4180", "192.0.2.8:4180, 192.0.2.9:4180",
                                    "192.0.2.8:4180;192.0.2.9:4180"}) {
        EXPECT_NE(fault({{"standby", wrong}}).find(" has \""), std::string::npos) << wrong;
    }
    EXPECT_EQ(fault({{"standby", "192.0.2.8:4180,192.0.2.7:4180"}}),
              "options:standby has 192.0.2.7:4180, which is named already");
    EXPECT_EQ(fault({{"standby", "192.0.2.8:4180,192.0.2.8:4180"}}),
              "options:standby has 192.0.2.8:4180, which is named already");
    EXPECT_EQ(parse({{"standby", "192.0.2.8:4180"}}, false).error().what,
              "options:collector is missing (HOST:PORT of a drcollect)");
}

TEST(MirrorOptions, PlainIsAskedForByName) {
    EXPECT_TRUE(parse({{"plain", "true"}})->plain);
    EXPECT_FALSE(parse({{"plain", "false"}})->plain);
    for (const char* const wrong : {"", "1", "yes", "True", "TRUE", "true "}) {
        EXPECT_EQ(fault({{"plain", wrong}}), std::string("options:plain=") + wrong + " is not true or false");
    }
}

TEST(MirrorOptions, WhatIsWrongIsNamedWithWhatWouldBeRight) {
    struct Case {
        MirrorOption option;
        const char* said;
    };
    for (const auto& [option, said] : std::vector<Case>{
             {{"signature", "crc16"}, "is not one of t10dif-crc, t10dif-csum, crc32, crc32c, crc64"},
             {{"block", "1024"}, "is not one of 512, 520, 4048, 4096, 4160"},
             {{"block", ""}, "is not one of 512, 520, 4048, 4096, 4160"},
             {{"app-tag", "65536"}, "is not a number from 0 to 65535"},
             {{"app-tag", "0x"}, "is not a number from 0 to 65535"},
             {{"segment", "64k"}, "is not a number of bytes from 4096 to 4194304"},
             {{"segment", "0"}, "is not a number of bytes from 4096 to 4194304"},
             {{"ring", "1"}, "is not a number of segments from 2 to 1024"},
             {{"snaplen", "13"}, "is not a number of bytes from 14 to 65535"},
             {{"sampling", "0"}, "is not a number from 1 to 1000000"},
             {{"sampling", "-1"}, "is not a number from 1 to 1000000"},
             {{"gid-index", "256"}, "is not a number from 0 to 255"},
             {{"device", ""}, "is not the name of an RDMA device, such as mlx5_0"},
         }) {
        EXPECT_EQ(fault({option}), "options:" + std::string(option.key) + "=" + std::string(option.value) + " " + said);
    }
    EXPECT_EQ(fault({{"filter", "iscsi,smb"}}),
              "options:filter=iscsi,smb has \"smb\", which is none of iscsi, nvme-tcp, nfs, rocev2, tcp:PORT, udp:PORT "
              "(PORT from 1 to 65535), with commas between them");
    for (const char* const filter : {"", "iscsi,", ",iscsi", "tcp:", "tcp:0", "tcp:65536", "tcp:1-2", "sctp:1"}) {
        EXPECT_NE(fault({{"filter", filter}}), "accepted") << filter;
    }
    EXPECT_EQ(fault({{"colector", "x"}}),
              "unknown option colector (an interface of type=drmirror has collector, standby, plain, signature, "
              "block, app-tag, segment, ring, snaplen, filter, sampling, device, gid-index)");
}

TEST(MirrorOptions, OnlyFilterAndSamplingLeaveTheSession) {
    const MirrorOptions before = parse({}).value();
    EXPECT_FALSE(parse({{"filter", "nfs"}, {"sampling", "2"}})->needs_other_session(before));
    for (const MirrorOption option : {MirrorOption{"signature", "crc32"}, {"block", "520"}, {"app-tag", "1"},
                                      {"segment", "4096"}, {"ring", "2"}, {"snaplen", "64"}, {"device", "mlx5_9"},
                                      {"gid-index", "0"}, {"collector", "192.0.2.8:4180"},
                                      {"collector", "192.0.2.7:4181"}, {"standby", "192.0.2.8:4180"},
                                      {"plain", "true"}}) {
        EXPECT_TRUE(parse({option})->needs_other_session(before)) << option.key;
    }
}

}  // namespace
}  // namespace ovsdr::ctrl
