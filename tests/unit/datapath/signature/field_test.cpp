// Domains and their fields: where they stand, which bytes a mask names, when two are alike.
#include "datapath/signature/field.hpp"

#include <gtest/gtest.h>

#include "tests/unit/datapath/signature/domains.hpp"

namespace ovsdr::soft::signature {
namespace {

TEST(DomainTest, SaysNothingUntilTold) {
    const Attributes attributes{};
    for (const Domain& domain : {attributes.memory, attributes.wire}) {
        EXPECT_FALSE(domain.present());
        EXPECT_EQ(domain.seed, 0U);
        EXPECT_EQ(domain.application_tag, 0U);
        EXPECT_EQ(domain.reference_tag, 0U);
        EXPECT_EQ(domain.raw(700), 700U);
        EXPECT_EQ(domain.framed(700), 700U);
    }
    EXPECT_EQ(attributes.check_mask, 0);
    EXPECT_EQ(attributes.copy_mask, 0);
    const Error error{};
    EXPECT_TRUE(error.type == ErrorType::none && error.actual == 0 && error.expected == 0 && error.offset == 0);
}

TEST(DomainTest, AMaskNamesBytes) {
    for (unsigned mask = 0; mask < 256; ++mask) {
        std::uint64_t bits = 0;
        for (unsigned bit = 0; bit < 64; ++bit) bits |= std::uint64_t{mask >> bit / 8 & 1} << bit;
        EXPECT_EQ(bits_of(static_cast<std::uint8_t>(mask)), bits);
    }
}

TEST(DomainTest, RawAndFramedBytesAreCountedBlockByBlock) {
    for (const Domain& domain :
         {t10(512, GuardType::t10_crc, 0), crc(520, GuardType::crc32, 0), crc(4096, GuardType::crc64_xp10, 0)}) {
        // By walking: a byte of a block or of the field behind it at a time.
        std::uint64_t raw = 0;
        for (std::uint64_t framed = 0, in_frame = 0; framed < 3 * 4104; ++framed) {
            ASSERT_EQ(domain.raw(framed), raw);
            if (in_frame == 0) { ASSERT_EQ(domain.framed(raw), framed); }
            if (in_frame < domain.block_size) {
                ++raw;
                if (in_frame + 1 < domain.block_size) { ASSERT_EQ(domain.framed(raw), framed + 1); }
            }
            if (++in_frame == domain.block_size + domain.field_size()) in_frame = 0;
        }
    }
}

TEST(DomainTest, StructureIsBlockSizeAndTypeOfField) {
    const Domain dif = t10(512, GuardType::t10_crc, 0);
    EXPECT_TRUE(dif.same_structure(t10(512, GuardType::ip_checksum, ones)));
    EXPECT_FALSE(dif.same_structure(t10(520, GuardType::t10_crc, 0)));
    EXPECT_FALSE(dif.same_structure(crc(512, GuardType::crc64_xp10, 0)));
    EXPECT_TRUE(crc(512, GuardType::crc32, 0).same_structure(crc(512, GuardType::crc32, ones)));
    EXPECT_FALSE(crc(512, GuardType::crc32, 0).same_structure(crc(512, GuardType::crc32c, 0)));
    EXPECT_FALSE(Domain{}.same_structure(Domain{}));
}

}  // namespace
}  // namespace ovsdr::soft::signature
