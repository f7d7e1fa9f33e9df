// Tunnels end to end: headers that packets get and lose, byte by byte; what is matched inside them; three vports.
#include <algorithm>

#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

using Kind = Reformat::Kind;
using criteria::inner;
using criteria::misc;
using criteria::outer;

constexpr std::uint8_t of_tunnels = outer | misc | inner | criteria::misc2 | criteria::misc3 | criteria::misc5;

[[nodiscard]] Frame joined(std::initializer_list<Frame> parts) {
    Frame all;
    for (const Frame& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
}

const Frame addresses{0x02, 0, 0, 0, 0, 0xb2, 0x02, 0, 0, 0, 0, 0xb1};
const Frame ipv4_type{0x08, 0x00}, ipv6_type{0x86, 0xdd};
/// Lengths and checksums 0: what hardware fills in. 10.0.0.1 to 10.0.0.2, don't fragment, TTL 64.
const Frame ipv4_udp{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
const Frame ipv4_gre{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 47, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
const Frame ipv6_udp{0x60, 0, 0, 0, 0, 0, 17, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,
                     0,    0, 0, 1, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
const Frame udp_vxlan{0xc0, 0x01, 0x12, 0xb5, 0, 0, 0xab, 0xcd};  // a checksum that hardware clears
const Frame udp_geneve{0xc0, 0x01, 0x17, 0xc1, 0, 0, 0, 0};
const Frame vxlan_fields{8, 0, 0, 0, 0, 0x12, 0x34, 0}, geneve{1, 0, 0x65, 0x58, 0, 0x12, 0x34, 0, 1, 2, 3, 0};
const Frame nvgre_fields{0x20, 0, 0x65, 0x58, 0, 0x12, 0x34, 0x77}, gre_ipv4{0, 0, 8, 0};

const Frame vxlan_header = joined({addresses, ipv4_type, ipv4_udp, udp_vxlan, vxlan_fields});
const Frame nvgre_header = joined({addresses, ipv4_type, ipv4_gre, nvgre_fields});
const Frame geneve_header = joined({addresses, ipv6_type, ipv6_udp, udp_geneve, geneve});
const Frame gre_l3_header = joined({addresses, ipv4_type, ipv4_gre, gre_ipv4});

/// By hand, for a packet of 60 bytes behind the header.
const Frame vxlan_written =
    joined({addresses, ipv4_type, {0x45, 0, 0, 96, 0, 0, 0x40, 0, 64, 17, 0x26, 0x8b, 10, 0, 0, 1, 10, 0, 0, 2},
            {0xc0, 0x01, 0x12, 0xb5, 0, 76, 0, 0}, vxlan_fields});
const Frame nvgre_written =
    joined({addresses, ipv4_type, {0x45, 0, 0, 88, 0, 0, 0x40, 0, 64, 47, 0x26, 0x75, 10, 0, 0, 1, 10, 0, 0, 2},
            nvgre_fields});
const Frame geneve_written =
    joined({addresses, ipv6_type, {0x60, 0, 0, 0, 0, 80}, Frame(ipv6_udp.begin() + 6, ipv6_udp.end()),
            {0xc0, 0x01, 0x17, 0xc1, 0, 80, 0, 0}, geneve});

class Tunnels : public SteeringTest {
protected:
    Tunnels() {
        attach({1, 2, wire});
        steering.set_cotenant_sink(missed.sink());
    }

    /// Everything from `vport` enters level 1.
    MadeMatcher from(Table& table, std::uint16_t priority = 9) {
        return make_matcher(table, priority, misc, Parameters{}.set(field::source_port, 0xffff));
    }
    static Parameters source(std::uint16_t vport) { return Parameters{}.set(field::source_port, vport); }
    const std::vector<Collector::Taken>& got(std::uint16_t vport) { return vports[vport].taken; }

    Collector missed;
    Domain fdb{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0}, first{fdb, 1}, second{fdb, 2}, third{fdb, 3};
    MadeMatcher root_all = match_all(root);
    Action::Created to_first = to_table(first), to_second = to_table(second), to_third = to_table(third);
    Action::Created to_1 = to_vport(fdb, 1), to_2 = to_vport(fdb, 2), to_wire = to_vport(fdb, wire);
    MadeRule enter = make_rule(*root_all, {}, {&to_first});
    MadeMatcher by_source = from(first);
    const Frame frame = make_frame({.payload = 18});  // 60 bytes
};

struct Written {
    Frame given, written;
};

class TunnelBytes : public Tunnels, public ::testing::WithParamInterface<Written> {};

TEST_P(TunnelBytes, GoOnWithLengthsAndChecksumAndComeOffAgain) {
    const auto encap = reformatting(fdb, Kind::encap_l2, GetParam().given);
    const auto decap = reformatting(fdb, Kind::decap_l2, {});
    const auto out = make_rule(*by_source, source(1), {&encap, &to_wire});
    const auto in = make_rule(*by_source, source(wire), {&decap, &to_2});
    ASSERT_EQ(out.error, 0);
    ASSERT_EQ(in.error, 0);
    send(1, frame, 40);
    const Frame expected = joined({GetParam().written, frame});
    ASSERT_EQ(got(wire).size(), 40U);
    for (const auto& taken : got(wire)) ASSERT_EQ(taken.frame, expected);
    send(wire, expected, 40);
    ASSERT_EQ(got(2).size(), 40U);
    for (const auto& taken : got(2)) ASSERT_EQ(taken.frame, frame);
    EXPECT_TRUE(got(1).empty());
    EXPECT_TRUE(missed.taken.empty());
}

INSTANTIATE_TEST_SUITE_P(ByHand, TunnelBytes,
                         ::testing::Values(Written{vxlan_header, vxlan_written}, Written{nvgre_header, nvgre_written},
                                           Written{geneve_header, geneve_written}));

TEST_F(Tunnels, L3TunnelsCarryTheIpPacketAlone) {
    const Frame l2 = joined({{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8}, {0x81, 0, 0, 5}, ipv4_type});
    const auto encap = reformatting(fdb, Kind::encap_l3, gre_l3_header);
    const auto decap = reformatting(fdb, Kind::decap_l3, l2);
    const auto out = make_rule(*by_source, source(1), {&encap, &to_wire});
    const auto in = make_rule(*by_source, source(wire), {&decap, &to_2});
    const Frame tagged = make_frame({.tags = {0x81000007, 0x81000008}});
    const Frame packet(tagged.begin() + 22, tagged.end());
    send(1, tagged, 3);
    ASSERT_EQ(got(wire).size(), 3U);
    Frame expected = joined({gre_l3_header, packet});
    expected[17] = static_cast<std::uint8_t>(expected.size() - 14);
    fix_checksums(expected);
    EXPECT_EQ(got(wire)[2].frame, expected);
    send(wire, expected, 3);
    ASSERT_EQ(got(2).size(), 3U);
    EXPECT_EQ(got(2)[2].frame, joined({l2, packet}));
    // An Ethernet frame in the tunnel loses its own header too.
    send(wire, joined({vxlan_written, frame}));
    ASSERT_EQ(got(2).size(), 4U);
    EXPECT_EQ(got(2)[3].frame, joined({l2, Frame(frame.begin() + 14, frame.end())}));
}

TEST_F(Tunnels, WhatStandsBehindTheOuterPacketIsNoPartOfTheInnerOne) {
    const auto decap = reformatting(fdb, Kind::decap_l2, {});
    const auto in = make_rule(*by_source, source(wire), {&decap, &to_2});
    send(wire, joined({vxlan_written, frame, {0xee, 0xee, 0xee}}));
    ASSERT_EQ(got(2).size(), 1U);
    EXPECT_EQ(got(2)[0].frame, frame);
}

TEST_F(Tunnels, APacketThatCarriesNothingIsDroppedAndCountedAndOthersAreNot) {
    const auto decap = reformatting(fdb, Kind::decap_l2, {});
    const auto in = make_rule(*by_source, source(wire), {&decap, &to_2});
    const Frame whole = joined({vxlan_written, frame});
    Frame no_vni = whole;
    no_vni[42] = 0;
    for (unsigned round = 0; round < 3; ++round) {
        send(wire, no_vni, 2);
        send(wire, frame);
        send(wire, joined({gre_l3_header, frame}));
        send(wire, whole, 2);
    }
    EXPECT_EQ(got(2).size(), 6U);
    EXPECT_EQ(steering.drops().malformed, 12U);
}

/// rdma-core's tests of reformats send a GRE header of version 1 with a key.
TEST_F(Tunnels, GreOfVersion1IsATunnelWithoutAnAcknowledgement) {
    const auto decap = reformatting(fdb, Kind::decap_l2, {});
    const auto in = make_rule(*by_source, source(wire), {&decap, &to_2});
    Frame whole = joined({nvgre_written, frame});
    constexpr std::size_t flags = 34;
    whole[flags + 1] = 1;
    send(wire, whole, 3);
    ASSERT_EQ(got(2).size(), 3U);
    EXPECT_EQ(got(2)[0].frame, frame);
    for (const unsigned other : {2U, 3U, 7U, 0x81U}) {  // versions that there are not; an acknowledgement number
        whole[flags + 1] = static_cast<std::uint8_t>(other);
        send(wire, whole);
    }
    EXPECT_EQ(got(2).size(), 3U);
    EXPECT_EQ(steering.drops().malformed, 4U);
}

TEST_F(Tunnels, BehindADecapsulationTheInnerHeadersAreTheOuterOnes) {
    const auto decap = reformatting(fdb, Kind::decap_l2, {});
    const auto in = make_rule(*by_source, source(wire), {&decap, &to_second});
    const auto by_mac =
        make_matcher(second, 0, outer, Parameters{}.set(field::dmac_15_0, 0xffff).set(field::ip_version, 4));
    const auto of = [](unsigned mac) { return Parameters{}.set(field::dmac_15_0, mac).set(field::ip_version, 4); };
    const auto one = make_rule(*by_mac, of(1), {&to_1});
    const auto two = make_rule(*by_mac, of(2), {&to_2});
    // The outer headers are the same: only what is inside tells them apart.
    for (unsigned round = 0; round < 20; ++round) {
        for (const unsigned mac : {1U, 2U, 3U}) {
            const Frame inside = make_frame({.dmac = 0x020000000000ULL | mac, .payload = 18});
            send(wire, joined({vxlan_written, inside}));
        }
    }
    EXPECT_EQ(got(1).size(), 20U);
    EXPECT_EQ(got(2).size(), 20U);
    EXPECT_EQ(missed.taken.size(), 20U);
    for (const auto& taken : got(2)) EXPECT_EQ(taken.frame, frame);
    const Frame inside_v6 = make_frame({.version = 6, .payload = 0});
    Frame v6 = joined({vxlan_header, inside_v6});
    v6[17] = static_cast<std::uint8_t>(v6.size() - 14);
    v6[39] = static_cast<std::uint8_t>(v6.size() - 34);
    send(wire, v6, 2);
    EXPECT_EQ(got(2).size(), 20U) << "IPv6 inside";
    EXPECT_EQ(missed.taken.size(), 22U);
}

TEST_F(Tunnels, MatchesByTheTunnelAndWhatIsInside) {
    const auto mask =
        Parameters{}.set(field::vxlan_vni, 0xffffff).set(field::inner_version, 4).set(field::inner_udp_dport, 0xffff);
    const auto matcher = make_matcher(first, 0, of_tunnels, mask);
    ASSERT_EQ(matcher.error, 0);
    const auto value = [](unsigned vni, unsigned port) {
        return Parameters{}.set(field::vxlan_vni, vni).set(field::inner_version, 4).set(field::inner_udp_dport, port);
    };
    const auto hit = make_rule(*matcher, value(0x1234, 2000), {&to_1});
    const auto other = make_rule(*matcher, value(0x1235, 2000), {&to_2});
    ASSERT_EQ(hit.error, 0);
    const Frame whole = joined({vxlan_written, frame});
    Frame second_vni = whole;
    second_vni[48] = 0x35;
    for (unsigned round = 0; round < 3; ++round) {
        send(wire, whole);
        send(wire, second_vni);
        send(wire, joined({vxlan_written, make_frame({.dport = 2001, .payload = 18})}));
        send(wire, frame);
    }
    EXPECT_EQ(got(1).size(), 3U);
    EXPECT_EQ(got(2).size(), 3U);
    EXPECT_EQ(missed.taken.size(), 6U);
}

TEST_F(Tunnels, ARewrittenPortMakesNoOldTunnelKnown) {
    const auto vni = make_matcher(second, 0, misc, Parameters{}.set(field::vxlan_vni, 0xffffff));
    const auto known = make_rule(*vni, Parameters{}.set(field::vxlan_vni, 0x1234), {&to_1});
    const auto rewrite = modifying(fdb, {set_command(id::udp_dport, 0, 16, 4788)});
    const auto rule = make_rule(*by_source, source(wire), {&rewrite, &to_second});
    send(wire, joined({vxlan_written, frame}), 3);
    EXPECT_TRUE(got(1).empty());
    EXPECT_EQ(missed.taken.size(), 3U);
}

TEST_F(Tunnels, ArraysEncapsulateOneBranchAndLeaveTheOthersAlone) {
    const auto encap = reformatting(fdb, Kind::encap_l2, vxlan_header);
    for (const bool last : {false, true}) {
        std::vector<Action::Branch> branches{{to_2.get()}, {to_1.get()}};
        branches.insert(last ? branches.end() : branches.begin(), {to_wire.get(), encap.get()});
        Action::Created array;
        ASSERT_EQ(Action::dest_array(fdb, std::span<const Action::Branch>(branches), array), 0);
        const auto rule = make_rule(*by_source, source(1), {&array});
        ASSERT_EQ(rule.error, 0);
        for (const std::uint16_t vport : {std::uint16_t{1}, std::uint16_t{2}, wire}) vports[vport].taken.clear();
        send(1, frame, 5);
        send(1, frame, 5);
        ASSERT_EQ(got(wire).size(), 10U);
        ASSERT_EQ(got(2).size(), 10U);
        ASSERT_EQ(got(1).size(), 10U);
        for (unsigned i = 0; i < 10; ++i) {
            EXPECT_EQ(got(wire)[i].frame, joined({vxlan_written, frame}));
            EXPECT_EQ(got(2)[i].frame, frame);
            EXPECT_EQ(got(1)[i].frame, frame);
        }
    }
}

TEST_F(Tunnels, TunnelsInTunnelsUseUpTheRoomBeforeThePacketAndThenTheRoomBehindIt) {
    Frame header(128);
    std::copy(addresses.begin(), addresses.end(), header.begin());
    header[12] = 0x88;
    const auto encap = reformatting(fdb, Kind::encap_l2, header);
    const auto all_second = match_all(second), all_third = match_all(third);
    const auto one = make_rule(*by_source, source(1), {&encap, &to_second});
    const auto two = make_rule(*all_second, {}, {&encap, &to_third});
    const auto three = make_rule(*all_third, {}, {&encap, &to_wire});
    send(1, frame, 2);
    ASSERT_EQ(got(wire).size(), 2U);
    EXPECT_EQ(got(wire)[1].frame, joined({header, header, header, frame}));
    const Frame longest = make_frame({.payload = 1900});
    send(1, longest, 2);
    EXPECT_EQ(got(wire).size(), 2U);
    EXPECT_EQ(steering.drops().no_buffer, 2U) << "no room in a buffer: lost, and counted";
}

TEST_F(Tunnels, CountersSeeTheReceivedPacketWithoutItsTunnel) {
    const auto bulk = std::make_shared<CounterBulk>(2);
    const auto in_count = counting(bulk, 0), out_count = counting(bulk, 1);
    const auto encap = reformatting(fdb, Kind::encap_l2, vxlan_header);
    const auto decap = reformatting(fdb, Kind::decap_l2, {});
    const auto out = make_rule(*by_source, source(1), {&encap, &out_count, &to_wire});
    const auto in = make_rule(*by_source, source(wire), {&decap, &in_count, &to_2});
    send(1, frame, 3);
    send(wire, joined({vxlan_written, frame}), 3);
    EXPECT_EQ(bulk->read(0).bytes, 3 * frame.size());
    EXPECT_EQ(bulk->read(1).bytes, 3 * frame.size());
}

}  // namespace
}  // namespace ovsdr::soft::test
