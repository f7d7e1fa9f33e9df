// Segments of send queue entries that both ways of posting write.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>

#include "datapath/verbs/wqe/wqe_builder.hpp"

namespace ovsdr::soft {

/// mlx5_wqe_datagram_seg towards an address.
void append_datagram(WqeBuilder& builder, const ibv_ah& ah, std::uint32_t remote_qpn, std::uint32_t remote_qkey);
void fill_datagram(mlx5_wqe_datagram_seg& segment, const ibv_ah& ah, std::uint32_t remote_qpn,
                   std::uint32_t remote_qkey);

/// The segment that names a remote XRC queue.
struct XrcSegment {
    __be32 srqn;
    std::uint8_t reserved[12];
};
static_assert(sizeof(XrcSegment) == 16);
void append_xrc(WqeBuilder& builder, std::uint32_t srqn);

/// All pieces as one inline segment; none for no bytes. ENOMEM past what was granted.
template <typename Piece>
[[nodiscard]] int append_inline(WqeBuilder& builder, std::span<const Piece> pieces);

/// The entry of MLX5_OPCODE_UMR that binds a window, or (length 0) unbinds or invalidates: its segments after control.
/// EOPNOTSUPP past 2 GiB.
[[nodiscard]] int append_bind(WqeBuilder& builder, ibv_mw_type type, std::uint32_t rkey, const ibv_mw_bind_info& info);

}  // namespace ovsdr::soft
