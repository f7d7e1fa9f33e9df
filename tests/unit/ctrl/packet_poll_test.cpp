// The main loop's sleep, which packets end and which goes on behind them.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/ctrl/packet_poll_probe.h"

namespace {

constexpr auto never = std::numeric_limits<long long>::max();
constexpr auto at_once = std::numeric_limits<long long>::min();

dpif* datapath(std::uintptr_t number) { return reinterpret_cast<dpif*>(number); }

/// What ends one of OVS's sleeps: of two ports and of one other descriptor.
struct Wake {
    bool packets = false, others = false, second = false;
    long long after_us = 0;
    int error = 0;
};

/// Two ports of datapath 1, and what is played.
class PacketPoll : public ::testing::Test {
protected:
    PacketPoll() {
        now = this;
        probe_now_us = 1'000'000'000;
        const packet_poll_parts parts{
            .run = [](dpif* of, bool gate_is_closed) { return now->run(of, gate_is_closed); },
            .wait = [](dpif* of) { now->waits_ |= of == datapath(1); },
            .sleep = [](pollfd* those, int, long long until) { return now->sleep(those, until); },
            .received = [] { return std::exchange(now->received_, 0U); },
            .waits = [] { return now->waits_; },
            .wait_again = [] {
                now->log_ += 'a';
                return now->armed_;
            },
            .woke = [] {
                now->waits_ = false;
                now->log_ += 'w';
            },
            .sent = [] { now->log_ += 'e'; },
        };
        probe_packet_poll_parts(&parts);
    }
    ~PacketPoll() override {
        probe_packet_poll_run(datapath(1));   // nothing is left for the next test
        now = nullptr;
    }

    /// A trip through the main loop that ends with a sleep.
    int loop(std::vector<Wake> wakes, long long until = never) {
        wakes_ = std::move(wakes);
        slept_.clear();
        runs_ = 0;
        log_.clear();
        probe_packet_poll_wait(datapath(2));
        probe_packet_poll_wait(datapath(1));
        probe_packet_poll_wait(datapath(2));
        return poll(until);
    }

    int poll(long long until) {
        those_ = {{{.fd = 10, .events = POLLIN, .revents = 0},
                   {.fd = 11, .events = probe_packets_in, .revents = 0},
                   {.fd = 12, .events = probe_packets_in, .revents = 0}}};
        const bool nested = std::exchange(asleep_, true);
        const int result = probe_packet_poll(those_.data(), static_cast<int>(those_.size()), until, &elapsed_);
        asleep_ = nested;
        return result;
    }

    static inline PacketPoll* now = nullptr;
    std::function<bool()> on_run_ = [] { return false; };
    bool armed_ = true;        ///< what wait_again() says
    unsigned received_ = 0;
    std::vector<Wake> wakes_;  ///< to come
    std::vector<long long> slept_;   ///< until when
    std::array<pollfd, 3> those_{};  ///< the other descriptor, and the two of ports
    std::string log_;                ///< sleep, run, wait again, sent, woke: a letter each
    unsigned runs_ = 0;
    int elapsed_ = 0;
    bool waits_ = false;
    bool asleep_ = false;

private:
    bool run(dpif* of, bool gate_is_closed) {
        if (of != datapath(1)) return false;
        EXPECT_EQ(gate_is_closed, asleep_) << "the loop closes the gate itself";
        ++runs_;
        log_ += 'r';
        return on_run_();
    }

    int sleep(pollfd* those, long long until) {
        slept_.push_back(until);
        log_ += 's';
        Wake wake;
        if (!wakes_.empty()) {
            wake = wakes_.front();
            wakes_.erase(wakes_.begin());
        }
        probe_now_us += wake.after_us;
        if (wake.error) return -wake.error;
        those[0].revents = wake.others ? POLLIN : 0;
        those[1].revents = wake.packets ? POLLIN | POLLRDNORM : 0;
        those[2].revents = wake.second ? POLLIN | POLLRDNORM : 0;
        return static_cast<int>(wake.packets) + static_cast<int>(wake.others) + static_cast<int>(wake.second);
    }
};

TEST_F(PacketPoll, TakesPacketsAndSleepsOnUntilSomethingElseHappens) {
    EXPECT_EQ(loop({{.packets = true}, {.packets = true}, {.others = true}}), 1);
    EXPECT_EQ(runs_, 2U);
    EXPECT_EQ(slept_, (std::vector<long long>{never, 1'000'002, 1'000'002}));
    EXPECT_EQ(elapsed_, 3);
    EXPECT_EQ(log_, "srasrasew") << "sent last: an offload thread waits for it";
}

TEST_F(PacketPoll, TakesPacketsFirstWhereSomethingElseHasHappenedToo) {
    on_run_ = [this] {
        received_ = 1;
        return false;
    };
    EXPECT_EQ(loop({{.packets = true, .others = true}}), 2);
    EXPECT_EQ(runs_, 1U) << "but once: the loop takes the others itself";
    EXPECT_EQ(slept_.size(), 1U);
    EXPECT_EQ(loop({{.packets = true}}, at_once), 1);
    EXPECT_EQ(runs_, 1U);
    on_run_ = [] { return false; };
    EXPECT_FALSE(probe_packet_poll_run(datapath(1)));
    EXPECT_EQ(runs_, 2U) << "not again for what has been taken already";
}

TEST_F(PacketPoll, LeavesTheLoopWithoutItsTripForTwoMillisecondsAtMost) {
    EXPECT_EQ(loop({{.packets = true}}), 1);
    EXPECT_EQ(slept_, (std::vector<long long>{never, 1'000'002}));
    EXPECT_NE(those_[1].revents, 0) << "packets have ended the sleep, not the loop's next time";
    EXPECT_EQ(those_[0].revents | those_[2].revents, 0);
    EXPECT_EQ(loop({{.second = true}, {.packets = true}}), 1);
    EXPECT_NE(those_[2].revents, 0);
    EXPECT_EQ(those_[0].revents | those_[1].revents, 0) << "the first of them";

    EXPECT_EQ(loop(std::vector<Wake>(1000, {.packets = true, .after_us = 100})), 1);
    EXPECT_EQ(runs_, 20U) << "of which the last one finds that it is time";
}

TEST_F(PacketPoll, SleepsNoLongerThanTheLoopWantsTo) {
    EXPECT_EQ(loop({{.packets = true}}, 1'000'001), 0) << "the loop's time";
    EXPECT_EQ(slept_, (std::vector<long long>{1'000'001, 1'000'001}));
    EXPECT_EQ(loop({{.packets = true}}, at_once), 1);
    EXPECT_EQ(slept_.size(), 1U) << "the loop waits for nothing";
    EXPECT_EQ(runs_, 1U);
}

TEST_F(PacketPoll, RunsAgainWherePacketsAreThereAlreadyAndSeesWhatElseHappens) {
    armed_ = false;
    EXPECT_EQ(loop({{.packets = true}, {}, {}, {.others = true}}), 1);
    EXPECT_EQ(runs_, 4U);
    EXPECT_EQ(slept_, (std::vector<long long>{never, at_once, at_once, at_once}));

    on_run_ = [this] {
        probe_now_us += 1000;
        return false;
    };
    EXPECT_EQ(loop({{.packets = true, .second = true}}), 1);
    EXPECT_EQ(runs_, 3U) << "nor for longer than two milliseconds";
    EXPECT_NE(those_[1].revents | those_[2].revents, 0);
    on_run_ = [] { return false; };
}

TEST_F(PacketPoll, RunsAgainBehindPacketsThatItHasReceived) {
    on_run_ = [this] {
        received_ = runs_ <= 3;
        return false;
    };
    loop({{.packets = true}});
    EXPECT_EQ(runs_, 4U);
}

TEST_F(PacketPoll, RunsNoLongerThanHalfAMillisecondAndSoManyTimes) {
    long long run_takes = 100;
    on_run_ = [&] {
        received_ = 1;
        probe_now_us += run_takes;
        return false;
    };
    EXPECT_FALSE(probe_packet_poll_run(datapath(1)));
    EXPECT_EQ(runs_, 6U);
    run_takes = runs_ = 0;
    EXPECT_FALSE(probe_packet_poll_run(datapath(1)));
    EXPECT_EQ(runs_, 17U);
    on_run_ = [] { return false; };
}

TEST_F(PacketPoll, SleepsAsEverWhereNoPortWaits) {
    wakes_ = {{.packets = true}, {.packets = true}};
    probe_packet_poll_wait(datapath(2));
    EXPECT_EQ(poll(never), 1);
    EXPECT_EQ(runs_, 0U);
    EXPECT_EQ(loop({{.others = true}}), 1);
    wakes_ = {{.packets = true}};
    EXPECT_EQ(poll(never), 1);
    EXPECT_EQ(runs_, 0U) << "the ports' waits are over";
}

TEST_F(PacketPoll, TellsTheLoopOfAChangeInItsSleep) {
    on_run_ = [] { return true; };
    EXPECT_EQ(loop({{.packets = true}, {.packets = true}}), 1);
    EXPECT_EQ(runs_, 1U) << "the loop is to hear of it";
    on_run_ = [] { return false; };
    EXPECT_FALSE(probe_packet_poll_run(datapath(2))) << "another datapath has not changed";
    EXPECT_TRUE(probe_packet_poll_run(datapath(1)));
    EXPECT_FALSE(probe_packet_poll_run(datapath(1))) << "told";
}

TEST_F(PacketPoll, ForgetsAChangeOfADatapathThatIsClosed) {
    on_run_ = [] { return true; };
    loop({{.packets = true}});
    on_run_ = [] { return false; };
    probe_packet_poll_forget(datapath(2));
    loop({{.packets = true}, {.packets = true}});
    EXPECT_EQ(runs_, 1U) << "the loop has not heard of it yet";
    probe_packet_poll_forget(datapath(1));
    loop({{.packets = true}, {.packets = true}});
    EXPECT_EQ(runs_, 2U);
    EXPECT_FALSE(probe_packet_poll_run(datapath(1)));
}

TEST_F(PacketPoll, TellsOfASleepThatFails) {
    EXPECT_EQ(loop({{.error = EINVAL}}), -EINVAL);
    EXPECT_EQ(runs_, 0U);
    EXPECT_EQ(loop({{.packets = true}, {.error = EINVAL}}), -EINVAL);
    EXPECT_EQ(runs_, 1U);
}

TEST_F(PacketPoll, LeavesASleepWithinTheRunAlone) {
    on_run_ = [this] {
        if (runs_ == 1) {
            wakes_ = {{.packets = true}, {.packets = true}};
            EXPECT_EQ(poll(never), 1);
            EXPECT_EQ(runs_, 1U) << "a run within the run";
            EXPECT_EQ(log_, "srs");
        }
        return false;
    };
    EXPECT_EQ(loop({{.packets = true}}), 1);
    EXPECT_EQ(runs_, 1U) << "what the loop waits for may have been forgotten in there";
    EXPECT_EQ(log_, "srsew");
    on_run_ = [] { return false; };
    loop({{.packets = true}, {.packets = true}});
    EXPECT_EQ(runs_, 2U) << "the next sleep is as the first";
}

}  // namespace
