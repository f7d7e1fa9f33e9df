// What is excused, and nothing beside it.
#include "tests/differential/judge/named_differences.hpp"

#include <gtest/gtest.h>

#include "tests/differential/judge/recipe.hpp"

namespace ovsdr::differential {

namespace {

using enum NamedDifference;

Recipe tcp(std::uint16_t eth_type) {
    Recipe recipe{.in_port = 1, .eth_type = eth_type};
    recipe[Feature::protocol][15] = protocol_tcp;
    return recipe;
}

NamedDifference difference_of(const Recipe& recipe) {
    Chance chance(1);
    return untrue_header(frame_of(recipe, 0, chance));
}

TEST(UntrueHeader, TrueOnesHaveNoExcuse) {
    EXPECT_EQ(difference_of(tcp(type_ipv4)), count_of_differences);
    EXPECT_EQ(difference_of(tcp(type_ipv6)), count_of_differences);
    EXPECT_EQ(difference_of({.eth_type = type_arp}), count_of_differences);
}

TEST(UntrueHeader, NamesTheDataOffsetOfTcpBehindTagsToo) {
    for (const std::uint16_t type : {type_ipv4, type_ipv6}) {
        Recipe recipe = tcp(type);
        recipe.tags = {{customer_tag, 5}};
        recipe.offset_lie = 4;
        EXPECT_EQ(difference_of(recipe), tcp_data_offset);
        recipe.offset_lie = 15;
        EXPECT_EQ(difference_of(recipe), tcp_data_offset) << "beyond the packet";
        recipe.payload = 60;
        EXPECT_EQ(difference_of(recipe), count_of_differences) << "within it: options";
    }
}

TEST(UntrueHeader, NamesWhatIsWrongWithIpv6) {
    Recipe recipe = tcp(type_ipv6);
    recipe.ipv6_length_lie = true;
    EXPECT_EQ(difference_of(recipe), ipv6_length);
    recipe = tcp(type_ipv6);
    recipe.options = 1;
    recipe.extension = 60;
    EXPECT_EQ(difference_of(recipe), count_of_differences);
    recipe.chain_lie = true;
    EXPECT_EQ(difference_of(recipe), ipv6_chain);
    recipe = tcp(type_ipv6);
    recipe.fragment_header = true;
    EXPECT_EQ(difference_of(recipe), count_of_differences);
    recipe.fragment_lie = 2;
    EXPECT_EQ(difference_of(recipe), fragment_bits);
}

TEST(DifferInSourcePort, ThereAndNowhereElse) {
    const std::vector<std::uint8_t> ovs{1, 2, 0x83, 4, 5, 6};
    EXPECT_TRUE(differ_in_source_port({1, 2, 0x89, 9, 5, 6}, ovs, 2));
    EXPECT_FALSE(differ_in_source_port({1, 2, 0x89, 9, 5, 7}, ovs, 2));
    EXPECT_FALSE(differ_in_source_port({1, 0, 0x89, 9, 5, 6}, ovs, 2));
    EXPECT_FALSE(differ_in_source_port({1, 2, 0x89, 9, 5, 6}, ovs, 0)) << "OVS has chosen none";
    EXPECT_FALSE(differ_in_source_port({1, 2, 0x89, 9, 5}, ovs, 2));
    EXPECT_TRUE(differ_in_source_port({1, 2, 0x80, 0, 5, 6}, ovs, 2));
    EXPECT_FALSE(differ_in_source_port({1, 2, 0x7F, 0xFF, 5, 6}, ovs, 2)) << "32767: OVS begins at 32768";
    EXPECT_TRUE(differ_in_source_port({1, 2, 0xEE, 0x47, 5, 6}, ovs, 2));
    EXPECT_FALSE(differ_in_source_port({1, 2, 0xEE, 0x48, 5, 6}, ovs, 2)) << "61000";
    EXPECT_TRUE(differ_in_source_port({1, 2, 9}, {1, 2, 0x83}, 2)) << "cut in the port";
}

TEST(NamedDifferences, AreInTheOrderOfTheirNumbers) {
    for (std::size_t i = 0; i < named_difference_length; ++i) {
        EXPECT_EQ(static_cast<std::size_t>(named_differences()[i].difference), i);
    }
}

}  // namespace

}  // namespace ovsdr::differential
