// The work queue entries that configure and invalidate MKEYs: the device's half of verbs/memory/mkey_request.cpp.
#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "datapath/rdma/mkey/mkey.hpp"
#include "datapath/rdma/mkey/umr_format.hpp"
#include "datapath/rdma/roce/local_operations.hpp"

namespace ovsdr::soft {

namespace {

// What an entry may change.
constexpr std::uint64_t known_mask =
    MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN | MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE | MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;

// An entry is at most 63 octowords, of which the layout is part.
constexpr unsigned max_layout_entries = 64;

struct ParsedLayout {
    std::array<LayoutEntry, max_layout_entries> entries;
    unsigned length = 0;
    std::uint32_t repeat = 1;
};

template <typename Segment>
[[nodiscard]] Segment segment_at(std::span<const std::byte> bytes, std::size_t offset) {
    Segment segment;
    std::memcpy(&segment, bytes.data() + offset, sizeof segment);
    return segment;
}

/// KLMs; what is left of the last 64 bytes is zero.
[[nodiscard]] int parse_list(std::span<const std::byte> octowords, ParsedLayout& layout) {
    for (std::size_t at = 0; at < octowords.size(); at += sizeof(mlx5_wqe_umr_klm_seg)) {
        const auto klm = segment_at<mlx5_wqe_umr_klm_seg>(octowords, at);
        layout.entries[layout.length++] = {be64toh(klm.address), be32toh(klm.mkey), be32toh(klm.byte_count), 0};
    }
    return 0;
}

[[nodiscard]] int parse_repeat_block(std::span<const std::byte> octowords, ParsedLayout& layout) {
    const auto block = segment_at<mlx5_wqe_umr_repeat_block_seg>(octowords, 0);
    layout.repeat = be32toh(block.repeat_count);
    layout.length = be16toh(block.num_ent);
    if (layout.length * umr::octoword > octowords.size() - sizeof block) return EACCES;
    std::uint64_t period = 0;
    for (unsigned i = 0; i < layout.length; ++i) {
        const auto entry = segment_at<mlx5_wqe_umr_repeat_ent_seg>(octowords, sizeof block + i * umr::octoword);
        layout.entries[i] = {be64toh(entry.va), be32toh(entry.memkey), be16toh(entry.byte_count),
                             be16toh(entry.stride)};
        period += layout.entries[i].size;
    }
    return period == be32toh(block.byte_count) ? 0 : EACCES;
}

/// Everything that an entry asks for, understood before any of it is done.
struct Configuration {
    mlx5_wqe_umr_ctrl_seg control;
    mlx5_wqe_mkey_context_seg context;
    std::uint64_t mask;
    std::size_t layout_octowords = 0;  // 0: the layout stays
    ParsedLayout layout;
    bool sets_signature = false;
    bool is_signed = false;
    signature::Attributes attributes;
};

[[nodiscard]] int parse(std::span<const std::byte> entry, Configuration& to) {
    if (entry.size() < umr::inline_offset) return EINVAL;
    to.control = segment_at<mlx5_wqe_umr_ctrl_seg>(entry, sizeof(mlx5_wqe_ctrl_seg));
    to.context = segment_at<mlx5_wqe_mkey_context_seg>(entry, sizeof(mlx5_wqe_ctrl_seg) + sizeof to.control);
    to.mask = be64toh(to.control.mkey_mask);
    if (!(to.control.flags & MLX5_WQE_UMR_CTRL_FLAG_INLINE) || (to.mask & ~known_mask)) return EINVAL;
    // The one place of both numbers.
    const std::size_t bsf_octowords = be16toh(to.control.bsf_octowords);
    if ((to.control.flags & MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET) && bsf_octowords) return EINVAL;
    const std::size_t layout_size = std::size_t{be16toh(to.control.klm_octowords)} * umr::octoword;
    const std::size_t bsf_size = bsf_octowords * umr::octoword;
    if (layout_size + bsf_size > entry.size() - umr::inline_offset) return EINVAL;
    if (layout_size) {
        if (layout_size / umr::octoword > max_layout_entries) return EINVAL;
        to.layout_octowords = layout_size / umr::octoword;
        const auto octowords = entry.subspan(umr::inline_offset, layout_size);
        const bool repeats = segment_at<mlx5_wqe_umr_klm_seg>(octowords, 0).mkey == htobe32(umr::repeat_block_op);
        if (const int error = repeats ? parse_repeat_block(octowords, to.layout) : parse_list(octowords, to.layout)) {
            return error;
        }
    }
    if (!(to.mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE)) return bsf_size ? EINVAL : 0;
    to.sets_signature = true;
    to.is_signed = be32toh(to.context.flags_pd) & umr::bsf_enable;
    if (!to.is_signed) return bsf_size ? EINVAL : 0;
    if (bsf_size != sizeof(umr::Bsf)) return EACCES;
    const auto bsf = segment_at<umr::Bsf>(entry, umr::inline_offset + layout_size);
    return umr::decode(bsf, to.attributes) ? 0 : EACCES;
}

struct AccessBit {
    std::uint64_t mask;
    std::uint8_t flag;
    unsigned access;
};
constexpr std::array access_bits{
    AccessBit{MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE,
              IBV_ACCESS_LOCAL_WRITE},
    AccessBit{MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ,
              IBV_ACCESS_REMOTE_READ},
    AccessBit{MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE,
              IBV_ACCESS_REMOTE_WRITE},
    AccessBit{MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC,
              IBV_ACCESS_REMOTE_ATOMIC},
};

void apply(const Configuration& from, Mkey::State& state) {
    ++state.generation;
    for (const AccessBit& bit : access_bits) {
        if (!(from.mask & bit.mask)) continue;
        state.access &= ~bit.access;
        if (from.context.access_flags & bit.flag) state.access |= bit.access;
    }
    if (from.mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN) state.length = be64toh(from.context.len);
    if (from.mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR) state.start_address = be64toh(from.context.start_addr);
    if (from.layout_octowords) {
        state.layout.assign(std::span(from.layout.entries).first(from.layout.length), from.layout.repeat);
    }
    if (from.sets_signature) {
        state.is_signed = from.is_signed;
        state.attributes = from.attributes;
    }
    if (from.mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE) state.free = false;
}

}  // namespace

int configure_mkey(DeviceState& state, const void* domain, std::uint32_t qpn,
                   std::span<const std::byte> entry) noexcept {
    Configuration configuration;
    if (const int error = parse(entry, configuration)) return error;
    const std::uint32_t key = be32toh(segment_at<mlx5_wqe_ctrl_seg>(entry, 0).imm);
    const bool invalidates = (configuration.mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE) &&
                             (configuration.context.free & MLX5_WQE_MKEY_CONTEXT_FREE);
    if (invalidates) return invalidate_locally(state, domain, qpn, key);

    const MemoryTable::Reading reading(state.memory(), qpn);
    Mkey* const mkey = state.memory().mkey_of_any_tag(key);
    if (!mkey || mkey->spec().domain != domain) return EACCES;
    if (configuration.is_signed && !mkey->spec().has_signature) return EACCES;
    const std::uint32_t owner = be32toh(configuration.context.qpn_mkey) >> 8;
    const bool binds = configuration.mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN;
    if (binds && owner != Mkey::any_qpn && owner != qpn) return EACCES;
    const Mkey::Writing writing(*mkey);
    if (configuration.layout_octowords > writing->layout.max_entries()) return EACCES;
    if ((configuration.control.flags & MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE) && !writing->free) return EACCES;
    const bool retags = configuration.mask & MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY;
    if (!retags && mkey->key() != key) return EACCES;
    apply(configuration, *writing);
    if (binds) writing->qpn = owner;
    if (retags) mkey->set_key((key & ~0xFFu) | (be32toh(configuration.context.qpn_mkey) & 0xFF));
    return 0;
}

int invalidate_locally(DeviceState& state, const void* domain, std::uint32_t qpn, std::uint32_t key) noexcept {
    const MemoryTable::Reading reading(state.memory(), qpn);
    Mkey* const mkey = state.memory().mkey(key);
    if (!mkey || mkey->spec().domain != domain) return EACCES;
    const Mkey::Writing writing(*mkey);
    if (!writing->is_of(qpn)) return EACCES;
    writing->clear();
    return 0;
}

int invalidate_remotely(DeviceState& state, const void* domain, std::uint32_t qpn, std::uint32_t key) noexcept {
    const MemoryTable::Reading reading(state.memory(), qpn);
    Mkey* const mkey = state.memory().mkey(key);
    if (!mkey || mkey->spec().domain != domain || !mkey->spec().remote_invalidate) return EACCES;
    const Mkey::Writing writing(*mkey);
    if (writing->free || !writing->is_of(qpn)) return EACCES;
    writing->clear();
    return 0;
}

}  // namespace ovsdr::soft
