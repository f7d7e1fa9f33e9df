// Captures: who looks at the packets of a vport, and how packets get to them.
//
// A Capture copies what passes its filter, up to its snap length, into rings that another process reads: one for each
// worker, see common/capture/ring.hpp. What finds no room there is counted and forwarded all the same.
//
// A vport's path holds a CaptureList, or none, which is the usual case and costs a look at one pointer for a batch.
// Packets from a port are captured when they are received; packets towards one are copied before they are sent (after
// that they are somebody else's) and shown after, as many as the port has taken. So a capture has exactly the packets
// that the vport's counters count.
//
// With several workers a capture is one ring for each: packets of one worker are in their order, packets of several are
// put in order by their time, which is that of their batch.
//
// Threads: a Capture is made and destroyed on the control thread, while no path holds it. Workers call the functions
// with a `worker` index, each with its own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/capture/memory.hpp"
#include "common/capture/ring.hpp"
#include "datapath/capture/filter.hpp"
#include "datapath/packet.hpp"

namespace ovsdr::soft {

class Capture {
public:
    struct Spec {
        bool in = true, out = true;         ///< seen from the switch
        std::uint32_t snap_length = 65535;  ///< bytes of a packet that are kept at most
        std::size_t ring_size = 8 << 20;    ///< bytes for each worker, a power of two
        BpfFilter filter;
    };

    /// Throws std::system_error when there is no memory.
    Capture(Spec spec, unsigned workers);

    [[nodiscard]] int descriptor() const noexcept { return memory_.descriptor(); }
    /// Sums over workers and interfaces.
    [[nodiscard]] capture::Counts counts() const noexcept;

    /// The port's packets, when it received them. The packets stay the caller's.
    void received(unsigned worker, unsigned interface, std::span<rte_mbuf* const> packets) noexcept;

    /// Packets for the port, and then how many of these, from the first on, it has taken. Always called in pairs.
    void before_send(unsigned worker, unsigned interface, std::span<rte_mbuf* const> packets) noexcept;
    void after_send(unsigned worker, unsigned interface, unsigned sent) noexcept;

private:
    /// What a worker has of the capture.
    struct alignas(64) Share {
        explicit Share(capture::Producer ring) : producer(ring) {}

        capture::Producer producer;
        std::uint64_t before = 0;  ///< the ring's position before the batch that is being sent
        struct {
            std::uint64_t position;
            std::uint32_t accepted, dropped;  ///< of the batch so far
        } after[batch_length];                ///< each of its packets
    };

    void take(Share& share, capture::RecordHeader& header, const rte_mbuf* packet,
              capture::Counts& counts) noexcept;

    const Spec spec_;
    capture::Memory memory_;
    std::vector<Share> shares_;
};

/// Who captures at one path of a vport. A value that is replaced as a whole.
class CaptureList {
public:
    struct Item {
        Capture* capture;
        unsigned interface;  ///< the path's number in this capture
    };
    explicit CaptureList(std::vector<Item> items) : items_(std::move(items)) {}
    [[nodiscard]] const std::vector<Item>& items() const noexcept { return items_; }

    void received(unsigned worker, std::span<rte_mbuf* const> packets) const noexcept;
    void before_send(unsigned worker, std::span<rte_mbuf* const> packets) const noexcept;
    void after_send(unsigned worker, unsigned sent) const noexcept;

private:
    std::vector<Item> items_;
};

}  // namespace ovsdr::soft
