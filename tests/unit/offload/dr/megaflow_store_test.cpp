// When two megaflows are the same, and what is kept of one.
#include "offload/dr/megaflow_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace ovsdr::dr {
namespace {

ovsdr_action action_of(ovsdr_action_type type) {
    ovsdr_action action{};
    action.type = type;
    return action;
}

ovsdr_action output(std::uint32_t port) {
    auto action = action_of(OVSDR_ACTION_OUTPUT);
    action.output = port;
    return action;
}

ovsdr_action recirc(std::uint32_t id) {
    auto action = action_of(OVSDR_ACTION_RECIRC);
    action.recirc_id = id;
    return action;
}

ovsdr_action set(ovsdr_header_field field, std::vector<std::pair<std::uint8_t, std::uint8_t>> bytes) {
    auto action = action_of(OVSDR_ACTION_SET);
    action.set.field = field;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        action.set.value[i] = bytes[i].first;
        action.set.mask[i] = bytes[i].second;
    }
    return action;
}

ovsdr_action push(std::uint16_t be_tpid, std::uint16_t be_tci) {
    auto action = action_of(OVSDR_ACTION_PUSH_VLAN);
    action.push_vlan = {be_tpid, be_tci};
    return action;
}

/// `header`: static.
ovsdr_action tunnel(const std::vector<std::uint8_t>& header, std::uint16_t first = 1000, std::uint16_t end = 2000,
                    std::uint32_t out_port = 100) {
    auto action = action_of(OVSDR_ACTION_TUNNEL_PUSH);
    action.tunnel_push = {header.data(), static_cast<std::uint16_t>(header.size()), first, end, out_port};
    return action;
}

ovsdr_action tunnel_pop(std::uint32_t port) {
    auto action = action_of(OVSDR_ACTION_TUNNEL_POP);
    action.tunnel_port = port;
    return action;
}

ovsdr_action meter(std::uint32_t number) {
    auto action = action_of(OVSDR_ACTION_METER);
    action.meter = number;
    return action;
}

/// `bytes`: static.
ovsdr_action software(const std::vector<std::uint8_t>& bytes, std::uint32_t one_of = 1,
                      const char* name = "userspace") {
    auto action = action_of(OVSDR_ACTION_SOFTWARE);
    action.software = {.actions = bytes.data(),
                       .actions_size = static_cast<std::uint16_t>(bytes.size()),
                       .metered_from = 0,
                       .meter = 0,
                       .one_of = one_of,
                       .name = name};
    return action;
}

ovsdr_action cut_output(const std::vector<std::uint8_t>& bytes, std::uint32_t cut_at, std::uint32_t port) {
    ovsdr_action action = software(bytes, 1, "trunc");
    action.software.cut_at = cut_at;
    action.software.output = port;
    return action;
}

ovsdr_action unsupported(const char* name) {
    auto action = action_of(OVSDR_ACTION_UNSUPPORTED);
    action.unsupported = name;
    return action;
}

ovsdr_megaflow megaflow_of(const std::vector<ovsdr_action>& actions) {
    ovsdr_megaflow megaflow{};
    megaflow.key.in_port = 1;
    for (const ovsdr_action& action : actions) megaflow.actions[megaflow.n_actions++] = action;
    return megaflow;
}

/// Lists of actions of which no two are the same.
std::vector<std::vector<ovsdr_action>> different_lists() {
    const auto begin = action_of(OVSDR_ACTION_COPY_BEGIN), end = action_of(OVSDR_ACTION_COPY_END);
    static const char* const sflow = "sflow";
    static const std::vector<std::uint8_t> header{1, 2, 3, 4}, another{1, 2, 3, 5}, half{1, 2}, rest{3, 4}, empty;
    return {{},
            {tunnel(header)},
            {tunnel(another)},
            {tunnel(half)},
            {tunnel(half), tunnel(rest)},
            {tunnel(half), output(1), tunnel(rest)},
            {tunnel(rest), tunnel(half)},
            {tunnel(header), tunnel(empty)},
            {tunnel(empty), tunnel(header)},
            {tunnel(header, 1001)},
            {tunnel(header, 1000, 1999)},
            {tunnel(header, 1000, 2000, 101)},
            {output(1)},
            {output(2)},
            {output(1), output(1)},
            {recirc(1)},
            {recirc(2)},
            {action_of(OVSDR_ACTION_POP_VLAN)},
            {push(0x81, 1)},
            {push(0x81, 2)},
            {push(0xa888, 1)},
            {set(OVSDR_HEADER_IP_TTL, {{1, 0xff}})},
            {set(OVSDR_HEADER_IP_TTL, {{2, 0xff}})},
            {set(OVSDR_HEADER_IP_TTL, {{1, 0x0f}})},
            {set(OVSDR_HEADER_IP_TOS, {{1, 0xff}})},
            {set(OVSDR_HEADER_TCP_SRC, {{1, 0xff}, {0, 0xff}})},
            {set(OVSDR_HEADER_TCP_SRC, {{1, 0xff}, {0, 0}})},
            {set(OVSDR_HEADER_IPV6_SRC, std::vector<std::pair<std::uint8_t, std::uint8_t>>(16, {7, 0xff}))},
            {set(OVSDR_HEADER_IPV6_SRC, std::vector<std::pair<std::uint8_t, std::uint8_t>>(15, {7, 0xff}))},
            {begin, output(1), end},
            {begin, end, output(1)},
            {begin, output(1), end, output(1)},
            {begin, output(1), output(1), end},
            {begin, begin, output(1), end, end},
            {begin, begin, end, end},
            {begin, end, begin, end},
            {tunnel_pop(1)},
            {tunnel_pop(2)},
            {meter(1)},
            {meter(2)},
            {software(header)},
            {software(another)},
            {software(half)},
            {software(half), software(rest)},
            {software(half), tunnel(rest)},
            {software(header, 2)},
            {software(header, 1, sflow)},
            {cut_output(header, 100, 7)},
            {cut_output(header, 101, 7)},
            {cut_output(header, 100, 8)},
            {unsupported("ct")},
            {unsupported("meter")}};
}

/// Asked of two whose hashes are equal: by chance, so that no test of the store meets all of them.
TEST(MegaflowStore, WhatIsMatchedIsTheSameOnlyWhereAllOfItIs) {
    const auto wildcards = [](auto&& change) {
        MegaflowParts::Wildcards made{};
        made.fields.in_port = 5;
        made.unsupported.bits = 1;
        change(made);
        return made;
    };
    const auto tunnel = [&](unsigned key, unsigned mask) {
        return wildcards([&](auto& made) {
            made.tunnel = MegaflowParts::Tunnel{};
            made.tunnel->key.be_id = key;
            made.tunnel->mask.be_id = mask;
        });
    };
    static const char* const names[] = {"ct_state"};
    const MegaflowParts::Wildcards all[] = {
        wildcards([](auto&) {}),
        wildcards([](auto& made) { made.fields.in_port = 6; }),
        wildcards([](auto& made) { made.unsupported.bits = 2; }),
        wildcards([](auto& made) { made.unsupported.names = names; }),
        tunnel(0, 0),
        tunnel(1, 3),
        tunnel(1, 7),
        tunnel(2, 3),
        tunnel(2, 7)};
    for (const auto& one : all) {
        for (const auto& other : all) {
            EXPECT_EQ(MegaflowParts::Equal{}(one, other), &one == &other) << &one - all << " against " << &other - all;
            const auto copy = other;
            EXPECT_TRUE(MegaflowParts::Equal{}(other, copy));
        }
    }
}

TEST(MegaflowStore, ActionsAreTheSameOnlyWhereAllOfThemAre) {
    const auto lists = different_lists();
    for (std::size_t i = 0; i < lists.size(); ++i) {
        const MegaflowParts::Actions kept = MegaflowParts::actions_of(megaflow_of(lists[i]));
        for (std::size_t j = 0; j < lists.size(); ++j) {
            EXPECT_EQ(MegaflowParts::Equal{}(kept, megaflow_of(lists[j])), i == j) << i << " against " << j;
        }
    }
}

TEST(MegaflowStore, AMegaflowIsItselfAndNoOther) {
    const auto lists = different_lists();
    MegaflowParts parts;
    for (std::size_t i = 0; i < lists.size(); ++i) {
        const StoredMegaflow stored(megaflow_of(lists[i]), parts);
        for (std::size_t j = 0; j < lists.size(); ++j) {
            EXPECT_EQ(stored == StoredMegaflow(megaflow_of(lists[j]), parts), i == j) << i << " against " << j;
        }
    }
}

TEST(MegaflowStore, SharesActionsOnlyWithItsEqual) {
    const auto lists = different_lists();
    MegaflowParts parts;
    std::vector<MegaflowParts::ActionList> shared;
    const auto share = [&](const std::vector<ovsdr_action>& list) {
        return parts.share_actions(megaflow_of(list));
    };
    for (const auto& list : lists) shared.push_back(share(list));
    for (std::size_t i = 0; i < lists.size(); ++i) {
        EXPECT_EQ(share(lists[i]), shared[i]) << i;
        EXPECT_EQ(std::ranges::count(shared, shared[i]), 1) << i;
    }
}

TEST(MegaflowStore, GivesBackWhatItWasGiven) {
    MegaflowParts parts;
    for (const auto& list : different_lists()) {
        const ovsdr_megaflow megaflow = megaflow_of(list);
        const StoredMegaflow stored(megaflow, parts);
        EXPECT_EQ(StoredMegaflow(stored.restore(), parts), stored);
        EXPECT_EQ(stored.restore().n_actions, list.size());
    }
}

TEST(MegaflowStore, KeepsTheHeadersOfTunnels) {
    MegaflowParts parts;
    StoredMegaflow stored, copy;
    {
        std::vector<std::uint8_t> first{1, 2, 3, 4}, second{5, 6};
        stored = StoredMegaflow(megaflow_of({tunnel(first), output(1), tunnel(second)}), parts);
        copy = stored;
        first.assign(4, 0);
        second.assign(2, 0);
    }
    for (const StoredMegaflow* each : {&stored, &copy}) {
        const ovsdr_megaflow restored = each->restore();
        const auto header = [&](int i) {
            const ovsdr_tunnel_push& push = restored.actions[i].tunnel_push;
            return std::vector<std::uint8_t>(push.header, push.header + push.header_size);
        };
        EXPECT_EQ(header(0), (std::vector<std::uint8_t>{1, 2, 3, 4}));
        EXPECT_EQ(header(2), (std::vector<std::uint8_t>{5, 6}));
        EXPECT_EQ(restored.actions[0].tunnel_push.udp_source_first, 1000);
        EXPECT_EQ(restored.actions[2].tunnel_push.udp_source_end, 2000);
    }
}

TEST(MegaflowStore, AMatchThatNoNicCanMakesAnotherMegaflow) {
    static const char* const arp[] = {"arp_op", "arp_sha"};
    static const char* const connection[] = {"ct_state", "ct_zone"};
    const std::vector<ovsdr_names> different{{0, nullptr}, {1, arp}, {2, arp}, {3, arp}, {1, connection}};
    const auto with = [](const ovsdr_names& unsupported) {
        ovsdr_megaflow megaflow = megaflow_of({output(2)});
        megaflow.unsupported_match = unsupported;
        return megaflow;
    };
    MegaflowParts parts;
    for (const ovsdr_names& one : different) {
        const StoredMegaflow stored(with(one), parts);
        EXPECT_EQ(stored.restore().unsupported_match.bits, one.bits);
        EXPECT_EQ(stored.restore().unsupported_match.names, one.names);
        for (const ovsdr_names& other : different) {
            EXPECT_EQ(stored == StoredMegaflow(with(other), parts), &one == &other);
        }
    }
}

TEST(MegaflowStore, APacketFromATunnelIsOfAnotherMegaflow) {
    std::vector<ovsdr_megaflow> different(5, megaflow_of({output(2)}));
    different[1].tunnel_mask.ttl = 0xFF;
    different[2].tunnel_mask.ttl = 0x0F;
    different[3].tunnel_key.ttl = 1;
    different[4].tunnel_key.ttl = 1;
    different[4].tunnel_mask.ttl = 0xFF;
    MegaflowParts parts;
    for (const ovsdr_megaflow& one : different) {
        const StoredMegaflow stored(one, parts);
        EXPECT_EQ(stored.restore().tunnel_key.ttl, one.tunnel_key.ttl);
        EXPECT_EQ(stored.restore().tunnel_mask.ttl, one.tunnel_mask.ttl);
        EXPECT_EQ(stored.has_tunnel(), &one != &different[0]);
        EXPECT_EQ(stored.has_shape(), &one == &different[0]);
        for (const ovsdr_megaflow& other : different) {
            EXPECT_EQ(stored == StoredMegaflow(other, parts), &one == &other);
        }
    }
}

TEST(MegaflowStore, KnowsWhatItsActionsHaveToDoWith) {
    static const std::vector<std::uint8_t> bytes{1, 2};
    MegaflowParts parts;
    const auto of = [&](const std::vector<ovsdr_action>& list) { return StoredMegaflow(megaflow_of(list), parts); };
    for (const ovsdr_action& action : {tunnel(bytes), tunnel_pop(5)}) {
        EXPECT_TRUE(of({output(2), action}).has_tunnel());
        EXPECT_FALSE(of({output(2), action}).has_shape());
    }
    const StoredMegaflow plain = of({output(4), recirc(5), unsupported("ct")});
    EXPECT_FALSE(plain.has_tunnel());
    EXPECT_TRUE(plain.recirculates());
    EXPECT_FALSE(of({output(4)}).recirculates());
    EXPECT_TRUE(plain.has_shape());
    EXPECT_FALSE(plain.has_meter());
    EXPECT_FALSE(plain.has_software());
    EXPECT_FALSE(plain.meets(5));
    EXPECT_TRUE(plain.meters().empty());
    const StoredMegaflow metered = of({meter(7), output(4), meter(3), meter(7)});
    EXPECT_TRUE(metered.has_meter());
    EXPECT_TRUE(metered.meets(3) && metered.meets(7));
    EXPECT_FALSE(metered.meets(4));
    EXPECT_EQ(metered.meters(), (std::set<std::uint32_t>{3, 7}));
    EXPECT_TRUE(of({output(2), software(bytes)}).has_software());
    EXPECT_FALSE(StoredMegaflow());
    EXPECT_TRUE(plain);
}

/// A change of one of these ports is a change to the megaflow.
TEST(MegaflowStore, MentionsTheInPortOutputsAndTunnelsItEnters) {
    MegaflowParts parts;
    static const std::vector<std::uint8_t> bytes{1, 2};
    const StoredMegaflow stored(
        megaflow_of({output(5), tunnel_pop(6), meter(7), recirc(8), cut_output(bytes, 2, 9), software(bytes)}), parts);
    for (std::uint32_t port = 0; port < 10; ++port) {
        const OdpPort one[] = {OdpPort{port}}, two[] = {OdpPort{99}, OdpPort{port}};
        const bool mentioned = port == 1 || port == 5 || port == 6 || port == 9;
        EXPECT_EQ(stored.mentions_any(one), mentioned) << port;
        EXPECT_EQ(stored.mentions_any(two), mentioned) << port;
    }
    EXPECT_FALSE(stored.mentions_any({}));
}

TEST(MegaflowStore, MentionsEachPortOfCopiesOnceAndNoRecirculations) {
    MegaflowParts parts;
    const StoredMegaflow stored(
        megaflow_of({action_of(OVSDR_ACTION_COPY_BEGIN), output(5), action_of(OVSDR_ACTION_COPY_END), recirc(6),
                     set(OVSDR_HEADER_IP_TTL, {{7, 0xff}}), output(8), output(5), output(1)}),
        parts);
    const auto ports = stored.ports();
    std::vector<std::uint32_t> numbers;
    for (std::uint32_t i = 0; i < ports.size(); ++i) numbers.push_back(ports[i].value);
    EXPECT_EQ(numbers, (std::vector<std::uint32_t>{1, 5, 8}));
}

}  // namespace
}  // namespace ovsdr::dr
