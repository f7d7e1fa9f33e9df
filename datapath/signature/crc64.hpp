// CRC-64 of Microsoft's XP10 compression format: the guard that MLX5DV_SIG_CRC_TYPE_CRC64_XP10 names.
//
// Polynomial. x^64 + 0xAD93D23594C93659, bits reflected (0x9A6C9329AC4BC9B5), seed all ones, result complemented: check
// value AE8B14860A799888. Microsoft's own hardware for the format, Project Zipline
// (opencomputeproject/Project-Zipline), says so: rtl/common/include/cr_global_params.vh has XP10CRC64_POLYNOMIAL
// 11127430586519243189 and XP10CRC64_INIT 2^64-1, and rtl/common/cr_crc/cr_crc.v complements the result. The CRC
// catalogue calls the same function CRC-64/NVME.
//
// Three implementations, chosen once by what the processor has: carry-less multiplication of 64 bytes at a time
// (VPCLMULQDQ), of 16 (PCLMULQDQ), and tables. ISA-L of Debian 12 has other CRC-64 polynomials only.
//
// Threads: any.
// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ovsdr::soft::signature {

/// The register after `bytes`: seeded by the caller, not complemented.
[[nodiscard]] std::uint64_t crc64_xp10(std::uint64_t crc, std::span<const std::byte> bytes) noexcept;

/// The implementations by themselves, for tests and benchmarks; nullptr where the processor lacks the instructions.
using Crc64Function = std::uint64_t (*)(std::uint64_t crc, std::span<const std::byte> bytes) noexcept;
[[nodiscard]] Crc64Function crc64_xp10_tables() noexcept;
[[nodiscard]] Crc64Function crc64_xp10_pclmul() noexcept;
[[nodiscard]] Crc64Function crc64_xp10_vpclmul() noexcept;

}  // namespace ovsdr::soft::signature
