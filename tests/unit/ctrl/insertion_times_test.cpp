#include "ctrl/insertion_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace ovsdr::ctrl {
namespace {

std::uint64_t count_of(const InsertionHistogram& histogram) {
    return std::reduce(histogram.buckets.begin(), histogram.buckets.end());
}

TEST(InsertionTimes, CountsInTheFirstBucketThatIsWideEnough) {
    for (const std::uint64_t nanoseconds : {std::uint64_t{0}, insertion_bounds[0], insertion_bounds[0] + 1,
                                            insertion_bounds.back(), insertion_bounds.back() + 1}) {
        count_insertion(OVSDR_PUT_FAILED, nanoseconds);
    }
    const auto counted = insertion_times(OVSDR_PUT_FAILED);
    EXPECT_EQ(counted.buckets[0], 2);
    EXPECT_EQ(counted.buckets[1], 1);
    EXPECT_EQ(counted.buckets[insertion_bounds.size() - 1], 1);
    EXPECT_EQ(counted.buckets[insertion_bounds.size()], 1);
    EXPECT_EQ(count_of(counted), 5);
    EXPECT_EQ(counted.nanoseconds, 2 * insertion_bounds[0] + 1 + 2 * insertion_bounds.back() + 1);
}

TEST(InsertionTimes, BoundsAscend) {
    EXPECT_TRUE(std::ranges::is_sorted(insertion_bounds));
}

TEST(InsertionTimes, AddsUpThreadsThatAreGoneToo) {
    constexpr unsigned threads = 4, times = 10'000;
    std::vector<std::thread> running;
    for (unsigned i = 0; i < threads; ++i) {
        running.emplace_back([] {
            for (unsigned time = 0; time < times; ++time) count_insertion(OVSDR_PUT_REJECTED, 7);
        });
    }
    // Whoever reads meanwhile sees no more than there is.
    EXPECT_LE(count_of(insertion_times(OVSDR_PUT_REJECTED)), threads * times);
    for (std::thread& thread : running) thread.join();
    const auto counted = insertion_times(OVSDR_PUT_REJECTED);
    EXPECT_EQ(count_of(counted), threads * times);
    EXPECT_EQ(counted.nanoseconds, 7 * threads * times);
}

TEST(InsertionTimes, TimesFromBeginToEndByOutcome) {
    const std::uint64_t began = ovsdr_insertion_begins();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    ovsdr_insertion_ends(began, OVSDR_PUT_INSTALLED);
    ovsdr_insertion_ends(began, OVSDR_PUT_NOWHERE);
    const auto counted = insertion_times(OVSDR_PUT_INSTALLED);
    EXPECT_EQ(count_of(counted), 1);
    EXPECT_GE(counted.nanoseconds, 3'000'000);
}

}  // namespace
}  // namespace ovsdr::ctrl
