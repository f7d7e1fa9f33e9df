// The packets that one queue pair sends in one turn.
//
// Model. begin() takes a packet buffer and writes all headers; the caller fills extension headers and payload, and
// finish() closes the packet with its padding and ICRC and sends it: to the wire in batches, to a queue pair of this
// device at once. What is sent may be bounded in bytes too: the packet that reaches the bound is the last.
//
// Threads: the engine's worker.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "datapath/packet.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/rdma/pacing/rate_limit.hpp"
#include "datapath/rdma/roce/frame.hpp"

namespace ovsdr::soft::roce {

class Transport;

class Burst {
public:
    struct Spec {
        const Path& path;
        std::uint8_t opcode;
        std::uint32_t qpn, psn;
        bool ack_request = false, solicited = false;
        unsigned extensions;  ///< bytes
        unsigned payload;     ///< bytes
    };
    struct Packet {
        rte_mbuf* buffer;
        std::byte* extensions;
        std::byte* payload;
        const Path* path;
        std::uint32_t qpn;
        unsigned payload_size;
    };

    /// At most `budget` packets.
    Burst(Transport& transport, const Outlet& outlet, std::uint32_t sqn, unsigned budget) noexcept
        : transport_(transport), outlet_(outlet), sqn_(sqn), budget_(budget) {}
    ~Burst() { flush(); }
    Burst(const Burst&) = delete;
    Burst& operator=(const Burst&) = delete;

    /// false: no more in this turn; there may be buffers or room in the next.
    [[nodiscard]] bool begin(const Spec& spec, Packet& packet) noexcept;
    void finish(const Packet& packet) noexcept;
    void abandon(const Packet& packet) noexcept { rte_pktmbuf_free(packet.buffer); }

    [[nodiscard]] unsigned sent() const noexcept { return sent_; }
    [[nodiscard]] bool full() const noexcept { return sent_ >= budget_ || size_ >= allowed_; }
    /// Counts bytes from here on, of which `allowed` may be sent.
    void allow(std::uint64_t allowed) noexcept {
        allowed_ = allowed;
        size_ = 0;
    }
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    /// Whether a packet with so much payload is the last that may be sent.
    [[nodiscard]] bool ends_with(unsigned payload) const noexcept { return payload >= allowed_ - size_; }
    /// begin() has refused for want of buffers or room.
    [[nodiscard]] bool starved() const noexcept { return starved_; }

private:
    void flush() noexcept;

    Transport& transport_;
    const Outlet& outlet_;
    const std::uint32_t sqn_;
    const unsigned budget_;
    unsigned sent_ = 0;
    std::uint64_t allowed_ = RateLimit::unlimited, size_ = 0;
    bool starved_ = false;
    unsigned length_ = 0;
    std::array<rte_mbuf*, poll_length> packets_;
};

}  // namespace ovsdr::soft::roce
