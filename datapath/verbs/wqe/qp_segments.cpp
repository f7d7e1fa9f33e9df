#include "datapath/verbs/wqe/qp_segments.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstring>

#include "datapath/verbs/ah.hpp"

namespace ovsdr::soft {

namespace {

[[nodiscard]] std::size_t size_of(const ibv_sge& piece) {
    return piece.length;
}
[[nodiscard]] std::size_t size_of(const ibv_data_buf& piece) {
    return piece.length;
}
[[nodiscard]] const void* bytes_of(const ibv_sge& piece) {
    return reinterpret_cast<const void*>(piece.addr);
}
[[nodiscard]] const void* bytes_of(const ibv_data_buf& piece) {
    return piece.addr;
}

struct AccessBit {
    unsigned verbs;
    std::uint8_t mlx5;
};
constexpr AccessBit access_bits[] = {{IBV_ACCESS_LOCAL_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE},
                                     {IBV_ACCESS_REMOTE_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE},
                                     {IBV_ACCESS_REMOTE_READ, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ},
                                     {IBV_ACCESS_REMOTE_ATOMIC, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC}};

void append_umr_control(WqeBuilder& builder, bool is_type_2, bool binds) {
    auto& control = builder.append<mlx5_wqe_umr_ctrl_seg>();
    std::uint64_t mask = MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
    control.flags = MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | MLX5_WQE_UMR_CTRL_FLAG_INLINE;
    if (is_type_2) {
        mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
        control.flags |= binds ? MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE : MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;
    }
    if (binds) {
        constexpr std::uint16_t one_entry = 4;  // octowords, filled up to 64 bytes
        control.klm_octowords = htobe16(one_entry);
        mask |= MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
                MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
                MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;
    }
    control.mkey_mask = htobe64(mask);
}

}  // namespace

void fill_datagram(mlx5_wqe_datagram_seg& segment, const ibv_ah& ah, std::uint32_t remote_qpn,
                   std::uint32_t remote_qkey) {
    segment.av = Ah::of(&ah).vector;
    segment.av.dqp_dct = htobe32(remote_qpn | MLX5_EXTENDED_UD_AV);
    segment.av.key.qkey.qkey = htobe32(remote_qkey);
}

void append_datagram(WqeBuilder& builder, const ibv_ah& ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey) {
    fill_datagram(builder.append<mlx5_wqe_datagram_seg>(), ah, remote_qpn, remote_qkey);
}

void append_xrc(WqeBuilder& builder, std::uint32_t srqn) {
    builder.append<XrcSegment>().srqn = htobe32(srqn);
}

template <typename Piece>
int append_inline(WqeBuilder& builder, std::span<const Piece> pieces) {
    std::size_t size = 0;
    for (const Piece& piece : pieces) {
        // One at a time: the sum of what an application claims may not be a size.
        if (size_of(piece) > builder.shape().max_inline - size) return ENOMEM;
        size += size_of(piece);
    }
    if (size == 0) return 0;
    const __be32 head = htobe32(static_cast<std::uint32_t>(size) | MLX5_INLINE_SEG);
    std::byte* at = builder.append_bytes(sizeof head + size).data();
    std::memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (const Piece& piece : pieces) {
        if (size_of(piece) == 0) continue;
        std::memcpy(at, bytes_of(piece), size_of(piece));
        at += size_of(piece);
    }
    return 0;
}
template int append_inline(WqeBuilder&, std::span<const ibv_sge>);
template int append_inline(WqeBuilder&, std::span<const ibv_data_buf>);

int append_bind(WqeBuilder& builder, ibv_mw_type type, std::uint32_t rkey, const ibv_mw_bind_info& info) {
    constexpr std::uint64_t most = std::uint64_t{1} << 31;  // what an entry of a layout can say
    if (info.length > most) return EOPNOTSUPP;
    const bool binds = info.length != 0;
    append_umr_control(builder, type == IBV_MW_TYPE_2, binds);
    auto& key = builder.append<mlx5_wqe_mkey_context_seg>();
    const std::uint32_t owner = type == IBV_MW_TYPE_1 || !binds ? 0xffffff : builder.shape().qpn;
    key.qpn_mkey = htobe32(owner << 8 | (rkey & 0xff));
    if (!binds) {
        key.free = MLX5_WQE_MKEY_CONTEXT_FREE;
        return 0;
    }
    for (const AccessBit& bit : access_bits) {
        if (info.mw_access_flags & bit.verbs) key.access_flags |= bit.mlx5;
    }
    key.start_addr = info.mw_access_flags & IBV_ACCESS_ZERO_BASED ? 0 : htobe64(info.addr);
    key.len = htobe64(info.length);
    const mlx5_wqe_umr_klm_seg entry{htobe32(static_cast<std::uint32_t>(info.length)), htobe32(info.mr->lkey),
                                     htobe64(info.addr)};
    std::memcpy(builder.append_bytes(64).data(), &entry, sizeof entry);
    return 0;
}

}  // namespace ovsdr::soft
