#include "datapath/verbs/wqe/qp_layout.hpp"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <optional>

#include "datapath/verbs/limits.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::uint32_t block = 64;
constexpr std::uint32_t max_send_entry = 1024;    // max_wqe_sz_sq
constexpr std::uint32_t max_receive_entry = 512;  // max_wqe_sz_rq
constexpr std::uint32_t most_blocks = 1u << 15;
constexpr std::uint32_t inline_head = 4;  // mlx5_wqe_inl_data_seg
constexpr std::uint32_t xrc_segment = 16;

constexpr std::uint32_t control = sizeof(mlx5_wqe_ctrl_seg);
constexpr std::uint32_t umr = control + sizeof(mlx5_wqe_umr_ctrl_seg) + sizeof(mlx5_wqe_mkey_context_seg) + 64;

struct Segments {
    std::uint64_t operations;  ///< any of these
    std::uint32_t size;        ///< bytes before data
};
constexpr std::array by_operation{
    Segments{IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ,
             control + sizeof(mlx5_wqe_raddr_seg)},
    Segments{IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
             control + sizeof(mlx5_wqe_raddr_seg) + sizeof(mlx5_wqe_atomic_seg)},
    Segments{IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV, umr}};

// What a queue may be asked for that does not say (no send_ops_flags).
constexpr std::uint64_t connected_operations =
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;

[[nodiscard]] constexpr std::uint32_t aligned(std::uint32_t size, std::uint32_t unit) {
    return (size + unit - 1) / unit * unit;
}

/// Bytes of an entry before its data.
[[nodiscard]] std::optional<std::uint32_t> overhead(const ibv_qp_init_attr_ex& attr, std::uint64_t mlx5_operations) {
    const bool said = attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    const bool sends_only = attr.qp_type == IBV_QPT_UD || attr.qp_type == IBV_QPT_RAW_PACKET;
    const std::uint64_t operations =
        said ? attr.send_ops_flags : sends_only ? std::uint64_t{IBV_QP_EX_WITH_SEND} : connected_operations;
    std::uint32_t size = control;
    for (const Segments& segments : by_operation) {
        if (operations & segments.operations) size = std::max(size, segments.size);
    }
    constexpr std::uint64_t keys =
        MLX5DV_QP_EX_WITH_MR_INTERLEAVED | MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
    if (mlx5_operations & keys) size = std::max(size, umr);
    switch (attr.qp_type) {
        case IBV_QPT_RC:
        case IBV_QPT_UC:
            return size;
        case IBV_QPT_UD:
        case IBV_QPT_DRIVER:  // a DCI
            return size + static_cast<std::uint32_t>(sizeof(mlx5_wqe_datagram_seg));
        case IBV_QPT_RAW_PACKET:
            return size + static_cast<std::uint32_t>(sizeof(mlx5_wqe_eth_seg));
        case IBV_QPT_XRC_SEND:
        case IBV_QPT_XRC_RECV:
            return size + xrc_segment;
        default:
            return std::nullopt;
    }
}

[[nodiscard]] int lay_out_send(const ibv_qp_init_attr_ex& attr, std::uint64_t mlx5_operations, QpLayout& layout) {
    const ibv_qp_cap& cap = attr.cap;
    if (cap.max_send_wr == 0) return 0;
    const auto before_data = overhead(attr, mlx5_operations);
    const std::uint32_t header =
        attr.comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER ? aligned(attr.max_tso_header, 16) : 0;
    if (!before_data || header > max_send_entry - *before_data ||
        cap.max_send_sge > (max_send_entry - *before_data - header) / sizeof(mlx5_wqe_data_seg)) {
        return EINVAL;
    }
    if (cap.max_inline_data > max_send_entry || cap.max_send_wr > 0x7fffffff / max_send_entry) return EINVAL;
    const std::uint32_t with_inline =
        cap.max_inline_data ? *before_data + aligned(inline_head + cap.max_inline_data, 16) : 0;
    const std::uint32_t with_list =
        *before_data + header + cap.max_send_sge * static_cast<std::uint32_t>(sizeof(mlx5_wqe_data_seg));
    layout.entry_size = aligned(std::max(with_list, with_inline), block);
    if (layout.entry_size > max_send_entry) return EINVAL;
    const std::uint64_t ring = std::bit_ceil(std::uint64_t{cap.max_send_wr} * layout.entry_size);
    if (ring / block > most_blocks) return EINVAL;
    layout.blocks = static_cast<std::uint32_t>(ring / block);
    layout.send_entries = static_cast<std::uint32_t>(ring / layout.entry_size);
    layout.send_sges = cap.max_send_sge;
    layout.max_inline = layout.entry_size - *before_data - inline_head;
    return 0;
}

[[nodiscard]] int lay_out_receive(const ibv_qp_init_attr_ex& attr, QpLayout& layout) {
    const bool none = attr.srq || attr.qp_type == IBV_QPT_XRC_SEND || attr.qp_type == IBV_QPT_XRC_RECV;
    if (none || attr.cap.max_recv_wr == 0) return 0;
    const std::uint64_t size = std::uint64_t{std::max(attr.cap.max_recv_sge, 1u)} * sizeof(mlx5_wqe_data_seg);
    if (attr.cap.max_recv_wr > static_cast<std::uint32_t>(limits::work_requests) || size > max_receive_entry) {
        return EINVAL;
    }
    layout.stride = std::bit_ceil(static_cast<std::uint32_t>(size));
    const std::uint32_t ring = std::max(std::bit_ceil(attr.cap.max_recv_wr) * layout.stride, block);
    layout.receive_entries = ring / layout.stride;
    layout.receive_sges = layout.stride / static_cast<std::uint32_t>(sizeof(mlx5_wqe_data_seg));
    return 0;
}

}  // namespace

int lay_out(const ibv_qp_init_attr_ex& attr, std::uint64_t mlx5_operations, QpLayout& layout) noexcept {
    layout = QpLayout{};
    if (const int error = lay_out_send(attr, mlx5_operations, layout)) return error;
    return lay_out_receive(attr, layout);
}

int lay_out(ibv_srq_attr& attr) noexcept {
    constexpr std::uint32_t next_segment = 16;  // mlx5_wqe_srq_next_seg
    if (attr.max_wr > static_cast<std::uint32_t>(limits::shared_receives) ||
        attr.max_sge > static_cast<std::uint32_t>(limits::shared_receive_sges)) {
        return EINVAL;
    }
    const auto pieces = static_cast<std::uint32_t>(attr.max_sge * sizeof(mlx5_wqe_data_seg));
    const std::uint32_t size = std::bit_ceil(std::max(2 * next_segment, next_segment + pieces));
    attr.max_sge = (size - next_segment) / static_cast<std::uint32_t>(sizeof(mlx5_wqe_data_seg));
    attr.max_wr = std::bit_ceil(attr.max_wr + 1) - 1;
    return 0;
}

}  // namespace ovsdr::soft
