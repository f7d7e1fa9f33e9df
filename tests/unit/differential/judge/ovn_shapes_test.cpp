// OVN's megaflows as shapes: masks, actions, and megaflows drawn of them.
#include "tests/differential/judge/ovn_shapes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/paths.hpp"

namespace ovsdr::differential {

namespace {

std::vector<Shape> shapes() {
    return read_shapes(test::source_folder + "/tests/differential/ovn_megaflows.txt");
}

bool does(const Megaflow& megaflow, Action::Kind kind) {
    return std::ranges::count(megaflow.actions, kind, &Action::kind) != 0;
}

std::optional<std::uint32_t> nowhere() { return std::nullopt; }

TEST(OvnShapes, MostOfWhatAJudgeCanPoseIsRead) {
    const auto all = shapes();
    EXPECT_GE(all.size(), 170U);
    for (const Action::Kind kind : {Action::Kind::output, Action::Kind::set, Action::Kind::push, Action::Kind::pop,
                                    Action::Kind::tunnel_push, Action::Kind::tunnel_pop, Action::Kind::recirc,
                                    Action::Kind::refused}) {
        EXPECT_TRUE(std::ranges::any_of(all, [&](const Shape& shape) { return does(shape.megaflow, kind); }))
            << static_cast<int>(kind);
    }
}

TEST(OvnShapes, MasksAreThoseOfTheLine) {
    const auto all = shapes();
    const auto has = [&](auto is) { return std::ranges::any_of(all, is); };
    EXPECT_TRUE(has([](const Shape& shape) {   // ipv4(src=10.0.1.1/255.255.255.128)
        return shape.megaflow.eth_type == type_ipv4 && shape.megaflow[Feature::ip_src].mask == number(0xFFFFFF80);
    }));
    EXPECT_TRUE(has([](const Shape& shape) {   // tcp(src=48540/0x8000)
        return shape.megaflow.protocol() == protocol_tcp && shape.megaflow[Feature::tp_src].mask == number(0x8000);
    }));
    EXPECT_TRUE(has([](const Shape& shape) {   // ipv6(src=fd00:2::3/ffff:ffff:ffff:ffff::)
        PatternBytes prefix{};
        std::fill_n(prefix.begin(), 8, std::uint8_t{0xFF});
        return shape.megaflow.eth_type == type_ipv6 && shape.megaflow[Feature::ip_src].mask == prefix;
    }));
    EXPECT_TRUE(has([](const Shape& shape) {   // set(ipv4(tos=0xb8/0xfc))
        return std::ranges::any_of(shape.megaflow.actions, [](const Action& action) {
            return action.kind == Action::Kind::set && action.set.header == SetHeader::ipv4 &&
                   action.set.fields[2].mask == number(0xFC);
        });
    }));
}

TEST(OvnShapes, MegaflowsDrawnOfThemAreDisjoint) {
    Chance chance(1);
    const auto grown = grow_shapes(chance, shapes(), {.in_port = 2, .eth_type = type_ipv4}, 200, nowhere);
    ASSERT_GE(grown.size(), 100U);
    std::set<std::string> matches;
    for (const Megaflow& megaflow : grown) {
        EXPECT_EQ(megaflow.in_port, 2U);
        EXPECT_TRUE(matches.insert(match_text(megaflow)).second) << match_text(megaflow);
        EXPECT_FALSE(does(megaflow, Action::Kind::recirc)) << "there is nowhere to go";
        for (const Pattern& pattern : megaflow.patterns) EXPECT_EQ(both(pattern.value, pattern.mask), pattern.value);
    }
}

TEST(OvnShapes, NotEveryoneLooksAtTheWholeDestination) {
    Chance chance(1);
    unsigned found = 0;
    for (unsigned times = 0; times < 10; ++times) {
        const auto grown = grow_shapes(chance, shapes(), {.in_port = 2, .eth_type = type_ipv4}, 200, nowhere);
        found += static_cast<unsigned>(std::ranges::count_if(grown, [](const Megaflow& megaflow) {
            return megaflow[Feature::eth_dst].mask != ones(48);
        }));
    }
    EXPECT_GT(found, 0U);
}

TEST(OvnShapes, ATunnelsRootGetsWhatPopsIt) {
    Chance chance(1);
    Megaflow root{.in_port = uplink, .eth_type = type_ipv4};
    root[Feature::protocol] = {number(protocol_udp), ones(8)};
    root[Feature::tp_dst] = {number(udp_port_of(TunnelKind::geneve)), ones(16)};
    const auto grown = grow_shapes(chance, shapes(), root, 10, nowhere);
    ASSERT_FALSE(grown.empty());
    for (const Megaflow& megaflow : grown) EXPECT_TRUE(does(megaflow, Action::Kind::tunnel_pop)) << text_of(megaflow);
    root[Feature::tp_dst].value = number(53);
    for (const Megaflow& megaflow : grow_shapes(chance, shapes(), root, 10, nowhere)) {
        EXPECT_FALSE(does(megaflow, Action::Kind::tunnel_pop)) << text_of(megaflow);
    }
}

TEST(OvnShapes, TunnelsHaveTheirOptionAndMetadataItsZero) {
    const auto all = shapes();
    EXPECT_TRUE(std::ranges::any_of(all, [](const Shape& shape) {   // geneve({...,len=4,0x30001/0x7fffffff})
        const Megaflow& megaflow = shape.megaflow;
        return megaflow.tunnel && megaflow[Feature::tun_option].mask == number(0x7fffffff) &&
               megaflow[Feature::tun_id].mask == ones(24) && megaflow[Feature::tun_ttl].mask == PatternBytes{};
    }));
    EXPECT_TRUE(std::ranges::any_of(all, [](const Shape& shape) {   // ct_mark(0/0x2)
        return shape.megaflow.looks_for_zero_of(Metadata::ct_mark);
    }));
}

TEST(OvnShapes, NoShapeNoTree) {
    Chance chance(1);
    EXPECT_TRUE(grow_shapes(chance, shapes(), {.in_port = 2, .eth_type = type_arp}, 10, nowhere).empty());
}

TEST(MegaflowText, CopiesNestAndBothListsOfALengthAreEqual) {
    using Kind = Action::Kind;
    Megaflow megaflow{.in_port = 1, .eth_type = 0x88b5};
    megaflow.actions = {{.kind = Kind::copy_begin},
                        {.kind = Kind::copy_begin, .length = 1400},
                        {.kind = Kind::output, .port = 2},
                        {.kind = Kind::copy_end, .length = 1400},
                        {.kind = Kind::copy_end},
                        {.kind = Kind::recirc, .port = 7}};
    EXPECT_EQ(actions_text(megaflow), "clone(check_pkt_len(size=1400,gt(2),le(2))),recirc(7)");
}

}  // namespace

}  // namespace ovsdr::differential
