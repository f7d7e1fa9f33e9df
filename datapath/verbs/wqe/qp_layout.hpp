// How large an RDMA queue pair's rings are, and what capabilities that comes to.
//
// The arithmetic is libmlx5's, so that an application is granted on the soft NIC what it is granted on hardware: an
// entry has room for the largest operation that the queue may be asked for, its pieces or its inline data, rounded up
// to basic blocks of 64 bytes; the ring is rounded up to a power of two; what rounding added is granted.
// Source: ibv_create_qp_ex(3); rdma-core 44 providers/mlx5 (sizes of work queue entries).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace ovsdr::soft {

struct QpLayout {
    std::uint32_t entry_size = 0;    ///< bytes of a send queue entry at most
    std::uint32_t blocks = 0;        ///< of the send ring; 0: no send queue
    std::uint32_t send_entries = 0;
    std::uint32_t send_sges = 0;
    std::uint32_t max_inline = 0;    ///< bytes
    std::uint32_t stride = 0;        ///< bytes of a receive entry
    std::uint32_t receive_entries = 0;
    std::uint32_t receive_sges = 0;

    /// Without a send queue what was asked of its entries stays, as libmlx5 leaves it.
    [[nodiscard]] ibv_qp_cap granted(const ibv_qp_cap& asked) const noexcept {
        return {.max_send_wr = send_entries,
                .max_recv_wr = receive_entries,
                .max_send_sge = blocks != 0 ? send_sges : asked.max_send_sge,
                .max_recv_sge = receive_sges,
                .max_inline_data = blocks != 0 ? max_inline : asked.max_inline_data};
    }
};

/// `mlx5_operations`: enum mlx5dv_qp_create_send_ops_flags. EINVAL: more than the device has.
[[nodiscard]] int lay_out(const ibv_qp_init_attr_ex& attr, std::uint64_t mlx5_operations, QpLayout& layout) noexcept;

/// Of a shared receive queue: what is granted for `max_wr` and `max_sge`; EINVAL as above.
[[nodiscard]] int lay_out(ibv_srq_attr& attr) noexcept;

}  // namespace ovsdr::soft
