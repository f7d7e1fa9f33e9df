// The flow cache against the walk, with state: two equal devices with the same random rules get the same packets. One
// gets them in batches and answers most of them out of its flow cache; the other one gets them one by one and forgets
// before each what it has cached. What arrives, what is counted and dropped, and what meters, first hits and
// connections hold must be equal. There is no second implementation, as in differential_test.cpp, so that rules may
// also set and copy the registers of outcomes, and have legacy meters, samplers, and packets in NIC_RX.
//
// Not covered: what both do wrong; tunnels and IPv6; what the manager's queues send; meters with a rate (the clock
// stands still); samplers that leave packets out; more than one worker; the order in which packets arrive.
#include <array>

#include "twin.hpp"

namespace ovsdr::soft::test {
namespace {

class TwinTest : public ::testing::TestWithParam<unsigned>, private Draws {
protected:
    TwinTest() : Draws(GetParam()) {}
    void TearDown() override { EXPECT_EQ(mbufs_in_use(), in_use) << "packets leaked, or were freed twice"; }

    void both(void (Twin::*change)()) {
        (cached.*change)();
        (walked.*change)();
    }
    void change_rules() {
        if (chance(8)) both(&Twin::add_matcher);
        for (unsigned left = pick(4); left > 0; --left) both(&Twin::add_rule);
        for (unsigned left = pick(3); left > 0; --left) both(&Twin::remove_rule);
        if (chance(2)) both(&Twin::renew_state);
    }
    Frame random_frame() {
        FrameSpec spec;
        spec.dmac += pick(3);
        spec.destination += pick(2);
        spec.protocol = chance(3) ? 17 : 6;
        spec.ttl = static_cast<std::uint8_t>(1 + pick(2));
        if (chance(2)) spec.tcp_flags |= tracked::fin;
        spec.payload = 20 + pick(4);
        if (chance(5)) spec.tags.push_back(0x81000001);
        return make_frame(spec);
    }
    /// Batches of one flow, of two or of all; now and then something changes between two of them.
    void exchange_packets() {
        frames[pick(flows)] = random_frame();
        for (unsigned left = 4; left > 0; --left) {
            constexpr unsigned lengths[] = {1, 2, flows};
            const unsigned among = one_of(lengths);
            const unsigned length = chance(4) ? batch_length : poll_length;
            std::vector<Frame> batch;
            while (batch.size() < length) batch.push_back(frames[pick(among)]);
            const std::uint16_t port = one_of(Twin::sources);
            cached.send_batch(port, batch);
            walked.send_one_by_one(port, batch);
            if (chance(4)) both(&Twin::add_rule);
            if (chance(4)) both(&Twin::renew_state);
        }
    }
    void compare() {
        const std::vector<std::string> lines = cached.take_arrived();
        EXPECT_EQ(lines, walked.take_arrived());
        arrived += lines.size();
        cached.expect_state_of(walked);
    }

    static constexpr unsigned flows = 8;
    const unsigned in_use = mbufs_in_use();
    Twin cached{GetParam()}, walked{GetParam()};
    std::array<Frame, flows> frames;
    std::size_t arrived = 0;
};

TEST_P(TwinTest, PacketsOutOfTheFlowCacheFareAsThoseThatWalk) {
    for (Frame& frame : frames) frame = random_frame();
    for (unsigned left = 14; left > 0; --left) both(&Twin::add_matcher);
    for (unsigned left = 30; left > 0; --left) both(&Twin::add_rule);
    for (unsigned round = 0; round < 120 && !HasFailure(); ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        change_rules();
        exchange_packets();
        compare();
    }
    // They may agree neither by doing nothing nor by both doing the same.
    EXPECT_GT(arrived, 1000U);
    EXPECT_GT(cached.cache_use().hits, 1000U);
    EXPECT_EQ(walked.cache_use().hits, 0U);
}

#ifdef SANITIZED
constexpr unsigned twin_seeds = 3;
#else
constexpr unsigned twin_seeds = 15;
#endif
INSTANTIATE_TEST_SUITE_P(Seeds, TwinTest, ::testing::Range(1U, twin_seeds + 1));

}  // namespace
}  // namespace ovsdr::soft::test
