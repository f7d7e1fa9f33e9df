// What hosts leave to their NIC, cut: beside the kernel's own cut (needs root).
#include "unfinished_frames.hpp"

namespace ovsdr::soft {
namespace {

TEST_F(UnfinishedTest, IsCutAsTheKernelCuts) {
    if (!kernel_) GTEST_SKIP() << "no network namespace of its own: not root";
    Maker maker(1);
    KernelsCut kernel;
    std::size_t segments = 0;
    for (unsigned i = 0; i < 400; ++i) {
        const bool tcp = maker.number(0, 3) != 0 || !KernelsCut::knows_udp();
        const unsigned segment = maker.number(8, 1400);
        // The kernel takes no more than 128 datagrams of one.
        const unsigned payload = maker.number(1, std::min(tcp ? 60000U : 64000U, segment * (tcp ? 60 : 100)));
        const Frame frame = maker.frame(maker.chance(), tcp, payload, segment);
        const std::vector<Bytes> expected = kernel.of(frame.says, frame.bytes);
        const std::vector<Bytes> got = without_tags(cut(frame.bytes, frame.says));
        ASSERT_EQ(difference(got, expected), "") << i << ": " << payload << " bytes by " << segment;
        segments += got.size();
    }
    EXPECT_GT(segments, 4000U);
}

TEST_F(UnfinishedTest, ChecksumsAreTheKernels) {
    if (!kernel_) GTEST_SKIP() << "no network namespace of its own: not root";
    Maker maker(2);
    KernelsCut kernel;
    for (unsigned i = 0; i < 200; ++i) {
        const Frame frame = maker.frame(maker.chance(), maker.chance(), maker.number(0, 1400), 0);
        const std::vector<Bytes> expected = kernel.of(frame.says, frame.bytes);
        ASSERT_EQ(difference(without_tags(cut(frame.bytes, frame.says)), expected), "") << i;
    }
}

// The kernel says nothing of SCTP beside where its checksum is: RFC 9260's CRC-32C.
TEST_F(UnfinishedTest, SctpsChecksumIsACrc) {
    Bytes frame(34, 0);
    append(frame, {0x30, 0x39, 0x00, 0x50, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, '1', '2', '3', '4'});
    finish_checksum(frame, {.flags = VirtioHeader::needs_checksum, .gso_type = 0, .hdr_len = 0, .gso_size = 0,
                            .csum_start = 34, .csum_offset = 8});
    // Bit by bit.
    std::uint32_t crc = ~0U;
    Bytes covered(frame.begin() + 34, frame.end());
    std::fill_n(covered.begin() + 8, 4, 0);
    for (const std::uint8_t byte : covered) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    }
    crc = ~crc;
    for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(frame[42 + i], crc >> 8 * i & 0xff);
}

TEST_F(UnfinishedTest, AUdpChecksumThatComesTo0IsWrittenAsItsOtherForm) {
    Bytes frame(50, 0);
    store_be16(&frame[40], 0xffff);  // the pseudo-header's sum: all there is
    const VirtioHeader says{.flags = VirtioHeader::needs_checksum, .gso_type = 0, .hdr_len = 0, .gso_size = 0,
                            .csum_start = 34, .csum_offset = 6};
    finish_checksum(frame, says);
    EXPECT_EQ(load_be16(&frame[40]), 0xffff);
}

TEST_F(UnfinishedTest, WhatSpeaksOfNothingStaysAsItIs) {
    Maker maker(3);
    for (unsigned i = 0; i < 20000; ++i) {
        Frame frame = maker.frame(maker.chance(), maker.chance(), maker.number(0, 300), maker.number(0, 100));
        frame.bytes.resize(maker.number(0, static_cast<unsigned>(frame.bytes.size())));
        if (maker.chance()) frame.says.csum_start = static_cast<std::uint16_t>(maker.number(0, 400));
        if (maker.chance()) frame.says.csum_offset = static_cast<std::uint16_t>(maker.number(0, 65535));
        if (maker.chance() && !frame.bytes.empty()) {
            frame.bytes[maker.number(0, static_cast<unsigned>(frame.bytes.size()) - 1)] ^= 0x55;
        }
        Bytes exact = frame.bytes;
        exact.shrink_to_fit();  // for AddressSanitizer
        for (const Bytes& segment : cut(exact, frame.says)) ASSERT_LE(segment.size(), exact.size());
    }
    const Frame frame = maker.frame(true, true, 3000, 1400);
    EXPECT_FALSE(cut(frame.bytes, frame.says, 1600).empty());
    EXPECT_TRUE(cut(frame.bytes, frame.says, 1400).empty()) << "a segment with its headers is longer than that";
    const Frame headers = maker.frame(true, true, 0, 1400);
    EXPECT_FALSE(Unfinished().begin(headers.bytes, headers.says, jumbo_room)) << "it goes on as it is";
    VirtioHeader says = frame.says;
    says.gso_type = 3;  // UDP fragments
    EXPECT_TRUE(cut(frame.bytes, says).empty());
    says = frame.says;
    says.gso_size = 0;
    EXPECT_TRUE(cut(frame.bytes, says).empty());
}

// As a NIC hands it over that has joined packets and looked at their checksums.
TEST_F(UnfinishedTest, WithoutAChecksumToBeMadeItIsCutAllTheSame) {
    Maker maker(10);
    for (unsigned round = 0; round < 50; ++round) {
        Frame frame = maker.frame(maker.chance(), true, maker.number(100, 9000), maker.number(100, 1400));
        const std::vector<Bytes> expected = cut(frame.bytes, frame.says);
        store_be16(&frame.bytes[frame.says.csum_start + 16u], static_cast<std::uint16_t>(maker.number(0, 65535)));
        const std::uint8_t kind = frame.says.gso_type;
        frame.says = {.flags = 0, .gso_type = kind, .hdr_len = 0, .gso_size = frame.says.gso_size, .csum_start = 0,
                      .csum_offset = 0};
        ASSERT_EQ(difference(cut(frame.bytes, frame.says), expected), "") << round;
    }
}

// Accurate ECN counts by CWR, in each packet.
TEST_F(UnfinishedTest, OnlyWhereTheHeaderSaysSoCwrIsTheFirstPacketsAlone) {
    Maker maker(11);
    for (const bool classic : {true, false}) {
        Frame frame = maker.frame(true, true, 3000, 1000);
        const std::size_t flags = frame.says.csum_start + 13u;
        frame.bytes[flags] |= reduced;
        frame.says.gso_type = VirtioHeader::gso_tcp4;
        if (classic) frame.says.gso_type |= VirtioHeader::ecn;
        unsigned marked = 0;
        for (const Bytes& segment : cut(frame.bytes, frame.says)) marked += (segment[flags] & reduced) != 0;
        EXPECT_EQ(marked, classic ? 1U : 3U);
    }
}

// Or a sender's mistake would be mended, and a receiver told that all is well.
TEST_F(UnfinishedTest, AWrongPseudoHeaderSumMakesWrongPacketsAndNothingSaysTheyAreRight) {
    Maker maker(12);
    for (const bool harmed : {false, true}) {
        Frame frame = maker.frame(false, true, 2000, 1000);
        frame.bytes[frame.says.csum_start + 13u] = ack;
        frame.bytes[frame.says.csum_start + 16u] ^= harmed ? 1 : 0;
        Unfinished unfinished;
        ASSERT_TRUE(unfinished.begin(frame.bytes, frame.says, jumbo_room));
        std::vector<rte_mbuf*> packets;
        while (unfinished.more()) unfinished.next(packets.emplace_back(rte_pktmbuf_alloc(pool_.get())));
        for (const rte_mbuf* each : packets) {
            const bool good = (each->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD;
            EXPECT_EQ(good, !harmed);
        }
        EXPECT_EQ(message_.join(packets), harmed ? 1U : 2U);
        rte_pktmbuf_free_bulk(packets.data(), static_cast<unsigned>(packets.size()));
    }
}

struct Outer {
    const char* name;
    bool v4;
    Bytes behind_ip;      ///< UDP or GRE, and the tunnel's own header
    std::uint8_t protocol;
    bool ethernet = true; ///< what is inside begins with
};

class TunnelTest : public UnfinishedTest, public testing::WithParamInterface<Outer> {};

Bytes vxlan(std::uint16_t port, bool checksum) {
    return {0xc0, 0x01, static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port), 0, 0,
            static_cast<std::uint8_t>(checksum ? 0x12 : 0), static_cast<std::uint8_t>(checksum ? 0x34 : 0),
            8, 0, 0, 0, 0, 0, 42, 0};
}

TEST_P(TunnelTest, EachSegmentHasTheOuterHeadersAndTheyFit) {
    const Outer& outer = GetParam();
    Maker maker(4);
    for (unsigned round = 0; round < 50; ++round) {
        const bool tcp = maker.chance();
        Frame inner = maker.frame(outer.protocol == 41 ? false : outer.protocol == 4 || maker.chance(), tcp,
                                  maker.number(1000, 20000), maker.number(300, 1400));
        const std::vector<Bytes> alone = cut(inner.bytes, inner.says);
        const std::size_t skipped = outer.ethernet ? 0 : inner.l3;
        const Bytes carried(inner.bytes.begin() + static_cast<std::ptrdiff_t>(skipped), inner.bytes.end());
        Bytes frame = {2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3};
        append(frame, outer.v4 ? Bytes{0x08, 0x00} : Bytes{0x86, 0xdd});
        const std::size_t length = outer.behind_ip.size() + carried.size();
        Bytes ip = outer.v4 ? Bytes{0x45, 0, 0, 0, 0xff, 0xfe, 0, 0, 64, outer.protocol, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
                            : Bytes{0x60, 0, 0, 0, 0, 0, outer.protocol, 64};
        store_be16(&ip[outer.v4 ? 2 : 4], static_cast<std::uint16_t>(length + (outer.v4 ? 20 : 0)));
        if (!outer.v4) append(ip, maker.bytes(32));
        append(frame, ip);
        const std::size_t behind = frame.size();
        append(frame, outer.behind_ip);
        append(frame, carried);
        VirtioHeader says = inner.says;
        says.csum_start = static_cast<std::uint16_t>(says.csum_start + behind + outer.behind_ip.size() - skipped);
        const std::vector<Bytes> segments = cut(frame, says);
        ASSERT_EQ(segments.size(), alone.size());
        for (std::size_t n = 0; n < segments.size(); ++n) {
            const Bytes& segment = segments[n];
            const std::size_t begin = behind + outer.behind_ip.size();
            EXPECT_EQ(Bytes(segment.begin() + static_cast<std::ptrdiff_t>(begin), segment.end()),
                      Bytes(alone[n].begin() + static_cast<std::ptrdiff_t>(skipped), alone[n].end()));
            const std::size_t size = segment.size() - behind;
            if (outer.v4) {
                EXPECT_EQ(load_be16(&segment[16]), segment.size() - 14);
                EXPECT_EQ(load_be16(&segment[18]), static_cast<std::uint16_t>(0xfffe + n));
                EXPECT_EQ(slow_sum(&segment[14], 20), 0xffff);
            } else {
                EXPECT_EQ(load_be16(&segment[18]), size);
            }
            if (outer.protocol == 17) {
                EXPECT_EQ(load_be16(&segment[behind + 4]), size);
                const bool summed = load_be16(&outer.behind_ip[6]) != 0;
                const std::uint16_t pseudo = pseudo_sum(segment, 14, outer.v4, size, 17);
                EXPECT_EQ(summed ? slow_sum(&segment[behind], size, pseudo) : load_be16(&segment[behind + 6]),
                          summed ? 0xffff : 0);
            } else if (outer.protocol == 47 && (outer.behind_ip[0] & 0x80) != 0) {
                EXPECT_EQ(slow_sum(&segment[behind], size), 0xffff);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, TunnelTest,
    testing::Values(
        Outer{"vxlan", true, vxlan(4789, false), 17}, Outer{"vxlan_with_checksum", true, vxlan(4789, true), 17},
        Outer{"vxlan_of_linux_over_ipv6", false, vxlan(8472, true), 17},
        Outer{"geneve", false, {0xc0, 1, 0x17, 0xc1, 0, 0, 9, 9, 1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 0}, 17},
        Outer{"geneve_without_options", true, {0xc0, 1, 0x17, 0xc1, 0, 0, 0, 0, 0, 0, 0x65, 0x58, 0, 0, 7, 0}, 17},
        Outer{"gre", true, {0, 0, 0x65, 0x58}, 47}, Outer{"gre_key", false, {0x20, 0, 0x65, 0x58, 1, 2, 3, 4}, 47},
        Outer{"gre_checksum_and_key", true, {0xa0, 0, 0x65, 0x58, 0, 0, 0, 0, 1, 2, 3, 4}, 47},
        Outer{"ip_in_ip", true, {}, 4, false}, Outer{"ipv6_in_ip", true, {}, 41, false}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(UnfinishedTest, AGreSequenceNumberCannotBeMadeUp) {
    Maker maker(5);
    const Frame inner = maker.frame(true, true, 3000, 1000);
    Bytes frame = {2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3, 8, 0};
    append(frame, {0x45, 0, 0, 0, 0, 0, 0, 0, 64, 47, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8});
    append(frame, {0x10, 0, 0x65, 0x58, 0, 0, 0, 1});
    VirtioHeader says = inner.says;
    says.csum_start = static_cast<std::uint16_t>(says.csum_start + frame.size());
    append(frame, inner.bytes);
    EXPECT_TRUE(cut(frame, says).empty());
}

}  // namespace
}  // namespace ovsdr::soft
