#include "datapath/signature/guard.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

#include "datapath/signature/crc64.hpp"
#include "tests/unit/datapath/signature/random_bytes.hpp"
#include "tests/unit/datapath/signature/reference.hpp"

namespace ovsdr::soft::signature {
namespace {

constexpr std::uint64_t ones = ~std::uint64_t{0};
constexpr std::array types{GuardType::t10_crc, GuardType::ip_checksum, GuardType::crc32, GuardType::crc32c,
                           GuardType::crc64_xp10};

std::vector<std::byte> bytes_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

std::uint64_t guard(GuardType type, std::uint64_t seed, std::span<const std::byte> bytes) {
    Guard made(type, seed);
    made.update(bytes);
    return made.value();
}

TEST(GuardTest, HasThePublishedCheckValues) {
    const auto digits = bytes_of("123456789");
    EXPECT_EQ(guard(GuardType::t10_crc, 0, digits), 0xD0DBu);                      // CRC-16/T10-DIF
    EXPECT_EQ(guard(GuardType::crc32, ones, digits), 0xCBF43926u);                 // CRC-32/ISO-HDLC
    EXPECT_EQ(guard(GuardType::crc32c, ones, digits), 0xE3069283u);                // CRC-32/ISCSI
    EXPECT_EQ(guard(GuardType::crc64_xp10, ones, digits), 0xAE8B14860A799888ull);  // CRC-64/NVME
    EXPECT_EQ(guard(GuardType::ip_checksum, 0, bytes_of({"\x00\x01\xf2\x03\xf4\xf5\xf6\xf7", 8})),
              0x220Du);  // RFC 1071
}

TEST(GuardTest, HasThePublishedValuesOfPatterns) {
    const std::vector<std::byte> zeros(32, std::byte{0}), set(32, std::byte{0xFF});
    EXPECT_EQ(guard(GuardType::t10_crc, 0, set), 0xA293u);          // SBC-3, annex on CRC test cases
    EXPECT_EQ(guard(GuardType::crc32c, ones, zeros), 0x8A9136AAu);  // RFC 3720 B.4
    EXPECT_EQ(guard(GuardType::crc32c, ones, set), 0x62A8AB43u);
    // NVM Command Set Specification, 64b CRC test cases: 4 KiB.
    EXPECT_EQ(guard(GuardType::crc64_xp10, ones, std::vector<std::byte>(4096, std::byte{0})), 0x6482D367EB22B64Eull);
    EXPECT_EQ(guard(GuardType::crc64_xp10, ones, std::vector<std::byte>(4096, std::byte{0xFF})), 0xC0DDBA7302ECA3ACull);
}

TEST(GuardTest, SeedsOfAChecksumDifferForZerosOnly) {
    const std::vector<std::byte> zeros(512);
    EXPECT_EQ(guard(GuardType::ip_checksum, 0, zeros), 0xFFFFu);
    EXPECT_EQ(guard(GuardType::ip_checksum, 0xFFFF, zeros), 0u);
}

TEST(GuardTest, AgreesWithTheBitByBitModelForAnySize) {
    std::mt19937 random(2);
    for (const GuardType type : types) {
        for (std::size_t size = 0; size < 700; ++size) {
            const auto bytes = random_bytes(random, size);
            for (const std::uint64_t seed : {std::uint64_t{0}, ones}) {
                ASSERT_EQ(guard(type, seed, bytes), reference::guard(type, seed, bytes))
                    << "type " << static_cast<int>(type) << " size " << size;
            }
        }
    }
}

TEST(GuardTest, TakesABlockInPiecesOfAnySize) {
    std::mt19937 random(3);
    const auto bytes = random_bytes(random, 4160);
    for (const GuardType type : types) {
        const std::uint64_t whole = reference::guard(type, ones, bytes);
        for (int round = 0; round < 200; ++round) {
            Guard pieces(type, ones);
            const std::size_t most = 1 + random() % (round % 2 ? 9 : 2000);
            for (std::size_t at = 0; at < bytes.size();) {
                const std::size_t size = std::min<std::size_t>(random() % (most + 1), bytes.size() - at);
                pieces.update(std::span(bytes).subspan(at, size));
                at += size;
            }
            ASSERT_EQ(pieces.value(), whole) << "type " << static_cast<int>(type);
        }
    }
}

TEST(Crc64Test, EachImplementationIsTheBitByBitOne) {
    std::mt19937 random(4);
    for (const Crc64Function function : {crc64_xp10_tables(), crc64_xp10_pclmul(), crc64_xp10_vpclmul()}) {
        if (!function) continue;  // Not among this processor's instructions; the others stand in for it.
        for (int round = 0; round < 1500; ++round) {
            const auto bytes = random_bytes(random, round < 1100 ? static_cast<std::size_t>(round) : random() % 5000);
            const std::uint64_t seed = round % 3 == 0 ? 0 : ones;
            ASSERT_EQ(~function(seed, bytes), reference::guard(GuardType::crc64_xp10, seed, bytes)) << bytes.size();
        }
    }
}

}  // namespace
}  // namespace ovsdr::soft::signature
