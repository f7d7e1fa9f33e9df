#include "datapath/rdma/roce/work_entry.hpp"

#include <algorithm>
#include <cstring>

#include "datapath/rdma/aso_access.hpp"
#include "datapath/rdma/roce/memory_copy.hpp"

namespace ovsdr::soft::roce {

namespace {

constexpr std::uint64_t whole_data_segment = std::uint64_t{1} << 31;  // what a byte count of 0 means

/// Reads segments one after another.
class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    template <typename Segment>
    [[nodiscard]] bool take(Segment& segment) noexcept {
        if (bytes_.size() < sizeof segment) return false;
        std::memcpy(&segment, bytes_.data(), sizeof segment);
        bytes_ = bytes_.subspan(sizeof segment);
        return true;
    }
    [[nodiscard]] std::span<const std::byte> left() const noexcept { return bytes_; }
    void skip(std::size_t size) noexcept { bytes_ = bytes_.subspan(std::min(size, bytes_.size())); }

private:
    std::span<const std::byte> bytes_;
};

struct OpcodeTraits {
    bool wire, remote, atomic, uc, ud;
};
[[nodiscard]] constexpr OpcodeTraits traits_of(std::uint8_t opcode) noexcept {
    switch (opcode) {
        case MLX5_OPCODE_SEND:
        case MLX5_OPCODE_SEND_IMM: return {true, false, false, true, true};
        case MLX5_OPCODE_SEND_INVAL: return {true, false, false, false, false};
        case MLX5_OPCODE_RDMA_WRITE:
        case MLX5_OPCODE_RDMA_WRITE_IMM: return {true, true, false, true, false};
        case MLX5_OPCODE_RDMA_READ: return {true, true, false, false, false};
        case MLX5_OPCODE_ATOMIC_CS:
        case MLX5_OPCODE_ATOMIC_FA: return {true, true, true, false, false};
        default: return {};
    }
}
[[nodiscard]] constexpr bool is_local(std::uint8_t opcode) noexcept {
    return opcode == MLX5_OPCODE_NOP || opcode == MLX5_OPCODE_UMR || opcode == MLX5_OPCODE_LOCAL_INVAL ||
           opcode == opcode_access_aso;
}

struct XrcSegment {
    __be32 srq;
    std::uint8_t reserved[12];
};

[[nodiscard]] bool read_inline(Reader& reader, std::uint32_t byte_count, WorkEntry& entry) noexcept {
    const std::uint32_t size = byte_count & ~static_cast<std::uint32_t>(MLX5_INLINE_SEG);
    if (entry.length != 0 || size > reader.left().size()) return false;
    std::memcpy(entry.inline_bytes.data() + entry.inline_size, reader.left().data(), size);
    entry.inline_size += size;
    entry.is_inline = true;
    // The next segment begins at a multiple of 16 bytes; the byte count was the first four.
    reader.skip(((size + sizeof(mlx5_wqe_inl_data_seg) + 15) & ~std::size_t{15}) - sizeof(mlx5_wqe_inl_data_seg));
    return true;
}

[[nodiscard]] bool read_data(Reader& reader, WorkEntry& entry) noexcept {
    while (!reader.left().empty()) {
        __be32 first = 0;
        if (reader.left().size() < sizeof(mlx5_wqe_data_seg)) return false;
        std::memcpy(&first, reader.left().data(), sizeof first);
        const std::uint32_t byte_count = be32toh(first);
        if (byte_count & MLX5_INLINE_SEG) {
            reader.skip(sizeof first);
            if (!read_inline(reader, byte_count, entry)) return false;
            continue;
        }
        mlx5_wqe_data_seg segment;
        if (!reader.take(segment) || entry.is_inline || entry.length == most_pieces) return false;
        entry.pieces[entry.length++] = {be64toh(segment.addr),
                                        static_cast<std::uint32_t>(byte_count ? byte_count : whole_data_segment),
                                        be32toh(segment.lkey)};
    }
    return true;
}

[[nodiscard]] bool read_segments(Reader& reader, ibv_qp_type type, WorkEntry& entry) noexcept {
    if (is_local(entry.opcode)) return true;
    if (entry.opcode == MemoryCopy::opcode) return type == IBV_QPT_RC;
    const OpcodeTraits traits = traits_of(entry.opcode);
    if (!traits.wire || (type == IBV_QPT_UC && !traits.uc) || (type == IBV_QPT_UD && !traits.ud)) return false;
    if (type == IBV_QPT_UD || type == IBV_QPT_DRIVER) {
        mlx5_wqe_datagram_seg datagram;
        if (!reader.take(datagram)) return false;
        entry.address = datagram.av;
    }
    if (type == IBV_QPT_XRC_SEND) {
        XrcSegment xrc;
        if (!reader.take(xrc)) return false;
        entry.xrc_srq = be32toh(xrc.srq) & 0xffffff;
    }
    if (traits.remote) {
        mlx5_wqe_raddr_seg remote;
        if (!reader.take(remote)) return false;
        entry.remote_address = be64toh(remote.raddr);
        entry.rkey = be32toh(remote.rkey);
    }
    if (traits.atomic) {
        mlx5_wqe_atomic_seg atomic;
        if (!reader.take(atomic)) return false;
        entry.swap_add = be64toh(atomic.swap_add);
        entry.compare = be64toh(atomic.compare);
    }
    if (!read_data(reader, entry)) return false;
    // What comes back needs memory to go to.
    const bool reads = entry.opcode == MLX5_OPCODE_RDMA_READ || traits.atomic;
    return !(reads && entry.is_inline);
}

}  // namespace

std::uint32_t entry_blocks(const SendRing& ring, std::uint64_t block) noexcept {
    mlx5_wqe_ctrl_seg control;
    std::memcpy(&control, ring.base + (block & (ring.length - 1)) * basic_block_size, sizeof control);
    const std::uint32_t units = be32toh(control.qpn_ds) & 0x3f;
    return std::max(1u, (units + 3) / 4);
}

bool read_entry(const SendRing& ring, std::uint64_t block, ibv_qp_type type, WorkEntry& entry) noexcept {
    entry.blocks = entry_blocks(ring, block);
    for (std::uint32_t i = 0; i < entry.blocks; ++i) {
        const std::size_t size = std::min<std::size_t>(basic_block_size, most_entry_size - i * basic_block_size);
        std::memcpy(entry.bytes.data() + i * basic_block_size,
                    ring.base + ((block + i) & (ring.length - 1)) * basic_block_size, size);
    }
    mlx5_wqe_ctrl_seg control;
    std::memcpy(&control, entry.bytes.data(), sizeof control);
    entry.opcode = static_cast<std::uint8_t>(be32toh(control.opmod_idx_opcode));
    entry.size = (be32toh(control.qpn_ds) & 0x3f) * 16;
    entry.fence = static_cast<Fence>(control.fm_ce_se >> 5);
    entry.signaled = (control.fm_ce_se & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
    entry.solicited = (control.fm_ce_se & MLX5_WQE_CTRL_SOLICITED) != 0;
    entry.immediate = control.imm;
    entry.length = entry.inline_size = 0;
    entry.is_inline = false;
    entry.xrc_srq = 0;
    if (entry.size < sizeof control || entry.fence > Fence::small_and_reads) return false;
    // An entry that has grown since its blocks were counted is the application's doing.
    if (entry.size > entry.blocks * basic_block_size) return false;
    Reader reader({entry.bytes.data() + sizeof control, entry.size - sizeof control});
    return read_segments(reader, type, entry);
}

unsigned read_receive_entry(const ReceiveRing& ring, std::uint64_t index,
                            std::span<ibv_sge, most_pieces> pieces) noexcept {
    const std::byte* const at = ring.base + (index & (ring.length - 1)) * std::size_t{ring.stride};
    const unsigned most = std::min<unsigned>(ring.stride / sizeof(mlx5_wqe_data_seg), most_pieces);
    unsigned length = 0;
    while (length < most) {
        mlx5_wqe_data_seg segment;
        std::memcpy(&segment, at + length * sizeof segment, sizeof segment);
        if (be32toh(segment.lkey) == MLX5_INVALID_LKEY) break;
        const std::uint32_t byte_count = be32toh(segment.byte_count);
        pieces[length++] = {be64toh(segment.addr),
                            static_cast<std::uint32_t>(byte_count ? byte_count : whole_data_segment),
                            be32toh(segment.lkey)};
    }
    return length;
}

ibv_wc_opcode completion_opcode(std::uint8_t opcode) noexcept {
    switch (opcode) {
        case MLX5_OPCODE_RDMA_WRITE:
        case MLX5_OPCODE_RDMA_WRITE_IMM: return IBV_WC_RDMA_WRITE;
        case MLX5_OPCODE_RDMA_READ: return IBV_WC_RDMA_READ;
        case MLX5_OPCODE_ATOMIC_CS: return IBV_WC_COMP_SWAP;
        case MLX5_OPCODE_ATOMIC_FA: return IBV_WC_FETCH_ADD;
        case MLX5_OPCODE_LOCAL_INVAL: return IBV_WC_LOCAL_INV;
        case MLX5_OPCODE_UMR: return IBV_WC_DRIVER1;
        case MemoryCopy::opcode: return IBV_WC_DRIVER3;
        default: return IBV_WC_SEND;
    }
}

}  // namespace ovsdr::soft::roce
