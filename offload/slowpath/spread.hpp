// Receive-side scaling over several receive queues: an indirection table, and a queue pair without queues (the device's
// TIR) for each kind of packet that has a hash of its own.
//
// A TIR hashes one IP version and one protocol, so there is one for each kind: what is neither IPv4 nor IPv6 goes to
// the first queue, and so do fragments of TCP and UDP, which have no ports. Both directions of a connection meet in one
// queue where the device's hash is symmetric, as the kernel asks for.
//
// Source: ibv_create_rwq_ind_table(3), ibv_create_qp_ex(3).
#pragma once

#include <span>
#include <vector>

#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "offload/slowpath/verbs_owner.hpp"

namespace ovsdr::slowpath {

class Spread {
public:
    /// The receive queues outlive it.
    [[nodiscard]] static Result<Spread> create(const PortQueueSpec& spec, std::span<ibv_wq* const> queues);

    /// Leads to the first queue.
    [[nodiscard]] ibv_qp* to_first() const noexcept { return to_first_.get(); }
    [[nodiscard]] std::span<const dr::QueuePairFor> by_kind() const noexcept { return by_kind_; }

private:
    Spread() = default;

    Owner<ibv_rwq_ind_table> first_, all_;   // destroyed after what is made of them
    Owner<ibv_qp> to_first_;
    std::vector<Owner<ibv_qp>> owned_;
    std::vector<dr::QueuePairFor> by_kind_;
};

}  // namespace ovsdr::slowpath
