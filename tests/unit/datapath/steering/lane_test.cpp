// Lanes: batches of any length, the cache while tables change, state in cached traces, the transport.
#include <algorithm>
#include <ctime>
#include <unordered_map>

#include "lane_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

using criteria::misc;
using criteria::outer;

TEST_F(LaneTest, BatchesMayHaveAnyLength) {
    constexpr unsigned all = batch_length;
    for (const unsigned length : {0U, 1U, 32U, 33U, all - 1, all, all + 1, 2 * all + 1}) {
        vports[2].taken.clear();
        std::vector<Frame> frames;
        for (unsigned i = 0; i < length; ++i) frames.push_back(make_frame({.sport = static_cast<std::uint16_t>(i)}));
        send_batch(1, frames);
        ASSERT_EQ(vports[2].taken.size(), length);
        for (unsigned i = 0; i < length; ++i) EXPECT_EQ(vports[2].taken[i].frame, frames[i]);
        vports[2].taken.clear();
        std::vector<rte_mbuf*> packets;
        for (const Frame& bytes : frames) packets.push_back(packet_of(bytes));
        lane.online();
        lane.from_queue(7, packets.data(), length);
        lane.offline();
        ASSERT_EQ(vports[2].taken.size(), length);
    }
}

/// A sink that remembers how many it got in each call.
struct CountingSink {
    std::vector<unsigned> lengths;
    [[nodiscard]] Sink sink() {
        return {.deliver =
                    [](void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
                        static_cast<CountingSink*>(self)->lengths.push_back(length);
                        rte_pktmbuf_free_bulk(packets, length);
                    },
                .self = this};
    }
};

TEST_F(LaneTest, WhatComesTogetherLeavesTogether) {
    CountingSink counting;
    steering.detach(VportId{2});
    ASSERT_EQ(steering.attach(VportId{2}, counting.sink()), 0);
    lane.online();
    for (const unsigned length : {poll_length - 1, 45U, 45U, batch_length, 1U}) {
        std::vector<rte_mbuf*> packets;
        for (unsigned i = 0; i < length; ++i) packets.push_back(packet_of(frame));
        lane.from_vport(VportId{1}, packets.data(), length);
    }
    lane.flush();
    lane.offline();
    EXPECT_EQ(counting.lengths, (std::vector{poll_length - 1 + 45, 45U, batch_length, 1U}));
}

TEST_F(LaneTest, CountsWhatItsFlowCacheKnew) {
    const Frame cut(13, 1);
    send_batch(1, {frame, frame, cut, frame});
    EXPECT_EQ(steering.cache_use().misses, 1U) << "the first; malformed packets are not looked up";
    EXPECT_EQ(steering.cache_use().hits, 2U);
    send_batch(1, {frame});
    EXPECT_EQ(steering.cache_use().hits, 3U);
    steering.forget_cached();
    send_batch(1, {frame, frame});
    EXPECT_EQ(steering.cache_use().misses, 2U);
    EXPECT_EQ(steering.cache_use().hits, 4U);
}

TEST_F(LaneTest, MalformedPacketsLeaveTheOthersOfTheirBatchAlone) {
    const Frame other = make_frame({.sport = 5}), cut(13, 1), empty;
    send_batch(1, {cut, frame, empty, cut, other, frame, cut});
    ASSERT_EQ(vports[2].taken.size(), 3U);
    EXPECT_EQ(vports[2].taken[0].frame, frame);
    EXPECT_EQ(vports[2].taken[1].frame, other);
    EXPECT_EQ(vports[2].taken[2].frame, frame);
    EXPECT_EQ(steering.drops().malformed, 4U);
    send_batch(1, {Frame(14, 0)});
    EXPECT_EQ(vports[2].taken.size(), 4U) << "an Ethernet header is enough";
}

TEST_F(LaneTest, PacketsInSegmentsAreMalformed) {
    rte_mbuf* packet = packet_of(frame);
    ASSERT_EQ(rte_pktmbuf_chain(packet, packet_of(frame)), 0);
    lane.online();
    lane.from_vport(VportId{1}, &packet, 1);
    lane.offline();
    EXPECT_EQ(steering.drops().malformed, 1U);
    EXPECT_TRUE(vports[2].taken.empty());
}

/// The look-up's own parser reads some of these, parse() the others; what one left behind is not the next frame's.
TEST_F(LaneTest, FramesOfAllKindsInOneBatchMeetTheirOwnRules) {
    const auto by_icmp = make_matcher(first, 0, every, Parameters{}.set(field::icmp_type, 0xff));
    const auto pings = make_rule(*by_icmp, Parameters{}.set(field::icmp_type, 8), {&to_3});
    const auto by_tag = make_matcher(first, 1, every, Parameters{}.set(field::second_vid, 0xfff));
    const auto doubly_tagged = make_rule(*by_tag, Parameters{}.set(field::second_vid, 7), {&to_3});
    onward.rule.reset();
    all_first = match_all(first, 2);
    onward = make_rule(*all_first, {}, {&to_2});
    const Frame ping = make_frame({.protocol = 1, .sport = 0x0800}), reply = make_frame({.protocol = 1, .sport = 0});
    const Frame tagged = make_frame({.tags = {0x81000007}}), twice = make_frame({.tags = {0x88a80001, 0x81000007}});
    const Frame other = make_frame({.version = 6, .protocol = 6}), arp = make_frame({.version = 0});
    for (unsigned i = 0; i < 3; ++i) {
        vports[2].taken.clear();
        vports[3].taken.clear();
        send_batch(1, {ping, frame, reply, ping, other, tagged, twice, tagged, ping, arp, twice, frame});
        const std::vector<Frame> to_third{ping, ping, twice, ping, twice};
        const std::vector<Frame> to_second{frame, reply, other, tagged, tagged, arp, frame};
        ASSERT_EQ(vports[3].taken.size(), to_third.size());
        ASSERT_EQ(vports[2].taken.size(), to_second.size());
        for (std::size_t k = 0; k < to_third.size(); ++k) EXPECT_EQ(vports[3].taken[k].frame, to_third[k]);
        for (std::size_t k = 0; k < to_second.size(); ++k) EXPECT_EQ(vports[2].taken[k].frame, to_second[k]);
    }
}

/// A miss reads its frame when packets before it in the batch have been edited: on copies, where they share its buffer.
TEST_F(LaneTest, PacketsThatShareABufferAreReadAsTheyCame) {
    const auto by_address = make_matcher(first, 0, outer, Parameters{}.set(field::dmac_15_0, 0xffff));
    const auto edit = modifying(fdb, {set_command(id::dmac_15_0, 0, 16, 0x7777)});
    const auto edited = make_rule(*by_address, Parameters{}.set(field::dmac_15_0, 2), {&edit, &to_3});
    rte_mbuf* packet = packet_of(frame);
    rte_mbuf_refcnt_update(packet, 2);
    std::array<rte_mbuf*, 3> packets{packet, packet, packet};
    {
        const Steering::Impl::Change change(steering.impl());  // nothing is remembered: each packet walks
        lane.online();
        lane.from_vport(VportId{1}, packets.data(), packets.size());
        lane.offline();
    }
    EXPECT_EQ(steering.cache_use().misses, 3U);
    EXPECT_TRUE(vports[2].taken.empty());
    ASSERT_EQ(vports[3].taken.size(), 3U);
    for (const auto& taken : vports[3].taken) EXPECT_EQ(load_be16(&taken.frame[4]), 0x7777);
}

/// Two addresses that the device's hash takes for one.
[[nodiscard]] std::pair<std::uint64_t, std::uint64_t> colliding(std::uint64_t skip) {
    Key ones{};
    std::memset(ones.bytes() + key_offset::dmac, 0xff, 6);
    const MaskedWords words(ones);
    std::unordered_map<std::uint32_t, std::uint64_t> seen;
    for (std::uint64_t number = skip;; ++number) {
        const std::uint64_t address = number * 0x9e3779b97f4a7c15ULL >> 16 & ~(1ULL << 40);
        Key key{};
        for (unsigned i = 0; i < 6; ++i) {
            key.bytes()[key_offset::dmac + i] = static_cast<std::uint8_t>(address >> (40 - 8 * i));
        }
        const auto [found, fresh] = seen.try_emplace(words.hash(key, 0), address);
        if (!fresh) return {found->second, address};
    }
}

TEST_F(LaneTest, KeysOfOneHashAreToldApart) {
    const auto [one, two] = colliding(1);
    const auto by_mac = make_matcher(first, 0, outer, Parameters{}.set({64, 48}, 0xffffffffffff));
    onward.rule.reset();
    all_first = {};
    const auto to_one = make_rule(*by_mac, Parameters{}.set({64, 48}, one), {&to_2});
    const auto to_two = make_rule(*by_mac, Parameters{}.set({64, 48}, two), {&to_3});
    const Frame a = make_frame({.dmac = one}), b = make_frame({.dmac = two});
    const std::vector<std::vector<Frame>> batches{{a}, {b}, {a, b, a, b}, {b, b, a, a}};
    for (const std::vector<Frame>& batch : batches) {
        vports[2].taken.clear();
        vports[3].taken.clear();
        send_batch(1, batch);
        EXPECT_EQ(vports[2].taken.size(), static_cast<std::size_t>(std::count(batch.begin(), batch.end(), a)));
        EXPECT_EQ(vports[3].taken.size(), static_cast<std::size_t>(std::count(batch.begin(), batch.end(), b)));
        for (const auto& taken : vports[2].taken) EXPECT_EQ(taken.frame, a);
        for (const auto& taken : vports[3].taken) EXPECT_EQ(taken.frame, b);
    }
}

TEST_F(LaneTest, WhatWasSeenDuringAChangeIsNotRemembered) {
    const auto newer = make_matcher(first, 0, outer, Parameters{}.set(field::dmac_15_0, 0xffff));
    const auto look = make_rule(*newer, Parameters{}.set(field::dmac_15_0, 0x7777), {&to_3});
    {
        const Steering::Impl::Change change(steering.impl());
        send(1, frame, 2);
    }
    EXPECT_EQ(steering.cache_use().misses, 2U);
    send(1, frame, 2);
    EXPECT_EQ(steering.cache_use().misses, 3U);
    EXPECT_EQ(vports[2].taken.size(), 4U);
}

TEST_F(LaneTest, WhatIsRememberedServesWhileAChangeIsUnderWay) {
    send(1, frame);
    {
        const Steering::Impl::Change change(steering.impl());
        send(1, frame, 3);
    }
    EXPECT_EQ(steering.cache_use().misses, 1U);
    send(1, frame);
    EXPECT_EQ(steering.cache_use().misses, 2U);
}

/// A sink that is called in the middle of a walk, when more come than a batch holds, and changes the tables' epoch.
struct ChangingSink {
    Steering::Impl& impl;
    unsigned got = 0;
    [[nodiscard]] Sink sink() {
        return {.deliver =
                    [](void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
                        auto* one = static_cast<ChangingSink*>(self);
                        one->got += length;
                        { const Steering::Impl::Change change(one->impl); }
                        rte_pktmbuf_free_bulk(packets, length);
                    },
                .self = this};
    }
};

TEST_F(LaneTest, WhatWasSeenAcrossAChangeIsNotRemembered) {
    ChangingSink changing{steering.impl()};
    steering.detach(VportId{2});
    ASSERT_EQ(steering.attach(VportId{2}, changing.sink()), 0);
    const auto newer = make_matcher(first, 0, outer, Parameters{}.set(field::dmac_15_0, 0xffff));
    const auto look = make_rule(*newer, Parameters{}.set(field::dmac_15_0, 0x7777), {&to_3});
    const Frame other = make_frame({.dmac = 0x020000000009});
    std::vector<rte_mbuf*> packets;
    for (unsigned i = 0; i < batch_length; ++i) packets.push_back(packet_of(frame));
    packets.push_back(packet_of(other));
    lane.online();
    lane.from_vport(VportId{1}, packets.data(), batch_length + 1);
    EXPECT_EQ(changing.got, batch_length) << "the walk of the last one gave the others away";
    lane.offline();
    const std::uint64_t walked = steering.cache_use().misses;
    send(1, other);
    EXPECT_EQ(steering.cache_use().misses, walked + 1);
}

TEST_F(LaneTest, ChangesAreOddWhileTheyLastAndEachIsAnother) {
    Steering::Impl& impl = steering.impl();
    const CacheKey& key = impl.cache_key(VportId{1});
    const std::uint64_t before = key.epoch;
    {
        const Steering::Impl::Change change(impl);
        EXPECT_EQ(key.epoch % 2, 1U);
    }
    EXPECT_EQ(key.epoch % 2, 0U);
    EXPECT_NE(key.epoch, before);
    EXPECT_EQ(before % 2, 0U);
}

TEST_F(LaneTest, TheClockIsTheMonotonicOne) {
    const auto by_system = [] {
        timespec time{};
        clock_gettime(CLOCK_MONOTONIC, &time);
        return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
    };
    for (unsigned i = 0; i < 20; ++i) {
        const std::uint64_t before = by_system(), now = steering.impl().now(), after = by_system();
        EXPECT_LE(before, now);
        EXPECT_LE(now, after);
    }
    steering.impl().stopped_clock = 5;
    EXPECT_EQ(steering.impl().now(), 5U);
}

TEST_F(LaneTest, DrawsAreXorshiftsOfALanesOwn) {
    for (const unsigned worker : {1U, 2U}) {
        Lane::Impl other(steering, worker);
        std::uint64_t state = 0x2545f4914f6cdd1dULL + worker * 0x9e3779b97f4a7c15ULL;
        for (unsigned i = 0; i < 5000; ++i) {
            const std::uint32_t ratio = 1 + i % 9;
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ASSERT_EQ(other.draw(ratio), (state >> 32) < ((1ULL << 32) + ratio - 1) / ratio) << ratio;
        }
    }
}

TEST_F(LaneTest, TheTransportComesBeforeTheCotenantAndSeesNothingElse) {
    EvenPorts even;
    steering.set_transport(even.filter());
    const Frame its = make_frame({.dport = 2}), others = make_frame({.dport = 3});
    send_batch(1, {its, others});
    EXPECT_EQ(even.calls, 0U) << "a vport's";
    onward.rule.reset();
    send_batch(1, {its, others, its, others, others});
    EXPECT_EQ(even.got, 2U);
    EXPECT_EQ(cotenant.taken.size(), 3U);
    send_batch(1, {its, its});
    EXPECT_EQ(even.got, 4U);
    EXPECT_EQ(cotenant.taken.size(), 3U);
    steering.set_cotenant_sink({});
    send_batch(1, {its, others});
    EXPECT_EQ(even.got, 5U);
    EXPECT_EQ(steering.drops().nic_rx_miss, 1U);
    steering.set_transport({});
    send_batch(1, {its, others});
    EXPECT_EQ(even.got, 5U);
    EXPECT_EQ(steering.drops().nic_rx_miss, 3U);
}

/// The cached trace does to a connection and to a legacy meter what the walk did.
TEST_F(LaneTest, StateMovesOnWithEachCachedPacket) {
    steering.impl().stopped_clock = 1'000'000'000;
    const auto by_source = make_matcher(first, 0, misc, Parameters{}.set(field::source_port, 0xffff));
    const auto source = [](unsigned vport) { return Parameters{}.set(field::source_port, vport); };
    std::vector<std::uint8_t> parameters(20);
    parameters[0] = 0xa3;  // valid, green, packets
    parameters[8] = 7;
    parameters[9] = 100;
    parameters[14] = 0x32;  // 12800 tokens, and no rate
    Table second(fdb, 2);
    const auto all_second = match_all(second);
    const auto away = make_rule(*all_second, {}, {&to_2});
    Action::Created meter;
    ASSERT_EQ(Action::flow_meter(second, {.active = true, .reg_c = 2, .parameters = parameters}, meter), 0);
    const auto metered = make_rule(*by_source, source(1), {&meter});
    const auto tokens = [&] { return load_be32(&meter->more().metering->meter.read()[12]); };
    send(1, frame, 10);
    EXPECT_EQ(tokens(), 90 * 128U);
    ASSERT_EQ(meter->modify_flow_meter({.active = false, .reg_c = 2, .parameters = {}}, 1), 0);
    send(1, frame, 10);
    EXPECT_EQ(tokens(), 90 * 128U) << "switched off for cached packets too";
    const auto bulk = std::make_shared<AsoBulk>(AsoKind::connection, 0, nullptr);
    AsoBulk::Image image{};
    image[60] = 0x90;                    // valid, established
    image[56] = image[58] = 0xf4;        // both directions liberal, without scaling
    bulk->exchange(0, image, ~0ULL);
    Action::Created track;
    ASSERT_EQ(Action::aso(fdb, bulk, 0, 1, 3, track), 0);
    const auto tracked = make_rule(*by_source, source(3), {&track, &to_2});
    Frame segment = make_frame({.protocol = 6});
    for (std::uint8_t i = 1; i < 6; ++i) {
        segment[41] = i;  // the sequence number's last byte
        send(3, segment);
        EXPECT_EQ(bulk->read(0)[43], i) << "last_seq";
    }
}

}  // namespace
}  // namespace ovsdr::soft::test
