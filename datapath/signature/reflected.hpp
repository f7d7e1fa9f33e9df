// Arithmetic for CRCs of 64 bits, at compile time.
//
// Bits are reflected throughout: bit i of a 64-bit word is the coefficient of x^(63-i), bit i of a 128-bit register
// that of x^(127-i), so that memory order is the order of falling powers. A carry-less product of two words then comes
// out multiplied by x, which the constants make up for. Polynomials are without their x^64.
//
// A CRC of fewer bits is one of 64 whose polynomial is the CRC's own times a power of x: its reflected form stands in
// the low bits, and so does the register.
//
// Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009).
#pragma once

#include <cstdint>

namespace ovsdr::soft::signature {

constexpr std::uint64_t times_x(std::uint64_t polynomial, std::uint64_t value) {
    return value >> 1 ^ (value & 1 ? polynomial : 0);
}

/// x^power modulo the polynomial.
constexpr std::uint64_t power_of_x(std::uint64_t polynomial, unsigned power) {
    std::uint64_t value = std::uint64_t{1} << 63;
    for (unsigned i = 0; i < power; ++i) value = times_x(polynomial, value);
    return value;
}

/// The quotient of x^128 and the polynomial, without its x^64: Barrett's constant.
constexpr std::uint64_t barrett_quotient(std::uint64_t polynomial) {
    // Long division: the remainder starts as x^64 mod P times what is left, one bit of quotient a step.
    std::uint64_t remainder = polynomial;
    std::uint64_t quotient = 0;
    for (int i = 0; i < 64; ++i) {
        quotient |= (remainder & 1) << i;
        remainder = times_x(polynomial, remainder);
    }
    return quotient;
}

/// Multiplies by x^distance: what a register of 16 bytes counts `distance` bits further on.
struct Fold {
    std::uint64_t low, high;
};
constexpr Fold fold_by(std::uint64_t polynomial, unsigned distance) {
    return {power_of_x(polynomial, distance + 63), power_of_x(polynomial, distance - 1)};
}

}  // namespace ovsdr::soft::signature
