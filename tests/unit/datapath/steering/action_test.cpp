// Actions by themselves and in rules: what root tables and other domains' rules refuse, arrays and samplers, what is
// kept for packets in flight.
#include <array>
#include <cerrno>

#include "datapath/steering/steering_impl.hpp"
#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

using criteria::misc;
using criteria::misc2;
using Kind = Reformat::Kind;


class Actions : public SteeringTest {
protected:
    explicit Actions(const Profile& profile = connectx_6dx) : SteeringTest(profile) { attach({1, 2, wire}); }

    int list_error(Table& table, std::initializer_list<const Action::Created*> actions) {
        const auto all = match_all(table);
        return make_rule(*all, {}, actions).error;
    }
    int list_error_from(Table& table, std::uint16_t vport, std::initializer_list<const Action::Created*> actions) {
        const auto matcher = make_matcher(table, 0, misc, Parameters{}.set(field::source_port, 0xffff));
        return make_rule(*matcher, Parameters{}.set(field::source_port, vport), actions).error;
    }
    static int array_error(Domain& domain, std::initializer_list<Action::Branch> branches) {
        Action::Created array;
        return Action::dest_array(domain, std::span<const Action::Branch>(branches.begin(), branches.size()), array);
    }

    const std::vector<std::uint8_t> header = std::vector<std::uint8_t>(50, 0x11);
    const std::vector<std::uint8_t> l2 = std::vector<std::uint8_t>(14, 0x22);
    Domain fdb{steering, DomainType::fdb, nullptr}, other{steering, DomainType::fdb, nullptr};
    Domain rx{steering, DomainType::nic_rx, nullptr}, tx{steering, DomainType::nic_tx, nullptr};
    Table fdb_root{fdb, 0}, first{fdb, 1}, second{fdb, 2}, other_root{other, 0}, other_first{other, 1};
    Table other_second{other, 2};
    Table rx_root{rx, 0}, rx_first{rx, 1}, rx_second{rx, 2}, tx_root{tx, 0}, tx_first{tx, 1};
    Collector queue, queue_two;
    Action::Created drop = Action::drop(), miss = Action::default_miss(), pop = Action::pop_vlan();
    Action::Created push = pushing(0x81000005);
    Action::Created tag = Action::tag(1), to_queue = to_sink(queue.sink()), to_two = to_sink(queue_two.sink()),
                    to_nothing = to_sink({});
    Action::Created out = to_vport(fdb, 1), to_second = to_table(second), to_other = to_table(other_second),
                    to_rx = to_table(rx_second);
    Action::Created count = counting(std::make_shared<CounterBulk>(1));
};

class OldActions : public Actions {
protected:
    OldActions() : Actions(connectx_5) {}
};

TEST_F(Actions, RootTablesHaveNoneOfTheLaterOnes) {
    Action::Created go_on, meter, sampler, hit;
    ASSERT_EQ(Action::root_table(fdb_root, 1, go_on), 0);
    ASSERT_EQ(Action::flow_meter(second, {.active = true, .reg_c = 2, .parameters = {}}, meter), 0);
    const std::array<Action*, 1> sampled{out.get()};
    ASSERT_EQ(Action::sampler({.ratio = 1, .next = &second, .actions = sampled, .restore = 0}, sampler), 0);
    ASSERT_EQ(Action::aso(fdb, std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr), 0, 1, 3, hit), 0);
    for (const Action::Created* action : {&go_on, &meter, &sampler, &hit, &pop, &push, &out}) {
        EXPECT_EQ(list_error(fdb_root, {action}), ENOTSUP) << static_cast<int>((*action)->type);
    }
}

TEST_F(Actions, RootTablesTakeTheirOwnDomainsObjectsMadeForThem) {
    const auto array = array_of(fdb, {&out, &to_second}), other_array = array_of(other, {&to_other, &count});
    const auto edit = modifying(fdb, {set_command(id::reg_c_1, 0, 32, 1)}, true);
    const auto other_edit = modifying(other, {set_command(id::reg_c_1, 0, 32, 1)}, true);
    EXPECT_EQ(list_error(fdb_root, {&array}), 0);
    EXPECT_EQ(list_error(fdb_root, {&other_array}), EINVAL);
    EXPECT_EQ(list_error(fdb_root, {&to_other}), EINVAL);
    EXPECT_EQ(list_error(fdb_root, {&edit, &to_second}), 0);
    EXPECT_EQ(list_error(fdb_root, {&other_edit, &to_second}), EINVAL);
    for (const Kind kind : {Kind::encap_l2, Kind::encap_l3, Kind::decap_l2, Kind::decap_l3}) {
        const auto& data = kind == Kind::decap_l3 ? l2 : header;
        const bool decap = kind == Kind::decap_l2 || kind == Kind::decap_l3;
        Action::Created none;
        EXPECT_EQ(Action::packet_reformat(fdb, true, kind, data, none), EOPNOTSUPP) << "in NIC domains only";
        const auto mine = reformatting(decap ? rx : tx, kind, data, true);
        const auto elsewhere = reformatting(decap ? rx : tx, kind, data);
        Table& root = decap ? rx_root : tx_root;
        const Action::Created& end = decap ? to_queue : drop;
        EXPECT_EQ(list_error(root, {&mine, &end}), 0);
        EXPECT_EQ(list_error(root, {&elsewhere, &end}), EINVAL);
        EXPECT_EQ(list_error(root, {&mine, &mine, &end}), EINVAL);
        EXPECT_EQ(list_error_from(first, wire, {&mine, &out}), kind == Kind::decap_l2 ? 0 : EINVAL)
            << "where libmlx5 looks";
    }
}

TEST_F(Actions, RootRulesTakeTwoObjectsOfWhichOneIsAReformat) {
    const auto encap = reformatting(tx, Kind::encap_l2, header, true);
    const auto encap_l3 = reformatting(tx, Kind::encap_l3, header, true);
    const auto decap = reformatting(rx, Kind::decap_l2, {}, true);
    const auto decap_l3 = reformatting(rx, Kind::decap_l3, l2, true);
    const auto edit = modifying(rx, {set_command(id::reg_c_1, 0, 32, 1)}, true);
    const auto sent = modifying(tx, {set_command(id::reg_c_1, 0, 32, 1)}, true);
    EXPECT_EQ(list_error(tx_root, {&encap, &encap_l3, &drop}), EINVAL);
    EXPECT_EQ(list_error(tx_root, {&sent, &encap, &drop}), 0);
    EXPECT_EQ(list_error(rx_root, {&decap, &decap_l3, &to_queue}), 0) << "of another kind to the kernel";
    EXPECT_EQ(list_error(rx_root, {&decap, &decap, &to_queue}), EINVAL);
    EXPECT_EQ(list_error(rx_root, {&edit, &edit, &to_queue}), EINVAL);
    EXPECT_EQ(list_error(rx_root, {&edit, &decap, &decap_l3, &to_queue}), EOPNOTSUPP) << "libmlx5 counts first";
    EXPECT_EQ(list_error(rx_root, {&edit, &decap, &decap_l3, &to_nothing}), EINVAL) << "and looks at each before";
}

TEST_F(Actions, RootRulesEndOnce) {
    EXPECT_EQ(list_error(rx_root, {&to_queue}), 0);
    EXPECT_EQ(list_error(rx_root, {&to_nothing}), EINVAL);
    EXPECT_EQ(list_error(rx_root, {&to_rx, &to_queue}), EOPNOTSUPP);
    EXPECT_EQ(list_error(rx_root, {&drop, &miss}), EOPNOTSUPP);
    EXPECT_EQ(list_error(rx_root, {&count, &count, &to_queue}), EOPNOTSUPP);
    EXPECT_EQ(list_error(rx_root, {&tag, &tag, &to_queue}), EINVAL);
    EXPECT_EQ(list_error(rx_root, {&tag, &tag, &drop, &to_queue}), EINVAL) << "the first to be found";
    EXPECT_EQ(list_error(rx_root, {&drop, &to_queue, &tag, &tag}), EOPNOTSUPP);
    EXPECT_EQ(list_error(rx_root, {&tag, &count, &to_queue}), 0);
    EXPECT_EQ(list_error(rx_root, {&count}), EINVAL);
    EXPECT_EQ(list_error(rx_root, {}), EINVAL);
    EXPECT_EQ(list_error(tx_root, {}), 0) << "senders may go on";
    EXPECT_EQ(list_error(tx_root, {&drop}), 0);
    EXPECT_EQ(list_error(tx_root, {&miss}), EINVAL);
    EXPECT_EQ(list_error(tx_root, {&to_queue}), EINVAL);
    EXPECT_EQ(list_error(tx_root, {&tag, &drop}), EINVAL);
    EXPECT_EQ(list_error(fdb_root, {&tag, &to_second}), EINVAL);
    EXPECT_EQ(list_error(fdb_root, {}), EINVAL);
}

TEST_F(Actions, OfAnotherDomainAreRefused) {
    Action::Created go_on;
    ASSERT_EQ(Action::root_table(other_root, 1, go_on), 0);
    const auto edit = modifying(other, {set_command(id::reg_c_1, 0, 32, 1)});
    const auto array = array_of(other, {&to_other, &count});
    const auto elsewhere = to_vport(other, 1);
    const std::vector<const Action::Created*> foreign{&go_on, &edit, &array, &elsewhere, &to_other};
    for (const Action::Created* action : foreign) {
        EXPECT_EQ(list_error(first, {action}), EINVAL) << static_cast<int>((*action)->type);
        EXPECT_EQ(list_error(other_first, {action}), 0) << static_cast<int>((*action)->type);
    }
    EXPECT_EQ(list_error(rx_first, {&to_nothing}), EINVAL);
    EXPECT_EQ(list_error(rx_first, {&to_queue}), 0);
}

TEST_F(Actions, ArraysHaveBranchesOfTheirDomain) {
    const auto encap = reformatting(fdb, Kind::encap_l2, header), encap_l3 = reformatting(fdb, Kind::encap_l3, header);
    EXPECT_EQ(array_error(fdb, {{out.get()}, {to_other.get()}}), EINVAL);
    EXPECT_EQ(array_error(fdb, {{out.get()}, {to_queue.get()}}), EINVAL);
    EXPECT_EQ(array_error(rx, {{to_queue.get()}, {to_nothing.get()}}), EINVAL);
    EXPECT_EQ(array_error(rx, {{to_queue.get()}, {miss.get()}}), EOPNOTSUPP);
    EXPECT_EQ(array_error(rx, {{to_queue.get()}, {out.get()}}), EOPNOTSUPP);
    EXPECT_EQ(array_error(rx, {{to_queue.get()}, {to_rx.get()}}), 0);
    EXPECT_EQ(array_error(rx, {{to_queue.get()}, {to_rx.get(), encap.get()}}), EINVAL);
    EXPECT_EQ(array_error(rx, {{to_rx.get()}, {to_queue.get(), encap.get()}}), EINVAL);
    EXPECT_EQ(array_error(fdb, {{out.get()}, {out.get(), encap_l3.get()}}), 0);
    EXPECT_EQ(array_error(fdb, {{out.get()}, {out.get(), push.get()}}), EOPNOTSUPP);
    {
        const Action::Branch branches[] = {{out.get(), encap.get()}, {to_second.get()}};
        Action::Created array;
        ASSERT_EQ(Action::dest_array(fdb, branches, array), 0);
        EXPECT_TRUE(encap->busy());
        EXPECT_TRUE(out->busy());
        EXPECT_TRUE(to_second->busy());
    }
    EXPECT_FALSE(encap->busy());
    EXPECT_FALSE(out->busy());
    EXPECT_FALSE(to_second->busy());
}

TEST_F(Actions, FlowArraysTakeQueuesInAnyDomainAndReferToThem) {
    Domain lone(steering, DomainType::fdb, nullptr);
    Action::Created array;
    const std::array<Action*, 3> branches{to_queue.get(), count.get(), to_two.get()};
    ASSERT_EQ(Action::flow_array(lone, branches, 7, array), 0);
    EXPECT_TRUE(lone.busy());
    for (const Action* branch : branches) EXPECT_TRUE(branch->busy());
    ASSERT_EQ(array->more().array->branches.size(), 3U);
    EXPECT_EQ(array->more().array->branches.back().end.kind, EndKind::root_table);
    EXPECT_EQ(array->more().array->branches.back().end.rank, 7U);
    EXPECT_EQ(array->more().array->counts.size(), 1U);
    array.reset();
    EXPECT_FALSE(lone.busy());
    for (const Action* branch : branches) EXPECT_FALSE(branch->busy());
    const std::array<Action*, 2> foreign{to_queue.get(), to_other.get()};
    EXPECT_EQ(Action::flow_array(lone, foreign, {}, array), EINVAL);
    EXPECT_FALSE(lone.busy());
    EXPECT_FALSE(to_queue->busy());
}

TEST_F(Actions, SamplersReferToWhatTheySample) {
    Action::Created sampler;
    const std::array<Action*, 2> actions{tag.get(), to_queue.get()};
    const auto error = [&](Table* next) {
        return Action::sampler({.ratio = 2, .next = next, .actions = actions, .restore = 0}, sampler);
    };
    EXPECT_EQ(error(nullptr), EINVAL);
    ASSERT_EQ(error(&rx_second), 0);
    EXPECT_TRUE(tag->busy());
    EXPECT_TRUE(to_queue->busy());
    sampler.reset();
    EXPECT_FALSE(tag->busy());
    EXPECT_FALSE(to_queue->busy());
}

TEST_F(OldActions, ConnectX5RestoresInTheFdbOnly) {
    Action::Created sampler;
    const std::array<Action*, 1> queues{to_queue.get()}, vports_{out.get()};
    EXPECT_EQ(Action::sampler({.ratio = 2, .next = &rx_second, .actions = queues, .restore = 0}, sampler), 0);
    const auto restore = [&](std::uint64_t command) {
        return Action::sampler({.ratio = 2, .next = &second, .actions = vports_, .restore = __builtin_bswap64(command)},
                               sampler);
    };
    EXPECT_EQ(restore(set_command(id::reg_c_0, 0, 16, 1)), 0);
    EXPECT_EQ(restore(set_command(id::reg_c_0, 16, 32, 1)), EINVAL) << "past the register";
}

TEST_F(Actions, MetersColourIntoRegistersThatTheDeviceHasForIt) {
    Action::Created meter;
    for (unsigned reg_c = 0; reg_c < 256; ++reg_c) {
        const FlowMeterSpec spec{.active = true, .reg_c = static_cast<std::uint8_t>(reg_c), .parameters = {}};
        EXPECT_EQ(Action::flow_meter(second, spec, meter), reg_c >= 2 && reg_c <= 7 ? 0 : EINVAL) << reg_c;
    }
}

TEST_F(Actions, EachFieldOfAMeterIsModifiedByItself) {
    std::vector<std::uint8_t> old(32, 0x01), now(32, 0x02);
    for (const unsigned fields : {0U, 1U, 2U, 3U, 4U, 5U, 8U, 16U, 17U, 30U, 31U}) {
        Action::Created meter;
        ASSERT_EQ(Action::flow_meter(second, {.active = false, .reg_c = 2, .parameters = old}, meter), 0);
        ASSERT_EQ(meter->modify_flow_meter({.active = true, .reg_c = 2, .parameters = now}, fields), 0);
        Meter::Image expected{};
        std::copy(old.begin(), old.end(), expected.begin());
        const auto replace = [&](unsigned field, unsigned at) {
            if ((fields & field) != 0) expected[at] = expected[at + 1] = 0x02;
        };
        replace(2, 8);
        replace(4, 10);
        replace(8, 16);
        replace(16, 18);
        EXPECT_EQ(meter->more().metering->meter.read(), expected) << fields;
        EXPECT_EQ(meter->more().metering->active, (fields & 1) != 0);
        EXPECT_EQ(meter->more().metering->reg_c, 2);
        now.resize(33);
        EXPECT_EQ(meter->modify_flow_meter({.active = true, .reg_c = 2, .parameters = now}, fields), EINVAL);
        EXPECT_EQ(meter->modify_flow_meter({.active = true, .reg_c = 2, .parameters = {}}, fields | 32), EINVAL);
        now.resize(32);
    }
}

/// Rules go first, then actions, then objects; but packets in flight may need what a rule needed.
TEST_F(Actions, WhatPacketsInFlightMayNeedIsKept) {
    const auto counters = std::make_shared<CounterBulk>(1);
    const auto hits = std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr),
               meters = std::make_shared<AsoBulk>(AsoKind::flow_meter, 0, nullptr);
    const auto connections = std::make_shared<AsoBulk>(AsoKind::connection, 0, nullptr);
    const auto counted = counting(counters), array = array_of(fdb, {&out, &counted});
    EXPECT_EQ(counters.use_count(), 3) << "the action and the array";
    Action::Created hit, meter, track, legacy, sampler;
    ASSERT_EQ(Action::aso(fdb, hits, 0, 1, 3, hit), 0);
    ASSERT_EQ(Action::aso(fdb, meters, 0, 4, 3, meter), 0);
    ASSERT_EQ(Action::aso(fdb, connections, 0, 1, 3, track), 0);
    ASSERT_EQ(Action::flow_meter(second, {.active = true, .reg_c = 2, .parameters = {}}, legacy), 0);
    const std::array<Action*, 1> sampled{out.get()};
    ASSERT_EQ(Action::sampler({.ratio = 1, .next = &second, .actions = sampled, .restore = 0}, sampler), 0);
    const auto edit = modifying(fdb, {set_command(id::dmac_15_0, 0, 16, 1)});
    std::vector<Action::Created> reformats;
    reformats.push_back(reformatting(fdb, Kind::decap_l2, {}));
    reformats.push_back(reformatting(fdb, Kind::decap_l3, l2));
    reformats.push_back(reformatting(fdb, Kind::encap_l2, header));
    reformats.push_back(reformatting(fdb, Kind::encap_l3, header));
    const auto kept = [&](const auto& object, std::initializer_list<const Action::Created*> actions) {
        const long before = object.use_count();
        const auto matcher = make_matcher(first, 0, misc, Parameters{}.set(field::source_port, 0xffff));
        Lane lane(steering, 0);
        lane.online();
        EXPECT_EQ(make_rule(*matcher, Parameters{}.set(field::source_port, wire), actions).error, 0) << "and it goes";
        const bool in_flight = object.use_count() > before;
        lane.offline();
        fdb.free_cached_memory();
        EXPECT_EQ(object.use_count(), before);
        return in_flight;
    };
    EXPECT_TRUE(kept(counters, {&counted, &out}));
    EXPECT_TRUE(kept(array->more().array, {&array}));
    EXPECT_TRUE(kept(hits, {&hit, &out}));
    EXPECT_TRUE(kept(meters, {&meter, &out}));
    EXPECT_TRUE(kept(connections, {&track, &out}));
    EXPECT_TRUE(kept(legacy->more().metering, {&legacy}));
    EXPECT_TRUE(kept(sampler->more().sampling, {&sampler}));
    EXPECT_TRUE(kept(edit->more().edits, {&edit, &out}));
    for (const auto& reformat : reformats) EXPECT_TRUE(kept(reformat->more().reformat, {&reformat, &out}));
    const Action::Branch branches[] = {{out.get()}, {out.get(), reformats[2].get()}};
    const long before = reformats[2]->more().reformat.use_count();
    Action::Created encapsulating;
    ASSERT_EQ(Action::dest_array(fdb, branches, encapsulating), 0);
    EXPECT_GT(reformats[2]->more().reformat.use_count(), before);
}

TEST_F(Actions, WhereNothingIsSentNoSideIsChecked) {
    const auto decap = reformatting(fdb, Kind::decap_l2, {});
    const auto both = make_matcher(first, 0, misc | misc2,
                                   Parameters{}.set(field::source_port, 0xffff).set(field::reg_c_0, 0xffff0000));
    const auto value = [](std::uint64_t port, std::uint64_t metadata) {
        return Parameters{}.set(field::source_port, port).set(field::reg_c_0, metadata << 16);
    };
    EXPECT_EQ(make_rule(*both, value(wire, wire), {&decap, &out}).error, 0);
    EXPECT_EQ(make_rule(*both, value(1, 1), {&decap, &out}).error, EOPNOTSUPP);
    EXPECT_EQ(make_rule(*both, value(1, wire), {&decap, &drop, &out}).error, 0) << "no packet is from both";
    // Of several queues it holds none for ever.
    const auto first_free = [&] {
        std::uint16_t number = 0;
        EXPECT_EQ(steering.impl().acquire_destination({queue.sink().deliver, this}, number), 0);
        steering.impl().release_destination(number);
        return number;
    };
    const std::uint16_t before = first_free();
    ASSERT_EQ(make_rule(*both, value(1, wire), {&to_queue, &to_two}).error, 0);
    EXPECT_EQ(first_free(), before);
    // In other domains a source settles nothing.
    const auto rx_matcher = make_matcher(rx_first, 0, misc, Parameters{}.set(field::source_port, 0xffff));
    const auto rule = make_rule(*rx_matcher, Parameters{}.set(field::source_port, wire), {&to_queue});
    ASSERT_EQ(rule.error, 0);
    EXPECT_EQ(rule.rule->node().sides, side_both);
}

/// Values of the same source under masks that look at either name of it.
TEST_F(Actions, RulesExistOnTheSideOfTheirSource) {
    const auto sides = [&](const Parameters& mask, const Parameters& value) {
        const auto matcher = make_matcher(first, 0, misc | misc2, mask);
        const auto rule = make_rule(*matcher, value, {&out});
        EXPECT_EQ(rule.error, 0);
        return std::uint8_t{rule.rule->node().sides};
    };
    const auto by_port = Parameters{}.set(field::source_port, 0xffff);
    const auto by_bit = Parameters{}.set(field::reg_c_0, 0x80000000);
    EXPECT_EQ(sides(by_port, Parameters{}.set(field::source_port, wire)), side_wire);
    EXPECT_EQ(sides(by_port, {}), side_vports);
    EXPECT_EQ(sides(Parameters{}.set(field::reg_c_0, 0xffff0000), Parameters{}.set(field::reg_c_0, 0xffff0000)),
              side_wire);
    EXPECT_EQ(sides(by_bit, {}), side_vports);
    EXPECT_EQ(sides(Parameters{}.set(field::reg_c_0, 0xffff), {}), side_both);
}

/// A counter counts before a pop on one side and behind it on the other.
TEST_F(Actions, ARuleHasTheOpsOfItsSidesOnly) {
    const auto ops = [&](const Parameters& mask, const Parameters& value) {
        const auto matcher = make_matcher(first, 0, misc | misc2, mask);
        const auto rule = make_rule(*matcher, value, {&count, &out});
        EXPECT_EQ(rule.error, 0);
        std::vector<std::uint8_t> sides;
        for (const Op& op : rule.rule->node().ops()) sides.push_back(op.sides);
        return sides;
    };
    const auto by_port = Parameters{}.set(field::source_port, 0xffff);
    EXPECT_EQ(ops(by_port, Parameters{}.set(field::source_port, wire)), std::vector{side_wire});
    EXPECT_EQ(ops(by_port, {}), std::vector{side_vports});
    EXPECT_EQ(ops(Parameters{}.set(field::reg_c_0, 0xffff), {}), (std::vector{side_vports, side_wire}));
}

}  // namespace
}  // namespace ovsdr::soft::test
