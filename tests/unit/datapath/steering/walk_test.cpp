// Walks by themselves: the order in which a packet meets what its rules list, and which walks may stand for other
// packets.
#include "walk_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

using criteria::misc2;
using criteria::outer;
using Kind = Reformat::Kind;

class OldWalkTest : public WalkTest {
protected:
    OldWalkTest() : WalkTest(connectx_5) {}
};

TEST_F(WalkTest, ActionsAreDoneInTheDevicesOrder) {
    const auto edit = edited({set_command(id::dmac_15_0, 0, 16, 1)});
    const auto hit = aso(AsoKind::first_hit, 1), meter = aso(AsoKind::flow_meter, 4);
    const auto track = aso(AsoKind::connection, 1);
    // What comes from the wire.
    EXPECT_EQ(ops_of(first, from_wire, {&decap, &hit, &count, &edit, &push, &encap, &to_2}),
              "reformat hit count edit push reformat output");
    EXPECT_EQ(ops_of(first, from_wire, {&count, &decap, &pop, &to_2}), "reformat pop count output");
    EXPECT_EQ(ops_of(first, from_wire, {&decap, &meter, &to_2}), "reformat meter output");
    EXPECT_EQ(ops_of(first, from_wire, {&edit, &track, &to_2}), "edit track output");
    EXPECT_EQ(ops_of(first, from_wire, {&push, &push, &meter, &to_2}), "push push meter output");
    // What comes from vports.
    EXPECT_EQ(ops_of(first, from_vport, {&hit, &pop, &count, &edit, &push, &encap, &to_2}),
              "count pop edit push reformat hit output");
    EXPECT_EQ(ops_of(first, from_vport, {&pop, &pop, &to_2}), "pop pop output");
    EXPECT_EQ(ops_of(first, from_vport, {&meter, &track, &edit, &to_2}), "meter track edit output");
    // What the manager receives.
    const auto rx_decap = reformatting(rx, Kind::decap_l3, Frame(14));
    const auto rx_edit = modifying(rx, {set_command(id::dmac_15_0, 0, 16, 1)});
    const auto rx_track = aso(AsoKind::connection, 1, rx), tx_track = aso(AsoKind::connection, 1, tx);
    EXPECT_EQ(ops_of(rx_first, from_vport, {&tag, &rx_decap, &hit, &count, &rx_edit, &push, &to_queue}),
              "reformat hit count edit push tag output");
    EXPECT_EQ(ops_of(rx_first, from_vport, {&count, &pop, &to_queue}), "pop count output");
    EXPECT_EQ(ops_of(rx_first, from_vport, {&rx_edit, &meter, &to_queue}), "edit meter output");
    EXPECT_EQ(ops_of(rx_first, from_vport, {&rx_edit, &rx_track, &to_queue}), "edit track output");
    // What it sends: no end leads to the FDB, which sends it back up, where nobody takes it.
    enter_rx.rule.reset();
    const auto tx_edit = modifying(tx, {set_command(id::dmac_15_0, 0, 16, 1)});
    const auto tx_encap = reformatting(tx, Kind::encap_l3, header);
    EXPECT_EQ(ops_of(tx_first, from_queue, {&hit, &pop, &count, &tx_edit, &push, &tx_encap}),
              "count pop edit push reformat hit output");
    EXPECT_EQ(ops_of(tx_first, from_queue, {&tx_track, &meter, &tx_edit}), "meter track edit output");
}

TEST_F(OldWalkTest, ConnectX5CountsBeforeItTakesAway) {
    EXPECT_EQ(ops_of(first, from_wire, {&decap, &pop, &count, &to_2}), "count reformat pop output");
    EXPECT_EQ(ops_of(rx_first, from_vport, {&pop, &count, &to_queue}), "count pop output");
}

TEST_F(WalkTest, ArraysAndSamplersForkTheTrace) {
    const auto plain = array_of(fdb, {&to_2, &count, &to_3, &to_1});
    EXPECT_EQ(ops_of(first, from_vport, {&plain}), "count copy copy output");
    const auto all_second = match_all(second);
    {
        const auto onward = make_rule(*all_second, {}, {&push, &to_3});
        const auto mixed = array_of(fdb, {&to_2, &to_second, &to_1});
        EXPECT_EQ(ops_of(first, from_vport, {&mixed}), "copy fork2 push output output");
        const auto last = array_of(fdb, {&to_2, &to_second});
        EXPECT_EQ(ops_of(first, from_vport, {&last}), "copy push output");
        const auto up = array_of(fdb, {&miss, &to_2});
        const auto rx_all = match_all(rx_first);
        const auto taken = make_rule(*rx_all, {}, {&tag, &to_queue});
        EXPECT_EQ(ops_of(first, from_vport, {&up}), "fork2 tag output output");
        steering.detach(VportId{3});
        const auto nowhere = array_of(fdb, {&to_3, &to_2});
        EXPECT_EQ(ops_of(first, from_vport, {&nowhere}), "fork1 drop output") << "a drop is no copy";
        EXPECT_EQ(steering.drops().no_vport, 1U);
    }
    const auto onward = make_rule(*all_second, {}, {&to_2});
    const std::array<Action*, 1> sampled{to_1.get()};
    for (const std::uint32_t ratio : {1U, 1'000'000'000U}) {
        Action::Created sampler;
        ASSERT_EQ(Action::sampler({.ratio = ratio, .next = &second, .actions = sampled, .restore = 0}, sampler), 0);
        EXPECT_EQ(ops_of(first, from_vport, {&sampler}), "sample1 output output") << "taken or not";
    }
    Action::Created legacy;
    ASSERT_EQ(Action::flow_meter(second, {.active = true, .reg_c = 2, .parameters = {}}, legacy), 0);
    EXPECT_EQ(ops_of(first, from_vport, {&legacy}), "legacy output");
}

TEST_F(WalkTest, RegistersLeaveNoTrace) {
    const auto both = edited({set_command(id::reg_c_1, 0, 32, 1), set_command(id::dmac_15_0, 0, 16, 1)});
    const auto registers = edited({set_command(id::reg_c_1, 0, 32, 1), copy_command(id::dmac_15_0, id::reg_c_2, 16)});
    EXPECT_EQ(ops_of(first, from_vport, {&registers, &to_2}), "output");
    EXPECT_EQ(ops_of(first, from_vport, {&both, &to_2}), "edit output");
}

TEST_F(WalkTest, TracesOfMoreThanTwentyOpsAreNotRepeated) {
    std::vector<Action*> branches(FlowCache::max_ops, to_2.get());
    for (const bool more : {false, true}) {
        if (more) branches.push_back(to_2.get());
        Action::Created array;
        ASSERT_EQ(Action::dest_array(fdb, branches, array), 0);
        const auto matcher = match_all(first);
        const auto rule = make_rule(*matcher, {}, {&array});
        EXPECT_EQ(walk_from(1, packet).cacheable, !more);
        vports[2].taken.clear();
        send(1, packet, 3);
        EXPECT_EQ(vports[2].taken.size(), 3 * branches.size());
    }
    // Branches that do not fit do not count as each other's.
    branches.assign(32, to_second.get());
    Action::Created array;
    ASSERT_EQ(Action::dest_array(fdb, branches, array), 0);
    const auto matcher = match_all(first), all_second = match_all(second);
    const auto rule = make_rule(*matcher, {}, {&array}), onward = make_rule(*all_second, {}, {&push, &to_2});
    vports[2].taken.clear();
    send(1, packet, 3);
    EXPECT_EQ(vports[2].taken.size(), 3 * branches.size());
}

TEST_F(WalkTest, APacketMakes128HopsAndThenIsLost) {
    const auto bulk = std::make_shared<CounterBulk>(2);
    const auto in_root = counting(bulk, 0), in_first = counting(bulk, 1);
    enter.rule.reset();
    const auto enter_counted = make_rule(*all_fdb, {}, {&in_root, &to_first});
    Action::Created back;
    ASSERT_EQ(Action::root_table(fdb_root, 0, back), 0);
    const auto matcher = match_all(first);
    const auto rule = make_rule(*matcher, {}, {&in_first, &back});
    walk_from(1, packet);
    EXPECT_EQ(bulk->read(0).packets, 64U);
    EXPECT_EQ(bulk->read(1).packets, 64U);
    EXPECT_EQ(steering.drops().loop, 1U);
    send(1, packet, 2);
    EXPECT_EQ(steering.drops().loop, 3U);
    EXPECT_EQ(bulk->read(1).packets, 192U);
}

/// Copies that are written need buffers of their own.
TEST_F(WalkTest, CopiesThatFindNoBufferAreLostAlone) {
    const auto walk_without_buffers = [&] {
        rte_mbuf* one = packet_of(packet);
        std::vector<rte_mbuf*> hoard;
        while (rte_mbuf* spare = rte_pktmbuf_alloc(pool())) hoard.push_back(spare);
        lane.online();
        lane.from_vport(VportId{1}, &one, 1);
        for (rte_mbuf* spare : hoard) rte_pktmbuf_free(spare);
        lane.offline();
    };
    const auto all_first = match_all(first);
    for (const bool last : {false, true}) {
        std::vector<Action::Branch> branches{{to_3.get()}};
        branches.insert(last ? branches.end() : branches.begin(), {to_2.get(), encap.get()});
        Action::Created array;
        ASSERT_EQ(Action::dest_array(fdb, std::span<const Action::Branch>(branches), array), 0);
        const auto rule = make_rule(*all_first, {}, {&array});
        ASSERT_EQ(rule.error, 0);
        vports[3].taken.clear();
        walk_without_buffers();
        EXPECT_TRUE(vports[2].taken.empty());
        EXPECT_EQ(vports[3].taken.size(), 1U);
        EXPECT_EQ(steering.drops().no_buffer, last ? 2U : 1U);
    }
    Collector onward;
    const auto to_onward = to_sink(onward.sink());
    const std::array<Action*, 2> sampled{tag.get(), to_queue.get()};
    Action::Created sampler;
    ASSERT_EQ(Action::sampler({.ratio = 1, .next = &rx_second, .actions = sampled, .restore = 0}, sampler), 0);
    const auto all_rx_first = match_all(rx_first), all_rx_second = match_all(rx_second);
    const auto sampling = make_rule(*all_rx_first, {}, {&sampler}), rest = make_rule(*all_rx_second, {}, {&to_onward});
    walk_without_buffers();
    EXPECT_TRUE(queue.taken.empty());
    EXPECT_EQ(onward.taken.size(), 1U);
    EXPECT_EQ(steering.drops().no_buffer, 3U);
    send(1, packet);
    EXPECT_EQ(queue.taken.size(), 1U);
    EXPECT_EQ(onward.taken.size(), 2U);
}

/// Of a table's three hops each third is where the packet forks; the trace has long no room for it.
TEST_F(WalkTest, LoopsThatForkEndToo) {
    unsigned copies = 0;
    steering.detach(VportId{3});
    ASSERT_EQ(steering.attach(VportId{3}, {.deliver =
                                               [](void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
                                                   *static_cast<unsigned*>(self) += length;
                                                   rte_pktmbuf_free_bulk(packets, length);
                                               },
                                           .self = &copies}),
              0);
    Action::Created back, sampler;
    ASSERT_EQ(Action::root_table(fdb_root, 0, back), 0);
    const std::array<Action*, 1> sampled{to_3.get()};
    ASSERT_EQ(Action::sampler({.ratio = 1, .next = &second, .actions = sampled, .restore = 0}, sampler), 0);
    const auto array = array_of(fdb, {&to_3, &to_second});
    const auto all_first = match_all(first), all_second = match_all(second);
    const auto again = make_rule(*all_second, {}, {&back});
    for (const Action* action : {sampler.get(), array.get()}) {
        std::unique_ptr<Rule> rule;
        Action* const list[] = {const_cast<Action*>(action)};
        ASSERT_EQ(Rule::create(*all_first, Parameters{}.bytes(), list, rule), 0);
        copies = 0;
        EXPECT_FALSE(walk_from(1, packet).cacheable);
        EXPECT_EQ(copies, 43U);
    }
    EXPECT_EQ(steering.drops().loop, 2U);
}

TEST_F(WalkTest, RootMatchersOfThePriorityThatIsNamedAreTheFirst) {
    const auto at_two = match_all(fdb_root, 2), at_three = match_all(fdb_root, 3);
    enter.rule.reset();
    const auto jump = make_rule(*all_fdb, {}, {&to_first});
    const auto second_rule = make_rule(*at_two, {}, {&to_second}), third_rule = make_rule(*at_three, {}, {&to_third});
    const auto all_second = match_all(second), all_third = match_all(third), all_first = match_all(first);
    const auto by_two = make_rule(*all_second, {}, {&to_2}), by_three = make_rule(*all_third, {}, {&to_3});
    for (const std::uint16_t priority : {1, 2, 3}) {
        Action::Created go_on;
        ASSERT_EQ(Action::root_table(fdb_root, priority, go_on), 0);
        const auto rule = make_rule(*all_first, {}, {&go_on});
        walk_from(1, packet);
        EXPECT_EQ(vports[2].taken.size(), std::min<unsigned>(priority, 2));
    }
    EXPECT_EQ(vports[3].taken.size(), 1U);
}

TEST_F(WalkTest, WhatAnActionKnewMayBeLookedAtAgain) {
    const auto same = [&](std::initializer_list<const Action::Created*> actions, Field looked_at) {
        return repeatable(actions, looked_at, 1, packet);
    };
    const Field dmac{64, 48}, smac{0, 48}, vlan{112, 16};
    EXPECT_TRUE(same({&push, &to_second}, dmac));
    EXPECT_TRUE(same({&push, &to_second}, smac));
    EXPECT_TRUE(same({&pop, &to_second}, dmac));
    for (const Field changed : {field::ethertype, Field{48, 8}, vlan, Field{112, 8}, field::second_vid,
                                field::gre_protocol, field::icmp_data, field::vxlan_vni, field::inner_dmac_15_0}) {
        EXPECT_FALSE(same({&push, &to_second}, changed)) << changed.bit;
        EXPECT_FALSE(same({&pop, &to_second}, changed)) << changed.bit;
        EXPECT_FALSE(same({&encap, &to_second}, changed)) << changed.bit;
    }
    EXPECT_FALSE(same({&encap, &to_second}, dmac));
    EXPECT_TRUE(same({&encap, &to_second}, field::source_port));
    EXPECT_TRUE(same({&push, &to_second}, field::reg_c_1));
}

TEST_F(WalkTest, EditsTaintWhatDependsOnThePacket) {
    const auto same = [&](std::initializer_list<std::uint64_t> commands, Field looked_at) {
        const auto edit = edited(commands);
        return repeatable({&edit, &to_second}, looked_at, 1, packet);
    };
    EXPECT_TRUE(same({set_command(id::dmac_15_0, 0, 16, 1)}, field::dmac_15_0)) << "every packet has it now";
    EXPECT_TRUE(same({set_command(id::reg_c_1, 0, 32, 1)}, field::reg_c_1));
    EXPECT_TRUE(same({set_command(id::tcp_sport, 0, 16, 1)}, field::dmac_15_0));
    EXPECT_TRUE(same({set_command(id::tcp_sport, 0, 16, 1)}, field::vxlan_vni)) << "no tunnel is known by a TCP port";
    EXPECT_FALSE(same({copy_command(id::smac_15_0, id::reg_c_1, 16)}, field::reg_c_1));
    EXPECT_TRUE(same({copy_command(id::smac_15_0, id::reg_c_1, 16)}, field::dmac_15_0));
    EXPECT_FALSE(same({copy_command(id::reg_c_1, id::dmac_15_0, 16)}, field::smac_15_0))
        << "the register was another's";
    EXPECT_FALSE(same({set_command(id::udp_dport, 0, 16, 1)}, field::vxlan_vni)) << "another tunnel, or none";
    EXPECT_FALSE(same({set_command(3, 0, 16, 1)}, field::dmac_47_16)) << "other headers";
    EXPECT_TRUE(same({set_command(id::dipv4, 0, 32, 1)}, field::inner_dmac_15_0));
}

TEST_F(WalkTest, OnlyWhatArrivesInTheNextDomainIsTainted) {
    const auto edit_tx =
        modifying(tx, {copy_command(id::smac_15_0, id::reg_a, 16), copy_command(id::smac_15_0, id::reg_c_1, 16)});
    const auto all_tx_first = match_all(tx_first);
    const auto sent = make_rule(*all_tx_first, {}, {&edit_tx});
    const auto by_sent = [&](Field looked_at) {
        const auto look = make_matcher(first, 0, misc2, Parameters{}.set(looked_at, 0xffff));
        const auto looking = make_rule(*look, {}, {&drop});
        return walk_from_queue(packet).cacheable;
    };
    EXPECT_FALSE(by_sent(field::reg_a));
    EXPECT_TRUE(by_sent(field::reg_c_1));
    const auto received = [&](std::uint64_t command, Field looked_at) {
        const auto edit = edited({command});
        const auto all_first = match_all(first);
        const auto up = make_rule(*all_first, {}, {&edit, &to_second});  // which nothing takes
        const auto look = make_matcher(rx_first, 0, misc2, Parameters{}.set(looked_at, 0xffff));
        const auto looking = make_rule(*look, {}, {&drop});
        return walk_from(1, packet).cacheable;
    };
    EXPECT_FALSE(received(copy_command(id::smac_15_0, id::reg_c_1, 16), field::reg_c_1));
    EXPECT_FALSE(received(copy_command(id::smac_15_0, id::reg_c_0, 16), field::reg_c_0));
    EXPECT_TRUE(received(copy_command(id::smac_15_0, id::reg_c_2, 16), reg_c(2)));
}

/// What a matcher looks at counts while it has a rule that the packet could meet.
TEST_F(WalkTest, MatchersWithoutRulesForThePacketLookAtNothing) {
    const auto edit = edited({copy_command(id::smac_15_0, id::reg_c_1, 16)});
    const auto all_first = match_all(first);
    const auto on = make_rule(*all_first, {}, {&edit, &to_second});
    const auto mask = Parameters{}.set(field::source_port, 0xffff).set(field::reg_c_1, 0xffff);
    const auto look = make_matcher(second, 0, every, mask);
    EXPECT_TRUE(walk_from(1, packet).cacheable);
    const auto of_2 = make_rule(*look, Parameters{}.set(field::source_port, 2).set(field::reg_c_1, 7), {&drop});
    EXPECT_TRUE(walk_from(1, packet).cacheable);
    EXPECT_FALSE(walk_from(2, packet).cacheable);
    const auto of_1 = make_rule(*look, Parameters{}.set(field::source_port, 1).set(field::reg_c_1, 7), {&drop});
    EXPECT_FALSE(walk_from(1, packet).cacheable);
}

TEST_F(WalkTest, RegistersOfTheSenderDoNotReachTheReceiver) {
    const auto edit_tx = modifying(tx, {set_command(id::reg_a, 0, 32, 0x12345678)});
    const auto all_tx_first = match_all(tx_first),
               by_source = make_matcher(rx_first, 0, misc2, Parameters{}.set(field::reg_a, ~0U));
    const auto sent = make_rule(*all_tx_first, {}, {&edit_tx});
    const auto taken = make_rule(*by_source, {}, {&to_queue});
    EXPECT_EQ(walk_from_queue(packet).ops, "output");
    EXPECT_EQ(queue.taken.size(), 1U);
}

TEST_F(WalkTest, SamplesThatAreNotTakenAreNotReadAnew) {
    const auto rx_edit = modifying(rx, {set_command(id::dmac_15_0, 0, 16, 0x77)});
    const auto rx_all = match_all(rx_first), all_second = match_all(second), all_first = match_all(first);
    const auto onward = make_rule(*all_second, {}, {&to_2});
    const auto look = make_matcher(rx_second, 0, outer, Parameters{}.set(field::smac_15_0, 0xffff));
    const auto found = make_rule(*look, Parameters{}.set(field::smac_15_0, 1), {&to_queue});
    const std::array<Action*, 1> sampled{miss.get()};
    for (const bool edits : {false, true}) {
        const auto taken =
            edits ? make_rule(*rx_all, {}, {&rx_edit, &to_rx_second}) : make_rule(*rx_all, {}, {&to_rx_second});
        for (const std::uint32_t ratio : {1U, 1'000'000'000U}) {
            Action::Created sampler;
            ASSERT_EQ(Action::sampler({.ratio = ratio, .next = &second, .actions = sampled, .restore = 0}, sampler), 0);
            const auto rule = make_rule(*all_first, {}, {&sampler});
            queue.taken.clear();
            const Walked walked = walk_from(1, packet);
            EXPECT_EQ(walked.cacheable, ratio == 1 || !edits);
            if (walked.cacheable) {
                EXPECT_EQ(walked.ops, edits ? "sample2 edit output output" : "sample1 output output");
            }
            EXPECT_EQ(queue.taken.size(), ratio == 1 ? 1U : 0U);
        }
    }
    EXPECT_EQ(vports[2].taken.size(), 4U);
}

TEST_F(WalkTest, HeadersThatAreGoneAreNotMatched) {
    const auto to_little = reformatting(fdb, Kind::encap_l3, {0, 0});
    const auto matcher = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
    const auto rule = make_rule(*matcher, Parameters{}.set(field::source_port, 1), {&to_little, &to_second});
    const auto by_mac = make_matcher(second, 0, outer, Parameters{}.set(field::dmac_47_16, 0xffffffff));
    const auto old = make_rule(*by_mac, Parameters{}.set(field::dmac_47_16, 0x02000000), {&to_3});
    const auto none = make_rule(*by_mac, {}, {&to_2});
    Frame little = make_frame({});
    little.resize(16);
    walk_from(1, little);
    EXPECT_TRUE(vports[3].taken.empty());
    EXPECT_EQ(vports[2].taken.size(), 1U) << "four bytes are no Ethernet header";
}

TEST_F(WalkTest, TheKernelsSendRuleIsForWhatTheRootDoesNotTake) {
    enter.rule.reset();
    steering.cotenant_send_rule(0x42, VportId{3});
    EXPECT_EQ(walk_from_queue(packet).ops, "output");
    EXPECT_EQ(vports[3].taken.size(), 1U);
    walk_from(1, packet);
    EXPECT_EQ(vports[3].taken.size(), 1U) << "a vport has no send queue";
    const auto again = make_rule(*all_fdb, {}, {&to_first});
    walk_from_queue(packet);
    EXPECT_EQ(vports[3].taken.size(), 1U) << "another table's miss leads to the manager";
    steering.cotenant_send_rule(0x42, manager_vport);
}

TEST_F(WalkTest, WhatTheManagerSendsToItselfItReceives) {
    enter.rule.reset();
    enter_rx.rule.reset();
    steering.cotenant_send_rule(0x42, manager_vport);
    walk_from_queue(packet);
    EXPECT_EQ(cotenant.taken.size(), 1U);
}

/// Frames of one key that end differently once they are rewritten: the cache must not take one for the other.
TEST_F(WalkTest, WhatTheKeyDoesNotTellIsNotRepeated) {
    struct Case {
        std::uint64_t command;
        Field looked_at;
        std::uint64_t one, two;
        Frame first, second;
    };
    const auto vxlan_to = [&](std::uint8_t vni, std::uint16_t port) {
        Frame content = vxlan;
        content[6] = vni;
        content.insert(content.end(), inside.begin(), inside.end());
        return make_frame({.dport = port}, content);
    };
    Frame ip_one = make_frame({.ttl = 1}), ip_two = make_frame({.ttl = 2});
    for (Frame* frame : {&ip_one, &ip_two}) {
        (*frame)[12] = 0x12;  // no IPv4 packet yet
        (*frame)[13] = 0x34;
    }
    const Case cases[] = {
        {set_command(id::udp_dport, 0, 16, 4789), field::vxlan_vni, 1, 2, vxlan_to(1, 5000), vxlan_to(2, 5000)},
        {set_command(3, 0, 16, 0x0800), field::ttl, 1, 2, ip_one, ip_two},
        {copy_command(id::smac_15_0, id::reg_c_1, 16), field::reg_c_1, 1, 2, make_frame({.smac = 0x020000000001}),
         make_frame({.smac = 0x020000000002})},
        {set_command(id::ip_ttl, 0, 8, 9), field::ttl, 9, 0, make_frame({}), make_frame({.version = 0})}};
    for (const Case& one : cases) {
        const auto edit = edited({one.command});
        const bool ttl = one.looked_at.bit == field::ttl.bit;
        const auto matcher = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
        const auto rule = make_rule(*matcher, Parameters{}.set(field::source_port, 1), {&edit, &to_second});
        const std::uint64_t ones = (1ULL << one.looked_at.width) - 1;
        const auto look =
            make_matcher(second, 0, every, Parameters{}.set(field::ip_version, ttl ? 4 : 0).set(one.looked_at, ones));
        const auto by_one =
            make_rule(*look, Parameters{}.set(field::ip_version, ttl ? 4 : 0).set(one.looked_at, one.one), {&to_2});
        const auto by_two =
            make_rule(*look, Parameters{}.set(field::ip_version, ttl ? 4 : 0).set(one.looked_at, one.two), {&to_3});
        ASSERT_EQ(by_two.error, 0);
        vports[2].taken.clear();
        vports[3].taken.clear();
        for (unsigned round = 0; round < 2; ++round) {
            send(1, one.first, 2);
            send(1, one.second, 2);
        }
        EXPECT_EQ(vports[2].taken.size(), 4U) << one.looked_at.bit;
        EXPECT_EQ(vports[3].taken.size(), one.two != 0 ? 4U : 0U) << one.looked_at.bit;
    }
}

}  // namespace
}  // namespace ovsdr::soft::test
