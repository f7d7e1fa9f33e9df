// The engine against the naive pipeline: random masks, priorities, rules and actions that come and go between random
// packets (tagged, IPv4, IPv6, fragments, cut short), some of which meter, ask for first hits or track connections;
// each packet's bytes, ports and counts must be equal, and what the meters, bits and connections hold.
#include "random_pipeline.hpp"

namespace ovsdr::soft::test {
namespace {

class Differential : public RandomPipeline, public ::testing::WithParamInterface<unsigned> {
protected:
    Differential() : RandomPipeline(GetParam(), true) {}

    void exchange_packets();
    void compare();

    std::vector<Frame> frames;
    unsigned hits = 0;
};

/// Batches of a few frames over and over, so that the cache is hit as well as missed; most of them come again after
/// rules have changed.
void Differential::exchange_packets() {
    while (frames.size() < 12) frames.push_back(random_frame());
    for (unsigned i = 0; i < 2; ++i) frames[pick(12)] = random_frame();
    for (unsigned round = 0; round < 3; ++round) {
        const std::uint16_t port = ports[pick(4)];
        rte_mbuf* batch[batch_length];
        for (rte_mbuf*& packet : batch) {
            const Frame& frame = frames[pick(12)];
            packet = packet_of(frame);
            naive.receive(port, frame);
        }
        lane.online();
        lane.from_vport(VportId{port}, batch, batch_length);
        lane.offline();
    }
}

void Differential::compare() {
    for (auto& [port, collector] : vports) {
        // Sorted: branches of an array that end at one vport have no order among each other.
        const std::vector<std::string> expected = sorted(naive.delivered[port]);
        std::vector<Frame> taken;
        for (const Collector::Taken& one : collector.taken) taken.push_back(one.frame);
        const std::vector<std::string> got = sorted(taken);
        ASSERT_EQ(got.size(), expected.size()) << "vport " << port;
        for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]) << "vport " << port;
        if (port != 0) hits += static_cast<unsigned>(expected.size());
        collector.taken.clear();
        naive.delivered[port].clear();
    }
    for (unsigned i = 0; i < counters; ++i) {
        ASSERT_EQ(bulk->read(i).packets, naive.counters[i].packets);
        ASSERT_EQ(bulk->read(i).bytes, naive.counters[i].bytes);
    }
    for (unsigned i = 0; i < state.size(); ++i) {
        for (unsigned k = 0; k < state[i]->length(); ++k) {
            ASSERT_EQ(state[i]->read(k), naive_state[i]->read(k)) << "state " << i << ", " << k;
        }
    }
    ASSERT_EQ(steering.drops().by_rule, naive.dropped);
    ASSERT_EQ(steering.drops().malformed, naive.malformed);
}

TEST_P(Differential, DoesWhatTheNaivePipelineDoes) {
    for (unsigned i = 0; i < 10; ++i) add_matcher();
    for (unsigned round = 0; round < 150; ++round) {
        if (chance(6)) add_matcher();
        if (chance(8)) remove_matcher();
        for (unsigned i = pick(4); i > 0; --i) add_rule();
        if (chance(2)) remove_rule();
        if (chance(3)) renew_state();
        exchange_packets();
        ASSERT_NO_FATAL_FAILURE(compare()) << "round " << round << " of seed " << GetParam();
    }
    // Neither side may agree by doing nothing.
    EXPECT_GT(accepted, 50U);
    EXPECT_GT(hits, 50U);
    const Steering::CacheUse use = steering.cache_use();
    EXPECT_GT(use.hits, 1000U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Differential, ::testing::Range(1U, 41U));

}  // namespace
}  // namespace ovsdr::soft::test
