// What lanes read of a device: vports and queues that come and go, the cache's key, who waits for whom; and that
// nothing is left of a device.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "allocations.hpp"
#include "datapath/steering/flow_tables.hpp"
#include "lane_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

using criteria::outer;

class DeviceTest : public LaneTest {};

TEST_F(DeviceTest, WhoTakesSomethingFromLanesWaitsForThem) {
    hold(frame);
    expect_waits([&] { steering.detach(VportId{2}); });
    EXPECT_EQ(vports[2].taken.size(), 1U) << "it had been given to the vport";
    onward.rule.reset();
    hold(frame);
    expect_waits([&] { steering.set_cotenant_sink(queue.sink()); });
    EvenPorts even;
    steering.set_transport(even.filter());
    hold(frame);
    expect_waits([&] { steering.set_transport({}); });
    hold(frame);
    expect_waits([&] { steering.synchronize(); });
    hold(frame);
    expect_waits([&] { fdb.free_cached_memory(); });
}

TEST_F(DeviceTest, QueuesAreReleasedWhenTheirLastPacketHasArrived) {
    struct Held {
        Collector collector;
        std::atomic<int> holders{0};
    } held;
    const auto to_held =
        Action::receiver({.sink = held.collector.sink(),
                          .object = &held,
                          .hold = [](void* self) noexcept { ++static_cast<Held*>(self)->holders; },
                          .release = [](void* self) noexcept { --static_cast<Held*>(self)->holders; }});
    onward.rule.reset();
    const auto array = array_of(rx, {&to_held, &to_queue});
    for (const Action::Created* action : {&to_held, &array}) {
        auto rule = make_rule(*all_rx, {}, {action});
        ASSERT_EQ(rule.error, 0);
        EXPECT_EQ(held.holders, 1);
        hold(frame);
        expect_waits([&] { rule.rule.reset(); });
        EXPECT_EQ(held.holders, 0);
    }
    EXPECT_EQ(held.collector.taken.size(), 2U);
    EXPECT_EQ(queue.taken.size(), 1U);
    send(1, frame);
    EXPECT_EQ(cotenant.taken.size(), 1U) << "its destination was not given back";
}

TEST_F(DeviceTest, ADeviceHasRoomFor256Vports) {
    for (const std::uint16_t vport : {1, 2, 3, 0xffff}) steering.detach(VportId{vport});
    for (unsigned i = 0; i < 3000; ++i) {
        const VportId vport{static_cast<std::uint16_t>(i)};
        ASSERT_EQ(steering.attach(vport, vports[1].sink()), 0) << i;
        steering.detach(vport);
    }
    for (unsigned i = 0; i < max_vports; ++i) {
        ASSERT_EQ(steering.attach(VportId{static_cast<std::uint16_t>(i * 7)}, vports[1].sink()), 0);
    }
    EXPECT_EQ(steering.attach(VportId{1}, vports[1].sink()), ENOSPC);
    steering.detach(VportId{7});
    EXPECT_EQ(steering.attach(VportId{1}, vports[1].sink()), 0);
}

TEST_F(DeviceTest, CountersSumWhatEachWorkerSaw) {
    CounterBulk bulk(3);
    for (unsigned worker = 0; worker < max_workers; ++worker) {
        bulk.add(worker, 1, worker + 1, 100);
        bulk.add(worker, 2, 1, 1);
    }
    EXPECT_EQ(bulk.length(), 3U);
    EXPECT_EQ(bulk.read(0).packets, 0U);
    EXPECT_EQ(bulk.read(1).packets, 136U);
    EXPECT_EQ(bulk.read(1).bytes, 1600U);
    EXPECT_EQ(bulk.read_and_clear(1).bytes, 1600U);
    EXPECT_EQ(bulk.read(1).bytes, 0U);
    bulk.add(7, 1, 2, 3);
    EXPECT_EQ(bulk.read_and_clear(1).packets, 2U);
    bulk.add(7, 1, 5, 3);
    EXPECT_EQ(bulk.read(1).packets, 5U);
    EXPECT_EQ(bulk.read(1).bytes, 3U);
    EXPECT_EQ(bulk.read(2).packets, 16U) << "cleared by itself";
}

TEST_F(DeviceTest, AWorkersFirstCountAllocatesNothing) {
    for (const unsigned length : {1U, 3U, 20'000U}) {
        CounterBulk bulk(length);
        const NoMemory none;
        for (unsigned worker = 0; worker < max_workers; ++worker) bulk.add(worker, length - 1, 1, 2);
        EXPECT_EQ(bulk.read(length - 1).packets, max_workers);
        EXPECT_EQ(bulk.read(length - 1).bytes, 2 * max_workers);
    }
}

TEST_F(DeviceTest, SendRulesAreFoundByTheirQueue) {
    VportId vport{77};
    EXPECT_FALSE(steering.impl().send_rule(5, vport));
    EXPECT_EQ(vport, VportId{77});
    steering.cotenant_send_rule(5, VportId{3});
    EXPECT_TRUE(steering.impl().send_rule(5, vport));
    EXPECT_EQ(vport, VportId{3});
    EXPECT_FALSE(steering.impl().send_rule(6, vport));
    steering.remove_cotenant_send_rule(5);
    EXPECT_FALSE(steering.impl().send_rule(5, vport));
}

TEST_F(DeviceTest, DetachingWhatIsNotThereChangesNothing) {
    steering.detach(VportId{9});
    onward.rule.reset();
    send(1, frame);
    EXPECT_EQ(cotenant.taken.size(), 1U);
}

[[nodiscard]] unsigned sinks_in_use(Steering& steering) {
    const auto& sinks = steering.impl().sinks;
    return static_cast<unsigned>(
        std::count_if(sinks.begin(), sinks.end(), [](const auto& sink) { return sink != nullptr; }));
}

TEST_F(DeviceTest, QueuesOfOneSinkShareADestination) {
    Steering fresh(connectx_6dx);
    std::uint16_t one = 0, same = 0, other = 0;
    ASSERT_EQ(fresh.impl().acquire_destination(queue.sink(), one), 0);
    ASSERT_EQ(fresh.impl().acquire_destination(queue.sink(), same), 0);
    ASSERT_EQ(fresh.impl().acquire_destination(cotenant.sink(), other), 0);
    EXPECT_EQ(one, 1U);
    EXPECT_EQ(same, 1U);
    EXPECT_EQ(other, 2U);
    fresh.impl().release_destination(one);
    EXPECT_EQ(sinks_in_use(fresh), 2U);
    fresh.impl().release_destination(same);
    EXPECT_EQ(sinks_in_use(fresh), 1U);
    fresh.set_cotenant_sink(queue.sink());
    ASSERT_EQ(fresh.impl().acquire_destination(queue.sink(), one), 0);
    EXPECT_EQ(one, 1U) << "never the co-tenant's";
    std::uint16_t more = 0;
    for (std::uintptr_t i = 3; i < max_destinations; ++i) {
        ASSERT_EQ(fresh.impl().acquire_destination({cotenant.sink().deliver, reinterpret_cast<void*>(i)}, more), 0);
        ASSERT_EQ(more, i);
    }
    EXPECT_EQ(fresh.impl().acquire_destination({cotenant.sink().deliver, nullptr}, more), ENOSPC);
    EXPECT_EQ(max_destinations, 2048U);
    EXPECT_EQ(fresh.attach(VportId{1}, queue.sink()), ENOSPC);
    // Whoever needs one is refused, and leaves the device as it was.
    Domain its_rx(fresh, DomainType::nic_rx, nullptr);
    Table table(its_rx, 1), next(its_rx, 2);
    const auto all = match_all(table);
    Collector late;
    const auto to_late = to_sink(late.sink()), to_known = to_sink(queue.sink());
    EXPECT_EQ(make_rule(*all, {}, {&to_late}).error, ENOSPC);
    EXPECT_EQ(make_rule(*all, {}, {&to_known}).error, 0);
    Action::Created action;
    const std::array<Action*, 2> branches{to_known.get(), to_late.get()};
    EXPECT_EQ(Action::dest_array(its_rx, branches, action), ENOSPC);
    EXPECT_EQ(Action::flow_array(its_rx, branches, {}, action), ENOSPC);
    EXPECT_EQ(Action::sampler({.ratio = 1, .next = &next, .actions = branches, .restore = 0}, action), ENOSPC);
    EXPECT_FALSE(to_known->busy());
    EXPECT_FALSE(to_late->busy());
    EXPECT_EQ(sinks_in_use(fresh), max_destinations);
    fresh.impl().release_destination(1);
    EXPECT_EQ(sinks_in_use(fresh), max_destinations - 1) << "nobody else had kept it";
}

TEST_F(DeviceTest, ArraysRuleAndFlowsGiveTheirDestinationsBack) {
    const unsigned before = sinks_in_use(steering);
    onward.rule.reset();
    {
        const auto array = array_of(rx, {&to_queue, &to_queue});
        EXPECT_EQ(sinks_in_use(steering), before + 1);
        const auto one = make_rule(*all_rx, {}, {&to_queue});
        EXPECT_EQ(sinks_in_use(steering), before + 1);
    }
    EXPECT_EQ(sinks_in_use(steering), before);
    auto one = make_rule(*all_rx, {}, {&to_queue});
    const auto later = match_all(rx_root, 1);
    const auto other = make_rule(*later, {}, {&to_queue});
    EXPECT_EQ(sinks_in_use(steering), before + 1);
    one.rule.reset();
    send(1, frame);
    EXPECT_EQ(queue.taken.size(), 1U) << "the other rule's";
    EXPECT_EQ(make_rule(*later, {}, {&to_queue}).error, EEXIST);
    send(1, frame);
    EXPECT_EQ(queue.taken.size(), 2U);
}

/// The words that packets of `vport` are looked up by in caches, as a mask.
[[nodiscard]] Key cache_key(Steering& steering, std::uint16_t vport = 1) {
    const MaskedWords& words = steering.impl().cache_key(VportId{vport}).words;
    Key key{};
    for (std::uint32_t i = 0; i < words.length; ++i) key.words[words.index[i]] = words.mask[i];
    return key;
}
[[nodiscard]] Key key_with(std::initializer_list<std::pair<unsigned, unsigned>> stretches) {
    Key key{};
    for (const auto& [offset, size] : stretches) std::memset(key.bytes() + offset, 0xff, size);
    return key;
}

/// A lane that took its key a moment before a change has all of the key, or one by which nothing is cached.
TEST_F(DeviceTest, AKeyThatAnotherReplacesKeepsAnOddEpoch) {
    lane.online();  // keys stay while it may look at them
    const CacheKey* key = &steering.impl().cache_key(VportId{1});
    std::uint64_t epoch = key->epoch;
    const auto expect_change = [&](bool replaced) {
        const CacheKey* const now = &steering.impl().cache_key(VportId{1});
        EXPECT_EQ(now != key, replaced);
        EXPECT_EQ(key->epoch % 2, replaced ? 1U : 0U);
        EXPECT_GT(now->epoch, epoch) << "no epoch comes twice";
        EXPECT_EQ(now->epoch % 2, 0U);
        EXPECT_LE(now->first, now->epoch);
        if (replaced) {
            EXPECT_GT(now->first, epoch) << "lines of the one are none of the other";
        }
        key = now;
        epoch = now->epoch;
    };
    {
        const auto matcher = make_matcher(first, 0, criteria::outer, Parameters{}.set(field::smac_15_0, 0xff00));
        EXPECT_EQ(key->epoch, epoch) << "a matcher without rules";
        {
            const auto rule = make_rule(*matcher, {}, {&to_2});
            expect_change(true);
            EXPECT_EQ(cache_key(steering).bytes()[4], 0xff);
            const auto another = make_rule(*matcher, Parameters{}.set(field::smac_15_0, 0x100), {&to_2});
            expect_change(false);
        }
        expect_change(false);
    }
    EXPECT_EQ(key->epoch, epoch) << "a matcher without rules";
    steering.forget_cached();
    expect_change(true);
    EXPECT_EQ(cache_key(steering), Key{});
    ASSERT_EQ(steering.set_geneve_option({.option_class = 1, .type = 2, .length = 1}), 0);
    expect_change(true);
    EXPECT_EQ(key->parser.option.length, 1U);
    ASSERT_EQ(steering.set_geneve_option({}), 0);
    expect_change(true);
    lane.offline();
}

TEST_F(DeviceTest, TheCacheIsKeyedByWhatMasksLookAtAndTheEntranceDoesNotSettle) {
    EXPECT_EQ(cache_key(steering, wire), Key{});
    EXPECT_FALSE(steering.impl().cache_key(uplink_vport).words.deep);
    const auto mask = Parameters{}
                          .set(field::dmac_47_16, 0xffffffff)
                          .set(field::dmac_15_0, 0xffff)
                          .set(field::source_sqn, 0xffffff)
                          .set(field::source_port, 0xffff)
                          .set(field::reg_a, ~0U)
                          .set(field::reg_c_0, ~0U)
                          .set(field::reg_c_7, ~0U)
                          .set(field::second_prio, 7)
                          .set(field::second_cfi, 1)
                          .set(field::second_vid, 0xfff)
                          .set(field::icmpv6_data, ~0U);
    const auto value = Parameters{}.set(field::source_port, wire).set(field::reg_c_0, wire << 16);
    const Key shallow = key_with({{key_offset::dmac, 6}, {key_offset::second_vlan, 2}, {key_offset::icmpv6_data, 4}});
    {
        const auto one = make_matcher(first, 0, 0x7f, mask);
        ASSERT_EQ(one.error, 0);
        EXPECT_EQ(cache_key(steering, wire), Key{}) << "no rule yet";
        const auto rule = make_rule(*one, value, {&to_2});
        ASSERT_EQ(rule.error, 0);
        EXPECT_EQ(cache_key(steering, wire), shallow);
        EXPECT_FALSE(steering.impl().cache_key(uplink_vport).words.deep);
        EXPECT_EQ(cache_key(steering, 2), Key{}) << "the rule is of the uplink";
        {
            const auto decap = reformatting(fdb, Reformat::Kind::decap_l2, {});
            EXPECT_EQ(cache_key(steering, wire), shallow) << "no rule has it yet";
            const auto opening = make_rule(*one, value, {&decap, &to_2});
            const auto again = make_rule(*one, value, {&decap, &to_2});
            ASSERT_EQ(again.error, 0);
            const Key both = key_with({{key_offset::dmac, 6}, {key_offset::second_vlan, 2},
                                       {key_offset::icmpv6_data, 4}, {key_offset::inner + key_offset::dmac, 6},
                                       {key_offset::inner_second_vlan, 2}});
            EXPECT_EQ(cache_key(steering, wire), both);
            EXPECT_TRUE(steering.impl().cache_key(uplink_vport).words.deep);
            EXPECT_FALSE(steering.impl().cache_key(VportId{2}).words.deep);
        }
        steering.forget_cached();
        EXPECT_EQ(cache_key(steering, wire), shallow);
        const auto two = make_matcher(rx_root, 0, 0x7f, Parameters{}.set(field::smac_15_0, 0xff00));
        const auto of_all = make_rule(*two, {}, {&to_queue});
        ASSERT_EQ(of_all.error, 0);
        Key more = shallow, alone{};
        more.bytes()[4] = alone.bytes()[4] = 0xff;
        EXPECT_EQ(cache_key(steering, wire), more);
        EXPECT_EQ(cache_key(steering, 2), alone);
    }
    steering.forget_cached();
    EXPECT_EQ(cache_key(steering, wire), Key{});
    EXPECT_EQ(cache_key(steering, 2), Key{});
}

TEST_F(DeviceTest, MatchersThatAreGoneAreWalkedNoMore) {
    const auto walked = [&] { return first.published().load()->matchers.size(); };
    const auto walked_in_root = [&] { return root.published().load()->matchers.size(); };
    EXPECT_EQ(walked(), 1U);
    {
        const auto one = match_all(first), two = match_all(first, 3), in_root = match_all(root);
        EXPECT_EQ(walked(), 3U);
        EXPECT_EQ(walked_in_root(), 2U);
    }
    EXPECT_EQ(walked(), 1U);
    EXPECT_EQ(walked_in_root(), 1U);
}

/// Everything there is, once.
void make_and_destroy() {
    Collector a, b;
    EvenPorts even;
    Steering steering(connectx_6dx);
    Lane lane(steering, 0);
    (void)steering.attach(VportId{1}, a.sink());
    (void)steering.attach(VportId{2}, b.sink());
    steering.detach(VportId{2});
    steering.set_cotenant_sink(a.sink());
    steering.set_cotenant_sink(b.sink());
    steering.set_transport(even.filter());
    steering.cotenant_send_rule(5, VportId{1});
    steering.cotenant_send_rule(5, VportId{2});
    steering.cotenant_send_rule(6, VportId{2});
    steering.remove_cotenant_send_rule(5);
    Domain fdb(steering, DomainType::fdb, nullptr), rx(steering, DomainType::nic_rx, nullptr);
    Table root(fdb, 0), first(fdb, 1), second(fdb, 2), rx_root(rx, 0);
    const auto all_root = match_all(root), all_first = match_all(first);
    const auto by_mac = make_matcher(first, 0, outer, Parameters{}.set(field::dmac_15_0, 0xffff));
    const auto bulk = std::make_shared<CounterBulk>(4);
    const auto to_first = to_table(first), to_second = to_table(second), to_1 = to_vport(fdb, 1);
    const auto count = counting(bulk);
    const auto edit = modifying(fdb, {set_command(id::dmac_15_0, 0, 16, 1)});
    const auto array = array_of(fdb, {&to_1, &to_second});
    const auto decap = reformatting(fdb, Reformat::Kind::decap_l2, {}), to_b = to_sink(b.sink());
    const std::array<Action*, 1> sampled{to_1.get()};
    Action::Created sampler, meter;
    (void)Action::sampler({.ratio = 2, .next = &second, .actions = sampled, .restore = 0}, sampler);
    (void)Action::flow_meter(second, {.active = true, .reg_c = 2, .parameters = {}}, meter);
    std::vector<MadeRule> rules;
    rules.push_back(make_rule(*all_root, {}, {&to_first}));
    rules.push_back(make_rule(*all_first, {}, {&count, &edit, &array}));
    rules.push_back(make_rule(*all_first, {}, {&sampler}));
    rules.push_back(make_rule(*all_first, {}, {&meter}));
    for (unsigned i = 0; i < 100; ++i) {
        rules.push_back(make_rule(*by_mac, Parameters{}.set(field::dmac_15_0, i), {&to_1}));
    }
    (*by_mac).set_layout({.rules = 1000, .resizable = true});
    const auto all_rx = match_all(rx_root);
    rules.push_back(make_rule(*all_rx, {}, {&to_b}));
    FlowTables flows(steering);
    std::unique_ptr<FlowTables::Flow> one, two;
    FlowRequest request;
    request.rank = rank::of_priority(3);
    request.receiver.sink = a.sink();
    request.receiver.object = &a;
    (void)flows.create(request, one);
    request.receiver.object = &b;
    (void)flows.create(request, two);
    rte_mbuf* packet = packet_of(make_frame({}));
    lane.online();
    lane.from_vport(VportId{1}, &packet, 1);
    lane.offline();
    rules.resize(50);
    fdb.reclaim_memory(true);
    fdb.free_cached_memory();
}

TEST(SteeringMemory, NothingIsLeftOfADevice) {
    make_and_destroy();
    const long before = blocks_in_use();
    make_and_destroy();
    EXPECT_EQ(blocks_in_use(), before);
}

#ifndef SANITIZED
/// Bytes of address space that the process has taken.
[[nodiscard]] std::size_t mapped() {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(SteeringMemory, CachesGiveTheirAddressesBackAlsoWhereThereAreTooFew) {
    for (unsigned i = 0; i < 3; ++i) FlowCache{};
    const std::size_t before = mapped();
    for (unsigned i = 0; i < 100; ++i) FlowCache{};
    EXPECT_LE(mapped(), before + (4U << 20));
    rlimit old{};
    ASSERT_EQ(getrlimit(RLIMIT_AS, &old), 0);
    const rlimit little{mapped() + (4U << 20), old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
    unsigned refused = 0;
    for (unsigned i = 0; i < 100; ++i) {
        try {
            FlowCache{};
        } catch (const std::bad_alloc&) {
            ++refused;
        }
    }
    ASSERT_EQ(setrlimit(RLIMIT_AS, &old), 0);
    EXPECT_EQ(refused, 100U);
    EXPECT_LE(mapped(), before + (4U << 20));
}
#endif

}  // namespace
}  // namespace ovsdr::soft::test
