#include "datapath/rdma/mkey/umr_format.hpp"

#include <endian.h>

#include <array>

namespace ovsdr::soft::umr {

using signature::Attributes;
using signature::Domain;
using signature::Escape;
using signature::GuardType;

namespace {

constexpr std::uint8_t size_with_inline = 2u << 6;
constexpr std::uint8_t same_structure_bit = 1u << 4;

struct BlockSize {
    std::uint8_t selector;
    std::uint32_t size;
};
constexpr std::array block_sizes{BlockSize{1, 512}, BlockSize{2, 520}, BlockSize{3, 4096}, BlockSize{4, 4160},
                                 BlockSize{6, 4048}};

// Block format selector of CRCs: the upper byte of the word with the PSV.
struct CrcFormat {
    std::uint8_t base;
    GuardType guard;
};
constexpr std::array crc_formats{CrcFormat{0x20, GuardType::crc32}, CrcFormat{0x40, GuardType::crc32c},
                                 CrcFormat{0x50, GuardType::crc64_xp10}};
constexpr std::uint8_t crc_repeat = 0x2;
constexpr std::uint8_t crc_seed_zero = 0x1;
constexpr unsigned format_shift = 24;

// BsfInline
constexpr std::uint16_t inline_valid = 1u << 15;
constexpr std::uint16_t inline_refresh = 1u << 14;
constexpr std::uint8_t inline_repeat = 1u << 7;
constexpr std::uint8_t inline_seed_ones = 1u << 3;
constexpr std::uint8_t increment_reference_tag = 1u << 6;
constexpr std::uint8_t escape_application_tag = 0x1;
constexpr std::uint8_t escape_both_tags = 0x2;
constexpr std::uint8_t type_crc = 0x1;
constexpr std::uint8_t type_ip_checksum = 0x2;

[[nodiscard]] std::uint8_t selector_of(std::uint32_t size) {
    for (const BlockSize& block : block_sizes) {
        if (block.size == size) return block.selector;
    }
    return 0;
}

[[nodiscard]] std::uint32_t size_of(std::uint8_t selector) {
    for (const BlockSize& block : block_sizes) {
        if (block.selector == selector) return block.size;
    }
    return 0;
}

[[nodiscard]] __be32 encode_crc(const Domain& domain) {
    std::uint8_t format = crc_repeat | (domain.seed == 0 ? crc_seed_zero : 0);
    for (const CrcFormat& crc : crc_formats) {
        if (crc.guard == domain.guard) format |= crc.base;
    }
    return htobe32(std::uint32_t{format} << format_shift);
}

[[nodiscard]] BsfInline encode_t10dif(const Domain& domain) {
    BsfInline dif{};
    dif.valid_refresh = htobe16(inline_valid | inline_refresh);
    dif.application_tag = htobe16(domain.application_tag);
    dif.reference_tag = htobe32(domain.reference_tag);
    dif.type = domain.guard == GuardType::ip_checksum ? type_ip_checksum : type_crc;
    dif.repeat_seed = inline_repeat | (domain.seed ? inline_seed_ones : 0);
    if (domain.increment_reference_tag) dif.increment_escape |= increment_reference_tag;
    if (domain.escape == Escape::application_tag) dif.increment_escape |= escape_application_tag;
    if (domain.escape == Escape::application_and_reference_tag) dif.increment_escape |= escape_both_tags;
    dif.application_tag_mask = htobe16(0xFFFF);
    return dif;
}

void encode_domain(const Domain& domain, __be32& format, BsfInline& dif) {
    if (!domain.present()) return;
    if (domain.t10dif) {
        dif = encode_t10dif(domain);
    } else {
        format = encode_crc(domain);
    }
}

/// The domain but for its block size; false for an unknown format. Not present where there is none.
[[nodiscard]] bool decode_domain(__be32 format_psv, const BsfInline& dif, Domain& domain, bool& present) {
    const auto format = static_cast<std::uint8_t>(be32toh(format_psv) >> format_shift);
    domain = {};
    present = true;
    if (be16toh(dif.valid_refresh) & inline_valid) {
        if (format != 0 || (dif.type != type_crc && dif.type != type_ip_checksum)) return false;
        if (!(dif.repeat_seed & inline_repeat) || dif.application_tag_mask != htobe16(0xFFFF)) return false;
        domain.t10dif = true;
        domain.guard = dif.type == type_crc ? GuardType::t10_crc : GuardType::ip_checksum;
        domain.seed = dif.repeat_seed & inline_seed_ones ? 0xFFFF : 0;
        domain.application_tag = be16toh(dif.application_tag);
        domain.reference_tag = be32toh(dif.reference_tag);
        domain.increment_reference_tag = dif.increment_escape & increment_reference_tag;
        if (dif.increment_escape & escape_application_tag) domain.escape = Escape::application_tag;
        if (dif.increment_escape & escape_both_tags) domain.escape = Escape::application_and_reference_tag;
        return true;
    }
    if (format == 0) {
        present = false;
        return true;
    }
    for (const CrcFormat& crc : crc_formats) {
        if ((format & 0xF0) != crc.base) continue;
        domain.guard = crc.guard;
        domain.seed = format & crc_seed_zero ? 0 : ~std::uint64_t{0};
        return (format & ~(crc.base | crc_seed_zero)) == crc_repeat;
    }
    return false;
}

}  // namespace

Bsf encode(const Attributes& attributes, bool same_structure) noexcept {
    Bsf bsf{};
    bsf.size_same_structure = size_with_inline | (same_structure ? same_structure_bit : 0);
    bsf.check_mask = attributes.check_mask;
    bsf.raw_size = htobe32(0xFFFFFFFF);
    bsf.memory_block = selector_of(attributes.memory.block_size);
    bsf.wire_block_or_copy_mask = same_structure ? attributes.copy_mask : selector_of(attributes.wire.block_size);
    encode_domain(attributes.memory, bsf.memory_format_psv, bsf.memory);
    encode_domain(attributes.wire, bsf.wire_format_psv, bsf.wire);
    return bsf;
}

bool decode(const Bsf& bsf, Attributes& attributes) noexcept {
    if ((bsf.size_same_structure & 0xC0) != size_with_inline) return false;
    bool memory_present = false;
    bool wire_present = false;
    if (!decode_domain(bsf.memory_format_psv, bsf.memory, attributes.memory, memory_present)) return false;
    if (!decode_domain(bsf.wire_format_psv, bsf.wire, attributes.wire, wire_present)) return false;
    const bool same = bsf.size_same_structure & same_structure_bit;
    if (memory_present) attributes.memory.block_size = size_of(bsf.memory_block);
    if (wire_present) attributes.wire.block_size = size_of(same ? bsf.memory_block : bsf.wire_block_or_copy_mask);
    if (memory_present != attributes.memory.present() || wire_present != attributes.wire.present()) return false;
    if (!memory_present && !wire_present) return false;
    attributes.check_mask = bsf.check_mask;
    attributes.copy_mask = same ? bsf.wire_block_or_copy_mask : 0;
    return !same || attributes.memory.same_structure(attributes.wire);
}

}  // namespace ovsdr::soft::umr
