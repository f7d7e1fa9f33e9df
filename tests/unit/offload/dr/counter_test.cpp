// The pool of counters alone, on the recording provider: what becomes of queries and bulks that fail, and that a
// counter stays what it was wherever it is moved.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "offload/dr/device/device.hpp"
#include "offload/dr/install/counter.hpp"
#include "tests/unit/offload/dr/eswitch_fixture.hpp"

namespace ovsdr::dr {
namespace {

constexpr std::uint8_t bulks_of_128 = 1, single_counters = 0;
constexpr auto query = "mlx5dv_devx_obj_query";

class Counters : public ::testing::Test {
protected:
    void SetUp() override { FakeProvider::reset(); }
    void TearDown() override {
        counters_.clear();
        pool_.reset();
        EXPECT_EQ(FakeProvider::alive(), 0U);
        EXPECT_EQ(FakeProvider::violations(), std::vector<std::string>{});
    }
    void open(std::uint8_t bulks) {
        auto device = Device::open("fake_0");
        ASSERT_TRUE(device);
        DeviceCaps caps;
        caps.counter_bulks = bulks;
        auto pool = CounterPool::create(std::move(*device), caps);
        ASSERT_TRUE(pool);
        pool_ = std::move(*pool);
    }
    void acquire(unsigned length, bool polled) {
        for (unsigned i = 0; i < length; ++i) {
            auto counter = pool_->acquire(0, polled);
            ASSERT_TRUE(counter) << counter.error().what;
            counters_.push_back(std::move(*counter));
        }
    }
    /// Longer than what is read again is left alone.
    static void wait_a_moment() { std::this_thread::sleep_for(2 * CounterPool::moment); }
    /// How many more failed queries the pool has counted after `ask`, of which the device refuses `times` from the
    /// `n`-th on.
    std::uint64_t failures_of(unsigned n, unsigned times, const std::function<void()>& ask) const {
        wait_a_moment();
        const std::uint64_t before = pool_->failed_polls();
        FakeProvider::fail_call(n, EIO, times);
        ask();
        FakeProvider::fail_call(0, 0);
        return pool_->failed_polls() - before;
    }

    std::unique_ptr<CounterPool> pool_;
    std::vector<Counter> counters_;
};

/// Nobody polls here: a failure is of who asked.
TEST_F(Counters, EachQueryThatFailsIsCountedOnceWhoeverAsked) {
    open(bulks_of_128);
    acquire(129, false);
    const Counter* const both[] = {&counters_.front(), &counters_.back()};
    const std::vector<std::pair<std::string, std::function<void()>>> ways{
        {"one of each bulk", [&] { pool_->read_now(both); }},
        {"all", [&] { pool_->bring_up_to_date(); }},
        {"one by one", [&] {
             (void)pool_->read_now(*both[0]);
             (void)pool_->read_now(*both[1]);
         }},
        {"when it is looked at", [&] {
             both[0]->bring_up_to_date();
             both[1]->bring_up_to_date();
         }}};
    for (const auto& [way, ask] : ways) {
        SCOPED_TRACE(way);
        EXPECT_EQ(failures_of(0, 0, ask), 0U);
        EXPECT_EQ(failures_of(1, 1, ask), 1U);
        EXPECT_EQ(failures_of(2, 1, ask), 1U);
        EXPECT_EQ(failures_of(1, 2, ask), 2U);
        EXPECT_EQ(failures_of(0, 0, ask), 0U);
    }
}

/// It is asked twice, and what fails both times is one failure.
TEST_F(Counters, OfThoseThatLeaveABulkFailsWhenItsSecondQueryDoesToo) {
    open(bulks_of_128);
    const auto leave = [&] {
        std::vector<FlowStats> counted(counters_.size());
        std::vector<CounterPool::Leaving> leaving;
        for (std::size_t i = 0; i < counters_.size(); ++i) leaving.push_back({&counters_[i], &counted[i]});
        pool_->give_back(leaving);
        for (const Counter& counter : counters_) EXPECT_FALSE(counter);
    };
    const struct {
        unsigned n, times, failed;
    } cases[] = {{0, 0, 0}, {1, 1, 0}, {2, 1, 0}, {1, 2, 1}, {2, 2, 1}, {1, 4, 2}};
    for (const auto& [n, times, failed] : cases) {
        counters_.clear();
        acquire(129, false);
        EXPECT_EQ(failures_of(n, times, leave), failed) << times << " from query " << n << " on";
    }
}

TEST_F(Counters, ThePollerCountsEachFailureAndGoesOn) {
    open(bulks_of_128);
    acquire(129, true);
    FakeProvider::fail_call(1, EIO, 2);
    ASSERT_TRUE(becomes([&] { return pool_->failed_polls() != 0; }));
    FakeProvider::count(counters_.back().id(), 3, 300);
    ASSERT_TRUE(becomes([&] { return counters_.back().read().packets == 3; }));
    EXPECT_EQ(FakeProvider::failed_call(), query);
    EXPECT_EQ(pool_->failed_polls(), 2U) << "one of each bulk";
}

TEST_F(Counters, AFailureLeavesWhatWasReadLast) {
    open(bulks_of_128);
    acquire(1, false);
    FakeProvider::count(counters_[0].id(), 5, 500);
    EXPECT_EQ(pool_->read_now(counters_[0]).packets, 5U);
    FakeProvider::count(counters_[0].id(), 2, 200);
    FakeProvider::refuse(query, EIO);
    EXPECT_EQ(pool_->read_now(counters_[0]).packets, 5U);
    FakeProvider::refuse(query, 0);
    EXPECT_EQ(pool_->read_now(counters_[0]).bytes, 700U);
}

/// A query reads from a bulk's first slot up to the one that is asked for.
TEST_F(Counters, OfABulkTheHighestSlotIsAskedForInWhicheverOrderTheyAreNamed) {
    open(bulks_of_128);
    acquire(129, false);
    for (const Counter& counter : counters_) FakeProvider::count(counter.id(), counter.id(), 0);
    const Counter* const some[] = {&counters_[100], &counters_[128], &counters_[3], &counters_[50]};
    const unsigned before = FakeProvider::queries();
    pool_->read_now(some);
    EXPECT_EQ(FakeProvider::queries(), before + 2) << "one of each bulk";
    for (const Counter* const counter : some) EXPECT_EQ(counter->read().packets, counter->id());
    const Counter none;
    none.bring_up_to_date();
    EXPECT_EQ(FakeProvider::queries(), before + 2);
}

TEST_F(Counters, OneThatIsMovedIsWhatItWas) {
    open(bulks_of_128);
    Counter first = *pool_->acquire(14, false), second = *pool_->acquire(-4, true);
    const std::uint32_t first_id = first.id(), second_id = second.id();
    EXPECT_NE(first_id, second_id);
    FakeProvider::count(first_id, 10, 1000);
    FakeProvider::count(second_id, 10, 1000);
    first = std::exchange(second, std::move(first));
    EXPECT_EQ(first.id(), second_id);
    EXPECT_EQ(second.id(), first_id);
    EXPECT_EQ(first.bytes_uncounted(), -4);
    EXPECT_EQ(second.bytes_uncounted(), 14);
    EXPECT_NE(first.action(), second.action());
    EXPECT_EQ(pool_->read_now(first).bytes, 960U);
    EXPECT_EQ(pool_->read_now(second).bytes, 1140U);
    EXPECT_EQ(pool_->total().bytes, 960U) << "of those that are polled";
}

/// By whichever way the last one that is polled goes. The round that was due is made still.
TEST_F(Counters, ThePollerSleepsWhileNoneIsPolled) {
    open(bulks_of_128);
    acquire(1, false);
    const auto polls = [] {
        return becomes([before = FakeProvider::queries()] { return FakeProvider::queries() != before; });
    };
    const auto queries = [] {
        const unsigned before = FakeProvider::queries();
        std::this_thread::sleep_for(3 * CounterPool::poll_interval);
        return FakeProvider::queries() - before;
    };
    Counter polled;
    polled = *pool_->acquire(0, true);
    EXPECT_TRUE(polls());
    polled = Counter();
    EXPECT_LE(queries(), 1U);
    polled = *pool_->acquire(0, true);
    EXPECT_TRUE(polls()) << "woken again";
    FlowStats counted;
    CounterPool::Leaving leaving[] = {{&polled, &counted}};
    pool_->give_back(leaving);
    EXPECT_LE(queries(), 1U);
}

/// OVS looks at megaflows more often than the poller would ask: each look is to find the packets since the last.
TEST_F(Counters, ManyBulksAreReadMoreOften) {
    open(bulks_of_128);
    const auto rounds = [](unsigned bulks) {
        const unsigned before = FakeProvider::queries();
        std::this_thread::sleep_for(6 * CounterPool::poll_interval);
        return (FakeProvider::queries() - before) / bulks;
    };
    acquire(128 * CounterPool::few_bulks, true);
    EXPECT_LE(rounds(CounterPool::few_bulks), 6U);
    acquire(1, true);
    const unsigned more = rounds(static_cast<unsigned>(FakeProvider::alive("devx")));
    EXPECT_GE(more, 20U);
    EXPECT_LE(more, 70U);
}

TEST_F(Counters, WhereThereAreNoBulksEachIsAnObjectOfItsOwn) {
    open(single_counters);
    acquire(3, false);
    EXPECT_EQ(FakeProvider::alive("devx"), 3U);
    for (unsigned i = 0; i < 3; ++i) {
        FakeProvider::count(counters_[i].id(), i + 1, 0);
        EXPECT_EQ(pool_->read_now(counters_[i]).packets, i + 1);
    }
}

TEST_F(Counters, ADeviceThatMakesNoMoreIsNoTroubleUntilOneIsNeeded) {
    open(single_counters);
    acquire(1, true);   // the poller is awake, and makes some ahead
    acquire(CounterPool::no_spares_below - 1, false);
    constexpr unsigned with_spares = 2 * CounterPool::no_spares_below - 1;
    ASSERT_TRUE(becomes([] { return FakeProvider::alive("devx") == with_spares; }));
    FakeProvider::refuse_bulks(true);
    acquire(with_spares - CounterPool::no_spares_below, false);
    const auto refused = pool_->acquire(0, false);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ENOSPC);
    EXPECT_EQ(FakeProvider::alive("devx"), with_spares);
    counters_.pop_back();
    acquire(1, false);
    FakeProvider::refuse_bulks(false);
    ASSERT_TRUE(becomes([] { return FakeProvider::alive("devx") > with_spares; })) << "it is asked again after a while";
    acquire(1, false);
}

TEST_F(Counters, NoPoolComesOfADeviceWithoutCounters) {
    auto device = Device::open("fake_0");
    ASSERT_TRUE(device);
    FakeProvider::refuse("mlx5dv_devx_obj_create", EPERM);
    auto pool = CounterPool::create(std::move(*device), {});
    ASSERT_FALSE(pool);
    EXPECT_EQ(pool.error().code, EPERM);
    FakeProvider::refuse("mlx5dv_devx_obj_create", 0);
    open(bulks_of_128);
    FakeProvider::refuse("flow_counter", ENOMEM);
    const auto counter = pool_->acquire(0);
    ASSERT_FALSE(counter);
    EXPECT_EQ(counter.error().code, ENOMEM);
    FakeProvider::refuse("flow_counter", 0);
    acquire(1, false);
}

}  // namespace
}  // namespace ovsdr::dr
