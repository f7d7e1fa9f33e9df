// Which megaflows must be in a NIC: of chains, of what is refused, of knots.
#include "tests/differential/judge/expectation.hpp"

#include <gtest/gtest.h>

namespace ovsdr::differential {

namespace {

using enum Expectation;
using Kind = Action::Kind;

constexpr unsigned connectx_5 = 0, connectx_6dx = 1;

Megaflow megaflow(std::uint32_t ufid, std::uint32_t recirc_id, std::vector<Action> actions) {
    return {.ufid = ufid, .recirc_id = recirc_id, .in_port = 1, .eth_type = 0x88b5, .actions = std::move(actions)};
}

/// 0 leads to 7, where 1 lies.
Scenario chain() {
    Scenario scenario;
    scenario.versions = {megaflow(0, 0, {{.kind = Kind::recirc, .port = 7}}),
                         megaflow(1, 7, {{.kind = Kind::output, .port = 2}})};
    scenario.ufids = 2;
    scenario.tables[7] = {.layer = 1};
    return scenario;
}

std::vector<Expectation> after(const Scenario& scenario, const std::vector<Change>& changes,
                               unsigned format = connectx_6dx) {
    Expectations expectations(scenario, format);
    expectations.apply({.changes = changes});
    return expectations.all(std::vector<std::uint8_t>(scenario.versions.size()));
}

TEST(Expectations, ChildIsInstalledWithItsParentInAnyOrder) {
    const Scenario scenario = chain();
    EXPECT_EQ(after(scenario, {{1, true}, {0, true}}), (std::vector{installed, installed}));
    EXPECT_EQ(after(scenario, {{0, true}, {1, true}}), (std::vector{installed, installed}));
}

TEST(Expectations, ChildWithoutParentMayHaveATableLeft) {
    EXPECT_EQ(after(chain(), {{1, true}}), (std::vector{not_there, either}));
    EXPECT_EQ(after(chain(), {{0, true}, {1, true}, {0, false}}), (std::vector{not_there, either}));
}

TEST(Expectations, RefusedParentLeadsNowhere) {
    Scenario scenario = chain();
    scenario.versions[0].actions.push_back({.kind = Kind::refused, .text = "meter(0)"});
    EXPECT_EQ(after(scenario, {{0, true}, {1, true}}), (std::vector{refused, either}));
}

TEST(Expectations, KnottedTableDependsOnWhatCameFirst) {
    Scenario scenario = chain();
    scenario.tables[7].knotted = true;
    EXPECT_EQ(after(scenario, {{0, true}, {1, true}}), (std::vector{either, either}));
}

TEST(Expectations, ModifiedMegaflowIsTheLatestVersion) {
    Scenario scenario = chain();
    scenario.versions.push_back(megaflow(0, 0, {}));
    EXPECT_EQ(after(scenario, {{0, true}, {1, true}, {2, true}}), (std::vector{not_there, either, installed}));
}

/// 0 pops into Geneve's port, where the others lie.
Scenario tunnel(std::vector<Megaflow> inside) {
    Scenario scenario;
    Megaflow parent{.in_port = uplink, .eth_type = type_ipv4};
    parent[Feature::protocol] = {number(protocol_udp), ones(8)};
    parent[Feature::tp_dst] = {number(udp_port_of(TunnelKind::geneve)), ones(16)};
    parent.actions = {{.kind = Kind::tunnel_pop, .port = tunnel_port_of(TunnelKind::geneve)}};
    scenario.versions.push_back(std::move(parent));
    for (Megaflow& one : inside) {
        one.ufid = static_cast<std::uint32_t>(scenario.versions.size());
        scenario.versions.push_back(std::move(one));
    }
    scenario.ufids = static_cast<std::uint32_t>(scenario.versions.size());
    return scenario;
}

Megaflow of_geneve(GeneveOptions options) {
    Megaflow one{.in_port = tunnel_port_of(TunnelKind::geneve), .eth_type = 0x88b5};
    one.tunnel = TunnelHeaders{.kind = TunnelKind::geneve, .options = options};
    one[Feature::tun_option] = {number(1), ones(32)};
    one.actions = {{.kind = Kind::output, .port = 2}};
    return one;
}

TEST(Expectations, MegaflowOfATunnelPortNeedsOneThatPops) {
    const Scenario scenario = tunnel({of_geneve(GeneveOptions::none)});
    EXPECT_EQ(after(scenario, {{1, true}}), (std::vector{not_there, either}));
    EXPECT_EQ(after(scenario, {{1, true}, {0, true}}), (std::vector{installed, installed}));
}

TEST(Expectations, OfTwinsOneWaitsWhicheverIsThere) {
    Scenario scenario = tunnel({of_geneve(GeneveOptions::none), of_geneve(GeneveOptions::none)});
    scenario.versions[2].twin_of = 1;
    Expectations expectations(scenario, connectx_6dx);
    expectations.apply({.changes = {{0, true}, {1, true}, {2, true}}});
    EXPECT_EQ(expectations.all({1, 1, 0}), (std::vector{installed, installed, refused}));
    EXPECT_EQ(expectations.all({1, 0, 1}), (std::vector{installed, refused, installed}));
    EXPECT_EQ(expectations.all({1, 0, 0}), (std::vector{installed, installed, refused})) << "one has to be there";
    EXPECT_NE(expectations.all({1, 1, 1}), (std::vector{installed, installed, installed})) << "and not both";
}

TEST(Expectations, ThereIsOneGeneveOptionAtATime) {
    const Scenario scenario = tunnel({of_geneve(GeneveOptions::usual), of_geneve(GeneveOptions::other),
                                      of_geneve(GeneveOptions::usual), of_geneve(GeneveOptions::none)});
    Expectations expectations(scenario, connectx_6dx);
    expectations.apply({.changes = {{0, true}, {1, true}, {2, true}, {3, true}, {4, true}}});
    EXPECT_EQ(expectations.all({1, 1, 0, 1, 1}), (std::vector{installed, installed, refused, installed, installed}));
    EXPECT_EQ(expectations.all({1, 0, 1, 0, 1}), (std::vector{installed, refused, installed, refused, installed}));
}

TEST(IsOffloadable, WhatComesOutOfTunnels) {
    Megaflow one = of_geneve(GeneveOptions::usual);
    EXPECT_TRUE(is_offloadable(one, connectx_6dx));
    one[Feature::tun_option].value = {};
    EXPECT_TRUE(is_offloadable(one, connectx_6dx));
    EXPECT_FALSE(is_offloadable(one, connectx_5)) << "an option that is not there reads 0, too";
    one = of_geneve(GeneveOptions::none);
    one.actions = {{.kind = Kind::recirc, .port = 7}};
    EXPECT_TRUE(is_offloadable(one, connectx_6dx));
    one.tunnel->ipv6 = true;
    EXPECT_FALSE(is_offloadable(one, connectx_6dx)) << "bytes of headers of unknown size";
    one = of_geneve(GeneveOptions::none);
    one.actions = {{.kind = Kind::output, .port = uplink}};
    EXPECT_FALSE(is_offloadable(one, connectx_6dx)) << "back to where it came from";
}

TEST(IsOffloadable, CopiesEndAndTunnelsDoNot) {
    const Action push{.kind = Kind::push, .tpid = customer_tag}, out{.kind = Kind::output, .port = 2};
    const Action begin{.kind = Kind::copy_begin}, end{.kind = Kind::copy_end};
    EXPECT_TRUE(is_offloadable(megaflow(0, 0, {begin, push, out, end, out}), connectx_6dx));
    EXPECT_FALSE(is_offloadable(megaflow(0, 0, {begin, out, end, out}), connectx_6dx)) << "the same copy twice";
    const Action tunnel{.kind = Kind::tunnel_push}, recirc{.kind = Kind::recirc, .port = 7};
    EXPECT_FALSE(is_offloadable(megaflow(0, 0, {tunnel, recirc}), connectx_6dx));
    EXPECT_TRUE(is_offloadable(megaflow(0, 0, {begin, tunnel, out, end, recirc}), connectx_6dx));
}

TEST(IsOffloadable, ADeviceKnowsWhetherAPacketIsAFragmentAndNotWhichOne) {
    Megaflow one{.in_port = 1, .eth_type = type_ipv4, .fragments = Fragments::none_by_one_bit};
    one.actions = {{.kind = Kind::output, .port = 2}};
    EXPECT_TRUE(is_offloadable(one, connectx_6dx)) << "none";
    one.fragments = Fragments::any;
    EXPECT_TRUE(is_offloadable(one, connectx_6dx)) << "any";
    Action set{.kind = Kind::set, .set = {.header = SetHeader::ipv4}};
    set.set.fields[0].mask = ones(32);
    one.actions.insert(one.actions.begin(), set);
    EXPECT_FALSE(is_offloadable(one, connectx_6dx)) << "whose checksum is the whole datagram's";
    one.actions.erase(one.actions.begin());
    one.fragments = Fragments::first;
    EXPECT_FALSE(is_offloadable(one, connectx_6dx)) << "the first one";
    one.fragments = Fragments::later;
    EXPECT_FALSE(is_offloadable(one, connectx_6dx)) << "a later one";
    one.fragments = Fragments::not_later;
    EXPECT_FALSE(is_offloadable(one, connectx_6dx)) << "none, or the first one";
}

TEST(IsOffloadable, OfAnyFragmentTheProtocolIsKnownOverIPv4Only) {
    Megaflow one{.in_port = 1, .eth_type = type_ipv4, .fragments = Fragments::any};
    one.actions = {{.kind = Kind::output, .port = 2}};
    one[Feature::protocol] = {number(protocol_tcp), ones(8)};
    EXPECT_TRUE(is_offloadable(one, connectx_6dx));
    one.eth_type = type_ipv6;
    EXPECT_FALSE(is_offloadable(one, connectx_6dx));
    one[Feature::protocol] = {};
    EXPECT_TRUE(is_offloadable(one, connectx_6dx));
}

TEST(IsOffloadable, ConnectX5EncapsulatesFromVportsOnly) {
    const Action tunnel{.kind = Kind::tunnel_push}, out{.kind = Kind::output, .port = 2};
    Megaflow one = megaflow(0, 0, {tunnel, out});
    EXPECT_TRUE(is_offloadable(one, connectx_5));
    one.in_port = 9;
    EXPECT_FALSE(is_offloadable(one, connectx_5));
    EXPECT_TRUE(is_offloadable(one, connectx_6dx));
}

}  // namespace

}  // namespace ovsdr::differential
