// CRC-64 of Microsoft's XP10 compression format: the guard that MLX5DV_SIG_CRC_TYPE_CRC64_XP10 names.
//
// Polynomial. x^64 + 0xAD93D23594C93659, bits reflected (0x9A6C9329AC4BC9B5), seed all ones, result complemented: check
// value AE8B14860A799888. Microsoft's own hardware for the format, Project Zipline
// (opencomputeproject/Project-Zipline), says so: rtl/common/include/cr_global_params.vh has XP10CRC64_POLYNOMIAL
// 11127430586519243189 and XP10CRC64_INIT 2^64-1, and rtl/common/cr_crc/cr_crc.v complements the result. The CRC
// catalogue calls the same function CRC-64/NVME.
//
// Two implementations, chosen once by what the processor has: carry-less multiplication of 16 bytes at a time
// (PCLMULQDQ), and tables. A third, of 64 bytes, is crc.hpp's. ISA-L of Debian 12 has other CRC-64 polynomials only.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "datapath/signature/crc.hpp"

namespace ovsdr::soft::signature {

/// The register after `bytes`: seeded by the caller, not complemented.
[[nodiscard]] std::uint64_t crc64_xp10(std::uint64_t crc, std::span<const std::byte> bytes) noexcept;

/// The implementations by themselves, for tests and benchmarks; nullptr where the processor lacks the instructions.
[[nodiscard]] CrcFunction crc64_xp10_tables() noexcept;
[[nodiscard]] CrcFunction crc64_xp10_pclmul() noexcept;

}  // namespace ovsdr::soft::signature
