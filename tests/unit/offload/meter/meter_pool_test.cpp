// Meters on the soft NIC: what is written is what the device answers when it is asked for the object, and colours.
#include "offload/meter/meter_pool.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <span>
#include <thread>
#include <vector>

#include "offload/dr/device/leak.hpp"
#include "offload/dr/device/prm.hpp"

namespace ovsdr::meter {
namespace {

using dr::prm::Field;

class MeterPoolOnSoftNic : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        std::ofstream("meter-test.json")
            << R"({"memory_mb": 128, "control_socket": "", "devices": [{"name": "mlx5_0", )"
            << R"("profile": "connectx-6dx", "ports": [{"vport": 1, "dpdk": "net_null,no-rx=1"}]}]})";
        setenv("OVSDR_SOFTNIC", "meter-test.json", 1);
        auto opened = dr::Device::open("mlx5_0");
        ASSERT_TRUE(opened) << opened.error().what;
        device_ = *opened;
    }
    static void TearDownTestSuite() {
        device_.reset();
        unlink("meter-test.json");
    }
    void SetUp() override { ASSERT_NE(device_, nullptr); }
    void TearDown() override { EXPECT_EQ(dr::leaked_objects(), 0U); }

    /// What the device has of the meter: both of its object's halves are asked for, and one is its own.
    static std::vector<std::uint8_t> asked_of(const Meter& meter) {
        constexpr std::size_t at_state = 16 + 64;
        std::array<std::uint8_t, 16> in{};
        std::array<std::uint8_t, 144> out{};
        dr::prm::set(in.data(), Field{0, 16}, 0xa02);   // QUERY_GENERAL_OBJECT
        dr::prm::set(in.data(), Field{48, 16}, 0x24);
        dr::prm::set(in.data(), Field{64, 32}, meter.object_number());
        EXPECT_EQ(mlx5dv_devx_obj_query(meter.bulk(), in.data(), in.size(), out.data(), out.size()), 0);
        const auto state = std::span(out).subspan(at_state + meter.offset() % 2 * 32, 32);
        return {state.begin(), state.end()};
    }
    static std::vector<std::uint8_t> bytes_of(const Parameters& parameters) {
        return {parameters.begin(), parameters.end()};
    }
    static Parameters of(std::uint32_t rate) { return *parameters_of({.by_packets = true, .rate = rate, .burst = 9}); }

    static inline std::shared_ptr<dr::Device> device_;
};

TEST_F(MeterPoolOnSoftNic, EachMeterHasItsParametersAndKeepsThemWhenItsNeighbourChanges) {
    constexpr unsigned more_than_a_bulk = 2 * (1 << MeterPool::log_length) + 5;
    MeterPool pool(device_);
    std::vector<Meter> meters;
    for (unsigned i = 0; i < more_than_a_bulk; ++i) {
        auto meter = pool.acquire(of(1000 + 17 * i));
        ASSERT_TRUE(meter) << meter.error().what;
        meters.push_back(std::move(*meter));
    }
    EXPECT_NE(meters.front().bulk(), meters.back().bulk());
    for (unsigned i = 0; i < more_than_a_bulk - 5; ++i) {
        EXPECT_EQ(asked_of(meters[i]), bytes_of(of(1000 + 17 * i))) << i;
    }
    for (unsigned i = 0; i < 40; ++i) ASSERT_TRUE(meters[2 * (i % 3)].change(of(50 + i)));   // around the rings
    EXPECT_EQ(asked_of(meters[0]), bytes_of(of(50 + 39)));
    EXPECT_EQ(asked_of(meters[1]), bytes_of(of(1017))) << "the other half of the object";
    EXPECT_EQ(asked_of(meters[2]), bytes_of(of(50 + 37)));
    EXPECT_EQ(asked_of(meters[3]), bytes_of(of(1000 + 17 * 3)));
}

TEST_F(MeterPoolOnSoftNic, AMeterThatIsGivenBackIsHandedOutAgainWithNewParameters) {
    MeterPool pool(device_);
    mlx5dv_devx_obj* bulk = nullptr;
    {
        auto meter = pool.acquire(of(100));
        ASSERT_TRUE(meter);
        bulk = meter->bulk();
        EXPECT_EQ(meter->offset(), 0U);
    }
    auto next = pool.acquire(of(200));
    ASSERT_TRUE(next);
    EXPECT_EQ(next->bulk(), bulk);
    EXPECT_EQ(next->offset(), 0U);
    EXPECT_EQ(asked_of(*next), bytes_of(of(200)));
}

TEST_F(MeterPoolOnSoftNic, ManyThreadsWriteSideBySide) {
    MeterPool pool(device_);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            auto meter = pool.acquire(of(1 + i));
            ASSERT_TRUE(meter);
            for (unsigned k = 0; k < 50; ++k) ASSERT_TRUE(meter->change(of(100 * i + k + 1)));
            EXPECT_EQ(asked_of(*meter), bytes_of(of(100 * i + 50)));
        });
    }
    for (std::thread& thread : threads) thread.join();
}

/// A request for an object that is not there fails, and the queue with it.
TEST_F(MeterPoolOnSoftNic, AQueueOfWhichARequestFailedSaysSo) {
    auto queue = AsoQueue::create(device_);
    ASSERT_TRUE(queue) << queue.error().what;
    EXPECT_FALSE((*queue)->broken());
    const auto written = (*queue)->write(0xABCDEF, {}, ~0ULL);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code, EIO);
    EXPECT_TRUE((*queue)->broken());
}

}  // namespace
}  // namespace ovsdr::meter
