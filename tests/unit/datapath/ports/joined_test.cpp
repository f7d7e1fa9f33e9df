// Packets that are joined on their way out: cut again, by us and by the kernel (needs root), they are what they were.
#include "unfinished_frames.hpp"

namespace ovsdr::soft {
namespace {

using JoinedTest = UnfinishedTest;

TEST_F(JoinedTest, WhatIsJoinedIsCutAsItWas) {
    Maker maker(6);
    unsigned joined_packets = 0, wanted = 0;
    for (unsigned round = 0; round < 300; ++round) {
        Frame frame = maker.frame(maker.chance(), true, maker.number(100, 40000), maker.number(100, 1448));
        const std::size_t tcp = frame.says.csum_start;
        frame.bytes[tcp + 13] &= static_cast<std::uint8_t>(~reduced);
        const std::vector<Bytes> packets = cut(frame.bytes, frame.says);
        const bool options = frame.v4 && frame.bytes[frame.l3] != 0x45;
        unsigned messages = 0;
        std::vector<Bytes> again;
        join(packets, [&](const VirtioHeader& says, const Bytes& bytes, unsigned number) {
            ++messages;
            ASSERT_EQ(Unfinished::is_long(says), number > 1);
            append_all(again, cut(bytes, says));
        });
        ASSERT_EQ(difference(again, packets), "") << round;
        if (options) continue;
        // Never as much as IP takes.
        EXPECT_EQ(messages, (packets.size() + batch_length - 1) / batch_length) << round;
        wanted += 1;
        joined_packets += static_cast<unsigned>(packets.size());
    }
    EXPECT_GT(joined_packets, wanted);
}

TEST_F(JoinedTest, TheKernelCutsWhatIsJoined) {
    if (!kernel_) GTEST_SKIP() << "no network namespace of its own: not root";
    Maker maker(7);
    KernelsCut kernel;
    for (unsigned round = 0; round < 100; ++round) {
        Frame frame = maker.frame(maker.chance(), true, maker.number(100, 40000), maker.number(100, 1448));
        frame.bytes[frame.says.csum_start + 13u] &= static_cast<std::uint8_t>(~reduced);
        const std::vector<Bytes> packets = cut(frame.bytes, frame.says);
        std::vector<Bytes> again;
        join(packets, [&](const VirtioHeader& says, const Bytes& bytes, unsigned) {
            append_all(again, kernel.of(says, bytes));
        });
        ASSERT_EQ(difference(again, without_tags(packets)), "") << round;
    }
}

/// Makes the TCP checksum of a packet right again.
void mend(Bytes& bytes, const Frame& frame) {
    const std::size_t tcp = frame.says.csum_start;
    store_be16(&bytes[tcp + 16], 0);
    const std::uint16_t pseudo = pseudo_sum(bytes, frame.l3, frame.v4, bytes.size() - tcp, 6);
    store_be16(&bytes[tcp + 16], static_cast<std::uint16_t>(~slow_sum(&bytes[tcp], bytes.size() - tcp, pseudo)));
    if (!frame.v4) return;
    store_be16(&bytes[frame.l3 + 10], 0);
    store_be16(&bytes[frame.l3 + 10], static_cast<std::uint16_t>(~slow_sum(&bytes[frame.l3], 20)));
}

// A flipped bit anywhere in any of them, with checksums that fit it or not.
TEST_F(JoinedTest, WhateverComesOutIsWhatWentIn) {
    Maker maker(8);
    unsigned unharmed = 0;
    for (unsigned round = 0; round < 6000; ++round) {
        Frame frame = maker.frame(maker.chance(), true, maker.number(200, 1200), 100);
        const std::size_t tcp = frame.says.csum_start;
        std::vector<Bytes> packets = cut(frame.bytes, frame.says);
        Bytes& harmed = packets[maker.number(0, static_cast<unsigned>(packets.size()) - 1)];
        const bool in_headers = maker.number(0, 9) != 0;
        const std::size_t at = maker.number(0, static_cast<unsigned>(in_headers ? tcp + 20 : harmed.size()) - 1);
        harmed[at] ^= static_cast<std::uint8_t>(1 << maker.number(0, 7));
        if (maker.chance()) mend(harmed, frame);
        std::vector<Bytes> again;
        unsigned messages = 0;
        join(packets, [&](const VirtioHeader& says, const Bytes& bytes, unsigned) {
            ++messages;
            append_all(again, cut(bytes, says));
        });
        ASSERT_EQ(difference(again, packets), "") << round << ": byte " << at << ", TCP from " << tcp << " on";
        unharmed += messages == 1;
    }
    // Harm to Ethernet's, IP's and TCP's fields of a packet in the middle always shows.
    EXPECT_LT(unharmed, 600U);
}

TEST_F(JoinedTest, AShorterPacketIsTheLastAndALongerOneBeginsAnew) {
    Maker maker(13);
    for (const int longer : {-40, 40}) {
        Frame frame = maker.frame(false, true, 300, 100);
        const std::size_t tcp = frame.says.csum_start;
        frame.bytes[tcp + 13] = ack;
        std::vector<Bytes> packets = cut(frame.bytes, frame.says);
        ASSERT_EQ(packets.size(), 3U);
        packets[1].resize(static_cast<std::size_t>(static_cast<int>(packets[1].size()) + longer));
        store_be16(&packets[1][frame.l3 + 4], static_cast<std::uint16_t>(packets[1].size() - frame.l3 - 40));
        const std::uint32_t sequence = load_be32(&packets[2][tcp + 4]);
        store_be32(&packets[2][tcp + 4], sequence + static_cast<std::uint32_t>(longer));
        for (Bytes& each : packets) mend(each, frame);
        std::vector<Bytes> again;
        std::vector<unsigned> joined;
        join(packets, [&](const VirtioHeader& says, const Bytes& bytes, unsigned number) {
            joined.push_back(number);
            append_all(again, cut(bytes, says));
        });
        EXPECT_EQ(joined, longer < 0 ? (std::vector<unsigned>{2, 1}) : (std::vector<unsigned>{1, 2}));
        EXPECT_EQ(difference(again, packets), "");
    }
}

TEST_F(JoinedTest, NothingIsJoinedThatIsLongerThanIpAllows) {
    constexpr unsigned segment = 1400, half = 40;
    Maker maker(14);
    for (const bool v4 : {true, false}) {
        Frame frame = maker.frame(v4, true, half * segment, segment);
        while (v4 && frame.bytes[frame.l3] != 0x45) frame = maker.frame(v4, true, half * segment, segment);
        std::uint8_t* const tcp = &frame.bytes[frame.says.csum_start];
        tcp[13] = ack;
        std::vector<Bytes> packets = cut(frame.bytes, frame.says);
        store_be32(tcp + 4, load_be32(tcp + 4) + half * segment);
        if (v4) {
            std::uint8_t* const id = &frame.bytes[frame.l3 + 4];
            store_be16(id, static_cast<std::uint16_t>(load_be16(id) + half));
        }
        append_all(packets, cut(frame.bytes, frame.says));
        ASSERT_EQ(packets.size(), 2 * half);
        std::vector<Bytes> again;
        std::vector<unsigned> joined;
        join(packets, [&](const VirtioHeader& says, const Bytes& bytes, unsigned number) {
            joined.push_back(number);
            append_all(again, cut(bytes, says));
        });
        const std::size_t headers = packets[0].size() - segment - frame.l3;
        const auto most = static_cast<unsigned>((65535 - headers) / segment);
        EXPECT_EQ(joined, (std::vector<unsigned>{most, 2 * half - most}));
        EXPECT_EQ(difference(again, packets), "");
    }
}

TEST_F(JoinedTest, WrongChecksumsAndOtherFlagsStayAlone) {
    Maker maker(9);
    for (const std::uint8_t flag : {syn, std::uint8_t{4}, std::uint8_t{32}, reduced}) {
        Frame frame = maker.frame(false, true, 300, 100);
        frame.bytes[frame.says.csum_start + 13u] = static_cast<std::uint8_t>(ack | flag);
        frame.says.gso_type = VirtioHeader::gso_tcp6 | VirtioHeader::ecn;
        unsigned messages = 0;
        join(cut(frame.bytes, frame.says), [&](const VirtioHeader&, const Bytes&, unsigned) { ++messages; });
        EXPECT_EQ(messages, flag == reduced ? 2U : 3U) << int{flag};  // CWR is the first's alone
    }
    for (std::size_t harmed = 0; harmed < 3; ++harmed) {
        Frame frame = maker.frame(false, true, 300, 100);
        frame.bytes[frame.says.csum_start + 13u] = ack;
        std::vector<Bytes> packets = cut(frame.bytes, frame.says);
        packets[harmed].back() ^= 1;
        std::vector<unsigned> joined;
        join(packets, [&](const VirtioHeader&, const Bytes&, unsigned number) { joined.push_back(number); });
        EXPECT_EQ(joined, harmed == 0   ? (std::vector<unsigned>{1, 2})
                          : harmed == 1 ? (std::vector<unsigned>{1, 1, 1})
                                        : (std::vector<unsigned>{2, 1}));
    }
}

}  // namespace
}  // namespace ovsdr::soft
