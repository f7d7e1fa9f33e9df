// The end of a soft NIC whose drivers take their time, or never come back.
#include <gtest/gtest.h>
#include <rte_ethdev.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/unit/datapath/ports/nic_fixture.hpp"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::chrono::milliseconds time_to_close{0};
std::atomic<unsigned> closed = 0;

}  // namespace

/// In front of DPDK's (ld's --wrap).
extern "C" int __real_rte_eth_dev_close(std::uint16_t port);
extern "C" int __wrap_rte_eth_dev_close(std::uint16_t port) {
    std::this_thread::sleep_for(time_to_close);
    ++closed;
    return __real_rte_eth_dev_close(port);
}

namespace ovsdr::soft {
namespace {

constexpr const char* three_ports = R"("ports": [{"vport": 1, "dpdk": "net_null"}, {"vport": 2, "dpdk": "net_null"},
                                                 {"vport": 3, "dpdk": "net_null"}])";

using EndTest = NicTest;

TEST_F(EndTest, PortsThatCloseSlowlyAreAllWaitedFor) {
    start(three_ports);
    time_to_close = 2500ms;   // more in all than a driver that hangs is given
    nic_->stop();
    EXPECT_EQ(closed, 3U);
}

TEST_F(EndTest, ADriverThatHangsIsNotWaitedForForEver) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT({
        start(three_ports);
        time_to_close = 100s;
        const auto begin = Clock::now();
        nic_->stop();
        const auto passed = Clock::now() - begin;
        std::_Exit(closed == 0 && passed > 4s && passed < 60s ? 0 : 1);
    }, testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ovsdr::soft
