#include "datapath/rdma/ethernet/ethernet_entry.hpp"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstring>

#include "datapath/rdma/aso_access.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::size_t segment_unit = 16;
constexpr std::uint64_t whole_data_segment = std::uint64_t{1} << 31;  // what a byte count of 0 means
// The Ethernet segment's two bytes that are the inline header's size, or say that a tag is to be inserted.
constexpr std::uint16_t insert_vlan = 0x8000, insert_service_vlan = 0x4000, inline_size_mask = 0x3ff;
constexpr std::uint32_t customer_tag = 0x8100, service_tag = 0x88a8;
constexpr std::size_t inline_start = offsetof(mlx5_wqe_eth_seg, inline_hdr_start);

using Bytes = std::span<const std::byte>;

void put_front(EthernetEntry& entry, Bytes bytes) noexcept {
    std::copy(bytes.begin(), bytes.end(), entry.front.begin() + entry.front_size);
    entry.front_size += static_cast<std::uint32_t>(bytes.size());
}

[[nodiscard]] constexpr std::size_t aligned(std::size_t size) noexcept {
    return (size + segment_unit - 1) / segment_unit * segment_unit;
}

/// Returns how many bytes the Ethernet segment takes; 0: malformed.
[[nodiscard]] std::size_t read_ethernet_segment(Bytes bytes, std::uint32_t min_inline, EthernetEntry& entry) noexcept {
    mlx5_wqe_eth_seg segment{};
    if (bytes.size() < segment_unit) return 0;
    std::memcpy(&segment, bytes.data(), segment_unit);
    constexpr unsigned known = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM;
    if (segment.rsvd0 != 0 || (segment.cs_flags & ~known)) return 0;  // offsets for the parser; inner headers
    entry.checksums = {(segment.cs_flags & MLX5_ETH_WQE_L3_CSUM) != 0, (segment.cs_flags & MLX5_ETH_WQE_L4_CSUM) != 0};
    entry.mss = entry.opcode == MLX5_OPCODE_TSO ? be16toh(segment.mss) : 0;
    const std::uint16_t what = be16toh(segment.inline_hdr_sz);
    if (what & insert_vlan) {
        const auto tci = static_cast<std::uint32_t>(segment.inline_hdr_start[0] << 8 | segment.inline_hdr_start[1]);
        entry.vlan = (what & insert_service_vlan ? service_tag : customer_tag) << 16 | tci;
        return segment_unit;
    }
    const std::size_t size = what & inline_size_mask;
    if (size < min_inline || inline_start + size > bytes.size()) return 0;
    put_front(entry, bytes.subspan(inline_start, size));
    return std::min(aligned(inline_start + size), bytes.size());
}

[[nodiscard]] bool read_data(Bytes bytes, EthernetEntry& entry) noexcept {
    while (!bytes.empty()) {
        mlx5_wqe_data_seg segment;
        if (bytes.size() < sizeof segment) return false;
        std::memcpy(&segment, bytes.data(), sizeof segment);
        const std::uint32_t byte_count = be32toh(segment.byte_count);
        if (byte_count & MLX5_INLINE_SEG) {
            const std::size_t size = byte_count & ~static_cast<std::uint32_t>(MLX5_INLINE_SEG);
            constexpr std::size_t head = sizeof(mlx5_wqe_inl_data_seg);
            if (entry.length != 0 || head + size > bytes.size()) return false;
            put_front(entry, bytes.subspan(head, size));
            bytes = bytes.subspan(std::min(aligned(head + size), bytes.size()));
            continue;
        }
        entry.pieces[entry.length++] = {be64toh(segment.addr),
                                        static_cast<std::uint32_t>(byte_count ? byte_count : whole_data_segment),
                                        be32toh(segment.lkey)};
        bytes = bytes.subspan(sizeof segment);
    }
    return true;
}

}  // namespace

bool read_ethernet_entry(const roce::SendRing& ring, std::uint64_t block, std::uint32_t min_inline,
                         EthernetEntry& entry) noexcept {
    entry.blocks = roce::entry_blocks(ring, block);
    for (std::uint32_t i = 0; i < entry.blocks; ++i) {
        std::memcpy(entry.bytes.data() + i * roce::basic_block_size,
                    ring.base + ((block + i) & (ring.length - 1)) * roce::basic_block_size, roce::basic_block_size);
    }
    mlx5_wqe_ctrl_seg control;
    std::memcpy(&control, entry.bytes.data(), sizeof control);
    entry.opcode = static_cast<std::uint8_t>(be32toh(control.opmod_idx_opcode));
    entry.signaled = (control.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
    entry.solicited = (control.fm_ce_se & MLX5_WQE_CTRL_SOLICITED) != 0;
    entry.mss = entry.vlan = entry.front_size = entry.length = 0;
    entry.checksums = {};
    entry.size = (be32toh(control.qpn_ds) & 0x3f) * segment_unit;
    // An entry that has grown since its blocks were counted is the application's doing.
    if (entry.size < sizeof control || entry.size > entry.blocks * roce::basic_block_size) return false;
    if (!entry.sends()) return entry.opcode == MLX5_OPCODE_NOP || entry.opcode == opcode_access_aso;
    const Bytes behind_control(entry.bytes.data() + sizeof control, entry.size - sizeof control);
    const std::size_t taken = read_ethernet_segment(behind_control, min_inline, entry);
    if (taken == 0 || !read_data(behind_control.subspan(taken), entry)) return false;
    // What is segmented needs its whole header inline, and a size to be cut to.
    return entry.opcode != MLX5_OPCODE_TSO || (entry.mss != 0 && entry.front_size >= 14);
}

}  // namespace ovsdr::soft
