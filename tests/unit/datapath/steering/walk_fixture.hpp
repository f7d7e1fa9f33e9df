// A device with a worker of the test's own, whose walks are looked at one by one.
#pragma once

#include <string>

#include "datapath/steering/parser.hpp"
#include "datapath/steering/tunnel.hpp"
#include "datapath/steering/walk.hpp"
#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {

/// Of a walk.
struct Walked {
    std::string ops;
    bool cacheable;
    unsigned explored;  ///< hops for other outcomes
};

[[nodiscard]] inline std::string text_of(const Op& op) {
    constexpr const char* names[] = {"count", "edit", "push",   "pop", "reformat", "tag",    "output", "copy",
                                     "drop",  "fork", "sample", "hit", "meter",    "legacy", "track",  "if"};
    std::string text = names[static_cast<unsigned>(op.code)];
    if (op.code == OpCode::outcome) text += std::to_string(op.argument) + ":" + std::to_string(op.value);
    if (op.code == OpCode::fork || op.code == OpCode::sample) text += std::to_string(op.value);
    return text;
}

/// A device with a worker of the test's own.
class WalkTest : public SteeringTest {
protected:
    explicit WalkTest(const Profile& profile = connectx_6dx) : SteeringTest(profile) {
        attach({1, 2, 3, wire});
        steering.set_cotenant_sink(cotenant.sink());
        steering.impl().stopped_clock = 1'000'000'000;
    }

    Walked walk(const Entrance& entrance, const Frame& bytes) {
        rte_mbuf* packet = packet_of(bytes);
        Key key{};
        parse(bytes.data(), static_cast<std::uint32_t>(bytes.size()), key);
        store_be32(key.bytes() + key_offset::gre_flags, entrance.sqn);
        store_be16(key.bytes() + key_offset::source_port, entrance.source.value);
        parse_deep(bytes.data(), static_cast<std::uint32_t>(bytes.size()), steering.impl().parser_setup(), key);
        steering.impl().rcu.online(1);
        Walk one(mine);
        one.run(entrance, key, true, packet);
        mine.flush();
        steering.impl().rcu.offline(1);
        Walked walked{"", one.cacheable(), one.explored()};
        for (const Op& op : one.ops()) walked.ops += (walked.ops.empty() ? "" : " ") + text_of(op);
        return walked;
    }
    Walked walk_from(std::uint16_t vport, const Frame& bytes) { return walk({VportId{vport}, false, 0}, bytes); }
    Walked walk_from_queue(const Frame& bytes) { return walk({manager_vport, true, 0x42}, bytes); }

    /// The ops of a packet that meets a rule of `table` with these actions.
    std::string ops_of(Table& table, const Entrance& entrance, std::initializer_list<const Action::Created*> actions) {
        const bool by_vport = table.domain().type() == DomainType::fdb;
        const auto matcher = by_vport
                                 ? make_matcher(table, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff))
                                 : match_all(table);
        const auto rule = make_rule(
            *matcher, by_vport ? Parameters{}.set(field::source_port, entrance.source.value) : Parameters{}, actions);
        EXPECT_EQ(rule.error, 0);
        return walk(entrance, packet).ops;
    }

    Action::Created aso(AsoKind kind, std::uint32_t flags) { return aso(kind, flags, fdb); }
    static Action::Created aso(AsoKind kind, std::uint32_t flags, Domain& domain) {
        Action::Created action;
        EXPECT_EQ(Action::aso(domain, std::make_shared<AsoBulk>(kind, 0, nullptr), 0, flags, 5, action), 0);
        return action;
    }

    static constexpr Entrance from_wire{uplink_vport, false, 0}, from_vport{VportId{1}, false, 0},
        from_queue{manager_vport, true, 0x42};
    const Frame inside = make_frame({.tags = {0x81000007}});
    const Frame vxlan = {8, 0, 0, 0, 0, 0, 9, 0};
    const Frame packet = [this] {
        Frame content = vxlan;
        content.insert(content.end(), inside.begin(), inside.end());
        return make_frame({.tags = {0x81000005}, .dport = 4789}, content);
    }();
    const Frame header = Frame(packet.begin(), packet.begin() + 54);

    Collector cotenant, queue;
    Domain fdb{steering, DomainType::fdb, nullptr}, rx{steering, DomainType::nic_rx, nullptr},
        tx{steering, DomainType::nic_tx, nullptr};
    Table fdb_root{fdb, 0}, first{fdb, 1}, second{fdb, 2}, third{fdb, 3};
    Table rx_root{rx, 0}, rx_first{rx, 1}, rx_second{rx, 2}, tx_root{tx, 0}, tx_first{tx, 1};
    Action::Created to_first = to_table(first), to_second = to_table(second), to_third = to_table(third);
    Action::Created to_rx_first = to_table(rx_first), to_rx_second = to_table(rx_second);
    Action::Created to_tx_first = to_table(tx_first);
    Action::Created drop = Action::drop(), miss = Action::default_miss();
    Action::Created pop = Action::pop_vlan(), push = pushing(0x81000009);
    Action::Created tag = Action::tag(1), to_queue = to_sink(queue.sink());
    Action::Created to_1 = to_vport(fdb, 1), to_2 = to_vport(fdb, 2), to_3 = to_vport(fdb, 3);
    Action::Created count = counting(std::make_shared<CounterBulk>(1));
    Action::Created decap = reformatting(fdb, Reformat::Kind::decap_l2, {});
    Action::Created encap = reformatting(fdb, Reformat::Kind::encap_l2, header);
    MadeMatcher all_fdb = match_all(fdb_root), all_rx = match_all(rx_root), all_tx = match_all(tx_root);
    MadeRule enter = make_rule(*all_fdb, {}, {&to_first}), enter_rx = make_rule(*all_rx, {}, {&to_rx_first});
    MadeRule enter_tx = make_rule(*all_tx, {}, {&to_tx_first});

    /// Whether a walk may be repeated that meets these actions and then, in table 2, a matcher that looks at the field.
    bool repeatable(std::initializer_list<const Action::Created*> actions, Field looked_at, std::uint16_t from,
                    const Frame& bytes) {
        const auto look = make_matcher(second, 0, every, Parameters{}.set(looked_at, (1ULL << looked_at.width) - 1));
        EXPECT_EQ(look.error, 0) << looked_at.bit;
        const auto looking = make_rule(*look, {}, {&drop});
        EXPECT_EQ(looking.error, 0) << looked_at.bit;
        const auto matcher = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
        const auto rule = make_rule(*matcher, Parameters{}.set(field::source_port, from), actions);
        EXPECT_EQ(rule.error, 0);
        return walk_from(from, bytes).cacheable;
    }
    Action::Created edited(std::initializer_list<std::uint64_t> commands) { return modifying(fdb, commands); }

private:
    Lane::Impl mine{steering, 1};
};

}  // namespace ovsdr::soft::test
