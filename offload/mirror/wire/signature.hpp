// Which signature protects a mirror's segments on the wire, and how rdma-core is told.
//
// Model. A segment is a whole number of blocks. On the wire a field stands behind each block: T10-DIF (guard,
// application tag, reference tag) or a CRC alone. The application tag names the mirror; the reference tag counts the
// session's blocks from 0 and goes round after 2^32. Neither is an escape: 0xFFFF and 0xFFFFFFFF are checked as all
// others are.
//
// Memory without fields is called plain. What is said here of a domain is true of the wire, and of a collector's memory
// that keeps the fields.
//
// Threads: values.
// Source: mlx5dv_wr_set_mkey_sig_block(3).
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ovsdr::mirror {

/// As numbers they are part of the wire format.
enum class SignatureType : std::uint8_t { t10dif_crc = 1, t10dif_csum = 2, crc32 = 3, crc32c = 4, crc64 = 5 };

struct SignatureName {
    SignatureType type;
    std::string_view name;
};
/// The words of options:signature.
inline constexpr std::array signature_names{
    SignatureName{SignatureType::t10dif_crc, "t10dif-crc"}, SignatureName{SignatureType::t10dif_csum, "t10dif-csum"},
    SignatureName{SignatureType::crc32, "crc32"},           SignatureName{SignatureType::crc32c, "crc32c"},
    SignatureName{SignatureType::crc64, "crc64"},
};
/// Bytes of data in a block, in the order of enum mlx5dv_block_size.
inline constexpr std::array<std::uint16_t, 5> block_sizes{512, 520, 4048, 4096, 4160};

[[nodiscard]] std::optional<SignatureType> signature_type_of(std::string_view name) noexcept;
/// Empty for a number that is none.
[[nodiscard]] std::string_view name_of(SignatureType type) noexcept;

struct BlockTags {
    std::uint16_t application;
    std::uint32_t reference;
};

struct Signature {
    SignatureType type;
    std::uint16_t block_size;

    [[nodiscard]] bool operator==(const Signature&) const noexcept = default;

    /// The type is one of those above and a device has the block size.
    [[nodiscard]] bool valid() const noexcept;
    [[nodiscard]] bool has_tags() const noexcept {
        return type == SignatureType::t10dif_crc || type == SignatureType::t10dif_csum;
    }
    /// Bytes behind each block.
    [[nodiscard]] std::uint32_t field_size() const noexcept {
        return has_tags() || type == SignatureType::crc64 ? 8 : 4;
    }
    /// Blocks that `size` bytes of data need; the last one may not be full.
    [[nodiscard]] std::uint32_t blocks_of(std::uint64_t size) const noexcept {
        return static_cast<std::uint32_t>((size + block_size - 1) / block_size);
    }
    /// Bytes of so many blocks with their fields.
    [[nodiscard]] std::uint64_t protected_size(std::uint32_t blocks) const noexcept {
        return std::uint64_t{blocks} * (block_size + field_size());
    }
    /// Every byte of a field is checked.
    [[nodiscard]] std::uint8_t check_mask() const noexcept;
};

/// A domain as mlx5dv_wr_set_mkey_sig_block() takes it, with what it points to.
class SignatureDomain {
public:
    /// `first`: of the transfer's first block. The reference tag of the others follows it.
    SignatureDomain(const Signature& signature, BlockTags first) noexcept;
    SignatureDomain(const SignatureDomain&) = delete;
    SignatureDomain& operator=(const SignatureDomain&) = delete;

    [[nodiscard]] const mlx5dv_sig_block_domain* get() const noexcept { return &domain_; }

private:
    mlx5dv_sig_t10dif t10dif_{};
    mlx5dv_sig_crc crc_{};
    mlx5dv_sig_block_domain domain_{};
};

}  // namespace ovsdr::mirror
