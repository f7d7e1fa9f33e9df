// Where packets go: domains, defaults, priorities, registers, the co-tenant.
#include <algorithm>

#include "datapath/steering/steering_impl.hpp"
#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

using criteria::misc;
using criteria::misc2;
using criteria::outer;

class Pipeline : public SteeringTest {
protected:
    Pipeline() { attach({1, 2, 3, 0xffff}); }

    const Frame frame = make_frame({});
    Domain fdb{steering, DomainType::fdb, nullptr};
    Domain rx{steering, DomainType::nic_rx, nullptr};
    Domain tx{steering, DomainType::nic_tx, nullptr};
    Table fdb_root{fdb, 0};
    Table rx_root{rx, 0};
    Collector queue;
    Action::Created drop = Action::drop();
    Action::Created default_miss = Action::default_miss();
    Action::Created to_queue = to_sink(queue.sink());
    Collector cotenant;

    void have_cotenant() {
        steering.set_cotenant_sink(cotenant.sink());
    }
    /// An FDB root rule by source vport.
    MadeRule by_source(Matcher& matcher, std::uint16_t vport, std::initializer_list<const Action::Created*> actions) {
        return make_rule(matcher, Parameters{}.set(field::source_port, vport), actions);
    }
    MadeMatcher source_matcher() {
        return make_matcher(fdb_root, 0, misc, Parameters{}.set(field::source_port, 0xffff));
    }
};

TEST_F(Pipeline, WithoutRulesEverythingGoesToTheCotenant) {
    have_cotenant();
    send(1, frame);
    ASSERT_EQ(cotenant.taken.size(), 1U);
    EXPECT_EQ(cotenant.taken[0].frame, frame);
    EXPECT_EQ(cotenant.taken[0].source, VportId{1});
}

TEST_F(Pipeline, WithoutCotenantItIsDroppedAndCounted) {
    send(1, frame, 3);
    EXPECT_EQ(steering.drops().nic_rx_miss, 3U);
}

TEST_F(Pipeline, ForwardsFromVportToVport) {
    Table table(fdb, 1);
    const auto root = source_matcher();
    const auto all = match_all(table);
    const auto jump = to_table(table);
    const auto out = to_vport(fdb, 2);
    const auto enter = by_source(*root, 1, {&jump});
    const auto bulk = std::make_shared<CounterBulk>(4);
    const auto count = counting(bulk, 3);
    const auto rule = make_rule(*all, {}, {&out, &count});  // a destination may come before the counter
    ASSERT_EQ(rule.error, 0);
    have_cotenant();
    send(1, frame, 40);
    send(3, frame);
    EXPECT_EQ(vports[2].taken.size(), 40U);
    EXPECT_EQ(cotenant.taken.size(), 1U);
    EXPECT_EQ(bulk->read(3).packets, 40U);
    EXPECT_EQ(bulk->read(3).bytes, 40U * frame.size());
    EXPECT_EQ(bulk->read_and_clear(3).packets, 40U);
    EXPECT_EQ(bulk->read(3).packets, 0U);
}

TEST_F(Pipeline, NonRootMissInTheFdbGoesToTheManagerNotToOtherRootRules) {
    Table table(fdb, 1);
    const auto root = source_matcher();
    const auto second = match_all(fdb_root, 7);
    const auto jump = to_table(table);
    const auto array = array_of(fdb, {&jump, &jump});
    const auto enter = by_source(*root, 1, {&jump});
    const auto trap = make_rule(*second, {}, {&drop});
    have_cotenant();
    send(1, frame);
    send(2, frame);
    EXPECT_EQ(cotenant.taken.size(), 1U);
    EXPECT_EQ(steering.drops().by_rule, 1U);
}

TEST_F(Pipeline, NicRxTagsAndDelivers) {
    Table table(rx, 1);
    const auto root = make_matcher(rx_root, 0, misc2, Parameters{}.set(field::reg_c_0, 0xffff0000));
    const auto jump = to_table(table);
    const auto enter = make_rule(*root, Parameters{}.set(field::reg_c_0, 0x00010000), {&jump});
    ASSERT_EQ(enter.error, 0);
    const auto all = match_all(table);
    const auto tag = Action::tag(0xff123456);
    const auto rule = make_rule(*all, {}, {&tag, &to_queue});
    ASSERT_EQ(rule.error, 0);
    have_cotenant();
    send(1, frame, 2);
    send(2, frame);
    ASSERT_EQ(queue.taken.size(), 2U);
    EXPECT_EQ(queue.taken[1].tag, 0x123456U);
    EXPECT_EQ(queue.taken[1].source, VportId{1});
    EXPECT_EQ(cotenant.taken.size(), 1U);
}

TEST_F(Pipeline, RegBGoesWithThePacketToItsReceiver) {
    Table table(rx, 1), next(rx, 2);
    const auto root = match_all(rx_root);
    const auto jump = to_table(table), on = to_table(next);
    const auto enter = make_rule(*root, {}, {&jump});
    const auto all = match_all(table), last = match_all(next);
    // Half of it a constant, half what the packet itself has; a later list reads what an earlier one wrote.
    const auto write =
        modifying(rx, {copy_command(id::dmac_15_0, id::reg_b, 16), set_command(id::reg_b, 16, 16, 0xbeef)});
    const auto read = modifying(rx, {copy_command(id::reg_b, id::smac_15_0, 16)});
    const auto first = make_rule(*all, {}, {&write, &on});
    const auto second = make_rule(*last, {}, {&read, &to_queue});
    ASSERT_EQ(first.error, 0);
    ASSERT_EQ(second.error, 0);
    for (const std::uint8_t low : {0x11, 0x22, 0x22}) {
        Frame changed = frame;
        changed[4] = 0x77;
        changed[5] = low;
        send(1, changed, 2);
        ASSERT_FALSE(queue.taken.empty());
        EXPECT_EQ(queue.taken.back().reg_b, 0xbeef7700U | low);
        EXPECT_EQ(queue.taken.back().frame[10], 0x77);
        EXPECT_EQ(queue.taken.back().frame[11], low);
    }
    EXPECT_EQ(queue.taken.size(), 6U);
}

TEST_F(Pipeline, RegBOfACachedFlowIsEachPacketsOwn) {
    Table table(rx, 1);
    const auto root = match_all(rx_root);
    const auto jump = to_table(table);
    const auto enter = make_rule(*root, {}, {&jump});
    const auto all = match_all(table);
    const auto write = modifying(rx, {copy_command(id::dmac_15_0, id::reg_b, 16)});
    const auto rule = make_rule(*all, {}, {&write, &to_queue});
    ASSERT_EQ(rule.error, 0);
    for (const std::uint8_t low : {1, 2, 3, 3}) {
        Frame changed = frame;
        changed[5] = low;
        send(1, changed, 3);
        ASSERT_FALSE(queue.taken.empty());
        EXPECT_EQ(queue.taken.back().reg_b & 0xff, low) << "no mask tells these packets apart";
    }
    send(1, frame);
    EXPECT_EQ(queue.taken.size(), 13U);
}

TEST_F(Pipeline, NonRootMissInNicRxDrops) {
    Table table(rx, 1);
    const auto root = match_all(rx_root);
    const auto jump = to_table(table);
    const auto enter = make_rule(*root, {}, {&jump});
    have_cotenant();
    send(1, frame);
    EXPECT_TRUE(cotenant.taken.empty());
    EXPECT_EQ(steering.drops().nic_rx_miss, 1U);
}

TEST_F(Pipeline, OnlyRegC1AndTheFreeBitsOfRegC0ReachNicRx) {
    Table table(fdb, 1);
    const auto root = source_matcher();
    const auto all = match_all(table);
    const auto jump = to_table(table);
    const auto enter = by_source(*root, 1, {&jump});
    // The vport bits are overwritten too, and come back.
    const auto registers = modifying(fdb, {set_command(id::reg_c_0, 0, 32, 0xbeef1234),
                                           set_command(id::reg_c_1, 0, 32, 77), set_command(id::reg_c_2, 0, 32, 5)});
    const auto out = to_vport(fdb, 0);
    const auto rule = make_rule(*all, {}, {&registers, &out});
    ASSERT_EQ(rule.error, 0);
    const auto rx_matcher = make_matcher(rx_root, 0, misc2,
                                         Parameters{}
                                             .set(field::reg_c_0, 0xffffffff)
                                             .set(field::reg_c_1, 0xffffffff)
                                             .set(Field{1536 + 288, 32}, 0xffffffff));
    const auto taken =
        make_rule(*rx_matcher, Parameters{}.set(field::reg_c_0, 0x00011234).set(field::reg_c_1, 77), {&to_queue});
    ASSERT_EQ(taken.error, 0);
    send(1, frame, 2);
    EXPECT_EQ(queue.taken.size(), 2U);
}

TEST_F(Pipeline, SendQueueRulesTakeOnlyTheirQueue) {
    Table table(fdb, 1);
    const auto root =
        make_matcher(fdb_root, 0, misc, Parameters{}.set(field::source_port, 0xffff).set(field::source_sqn, 0xffffff));
    const auto jump = to_table(table);
    const auto enter =
        make_rule(*root, Parameters{}.set(field::source_port, 0).set(field::source_sqn, 0x1234), {&jump});
    ASSERT_EQ(enter.error, 0);
    const auto all = match_all(table);
    const auto out = to_vport(fdb, 3);
    const auto rule = make_rule(*all, {}, {&out});
    have_cotenant();
    send_from_queue(0x1234, frame, 2);
    send_from_queue(0x1235, frame);
    EXPECT_EQ(vports[3].taken.size(), 2U);
    EXPECT_EQ(cotenant.taken.size(), 1U);
}

TEST_F(Pipeline, TheCotenantsSendRuleAppliesWhereTheRootHasNoRule) {
    steering.cotenant_send_rule(0x77, VportId{2});
    have_cotenant();
    send_from_queue(0x77, frame, 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    const auto all = match_all(fdb_root);
    {
        const auto rule = make_rule(*all, {}, {&drop});
        send_from_queue(0x77, frame);
        EXPECT_EQ(vports[2].taken.size(), 2U);
    }
    send_from_queue(0x77, frame);
    EXPECT_EQ(vports[2].taken.size(), 3U);
    steering.remove_cotenant_send_rule(0x77);
    send_from_queue(0x77, frame);
    EXPECT_EQ(vports[2].taken.size(), 3U);
    EXPECT_EQ(cotenant.taken.size(), 1U);
}

TEST_F(Pipeline, ASendRuleForANewQueueLeavesTheCachesAlone) {
    const std::uint64_t before = steering.impl().cache_key(manager_vport).epoch;
    steering.remove_cotenant_send_rule(0x77);
    steering.cotenant_send_rule(0x77, VportId{2});
    EXPECT_EQ(steering.impl().cache_key(manager_vport).epoch, before);
    send_from_queue(0x77, frame, 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    steering.cotenant_send_rule(0x77, VportId{3});
    send_from_queue(0x77, frame, 2);
    EXPECT_EQ(vports[2].taken.size(), 2U) << "cached";
    EXPECT_EQ(vports[3].taken.size(), 2U);
}

TEST_F(Pipeline, NicTxRunsBeforeTheFdbAndSetsRegA) {
    Table tx_root(tx, 0);
    Table tx_table(tx, 1);
    const auto tx_all = match_all(tx_root);
    const auto jump = to_table(tx_table);
    const auto enter = make_rule(*tx_all, {}, {&jump});
    ASSERT_EQ(enter.error, 0);
    const auto tx_table_all = match_all(tx_table);
    const auto mark = modifying(tx, {set_command(id::reg_a, 0, 32, 0xabc), set_command(id::dmac_15_0, 0, 16, 0x9999)});
    const auto rule = make_rule(*tx_table_all, {}, {&mark});
    ASSERT_EQ(rule.error, 0);
    const auto by_mark = make_matcher(fdb_root, 0, misc2, Parameters{}.set(field::reg_a, 0xffffffff));
    Table fdb_table(fdb, 1);
    const auto fdb_jump = to_table(fdb_table);
    const auto fdb_enter = make_rule(*by_mark, Parameters{}.set(field::reg_a, 0xabc), {&fdb_jump});
    const auto fdb_all = match_all(fdb_table);
    const auto out = to_vport(fdb, 1);
    const auto fdb_rule = make_rule(*fdb_all, {}, {&out});
    send_from_queue(5, frame, 2);
    ASSERT_EQ(vports[1].taken.size(), 2U);
    EXPECT_EQ(vports[1].taken[1].frame[5], 0x99);
}

TEST_F(Pipeline, LowerPrioritiesFirstAndTheNewestOfAPriorityBeforeOlderOnes) {
    Table table(fdb, 1);
    const auto root = source_matcher();
    const auto jump = to_table(table);
    const auto enter = by_source(*root, 1, {&jump});
    const auto one = to_vport(fdb, 1);
    const auto two = to_vport(fdb, 2);
    const auto three = to_vport(fdb, 3);
    const auto late = match_all(table, 9);
    const auto older = match_all(table, 5);
    const auto late_rule = make_rule(*late, {}, {&one});
    const auto older_rule = make_rule(*older, {}, {&two});
    send(1, frame);
    EXPECT_EQ(vports[2].taken.size(), 1U);
    {
        const auto newer = match_all(table, 5);
        const auto newer_rule = make_rule(*newer, {}, {&three});
        send(1, frame);
        EXPECT_EQ(vports[3].taken.size(), 1U);
    }
    send(1, frame);
    EXPECT_EQ(vports[2].taken.size(), 2U);
}

TEST_F(Pipeline, ADuplicateWaitsForTheFirstToGo) {
    Table table(fdb, 1);
    const auto root = source_matcher();
    const auto jump = to_table(table);
    const auto enter = by_source(*root, 1, {&jump});
    const auto all = match_all(table);
    const auto one = to_vport(fdb, 2);
    const auto two = to_vport(fdb, 3);
    auto first = make_rule(*all, {}, {&one});
    const auto second = make_rule(*all, {}, {&two});
    ASSERT_EQ(second.error, 0);
    send(1, frame);
    EXPECT_EQ(vports[2].taken.size(), 1U);
    first.rule.reset();
    send(1, frame);
    EXPECT_EQ(vports[3].taken.size(), 1U);
    fdb.allow_duplicates(false);
    EXPECT_EQ(make_rule(*all, {}, {&one}).error, EEXIST);
}

TEST_F(Pipeline, ADetachedVportGetsNothingAndDropsAreCounted) {
    Table table(fdb, 1);
    const auto root = source_matcher();
    const auto jump = to_table(table);
    const auto enter = by_source(*root, 1, {&jump});
    const auto all = match_all(table);
    const auto out = to_vport(fdb, 2);
    const auto rule = make_rule(*all, {}, {&out});
    send(1, frame, 2);
    steering.detach(VportId{2});
    send(1, frame, 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    EXPECT_EQ(steering.drops().no_vport, 2U);
    EXPECT_EQ(steering.attach(VportId{2}, vports[2].sink()), 0);
    EXPECT_EQ(steering.attach(VportId{2}, vports[2].sink()), EEXIST);
    send(1, frame);
    EXPECT_EQ(vports[2].taken.size(), 3U);
}

TEST_F(Pipeline, AnArrayServesEveryBranchAndCountsOnce) {
    Table table(fdb, 1);
    Table branch(fdb, 2);
    const auto root = source_matcher();
    const auto jump = to_table(table);
    const auto enter = by_source(*root, 1, {&jump});
    const auto all = match_all(table);
    const auto branch_all = match_all(branch);
    const auto two = to_vport(fdb, 2);
    const auto three = to_vport(fdb, 3);
    const auto to_branch = to_table(branch);
    const auto bulk = std::make_shared<CounterBulk>(1);
    const auto count = counting(bulk);
    const auto rewrite = modifying(fdb, {set_command(id::dmac_15_0, 0, 16, 0x7777)});
    const auto branch_rule = make_rule(*branch_all, {}, {&rewrite, &three});
    ASSERT_EQ(branch_rule.error, 0);
    const auto uplink = to_vport(fdb, 0xffff);
    const auto array = array_of(fdb, {&two, &to_branch, &count, &uplink});
    const auto rule = make_rule(*all, {}, {&array});
    ASSERT_EQ(rule.error, 0);
    send(1, frame, 5);
    ASSERT_EQ(vports[2].taken.size(), 5U);
    ASSERT_EQ(vports[3].taken.size(), 5U);
    ASSERT_EQ(vports[0xffff].taken.size(), 5U);
    EXPECT_EQ(bulk->read(0).packets, 5U);
    for (unsigned i = 0; i < 5; ++i) {
        EXPECT_EQ(vports[2].taken[i].frame, frame);  // the branch rewrote a copy
        EXPECT_EQ(vports[0xffff].taken[i].frame, frame);
        EXPECT_EQ(vports[3].taken[i].frame[4], 0x77);
    }
}

TEST_F(Pipeline, RootTableDestinationsThatComeBackAreCutAndCounted) {
    Table table(fdb, 1);
    const auto root = source_matcher();
    const auto jump = to_table(table);
    const auto enter = by_source(*root, 1, {&jump});
    const auto all = match_all(table);
    Action::Created back;
    ASSERT_EQ(Action::root_table(fdb_root, 0, back), 0);
    const auto rule = make_rule(*all, {}, {&back});
    ASSERT_EQ(rule.error, 0);
    send(1, frame);
    EXPECT_EQ(steering.drops().loop, 1U);
    Action::Created later;
    ASSERT_EQ(Action::root_table(fdb_root, 1, later), 0);
    const auto other = match_all(table, 0);
    const auto later_rule = make_rule(*other, {}, {&later});
    have_cotenant();
    send(1, frame);
    EXPECT_EQ(cotenant.taken.size(), 1U);
}

TEST_F(Pipeline, ShortFramesAreMalformed) {
    send(1, Frame(13, 0xaa));
    send(1, Frame{});
    EXPECT_EQ(steering.drops().malformed, 2U);
}

TEST_F(Pipeline, FlowsKeepTheirOrderThroughMissesAndHits) {
    Table table(fdb, 1);
    const auto root = source_matcher();
    const auto jump = to_table(table);
    const auto enter = by_source(*root, 1, {&jump});
    const auto by_port =
        make_matcher(table, 0, outer, Parameters{}.set(field::ip_version, 4).set(field::udp_dport, 0xffff));
    const auto out = to_vport(fdb, 2);
    std::vector<MadeRule> rules;
    for (unsigned port = 0; port < 8; ++port) {
        rules.push_back(
            make_rule(*by_port, Parameters{}.set(field::ip_version, 4).set(field::udp_dport, port), {&out}));
        ASSERT_EQ(rules.back().error, 0);
    }
    std::vector<Frame> sent;
    lane.online();
    for (unsigned round = 0; round < 4; ++round) {
        rte_mbuf* batch[batch_length];
        for (unsigned i = 0; i < batch_length; ++i) {
            sent.push_back(make_frame(
                {.sport = static_cast<std::uint16_t>(round * 32 + i), .dport = static_cast<std::uint16_t>(i * 5 % 8)}));
            batch[i] = packet_of(sent.back());
        }
        lane.from_vport(VportId{1}, batch, batch_length);
    }
    lane.offline();
    ASSERT_EQ(vports[2].taken.size(), sent.size());
    for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(vports[2].taken[i].frame, sent[i]) << i;
}

}  // namespace
}  // namespace ovsdr::soft::test
