// What a vport does with packets for a port whose link changes.
#include "datapath/ports/vport_path.hpp"

#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <rte_pause.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "datapath/ports/eal.hpp"
#include "datapath/ports/packet_pool.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

/// Keeps nothing: it counts what it is given to send, how often, and how often somebody asks for its link. `waiting`
/// packets come from it.
class CountingPort : public Port {
public:
    CountingPort() : Port(*driver_of("net_null")) {
        const Burst send = [](void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
            auto& port = *static_cast<CountingPort*>(self);
            ++port.attempts;
            if (port.refusals > 0) {
                --port.refusals;
                return std::uint16_t{0};
            }
            length = std::min(length, port.most_at_once);
            port.sent += length;
            rte_pktmbuf_free_bulk(packets, length);
            return length;
        };
        const Burst receive = [](void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
            auto& port = *static_cast<CountingPort*>(self);
            length = static_cast<std::uint16_t>(std::min<std::size_t>(length, port.waiting.size()));
            std::copy_n(port.waiting.begin(), length, packets);
            port.waiting.erase(port.waiting.begin(), port.waiting.begin() + length);
            return length;
        };
        set_queues({{.receive = receive, .queue = this}}, {{.send = send, .queue = this}});
    }
    [[nodiscard]] bool link_up() const noexcept override {
        ++questions;
        return link;
    }
    [[nodiscard]] bool link_seen_up() const noexcept override { return !kernel_knows && link_up(); }

    bool link = false;
    bool kernel_knows = false;  ///< about the link
    std::vector<rte_mbuf*> waiting;
    unsigned sent = 0, attempts = 0;
    unsigned refusals = 0;                    ///< attempts to come that it takes nothing of
    std::uint16_t most_at_once = UINT16_MAX;  ///< packets of an attempt that it takes
    mutable unsigned questions = 0;
};

class VportPathTest : public ::testing::Test {
protected:
    VportPathTest() {
        std::string error;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        EXPECT_EQ(start_eal({.memory_mb = 64}, error), 0) << error;
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        pool_ = make_mempool({.name = "vport-path", .length = 255, .room = 2048}, error);
        EXPECT_TRUE(pool_) << error;
        path_.set_admin_up(true);
        path_.bind(&port_);
    }

    /// One packet comes from the port, and is steered.
    void receive() {
        Lane lane(steering_, 0);
        rte_mbuf* packet = rte_pktmbuf_alloc(pool_.get());
        ASSERT_NE(packet, nullptr);
        (void)rte_pktmbuf_append(packet, 64);
        port_.waiting.push_back(packet);
        lane.online();
        EXPECT_EQ(path_.receive(0, 0, lane), 1u);
        lane.offline();
    }

    void deliver(unsigned length = 1) {
        rte_mbuf* packets[batch_length];
        ASSERT_EQ(rte_pktmbuf_alloc_bulk(pool_.get(), packets, length), 0);
        for (unsigned i = 0; i < length; ++i) (void)rte_pktmbuf_append(packets[i], 64);
        const Sink sink = path_.sink();
        sink.deliver(sink.self, 0, packets, length);
    }

    Mempool pool_;
    Steering steering_{connectx_6dx};
    CountingPort port_;
    /// A batch by worker `worker` of `path`.
    void deliver_by(VportPath& path, unsigned worker) {
        rte_mbuf* packet = rte_pktmbuf_alloc(pool_.get());
        ASSERT_NE(packet, nullptr);
        (void)rte_pktmbuf_append(packet, 64);
        const Sink sink = path.sink();
        sink.deliver(sink.self, worker, &packet, 1);
    }

    unsigned looks_ = 0;
    VportPath path_{VportId{1}, 1, [this] { ++looks_; }};
};

/// Several queues to send by, of which the test says how many are used; in each, how many packets came and how many
/// workers were inside at a time.
class WidePort : public Port {
public:
    struct Queue {
        std::atomic<unsigned> sent{0}, inside{0}, met{0};
    };

    WidePort(unsigned queues, bool vary) : Port(*driver_of("net_null")), queues_(queues) {
        const Burst send = [](void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
            auto& queue = *static_cast<Queue*>(self);
            if (queue.inside.fetch_add(1) != 0) ++queue.met;
            for (unsigned i = 0; i < 100; ++i) rte_pause();
            queue.sent += length;
            --queue.inside;
            rte_pktmbuf_free_bulk(packets, length);
            return length;
        };
        std::vector<PortSendQueue> send_queues;
        for (Queue& queue : queues_) send_queues.push_back({.send = send, .queue = &queue});
        set_queues({}, std::move(send_queues));
        send_queues_vary_ = vary;
    }
    [[nodiscard]] bool link_up() const noexcept override { return true; }
    void use(unsigned queues) { usable_send_queues_ = queues; }
    [[nodiscard]] unsigned sent(unsigned queue) const { return queues_[queue].sent; }
    [[nodiscard]] unsigned met() const {
        unsigned sum = 0;
        for (const Queue& queue : queues_) sum += queue.met;
        return sum;
    }

private:
    std::deque<Queue> queues_;
};

TEST_F(VportPathTest, EachWorkerSendsByAQueueOfItsOwnWhereThereIsOne) {
    WidePort port(2, true);
    VportPath path(VportId{1}, 3);
    path.set_admin_up(true);
    path.set_link_up(true);
    path.bind(&port);
    for (unsigned worker = 0; worker < 3; ++worker) deliver_by(path, worker);
    EXPECT_EQ(port.sent(0), 2u) << "workers 0 and 2";
    EXPECT_EQ(port.sent(1), 1u);
    port.use(1);
    for (unsigned worker = 0; worker < 3; ++worker) deliver_by(path, worker);
    EXPECT_EQ(port.sent(0), 5u) << "a guest that has turned the second one off";
    EXPECT_EQ(port.sent(1), 1u);
}

TEST_F(VportPathTest, WorkersThatShareASendQueueAreNeverInItTogether) {
    constexpr unsigned rounds = 20000;
    for (const unsigned queues : {1, 2}) {
        WidePort port(queues, true);
        VportPath path(VportId{1}, 2);
        path.set_admin_up(true);
        path.set_link_up(true);
        path.bind(&port);
        std::vector<std::thread> workers;
        for (unsigned worker = 0; worker < 2; ++worker) {
            workers.emplace_back([&, worker] {
                for (unsigned i = 0; i < rounds; ++i) {
                    if (worker == 0 && i % 100 == 0) port.use(1 + i / 100 % queues);
                    deliver_by(path, worker);
                }
            });
        }
        for (std::thread& worker : workers) worker.join();
        EXPECT_EQ(port.met(), 0u) << queues;
        EXPECT_EQ(path.counters().received_packets, 2u * rounds);
    }
}

TEST_F(VportPathTest, APacketForALinkThatCameUpUnnoticedIsSent) {
    port_.link = true;  // and nobody has called set_link_up()
    deliver();
    deliver();
    EXPECT_EQ(port_.sent, 2u);
    EXPECT_EQ(port_.questions, 1u);
    EXPECT_EQ(path_.counters().received_packets, 2u);
    EXPECT_EQ(path_.counters().receive_drops, 0u);
}

TEST_F(VportPathTest, ALinkThatIsDownDropsAndIsNotAskedForEachPacket) {
    for (unsigned i = 0; i < 100; ++i) deliver();
    EXPECT_EQ(port_.sent, 0u);
    EXPECT_EQ(path_.counters().receive_drops, 100u);
    EXPECT_LT(port_.questions, 20u);
    port_.link = true;
    std::this_thread::sleep_for(2ms);
    deliver();
    EXPECT_EQ(port_.sent, 1u);
}

TEST_F(VportPathTest, AnInterfacesLinkIsLeftToTheControlThread) {
    port_.kernel_knows = port_.link = true;
    for (unsigned i = 0; i < 100; ++i) deliver();
    EXPECT_EQ(port_.questions, 0u);
    EXPECT_EQ(port_.sent, 0u);
    path_.set_link_up(true);
    deliver();
    EXPECT_EQ(port_.sent, 1u);
}

TEST_F(VportPathTest, APacketThatComesSaysThatTheLinkIsUp) {
    port_.kernel_knows = port_.link = true;
    receive();
    EXPECT_EQ(looks_, 1u) << "it may be an old one: somebody looks";
    deliver();
    EXPECT_EQ(port_.sent, 1u) << "the answer";
    receive();
    EXPECT_EQ(looks_, 1u);
    EXPECT_EQ(port_.questions, 0u);
    path_.set_link_up(false);
    path_.set_admin_up(false);
    receive();
    EXPECT_EQ(looks_, 1u) << "a vport that is turned off says nothing";
    EXPECT_FALSE(path_.usable());
}

TEST_F(VportPathTest, APortThatWasTurnedOffIsNotAsked) {
    port_.link = true;
    path_.set_admin_up(false);
    deliver();
    path_.set_admin_up(true);
    path_.bind(nullptr);
    deliver();
    EXPECT_EQ(port_.questions, 0u);
    EXPECT_EQ(port_.sent, 0u);
    EXPECT_EQ(path_.counters().down, 1u);
    EXPECT_EQ(path_.counters().receive_drops, 1u);
}

TEST_F(VportPathTest, AGuestThatTakesNothingIsNotWaitedForAgainAndAgain) {
    path_.set_link_up(true);
    for (unsigned i = 0; i < 100; ++i) deliver(batch_length);
    EXPECT_EQ(port_.attempts, 100u) << "whoever has room for all is asked once a batch";
    port_.refusals = UINT32_MAX;
    port_.attempts = 0;
    for (unsigned i = 0; i < 1000; ++i) deliver(batch_length);
    EXPECT_LE(port_.attempts, 1000u + 8) << "one attempt a batch, and few more while it was thought to be alive";
    EXPECT_EQ(path_.counters().receive_drops, 1000u * batch_length);
}

TEST_F(VportPathTest, AGuestThatTakesPacketsNowAndThenIsNotWaitedForLongerThanItIsWorth) {
    path_.set_link_up(true);
    port_.most_at_once = 1;
    for (unsigned i = 0; i < 1000; ++i) deliver(batch_length);
    EXPECT_EQ(port_.sent, port_.attempts);
    EXPECT_LE(port_.attempts, 1000u + 1000 / 8) << "a wait is earned with sixteen packets";
}

TEST_F(VportPathTest, APortThatNeedsAMomentGetsIt) {
    path_.set_link_up(true);
    for (unsigned i = 0; i < 4; ++i) deliver(batch_length);
    for (unsigned i = 0; i < 100; ++i) {
        port_.refusals = 2;
        deliver(batch_length);
    }
    EXPECT_EQ(port_.sent, 104u * batch_length);
    EXPECT_EQ(path_.counters().receive_drops, 0u);
    port_.refusals = UINT32_MAX;
    for (unsigned i = 0; i < 10; ++i) deliver(batch_length);
    port_.refusals = 0;
    deliver(batch_length);
    port_.refusals = 2;
    deliver(batch_length);
    EXPECT_EQ(port_.sent, 106u * batch_length) << "a guest that came back is waited for again";
}

}  // namespace
}  // namespace ovsdr::soft
