// Extended RDMA queue pairs: requests built call by call between ibv_wr_start() and ibv_wr_complete().
//
// A connected queue's operations wait for one setter (the data), those of datagrams, DC and XRC for two (the address,
// or the remote SRQ, in either order); windows and invalidations for none. As in libmlx5 an extended queue has every
// operation of its type, whatever send_ops_flags named.
// Source: ibv_wr_post(3), mlx5dv_wr_post(3).
#include <endian.h>

#include <cerrno>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"
#include "datapath/verbs/wqe/qp_segments.hpp"

namespace ovsdr::soft {

namespace {

[[nodiscard]] WqeBuilder& builder_of(ibv_qp_ex* qp) {
    return Qp::of(qp).rdma->send;
}

void wr_start(ibv_qp_ex* qp) {
    WqeBuilder& builder = builder_of(qp);
    builder.start();
    if (const int error = injected_fault("ibv_wr_start")) builder.fail(error);
}

int wr_complete(ibv_qp_ex* base) {
    Qp& qp = Qp::of(base);
    if (const int error = injected_fault("ibv_wr_complete")) qp.rdma->send.fail(error);
    // As libmlx5: a queue that was not yet in RTS takes no batch, whatever is wrong with it.
    if (!qp.rdma->may_send) {
        qp.rdma->send.abort();
        return failed(EINVAL);
    }
    bool any = false;
    const int error = qp.rdma->send.publish(any);
    if (any) qp.rdma->device->ring_send();
    return error ? failed(error) : 0;
}

void wr_abort(ibv_qp_ex* qp) {
    builder_of(qp).abort();
}

/// Begins an operation and the segments that its queue's type puts first.
WqeBuilder* begin(ibv_qp_ex* qp, std::uint8_t opcode, __be32 immediate = 0) {
    WqeBuilder& builder = builder_of(qp);
    if (!builder.begin({.opcode = opcode, .immediate = immediate}, qp->wr_id, qp->wr_flags)) return nullptr;
    const ibv_qp_type type = qp->qp_base.qp_type;
    if (type == IBV_QPT_UD || type == IBV_QPT_DRIVER) builder.append<mlx5_wqe_datagram_seg>();
    if (type == IBV_QPT_XRC_SEND) builder.append<XrcSegment>();
    builder.expect(type == IBV_QPT_RC || type == IBV_QPT_UC ? 1 : 2);
    return &builder;
}

void begin_remote(ibv_qp_ex* qp, std::uint8_t opcode, std::uint32_t rkey, std::uint64_t address, __be32 immediate = 0) {
    WqeBuilder* const builder = begin(qp, opcode, immediate);
    if (!builder) return;
    auto& segment = builder->append<mlx5_wqe_raddr_seg>();
    segment.raddr = htobe64(address);
    segment.rkey = htobe32(rkey);
}

void begin_atomic(ibv_qp_ex* qp, std::uint8_t opcode, std::uint32_t rkey, std::uint64_t address,
                  const mlx5_wqe_atomic_seg& operands) {
    begin_remote(qp, opcode, rkey, address);
    if (!builder_of(qp).error()) builder_of(qp).append<mlx5_wqe_atomic_seg>() = operands;
}

void wr_send(ibv_qp_ex* qp) {
    begin(qp, MLX5_OPCODE_SEND);
}
void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) {
    begin(qp, MLX5_OPCODE_SEND_IMM, immediate);
}
void wr_send_inv(ibv_qp_ex* qp, std::uint32_t key) {
    begin(qp, MLX5_OPCODE_SEND_INVAL, htobe32(key));
}
void wr_rdma_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
    begin_remote(qp, MLX5_OPCODE_RDMA_WRITE, rkey, address);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, __be32 immediate) {
    begin_remote(qp, MLX5_OPCODE_RDMA_WRITE_IMM, rkey, address, immediate);
}
void wr_rdma_read(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
    begin_remote(qp, MLX5_OPCODE_RDMA_READ, rkey, address);
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                       std::uint64_t swap) {
    begin_atomic(qp, MLX5_OPCODE_ATOMIC_CS, rkey, address, {htobe64(swap), htobe64(compare)});
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
    begin_atomic(qp, MLX5_OPCODE_ATOMIC_FA, rkey, address, {htobe64(add), 0});
}

void bind_or_invalidate(ibv_qp_ex* qp, std::uint32_t key, std::uint32_t new_key, const ibv_mw_bind_info& info,
                        ibv_wc_opcode completes_as) {
    WqeBuilder& builder = builder_of(qp);
    if (!builder.begin({.opcode = MLX5_OPCODE_UMR,
                        .immediate = htobe32(key),
                        .completes_as = static_cast<std::uint32_t>(completes_as),
                        .fences_next = true},
                       qp->wr_id, qp->wr_flags)) {
        return;
    }
    if (const int error = append_bind(builder, IBV_MW_TYPE_2, new_key, info)) return builder.fail(error);
    builder.end();
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
    bind_or_invalidate(qp, mw->rkey, rkey, *info, IBV_WC_BIND_MW);
}
void wr_local_inv(ibv_qp_ex* qp, std::uint32_t key) {
    bind_or_invalidate(qp, key, 0, {}, IBV_WC_LOCAL_INV);
}

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t length, const ibv_sge* list) {
    WqeBuilder& builder = builder_of(qp);
    if (!builder.expects_setter()) return;
    if (length > builder.shape().max_sges) return builder.fail(ENOMEM);
    for (const ibv_sge& sge : std::span(list, length)) {
        if (sge.length) builder.append_data(sge);
    }
    builder.setter_done();
}
void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
    WqeBuilder& builder = builder_of(qp);
    if (!builder.expects_setter()) return;
    if (length) builder.append_data({address, length, lkey});
    builder.setter_done();
}

void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t length, const ibv_data_buf* list) {
    WqeBuilder& builder = builder_of(qp);
    if (!builder.expects_setter()) return;
    if (const int error = append_inline(builder, std::span(list, length))) return builder.fail(error);
    builder.setter_done();
}
void wr_set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
    const ibv_data_buf buffer{address, length};
    wr_set_inline_data_list(qp, 1, &buffer);
}

/// The segment behind control, which begin() made room for.
template <typename Segment>
[[nodiscard]] Segment& first_segment(WqeBuilder& builder) {
    return *reinterpret_cast<Segment*>(&builder.control() + 1);
}

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) {
    WqeBuilder& builder = builder_of(qp);
    if (!builder.expects_setter()) return;
    fill_datagram(first_segment<mlx5_wqe_datagram_seg>(builder), *ah, remote_qpn, remote_qkey);
    builder.setter_done();
}
void wr_set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t srqn) {
    WqeBuilder& builder = builder_of(qp);
    if (!builder.expects_setter()) return;
    first_segment<XrcSegment>(builder).srqn = htobe32(srqn);
    builder.setter_done();
}

void wr_set_dc_addr(mlx5dv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_dctn, std::uint64_t access_key) {
    WqeBuilder& builder = Qp::of(qp).rdma->send;
    if (!builder.expects_setter()) return;
    auto& segment = first_segment<mlx5_wqe_datagram_seg>(builder);
    fill_datagram(segment, *ah, remote_dctn, 0);
    segment.av.key.dc_key = htobe64(access_key);
    builder.setter_done();
}
void wr_set_dc_addr_stream(mlx5dv_qp_ex* qp, ibv_ah* ah, std::uint32_t remote_dctn, std::uint64_t access_key,
                           std::uint16_t stream) {
    WqeBuilder& builder = Qp::of(qp).rdma->send;
    if (!builder.expects_setter()) return;
    builder.control().dci_stream_channel_id = htobe16(stream);
    wr_set_dc_addr(qp, ah, remote_dctn, access_key);
}

void wr_raw_wqe(mlx5dv_qp_ex* base, const void* entry) {
    Qp& qp = Qp::of(base);
    qp.rdma->send.copy_raw(entry, qp.wr_id);
}

/// Source: mlx5dv_wr_memcpy(), mlx5dv_wr_post(3).
void wr_memcpy(mlx5dv_qp_ex* base, std::uint32_t to_key, std::uint64_t to, std::uint32_t from_key, std::uint64_t from,
               std::size_t size) {
    Qp& qp = Qp::of(base);
    WqeBuilder& builder = qp.rdma->send;
    if (size == 0 || size > roce::MemoryCopy::most) return builder.fail(EINVAL);
    if (!builder.begin({.opcode = roce::MemoryCopy::opcode,
                        .opmod = roce::MemoryCopy::dma,
                        .completes_as = MLX5DV_WC_MEMCPY},
                       qp.wr_id, qp.wr_flags)) {
        return;
    }
    const MemoryRegion& metadata = qp.rdma->copy_metadata->region();
    builder.append<roce::MemoryCopy::Metadata>() = {0, htobe32(metadata.key), htobe64(metadata.iova)};
    builder.append_data({from, static_cast<std::uint32_t>(size), from_key});
    builder.append_data({to, static_cast<std::uint32_t>(size), to_key});
    builder.end();
}

void set_sends(Qp& qp) {
    qp.wr_send = wr_send;
    qp.wr_send_imm = wr_send_imm;
}
void set_unreliable(Qp& qp) {
    set_sends(qp);
    qp.wr_send_inv = wr_send_inv;
    qp.wr_rdma_write = wr_rdma_write;
    qp.wr_rdma_write_imm = wr_rdma_write_imm;
    qp.wr_bind_mw = wr_bind_mw;
    qp.wr_local_inv = wr_local_inv;
}
void set_reliable(Qp& qp) {
    set_unreliable(qp);
    qp.wr_rdma_read = wr_rdma_read;
    qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
}

}  // namespace

void set_copy_operation(Qp& qp) {
    qp.rdma->copy_metadata = std::make_unique<CopyMetadata>(qp.rdma->state->memory(), Pd::of(qp.qp_base.pd).domain());
    qp.mlx5.wr_memcpy = wr_memcpy;
}

int cancel_rdma_sends(Qp& qp, std::uint64_t wr_id) {
    const auto from = qp.rdma->device->drained_at();
    return from ? static_cast<int>(qp.rdma->send.cancel(*from, wr_id)) : -EINVAL;
}

void set_rdma_operations(Qp& qp, std::uint64_t mlx5_operations) {
    qp.wr_start = wr_start;
    qp.wr_complete = wr_complete;
    qp.wr_abort = wr_abort;
    qp.wr_set_sge = wr_set_sge;
    qp.wr_set_sge_list = wr_set_sge_list;
    qp.wr_set_inline_data = wr_set_inline_data;
    qp.wr_set_inline_data_list = wr_set_inline_data_list;
    if (mlx5_operations) qp.mlx5.wr_raw_wqe = wr_raw_wqe;
    if (mlx5_operations && qp.qp_base.qp_type == IBV_QPT_RC) set_mkey_operations(qp);
    switch (qp.qp_base.qp_type) {
        case IBV_QPT_RC:
            return set_reliable(qp);
        case IBV_QPT_UC:
            return set_unreliable(qp);
        case IBV_QPT_DRIVER:
            qp.mlx5.wr_set_dc_addr = wr_set_dc_addr;
            qp.mlx5.wr_set_dc_addr_stream = wr_set_dc_addr_stream;
            return set_reliable(qp);
        case IBV_QPT_UD:
            qp.wr_set_ud_addr = wr_set_ud_addr;
            return set_sends(qp);
        default:
            qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
            return set_reliable(qp);
    }
}

}  // namespace ovsdr::soft
