// A port's slow-path queue, or several: some kinds of packets have queues of their own, all others go to the first.
//
// Behind PortQueue kinds are spread over receive queues by RSS; here each has one queue, so that who takes a packet out
// knows which rule led it there.
//
// Threads: one. Errors: std::runtime_error.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"

namespace ovsdr::differential {

class PortQueues {
public:
    /// `has_kinds`: several.
    PortQueues(const dr::Eswitch& eswitch, dr::VportId vport, bool has_kinds);

    [[nodiscard]] std::size_t size() const { return queues_.size(); }
    [[nodiscard]] slowpath::PortQueue& operator[](std::size_t queue) const { return *queues_[queue]; }
    /// All but the first, with what they are for.
    [[nodiscard]] std::span<const dr::QueuePairFor> by_kind() const { return by_kind_; }
    [[nodiscard]] bool has(std::uint32_t queue_pair) const;
    /// Throws if a frame has come to a queue of another kind than its own. Where each device reads the headers in its
    /// own way (fragments, broken headers) any queue is right.
    void check_kind(std::uint32_t queue_pair, const std::vector<std::uint8_t>& frame) const;

private:
    std::vector<std::unique_ptr<slowpath::PortQueue>> queues_;
    std::vector<dr::QueuePairFor> by_kind_;
};

}  // namespace ovsdr::differential
