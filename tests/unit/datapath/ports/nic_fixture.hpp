// A soft NIC in the test's process. DPDK's environment starts with the first and stays for all.
#pragma once

#include <gtest/gtest.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "datapath/ports/config.hpp"
#include "datapath/ports/soft_nic.hpp"

namespace ovsdr::soft {

inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

/// Processor time of the whole process, in seconds.
inline double cpu_seconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + time.tv_usec * 1e-6; };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// A send queue of the test, with the co-tenant's rule that takes it to a vport.
class TestQueue {
public:
    TestQueue(SoftDevice& device, std::uint32_t sqn, VportId vport) : device_(device), sqn_(sqn) {
        device_.steering().cotenant_send_rule(sqn, vport);
        device_.add_send_source(
            {.poll = [](void* self, rte_mbuf** packets,
                        unsigned length) noexcept { return static_cast<TestQueue*>(self)->poll(packets, length); },
             .self = this,
             .sqn = sqn});
    }
    ~TestQueue() { remove(); }
    TestQueue(const TestQueue&) = delete;
    TestQueue& operator=(const TestQueue&) = delete;

    /// `flow`: the last byte of its source address.
    void send(std::size_t size, char flow = 1) {
        rte_mbuf* packet = rte_pktmbuf_alloc(device_.mempool());
        ASSERT_NE(packet, nullptr);
        char* bytes = rte_pktmbuf_append(packet, static_cast<std::uint16_t>(size));
        std::memset(bytes, 0, size);
        std::memcpy(bytes, "\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x88\xb5", 14);
        bytes[11] = flow;
        {
            const std::lock_guard lock(mutex_);
            packets_.push_back(packet);
        }
        device_.ring_doorbell(sqn_);
    }

    [[nodiscard]] bool empty() {
        const std::lock_guard lock(mutex_);
        return packets_.empty();
    }

    void remove() {
        if (std::exchange(removed_, true)) return;
        device_.remove_send_source(sqn_);
        device_.steering().remove_cotenant_send_rule(sqn_);
    }

    std::atomic<std::uint64_t> polls{0};
    std::atomic<std::chrono::steady_clock::time_point> taken{};  ///< when the last packet was
    std::atomic<std::thread::id> taken_by{};                     ///< and by whom
    std::atomic<unsigned> taken_on = LCORE_ID_ANY;               ///< and with whose caches of buffers

private:
    unsigned poll(rte_mbuf** packets, unsigned length) noexcept {
        ++polls;
        const std::lock_guard lock(mutex_);
        unsigned taken_length = 0;
        for (; taken_length < length && !packets_.empty(); packets_.pop_front())
            packets[taken_length++] = packets_.front();
        if (taken_length > 0) {
            taken_on = rte_lcore_id();
            taken_by = std::this_thread::get_id();
            taken = std::chrono::steady_clock::now();
        }
        return taken_length;
    }

    SoftDevice& device_;
    std::uint32_t sqn_;
    bool removed_ = false;
    std::mutex mutex_;
    std::deque<rte_mbuf*> packets_;
};

/// Keeps the device's worker from all else, until let_go().
class HeldWorker {
public:
    explicit HeldWorker(SoftDevice& device) : device_(device) {
        device_.add_send_source(
            {.poll = [](void* self, rte_mbuf**, unsigned) noexcept { return static_cast<HeldWorker*>(self)->wait(); },
             .self = this,
             .sqn = sqn});
        device_.ring_worker(sqn % device_.workers());
        held_.get_future().wait();
    }
    ~HeldWorker() { device_.remove_send_source(sqn); }
    HeldWorker(const HeldWorker&) = delete;
    HeldWorker& operator=(const HeldWorker&) = delete;

    void let_go() { let_go_.set_value(); }

private:
    static constexpr std::uint32_t sqn = 99;

    unsigned wait() noexcept {
        if (!std::exchange(done_, true)) {
            held_.set_value();
            let_go_.get_future().wait();
        }
        return 0;
    }

    SoftDevice& device_;
    bool done_ = false;
    std::promise<void> held_, let_go_;
};

class NicTest : public testing::Test {
protected:
    /// `device`: the members of the one device beside its name. "SOCKET" in `options` is the test's control socket.
    void start(const std::string& device, std::string options = "\"control_socket\": \"\"") {
        int code = 0;
        std::string error;
        nic_ = SoftNic::start(parse_config("{" + options + R"(, "memory_mb": )" + std::to_string(memory_mb_) +
                                           R"(, "devices": [{"name": "mlx5_0")" +
                                           (device.empty() ? "" : ", " + device) + "}]}"),
                              code, error);
        ASSERT_TRUE(nic_) << error;
    }

    SoftDevice& device() { return *nic_->soft_devices()[0]; }
    VportCounters counters(unsigned vport) {
        VportCounters counters{};
        EXPECT_EQ(device().counters(VportId{static_cast<std::uint16_t>(vport)}, counters), 0);
        return counters;
    }
    VportInfo info(unsigned vport) {
        VportInfo info{};
        EXPECT_EQ(device().query(VportId{static_cast<std::uint16_t>(vport)}, info), 0);
        return info;
    }

    /// Over two seconds, with nothing to do: 2 % of a core, and no wake-up by a clock.
    void expect_the_worker_to_sleep() {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        const std::uint64_t sleeps = nic_->workers()[0]->statistics().sleeps;
        const double cpu = cpu_seconds();
        std::this_thread::sleep_for(std::chrono::seconds(2));
        EXPECT_LT(cpu_seconds() - cpu, 0.04);
        EXPECT_LT(nic_->workers()[0]->statistics().sleeps - sleeps, 100U);
    }

    std::unique_ptr<SoftNic> nic_;
    unsigned memory_mb_ = 256;  ///< the first NIC's holds for all
};

}  // namespace ovsdr::soft
