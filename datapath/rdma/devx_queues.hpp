// Completion queues and queue pairs that DEVX commands make: rings and doorbell records in the application's UMEMs, which it
// fills and rings itself.
//
// Model. The application writes its doorbell record and then a doorbell page, which is plain memory here: nobody is told.
// So the worker looks at the records of these queues again and again. Completions are CQEs (cqe_ring.hpp). Queue pairs
// are RC, UC and UD ones; the receive ring stands first in the UMEM, the send ring behind it.
//
// Limits. No events of these queues (no EQ is the application's), no SRQ, no work queues apart from queue pairs.
//
// Threads: commands of one object one at a time. Source: PRM, CREATE_CQ, CREATE_QP and the commands that modify a QP.
#pragma once

#include <memory>

#include "datapath/rdma/devx.hpp"

namespace ovsdr::soft::devx {

class Queue {
public:
    virtual ~Queue() = default;
    /// Something uses it.
    [[nodiscard]] virtual bool busy() const noexcept { return false; }
    [[nodiscard]] virtual prm::Status modify(prm::Opcode, Input) { return prm::Status::bad_op; }
    [[nodiscard]] virtual prm::Status query(prm::Opcode, Output) { return prm::Status::bad_op; }
};

/// CREATE_CQ and CREATE_QP. `number` is the queue's, and is in `out`.
[[nodiscard]] prm::Status create_cq(DeviceState& state, Input in, Output out, std::unique_ptr<Queue>& queue,
                                    std::uint32_t& number);
[[nodiscard]] prm::Status create_qp(DeviceState& state, Input in, Output out, std::unique_ptr<Queue>& queue,
                                    std::uint32_t& number);

/// Commands on queue pairs that take the queue's number as their first argument.
[[nodiscard]] bool modifies_qp(prm::Opcode opcode) noexcept;

}  // namespace ovsdr::soft::devx
