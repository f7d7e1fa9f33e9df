#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "datapath/rdma/mkey/umr_format.hpp"
#include "datapath/verbs/memory/mkey.hpp"

namespace ovsdr::soft {

using SignatureDomain = signature::Domain;
using signature::Escape;
using signature::GuardType;

namespace {

constexpr std::uint64_t access_mask =
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
    MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC;

struct AccessFlag {
    unsigned access;
    std::uint8_t flag;
};
constexpr std::array access_flags{
    AccessFlag{IBV_ACCESS_LOCAL_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE},
    AccessFlag{IBV_ACCESS_REMOTE_READ, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ},
    AccessFlag{IBV_ACCESS_REMOTE_WRITE, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE},
    AccessFlag{IBV_ACCESS_REMOTE_ATOMIC, MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC},
};

// By enum mlx5dv_block_size.
constexpr std::array<std::uint32_t, 5> block_sizes{512, 520, 4048, 4096, 4160};

constexpr std::size_t layout_unit = 4;  // octowords
constexpr std::size_t fixed_size = sizeof(mlx5_wqe_umr_ctrl_seg) + sizeof(mlx5_wqe_mkey_context_seg);

[[nodiscard]] bool translate_t10dif(const mlx5dv_sig_t10dif& from, SignatureDomain& to) {
    constexpr unsigned known =
        MLX5DV_SIG_T10DIF_FLAG_REF_REMAP | MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE | MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE;
    if (from.bg != 0 && from.bg != 0xFFFF) return false;
    if (from.bg_type != MLX5DV_SIG_T10DIF_CRC && from.bg_type != MLX5DV_SIG_T10DIF_CSUM) return false;
    if (from.flags & ~known) return false;
    to.t10dif = true;
    to.guard = from.bg_type == MLX5DV_SIG_T10DIF_CRC ? GuardType::t10_crc : GuardType::ip_checksum;
    to.seed = from.bg;
    to.application_tag = from.app_tag;
    to.reference_tag = from.ref_tag;
    to.increment_reference_tag = from.flags & MLX5DV_SIG_T10DIF_FLAG_REF_REMAP;
    // Of both flags the narrower one counts, as in libmlx5.
    if (from.flags & MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE) to.escape = Escape::application_tag;
    if (from.flags & MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE) to.escape = Escape::application_and_reference_tag;
    return true;
}

[[nodiscard]] bool translate_crc(const mlx5dv_sig_crc& from, SignatureDomain& to) {
    std::uint64_t ones = std::numeric_limits<std::uint32_t>::max();
    switch (from.type) {
        case MLX5DV_SIG_CRC_TYPE_CRC32:
            to.guard = GuardType::crc32;
            break;
        case MLX5DV_SIG_CRC_TYPE_CRC32C:
            to.guard = GuardType::crc32c;
            break;
        case MLX5DV_SIG_CRC_TYPE_CRC64_XP10:
            to.guard = GuardType::crc64_xp10;
            ones = std::numeric_limits<std::uint64_t>::max();
            break;
        default:
            return false;
    }
    to.seed = from.seed;
    return from.seed == 0 || from.seed == ones;
}

}  // namespace

bool translate(const mlx5dv_sig_block_domain* from, SignatureDomain& to) noexcept {
    to = {};
    if (!from) return true;
    const auto size = static_cast<unsigned>(from->block_size);
    if (size >= block_sizes.size() || from->comp_mask) return false;
    to.block_size = block_sizes[size];
    if (from->sig_type == MLX5DV_SIG_TYPE_T10DIF) return translate_t10dif(*from->sig.dif, to);
    if (from->sig_type == MLX5DV_SIG_TYPE_CRC) return translate_crc(*from->sig.crc, to);
    return false;
}

std::uint8_t default_copy_mask(const SignatureDomain& memory, const SignatureDomain& wire) noexcept {
    if (!memory.same_structure(wire)) return 0;
    if (!wire.t10dif) return wire.field_size() == 4 ? MLX5DV_SIG_MASK_CRC32 : MLX5DV_SIG_MASK_CRC64_XP10;
    std::uint8_t mask = 0;
    if (memory.guard == wire.guard && memory.seed == wire.seed) mask |= MLX5DV_SIG_MASK_T10DIF_GUARD;
    if (memory.application_tag == wire.application_tag) mask |= MLX5DV_SIG_MASK_T10DIF_APPTAG;
    if (memory.reference_tag == wire.reference_tag) mask |= MLX5DV_SIG_MASK_T10DIF_REFTAG;
    return mask;
}

template <typename Segment>
void MkeyRequest::append(const Segment& segment) noexcept {
    std::memcpy(bytes_.data() + size_, &segment, sizeof segment);
    size_ += sizeof segment;
}

int MkeyRequest::begin(MkeyHandle& mkey, unsigned setters, const mlx5dv_mkey_conf_attr& attr, unsigned wr_flags,
                       std::uint32_t max_inline) noexcept {
    if (!(wr_flags & IBV_SEND_INLINE)) return EOPNOTSUPP;
    if ((attr.conf_flags & ~std::uint32_t{MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR}) || attr.comp_mask) return EOPNOTSUPP;
    mkey_ = &mkey;
    setters_left_ = setters;
    room_ = std::min<std::size_t>(max_inline + sizeof(mlx5_wqe_inl_data_seg), max_size - fixed_size);
    key_ = mkey.lkey;
    has_layout_ = false;
    bytes_.fill(std::byte{});
    size_ = fixed_size;
    control().flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
    control().mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY);
    context().qpn_mkey = htobe32(0xFFFFFF00 | (key_ & 0xFF));
    SignatureState& state = mkey.signature_state;
    if (attr.conf_flags & MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR) {
        state = SignatureState::none;
    } else if (state == SignatureState::updated) {
        state = SignatureState::set;
    }
    return 0;
}

int MkeyRequest::set_access_flags(std::uint32_t access) noexcept {
    std::uint8_t flags = 0;
    for (const AccessFlag& known : access_flags) {
        if (access & known.access) flags |= known.flag;
        access &= ~known.access;
    }
    if (access || (control().mkey_mask & htobe64(access_mask))) return EINVAL;
    control().mkey_mask |= htobe64(access_mask);
    context().access_flags = flags;
    --setters_left_;
    return 0;
}

/// `head`: octowords in front of the entries.
int MkeyRequest::check_layout(std::size_t entries, std::size_t head) const noexcept {
    if (head + entries > room_ / umr::octoword || entries > mkey_->device.spec().max_entries) return ENOMEM;
    return has_layout_ ? EINVAL : 0;
}

void MkeyRequest::pad_layout(std::uint64_t length) noexcept {
    const std::size_t used = (size_ - fixed_size) / umr::octoword;
    const std::size_t octowords = (used + layout_unit - 1) / layout_unit * layout_unit;
    size_ = fixed_size + octowords * umr::octoword;
    control().klm_octowords = htobe16(static_cast<std::uint16_t>(octowords));
    control().mkey_mask |= htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN);
    context().len = htobe64(length);
    mkey_->exceeds_signatures = length > std::numeric_limits<std::uint32_t>::max();
    has_layout_ = true;
    --setters_left_;
}

int MkeyRequest::set_layout(std::span<const ibv_sge> list) noexcept {
    if (const int error = check_layout(list.size(), 0)) return error;
    std::uint64_t length = 0;
    for (const ibv_sge& sge : list) {
        append(mlx5_wqe_umr_klm_seg{htobe32(sge.length), htobe32(sge.lkey), htobe64(sge.addr)});
        length += sge.length;
    }
    pad_layout(length);
    return 0;
}

int MkeyRequest::set_layout(std::uint32_t repeat, std::span<const mlx5dv_mr_interleaved> parts) noexcept {
    if (const int error = check_layout(parts.size(), 1)) return error;
    constexpr std::uint32_t most = std::numeric_limits<std::uint16_t>::max();
    std::uint32_t period = 0;
    for (const mlx5dv_mr_interleaved& part : parts) {
        if (part.bytes_count > most || part.bytes_skip > most - part.bytes_count) return EINVAL;
        period += part.bytes_count;
    }
    append(mlx5_wqe_umr_repeat_block_seg{.byte_count = htobe32(period),
                                         .op = htobe32(umr::repeat_block_op),
                                         .repeat_count = htobe32(repeat),
                                         .num_ent = htobe16(static_cast<std::uint16_t>(parts.size()))});
    for (const mlx5dv_mr_interleaved& part : parts) {
        append(mlx5_wqe_umr_repeat_ent_seg{
            .stride = htobe16(static_cast<std::uint16_t>(part.bytes_count + part.bytes_skip)),
            .byte_count = htobe16(static_cast<std::uint16_t>(part.bytes_count)),
            .memkey = htobe32(part.lkey),
            .va = htobe64(part.addr)});
    }
    pad_layout(std::uint64_t{period} * repeat);
    return 0;
}

int MkeyRequest::set_signature(const mlx5dv_sig_block_attr& attr) noexcept {
    if (!mkey_->device.spec().has_signature) return EINVAL;
    if (mkey_->signature_state == SignatureState::updated) return EINVAL;
    if (!attr.mem && !attr.wire) return EINVAL;
    if ((attr.flags & ~std::uint32_t{MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK}) || attr.comp_mask) return EINVAL;
    if (!translate(attr.mem, attributes_.memory) || !translate(attr.wire, attributes_.wire)) return EINVAL;
    attributes_.check_mask = attr.check_mask;
    copy_mask_.reset();
    if (attr.flags & MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK) copy_mask_ = attr.copy_mask;
    mkey_->signature_state = SignatureState::updated;
    --setters_left_;
    return 0;
}

int MkeyRequest::append_signature() noexcept {
    if (size_ - fixed_size + sizeof(umr::Bsf) > room_) return ENOMEM;
    if (mkey_->exceeds_signatures) return EINVAL;
    const bool same = attributes_.memory.same_structure(attributes_.wire);
    if (copy_mask_ && !same) return EINVAL;
    attributes_.copy_mask = copy_mask_.value_or(default_copy_mask(attributes_.memory, attributes_.wire));
    append(umr::encode(attributes_, same));
    control().bsf_octowords = htobe16(sizeof(umr::Bsf) / umr::octoword);
    context().flags_pd |= htobe32(umr::bsf_enable);
    return 0;
}

int MkeyRequest::finish() noexcept {
    // Attributes that were set earlier stay as the device has them: the entry does not name them.
    if (!mkey_->device.spec().has_signature || mkey_->signature_state == SignatureState::set) return 0;
    control().mkey_mask |= htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE);
    return mkey_->signature_state == SignatureState::updated ? append_signature() : 0;
}

}  // namespace ovsdr::soft
