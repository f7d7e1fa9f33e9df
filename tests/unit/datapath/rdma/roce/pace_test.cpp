// How much is on its way, and how long silence lasts, by figures worked out by hand.
#include "datapath/rdma/roce/pace.hpp"

#include <gtest/gtest.h>

namespace ovsdr::soft::roce {
namespace {

constexpr std::uint64_t millisecond = 1'000'000;
constexpr auto for_ever = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

/// A packet that was acknowledged after `time`.
void measure(Pace& pace, std::uint64_t time) {
    pace.sent(10, 1000);
    pace.arrived(11, 1, 1000 + time);
}

TEST(Pace, TheWindowHalvesWithALossAndGrowsWithWhatArrives) {
    Pace pace;
    EXPECT_EQ(pace.window(), 128U);
    pace.arrived(1, 100, 0);
    EXPECT_EQ(pace.window(), 128U) << "the widest";
    pace.lost();
    EXPECT_EQ(pace.window(), 64U);
    pace.lost();
    EXPECT_EQ(pace.window(), 32U);
    pace.lost();
    EXPECT_EQ(pace.window(), 32U) << "the narrowest";
    pace.arrived(1, 8, 0);
    EXPECT_EQ(pace.window(), 33U) << "an eighth, where it was lossy";
    pace.arrived(1, 9, 0);
    EXPECT_EQ(pace.window(), 35U) << "rounded up";
    pace.arrived(1, 1, 0);
    EXPECT_EQ(pace.window(), 36U);
    pace.arrived(1, 8000, 0);
    EXPECT_EQ(pace.window(), 128U);
}

TEST(Pace, AfterSilenceOnePacketGoesOutAndTheWindowOpensWithItsAcknowledgement) {
    Pace pace;
    pace.silence();
    EXPECT_EQ(pace.window(), 1U);
    pace.arrived(1, 1, 0);
    EXPECT_EQ(pace.window(), 2U);
    pace.arrived(1, 61, 0);
    EXPECT_EQ(pace.window(), 63U) << "packet for packet up to half of what it was";
    pace.arrived(1, 1, 0);
    EXPECT_EQ(pace.window(), 64U);
    pace.arrived(1, 8, 0);
    EXPECT_EQ(pace.window(), 65U);
}

TEST(Pace, PatienceIsTheRoundTripAndFourTimesItsVariation) {
    Pace pace;
    EXPECT_EQ(pace.patience(), for_ever);
    measure(pace, 2 * millisecond);
    EXPECT_EQ(pace.patience(), 6 * millisecond) << "a first time varies by its half";
    measure(pace, 6 * millisecond);
    EXPECT_EQ(pace.patience(), 9'500'000U) << "2.5 ms, and 4 * 1.75 ms";
    measure(pace, 500'000);
    // 0.75 * 1.75 ms + 0.25 * 2 ms; 0.875 * 2.5 ms + 0.125 * 0.5 ms
    EXPECT_EQ(pace.patience(), 2'250'000U + 4 * 1'812'500U);
}

TEST(Pace, PatienceIsAMillisecondAtLeastAndDoublesWithEachSilence) {
    Pace pace;
    measure(pace, 333'332);
    EXPECT_EQ(pace.patience(), millisecond);
    for (unsigned silences = 1; silences < 25; ++silences) {
        pace.silence();
        EXPECT_EQ(pace.patience(), millisecond << std::min(silences, 20U));
    }
    pace.arrived(100, 1, 0);
    EXPECT_EQ(pace.patience(), millisecond) << "progress ends it";
}

TEST(Pace, ARoundTripOfNoTimeIsKnownOnceOneWasMeasured) {
    Pace pace;
    measure(pace, 0);
    EXPECT_EQ(pace.patience(), for_ever);
    measure(pace, 1);
    measure(pace, 0);
    EXPECT_EQ(pace.patience(), millisecond);
}

TEST(Pace, OnePacketIsMeasuredAtATimeAndNoneThatMayHaveGoneTwice) {
    Pace pace;
    pace.sent(10, 1000);
    pace.sent(11, 900'000'000);
    pace.arrived(10, 1, 2'000);
    EXPECT_EQ(pace.patience(), for_ever) << "it is not acknowledged yet";
    pace.arrived(12, 2, 1000 + 4 * millisecond);
    EXPECT_EQ(pace.patience(), 12 * millisecond);
    pace.sent(20, 0);
    pace.lost();
    pace.arrived(21, 1, 900 * millisecond);
    EXPECT_EQ(pace.patience(), 12 * millisecond);
    pace.sent(0xffffff, 0);
    pace.arrived(0, 1, 4 * millisecond);
    EXPECT_EQ(pace.patience(), 4 * millisecond + 4 * 1'500'000U) << "numbers wrap";
}

}  // namespace
}  // namespace ovsdr::soft::roce
