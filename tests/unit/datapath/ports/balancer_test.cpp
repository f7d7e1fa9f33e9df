// Queues that move by themselves, in a whole NIC whose ports give packets without end.
#include "datapath/ports/balancer.hpp"

#include "nic_fixture.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

/// Two workers. One has two ports that take all of its time, the other one has a port that does nothing.
class BalancerTest : public NicTest {
protected:
    void start_uneven(const std::string& rebalance) {
        start(R"("ports": [{"vport": 1, "dpdk": "net_null"}, {"vport": 2, "dpdk": "net_ring"},
                           {"vport": 3, "dpdk": "net_null"}])",
              R"("control_socket": "", "workers": {"count": 2, "rebalance": )" + rebalance + "}");
        for (const unsigned vport : {1, 2, 3}) ASSERT_EQ(info(vport).error, "");
        ASSERT_EQ(worker_of(1), worker_of(3));
        ASSERT_NE(worker_of(1), worker_of(2));
    }
    unsigned worker_of(unsigned vport) {
        for (const PlacedQueue& queue : device().placed_queues()) {
            if (queue.vport.value == vport) return queue.worker;
        }
        return 99;
    }
    double load_of(unsigned vport) {
        for (const PlacedQueue& queue : device().placed_queues()) {
            if (queue.vport.value == vport) return queue.load->share;
        }
        return 0;
    }
};

TEST_F(BalancerTest, AnIdleWorkerTakesAQueueOfASaturatedOneAndKeepsIt) {
    start_uneven("true");
    EXPECT_TRUE(eventually([&] { return load_of(1) > 0.3 && load_of(3) > 0.3; }, 8s)) << "each has half of the time";
    EXPECT_LT(load_of(1) + load_of(3), 1.05);
    ASSERT_TRUE(eventually([&] { return worker_of(1) != worker_of(3); }, 30s));
    const unsigned one = worker_of(1), other = worker_of(3);
    EXPECT_TRUE(eventually([&] { return load_of(1) > 0.8 && load_of(3) > 0.8; }, 8s)) << load_of(1) << load_of(3);
    std::this_thread::sleep_for(Balancer::period * 4);
    EXPECT_EQ(worker_of(1), one);
    EXPECT_EQ(worker_of(3), other);
}

TEST_F(BalancerTest, NothingMovesWhereItIsTurnedOff) {
    start_uneven("false");
    EXPECT_TRUE(eventually([&] { return load_of(1) > 0.3 && load_of(3) > 0.3; }, 8s)) << "it measures all the same";
    std::this_thread::sleep_for(Balancer::period * 5);
    EXPECT_EQ(worker_of(1), worker_of(3));
}

}  // namespace
}  // namespace ovsdr::soft
