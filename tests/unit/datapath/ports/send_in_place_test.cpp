// Who posts while the worker sleeps sends in its place: once, in order, and beside the worker's own turns.
#include <pthread.h>
#include <signal.h>

#include <set>
#include <thread>
#include <vector>

#include "nic_fixture.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t sqn = 77;

class SendInPlaceTest : public NicTest {
protected:
    /// Of the vport nothing is behind, so that the worker sleeps until it is rung for; what is sent to it is counted.
    void start_sleeper(const std::string& options = "\"control_socket\": \"\"") {
        start(R"("ports": [{"vport": 1, "dpdk": "net_af_packet,iface=nowhere0"}])", options);
    }
    std::uint64_t arrived() { return counters(1).receive_drops; }

    /// Sends a frame after a pause, again and again; how often this thread itself had it taken when send() was back.
    unsigned sent_by_myself(TestQueue& queue, unsigned rounds) {
        unsigned mine = 0;
        for (unsigned round = 0; round < rounds; ++round) {
            std::this_thread::sleep_for(3ms);
            queue.taken_by = std::thread::id();
            queue.send(60);
            mine += queue.taken_by.load() == std::this_thread::get_id();
        }
        return mine;
    }
};

TEST_F(SendInPlaceTest, WhoPostsSendsForAWorkerThatSleeps) {
    start_sleeper();
    TestQueue queue(device(), sqn, VportId{1});
    EXPECT_GT(sent_by_myself(queue, 40), 20U) << "of 40; a worker is awake now and then";
    EXPECT_TRUE(eventually([&] { return arrived() == 40; }));
    EXPECT_EQ(counters(0).sent_packets, 40U);
}

TEST_F(SendInPlaceTest, OfSeveralWorkersEachSendsItself) {
    start_sleeper(R"("control_socket": "", "workers": 2)");
    TestQueue queue(device(), sqn, VportId{1});
    EXPECT_EQ(sent_by_myself(queue, 10), 0U);
    EXPECT_TRUE(eventually([&] { return arrived() == 10; }));
}

TEST_F(SendInPlaceTest, AWorkerThatNapsSendsItself) {
    start(R"("ports": [{"vport": 1, "dpdk": "net_ring"}])");
    TestQueue queue(device(), sqn, VportId{1});
    EXPECT_EQ(sent_by_myself(queue, 10), 0U);
    EXPECT_TRUE(eventually([&] { return counters(1).sent_packets == 10; }));
}

/// Two do more than one.
TEST_F(SendInPlaceTest, WhoPostsOverAndOverWakesTheWorker) {
    start_sleeper();
    TestQueue queue(device(), sqn, VportId{1});
    std::this_thread::sleep_for(3ms);
    bool by_another = false;
    for (unsigned i = 0; i < 1000; ++i) {
        queue.send(60);
        const std::thread::id who = queue.taken_by.load();
        by_another |= who != std::thread::id() && who != std::this_thread::get_id();
    }
    EXPECT_TRUE(eventually([&] { return arrived() == 1000; })) << arrived();
    by_another |= queue.taken_by.load() != std::this_thread::get_id();
    EXPECT_TRUE(by_another);
}

/// Its mask of signals and whether it can be cancelled are what they were.
TEST_F(SendInPlaceTest, AThreadIsAsItWas) {
    start_sleeper();
    TestQueue queue(device(), sqn, VportId{1});
    sigset_t mine, after;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    sigset_t before;
    ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &mine, &before), 0);
    EXPECT_GT(sent_by_myself(queue, 10), 0U);
    ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, &after), 0);
    EXPECT_EQ(sigismember(&after, SIGUSR1), 1);
    EXPECT_EQ(sigismember(&after, SIGINT), 0);
    int cancellable = 0;
    ASSERT_EQ(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &cancellable), 0);
    EXPECT_EQ(cancellable, PTHREAD_CANCEL_ENABLE);
}

/// While it sends, DPDK takes the thread for the worker; after that it is itself again.
TEST_F(SendInPlaceTest, AThreadUsesTheWorkersCachesOfBuffers) {
    start_sleeper();
    TestQueue queue(device(), sqn, VportId{1});
    const unsigned own = rte_lcore_id();
    std::set<unsigned> caches;
    unsigned mine = 0;
    const auto send = [&] {
        queue.taken_by = std::thread::id();
        queue.send(60);
        mine += queue.taken_by.load() == std::this_thread::get_id();
        if (queue.empty()) caches.insert(queue.taken_on);
    };
    EXPECT_TRUE(eventually([&] { return send(), mine > 0; }));
    for (unsigned i = 0; i < 1000; ++i) send();   // over and over, which wakes the worker
    EXPECT_TRUE(eventually([&] { return queue.empty(); }));
    EXPECT_EQ(caches.size(), 1U);
    EXPECT_FALSE(caches.contains(LCORE_ID_ANY));
    EXPECT_EQ(rte_lcore_id(), own);
}

TEST_F(SendInPlaceTest, WithServicesTheWorkerDoesIt) {
    start_sleeper();
    TestQueue queue(device(), sqn, VportId{1});
    int service = 0;
    device().add_service(0, {.run = [](void*, const Outlet&, std::uint64_t) noexcept { return 0U; },
                             .deadline = [](void*, std::uint64_t) noexcept { return Service::never; },
                             .self = &service});
    EXPECT_EQ(sent_by_myself(queue, 10), 0U);
    EXPECT_TRUE(eventually([&] { return arrived() == 10; }));
    device().remove_service(0, &service);
    EXPECT_GT(sent_by_myself(queue, 20), 0U);
}

/// More than one turn's worth: the rest is the worker's.
TEST_F(SendInPlaceTest, WhatIsTooMuchTheWorkerSends) {
    start_sleeper();
    std::atomic<unsigned> left{1000};
    struct Source {
        std::atomic<unsigned>& left;
        rte_mempool* pool;
    } source{left, device().mempool()};
    device().steering().cotenant_send_rule(sqn, VportId{1});
    device().add_send_source({.poll = [](void* self, rte_mbuf** packets, unsigned length) noexcept {
                                  const Source& from = *static_cast<Source*>(self);
                                  unsigned taken = 0;
                                  for (; taken < length && from.left > 0; --from.left) {
                                      packets[taken] = rte_pktmbuf_alloc(from.pool);
                                      if (packets[taken] == nullptr) break;
                                      std::memset(rte_pktmbuf_append(packets[taken++], 60), 2, 60);
                                  }
                                  return taken;
                              },
                              .self = &source,
                              .sqn = sqn});
    device().ring_doorbell(sqn);
    EXPECT_TRUE(eventually([&] { return arrived() == 1000; })) << arrived();
    device().remove_send_source(sqn);
    device().steering().remove_cotenant_send_rule(sqn);
}

/// Some post to queues that come and go, with pauses in which the worker falls asleep and wakes.
TEST_F(SendInPlaceTest, ThreadsAndTheWorkerTakeTurns) {
    constexpr unsigned threads = 3, queues = 20, frames = 30;
    start_sleeper();
    std::vector<std::thread> senders;
    for (unsigned thread = 0; thread < threads; ++thread) {
        senders.emplace_back([&, thread] {
            for (unsigned number = 0; number < queues; ++number) {
                TestQueue queue(device(), sqn + thread * queues + number, VportId{1});
                for (unsigned frame = 0; frame < frames; ++frame) {
                    queue.send(60, static_cast<char>(thread));
                    std::this_thread::sleep_for(std::chrono::microseconds(frame * 7 % 120));
                }
                EXPECT_TRUE(eventually([&] { return queue.empty(); }));
            }
        });
    }
    for (std::thread& sender : senders) sender.join();
    const std::uint64_t all = threads * queues * frames;
    EXPECT_TRUE(eventually([&] { return arrived() == all; })) << arrived();
}

}  // namespace
}  // namespace ovsdr::soft
