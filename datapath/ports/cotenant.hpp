// The co-tenant: plays the kernel of a switchdev host, which shares the eSwitch with us.
//
// It has a send queue for each of its VFs and, with LACP, one for the uplink, in LAG one that is strict about its port
// for each of both; the kernel's own rules (Steering::cotenant_send_rule) take what they send to their vports. It
// receives what no NIC_RX root rule of ours took:
//   from its own VFs   it forwards like a bridge that learns addresses, among its own VFs;
//   LACP frames from the uplink (01:80:c2:00:00:02) it counts, as a bond would consume them;
//   anything else      is a packet without a reader: counted as `foreign`, and freed.
// Each period it sends a frame on every VF of its own (Ethernet type 0x88b5, the text "ovs-dr co-tenant", and a number
// that counts up) and an LACPDU on the uplink, in LAG on each port.
//
// Whether our rules take what is not ours shows in `missed`: what its VFs sent, or the uplink received for LACP, that
// never came. It may be above zero while packets are on their way.
//
// Threads: the sink on any worker, tick() on the control thread, statistics() on any.
#pragma once

#include <rte_ring.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/ports/config.hpp"
#include "datapath/ports/soft_device.hpp"

namespace ovsdr::soft {

/// Queue numbers from here on belong to the co-tenant; nobody else may use them.
inline constexpr std::uint32_t first_cotenant_sqn = 0xF00000;

class Cotenant {
public:
    struct PortStatistics {
        VportId vport;
        std::uint64_t sent;       ///< frames of its own
        std::uint64_t forwarded;  ///< frames of its other VFs, bridged to this one
        std::uint64_t received;
        std::uint64_t missed;
    };
    struct Statistics {
        std::vector<PortStatistics> ports;
        std::uint64_t lacp_sent, lacp_received, lacp_missed;
        std::uint64_t foreign;
        std::uint64_t queue_full;  ///< own and forwarded frames that found the send queue or the packet memory full
    };

    /// `device` has its vports and outlives the co-tenant. Throws std::runtime_error when there is no memory.
    Cotenant(SoftDevice& device, const CotenantConfig& config);
    ~Cotenant();
    Cotenant(const Cotenant&) = delete;
    Cotenant& operator=(const Cotenant&) = delete;

    using Clock = std::chrono::steady_clock;

    /// Sends what is due; returns when it wants to be called again.
    Clock::time_point tick(Clock::time_point now);

    [[nodiscard]] Statistics statistics() const;

private:
    struct Queue;

    void deliver(rte_mbuf** packets, unsigned length) noexcept;
    void bridge(Queue& from, rte_mbuf* packet) noexcept;
    void forward(Queue& to, rte_mbuf* packet) noexcept;
    bool enqueue(Queue& queue, rte_mbuf* packet) noexcept;
    void send_frame(Queue& queue);
    void send_lacpdu(Queue& queue, unsigned port);
    Queue* queue_of(VportId vport) noexcept;
    [[nodiscard]] rte_mbuf* packet_from(const void* bytes, std::size_t size) const noexcept;

    SoftDevice& device_;
    const std::chrono::milliseconds period_;
    Clock::time_point next_;
    std::vector<std::unique_ptr<Queue>> queues_;  ///< of its VFs
    std::vector<std::unique_ptr<Queue>> lacp_;    ///< of the uplink, by port
    std::atomic<std::uint64_t> lacp_received_{0}, foreign_{0}, queue_full_{0};

    std::mutex learned_mutex_;  // a kernel's bridge locks too
    std::unordered_map<std::uint64_t, Queue*> learned_;
};

}  // namespace ovsdr::soft
