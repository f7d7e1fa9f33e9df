// First hits, meters and samplers in the tables: what they write into registers, where packets go, and what stays exact
// when the flow cache answers.
#include <cerrno>
#include <cmath>

#include "datapath/steering/steering_impl.hpp"
#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

using criteria::misc2;

constexpr std::uint64_t clock_start = 1'000'000'000'000;

/// Everything from every vport to table 1, and table 2 beyond it.
class Stateful : public SteeringTest {
protected:
    explicit Stateful(const Profile& profile = connectx_6dx) : SteeringTest(profile) {
        attach({1, 2, 3, 0xffff});
        stop_clock(clock_start);
    }

    void stop_clock(std::uint64_t at) { steering.impl().stopped_clock = at; }
    void advance(std::uint64_t ns) { steering.impl().stopped_clock += ns; }

    Action::Created aso(const std::shared_ptr<AsoBulk>& bulk, std::uint32_t offset, std::uint32_t flags,
                        std::uint8_t reg) {
        Action::Created action;
        EXPECT_EQ(Action::aso(fdb, bulk, offset, flags, reg, action), 0);
        return action;
    }
    /// A bulk of one object whose meter 0 lets `packets` pass and then refills one per `ns_per_packet`, if that is not
    /// 0.
    std::shared_ptr<AsoBulk> metering(unsigned packets, unsigned start = 2) {
        auto bulk = std::make_shared<AsoBulk>(AsoKind::flow_meter, 0, nullptr);
        AsoBulk::Image image{};
        image[0] = static_cast<std::uint8_t>(0x80 | start << 4 | 3);
        image[8] = 7;  // 128 bytes a packet; one more ends below zero
        image[9] = static_cast<std::uint8_t>(packets - 1);
        image[10] = 10;  // 10^9 / 2^10 bytes per second: a packet per 131072 ns
        image[11] = 1;
        bulk->exchange(0, image, ~0ULL);
        return bulk;
    }
    /// In table 2: the register's low byte decides; red 0 -> drop, green 2 -> vport 2, all else -> vport 3.
    void sort_by_register(unsigned index) {
        colours = make_matcher(second, 0, misc2, Parameters{}.set(reg_c(index), 0xff));
        for (const auto& [value, action] : {std::pair{0U, &drop}, std::pair{2U, &to_2}}) {
            sorted.push_back(make_rule(*colours, Parameters{}.set(reg_c(index), value), {action}));
        }
        rest = match_all(second, 1);
        sorted.push_back(make_rule(*rest, {}, {&to_3}));
        for (const auto& rule : sorted) ASSERT_EQ(rule.error, 0);
    }

    const Frame frame = make_frame({});
    Domain fdb{steering, DomainType::fdb, nullptr}, rx{steering, DomainType::nic_rx, nullptr};
    Table root{fdb, 0}, first{fdb, 1}, second{fdb, 2};
    Action::Created drop = Action::drop(), miss = Action::default_miss();
    Action::Created to_first = to_table(first), to_second = to_table(second);
    Action::Created to_2 = to_vport(fdb, 2), to_3 = to_vport(fdb, 3);
    MadeMatcher all_root = match_all(root), all_first = match_all(first), colours, rest;
    MadeRule enter = make_rule(*all_root, {}, {&to_first});
    std::vector<MadeRule> sorted;
};

class OldStateful : public Stateful {
protected:
    OldStateful() : Stateful(connectx_5) {}
};

TEST_F(Stateful, TheFirstHitTellsTheFirstPacket) {
    const auto bulk = std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr);
    const auto hit = aso(bulk, 300, 1, 3);
    const auto rule = make_rule(*all_first, {}, {&hit, &to_second});
    ASSERT_EQ(rule.error, 0);
    const auto by_bit = make_matcher(second, 0, misc2, Parameters{}.set(reg_c(3), 0xff));
    const auto seen = make_rule(*by_bit, Parameters{}.set(reg_c(3), 1), {&to_2});
    const auto fresh = make_rule(*by_bit, {}, {&to_3});
    send(1, frame, 5);
    EXPECT_EQ(vports[3].taken.size(), 1U);
    EXPECT_EQ(vports[2].taken.size(), 4U);
    EXPECT_TRUE(bulk->hit(300, false));
    EXPECT_FALSE(bulk->hit(299, false));
}

TEST_F(Stateful, AFirstHitWithoutSetOnlyCopies) {
    const auto bulk = std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr);
    const auto hit = aso(bulk, 0, 0, 1);
    const auto rule = make_rule(*all_first, {}, {&hit, &to_2});
    send(1, frame, 40);
    EXPECT_EQ(vports[2].taken.size(), 40U);
    EXPECT_FALSE(bulk->hit(0, false));
}

TEST_F(Stateful, AFirstHitIsSetByPacketsOfTheFlowCacheToo) {
    const auto bulk = std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr);
    const auto hit = aso(bulk, 0, 1, 1);
    const auto rule = make_rule(*all_first, {}, {&hit, &to_2});
    send(1, frame);
    bulk->exchange(0, {}, ~0ULL);
    send(1, frame);
    EXPECT_TRUE(bulk->hit(0, false));
}

TEST_F(Stateful, AMeterColoursIntoTheRegister) {
    for (const unsigned reg : {1U, 3U, 5U}) {
        vports[2].taken.clear();
        const auto bulk = metering(10);
        const auto meter = aso(bulk, 0, 8, static_cast<std::uint8_t>(reg));
        const auto rule = make_rule(*all_first, {}, {&meter, &to_second});
        ASSERT_EQ(rule.error, 0);
        sort_by_register(reg);
        const std::uint64_t dropped = steering.drops().by_rule;
        send(1, frame, 25);
        EXPECT_EQ(vports[2].taken.size(), 10U) << "reg_c_" << reg;
        EXPECT_EQ(steering.drops().by_rule, dropped + 15);
        advance(131072 * 3);
        send(0xffff, frame, 5);
        EXPECT_EQ(vports[2].taken.size(), 13U);
        sorted.clear();
        colours = {};
        rest = {};
    }
}

TEST_F(Stateful, AMeterLeavesTheUpperBytesOfItsRegister) {
    const auto bulk = metering(10);
    const auto meter = aso(bulk, 0, 8, 5);
    const auto write = modifying(fdb, {set_command(0x56, 0, 32, 0xabcdef77)});
    const auto written = make_rule(*all_first, {}, {&write, &to_second});
    Table third(fdb, 3);
    const auto to_third = to_table(third);
    const auto all = match_all(second), exact = make_matcher(third, 0, misc2, Parameters{}.set(reg_c(5), 0xffffffff));
    const auto metered = make_rule(*all, {}, {&meter, &to_third});
    const auto taken = make_rule(*exact, Parameters{}.set(reg_c(5), 0xabcdef02), {&to_2});
    send(1, frame);
    EXPECT_EQ(vports[2].taken.size(), 1U);
}

TEST_F(Stateful, CachedPacketsPayToo) {
    const auto bulk = metering(100);
    const auto meter = aso(bulk, 0, 8, 3);
    const auto rule = make_rule(*all_first, {}, {&meter, &to_2});  // nobody looks at the colour
    send(1, frame, 40);
    EXPECT_EQ(vports[2].taken.size(), 40U);
    const auto image = bulk->read(0);
    const auto tokens = static_cast<std::int32_t>(load_be32(&image[12]));
    EXPECT_EQ(tokens, 99 * 128 - 40 * 128);
}

TEST_F(Stateful, TheActionsColourComesBeforeTheMeters) {
    for (const auto& [flag, expected] : {std::pair{1U, 0U}, std::pair{2U, 0U}, std::pair{4U, 10U}, std::pair{8U, 0U}}) {
        vports[2].taken.clear();
        const auto bulk = metering(10, 0);  // the meter says red
        const auto meter = aso(bulk, 0, flag, 3);
        const auto rule = make_rule(*all_first, {}, {&meter, &to_second});
        sort_by_register(3);
        send(1, frame, 12);
        EXPECT_EQ(vports[2].taken.size(), expected) << "flag " << flag;
        const auto colour = static_cast<unsigned>(meter->more().aso_use.colour);
        EXPECT_EQ(colour, flag == 1 ? 0U : flag == 2 ? 1U : flag == 4 ? 2U : 3U);
        sorted.clear();
        colours = {};
        rest = {};
    }
}

TEST_F(Stateful, UndefinedTwiceTakesTheColourOfTheRegister) {
    const auto bulk = metering(10, 3);
    const auto meter = aso(bulk, 0, 8, 3);
    Table third(fdb, 3);
    const auto to_third = to_table(third);
    const auto green = modifying(fdb, {set_command(0x54, 0, 8, 2)});
    const auto coloured = make_rule(*all_first, {}, {&green, &to_second});
    const auto all = match_all(second);
    const auto metered = make_rule(*all, {}, {&meter, &to_third});
    const auto by_colour = make_matcher(third, 0, misc2, Parameters{}.set(reg_c(3), 0xff));
    const auto out = make_rule(*by_colour, Parameters{}.set(reg_c(3), 2), {&to_2});
    send(1, frame, 12);
    EXPECT_EQ(vports[2].taken.size(), 10U);
}

TEST_F(Stateful, OneMeterServesSeveralRulesAndOneObjectTwoMeters) {
    const auto bulk = metering(10);
    AsoBulk::Image both = bulk->read(0);
    std::copy_n(both.begin(), 32, both.begin() + 32);
    both[32 + 9] = 4;
    bulk->exchange(0, both, 0xffffffff);
    const auto one = aso(bulk, 0, 8, 3), other = aso(bulk, 1, 8, 3);
    const auto by_source = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
    const auto a = make_rule(*by_source, Parameters{}.set(field::source_port, 1), {&one, &to_second});
    const auto b = make_rule(*by_source, Parameters{}.set(field::source_port, 2), {&one, &to_second});
    const auto c = make_rule(*by_source, Parameters{}.set(field::source_port, 3), {&other, &to_second});
    sort_by_register(3);
    send(1, frame, 7);
    send(2, frame, 7);
    EXPECT_EQ(vports[2].taken.size(), 10U);
    send(3, frame, 9);
    EXPECT_EQ(vports[2].taken.size(), 15U);
}

TEST_F(Stateful, ModifiedAsoActionsCountForNewRulesOnly) {
    const auto bulk = std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr);
    const auto hit = aso(bulk, 1, 1, 3);
    const auto by_source = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
    const auto old = make_rule(*by_source, Parameters{}.set(field::source_port, 1), {&hit, &to_2});
    ASSERT_EQ(hit->modify_aso(2, 1, 3), 0);
    const auto now = make_rule(*by_source, Parameters{}.set(field::source_port, 2), {&hit, &to_3});
    send(1, frame);
    EXPECT_TRUE(bulk->hit(1, false));
    EXPECT_FALSE(bulk->hit(2, false));
    send(2, frame);
    EXPECT_TRUE(bulk->hit(2, false));
}

TEST_F(Stateful, WhereThePacketIsSentTheMeterSeesTheTagThatIsPopped) {
    const auto bulk = metering(200);
    AsoBulk::Image image = bulk->read(0);
    image[0] = 0xa1;  // L2 bytes
    bulk->exchange(0, image, ~0ULL);
    const auto meter = aso(bulk, 0, 8, 3);
    const auto write = modifying(fdb, {set_command(0x54, 8, 8, 1)});
    const auto push = pushing(0x81000005);
    // Wire: push, then meter; vports: meter, then push.
    const auto by_source = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
    const auto from_wire = make_rule(*by_source, Parameters{}.set(field::source_port, 0xffff), {&push, &meter, &to_2});
    const auto from_vport = make_rule(*by_source, Parameters{}.set(field::source_port, 1), {&meter, &push, &to_2});
    ASSERT_EQ(from_wire.error, 0);
    ASSERT_EQ(from_vport.error, 0);
    const auto tokens = [&bulk] { return static_cast<std::int32_t>(load_be32(&bulk->read(0)[12])); };
    send(1, frame);
    EXPECT_EQ(tokens(), 199 * 128 - static_cast<int>(frame.size()));
    send(0xffff, frame);
    EXPECT_EQ(tokens(), 199 * 128 - static_cast<int>(2 * frame.size() + 4));
}

TEST_F(Stateful, ALegacyMeterGoesOnInItsTable) {
    const auto image = metering(10)->read(0);
    Action::Created meter;
    ASSERT_EQ(Action::flow_meter(second, {.active = true, .reg_c = 2, .parameters = {image.data(), 20}}, meter), 0);
    const auto rule = make_rule(*all_first, {}, {&meter});
    ASSERT_EQ(rule.error, 0);
    sort_by_register(2);
    send(1, frame, 15);
    EXPECT_EQ(vports[2].taken.size(), 10U);
    EXPECT_EQ(steering.drops().by_rule, 5U);
}

TEST_F(Stateful, ALegacyMeterIsModifiedFieldByField) {
    auto image = metering(10)->read(0);
    Action::Created meter;
    ASSERT_EQ(Action::flow_meter(second, {.active = false, .reg_c = 2, .parameters = {image.data(), 20}}, meter), 0);
    const auto rule = make_rule(*all_first, {}, {&meter});
    sort_by_register(2);
    send(1, frame, 15);
    EXPECT_EQ(vports[2].taken.size(), 0U) << "inactive: its register stays 0, which is red";
    EXPECT_EQ(meter->modify_flow_meter({.active = true, .reg_c = 2, .parameters = {}}, 1), 0);
    send(1, frame, 15);
    EXPECT_EQ(vports[2].taken.size(), 10U);
    image[9] = 2;
    image[11] = 255;
    // CBS only.
    EXPECT_EQ(meter->modify_flow_meter({.active = true, .reg_c = 2, .parameters = {image.data(), 20}}, 2), 0);
    advance(131072ULL * 100);
    send(1, frame, 15);
    EXPECT_EQ(vports[2].taken.size(), 13U);
    advance(131072);
    send(1, frame, 15);
    EXPECT_EQ(vports[2].taken.size(), 14U) << "the rate is what it was";
}

TEST_F(Stateful, RefusesMetersAsTheDeviceDoes) {
    Action::Created action;
    const std::vector<std::uint8_t> parameters(33);
    EXPECT_EQ(Action::flow_meter(root, {.active = true, .reg_c = 2, .parameters = {}}, action), EOPNOTSUPP);
    EXPECT_EQ(Action::flow_meter(second, {.active = true, .reg_c = 2, .parameters = parameters}, action), EINVAL);
    EXPECT_EQ(Action::flow_meter(second, {.active = true, .reg_c = 1, .parameters = {}}, action), EINVAL);
    EXPECT_EQ(Action::flow_meter(second, {.active = true, .reg_c = 8, .parameters = {}}, action), EINVAL);
    EXPECT_EQ(drop->modify_flow_meter({}, 1), EINVAL);
    ASSERT_EQ(Action::flow_meter(first, {.active = true, .reg_c = 2, .parameters = {}}, action), 0);
    EXPECT_EQ(action->modify_flow_meter({.active = true, .reg_c = 2, .parameters = {}}, 32), EINVAL);
    EXPECT_EQ(make_rule(*all_first, {}, {&action}).error, EINVAL) << "its own level";
    EXPECT_EQ(make_rule(*match_all(second), {}, {&action}).error, EINVAL) << "a lower level";
    EXPECT_EQ(make_rule(*all_root, Parameters{}, {&action}).error, ENOTSUP) << "not in a root table";
    Table rx_table(rx, 1);
    EXPECT_EQ(make_rule(*match_all(rx_table), {}, {&action}).error, EINVAL) << "another domain";
    EXPECT_TRUE(first.busy());
}

TEST_F(Stateful, RefusesAsoActionsAsLibmlx5Does) {
    const auto hits = std::make_shared<AsoBulk>(AsoKind::first_hit, 1, nullptr);
    const auto meters = std::make_shared<AsoBulk>(AsoKind::flow_meter, 1, nullptr);
    Action::Created action;
    const auto error = [&](const std::shared_ptr<AsoBulk>& bulk, std::uint32_t offset, std::uint32_t flags,
                           std::uint8_t reg) { return Action::aso(fdb, bulk, offset, flags, reg, action); };
    for (const std::uint8_t reg : {0, 2, 4, 6, 7}) {
        EXPECT_EQ(error(hits, 0, 1, reg), EINVAL) << int{reg};
        EXPECT_EQ(error(meters, 0, 4, reg), EINVAL) << int{reg};
    }
    EXPECT_EQ(error(hits, 1023, 0, 5), 0);
    EXPECT_EQ(error(hits, 1024, 0, 5), EINVAL);
    EXPECT_EQ(error(hits, 0, 2, 5), EINVAL);
    EXPECT_EQ(error(meters, 3, 8, 1), 0);
    EXPECT_EQ(error(meters, 4, 8, 1), EINVAL);
    for (const std::uint32_t flags : {0, 3, 5, 9, 16}) EXPECT_EQ(error(meters, 0, flags, 1), EINVAL) << flags;
    EXPECT_EQ(error(nullptr, 0, 1, 1), EOPNOTSUPP);
    EXPECT_EQ(drop->modify_aso(0, 1, 1), EINVAL);
    ASSERT_EQ(error(meters, 0, 4, 3), 0);
    EXPECT_EQ(action->modify_aso(4, 4, 3), EINVAL);
    EXPECT_EQ(make_rule(*all_root, {}, {&action, &to_first}).error, ENOTSUP);
    int foreign = 0;
    ASSERT_EQ(error(std::make_shared<AsoBulk>(AsoKind::first_hit, 0, &foreign), 0, 1, 3), 0);
    EXPECT_EQ(make_rule(*all_first, {}, {&action, &to_2}).error, EINVAL) << "an object of another context";
}

TEST_F(OldStateful, ConnectX5HasNoAso) {
    Action::Created action;
    const auto bulk = std::make_shared<AsoBulk>(AsoKind::first_hit, 0, nullptr);
    EXPECT_EQ(Action::aso(fdb, bulk, 0, 1, 3, action), EOPNOTSUPP);
}

/// Samples go to vport 3 (FDB), originals to table 2 and on to vport 2.
class Sampling : public Stateful {
protected:
    explicit Sampling(const Profile& profile = connectx_6dx) : Stateful(profile) {}

    int try_sampler(std::uint32_t ratio, Table& next, std::initializer_list<const Action::Created*> list,
                    Action::Created& action, std::uint64_t restore = 0) {
        std::vector<Action*> actions;
        for (const Action::Created* one : list) actions.push_back(one->get());
        return Action::sampler(
            {.ratio = ratio, .next = &next, .actions = actions, .restore = __builtin_bswap64(restore)}, action);
    }
    Action::Created sampler(std::uint32_t ratio, std::initializer_list<const Action::Created*> list,
                            std::uint64_t restore = 0) {
        Action::Created action;
        EXPECT_EQ(try_sampler(ratio, second, list, action, restore), 0);
        return action;
    }
};

class OldSampling : public Sampling {
protected:
    OldSampling() : Sampling(connectx_5) {}
};

TEST_F(Sampling, SamplesOneInNAndForwardsAll) {
    for (const std::uint32_t ratio : {1U, 2U, 7U, 100U, 1000U}) {
        vports[2].taken.clear();
        vports[3].taken.clear();
        const auto sample = sampler(ratio, {&to_3});
        const auto bulk = std::make_shared<CounterBulk>(2);
        const auto count = counting(bulk, 0), count_next = counting(bulk, 1);
        const auto rule = make_rule(*all_first, {}, {&count, &sample});
        ASSERT_EQ(rule.error, 0);
        const auto all = match_all(second);
        const auto onward = make_rule(*all, {}, {&count_next, &to_2});
        constexpr unsigned packets = 20000;
        for (unsigned i = 0; i < packets / 100; ++i) send(1, frame, 100);
        EXPECT_EQ(vports[2].taken.size(), packets);
        EXPECT_EQ(bulk->read(0).packets, packets);
        EXPECT_EQ(bulk->read(1).packets, packets);
        // Six standard deviations of the binomial distribution.
        const double mean = static_cast<double>(packets) / ratio;
        const double bound = 6 * std::sqrt(mean * (1 - 1.0 / ratio));
        EXPECT_NEAR(static_cast<double>(vports[3].taken.size()), mean, bound) << "1 in " << ratio;
        for (const auto& taken : vports[3].taken) ASSERT_EQ(taken.frame, frame);
        for (const auto& taken : vports[2].taken) ASSERT_EQ(taken.frame, frame);
    }
}

TEST_F(Sampling, SamplesCarryThePacketBeforeLaterRewriting) {
    const auto sample = sampler(1, {&to_3});
    const auto bulk = std::make_shared<CounterBulk>(1);
    const auto before = modifying(fdb, {set_command(id::dmac_15_0, 0, 16, 0x1111)});
    const auto after = modifying(fdb, {set_command(id::smac_15_0, 0, 16, 0x2222)});
    const auto rule = make_rule(*all_first, {}, {&before, &sample});
    const auto all = match_all(second);
    const auto onward = make_rule(*all, {}, {&after, &to_2});
    for (unsigned i = 0; i < 3; ++i) send(1, frame);
    Frame sampled = frame;
    sampled[4] = sampled[5] = 0x11;
    Frame original = sampled;
    original[10] = original[11] = 0x22;
    ASSERT_EQ(vports[3].taken.size(), 3U);
    ASSERT_EQ(vports[2].taken.size(), 3U);
    for (unsigned i = 0; i < 3; ++i) {
        EXPECT_EQ(vports[3].taken[i].frame, sampled);
        EXPECT_EQ(vports[2].taken[i].frame, original);
    }
}

TEST_F(Sampling, MissedSamplesReachTheManagerWithTheirRegister) {
    Collector queue, cotenant;
    steering.set_cotenant_sink(cotenant.sink());
    const auto to_queue = to_sink(queue.sink());
    const auto tag = Action::tag(99);
    const auto sample = sampler(4, {&miss});
    const auto mark = modifying(fdb, {set_command(id::reg_c_1, 0, 32, 7)});
    const auto rule = make_rule(*all_first, {}, {&mark, &sample});
    const auto all = match_all(second);
    const auto onward = make_rule(*all, {}, {&to_2});
    Table rx_root(rx, 0);
    const auto by_register = make_matcher(rx_root, 0, misc2, Parameters{}.set(reg_c(1), 0xffffffff));
    const auto taken = make_rule(*by_register, Parameters{}.set(reg_c(1), 7), {&tag, &to_queue});
    for (unsigned i = 0; i < 50; ++i) send(1, frame, 40);
    EXPECT_EQ(vports[2].taken.size(), 2000U);
    EXPECT_NEAR(static_cast<double>(queue.taken.size()), 500, 6 * std::sqrt(2000 * 0.25 * 0.75));
    EXPECT_TRUE(cotenant.taken.empty());
    for (const auto& got : queue.taken) {
        ASSERT_EQ(got.tag, 99U);
        ASSERT_EQ(got.frame, frame);
        ASSERT_EQ(got.source, VportId{1});
    }
    steering.set_cotenant_sink({});
}

TEST_F(Sampling, InNicRxSamplesAreCountedTaggedAndQueued) {
    Collector sampled, all_of_them;
    const auto to_sampled = to_sink(sampled.sink()), to_all = to_sink(all_of_them.sink());
    const auto tag = Action::tag(5);
    const auto bulk = std::make_shared<CounterBulk>(1);
    const auto count = counting(bulk);
    Table rx_root(rx, 0), rx_first(rx, 1), rx_next(rx, 2);
    const auto jump = to_table(rx_first);
    const auto rx_root_all = match_all(rx_root), rx_first_all = match_all(rx_first), rx_next_all = match_all(rx_next);
    const auto enter_rx = make_rule(*rx_root_all, {}, {&jump});
    Action::Created sample;
    ASSERT_EQ(try_sampler(3, rx_next, {&count, &tag, &to_sampled}, sample), 0);
    const auto to_manager = make_rule(*all_first, {}, {&miss});
    const auto rule = make_rule(*rx_first_all, {}, {&sample});
    ASSERT_EQ(rule.error, 0);
    const auto onward = make_rule(*rx_next_all, {}, {&to_all});
    for (unsigned i = 0; i < 30; ++i) send(1, frame, 40);
    EXPECT_EQ(all_of_them.taken.size(), 1200U);
    EXPECT_NEAR(static_cast<double>(sampled.taken.size()), 400, 6 * std::sqrt(1200 * 2.0 / 9));
    EXPECT_EQ(bulk->read(0).packets, sampled.taken.size());
    for (const auto& got : sampled.taken) ASSERT_EQ(got.tag, 5U);
    for (const auto& got : all_of_them.taken) ASSERT_EQ(got.tag, 0U) << "the tag is the copy's";
}

TEST_F(OldSampling, ConnectX5RestoresRegC0OfWhatComesFromVports) {
    constexpr std::uint64_t set_low_bits = 1ULL << 60 | 0x51ULL << 48 | 16ULL << 32 | 0xbeef;
    const auto sample = sampler(1, {&to_3}, set_low_bits);
    const auto rule = make_rule(*all_first, {}, {&sample});
    ASSERT_EQ(rule.error, 0);
    const auto by_register = make_matcher(second, 0, misc2, Parameters{}.set(reg_c(0), 0xffff));
    const auto restored = make_rule(*by_register, Parameters{}.set(reg_c(0), 0xbeef), {&to_2});
    send(1, frame);
    EXPECT_EQ(vports[2].taken.size(), 1U);
    send(0xffff, frame);
    EXPECT_EQ(vports[2].taken.size(), 1U) << "the wire's side goes straight to the next table";
    EXPECT_EQ(vports[3].taken.size(), 2U);
}

TEST_F(OldSampling, ConnectX5WantsASetOfRegC0AndANextTableAboveLevelOne) {
    Action::Created action;
    constexpr std::uint64_t set_reg_c_0 = 1ULL << 60 | 0x51ULL << 48 | 1;
    EXPECT_EQ(try_sampler(2, second, {&to_3}, action, 0), EOPNOTSUPP);
    EXPECT_EQ(try_sampler(2, second, {&to_3}, action, 2ULL << 60 | 0x51ULL << 48), EOPNOTSUPP) << "ADD";
    EXPECT_EQ(try_sampler(2, second, {&to_3}, action, 1ULL << 60 | 0x52ULL << 48), EOPNOTSUPP) << "reg_c_1";
    EXPECT_EQ(try_sampler(2, first, {&to_3}, action, set_reg_c_0), EINVAL);
    EXPECT_EQ(try_sampler(2, second, {&to_3}, action, set_reg_c_0), 0);
}

TEST_F(Sampling, RefusesWhatLibmlx5Refuses) {
    Action::Created action;
    Domain tx(steering, DomainType::nic_tx, nullptr);
    Table tx_table(tx, 2), rx_table(rx, 2);
    Collector queue;
    const auto to_queue = to_sink(queue.sink()), tag = Action::tag(1);
    const auto count = counting(std::make_shared<CounterBulk>(1));
    EXPECT_EQ(try_sampler(0, second, {&to_3}, action), EINVAL);
    EXPECT_EQ(try_sampler(2, second, {}, action), EINVAL);
    EXPECT_EQ(try_sampler(2, root, {&to_3}, action), EINVAL);
    EXPECT_EQ(try_sampler(2, tx_table, {&miss}, action), EOPNOTSUPP);
    EXPECT_EQ(try_sampler(2, tx_table, {}, action), EINVAL) << "first what no domain takes";
    const std::vector<const Action::Created*> no_samples{&to_queue, &tag, &count, &drop, &to_second};
    for (const Action::Created* refused : no_samples) {
        EXPECT_EQ(try_sampler(2, second, {&to_3, refused}, action), EOPNOTSUPP);
    }
    EXPECT_EQ(try_sampler(2, rx_table, {&to_3}, action), EOPNOTSUPP);
    EXPECT_EQ(try_sampler(2, rx_table, {&miss}, action), EOPNOTSUPP);
    EXPECT_EQ(try_sampler(2, rx_table, {&drop}, action), EOPNOTSUPP);
    EXPECT_EQ(try_sampler(2, rx_table, {&count}, action), EINVAL) << "nowhere to go";
    EXPECT_FALSE(to_3->busy()) << "a refused sampler leaves nothing behind";
    ASSERT_EQ(try_sampler(2, second, {&to_3, &to_2}, action), 0);
    EXPECT_TRUE(to_3->busy());
    EXPECT_TRUE(second.busy());
    EXPECT_EQ(make_rule(*match_all(second), {}, {&action}).error, EINVAL) << "its own level";
    EXPECT_EQ(make_rule(*all_root, {}, {&action}).error, ENOTSUP);
    EXPECT_EQ(make_rule(*match_all(rx_table), {}, {&action}).error, EINVAL) << "another domain";
    action.reset();
    EXPECT_FALSE(to_3->busy());
}

TEST_F(Stateful, WhatCameFromTheWireIsNotSentBackToIt) {
    const auto to_wire = to_vport(fdb, 0xffff);
    const auto rule = make_rule(*all_first, {}, {&to_wire});
    ASSERT_EQ(rule.error, 0) << "not refused, but dropped";
    send(0xffff, frame, 3);
    EXPECT_TRUE(vports[0xffff].taken.empty());
    EXPECT_EQ(steering.drops().by_rule, 3U);
    send(1, frame, 2);
    EXPECT_EQ(vports[0xffff].taken.size(), 2U);
}

}  // namespace
}  // namespace ovsdr::soft::test
