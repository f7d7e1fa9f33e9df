// MKEYs configured by work requests of an RDMA queue pair: MkeyRequest collects the entry, WqeBuilder posts it.
//
// Source: mlx5dv_wr_mkey_configure(3), mlx5dv_wr_post(3).
#include <endian.h>

#include <cerrno>
#include <cstring>

#include "datapath/verbs/memory/mkey.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"

namespace ovsdr::soft {

namespace {

void finish(RdmaQp& rdma) {
    if (const int error = rdma.mkey_request->finish()) return rdma.send.fail(error);
    const auto payload = rdma.mkey_request->payload();
    std::memcpy(rdma.send.append_bytes(payload.size()).data(), payload.data(), payload.size());
    rdma.send.end();
}

void wr_mkey_configure(mlx5dv_qp_ex* base, mlx5dv_mkey* mkey, std::uint8_t setters, mlx5dv_mkey_conf_attr* attr) {
    Qp& qp = Qp::of(base);
    RdmaQp& rdma = *qp.rdma;
    WqeBuilder& builder = rdma.send;
    if (builder.error()) return;
    MkeyRequest& request = *rdma.mkey_request;
    if (const int error =
            request.begin(MkeyHandle::of(mkey), setters, *attr, qp.wr_flags, builder.shape().max_inline)) {
        return builder.fail(error);
    }
    if (!builder.begin({.opcode = MLX5_OPCODE_UMR,
                        .immediate = htobe32(request.key()),
                        .completes_as = IBV_WC_DRIVER1,
                        .fences_next = true},
                       qp.wr_id, qp.wr_flags)) {
        return;
    }
    builder.expect(setters);
    if (request.complete()) finish(rdma);
}

/// One setter: what it says, then the entry if it was the last. EINVAL where none is open, or one of another operation.
template <typename Set>
void set(mlx5dv_qp_ex* base, Set set) {
    RdmaQp& rdma = *Qp::of(base).rdma;
    if (!rdma.send.is_open(MLX5_OPCODE_UMR)) return rdma.send.fail(EINVAL);
    MkeyRequest& request = *rdma.mkey_request;
    if (const int error = set(request)) return rdma.send.fail(error);
    if (request.complete()) finish(rdma);
}

void wr_set_mkey_access_flags(mlx5dv_qp_ex* qp, std::uint32_t access) {
    set(qp, [&](MkeyRequest& request) { return request.set_access_flags(access); });
}
void wr_set_mkey_layout_list(mlx5dv_qp_ex* qp, std::uint16_t length, const ibv_sge* list) {
    set(qp, [&](MkeyRequest& request) { return request.set_layout({list, length}); });
}
void wr_set_mkey_layout_interleaved(mlx5dv_qp_ex* qp, std::uint32_t repeat, std::uint16_t length,
                                    const mlx5dv_mr_interleaved* parts) {
    set(qp, [&](MkeyRequest& request) { return request.set_layout(repeat, {parts, length}); });
}
void wr_set_mkey_sig_block(mlx5dv_qp_ex* qp, const mlx5dv_sig_block_attr* attr) {
    set(qp, [&](MkeyRequest& request) { return request.set_signature(*attr); });
}
/// libmlx5's errno for an MKEY that was made without crypto, and no other can be made: the device encrypts nothing.
void wr_set_mkey_crypto(mlx5dv_qp_ex* qp, const mlx5dv_crypto_attr*) {
    set(qp, [](MkeyRequest&) { return EINVAL; });
}

// The older way to say access and layout at once. After an error each setter does nothing.
void wr_mr_list(mlx5dv_qp_ex* qp, mlx5dv_mkey* mkey, std::uint32_t access, std::uint16_t length, ibv_sge* list) {
    mlx5dv_mkey_conf_attr attr{};
    wr_mkey_configure(qp, mkey, 2, &attr);
    wr_set_mkey_access_flags(qp, access);
    wr_set_mkey_layout_list(qp, length, list);
}
void wr_mr_interleaved(mlx5dv_qp_ex* qp, mlx5dv_mkey* mkey, std::uint32_t access, std::uint32_t repeat,
                       std::uint16_t length, mlx5dv_mr_interleaved* parts) {
    mlx5dv_mkey_conf_attr attr{};
    wr_mkey_configure(qp, mkey, 2, &attr);
    wr_set_mkey_access_flags(qp, access);
    wr_set_mkey_layout_interleaved(qp, repeat, length, parts);
}

}  // namespace

void set_mkey_operations(Qp& qp) {
    qp.rdma->mkey_request = std::make_unique<MkeyRequest>();
    qp.mlx5.wr_mkey_configure = wr_mkey_configure;
    qp.mlx5.wr_set_mkey_access_flags = wr_set_mkey_access_flags;
    qp.mlx5.wr_set_mkey_layout_list = wr_set_mkey_layout_list;
    qp.mlx5.wr_set_mkey_layout_interleaved = wr_set_mkey_layout_interleaved;
    qp.mlx5.wr_set_mkey_sig_block = wr_set_mkey_sig_block;
    qp.mlx5.wr_set_mkey_crypto = wr_set_mkey_crypto;
    qp.mlx5.wr_mr_list = wr_mr_list;
    qp.mlx5.wr_mr_interleaved = wr_mr_interleaved;
}

}  // namespace ovsdr::soft
