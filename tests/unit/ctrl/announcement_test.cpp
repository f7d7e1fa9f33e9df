// What other threads announce to the main loop.
#include "ctrl/announcement.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ovsdr {
namespace {

bool readable(const Announcement& announcement, int patience_ms = 0) {
    pollfd polled{.fd = announcement.fd(), .events = POLLIN, .revents = 0};
    return poll(&polled, 1, patience_ms) == 1;
}

TEST(Announcement, WithoutOneThereIsNothingToTake) {
    Announcement announcement;
    EXPECT_FALSE(readable(announcement));
    EXPECT_FALSE(announcement.take());
}

TEST(Announcement, IsTakenOnceAndReadableUntilThen) {
    Announcement announcement;
    for (unsigned round = 0; round < 3; ++round) {
        announcement.announce();
        EXPECT_TRUE(readable(announcement));
        EXPECT_TRUE(readable(announcement));
        EXPECT_TRUE(announcement.take());
        EXPECT_FALSE(readable(announcement));
        EXPECT_FALSE(announcement.take());
    }
}

TEST(Announcement, SeveralAreTakenAsOne) {
    Announcement announcement;
    for (unsigned i = 0; i < 5; ++i) announcement.announce();
    EXPECT_TRUE(announcement.take());
    EXPECT_FALSE(announcement.take());
    EXPECT_FALSE(readable(announcement));
}

/// Whoever sleeps on the descriptor sees what came before an announcement once it has taken it.
TEST(Announcement, WhoSleepsOnItMissesNone) {
    constexpr unsigned last = 20'000;
    Announcement announcement;
    std::atomic<unsigned> changes{0};
    std::thread announcer([&] {
        for (unsigned i = 1; i <= last; ++i) {
            changes.store(i, std::memory_order_relaxed);
            announcement.announce();
            if (i % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(i % 50));
        }
    });
    unsigned seen = 0;
    while (seen != last) {
        if (!readable(announcement, 10'000)) break;
        if (announcement.take()) seen = changes.load(std::memory_order_relaxed);
    }
    announcer.join();
    EXPECT_EQ(seen, last);
}

/// Otherwise whoever sleeps on the descriptor turns without a pause until the next announcement.
TEST(Announcement, WhatIsReadableCanBeTaken) {
    constexpr unsigned rounds = 200'000;
    Announcement announcement;
    std::atomic<unsigned> begun{0}, done{0};
    std::thread announcer([&] {
        for (unsigned round = 1; round <= rounds; ++round) {
            while (begun.load() != round) {
            }
            announcement.announce();
            for (unsigned i = 0; i < round % 400; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
            announcement.announce();
            done = round;
        }
    });
    unsigned stuck = 0;
    for (unsigned round = 1; round <= rounds; ++round) {
        begun = round;
        while (!announcement.take()) {
        }
        while (done.load() != round) (void)announcement.take();
        (void)announcement.take();
        if (!readable(announcement)) continue;
        ++stuck;
        announcement.announce();
        (void)announcement.take();
    }
    announcer.join();
    EXPECT_EQ(stuck, 0U) << "of " << rounds << " rounds";
}

}  // namespace
}  // namespace ovsdr
