// The frames that recipes become: where a frame's number is, and which fragments a megaflow's packets are.
#include "tests/differential/judge/recipe.hpp"

#include <gtest/gtest.h>

#include <set>

namespace ovsdr::differential {
namespace {

constexpr std::size_t ethernet = 14;
constexpr std::uint16_t more_fragments = 0x2000, offset_bits = 0x1FFF;

std::size_t half(const std::vector<std::uint8_t>& frame, std::size_t at) {
    return static_cast<std::size_t>(frame[at] << 8 | frame[at + 1]);
}

/// A rewrite mends the checksum of a whole packet, and would change a number that lies in it.
TEST(Recipe, TheNumberIsBehindThePacketOrThePacketIsBroken) {
    Chance chance(1);
    unsigned broken = 0;
    for (std::size_t payload = 0; payload < 12; ++payload) {
        for (std::size_t shortened_to = 0; shortened_to < 90; shortened_to += shortened_to == 0 ? ethernet : 1) {
            Recipe recipe{.eth_type = type_ipv4, .payload = payload, .shortened_to = shortened_to};
            recipe[Feature::protocol] = number(protocol_tcp);
            const auto frame = frame_of(recipe, 0x01020304, chance);
            ASSERT_EQ(half(frame, frame.size() - 4) << 16 | half(frame, frame.size() - 2), 0x01020304U);
            const std::size_t end = ethernet + half(frame, ethernet + 2);
            const bool cut = frame.size() < ethernet + 20 || end > frame.size();
            broken += cut ? 1 : 0;
            EXPECT_TRUE(cut || end + 4 <= frame.size()) << payload << " bytes, shortened to " << shortened_to;
        }
    }
    EXPECT_GT(broken, 100U);
}

TEST(Recipe, PacketsOfAMegaflowOfAnyFragmentAreFirstAndLaterOnes) {
    Chance chance(1);
    const auto drawn = [&](Fragments fragments) {
        std::set<bool> first;
        for (unsigned i = 0; i < 50; ++i) {
            const Recipe recipe = aimed_at({.in_port = 1, .eth_type = type_ipv4, .fragments = fragments}, chance);
            EXPECT_TRUE(recipe.fragment_header);
            EXPECT_NE(recipe.fragment & (more_fragments | offset_bits), 0);
            first.insert((recipe.fragment & offset_bits) == 0);
        }
        return first;
    };
    EXPECT_EQ(drawn(Fragments::first), std::set{true});
    EXPECT_EQ(drawn(Fragments::later), std::set{false});
    EXPECT_EQ(drawn(Fragments::any), (std::set{false, true}));
}

/// What a device does to a header that is neither whole nor known to be cut short nobody can say.
TEST(Recipe, APacketThatLiesAboutItsLengthIsWhole) {
    Chance chance(1);
    unsigned lies = 0;
    for (unsigned i = 0; i < 200; ++i) {
        Recipe recipe{.eth_type = type_ipv6, .cut = 3, .shortened_to = 60};
        lie(recipe, chance);
        if (!recipe.ipv6_length_lie) continue;
        ++lies;
        EXPECT_EQ(recipe.cut, 0U);
        EXPECT_EQ(recipe.shortened_to, 0U);
    }
    EXPECT_GT(lies, 10U);
}

}  // namespace
}  // namespace ovsdr::differential
