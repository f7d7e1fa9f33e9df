// mlx5's direct verbs on device, port, CQ and QP. Direct Rules are in dr/, DEVX in devx/.
#include <algorithm>
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/roce/memory_copy.hpp"
#include "datapath/steering/plain_function.hpp"
#include "datapath/steering/vport_metadata.hpp"
#include "datapath/verbs/ah.hpp"
#include "datapath/verbs/limits.hpp"
#include "datapath/verbs/memory/dm.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/qp_dc.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"
#include "datapath/verbs/rings.hpp"

using namespace ovsdr::soft;

namespace {

[[nodiscard]] int describe_queues(const mlx5dv_obj& object, std::uint64_t types) {
    int error = 0;
    if (types & MLX5DV_OBJ_QP) error = describe_qp(object.qp.in, object.qp.out);
    if (!error && (types & MLX5DV_OBJ_CQ)) error = describe_cq(object.cq.in, object.cq.out);
    if (!error && (types & MLX5DV_OBJ_RWQ)) error = describe_rwq(object.rwq.in, object.rwq.out);
    return error;
}

[[nodiscard]] int describe_pd(ibv_pd* in, mlx5dv_pd* out) {
    out->pdn = Pd::of(in).number;
    out->comp_mask = 0;
    return 0;
}

/// Of an address vector, which an application may put into entries of its own. The handle has it, and outlives its use.
[[nodiscard]] int describe_ah(ibv_ah* in, mlx5dv_ah* out) {
    out->av = &Ah::of(in).vector;
    out->comp_mask = 0;
    return 0;
}

[[nodiscard]] int describe_dm(ibv_dm* in, mlx5dv_dm* out) {
    const DeviceMemory& memory = *Dm::of(in).memory;
    const std::uint64_t asked = out->comp_mask;
    *out = mlx5dv_dm{.buf = memory.bytes(), .length = memory.size(), .comp_mask = 0, .remote_va = 0};
    if (asked & MLX5DV_DM_MASK_REMOTE_VA) {
        out->comp_mask = MLX5DV_DM_MASK_REMOTE_VA;
        out->remote_va = reinterpret_cast<std::uintptr_t>(memory.bytes());
    }
    return 0;
}

constexpr mlx5dv_sig_caps signature_caps{
    .block_size = MLX5DV_BLOCK_SIZE_CAP_512 | MLX5DV_BLOCK_SIZE_CAP_520 | MLX5DV_BLOCK_SIZE_CAP_4048 |
                  MLX5DV_BLOCK_SIZE_CAP_4096 | MLX5DV_BLOCK_SIZE_CAP_4160,
    .block_prot = MLX5DV_SIG_PROT_CAP_T10DIF | MLX5DV_SIG_PROT_CAP_CRC,
    .t10dif_bg = MLX5DV_SIG_T10DIF_BG_CAP_CRC | MLX5DV_SIG_T10DIF_BG_CAP_CSUM,
    .crc_type = MLX5DV_SIG_CRC_TYPE_CAP_CRC32 | MLX5DV_SIG_CRC_TYPE_CAP_CRC32C | MLX5DV_SIG_CRC_TYPE_CAP_CRC64_XP10};

}  // namespace

extern "C" {

int mlx5dv_query_device(ibv_context* context, mlx5dv_context* out) {
    if (const int error = injected_fault("mlx5dv_query_device")) return failed(error);
    const std::uint64_t asked = out->comp_mask;
    *out = mlx5dv_context{};
    out->flags =
        MLX5DV_CONTEXT_FLAGS_CQE_V1 | MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP | MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD;
    if (asked & MLX5DV_CONTEXT_MASK_CQE_COMPRESION) {
        out->cqe_comp_caps = {.max_num = 64, .supported_format = cqe_compression_formats};
        out->comp_mask |= MLX5DV_CONTEXT_MASK_CQE_COMPRESION;
    }
    if (asked & MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD) {
        out->sig_caps = signature_caps;
        out->comp_mask |= MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
    }
    if (asked & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS) {
        out->dc_odp_caps = limits::odp_reliable;
        out->comp_mask |= MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
    }
    if (asked & MLX5DV_CONTEXT_MASK_DCI_STREAMS) {
        out->dci_streams_caps = dci_streams_of(Context::of(context).state);
        out->comp_mask |= MLX5DV_CONTEXT_MASK_DCI_STREAMS;
    }
    // Everything that comp_mask can ask for beyond this is a feature that the device lacks, so it stays 0.
    if (asked & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS) {
        out->num_lag_ports = Context::of(context).state.device().has_lag() ? lag_ports : 1;
        out->comp_mask |= MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS;
    }
    if (asked & MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH) {
        const bool copies = roce::MemoryCopy::there_is(Context::of(context).state.device().profile());
        out->max_wr_memcpy_length = copies ? roce::MemoryCopy::most : 0;
        out->comp_mask |= MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH;
    }
    constexpr std::uint64_t absent =
        MLX5DV_CONTEXT_MASK_SWP | MLX5DV_CONTEXT_MASK_STRIDING_RQ | MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS |
        MLX5DV_CONTEXT_MASK_DYN_BFREGS | MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS | MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD;
    out->comp_mask |= asked & absent;
    return 0;
}

int _mlx5dv_query_port(ibv_context* context, std::uint32_t port, mlx5dv_port* out, std::size_t size) {
    if (const int error = injected_fault("mlx5dv_query_port")) return failed(error);
    DeviceState& state = Context::of(context).state;
    const auto vport = state.vport_of(port);
    if (!vport || size < sizeof out->flags) return failed(EINVAL);
    VportInfo info;
    if (state.device().query(*vport, info) != 0) return failed(EOPNOTSUPP);  // The port's vport is gone.
    mlx5dv_port full{};
    if (is_plain_function(state.device().steering())) {
        std::memset(out, 0, size);   // the kernel knows of no vports
        return 0;
    }
    full.flags = MLX5DV_QUERY_PORT_VPORT | MLX5DV_QUERY_PORT_VPORT_VHCA_ID | MLX5DV_QUERY_PORT_VPORT_REG_C0 |
                 MLX5DV_QUERY_PORT_ESW_OWNER_VHCA_ID;
    full.vport = vport->value;
    full.vport_vhca_id = state.vhca_id_of(*vport);
    full.esw_owner_vhca_id = state.vhca_id_of(manager_vport);
    full.reg_c0.value = vport_metadata(*vport);
    full.reg_c0.mask = vport_metadata_mask;
    std::memset(out, 0, size);
    std::memcpy(out, &full, std::min(size, sizeof full));
    return 0;
}

/// EOPNOTSUPP for SRQs, whose requests stand in no ring that an application could have; see rings.hpp.
int mlx5dv_init_obj(mlx5dv_obj* object, std::uint64_t types) {
    if (const int error = injected_fault("mlx5dv_init_obj")) return failed(error);
    constexpr std::uint64_t known =
        MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | MLX5DV_OBJ_RWQ | MLX5DV_OBJ_PD | MLX5DV_OBJ_AH | MLX5DV_OBJ_DM;
    if (types & ~known) return failed(EOPNOTSUPP);
    try {
        if (const int error = describe_queues(*object, types)) return failed(error);
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
    if (types & MLX5DV_OBJ_PD) {
        if (const int error = describe_pd(object->pd.in, object->pd.out)) return failed(error);
    }
    if (types & MLX5DV_OBJ_AH) {
        if (const int error = describe_ah(object->ah.in, object->ah.out)) return failed(error);
    }
    if (types & MLX5DV_OBJ_DM) {
        if (const int error = describe_dm(object->dm.in, object->dm.out)) return failed(error);
    }
    return 0;
}

ibv_cq_ex* mlx5dv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr, mlx5dv_cq_init_attr* mlx5_attr) {
    return create_mlx5_cq(context, *attr, mlx5_attr);
}

ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* mlx5_attr) {
    int error = injected_fault("mlx5dv_create_qp");
    if (!error && is_rdma(attr->qp_type)) return create_rdma_qp(context, *attr, mlx5_attr);
    if (!error && mlx5_attr) {
        // Loopback to self is what the eSwitch decides; CQEs carry no data: both flags ask for what is so anyway.
        constexpr std::uint32_t harmless = MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC |
                                           MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC |
                                           MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
        constexpr std::uint32_t known_flags = harmless | MLX5DV_QP_CREATE_TUNNEL_OFFLOADS |
                                              MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE |
                                              MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE |
                                              MLX5DV_QP_CREATE_SIG_PIPELINING;
        constexpr std::uint64_t known = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS |
                                        MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
        const std::uint64_t mask = mlx5_attr->comp_mask;
        const std::uint32_t flags = mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS ? mlx5_attr->create_flags : 0;
        if (mask & ~std::uint64_t{MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS}) error = EOPNOTSUPP;
        if (flags & ~harmless) error = EOPNOTSUPP;
        if ((mask & ~known) || (flags & ~known_flags)) error = EINVAL;  // A DC queue is of type DRIVER.
    }
    if (error) {
        errno = error;
        return nullptr;
    }
    return create_qp_ex_op(context, attr);
}

/// Source: mlx5dv_modify_qp_udp_sport(3), which libmlx5 sends as a change of a running connection.
int mlx5dv_modify_qp_udp_sport(ibv_qp* base, std::uint16_t port) {
    if (const int error = injected_fault("mlx5dv_modify_qp_udp_sport")) return failed(error);
    Qp& qp = Qp::of(base);
    const bool is_connected = base->qp_type == IBV_QPT_RC || base->qp_type == IBV_QPT_UC;
    if (!is_connected || base->state != IBV_QPS_RTS) return failed(EOPNOTSUPP);
    const int error = qp.rdma->device->set_udp_source_port(port);
    return error ? failed(error) : 0;
}

/// How many were cancelled, or a negative errno.
int mlx5dv_qp_cancel_posted_send_wrs(mlx5dv_qp_ex* qp, std::uint64_t wr_id) {
    if (const int error = injected_fault("mlx5dv_qp_cancel_posted_send_wrs")) return -failed(error);
    return Qp::of(qp).rdma ? cancel_rdma_sends(Qp::of(qp), wr_id) : -EINVAL;
}

mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* qp) {
    return &Qp::of(qp).mlx5;
}

}  // extern "C"
