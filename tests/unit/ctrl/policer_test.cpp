// How much the slow path's policer lets pass, to the frame.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>

#include "tests/unit/ctrl/policer_probe.h"

namespace {

struct FreePolicer {
    void operator()(policer* one) const { probe_policer_free(one); }
};

class Policer : public ::testing::Test {
protected:
    bool set(std::uint32_t kbits, std::uint32_t kbits_burst, std::uint32_t kpkts = 0, std::uint32_t kpkts_burst = 0) {
        return probe_policer_set(policer_.get(), kbits, kbits_burst, kpkts, kpkts_burst);
    }
    /// How many of so many frames pass that arrive at this moment.
    unsigned pass(unsigned frames, std::uint32_t size, long long now_us) {
        unsigned passed = 0;
        for (unsigned i = 0; i < frames; ++i) passed += probe_policer_passes(policer_.get(), size, now_us);
        return passed;
    }

    std::unique_ptr<policer, FreePolicer> policer_{probe_policer_new()};
    static constexpr long long now = 1'000'000'000;
    static constexpr std::uint32_t kilobit = 125;   ///< bytes
};

TEST_F(Policer, LetsEverythingPassWithoutARate) {
    EXPECT_FALSE(set(0, 1, 0, 1));
    EXPECT_EQ(pass(100'000, 1500, now), 100'000U);
    EXPECT_EQ(probe_policer_dropped(policer_.get()), 0U);
}

TEST_F(Policer, BeginsWithAFullBucketAndFillsItAtTheRate) {
    EXPECT_TRUE(set(1000, 20));
    EXPECT_EQ(pass(50, kilobit, now), 20U);
    EXPECT_EQ(pass(50, kilobit, now + 999), 0U) << "a kilobit takes a millisecond";
    EXPECT_EQ(pass(50, kilobit, now + 1000), 1U);
    EXPECT_EQ(pass(50, kilobit, now + 8000), 7U);
    EXPECT_EQ(pass(50, kilobit, now + 3'600'000'000), 20U) << "no more than the bucket holds";
    EXPECT_EQ(probe_policer_dropped(policer_.get()), 5 * 50U - 20 - 1 - 7 - 20);
}

TEST_F(Policer, CountsPackets) {
    EXPECT_TRUE(set(0, 0, 2, 1));
    EXPECT_EQ(pass(3000, 9000, now), 1000U);
    EXPECT_EQ(pass(3000, 60, now + 10'000), 20U);
}

TEST_F(Policer, HasTheBurstsOfTheManualUnlessOthersAreSet) {
    EXPECT_TRUE(set(1, 0));
    EXPECT_EQ(pass(9000, kilobit, now), 8000U);
    EXPECT_TRUE(set(0, 0, 1, 0));
    EXPECT_EQ(pass(20'000, 60, now), 16'000U);
}

TEST_F(Policer, TakesNothingForAFrameThatItDrops) {
    EXPECT_TRUE(set(1000, 4, 1, 1));
    EXPECT_EQ(pass(1000, 5 * kilobit, now), 0U) << "too long for the bucket of bits";
    EXPECT_EQ(pass(10, kilobit, now), 4U);
    EXPECT_EQ(pass(1000, 0, now), 996U) << "tokens of packets";
}

TEST_F(Policer, KeepsItsBucketsWhenTheSameIsSetAgain) {
    set(1000, 20);
    EXPECT_EQ(pass(20, kilobit, now), 20U);
    EXPECT_TRUE(set(1000, 20));
    EXPECT_EQ(pass(1, kilobit, now), 0U);
    EXPECT_TRUE(set(1000, 21));
    EXPECT_EQ(pass(30, kilobit, now), 21U);
    EXPECT_FALSE(set(0, 21));
    EXPECT_EQ(pass(30, kilobit, now), 30U);
}

TEST_F(Policer, DoesNotOverflow) {
    constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
    EXPECT_TRUE(set(most, most, most, most));
    EXPECT_EQ(pass(1000, 65536, now), 1000U);
    EXPECT_EQ(pass(1000, 65536, std::numeric_limits<long long>::max() / 2), 1000U);
}

TEST_F(Policer, IgnoresAClockThatWasReadEarlier) {
    set(1000, 20);
    EXPECT_EQ(pass(30, kilobit, now), 20U);
    EXPECT_EQ(pass(30, kilobit, now - 500'000), 0U);
    EXPECT_EQ(pass(30, kilobit, now + 1000), 1U);
}

}  // namespace
