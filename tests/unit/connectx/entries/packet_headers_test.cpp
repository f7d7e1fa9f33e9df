// What the parser takes for a tunnel and for a frame inside, and what it does not know.
#include "tests/connectx/entries/packet_headers.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/connectx/tunnel_frames.hpp"

namespace ovsdr::connectx::entries {
namespace {

using namespace ovsdr::connectx::test;
using entries::test::frame_of;
using Kind = Tunnel::Kind;

constexpr GeneveOption wanted{0x0102, 0x80, 1};

PacketHeaders parsed(const Bytes& frame, Side side = Side::rx, std::optional<GeneveOption> option = wanted) {
    PacketHeaders headers;
    headers.parse({.bytes = frame, .side = side}, option);
    return headers;
}

Kind kind_of(const Bytes& frame) { return parsed(frame).tunnel().kind; }

TEST(PacketHeaders, ReadsVxlanAndTheFrameInside) {
    const Bytes inside = frame_of({.protocol = 17, .tagged = true});
    for (const Bytes& around : {tunnel::vxlan(0x010203), tunnel::vxlan_over(tunnel::outer_ipv6(17), 0x010203)}) {
        for (const bool with_tag : {false, true}) {
            const Bytes plain = encapsulated(around, inside);
            const PacketHeaders headers = parsed(with_tag ? tagged(plain) : plain);
            EXPECT_EQ(headers.tunnel().kind, Kind::vxlan);
            EXPECT_EQ(headers.tunnel().frame, around.size() + (with_tag ? 4 : 0));
            EXPECT_EQ(headers.of(Layer::outer)[Field::vxlan_vni], 0x010203U);
            EXPECT_EQ(headers.of(Layer::outer)[Field::destination_port], 4789U);
            EXPECT_EQ(headers.of(Layer::outer)[Field::first_vid], with_tag ? 7U : 0U);
            EXPECT_EQ(headers.of(Layer::inner)[Field::destination_port], 2000U);
            EXPECT_EQ(headers.of(Layer::inner)[Field::first_vid], 5U);
        }
    }
}

TEST(PacketHeaders, ReadsGenevesHeader) {
    Bytes around = geneve_with({9, 9, 9, 2, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 0x80, 1, 0xA1, 0xA2, 0xA3, 0xA4});
    around[43] = 0xC0;
    const PacketHeaders headers = parsed(encapsulated(around, frame_of({})));
    const HeaderFields& outer = headers.of(Layer::outer);
    EXPECT_EQ(headers.tunnel().kind, Kind::geneve);
    EXPECT_EQ(headers.tunnel().frame, around.size());
    EXPECT_EQ(outer[Field::geneve_options_length], 5U);
    EXPECT_EQ(outer[Field::geneve_oam], 1U);
    EXPECT_EQ(outer[Field::geneve_protocol], 0x6558U);
    EXPECT_EQ(outer[Field::geneve_vni], 1U);
    EXPECT_EQ(outer[Field::geneve_option_data], 0xA1A2A3A4U);
    EXPECT_EQ(outer[Field::geneve_option_exists], 1U);
    EXPECT_TRUE(headers.knows(Layer::outer, Field::geneve_option_data));
    EXPECT_FALSE(headers.knows(Layer::outer, Field::vxlan_vni));
    EXPECT_FALSE(headers.knows(Layer::outer, Field::gre_key));
}

TEST(PacketHeaders, KnowsAGeneveOptionByTheObjectOnly) {
    const auto knows = [](const Bytes& options, std::optional<GeneveOption> option = wanted) {
        const Bytes frame = encapsulated(geneve_with(options), frame_of({}));
        const PacketHeaders headers = parsed(frame, Side::rx, option);
        EXPECT_EQ(headers.tunnel().kind, Kind::geneve);
        return headers.knows(Layer::outer, Field::geneve_option_exists);
    };
    const Bytes option{1, 2, 0x80, 1, 9, 9, 9, 9};
    EXPECT_TRUE(knows(option));
    EXPECT_TRUE(knows({}));
    EXPECT_TRUE(knows({1, 3, 0x80, 0, 1, 2, 0x81, 0, 1, 2, 0, 0})) << "others, whatever their length";
    EXPECT_TRUE(knows({1, 2, 0x80, 0xE1, 9, 9, 9, 9})) << "reserved bits beside the length";
    EXPECT_FALSE(knows(option, std::nullopt));
    EXPECT_FALSE(knows({1, 2, 0x80, 0}));
    EXPECT_FALSE(knows({1, 2, 0x80, 2, 0, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_FALSE(knows({9, 9, 9, 1}));
    Bytes twice = option;
    twice.insert(twice.end(), option.begin(), option.end());
    EXPECT_FALSE(knows(twice));
}

TEST(PacketHeaders, ReadsGresFlagsAndWhatTheyBring) {
    for (const unsigned flags : {0U, 0x8000U, 0x2000U, 0x1000U, 0xA000U, 0xB000U}) {
        for (const Bytes& outer : {tunnel::outer_ipv4(47), tunnel::outer_ipv6(47)}) {
            const Bytes around = tunnel::gre(outer, flags);
            const PacketHeaders headers = parsed(encapsulated(around, frame_of({})));
            EXPECT_EQ(headers.tunnel().kind, Kind::gre);
            EXPECT_EQ(headers.tunnel().frame, around.size());
            const HeaderFields& fields = headers.of(Layer::outer);
            EXPECT_EQ(fields[Field::gre_checksum_present], flags >> 15);
            EXPECT_EQ(fields[Field::gre_key_present], flags >> 13 & 1);
            EXPECT_EQ(fields[Field::gre_sequence_present], flags >> 12 & 1);
            EXPECT_EQ(fields[Field::gre_key], (flags & 0x2000) != 0 ? 7U : 0U);
            EXPECT_EQ(fields[Field::gre_protocol], 0x6558U);
            EXPECT_EQ(headers.of(Layer::inner)[Field::ipv4_source], 0x0A000001U);
        }
    }
}

TEST(PacketHeaders, ShowsTheWordsOfAHeaderThatMakesNoTunnelToo) {
    const Bytes inside = frame_of({.protocol = 17});
    const auto shown = [&](Bytes around, std::size_t at, std::uint8_t byte) {
        around[at] = byte;
        const PacketHeaders headers = parsed(encapsulated(around, inside));
        EXPECT_TRUE(headers.knows(Layer::outer, Field::tunnel_header_0));
        return headers.of(Layer::outer)[Field::tunnel_header_0];
    };
    EXPECT_EQ(shown(tunnel::vxlan(), 42, 0x08), 0x08000000U);
    EXPECT_EQ(shown(tunnel::vxlan(), 42, 0xF7), 0xF7000000U);
    EXPECT_EQ(shown(tunnel::geneve(0), 42, 0x40), 0x40406558U);
    EXPECT_EQ(shown(tunnel::gre(tunnel::outer_ipv4(47), 0), 34, 0x40), 0x40006558U);
    EXPECT_EQ(shown(tunnel::gre(tunnel::outer_ipv6(47), 0), 55, 0x07), 0x00076558U);
    EXPECT_FALSE(parsed(inside).knows(Layer::outer, Field::tunnel_header_0));
    EXPECT_FALSE(parsed(encapsulated(tunnel::vxlan(), inside), Side::tx).knows(Layer::outer, Field::tunnel_header_0));
    EXPECT_TRUE(parsed(encapsulated(tunnel::vxlan(), inside)).knows(Layer::outer, Field::tunnel_header_1));
    EXPECT_FALSE(parsed(encapsulated(tunnel::gre(tunnel::outer_ipv4(47)), inside))
                     .knows(Layer::outer, Field::tunnel_header_1)) << "GRE's key has another place";
}

TEST(PacketHeaders, TakesNothingElseForATunnel) {
    const Bytes inside = frame_of({.protocol = 17});
    const Bytes vxlan = encapsulated(tunnel::vxlan(), inside), geneve = encapsulated(tunnel::geneve(0), inside);
    const Bytes vxlan6 = encapsulated(tunnel::vxlan_over(tunnel::outer_ipv6(17)), inside);
    const auto with = [](Bytes frame, std::size_t at, std::uint8_t byte) {
        frame[at] = byte;
        return frame;
    };
    EXPECT_EQ(kind_of(inside), Kind::none);
    EXPECT_EQ(kind_of(with(vxlan, 37, 0xB6)), Kind::none) << "port 4790";
    EXPECT_EQ(kind_of(with(vxlan, 42, 0xF7)), Kind::none) << "no I flag";
    EXPECT_EQ(kind_of(with(vxlan, 42, 0xFF)), Kind::vxlan) << "reserved bits are ignored";
    EXPECT_EQ(kind_of(with(vxlan, 39, vxlan[39] - 1)), Kind::none) << "UDP's length";
    EXPECT_EQ(kind_of(with(vxlan, 20, 0x20)), Kind::none) << "a first fragment";
    EXPECT_EQ(kind_of(with(vxlan, 21, 1)), Kind::none) << "a later fragment";
    EXPECT_EQ(kind_of(with(vxlan6, 19, vxlan6[19] + 1)), Kind::none) << "IPv6 beyond the frame";
    EXPECT_EQ(kind_of(with(geneve, 42, 0x40)), Kind::none) << "Geneve's version 1";
    EXPECT_EQ(kind_of(with(geneve, 42, 0x3F)), Kind::none) << "options beyond the packet";
    for (const unsigned flags : {0x4000U, 0x0800U, 0x0001U, 0x0080U}) {
        EXPECT_EQ(kind_of(encapsulated(tunnel::gre(tunnel::outer_ipv4(47), flags), inside)), Kind::none) << flags;
    }
    Bytes cut = tunnel::gre(tunnel::outer_ipv4(47));
    cut.resize(cut.size() - 1);
    EXPECT_EQ(kind_of(encapsulated(cut, {})), Kind::none) << "a key that is cut short";
    const Bytes gre6 = encapsulated(tunnel::gre(tunnel::outer_ipv6(47), 0), inside);
    EXPECT_EQ(kind_of(with(gre6, 19, gre6[19] + 1)), Kind::none) << "IPv6 beyond the frame";
    // A fragment whose Ethernet header looks like GRE's.
    Bytes piece = with(encapsulated(tunnel::gre(tunnel::outer_ipv4(47), 0), inside), 20, 0x20);
    const Bytes like_gre{0, 0, 0x65, 0x58};
    std::copy(like_gre.begin(), like_gre.end(), piece.begin());
    EXPECT_EQ(kind_of(piece), Kind::none);
    EXPECT_EQ(parsed(vxlan, Side::tx).tunnel().kind, Kind::none);
}

TEST(PacketHeaders, HasNoFrameInsideWhereThereIsNone) {
    const auto frame_at = [](const Bytes& frame) { return parsed(frame).tunnel().frame; };
    const Bytes packet(20, 0x45);
    Bytes geneve = tunnel::geneve(0), gre = tunnel::gre(tunnel::outer_ipv4(47), 0);
    put(geneve, 44, 0x0800);
    put(gre, 36, 0x0800);
    EXPECT_EQ(frame_at(encapsulated(geneve, packet)), 0U);
    EXPECT_EQ(frame_at(encapsulated(gre, packet)), 0U);
    EXPECT_EQ(kind_of(encapsulated(gre, packet)), Kind::gre);
    EXPECT_EQ(frame_at(encapsulated(tunnel::vxlan(), Bytes(13))), 0U);
    EXPECT_EQ(frame_at(encapsulated(tunnel::vxlan(), Bytes(14))), 50U);
    EXPECT_FALSE(parsed(encapsulated(gre, packet)).knows(Layer::inner, Field::l3_type));
}

TEST(PacketHeaders, ParsesTheFrameInsideToTheOuterPacketsEnd) {
    Bytes frame = encapsulated(tunnel::vxlan(), frame_of({}));
    frame.resize(frame.size() + 6);
    EXPECT_EQ(parsed(frame).of(Layer::inner)[Field::destination_port], 2000U);
    Bytes inside = frame_of({});
    put(inside, 16, 52);
    frame = encapsulated(tunnel::vxlan(), inside);
    frame.resize(frame.size() + 6);
    EXPECT_EQ(parsed(frame).of(Layer::inner)[Field::l3_type], 0U) << "its IP packet is longer than the outer one";
}

TEST(PacketHeaders, ForgetsTheLastTunnel) {
    PacketHeaders headers = parsed(encapsulated(tunnel::vxlan(), frame_of({})));
    headers.parse({.bytes = frame_of({})}, wanted);
    EXPECT_FALSE(headers.knows(Layer::inner, Field::l3_type));
    EXPECT_FALSE(headers.knows(Layer::outer, Field::vxlan_vni));
    headers.parse({.bytes = encapsulated(tunnel::gre(tunnel::outer_ipv4(47)), frame_of({}))}, wanted);
    EXPECT_EQ(headers.of(Layer::outer)[Field::gre_key], 7U);
    headers.parse({.bytes = encapsulated(tunnel::gre(tunnel::outer_ipv4(47), 0), frame_of({}))}, wanted);
    EXPECT_EQ(headers.of(Layer::outer)[Field::gre_key], 0U);
}

}  // namespace
}  // namespace ovsdr::connectx::entries
