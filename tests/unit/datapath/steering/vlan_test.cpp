// All who go through a frame's VLAN tags stop at the same ethertype: the parser, who rewrites, and who counts.
#include "datapath/steering/meter.hpp"
#include "datapath/steering/parser.hpp"
#include "datapath/steering/reformat.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "frames.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

constexpr unsigned followed = 2;  ///< tags that ConnectX's parser goes through, of 802.1Q and 802.1ad

/// Where the ethertype behind the tags is, of a frame of at least 14 bytes, worked out here again.
[[nodiscard]] std::size_t type_place(const Bytes& frame) {
    const auto is_tag = [&](std::size_t at) {
        return (frame[at] == 0x81 && frame[at + 1] == 0) || (frame[at] == 0x88 && frame[at + 1] == 0xa8);
    };
    std::size_t at = 12;
    for (unsigned tags = 0; tags < followed && is_tag(at) && at + 6 <= frame.size(); ++tags) at += 4;
    return at;
}

/// Up to four tags of any type in front of IPv4 or IPv6, sometimes cut short.
[[nodiscard]] std::vector<Bytes> tagged_frames() {
    constexpr std::uint32_t types[] = {0x8100, 0x8100, 0x88a8, 0x88a8, 0x9100};
    std::mt19937 random(17);
    std::vector<Bytes> frames;
    for (unsigned i = 0; i < 5000; ++i) {
        FrameSpec spec{.version = i % 2 == 0 ? 4U : 6U};
        for (unsigned tags = random() % 5; tags > 0; --tags) {
            spec.tags.push_back(types[random() % 5] << 16 | (random() & 0xffff));
        }
        frames.push_back(make_frame(spec));
        if (random() % 4 == 0) frames.back().resize(14 + random() % 24);
    }
    return frames;
}

[[nodiscard]] std::uint16_t type_at(const Bytes& frame, std::size_t at) { return load_be16(&frame[at]); }

TEST(VlanTest, TheParserAndThePlacesOfHeadersFollowTwoTags) {
    for (const Bytes& frame : tagged_frames()) {
        const std::size_t place = type_place(frame);
        Key key;
        ASSERT_TRUE(parse(frame.data(), static_cast<std::uint32_t>(frame.size()), key));
        EXPECT_EQ(load_be16(key.bytes() + key_offset::ethertype), type_at(frame, place));
        const Headers headers = locate(frame.data(), static_cast<std::uint32_t>(frame.size()));
        EXPECT_EQ(headers.type, place);
        EXPECT_EQ(headers.vlan, place == 12 ? 0 : 12);
        if (headers.l3 != 0) {
            EXPECT_EQ(headers.l3, place + 2);
        }
    }
}

TEST(VlanTest, AnEncapsulationTakesAwayWhatTheParserFollows) {
    std::shared_ptr<const Reformat> encapsulation;
    ASSERT_EQ(Reformat::create(Reformat::Kind::encap_l3, Bytes(14, 0xee), true, encapsulation), 0);
    for (const Bytes& frame : tagged_frames()) {
        const std::size_t place = type_place(frame);
        DropReason reason{};
        rte_mbuf* const packet = encapsulation->apply(packet_of(frame), reason);
        ASSERT_NE(packet, nullptr);
        const Bytes now = frame_of(packet);
        rte_pktmbuf_free(packet);
        ASSERT_EQ(now.size(), 14 + frame.size() - place - 2);
        EXPECT_TRUE(std::equal(frame.begin() + static_cast<std::ptrdiff_t>(place) + 2, frame.end(), now.begin() + 14));
    }
}

TEST(VlanTest, AMeterOfIpBytesCountsBehindWhatTheParserFollows) {
    for (const Bytes& frame : tagged_frames()) {
        const std::size_t place = type_place(frame);
        std::size_t size = frame.size() - place - 2;
        const std::uint8_t* const header = frame.data() + place + 2;
        const std::uint16_t type = type_at(frame, place);
        if (type == 0x0800 && size >= 20) size = std::min<std::size_t>(size, load_be16(header + 2));
        if (type == 0x86dd && size >= 40) size = std::min<std::size_t>(size, 40U + load_be16(header + 4));
        constexpr std::uint32_t tokens = 40'000;
        Meter meter;
        Meter::Image image{};
        image[0] = 0x80 | 2 << 4;  // valid, starts green, IP bytes; a bucket that nothing fills
        image[8] = 8;
        image[9] = 200;
        store_be32(image.data() + 12, tokens);
        meter.write(image, ~0U);
        (void)meter.mark(1, Colour::green, frame.data(), static_cast<std::uint32_t>(frame.size()));
        EXPECT_EQ(tokens - load_be32(meter.read().data() + 12), size);
    }
}

}  // namespace
}  // namespace ovsdr::soft::test
