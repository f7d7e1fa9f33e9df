// When two megaflows are the same, and what is kept of one.
#include "offload/dr/megaflow_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
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
ovsdr_action tunnel(const std::vector<std::uint8_t>& header, std::uint16_t first = 1000, std::uint16_t end = 2000) {
    auto action = action_of(OVSDR_ACTION_TUNNEL_PUSH);
    action.tunnel_push = {header.data(), static_cast<std::uint16_t>(header.size()), first, end};
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
            {unsupported("ct")},
            {unsupported("meter")}};
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
