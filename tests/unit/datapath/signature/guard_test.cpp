#include "datapath/signature/guard.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

#include "datapath/signature/crc.hpp"
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

TEST(CrcTest, EachImplementationIsTheBitByBitOne) {
    std::mt19937 random(4);
    struct Implementation {
        GuardType type;
        CrcFunction function;   // nullptr: not among this processor's instructions; the others stand in for it
    };
    std::vector<Implementation> all{{GuardType::crc64_xp10, crc64_xp10_tables()},
                                    {GuardType::crc64_xp10, crc64_xp10_pclmul()}};
    for (const GuardType type : types) {
        all.push_back({type, narrow_crc(type)});
        all.push_back({type, wide_crc(type)});
    }
    for (const auto& [type, function] : all) {
        if (!function) continue;
        for (int round = 0; round < 1500; ++round) {
            const auto bytes = random_bytes(random, round < 1100 ? static_cast<std::size_t>(round) : random() % 5000);
            const std::uint64_t seed = round % 3 == 0 ? 0 : reference::ones_of(type);
            const std::uint64_t complement = type == GuardType::t10_crc ? 0 : reference::ones_of(type);
            ASSERT_EQ(function(seed, bytes) ^ complement, reference::guard(type, seed, bytes))
                << "type " << static_cast<int>(type) << " size " << bytes.size();
        }
    }
    EXPECT_EQ(narrow_crc(GuardType::ip_checksum), nullptr);
    EXPECT_EQ(wide_crc(GuardType::ip_checksum), nullptr);
}

TEST(CrcTest, CopiesWhatItTakesAndNoByteMore) {
    std::mt19937 random(5);
    for (const GuardType type : types) {
        const CopyingCrc crc = copying_crc(type);
        EXPECT_EQ(crc.function != nullptr, wide_crc(type) != nullptr);
        for (const std::size_t size : {256, 512, 1024 + 8}) EXPECT_EQ(crc.takes(size), crc.function != nullptr) << size;
        EXPECT_FALSE(crc.takes(1024 + 9)) << "not of whole words";
        EXPECT_FALSE(crc.takes(512 + 8)) << "short, and no whole number of groups";
        if (crc.function == nullptr) continue;
        for (std::size_t size = 0; size < 1100; size += crc.word) {
            const auto from = random_bytes(random, size), room = random_bytes(random, 2000);
            auto to = room, expected = room;
            const std::size_t at = 300 + size % 67;
            std::copy(from.begin(), from.end(), expected.begin() + static_cast<long>(at));
            std::uint64_t value = reference::ones_of(type);
            ASSERT_TRUE(crc.function(value, to.data() + at, from));
            ASSERT_EQ(to, expected) << size;
            ASSERT_EQ(value, narrow_crc(type)(reference::ones_of(type), from)) << size;
        }
    }
}

}  // namespace
}  // namespace ovsdr::soft::signature
