// What a vport does with packets for a port whose link changes.
#include "datapath/ports/vport_path.hpp"

#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <signal.h>

#include <thread>

#include "datapath/ports/eal.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

/// Keeps nothing: it counts what it is given to send, and how often somebody asks for its link.
class CountingPort : public Port {
public:
    CountingPort() : Port(*driver_of("net_null")) {
        io_.send = [](void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
            static_cast<CountingPort*>(self)->sent += length;
            rte_pktmbuf_free_bulk(packets, length);
            return length;
        };
        io_.send_queue = this;
    }
    [[nodiscard]] bool link_up() const noexcept override {
        ++questions;
        return link;
    }

    bool link = false;
    unsigned sent = 0;
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

    void deliver() {
        rte_mbuf* packet = rte_pktmbuf_alloc(pool_.get());
        ASSERT_NE(packet, nullptr);
        (void)rte_pktmbuf_append(packet, 64);
        const Sink sink = path_.sink();
        sink.deliver(sink.self, 0, &packet, 1);
    }

    Mempool pool_;
    CountingPort port_;
    VportPath path_{VportId{1}, 1};
};

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

}  // namespace
}  // namespace ovsdr::soft
