#include "datapath/signature/crc64.hpp"

#include <array>
#include <cstring>

#include "datapath/signature/reflected.hpp"

#ifdef __x86_64__
// The intrinsics of g++ 12 begin with an undefined register on purpose, and warn about it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace ovsdr::soft::signature {

namespace {

constexpr std::uint64_t polynomial = 0x9A6C9329AC4BC9B5;  // without x^64

using Tables = std::array<std::array<std::uint64_t, 256>, 8>;

constexpr Tables make_tables() {
    Tables tables{};
    for (unsigned byte = 0; byte < 256; ++byte) {
        std::uint64_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = times_x(polynomial, value);
        tables[0][byte] = value;
    }
    for (unsigned slice = 1; slice < 8; ++slice) {
        for (unsigned byte = 0; byte < 256; ++byte) {
            const std::uint64_t before = tables[slice - 1][byte];
            tables[slice][byte] = tables[0][before & 0xFF] ^ before >> 8;
        }
    }
    return tables;
}

constexpr Tables tables = make_tables();

std::uint64_t with_tables(std::uint64_t crc, std::span<const std::byte> bytes) noexcept {
    const std::byte* next = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, next += 8) {
        std::uint64_t word;
        std::memcpy(&word, next, sizeof word);
        word ^= crc;
        crc = 0;
        for (unsigned slice = 0; slice < 8; ++slice) crc ^= tables[7 - slice][word >> (8 * slice) & 0xFF];
    }
    for (; left != 0; --left, ++next) crc = tables[0][(crc ^ std::to_integer<std::uint64_t>(*next)) & 0xFF] ^ crc >> 8;
    return crc;
}

#ifdef __x86_64__

#define OVSDR_PCLMUL __attribute__((target("pclmul,sse4.1")))

constexpr Fold fold_128 = fold_by(polynomial, 128);
constexpr Fold fold_1024 = fold_by(polynomial, 1024);

OVSDR_PCLMUL inline __m128i load(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

OVSDR_PCLMUL inline __m128i constants(Fold fold) {
    return _mm_set_epi64x(static_cast<long long>(fold.high), static_cast<long long>(fold.low));
}

OVSDR_PCLMUL inline __m128i folded(__m128i value, __m128i by) {
    return _mm_xor_si128(_mm_clmulepi64_si128(value, by, 0x00), _mm_clmulepi64_si128(value, by, 0x11));
}

/// A register of 16 bytes, shifted by 64 more bits, modulo the polynomial.
OVSDR_PCLMUL inline std::uint64_t reduced(__m128i value) {
    constexpr std::uint64_t inverse = barrett_quotient(polynomial), shift = power_of_x(polynomial, 127);
    const __m128i by = _mm_set_epi64x(static_cast<long long>(inverse), static_cast<long long>(shift));
    const __m128i polynomial_word = _mm_set_epi64x(0, static_cast<long long>(polynomial));
    // 128 bits and 64 behind them to 128: the low half by x^128, the high half moves down.
    value = _mm_xor_si128(_mm_clmulepi64_si128(value, by, 0x00), _mm_srli_si128(value, 8));
    const auto low = static_cast<std::uint64_t>(_mm_cvtsi128_si64(value));
    const auto high = static_cast<std::uint64_t>(_mm_extract_epi64(value, 1));
    const auto estimate = static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_clmulepi64_si128(value, by, 0x10)));
    const std::uint64_t quotient = low ^ estimate << 1;
    const __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(quotient)), polynomial_word, 0x00);
    const auto product_low = static_cast<std::uint64_t>(_mm_cvtsi128_si64(product));
    const auto product_high = static_cast<std::uint64_t>(_mm_extract_epi64(product, 1));
    return high ^ (product_high << 1 | product_low >> 63);
}

/// Shuffles: 16 bytes from [n] on move bytes up by 16 - n, from [16 + n] on down by n. Zeros come in.
constexpr std::uint8_t zero = 0x80;
constexpr std::uint8_t shuffles[48]{
    zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero};

OVSDR_PCLMUL inline __m128i shuffle_at(std::size_t index) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(shuffles + index));
}

/// Goes on with `value`, which stands for all bytes before `next`, 16 at least.
OVSDR_PCLMUL inline std::uint64_t finish(__m128i value, const std::byte* next, std::size_t left) {
    const __m128i by = constants(fold_128);
    for (; left >= 16; left -= 16, next += 16) value = _mm_xor_si128(folded(value, by), load(next));
    if (left != 0) {
        // The value and the last bytes, as the value's first bytes and 16 behind them.
        const __m128i up = shuffle_at(left), down = shuffle_at(16 + left);
        const __m128i last = _mm_and_si128(load(next + left - 16), _mm_cmpgt_epi8(up, _mm_set1_epi8(-1)));
        value = _mm_xor_si128(folded(_mm_shuffle_epi8(value, up), by),
                              _mm_or_si128(_mm_shuffle_epi8(value, down), last));
    }
    return reduced(value);
}

OVSDR_PCLMUL std::uint64_t with_pclmul(std::uint64_t crc, std::span<const std::byte> bytes) noexcept {
    const std::byte* next = bytes.data();
    std::size_t left = bytes.size();
    if (left < 16) return with_tables(crc, bytes);
    const __m128i seed = _mm_cvtsi64_si128(static_cast<long long>(crc));
    if (left < 128) return finish(_mm_xor_si128(load(next), seed), next + 16, left - 16);
    __m128i lanes[8];
#pragma GCC unroll 8
    for (unsigned i = 0; i < 8; ++i) lanes[i] = load(next + 16 * i);
    lanes[0] = _mm_xor_si128(lanes[0], seed);
    const __m128i by = constants(fold_1024);
    for (next += 128, left -= 128; left >= 128; next += 128, left -= 128) {
#pragma GCC unroll 8
        for (unsigned i = 0; i < 8; ++i) lanes[i] = _mm_xor_si128(folded(lanes[i], by), load(next + 16 * i));
    }
    const __m128i one = constants(fold_128);
    __m128i value = lanes[0];
#pragma GCC unroll 8
    for (unsigned i = 1; i < 8; ++i) value = _mm_xor_si128(folded(value, one), lanes[i]);
    return finish(value, next, left);
}

#endif  // __x86_64__

CrcFunction best() noexcept {
    if (const CrcFunction narrow = crc64_xp10_pclmul()) return narrow;
    return with_tables;
}

}  // namespace

CrcFunction crc64_xp10_tables() noexcept {
    return with_tables;
}

#ifdef __x86_64__

CrcFunction crc64_xp10_pclmul() noexcept {
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1") ? with_pclmul : nullptr;
}

#else

CrcFunction crc64_xp10_pclmul() noexcept {
    return nullptr;
}

#endif

std::uint64_t crc64_xp10(std::uint64_t crc, std::span<const std::byte> bytes) noexcept {
    static const CrcFunction function = best();
    return function(crc, bytes);
}

}  // namespace ovsdr::soft::signature
