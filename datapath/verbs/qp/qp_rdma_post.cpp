// ibv_post_send() and ibv_post_recv() on RDMA queue pairs.
//
// What libmlx5 looks at when a request is posted is looked at here, with its errors; the rest is the device's, and
// comes as a completion. Source: ibv_post_send(3), ibv_post_recv(3), rdma-core 44 providers/mlx5.
#include <endian.h>

#include <array>
#include <cerrno>

#include "datapath/verbs/qp/qp_rdma.hpp"
#include "datapath/verbs/wqe/qp_segments.hpp"

namespace ovsdr::soft {

namespace {

struct OpcodeFact {
    std::uint8_t opcode;
    std::uint32_t completes_as = 0;
    bool fences_next = false;
};
// By enum ibv_wr_opcode.
constexpr std::array opcodes{OpcodeFact{MLX5_OPCODE_RDMA_WRITE},
                             OpcodeFact{MLX5_OPCODE_RDMA_WRITE_IMM},
                             OpcodeFact{MLX5_OPCODE_SEND},
                             OpcodeFact{MLX5_OPCODE_SEND_IMM},
                             OpcodeFact{MLX5_OPCODE_RDMA_READ},
                             OpcodeFact{MLX5_OPCODE_ATOMIC_CS},
                             OpcodeFact{MLX5_OPCODE_ATOMIC_FA},
                             OpcodeFact{MLX5_OPCODE_UMR, IBV_WC_LOCAL_INV, true},
                             OpcodeFact{MLX5_OPCODE_UMR, IBV_WC_BIND_MW, true},
                             OpcodeFact{MLX5_OPCODE_SEND_INVAL},
                             OpcodeFact{MLX5_OPCODE_TSO}};
static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_ATOMIC_FETCH_AND_ADD == 6 && IBV_WR_LOCAL_INV == 7 &&
              IBV_WR_BIND_MW == 8 && IBV_WR_SEND_WITH_INV == 9 && IBV_WR_TSO == 10);

[[nodiscard]] bool is_atomic(ibv_wr_opcode opcode) {
    return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

[[nodiscard]] __be32 immediate_of(const ibv_send_wr& request) {
    switch (request.opcode) {
        case IBV_WR_SEND_WITH_IMM:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
            return request.imm_data;
        case IBV_WR_SEND_WITH_INV:
        case IBV_WR_LOCAL_INV:
            return htobe32(request.invalidate_rkey);
        case IBV_WR_BIND_MW:
            return htobe32(request.bind_mw.mw->rkey);
        default:
            return 0;
    }
}

void append_address(WqeBuilder& builder, const ibv_send_wr& request) {
    auto& segment = builder.append<mlx5_wqe_raddr_seg>();
    const bool atomic = is_atomic(request.opcode);
    segment.raddr = htobe64(atomic ? request.wr.atomic.remote_addr : request.wr.rdma.remote_addr);
    segment.rkey = htobe32(atomic ? request.wr.atomic.rkey : request.wr.rdma.rkey);
    if (!atomic) return;
    auto& operands = builder.append<mlx5_wqe_atomic_seg>();
    const bool swap = request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    operands.swap_add = htobe64(swap ? request.wr.atomic.swap : request.wr.atomic.compare_add);
    if (swap) operands.compare = htobe64(request.wr.atomic.compare_add);
}

/// The segments between control and data.
[[nodiscard]] int append_transport(WqeBuilder& builder, ibv_qp_type type, const ibv_send_wr& request) {
    const bool is_umr = request.opcode == IBV_WR_BIND_MW || request.opcode == IBV_WR_LOCAL_INV;
    if (type == IBV_QPT_UD) {
        append_datagram(builder, *request.wr.ud.ah, request.wr.ud.remote_qpn, request.wr.ud.remote_qkey);
        return 0;
    }
    if (type == IBV_QPT_XRC_SEND && !is_umr) append_xrc(builder, request.qp_type.xrc.remote_srqn);
    switch (request.opcode) {
        case IBV_WR_RDMA_READ:
        case IBV_WR_RDMA_WRITE:
        case IBV_WR_RDMA_WRITE_WITH_IMM:
        case IBV_WR_ATOMIC_CMP_AND_SWP:
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            append_address(builder, request);
            return 0;
        case IBV_WR_BIND_MW:
            return append_bind(builder, request.bind_mw.mw->type, request.bind_mw.rkey, request.bind_mw.bind_info);
        case IBV_WR_LOCAL_INV:
            return append_bind(builder, IBV_MW_TYPE_2, 0, {});
        default:
            return 0;
    }
}

[[nodiscard]] int append_payload(WqeBuilder& builder, const ibv_send_wr& request) {
    const std::span<const ibv_sge> pieces{request.sg_list, static_cast<std::size_t>(request.num_sge)};
    if (request.send_flags & IBV_SEND_INLINE) return append_inline(builder, pieces);
    for (ibv_sge piece : pieces) {
        if (piece.length == 0) continue;
        if (is_atomic(request.opcode)) piece.length = sizeof(std::uint64_t);
        builder.append_data(piece);
    }
    return 0;
}

/// What the queue's type can be asked for at all: libmlx5 leaves the rest to the device, which has no such entries.
[[nodiscard]] int build(Qp& qp, const ibv_send_wr& request) {
    WqeBuilder& builder = qp.rdma->send;
    const auto index = static_cast<std::size_t>(request.opcode);
    if (index >= opcodes.size()) return EINVAL;
    const OpcodeFact& fact = opcodes[index];
    if (!builder.begin({.opcode = fact.opcode,
                        .immediate = immediate_of(request),
                        .completes_as = fact.completes_as,
                        .fences_next = fact.fences_next},
                       request.wr_id, request.send_flags)) {
        return builder.error();
    }
    const bool fits = request.num_sge >= 0 && static_cast<std::uint32_t>(request.num_sge) <= builder.shape().max_sges;
    if (!qp.rdma->may_send || !fits) return ENOMEM;
    if (const int error = append_transport(builder, qp.qp_base.qp_type, request)) return error;
    if (const int error = append_payload(builder, request)) return error;
    builder.end();
    return builder.error();
}

}  // namespace

int post_rdma_send(Qp& qp, ibv_send_wr* first, ibv_send_wr** bad) {
    WqeBuilder& builder = qp.rdma->send;
    int error = 0;
    builder.start();
    for (ibv_send_wr* request = first; request; request = request->next) {
        error = build(qp, *request);
        if (!error) continue;
        *bad = request;
        builder.forgive();
        break;
    }
    bool any = false;
    const int refused = builder.publish(any);
    if (any) qp.rdma->device->ring_send();
    return error ? failed(error) : refused;
}

int post_rdma_receive(Qp& qp, ibv_recv_wr* first, ibv_recv_wr** bad) {
    if (!qp.rdma->may_receive && first) {
        *bad = first;
        return failed(EINVAL);
    }
    const int error = qp.rdma->receive.post(first, bad);
    if (first && (!error || *bad != first)) qp.rdma->device->ring_receive();
    return error ? failed(error) : 0;
}

}  // namespace ovsdr::soft
