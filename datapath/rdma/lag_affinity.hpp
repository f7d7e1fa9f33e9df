// By which port of an uplink in LAG a send queue sends: what the contexts of queue pairs and TIS call
// lag_tx_port_affinity.
//
// 0 is no port: its packets leave each by their hash. Where there is no LAG a choice has no effect.
// Threads: set() one at a time, port() from any. Source: PRM, QP and TIS contexts.
#pragma once

#include <atomic>
#include <cstdint>

#include "datapath/steering/steering.hpp"

namespace ovsdr::soft {

class LagAffinity {
public:
    LagAffinity(Steering& steering, std::uint32_t sqn) noexcept : steering_(steering), sqn_(sqn) {}
    /// The queue has sent its last.
    ~LagAffinity() {
        if (port() != 0) set(0);
    }
    LagAffinity(const LagAffinity&) = delete;
    LagAffinity& operator=(const LagAffinity&) = delete;

    /// From the next packet on that a worker takes.
    void set(unsigned port) {
        steering_.set_lag_port(sqn_, port);
        port_.store(static_cast<std::uint8_t>(port), std::memory_order_relaxed);
    }
    [[nodiscard]] unsigned port() const noexcept { return port_.load(std::memory_order_relaxed); }

private:
    Steering& steering_;
    const std::uint32_t sqn_;
    std::atomic<std::uint8_t> port_{0};
};

}  // namespace ovsdr::soft
