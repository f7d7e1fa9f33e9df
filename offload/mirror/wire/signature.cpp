#include "offload/mirror/wire/signature.hpp"

#include <algorithm>

namespace ovsdr::mirror {

std::optional<SignatureType> signature_type_of(std::string_view name) noexcept {
    for (const SignatureName& known : signature_names) {
        if (known.name == name) return known.type;
    }
    return std::nullopt;
}

std::string_view name_of(SignatureType type) noexcept {
    for (const SignatureName& known : signature_names) {
        if (known.type == type) return known.name;
    }
    return {};
}

bool Signature::valid() const noexcept {
    return !name_of(type).empty() && std::ranges::find(block_sizes, block_size) != block_sizes.end();
}

std::uint8_t Signature::check_mask() const noexcept {
    if (has_tags()) return MLX5DV_SIG_MASK_T10DIF_GUARD | MLX5DV_SIG_MASK_T10DIF_APPTAG | MLX5DV_SIG_MASK_T10DIF_REFTAG;
    return type == SignatureType::crc64 ? MLX5DV_SIG_MASK_CRC64_XP10 : MLX5DV_SIG_MASK_CRC32;
}

SignatureDomain::SignatureDomain(const Signature& signature, BlockTags first) noexcept {
    const auto size = std::ranges::find(block_sizes, signature.block_size) - block_sizes.begin();
    domain_.block_size = static_cast<mlx5dv_block_size>(size);
    if (signature.has_tags()) {
        t10dif_.bg_type = signature.type == SignatureType::t10dif_crc ? MLX5DV_SIG_T10DIF_CRC : MLX5DV_SIG_T10DIF_CSUM;
        t10dif_.app_tag = first.application;
        t10dif_.ref_tag = first.reference;
        t10dif_.flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP;
        domain_.sig_type = MLX5DV_SIG_TYPE_T10DIF;
        domain_.sig.dif = &t10dif_;
        return;
    }
    crc_.type = signature.type == SignatureType::crc32    ? MLX5DV_SIG_CRC_TYPE_CRC32
                : signature.type == SignatureType::crc32c ? MLX5DV_SIG_CRC_TYPE_CRC32C
                                                          : MLX5DV_SIG_CRC_TYPE_CRC64_XP10;
    crc_.seed = signature.type == SignatureType::crc64 ? UINT64_MAX : UINT32_MAX;
    domain_.sig_type = MLX5DV_SIG_TYPE_CRC;
    domain_.sig.crc = &crc_;
}

}  // namespace ovsdr::mirror
