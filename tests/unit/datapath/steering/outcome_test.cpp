// Rules that look at what a meter, a first hit or a tracked connection said of the packet: what the trace has for each
// outcome, what it may not stand for, and that packets out of the flow cache are coloured, counted and ordered as those
// that walk.
#include <array>

#include "datapath/steering/stateful.hpp"
#include "tracked.hpp"
#include "walk_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

using criteria::misc2;
using criteria::outer;

constexpr std::uint32_t comes_red = 1, comes_yellow = 2, comes_green = 4, comes_as_the_meter_says = 8;
constexpr std::uint8_t red = 0, yellow = 1, green = 2;

/// The byte that outcomes go into.
[[nodiscard]] Field outcome_in(unsigned index) { return {reg_c(index).bit + 24, 8}; }

/// Packets of vport 1 meet table 1 and then, in table 2 or further on, a matcher that looks at a register.
class OutcomeTest : public WalkTest {
protected:
    /// Meter 0 lets `packets` pass green and then `more` yellow; without a rate, so that is all.
    static std::shared_ptr<AsoBulk> metering(unsigned packets, unsigned more = 0, unsigned start = green) {
        auto bulk = std::make_shared<AsoBulk>(AsoKind::flow_meter, 0, nullptr);
        AsoBulk::Image image{};
        image[0] = static_cast<std::uint8_t>(0x80 | start << 4 | 3);
        image[8] = image[16] = 7;  // 128 bytes a packet; the last one ends below zero
        image[9] = static_cast<std::uint8_t>(packets != 0 ? 255 : 0);
        image[17] = static_cast<std::uint8_t>(more != 0 ? 255 : 0);
        store_be32(&image[12], (packets - 1) * 128);
        store_be32(&image[20], (more - 1) * 128);
        image[31] = 1;  // the timestamp: the buckets have been filled
        bulk->exchange(0, image, ~0ULL);
        return bulk;
    }
    Action::Created use(const std::shared_ptr<AsoBulk>& bulk, std::uint32_t flags, std::uint8_t reg = 5) {
        Action::Created action;
        EXPECT_EQ(Action::aso(fdb, bulk, 0, flags, reg, action), 0);
        return action;
    }
    void rule(MadeMatcher matcher, const Parameters& value, std::initializer_list<const Action::Created*> actions) {
        matchers.push_back(std::move(matcher));
        ASSERT_EQ(matchers.back().error, 0);
        rules.push_back(make_rule(*matchers.back(), value, actions));
        ASSERT_EQ(rules.back().error, 0);
    }
    /// What packets of a vport meet in a table.
    void of_vport(Table& table, std::initializer_list<const Action::Created*> actions, std::uint16_t vport = 1) {
        rule(make_matcher(table, 1, criteria::misc, Parameters{}.set(field::source_port, 0xffff)),
             Parameters{}.set(field::source_port, vport), actions);
    }
    void of_outcome(Table& table, unsigned reg, std::uint8_t outcome,
                    std::initializer_list<const Action::Created*> actions, std::uint8_t mask = 0xff) {
        rule(make_matcher(table, 0, misc2, Parameters{}.set(outcome_in(reg), mask)),
             Parameters{}.set(outcome_in(reg), outcome), actions);
    }
    void rest_of(Table& table, std::initializer_list<const Action::Created*> actions) {
        rule(match_all(table, 2), {}, actions);
    }
    void clear() {
        rules.clear();
        matchers.clear();
    }
    Walked walked() { return walk_from(1, frame); }

    std::uint64_t misses() { return steering.cache_use().misses; }

    const Frame frame = make_frame({});
    std::shared_ptr<CounterBulk> counters = std::make_shared<CounterBulk>(4);
    Action::Created count_0 = counting(counters, 0), count_1 = counting(counters, 1), count_2 = counting(counters, 2);
    std::vector<MadeMatcher> matchers;
    std::vector<MadeRule> rules;
};

TEST_F(OutcomeTest, SetsOfOutcomesHoldWhatComesOut) {
    for (const std::uint8_t outcome : {0x00, 0x01, 0x02, 0x03, 0x40, 0x41, 0x80, 0xc3}) {
        EXPECT_TRUE(outcomes::holds(outcome));
        EXPECT_EQ(outcomes::first_of(outcomes::of(outcome)), outcome);
    }
    for (const std::uint8_t outcome : {0x04, 0x20, 0x42 | 0x08}) EXPECT_FALSE(outcomes::holds(outcome));
    const auto possible = [](OpCode code, unsigned argument, std::uint8_t held) {
        return outcomes::possible({.code = code, .argument = static_cast<std::uint16_t>(argument)}, held);
    };
    EXPECT_EQ(possible(OpCode::first_hit, 0, 9), 3);
    EXPECT_EQ(possible(OpCode::meter, red, 2), 1) << "no meter makes a red packet better";
    EXPECT_EQ(possible(OpCode::meter, yellow, 2), 3);
    EXPECT_EQ(possible(OpCode::meter, green, 3), 7);
    EXPECT_EQ(possible(OpCode::meter, 3, 0), 7);
    EXPECT_EQ(possible(OpCode::meter, 3, 0xff), 15) << "a meter that is not valid leaves the colour";
    EXPECT_EQ(possible(OpCode::flow_meter, 0, 0x80), 7 | 1 << 8) << "one that is switched off leaves the byte";
    EXPECT_EQ(possible(OpCode::flow_meter, 0, 0x04), 0);
    EXPECT_EQ(possible(OpCode::connection, 0, 0), 1 << 0 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8);
}

TEST_F(OutcomeTest, ATraceHasTheOpsOfEachOutcome) {
    const auto meter = use(metering(1, 1), comes_green);
    of_vport(first, {&meter, &to_second});
    of_outcome(second, 5, green, {&count_0, &to_2});
    rest_of(second, {&drop});
    // Green, yellow, red: the latter two are done the same to.
    for (const char* const ops : {"meter if3:1 drop count output", "meter if4:2 count output drop",
                                  "meter if4:2 count output drop"}) {
        const Walked seen = walked();
        EXPECT_TRUE(seen.cacheable);
        EXPECT_EQ(seen.ops, ops);
    }
    EXPECT_EQ(counters->read(0).packets, 1U);
    EXPECT_EQ(steering.drops().by_rule, 2U);
    of_outcome(second, 5, yellow, {&to_3});
    EXPECT_EQ(walked().ops, "meter if2:1 output if4:2 count output drop");
    clear();
}

TEST_F(OutcomeTest, EachKindOfStateHasItsOutcomes) {
    const auto hit = use(std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr), 1);
    of_vport(first, {&hit, &to_second});
    of_outcome(second, 5, 1, {&to_3});
    rest_of(second, {&to_2});
    EXPECT_EQ(walked().ops, "hit if2:1 output output");
    EXPECT_EQ(walked().ops, "hit if1:1 output output");
    EXPECT_EQ(vports[2].taken.size(), 1U);
    EXPECT_EQ(vports[3].taken.size(), 1U);
    clear();
    const auto track = use(std::make_shared<AsoBulk>(AsoKind::connection, 0, nullptr), 1);
    of_vport(first, {&track, &to_second});
    of_outcome(second, 5, 0, {&to_2}, 0xc0);
    of_outcome(second, 5, 0x40, {&count_0, &drop}, 0xc0);
    rest_of(second, {&to_3});
    EXPECT_EQ(walked().ops, "track if5:1 output if48:2 count drop output") << "valid, invalid, trap";
    clear();
    for (const auto& [flag, ops] :
         {std::pair{comes_red, "meter drop"}, std::pair{comes_yellow, "meter if1:1 drop output"}}) {
        const auto meter = use(metering(0, 5), flag);
        of_vport(first, {&meter, &to_second});
        of_outcome(second, 5, yellow, {&to_2});
        rest_of(second, {&drop});
        EXPECT_EQ(walked().ops, ops);
        clear();
    }
    clear();
}

TEST_F(OutcomeTest, NothingIsChosenWhereAllOutcomesAreTheSame) {
    const auto meter = use(metering(5), comes_green);
    of_vport(first, {&meter, &count_0, &to_second});
    rest_of(second, {&push, &to_2});
    EXPECT_EQ(walked().ops, "meter count push output") << "nobody looks";
    of_outcome(second, 5, green, {&push, &to_2});
    EXPECT_EQ(walked().ops, "meter count push output") << "it makes no difference";
    EXPECT_TRUE(walked().cacheable);
    clear();
}

TEST_F(OutcomeTest, SeveralMetersInARowChooseOneBehindTheOther) {
    const auto one = use(metering(9), comes_green, 5), other = use(metering(9), comes_green, 5);
    const auto third_meter = use(metering(9), comes_green, 3);
    Table fourth(fdb, 4);
    const auto to_fourth = to_table(fourth);
    of_vport(first, {&one, &to_second});
    of_outcome(second, 5, green, {&other, &to_third});
    rest_of(second, {&drop});
    of_outcome(third, 5, green, {&third_meter, &to_fourth});
    rest_of(third, {&count_0, &drop});
    of_outcome(fourth, 3, green, {&to_2});
    rest_of(fourth, {&count_1, &drop});
    EXPECT_EQ(walked().ops, "meter if3:1 drop meter if3:2 count drop meter if3:2 count drop output");
    // A look at the first meter's outcome behind the second one's.
    clear();
    of_vport(first, {&third_meter, &to_second});
    rest_of(second, {&other, &to_third});
    of_outcome(third, 3, green, {&to_2});
    rest_of(third, {&to_3});
    EXPECT_EQ(walked().ops, "meter if3:2 meter output meter output");
    clear();
}

/// What the meter behind it would have to read is known.
TEST_F(OutcomeTest, AColourInTheRegisterMayDecide) {
    const auto colour = edited({set_command(0x56, 0, 8, yellow)});  // reg_c_5
    const auto copied = edited({copy_command(id::smac_15_0, 0x56, 8)});
    const auto as_register = use(metering(5, 5, 3), comes_as_the_meter_says), as_action = use(metering(5), comes_green);
    for (const auto& [edit, meter, cacheable] :
         {std::tuple{&colour, &as_register, true}, std::tuple{&copied, &as_register, false},
          std::tuple{&copied, &as_action, true}}) {
        of_vport(first, {edit, &to_second});
        rest_of(second, {meter, &to_third});
        of_outcome(third, 5, red, {&drop});
        rest_of(third, {&to_2});
        EXPECT_EQ(walked().cacheable, cacheable);
        clear();
    }
    // The outcome of a meter is what the next one begins with.
    const auto before = use(metering(5, 5), comes_green);
    of_vport(first, {&before, &to_second});
    rest_of(second, {&as_register, &to_third});
    of_outcome(third, 5, red, {&drop});
    rest_of(third, {&to_2});
    const Walked seen = walked();
    EXPECT_TRUE(seen.cacheable);
    EXPECT_EQ(seen.ops, "meter if1:4 meter if6:1 output drop if2:4 meter if6:1 output drop meter if1:1 drop output");
    clear();
}

TEST_F(OutcomeTest, DryBranchesReadOnlyWhatIsThere) {
    const auto rewritten = edited({set_command(id::dmac_15_0, 0, 16, 0x77)});
    const auto by_mac = [&](Table& table) {
        rule(make_matcher(table, 0, outer, Parameters{}.set(field::dmac_15_0, 0xffff)),
             Parameters{}.set(field::dmac_15_0, 0x77), {&to_2});
    };
    Table fourth(fdb, 4);
    const auto to_fourth = to_table(fourth);
    // Rewritten before the meter, in one rule: the frame is as each branch has it, but nobody has read it again.
    const auto two = use(metering(2), comes_green);
    of_vport(first, {&rewritten, &two, &to_third}, wire);
    of_outcome(third, 5, green, {&count_0, &to_fourth});
    rest_of(third, {&to_fourth});
    by_mac(fourth);
    for (unsigned i = 0; i < 3; ++i) {
        const Walked seen = walk_from(wire, frame);
        EXPECT_TRUE(seen.cacheable) << i;
        EXPECT_EQ(seen.ops, i < 2 ? "edit meter if3:1 output count output" : "edit meter if4:2 count output output");
    }
    EXPECT_EQ(vports[2].taken.size(), 3U);
    clear();
    // Behind it: only the packet's own branch can be read.
    const auto one = use(metering(1), comes_green);
    of_vport(first, {&one, &to_second});
    of_outcome(second, 5, green, {&rewritten, &to_third});
    rest_of(second, {&drop});
    by_mac(third);
    Walked seen = walked();
    EXPECT_TRUE(seen.cacheable);
    EXPECT_EQ(seen.ops, "meter if3:1 drop edit output");
    EXPECT_FALSE(walked().cacheable) << "red: what becomes of green ones cannot be told";
    EXPECT_EQ(steering.drops().by_rule, 1U);
    clear();
    // Nobody looks: no branch is needed.
    of_vport(first, {&one, &to_second});
    rest_of(second, {&rewritten, &to_third});
    by_mac(third);
    seen = walked();
    EXPECT_TRUE(seen.cacheable);
    EXPECT_EQ(seen.ops, "meter edit output");
    clear();
}

TEST_F(OutcomeTest, OtherOutcomesCostThePacketNoHop) {
    const auto meter = use(metering(200), comes_green);
    Action::Created back;
    ASSERT_EQ(Action::root_table(fdb_root, 0, back), 0);
    Table fourth(fdb, 4);
    const auto to_fourth = to_table(fourth);
    of_vport(first, {&to_second});
    rest_of(second, {&meter, &to_third});
    of_outcome(third, 5, green, {&to_fourth});
    rest_of(third, {&back});  // round and round
    of_vport(fourth, {&to_2});
    walked();
    EXPECT_EQ(vports[2].taken.size(), 1U);
    EXPECT_EQ(steering.drops().loop, 0U);
    // A packet's own loop ends as ever.
    clear();
    of_vport(first, {&to_second});
    rest_of(second, {&meter, &to_third});
    of_outcome(third, 5, green, {&count_1, &back});
    rest_of(third, {&back});
    walked();
    EXPECT_EQ(steering.drops().loop, 1U);
    EXPECT_EQ(counters->read(1).packets, 32U);
    clear();
}

/// Three meters, and five tables behind each: 39 ends, and more hops to them than a walk takes on paper.
TEST_F(OutcomeTest, NotEachEndOfALongWayIsLookedFor) {
    constexpr unsigned meter_count = 3, between = 5;
    std::vector<std::unique_ptr<Table>> tables;
    std::vector<Action::Created> meters, on;
    for (unsigned i = 0; i < meter_count * between; ++i) {
        tables.push_back(std::make_unique<Table>(fdb, 2 + i));
        on.push_back(to_table(*tables.back()));
        if (i % between == 0) meters.push_back(use(metering(5), comes_green));
    }
    of_vport(first, {&meters[0], &on[0]});
    for (unsigned i = 0; i + 1 < tables.size(); ++i) {
        const bool meters_next = (i + 1) % between == 0;
        if (i % between == 0) of_outcome(*tables[i], 5, red, {&on[i + 1]});
        if (meters_next) {
            rest_of(*tables[i], {&meters[(i + 1) / between], &on[i + 1]});
        } else {
            rest_of(*tables[i], {&on[i + 1]});
        }
    }
    rest_of(*tables.back(), {&to_2});
    EXPECT_FALSE(walked().cacheable);
    EXPECT_EQ(vports[2].taken.size(), 1U);
    clear();
}

TEST_F(OutcomeTest, ManyMetersInARowDoNotDoubleTheWay) {
    constexpr unsigned meter_count = 25;
    std::vector<std::unique_ptr<Table>> tables;
    std::vector<Action::Created> meters, on;
    for (unsigned i = 0; i < meter_count; ++i) {
        tables.push_back(std::make_unique<Table>(fdb, 2 + i));
        on.push_back(to_table(*tables.back()));
        meters.push_back(use(metering(5), comes_green));
    }
    of_vport(first, {&meters[0], &on[0]});
    for (unsigned i = 0; i + 1 < meter_count; ++i) rest_of(*tables[i], {&meters[i + 1], &on[i + 1]});
    rest_of(*tables.back(), {&to_2});
    EXPECT_LT(walked().explored, 500U);
    EXPECT_EQ(vports[2].taken.size(), 1U);
    clear();
}

/// A copy whose packets are red runs in circles and uses up the hops of the packet, which others do not.
TEST_F(OutcomeTest, HopsThatOneOutcomeUsesUpAreNoneOfTheOthers) {
    const auto bulk = metering(0, 1);
    const auto meter = use(bulk, comes_yellow);
    Table fourth(fdb, 4), circle(fdb, 5);
    const auto to_fourth = to_table(fourth), to_circle = to_table(circle);
    const auto both = array_of(fdb, {&to_second, &to_third});
    Action::Created back;
    ASSERT_EQ(Action::root_table(fdb_root, 3, back), 0);
    rule(match_all(fdb_root, 3), {}, {&to_circle});
    rule(match_all(circle), {}, {&back});
    of_vport(first, {&both});
    rest_of(second, {&meter, &to_fourth});
    rest_of(third, {&to_3});
    of_outcome(fourth, 5, yellow, {&to_2});
    rest_of(fourth, {&to_circle});
    AsoBulk::Image filled = bulk->read(0), empty = filled;
    empty[9] = empty[17] = 0;
    bulk->exchange(0, empty, ~0ULL);
    send(1, frame);
    EXPECT_EQ(vports[3].taken.size(), 0U) << "of the red packet";
    bulk->exchange(0, filled, ~0ULL);
    send(1, frame);
    EXPECT_EQ(vports[2].taken.size(), 1U);
    EXPECT_EQ(vports[3].taken.size(), 1U);
    clear();
}

TEST_F(OutcomeTest, MeteredPacketsAreColouredAndCountedOutOfTheCache) {
    const auto bulk = metering(40, 7);
    const auto meter = use(bulk, comes_green);
    of_vport(first, {&meter, &count_0, &to_second});
    of_outcome(second, 5, green, {&count_1, &to_2});
    of_outcome(second, 5, yellow, {&to_3});
    rest_of(second, {&count_2, &drop});
    send_batch(1, std::vector(30, frame));
    send_batch(1, std::vector(30, frame));
    send(1, frame, 10);
    EXPECT_EQ(misses(), 1U);
    EXPECT_EQ(vports[2].taken.size(), 40U);
    EXPECT_EQ(vports[3].taken.size(), 7U);
    EXPECT_EQ(steering.drops().by_rule, 23U);
    EXPECT_EQ(counters->read(0).packets, 70U);
    EXPECT_EQ(counters->read(1).packets, 40U);
    EXPECT_EQ(counters->read(2).packets, 23U);
    EXPECT_EQ(counters->read(2).bytes, 23 * frame.size());
    clear();
}

/// Verdicts that take turns within a batch, and packets that leave by one vport, rewritten by their verdict.
TEST_F(OutcomeTest, PacketsKeepTheirOrderWhateverComesOut) {
    const auto bulk = std::make_shared<AsoBulk>(AsoKind::connection, 0, nullptr);
    tracked::Object object = tracked::after_syn_ack();
    object.set(tracked::state, 1).set(tracked::original_liberal, 1);
    bulk->exchange(0, object.image, ~0ULL);
    const auto track = use(bulk, 1);
    const auto good = edited({set_command(id::dmac_15_0, 0, 16, 0x600d)});
    const auto bad = edited({set_command(id::dmac_15_0, 0, 16, 0xbad0)});
    of_vport(first, {&track, &to_second});
    of_outcome(second, 5, tracked::bad, {&bad, &to_2});
    rest_of(second, {&good, &to_2});
    std::vector<Frame> sent;
    for (unsigned i = 0; i < 32; ++i) {
        const bool is_bad = (i * i / 3) % 2 == 1;
        const auto flags = static_cast<std::uint16_t>(is_bad ? tracked::syn | tracked::fin : tracked::ack);
        sent.push_back(tracked::segment({.seq = 1001 + i, .acked = 5001, .flags = flags}));
    }
    for (unsigned round = 0; round < 2; ++round) {
        vports[2].taken.clear();
        send_batch(1, sent);
        ASSERT_EQ(vports[2].taken.size(), sent.size());
        for (unsigned i = 0; i < sent.size(); ++i) {
            const Frame& got = vports[2].taken[i].frame;
            EXPECT_EQ(load_be32(&got[38]), 1001 + i);
            EXPECT_EQ(load_be16(&got[4]), (i * i / 3) % 2 == 1 ? 0xbad0 : 0x600d) << i;
        }
    }
    EXPECT_EQ(misses(), 1U);
    clear();
}

TEST_F(OutcomeTest, APacketIsThroughBeforeTheNextOneMeetsTheSameMeter) {
    const auto bulk = metering(10);
    const auto once = use(bulk, comes_green), again = use(bulk, comes_green);
    of_vport(first, {&once, &to_second});
    of_outcome(second, 5, green, {&again, &to_third});
    rest_of(second, {&count_0, &drop});
    of_outcome(third, 5, green, {&to_2});
    rest_of(third, {&count_1, &drop});
    send_batch(1, std::vector(20, frame));
    EXPECT_EQ(misses(), 1U);
    EXPECT_EQ(vports[2].taken.size(), 5U);
    EXPECT_EQ(counters->read(0).packets, 15U);
    EXPECT_EQ(counters->read(1).packets, 0U);
    // A copy and its original that meet it.
    clear();
    const auto shared = metering(10);
    const auto of_copy = use(shared, comes_green), of_original = use(shared, comes_green);
    const auto both = array_of(fdb, {&to_second, &to_third});
    Table fourth(fdb, 4), fifth(fdb, 5);
    const auto to_fourth = to_table(fourth), to_fifth = to_table(fifth);
    of_vport(first, {&both});
    rest_of(second, {&of_copy, &to_fourth});
    rest_of(third, {&of_original, &to_fifth});
    of_outcome(fourth, 5, green, {&to_3});
    rest_of(fourth, {&drop});
    of_outcome(fifth, 5, green, {&to_2});
    rest_of(fifth, {&drop});
    vports[2].taken.clear();
    send_batch(1, std::vector(20, frame));
    EXPECT_EQ(misses(), 2U);
    EXPECT_EQ(vports[2].taken.size(), 5U);
    EXPECT_EQ(vports[3].taken.size(), 5U);
    clear();
}

TEST_F(OutcomeTest, ChangesOfAMeterAreMetByCachedPackets) {
    const auto bulk = metering(5);
    const auto meter = use(bulk, comes_as_the_meter_says);
    const auto yellow_before = edited({set_command(0x56, 0, 8, yellow)});
    of_vport(first, {&yellow_before, &to_second});
    rest_of(second, {&meter, &to_third});
    of_outcome(third, 5, green, {&to_2});
    of_outcome(third, 5, yellow, {&to_3});
    rest_of(third, {&count_0, &drop});
    send(1, frame, 2);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    bulk->exchange(0, metering(9, 4, 3)->read(0), ~0ULL);  // from now on the register says what packets come in with
    send(1, frame, 6);
    EXPECT_EQ(vports[2].taken.size(), 2U);
    EXPECT_EQ(vports[3].taken.size(), 4U);
    EXPECT_EQ(counters->read(0).packets, 2U);
    EXPECT_EQ(misses(), 1U);
    bulk->exchange(0, {}, ~0ULL);  // not valid, and red
    send(1, frame, 3);
    EXPECT_EQ(counters->read(0).packets, 5U);
    EXPECT_EQ(misses(), 1U);
    clear();
}

TEST_F(OutcomeTest, ALegacyMeterIsSwitchedOnAndOffUnderCachedPackets) {
    const auto image = metering(10, 0)->read(0);
    const auto left = edited({set_command(0x56, 0, 8, 0x40)});
    Action::Created meter;
    ASSERT_EQ(Action::flow_meter(third, {.active = false, .reg_c = 5, .parameters = {image.data(), 32}}, meter), 0);
    of_vport(first, {&left, &to_second});
    rest_of(second, {&meter});
    of_outcome(third, 5, green, {&to_2});
    of_outcome(third, 5, 0x40, {&to_3});
    rest_of(third, {&count_0, &drop});
    send(1, frame, 3);
    EXPECT_EQ(vports[3].taken.size(), 3U) << "the register stays as it was";
    ASSERT_EQ(meter->modify_flow_meter({.active = true, .reg_c = 5, .parameters = {}}, 1), 0);
    send(1, frame, 12);
    EXPECT_EQ(vports[2].taken.size(), 10U);
    EXPECT_EQ(counters->read(0).packets, 2U);
    ASSERT_EQ(meter->modify_flow_meter({.active = false, .reg_c = 5, .parameters = {}}, 1), 0);
    send(1, frame, 3);
    EXPECT_EQ(vports[3].taken.size(), 6U);
    EXPECT_EQ(misses(), 1U);
    clear();
}

/// The rules for the outcomes that no packet has had yet, changed.
TEST_F(OutcomeTest, RulesThatOnlyDryBranchesMetCountForTheCache) {
    const auto rewritten = edited({set_command(id::dmac_15_0, 0, 16, 0x77)});
    const auto meter = use(metering(3), comes_green);
    of_vport(first, {&rewritten, &to_second});
    rest_of(second, {&meter, &to_third});
    of_outcome(third, 5, green, {&to_2});
    const auto exceeding = make_matcher(third, 1, every, Parameters{}.set(field::dmac_15_0, 0xffff));
    const auto value = Parameters{}.set(field::dmac_15_0, 0x77);  // not what the packet came with
    auto rule_of_red = make_rule(*exceeding, value, {&drop});
    ASSERT_EQ(rule_of_red.error, 0);
    send(1, frame, 2);
    EXPECT_EQ(misses(), 1U);
    rule_of_red.rule.reset();
    const auto instead = make_rule(*exceeding, value, {&to_3});
    send(1, frame, 3);
    EXPECT_EQ(vports[2].taken.size(), 3U);
    EXPECT_EQ(vports[3].taken.size(), 2U);
    EXPECT_EQ(misses(), 2U);
    clear();
}

/// Samples that reach the manager and are metered there, while the originals go on.
TEST_F(OutcomeTest, SampledCopiesAreMeteredAlone) {
    const auto bulk = metering(10);
    Action::Created meter, sampler;
    ASSERT_EQ(Action::aso(rx, bulk, 0, comes_green, 5, meter), 0);
    const std::array<Action*, 1> sampled{miss.get()};
    ASSERT_EQ(Action::sampler({.ratio = 3, .next = &second, .actions = sampled, .restore = 0}, sampler), 0);
    of_vport(first, {&sampler});
    rest_of(second, {&count_0, &to_2});
    rest_of(rx_first, {&meter, &to_rx_second});
    of_outcome(rx_second, 5, green, {&tag, &to_queue});
    rest_of(rx_second, {&count_1, &drop});
    for (unsigned i = 0; i < 10; ++i) send_batch(1, std::vector(30, frame));
    EXPECT_EQ(misses(), 1U);
    EXPECT_EQ(vports[2].taken.size(), 300U);
    EXPECT_EQ(counters->read(0).packets, 300U);
    EXPECT_EQ(queue.taken.size(), 10U);
    EXPECT_GT(counters->read(1).packets, 40U);
    EXPECT_EQ(steering.drops().by_rule, counters->read(1).packets);
    clear();
}

}  // namespace
}  // namespace ovsdr::soft::test
