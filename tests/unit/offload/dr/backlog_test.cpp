// Who waits for the device, in which order it is tried, and who waits for a table instead.
#include "offload/dr/backlog.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ovsdr::dr {
namespace {

using Attempt = Backlog::Attempt;
using std::chrono::milliseconds;

constexpr TableKey none{}, seven{7}, eight{8}, nine{9};

/// Megaflows by a number, what the device says to each, and who has been tried. The device takes nothing until it is
/// told otherwise; while it is held, the thread of the Backlog waits in its first attempt.
class BacklogTest : public ::testing::Test {
protected:
    void TearDown() override {
        release();
        backlog_.end();
        places_.clear();
    }

    void join(std::uint64_t number, bool asked) {
        std::lock_guard lock(places_mutex_);
        places_[number] = backlog_.join(Ufid{number, 0}, asked);
    }
    void park(std::uint64_t number, Backlog::Awaited awaited, std::optional<Backlog::Time> until = std::nullopt) {
        std::lock_guard lock(places_mutex_);
        places_[number] = backlog_.park(Ufid{number, 0}, awaited, until);
    }
    /// As many that are refused as a round tries, all of them in the first one.
    void join_for_whole_rounds() {
        hold();
        join(1, true);
        ASSERT_TRUE(tried(1));
        for (std::uint64_t number = 2; number <= Backlog::failures_per_round; ++number) join(number, true);
        release();
    }
    void leave(std::uint64_t number) {
        std::lock_guard lock(places_mutex_);
        places_[number].leave();
    }
    bool is_parked(std::uint64_t number) {
        std::lock_guard lock(places_mutex_);
        return places_[number].is_parked();
    }
    void takes(std::uint64_t number) { answers(number, Attempt::taken); }
    void answers(std::uint64_t number, Attempt attempt) {
        std::lock_guard lock(mutex_);
        answers_[number] = attempt;
    }
    /// What an attempt does beside its answer.
    void on_attempt(std::function<void(std::uint64_t)> done) {
        std::lock_guard lock(mutex_);
        on_attempt_ = std::move(done);
    }

    void hold() {
        std::lock_guard lock(mutex_);
        held_ = true;
    }
    void release() {
        {
            std::lock_guard lock(mutex_);
            held_ = false;
        }
        changed_.notify_all();
    }
    /// Long enough for any machine.
    bool tried(std::size_t attempts) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return tried_.size() >= attempts; });
    }
    std::vector<std::uint64_t> order() {
        std::lock_guard lock(mutex_);
        return tried_;
    }
    /// Whoever is taken leaves the line a moment after its attempt.
    bool empties() {
        const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
        while (backlog_.length() != 0 && std::chrono::steady_clock::now() < end) {
            std::this_thread::sleep_for(milliseconds(1));
        }
        return backlog_.length() == 0;
    }
    bool was_tried(std::uint64_t number) { return std::ranges::count(order(), number) != 0; }

    Attempt attempt(std::uint64_t number) {
        std::unique_lock lock(mutex_);
        tried_.push_back(number);
        times_.push_back(std::chrono::steady_clock::now());
        changed_.notify_all();
        changed_.wait(lock, [this] { return !held_; });
        const Attempt answer = answers_.contains(number) ? answers_[number] : Attempt::refused;
        const auto also = on_attempt_;
        lock.unlock();
        if (also) also(number);
        if (answer != Attempt::refused) leave(number);   // as EswitchImpl does
        return answer;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool held_ = false;
    std::map<std::uint64_t, Attempt> answers_;
    std::function<void(std::uint64_t)> on_attempt_;
    std::vector<std::uint64_t> tried_;
    std::vector<Backlog::Time> times_;
    std::mutex places_mutex_;   ///< whoever is tried has its place by then
    std::map<std::uint64_t, Backlog::Place> places_;
    Backlog backlog_{[this](const Ufid& ufid) { return attempt(ufid[0]); }};
};

/// How often the thread of the Backlog has gone to sleep, by proc(5); nothing while it is awake.
std::optional<std::uint64_t> sleeps() {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(task.path() / "status");
        std::map<std::string, std::string> status;
        for (std::string name, value; std::getline(file, name, ':') && std::getline(file >> std::ws, value);) {
            status[name] = value;
        }
        if (status["Name"] != "dr-backlog") continue;
        if (!status["State"].starts_with('S')) return std::nullopt;
        return std::stoull(status["voluntary_ctxt_switches"]);
    }
    return std::nullopt;
}

/// 1 is refused and stands behind all others that were, until the next round; of those nobody asked for, the newest
/// comes first.
TEST_F(BacklogTest, TheNewestComesFirstAndTakesTurnsWithThoseThatWereRefused) {
    hold();
    join(1, false);
    ASSERT_TRUE(tried(1));
    for (const std::uint64_t number : {2, 3, 4}) join(number, false);
    for (const std::uint64_t number : {5, 6}) join(number, true);
    EXPECT_EQ(backlog_.length(), 6U);
    for (const std::uint64_t number : {2, 3, 4, 5, 6}) takes(number);
    release();
    ASSERT_TRUE(tried(7));
    const auto attempts = order();
    EXPECT_EQ(std::vector(attempts.begin(), attempts.begin() + 7), (std::vector<std::uint64_t>{1, 5, 4, 6, 3, 2, 1}));
}

TEST_F(BacklogTest, OneThatIsRefusedIsTriedUntilItIsTaken) {
    join(1, false);
    ASSERT_TRUE(tried(3));
    EXPECT_EQ(backlog_.length(), 1U);
    takes(1);
    while (backlog_.length() != 0) std::this_thread::sleep_for(milliseconds(1));
    const std::size_t attempts = order().size();
    std::this_thread::sleep_for(milliseconds(60));
    EXPECT_EQ(order().size(), attempts) << "it has left";
}

TEST_F(BacklogTest, OneThatIsRefusedAloneIsTriedOnceARound) {
    join(1, true);
    constexpr std::size_t with_shortest_rest = Backlog::failures_per_round;
    ASSERT_TRUE(tried(with_shortest_rest + 2));
    std::lock_guard lock(mutex_);
    for (std::size_t i = 1; i < times_.size(); ++i) {
        const auto rest = i < with_shortest_rest ? Backlog::shortest_rest : 2 * Backlog::shortest_rest;
        EXPECT_GE(times_[i] - times_[i - 1], rest) << i;
    }
}

/// Eight attempts a round, then a rest that doubles.
TEST_F(BacklogTest, ADeviceThatIsFullGetsLongerAndLongerRests) {
    join_for_whole_rounds();
    constexpr std::size_t rounds = 5;
    ASSERT_TRUE(tried(rounds * Backlog::failures_per_round + 1));
    std::lock_guard lock(mutex_);
    auto rest = Backlog::shortest_rest;
    for (std::size_t round = 1; round <= rounds; ++round, rest *= 2) {
        const std::size_t first = round * Backlog::failures_per_round;
        EXPECT_GE(times_[first] - times_[first - 1], std::min(2 * rest, Backlog::longest_rest)) << round;
    }
}

TEST_F(BacklogTest, WhoeverGivesUpItsPlaceWhileItIsTriedIsNotPutBack) {
    on_attempt([this](std::uint64_t number) { leave(number); });
    join(1, false);
    ASSERT_TRUE(tried(1));
    while (backlog_.length() != 0) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(60));
    EXPECT_EQ(order().size(), 1U);
}

TEST_F(BacklogTest, APlaceThatIsLeftIsNobodysTurn) {
    hold();
    join(1, true);
    ASSERT_TRUE(tried(1));
    join(2, true);
    join(3, true);
    leave(2);
    leave(2);
    EXPECT_EQ(backlog_.length(), 2U);
    for (const std::uint64_t number : {1, 3}) takes(number);
    release();
    ASSERT_TRUE(tried(2));
    EXPECT_EQ(order(), (std::vector<std::uint64_t>{1, 3}));
}

TEST_F(BacklogTest, WhoIsParkedIsTriedWhenItsTableOrItsOwnChanges) {
    for (std::uint64_t number = 1; number <= 4; ++number) takes(number);
    park(1, {seven, none});
    park(2, {eight, seven});
    park(3, {eight, none});
    EXPECT_TRUE(is_parked(1));
    EXPECT_EQ(backlog_.length(), 0U);
    backlog_.unpark(nine);
    std::this_thread::sleep_for(milliseconds(60));
    EXPECT_TRUE(order().empty()) << "nobody waits for that";
    backlog_.unpark(seven);
    ASSERT_TRUE(tried(2));
    EXPECT_TRUE(was_tried(1) && was_tried(2));
    EXPECT_TRUE(is_parked(3));
    backlog_.unpark(eight);
    ASSERT_TRUE(tried(3));
    EXPECT_TRUE(was_tried(3));
}

TEST_F(BacklogTest, OneOfSeveralThatAreParkedTogetherLeavesAlone) {
    for (std::uint64_t number = 1; number <= 3; ++number) {
        takes(number);
        park(number, {seven, none});
    }
    leave(1);
    leave(3);
    backlog_.unpark(seven);
    ASSERT_TRUE(tried(1));
    EXPECT_EQ(order(), std::vector<std::uint64_t>{2});
    park(4, {seven, none});
    leave(4);
    backlog_.unpark(seven);
    EXPECT_TRUE(empties());
    EXPECT_EQ(order(), std::vector<std::uint64_t>{2}) << "nobody else was there";
}

TEST_F(BacklogTest, WhoLeavesTheParkAndIsRefusedStandsInLine) {
    park(1, {seven, none});
    backlog_.unpark(seven);
    ASSERT_TRUE(tried(1));
    EXPECT_FALSE(is_parked(1));
    EXPECT_EQ(backlog_.length(), 1U);
    EXPECT_TRUE(tried(2)) << "again and again";
}

/// The earliest time counts for all that wait for the table; it is told of once.
TEST_F(BacklogTest, WhoIsParkedUntilATimeIsTriedThenWithTheOthersOfItsTable) {
    const auto now = std::chrono::steady_clock::now(), later = now + std::chrono::hours(1);
    for (std::uint64_t number = 1; number <= 4; ++number) takes(number);
    park(1, {seven, none}, later);
    park(2, {eight, none}, later);
    park(3, {seven, none}, now + milliseconds(80));
    park(4, {seven, none}, later);
    ASSERT_TRUE(tried(3));
    EXPECT_GE(std::chrono::steady_clock::now(), now + milliseconds(80));
    EXPECT_TRUE(was_tried(1) && was_tried(3) && was_tried(4));
    EXPECT_TRUE(is_parked(2));
    park(1, {seven, none});
    std::this_thread::sleep_for(milliseconds(60));
    EXPECT_TRUE(is_parked(1)) << "that time has passed";
}

TEST_F(BacklogTest, ATimeThatHasPassedIsNow) {
    takes(1);
    park(1, {seven, none}, std::chrono::steady_clock::now() - std::chrono::hours(1));
    EXPECT_TRUE(tried(1));
}

TEST_F(BacklogTest, WhoHasNoPlaceIsNotParked) {
    EXPECT_FALSE(Backlog::Place().is_parked());
    join(1, true);
    EXPECT_FALSE(is_parked(1));
}

TEST_F(BacklogTest, EightFailuresInARowAreAFullDevice) {
    for (unsigned i = 1; i < Backlog::full_after; ++i) backlog_.refused(Error{ENOMEM, "first"}, false);
    EXPECT_FALSE(backlog_.is_full());
    backlog_.refused(Error{ENOMEM, "last"}, false);
    EXPECT_TRUE(backlog_.is_full());
    const Error full = backlog_.full();
    EXPECT_EQ(full.code, ENOSPC);
    EXPECT_EQ(full.what, "the device took none of the last megaflows: last");
    backlog_.taken();
    EXPECT_FALSE(backlog_.is_full());
}

/// It may need what nobody else needs.
TEST_F(BacklogTest, OneThatIsTriedAgainInVainMakesNoDeviceFull) {
    for (unsigned i = 0; i < 2 * Backlog::full_after; ++i) backlog_.refused(Error{ENOMEM, "again"}, true);
    EXPECT_FALSE(backlog_.is_full());
    for (unsigned i = 0; i < Backlog::full_after; ++i) backlog_.refused(Error{ENOMEM, "first"}, false);
    backlog_.refused(Error{ENOMEM, "again"}, true);
    EXPECT_TRUE(backlog_.is_full());
    EXPECT_EQ(backlog_.full().what, "the device took none of the last megaflows: again");
}

/// Room in the device cuts a rest short that had grown to a second.
TEST_F(BacklogTest, RoomEndsALongRest) {
    join_for_whole_rounds();
    constexpr std::size_t until_long = 6;   // rests of 40 to 1,000 ms
    bool cut = false;
    for (std::size_t round = until_long; !cut && round < until_long + 20; ++round) {
        const std::size_t end = round * Backlog::failures_per_round;
        ASSERT_TRUE(tried(end));
        std::this_thread::sleep_for(milliseconds(5));
        backlog_.room();
        ASSERT_TRUE(tried(end + 1));
        std::lock_guard lock(mutex_);
        cut = times_[end] - times_[end - 1] < Backlog::longest_rest / 2;   // not on a machine that is very busy
    }
    EXPECT_TRUE(cut);
}

/// Longer than the longest rest: a thread that rests wakes in between.
TEST_F(BacklogTest, SleepsAsLongAsNobodyWaits) {
    takes(1);
    join(1, false);
    ASSERT_TRUE(tried(1));
    std::optional<std::uint64_t> before, now;
    do {
        before = sleeps();
        std::this_thread::sleep_for(milliseconds(50));
        now = sleeps();
    } while (!now || now != before || backlog_.length() != 0);
    std::this_thread::sleep_for(Backlog::longest_rest + milliseconds(200));
    EXPECT_EQ(sleeps(), now);
}

TEST_F(BacklogTest, NothingIsTriedAfterTheEnd) {
    backlog_.end();
    join(1, false);
    backlog_.room();
    std::this_thread::sleep_for(milliseconds(60));
    EXPECT_TRUE(order().empty());
}

}  // namespace
}  // namespace ovsdr::dr
