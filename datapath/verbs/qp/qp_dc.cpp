#include "datapath/verbs/qp/qp_dc.hpp"

#include <cerrno>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/roce/transport.hpp"
#include "datapath/verbs/ah.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::uint8_t log_most_streams = 4;

[[nodiscard]] int check_target(const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr& mlx5) noexcept {
    constexpr std::uint64_t known = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    if (attr.comp_mask & ~std::uint32_t{IBV_QP_INIT_ATTR_PD}) return EINVAL;
    if (mlx5.comp_mask & ~known) return EINVAL;
    const bool flags = mlx5.comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    if (flags && (mlx5.create_flags & MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE)) return EINVAL;
    return attr.srq ? 0 : EINVAL;
}

[[nodiscard]] int check_initiator(const mlx5dv_dci_streams_caps& streams, const ibv_qp_init_attr_ex& attr,
                                  const mlx5dv_qp_init_attr& mlx5) noexcept {
    if (attr.cap.max_recv_wr || attr.cap.max_recv_sge) return EINVAL;
    if (!(mlx5.comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS)) return 0;
    const mlx5dv_dci_streams& asked = mlx5.dc_init_attr.dci_streams;
    return streams.max_log_num_concurent == 0 || asked.log_num_concurent > streams.max_log_num_concurent ||
                   asked.log_num_errored > streams.max_log_num_errored
               ? EINVAL
               : 0;
}

}  // namespace

mlx5dv_dci_streams_caps dci_streams_of(DeviceState& state) noexcept {
    if (state.device().profile().steering_format == 0) return {};
    return {.max_log_num_concurent = log_most_streams, .max_log_num_errored = log_most_streams};
}

int check_dc(const mlx5dv_dci_streams_caps& streams, const ibv_qp_init_attr_ex& attr,
             const mlx5dv_qp_init_attr* mlx5) noexcept {
    if (!mlx5 || !(mlx5->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC)) return EINVAL;
    switch (mlx5->dc_init_attr.dc_type) {
        case MLX5DV_DCTYPE_DCT:
            return check_target(attr, *mlx5);
        case MLX5DV_DCTYPE_DCI:
            return check_initiator(streams, attr, *mlx5);
        default:
            return EINVAL;
    }
}

std::optional<roce::DcSpec> dc_of(const ibv_qp_init_attr_ex& attr, const mlx5dv_qp_init_attr* mlx5) noexcept {
    if (attr.qp_type != IBV_QPT_DRIVER) return std::nullopt;
    const mlx5dv_dc_init_attr& dc = mlx5->dc_init_attr;
    if (dc.dc_type == MLX5DV_DCTYPE_DCT) {
        return roce::DcSpec{.end = MLX5DV_DCTYPE_DCT, .access_key = dc.dct_access_key};
    }
    if (!(mlx5->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS)) return roce::DcSpec{.end = MLX5DV_DCTYPE_DCI};
    return roce::DcSpec{.end = MLX5DV_DCTYPE_DCI,
                        .log_streams = dc.dci_streams.log_num_concurent,
                        .log_errored = dc.dci_streams.log_num_errored};
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

/// libmlx5 asks for the state before the type; a stream that has not failed is the firmware's to refuse.
int mlx5dv_dci_stream_id_reset(ibv_qp* base, std::uint16_t stream) {
    if (const int error = injected_fault("mlx5dv_dci_stream_id_reset")) return failed(error);
    const bool has_any = dci_streams_of(Context::of(base->context).state).max_log_num_errored != 0;
    if (!has_any || base->state != IBV_QPS_RTS) return failed(EOPNOTSUPP);
    if (base->qp_type != IBV_QPT_DRIVER) return failed(EINVAL);
    const int error = Qp::of(base).rdma->device->reset_stream(stream);
    return error ? failed(error) : 0;
}

/// A hint for congestion control by address. The transport has none, so what it would choose by is the same for all
/// queue pairs: all that is left is that there is one of that number. A second mapping of a handle does nothing.
int mlx5dv_map_ah_to_qp(ibv_ah* base, std::uint32_t number) {
    if (const int error = injected_fault("mlx5dv_map_ah_to_qp")) return failed(error);
    Ah& ah = Ah::of(base);
    if (ah.is_mapped) return 0;
    if (!Context::of(base->context).state.transport().has_queue_pair(number)) return failed(EINVAL);
    ah.is_mapped = true;
    return 0;
}

}  // extern "C"
