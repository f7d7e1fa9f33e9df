// What mlx5dv_init_obj() shows of queues: rings, doorbell records, doorbell pages, for applications that drive them
// themselves.
//
// Model. Receive and send rings of RDMA queue pairs and work queues are in the application's memory anyway; a send ring
// that was shown has its doorbell record looked at from then on (polled_doorbell.hpp), since nobody says when the
// application has rung. A CQ that was shown gets a ring of CQEs beside its own (CompletionQueue, "Exposed").
//
// Threads: any; one call for an object at a time. Errors: positive errno. Source: mlx5dv_init_obj(3).
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <atomic>

#include "datapath/rdma/completion/devx_doorbells.hpp"
#include "datapath/rdma/memory/queue_memory.hpp"

namespace ovsdr::soft {

struct Cq;

/// The ring of a CQ that was shown, and its doorbell record. Goes before the queue does.
class CqExposure final : private devx::Armable {
public:
    /// Throws std::bad_alloc.
    explicit CqExposure(Cq& cq);
    ~CqExposure();
    CqExposure(const CqExposure&) = delete;
    CqExposure& operator=(const CqExposure&) = delete;

    /// A ring of the queue's present length in place of the last one. Throws std::bad_alloc.
    void show();
    [[nodiscard]] mlx5dv_cq describe() noexcept;

private:
    void look_at_arm_record(bool surely) noexcept override;

    Cq& cq_;
    devx::DoorbellPage& page_;
    alignas(64) std::array<std::atomic<__be32>, 2> doorbells_{};  ///< consumer counter, arm word
    devx::ArmRecord arm_record_{doorbells_[1]};
    QueueMemory ring_;
};

[[nodiscard]] int describe_cq(ibv_cq* in, mlx5dv_cq* out);
[[nodiscard]] int describe_rwq(ibv_wq* in, mlx5dv_rwq* out);
/// EOPNOTSUPP: a raw packet QP whose handles are not asked for (comp_mask), since it has no such rings; a DCT.
[[nodiscard]] int describe_qp(ibv_qp* in, mlx5dv_qp* out);

}  // namespace ovsdr::soft
