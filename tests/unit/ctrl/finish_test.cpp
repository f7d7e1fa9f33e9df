// What a dr port sends of packets whose checksum OVS left to it, or that are to be several.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/unit/ctrl/finish_probe.h"

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t ethernet = 14, tcp_options = 12, tcp_header = 20 + tcp_options;
constexpr std::uint8_t tcp = 6, udp = 17, sctp = 132;
constexpr std::uint8_t fin = 1, psh = 8, ack = 16, cwr = 128;

std::uint16_t be16(const Bytes& bytes, std::size_t at) {
    return static_cast<std::uint16_t>(bytes.at(at) << 8 | bytes.at(at + 1));
}
std::uint32_t be32(const Bytes& bytes, std::size_t at) {
    return std::uint32_t{be16(bytes, at)} << 16 | be16(bytes, at + 2);
}
void put16(Bytes& bytes, std::size_t at, std::size_t value) {
    bytes.at(at) = static_cast<std::uint8_t>(value >> 8);
    bytes.at(at + 1) = static_cast<std::uint8_t>(value);
}
/// RFC 1071, byte by byte: 0xFFFF over what has its checksum in it.
std::uint32_t sum(const Bytes& bytes, std::size_t from, std::size_t end, std::uint32_t start = 0) {
    for (std::size_t i = from; i < end; ++i) start += (i - from) % 2 == 0 ? bytes.at(i) << 8 : bytes.at(i);
    while (start > 0xFFFF) start = (start & 0xFFFF) + (start >> 16);
    return start;
}

struct Shape {
    bool ipv6 = false, tagged = false;
    std::size_t payload = 100;
    std::uint8_t flags = ack;
    std::size_t padding = 0;

    [[nodiscard]] std::size_t l3() const { return ethernet + (tagged ? 4 : 0); }
    [[nodiscard]] std::size_t l4() const { return l3() + (ipv6 ? 40 : 20); }
};

/// The checksum field has what a tap's packets have there: something else.
Bytes frame_of(const Shape& shape, std::uint8_t protocol) {
    const std::size_t header = protocol == tcp ? tcp_header : protocol == udp ? 8 : 12;
    Bytes bytes(shape.l4() + header + shape.payload + shape.padding, 0);
    for (std::size_t i = 0; i < 12; ++i) bytes[i] = static_cast<std::uint8_t>(2 * i);
    if (shape.tagged) {
        put16(bytes, 12, 0x8100);
        put16(bytes, 14, 7);
    }
    put16(bytes, shape.l3() - 2, shape.ipv6 ? 0x86dd : 0x0800);
    std::uint8_t* const l3 = &bytes[shape.l3()];
    if (shape.ipv6) {
        l3[0] = 0x60;
        put16(bytes, shape.l3() + 4, header + shape.payload);
        l3[6] = protocol;
        l3[7] = 64;
        for (std::size_t i = 0; i < 32; ++i) l3[8 + i] = static_cast<std::uint8_t>(0xfd + i);
    } else {
        l3[0] = 0x45;
        put16(bytes, shape.l3() + 2, 20 + header + shape.payload);
        put16(bytes, shape.l3() + 4, 0xFFFE);   // ids wrap
        l3[6] = 0x40;
        l3[8] = 64;
        l3[9] = protocol;
        for (std::size_t i = 0; i < 8; ++i) l3[12 + i] = static_cast<std::uint8_t>(10 + i);
        put16(bytes, shape.l3() + 10, 0xFFFF ^ sum(bytes, shape.l3(), shape.l4()));
    }
    const std::size_t l4 = shape.l4();
    put16(bytes, l4, 1000);
    put16(bytes, l4 + 2, 2000);
    if (protocol == tcp) {
        for (std::size_t i = 0; i < 4; ++i) bytes[l4 + 4 + i] = 0xFF;   // sequence numbers wrap
        bytes[l4 + 12] = tcp_header / 4 << 4;
        bytes[l4 + 13] = shape.flags;
        put16(bytes, l4 + 16, 0x1234);
    } else if (protocol == udp) {
        put16(bytes, l4 + 4, header + shape.payload);
        put16(bytes, l4 + 6, 0x1234);
    }
    for (std::size_t i = 0; i < shape.payload; ++i) {
        bytes[l4 + header + i] = static_cast<std::uint8_t>(i * 7 + (i >> 8));
    }
    for (std::size_t i = 0; i < shape.padding; ++i) bytes[bytes.size() - 1 - i] = 0xEE;
    return bytes;
}

/// IP's and that of TCP or UDP, as a receiver looks at them.
void expect_good_checksums(const Bytes& bytes, const Shape& shape, std::uint8_t protocol) {
    const std::size_t l3 = shape.l3(), l4 = shape.l4();
    EXPECT_TRUE(shape.ipv6 || sum(bytes, l3, l4) == 0xFFFFU);
    const std::size_t size = shape.ipv6 ? be16(bytes, l3 + 4) : be16(bytes, l3 + 2) - 20U;
    const std::uint32_t addresses = sum(bytes, l3 + (shape.ipv6 ? 8 : 12), l4);
    EXPECT_EQ(sum(bytes, l4, l4 + size, addresses + protocol + static_cast<std::uint32_t>(size)), 0xFFFFU);
}

std::vector<Bytes> segments_of_cut(const Bytes& frame, std::size_t keep, std::uint32_t mtu,
                                   std::uint32_t frame_size = 2000, probe_left left = PROBE_TCP) {
    Bytes all(2 * frame.size() + 200 * 100, 0);
    const std::size_t size = probe_segment(frame.data(), frame.size(), keep, left, mtu, frame_size, all.data());
    std::vector<Bytes> segments;
    for (std::size_t at = 0; at < size;) {
        std::uint32_t length;
        std::memcpy(&length, &all[at], sizeof length);
        at += sizeof length;
        segments.emplace_back(all.begin() + static_cast<long>(at), all.begin() + static_cast<long>(at + length));
        at += length;
    }
    return segments;
}

std::vector<Bytes> segments_of(const Bytes& frame, std::uint32_t mtu, std::uint32_t frame_size = 2000,
                               probe_left left = PROBE_TCP) {
    return segments_of_cut(frame, frame.size(), mtu, frame_size, left);
}

const std::vector<Shape> shapes{{}, {.ipv6 = true}, {.tagged = true}, {.ipv6 = true, .tagged = true},
                                {.payload = 101}, {.payload = 0}, {.payload = 1, .padding = 5}};

TEST(Finish, MakesTheChecksumThatWasLeft) {
    for (const Shape& shape : shapes) {
        SCOPED_TRACE(std::to_string(shape.ipv6) + std::to_string(shape.tagged) + " " + std::to_string(shape.payload));
        for (const auto& [protocol, left] : {std::pair{tcp, PROBE_TCP}, {udp, PROBE_UDP}}) {
            Bytes bytes = frame_of(shape, protocol);
            const Bytes before = bytes;
            ASSERT_TRUE(probe_finish(bytes.data(), bytes.size(), left));
            expect_good_checksums(bytes, shape, protocol);
            const std::size_t field = shape.l4() + (protocol == tcp ? 16 : 6);
            std::copy_n(before.begin() + static_cast<long>(field), 2, bytes.begin() + static_cast<long>(field));
            EXPECT_EQ(bytes, before) << "nothing else is touched";
        }
    }
}

TEST(Finish, LeavesFinishedPacketsAlone) {
    Bytes bytes = frame_of({}, tcp);
    const Bytes before = bytes;
    EXPECT_TRUE(probe_finish(bytes.data(), bytes.size(), PROBE_NOTHING));
    EXPECT_EQ(bytes, before);
}

/// 0 would say that there is none.
TEST(Finish, AChecksumOfUdpIsNeverZero) {
    const Shape shape{.payload = 2};
    Bytes bytes = frame_of(shape, udp);
    put16(bytes, bytes.size() - 2, 0);
    ASSERT_TRUE(probe_finish(bytes.data(), bytes.size(), PROBE_UDP));
    put16(bytes, bytes.size() - 2, be16(bytes, shape.l4() + 6));   // the sum of the rest: now all together are 0xFFFF
    ASSERT_TRUE(probe_finish(bytes.data(), bytes.size(), PROBE_UDP));
    EXPECT_EQ(be16(bytes, shape.l4() + 6), 0xFFFFU);
}

TEST(Finish, SctpHasACrc32c) {
    const Shape shape{.payload = 32};
    Bytes bytes = frame_of(shape, sctp);
    ASSERT_TRUE(probe_finish(bytes.data(), bytes.size(), PROBE_SCTP));
    const std::size_t field = shape.l4() + 8;
    std::uint32_t stands;
    std::memcpy(&stands, &bytes[field], sizeof stands);
    std::fill_n(bytes.begin() + static_cast<long>(field), 4, std::uint8_t{0});
    std::uint32_t crc = UINT32_MAX;   // bit by bit, RFC 9260 appendix A
    for (std::size_t i = shape.l4(); i < bytes.size(); ++i) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82F63B78 : 0);
    }
    EXPECT_EQ(stands, ~crc);
}

TEST(Finish, WhatHasNoSuchHeaderCannotBeFinished) {
    Bytes bytes = frame_of({}, udp);
    EXPECT_FALSE(probe_finish(bytes.data(), bytes.size() - 104, PROBE_UDP)) << "cut off in UDP's header";
    Bytes arp(60, 0);
    put16(arp, 12, 0x0806);
    EXPECT_FALSE(probe_finish(arp.data(), arp.size(), PROBE_TCP));
    EXPECT_TRUE(segments_of(arp, 1500).empty());
    Bytes datagram = frame_of({.payload = 3000}, udp);
    datagram[ethernet + 20 + 12] = 0x80;   // where TCP tells its header's size
    EXPECT_TRUE(segments_of(datagram, 1500, 2000, PROBE_UDP).empty());
    EXPECT_TRUE(segments_of(datagram, 1500, 2000, PROBE_NOTHING).empty()) << "as of TCP inside of a tunnel's packet";
}

/// By max_len or a mirror's snaplen: offsets and what is asked for stay as they were.
TEST(Finish, WhatOvsHasCutGoesAsItIs) {
    for (const Shape& shape : shapes) {
        for (const auto& [protocol, left] : {std::pair{tcp, PROBE_TCP}, {udp, PROBE_UDP}, {sctp, PROBE_SCTP}}) {
            const Bytes whole = frame_of(shape, protocol);
            for (std::size_t keep = ethernet; keep + shape.padding < whole.size(); ++keep) {
                Bytes bytes = whole;
                ASSERT_TRUE(probe_finish_cut(bytes.data(), bytes.size(), keep, left)) << keep;
                ASSERT_EQ(bytes, whole) << keep;
            }
        }
    }
}

TEST(Finish, MakesTheChecksumOfIpv4WhereItIsAskedFor) {
    for (const auto& [protocol, left] : {std::pair{tcp, PROBE_TCP}, {udp, PROBE_UDP}, {tcp, PROBE_NOTHING}}) {
        const Shape shape{.payload = 100};
        Bytes bytes = frame_of(shape, protocol);
        const Bytes right = bytes;
        put16(bytes, shape.l3() + 10, 0x1234);
        ASSERT_TRUE(probe_finish_ip(bytes.data(), bytes.size(), left));
        EXPECT_EQ(be16(bytes, shape.l3() + 10), be16(right, shape.l3() + 10));
        if (left != PROBE_NOTHING) expect_good_checksums(bytes, shape, protocol);
    }
}

TEST(Segmentation, SegmentsAreWholePacketsOfTheMtuAndHaveTheWholePayload) {
    constexpr std::uint32_t mtu = 1500;
    for (Shape shape : {Shape{}, Shape{.ipv6 = true}, Shape{.tagged = true}}) {
        shape.flags = fin | psh | ack | cwr;
        const std::size_t most = mtu - (shape.l4() - shape.l3()) - tcp_header;
        for (const std::size_t payload : std::vector<std::size_t>{0, 1, most, most + 1, 4 * most, 60000}) {
            SCOPED_TRACE(std::to_string(shape.ipv6) + std::to_string(shape.tagged) + " " + std::to_string(payload));
            shape.payload = payload;
            const Bytes frame = frame_of(shape, tcp);
            const auto segments = segments_of(frame, mtu);
            ASSERT_EQ(segments.size(), std::max<std::size_t>(1, (payload + most - 1) / most));
            Bytes together(frame.begin(), frame.begin() + static_cast<long>(shape.l4() + tcp_header));
            for (std::size_t i = 0; i < segments.size(); ++i) {
                const Bytes& each = segments[i];
                const bool last = i + 1 == segments.size();
                expect_good_checksums(each, shape, tcp);
                EXPECT_EQ(be32(each, shape.l4() + 4), static_cast<std::uint32_t>(UINT32_MAX + i * most));
                EXPECT_EQ(each[shape.l4() + 13], ack | (i == 0 ? cwr : 0) | (last ? fin | psh : 0));
                EXPECT_TRUE(last || each.size() == shape.l3() + mtu) << each.size();
                const auto id = static_cast<std::uint16_t>(0xFFFE + i);
                EXPECT_TRUE(shape.ipv6 || be16(each, shape.l3() + 4) == id) << i;
                together.insert(together.end(), each.begin() + static_cast<long>(shape.l4() + tcp_header), each.end());
                EXPECT_TRUE(std::equal(frame.begin(), frame.begin() + static_cast<long>(shape.l3()), each.begin()));
            }
            EXPECT_EQ(together, frame);
        }
    }
}

/// The host's own segments would each have passed.
TEST(Segmentation, WhatOvsHasCutIsSegmentedUpToTheCutWhereItIsTooLong) {
    constexpr std::uint32_t mtu = 1500, frame_size = mtu + 22;
    for (const Shape& shape : {Shape{.payload = 5000}, Shape{.ipv6 = true, .payload = 5000, .flags = fin | ack}}) {
        const Bytes frame = frame_of(shape, tcp);
        const auto whole = segments_of(frame, mtu, frame_size);
        ASSERT_EQ(whole.size(), 4U);
        const std::size_t headers = shape.l4() + tcp_header, most = whole[0].size() - headers;
        for (const std::size_t payload : {most + 1, 2 * most - 1, 2 * most, 2 * most + 1, std::size_t{4999}}) {
            if (headers + payload <= frame_size) continue;
            const auto cut = segments_of_cut(frame, headers + payload, mtu, frame_size);
            ASSERT_EQ(cut.size(), (payload + most - 1) / most) << payload;
            std::size_t there = 0;
            for (std::size_t i = 0; i < cut.size(); ++i) {
                there += cut[i].size() - headers;
                if (cut[i].size() == whole[i].size()) {
                    EXPECT_EQ(cut[i], whole[i]) << i;
                    continue;
                }
                Bytes head = whole[i];   // as it would have been cut
                head.resize(cut[i].size());
                head[shape.l4() + 16] = 0x12;
                head[shape.l4() + 17] = 0x34;   // unfinished
                EXPECT_EQ(cut[i], head) << i;
            }
            EXPECT_EQ(there, payload);
        }
        EXPECT_TRUE(segments_of_cut(frame, frame_size, mtu, frame_size).empty()) << "it goes as it is";
    }
}

TEST(Segmentation, NeedsRoomForTheHeaders) {
    const Shape shape{.payload = 3000};
    const Bytes frame = frame_of(shape, tcp);
    EXPECT_TRUE(segments_of(frame, 20 + tcp_header).empty());
    EXPECT_EQ(segments_of(frame, 20 + tcp_header + 1000).size(), 3U);
    EXPECT_TRUE(segments_of(frame, 1500, 1500 + ethernet - 1).empty());
    EXPECT_FALSE(segments_of(frame, 1500, 1500 + ethernet).empty());
    const Shape tagged{.tagged = true, .payload = 3000};
    EXPECT_TRUE(segments_of(frame_of(tagged, tcp), 1500, 1500 + ethernet).empty());
}

}  // namespace
