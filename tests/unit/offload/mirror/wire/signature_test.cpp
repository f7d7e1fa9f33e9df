// Signatures of a mirror: their geometry, what rdma-core is told, and the fields that this processor computes.
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "offload/mirror/wire/guard.hpp"
#include "tests/unit/datapath/signature/reference.hpp"

namespace ovsdr::mirror {
namespace {

using soft::signature::Domain;
using soft::signature::GuardType;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> some_bytes(std::size_t size) {
    std::vector<std::byte> bytes(size);
    unsigned value = 7;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>((value = value * 1103515245 + 12345) >> 16);
    return bytes;
}

/// Bit by bit, by an oracle that knows nothing of offload/.
Domain domain_of(const Signature& signature, BlockTags tags) {
    constexpr GuardType guards[] = {GuardType::t10_crc, GuardType::ip_checksum, GuardType::crc32, GuardType::crc32c,
                                    GuardType::crc64_xp10};
    return {.block_size = signature.block_size,
            .t10dif = signature.has_tags(),
            .guard = guards[static_cast<unsigned>(signature.type) - 1],
            .seed = signature.has_tags() ? 0 : ~std::uint64_t{0},
            .application_tag = tags.application,
            .reference_tag = tags.reference,
            .increment_reference_tag = true};
}

TEST(MirrorSignature, NamesAreThoseOfTheOption) {
    for (const char* name : {"t10dif-crc", "t10dif-csum", "crc32", "crc32c", "crc64"}) {
        const auto type = signature_type_of(name);
        ASSERT_TRUE(type) << name;
        EXPECT_EQ(name_of(*type), name);
    }
    EXPECT_FALSE(signature_type_of("crc16"));
    EXPECT_FALSE(signature_type_of(""));
    EXPECT_TRUE(name_of(static_cast<SignatureType>(6)).empty());
}

TEST(MirrorSignature, GeometryIsThatOfTheFields) {
    const Signature dif{SignatureType::t10dif_csum, 520}, crc{SignatureType::crc32, 4096};
    const Signature wide{SignatureType::crc64, 512};
    EXPECT_EQ(dif.field_size(), 8u);
    EXPECT_EQ(crc.field_size(), 4u);
    EXPECT_EQ(wide.field_size(), 8u);
    EXPECT_EQ(dif.protected_size(3), 3u * 528);
    EXPECT_EQ(crc.blocks_of(0), 0u);
    EXPECT_EQ(crc.blocks_of(1), 1u);
    EXPECT_EQ(crc.blocks_of(4096), 1u);
    EXPECT_EQ(crc.blocks_of(4097), 2u);
    for (const std::uint16_t size : block_sizes) EXPECT_TRUE((Signature{SignatureType::crc32c, size}.valid()));
    EXPECT_FALSE((Signature{SignatureType::crc32c, 1024}.valid()));
    EXPECT_FALSE((Signature{static_cast<SignatureType>(0), 512}.valid()));
}

TEST(MirrorSignature, RdmaCoreIsToldAllOfIt) {
    const SignatureDomain dif({SignatureType::t10dif_csum, 4048}, {0xABCD, 0x01234567});
    EXPECT_EQ(dif.get()->sig_type, MLX5DV_SIG_TYPE_T10DIF);
    EXPECT_EQ(dif.get()->block_size, MLX5DV_BLOCK_SIZE_4048);
    EXPECT_EQ(dif.get()->comp_mask, 0u);
    const mlx5dv_sig_t10dif& told = *dif.get()->sig.dif;
    EXPECT_EQ(told.bg_type, MLX5DV_SIG_T10DIF_CSUM);
    EXPECT_EQ(told.bg, 0);
    EXPECT_EQ(told.app_tag, 0xABCD);
    EXPECT_EQ(told.ref_tag, 0x01234567u);
    EXPECT_EQ(told.flags, MLX5DV_SIG_T10DIF_FLAG_REF_REMAP) << "no escape";
    EXPECT_EQ(SignatureDomain({SignatureType::t10dif_crc, 512}, {}).get()->sig.dif->bg_type, MLX5DV_SIG_T10DIF_CRC);

    const SignatureDomain wide({SignatureType::crc64, 4160}, {});
    EXPECT_EQ(wide.get()->sig_type, MLX5DV_SIG_TYPE_CRC);
    EXPECT_EQ(wide.get()->block_size, MLX5DV_BLOCK_SIZE_4160);
    EXPECT_EQ(wide.get()->sig.crc->type, MLX5DV_SIG_CRC_TYPE_CRC64_XP10);
    EXPECT_EQ(wide.get()->sig.crc->seed, UINT64_MAX);
    const SignatureDomain crc({SignatureType::crc32, 512}, {}), castagnoli({SignatureType::crc32c, 512}, {});
    EXPECT_EQ(crc.get()->sig.crc->type, MLX5DV_SIG_CRC_TYPE_CRC32);
    EXPECT_EQ(crc.get()->sig.crc->seed, UINT32_MAX);
    EXPECT_EQ(castagnoli.get()->sig.crc->type, MLX5DV_SIG_CRC_TYPE_CRC32C);

    EXPECT_EQ((Signature{SignatureType::t10dif_crc, 512}.check_mask()), 0xFF);
    EXPECT_EQ((Signature{SignatureType::crc32, 512}.check_mask()), 0xF0);
    EXPECT_EQ((Signature{SignatureType::crc32c, 512}.check_mask()), 0xF0);
    EXPECT_EQ((Signature{SignatureType::crc64, 512}.check_mask()), 0xFF);
}

TEST(MirrorGuard, CheckValuesOfTheCatalogue) {
    const auto digits = bytes_of("123456789");
    EXPECT_EQ(guard_of(SignatureType::t10dif_crc, digits), 0xD0DBu);
    EXPECT_EQ(guard_of(SignatureType::crc32, digits), 0xCBF43926u);
    EXPECT_EQ(guard_of(SignatureType::crc32c, digits), 0xE3069283u);
    EXPECT_EQ(guard_of(SignatureType::crc64, digits), 0xAE8B14860A799888u);
    EXPECT_EQ(crc32c(crc32c(0, digits.first(4)), digits.subspan(4)), 0xE3069283u) << "in pieces";
}

TEST(MirrorGuard, FieldsAreThoseOfTheOracle) {
    for (const SignatureName& known : signature_names) {
        for (const std::uint16_t size : block_sizes) {
            const Signature signature{known.type, size};
            const auto block = some_bytes(size);
            const BlockTags tags{0xFFFF, 0xFFFFFFFE};
            std::vector<std::byte> field(signature.field_size());
            write_field(signature, tags, block, field);
            EXPECT_EQ(field, soft::reference::field(domain_of(signature, tags), 0, block)) << known.name << ' ' << size;
            EXPECT_EQ(check_field(signature, tags, block, field).fault, BlockFault::none);
        }
    }
}

TEST(MirrorGuard, EveryBitOfBlockAndFieldIsChecked) {
    for (const SignatureName& known : signature_names) {
        const Signature signature{known.type, 512};
        auto block = some_bytes(512);
        const BlockTags tags{0x1234, 0x56789ABC};
        std::vector<std::byte> field(signature.field_size());
        write_field(signature, tags, block, field);
        for (std::size_t bit = 0; bit < 8 * block.size(); bit += 37) {
            block[bit / 8] ^= std::byte{1} << bit % 8;
            const BlockCheck check = check_field(signature, tags, block, field);
            EXPECT_EQ(check.fault, BlockFault::guard);
            EXPECT_NE(check.actual, check.expected);
            block[bit / 8] ^= std::byte{1} << bit % 8;
        }
        for (std::size_t bit = 0; bit < 8 * field.size(); ++bit) {
            field[bit / 8] ^= std::byte{1} << bit % 8;
            const BlockFault right = !signature.has_tags() || bit < 16 ? BlockFault::guard
                                     : bit < 32                        ? BlockFault::application_tag
                                                                       : BlockFault::reference_tag;
            EXPECT_EQ(check_field(signature, tags, block, field).fault, right) << known.name << " bit " << bit;
            field[bit / 8] ^= std::byte{1} << bit % 8;
        }
    }
    const Signature dif{SignatureType::t10dif_crc, 512};
    const auto block = some_bytes(512);
    std::vector<std::byte> field(8);
    write_field(dif, {1, 2}, block, field);
    const BlockCheck replayed = check_field(dif, {1, 9}, block, field);
    EXPECT_EQ(replayed.fault, BlockFault::reference_tag);
    EXPECT_EQ(replayed.actual, 9u);
    EXPECT_EQ(replayed.expected, 2u);
}

}  // namespace
}  // namespace ovsdr::mirror
