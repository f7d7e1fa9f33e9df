// A device whose lane the test moves: what it holds, and who waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "datapath/steering/lane_impl.hpp"
#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {

/// Everything enters table 1, and goes to vport 2 from there.
class LaneTest : public SteeringTest {
protected:
    LaneTest() {
        attach({1, 2, 3, 0xffff});
        steering.set_cotenant_sink(cotenant.sink());
    }
    /// Does `call` while the lane holds what it was sent; `call` ends only when the lane has passed it on.
    void expect_waits(const std::function<void()>& call) {
        std::atomic<bool> done{false};
        std::thread caller([&] {
            call();
            done = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_FALSE(done) << "did not wait for the lane";
        while (!done) {
            lane.quiescent();
            std::this_thread::yield();
        }
        caller.join();
        lane.offline();
    }
    void hold(const Frame& bytes) {
        rte_mbuf* packet = packet_of(bytes);
        lane.online();
        lane.from_vport(VportId{1}, &packet, 1);
    }

    const Frame frame = make_frame({});
    Collector cotenant, queue;
    Domain fdb{steering, DomainType::fdb, nullptr}, rx{steering, DomainType::nic_rx, nullptr};
    Table root{fdb, 0}, first{fdb, 1}, rx_root{rx, 0};
    MadeMatcher all_root = match_all(root), all_first = match_all(first), all_rx = match_all(rx_root);
    Action::Created to_first = to_table(first), to_2 = to_vport(fdb, 2), to_3 = to_vport(fdb, 3),
                    to_queue = to_sink(queue.sink());
    MadeRule enter = make_rule(*all_root, {}, {&to_first});
    MadeRule onward = make_rule(*all_first, {}, {&to_2});
};

/// Takes frames to even UDP ports.
struct EvenPorts {
    unsigned calls = 0, got = 0;
    [[nodiscard]] Filter filter() {
        return {.take =
                    [](void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
                        auto* one = static_cast<EvenPorts*>(self);
                        ++one->calls;
                        unsigned left = 0;
                        for (unsigned i = 0; i < length; ++i) {
                            if ((rte_pktmbuf_mtod(packets[i], const std::uint8_t*)[37] & 1) == 0) {
                                ++one->got;
                                rte_pktmbuf_free(packets[i]);
                            } else {
                                packets[left++] = packets[i];
                            }
                        }
                        return left;
                    },
                .self = this};
    }
};

}  // namespace ovsdr::soft::test
