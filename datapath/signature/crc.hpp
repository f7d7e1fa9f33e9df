// The CRCs that guards are made of, each in two ways.
//
// Narrow. ISA-L's for CRCs of 16 and 32 bits, crc64.hpp's for 64: any number of bytes, on every processor. ISA-L takes
// its whole stretches of 128 bytes fast and what is left, or a piece below 256 bytes, 16 at a time, one behind the
// other: 248 bytes cost it twice what 512 do.
//
// Wide. One loop for all, with carry-less multiplication of 64 bytes (VPCLMULQDQ on AVX-512): as fast as ISA-L with
// whole blocks, and a piece of a block takes no longer than the next 256 bytes would. It may copy what it takes.
//
// Registers are plain numbers of the type's bits, seeded by the caller and not complemented.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ovsdr::soft::signature {

/// guard.hpp says what they are.
enum class GuardType : std::uint8_t { t10_crc, ip_checksum, crc32, crc32c, crc64_xp10 };

/// The register after `bytes`, at most 2^30: ISA-L takes sizes as int.
using CrcFunction = std::uint64_t (*)(std::uint64_t crc, std::span<const std::byte> bytes) noexcept;

/// nullptr for checksums.
[[nodiscard]] CrcFunction narrow_crc(GuardType type) noexcept;
/// nullptr for checksums, and where the processor lacks the instructions. Bytes that make no whole word are left to the
/// narrow one.
[[nodiscard]] CrcFunction wide_crc(GuardType type) noexcept;

/// Copies `from` to `to` and takes the bytes into `crc`; each is read once. false: memory was not there, some bytes may
/// have been copied, and `crc` means nothing (guarded_copy.hpp).
struct CopyingCrc {
    bool (*function)(std::uint64_t& crc, std::byte* to, std::span<const std::byte> from) noexcept = nullptr;
    std::size_t word = 1;  ///< takes whole words of so many bytes: a power of two

    /// Whether it is to be used. What is no whole number of 256 bytes begins with masked stores, which others' loads
    /// have to wait for: of a short piece that takes longer than a copy and a CRC.
    [[nodiscard]] bool takes(std::size_t size) const noexcept {
        return function && (size & (word - 1)) == 0 && (size % 256 == 0 || size >= 1024);
    }
};
/// No function where there is no wide CRC.
[[nodiscard]] CopyingCrc copying_crc(GuardType type) noexcept;

}  // namespace ovsdr::soft::signature
