// How it goes. Bytes are taken in groups of four registers of 64 bytes. The first group begins with as many zeros as
// make the rest whole groups: leading zeros leave a CRC as it is, and there are no last bytes to take care of. The
// register that the caller brings is added to the first bytes that are there.
#include "datapath/signature/crc.hpp"

#ifdef __x86_64__
// The intrinsics of g++ 12 begin with an undefined register on purpose, and warn about it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <utility>

#include "datapath/ports/fault_table.hpp"
#include "datapath/signature/reflected.hpp"
#endif

namespace ovsdr::soft::signature {

#ifdef __x86_64__

namespace {

#define OVSDR_WIDE __attribute__((target("avx512f,avx512dq,avx512bw,vpclmulqdq,pclmul,gfni")))
#define OVSDR_WIDE_INLINE OVSDR_WIDE __attribute__((always_inline)) inline

/// A CRC, as reflected.hpp has them. `mirrored`: its own bits are not reflected, those of each byte are turned around.
struct Crc {
    GuardType type;
    std::uint64_t polynomial;
    bool mirrored = false;

    /// Bytes of a register, which are added to a word of that size; a message is taken in such words.
    [[nodiscard]] constexpr std::size_t word_size() const { return polynomial >> 32 ? 8 : 4; }
};

constexpr Crc t10_dif{GuardType::t10_crc, 0xEDD1, true};  // 0x8BB7 in 16 bits, reflected
constexpr Crc crc32{GuardType::crc32, 0xEDB88320};
constexpr Crc crc32c{GuardType::crc32c, 0x82F63B78};
constexpr Crc crc64_xp10{GuardType::crc64_xp10, 0x9A6C9329AC4BC9B5};

constexpr std::size_t lanes = 4, lane_size = sizeof(__m512i), group_size = lanes * lane_size;

constexpr long long swap_bits = 0x8040201008040201;  // of each byte, for GF2P8AFFINEQB

OVSDR_WIDE_INLINE __m512i constants(Fold fold) {
    return _mm512_broadcast_i32x4(_mm_set_epi64x(static_cast<long long>(fold.high), static_cast<long long>(fold.low)));
}

OVSDR_WIDE_INLINE __m512i folded(__m512i value, __m512i by, __m512i onto) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(value, by, 0x00),
                                     _mm512_clmulepi64_epi128(value, by, 0x11), onto, 0x96);
}

template <Crc crc>
OVSDR_WIDE_INLINE __m512i mirrored(__m512i bytes) {
    if constexpr (crc.mirrored) return _mm512_gf2p8affine_epi64_epi8(bytes, _mm512_set1_epi64(swap_bits), 0);
    return bytes;
}

/// The register as bytes of the message, the first lowest; and back.
template <Crc crc>
constexpr std::uint64_t in_memory(std::uint64_t value) {
    return crc.mirrored ? __builtin_bswap16(static_cast<std::uint16_t>(value)) : value;
}

/// Where lanes come from: memory that is there.
struct Reading {
    OVSDR_WIDE_INLINE __m512i lane(const std::byte* from) { return _mm512_loadu_si512(from); }
    /// The words of `mask`, zeros for the others, which are not touched.
    template <std::size_t word_size>
    OVSDR_WIDE_INLINE __m512i lane(const std::byte* from, std::uint64_t mask) {
        if constexpr (word_size == 8) return _mm512_maskz_loadu_epi64(static_cast<__mmask8>(mask), from);
        return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(mask), from);
    }
    [[nodiscard]] static constexpr bool failed() { return false; }
};

/// The same from memory that may not be there, with a copy `distance` bytes further on, which may not be there either.
class Copying {
public:
    explicit Copying(std::ptrdiff_t distance) noexcept : distance_(distance) {}

    OVSDR_WIDE_INLINE __m512i lane(const std::byte* from) {
        __m512i value;
        asm volatile(
            "1: vmovdqu64 %[from], %[value]\n"
            "vmovdqu64 %[value], %[to]\n"
            "2:\n" OVSDR_ON_FAULT
            : [value] "=&v"(value), [fault] "+r"(fault_), [to] "=m"(bytes_at(from + distance_))
            : [from] "m"(bytes_at(from)));
        return value;
    }
    template <std::size_t word_size>
    OVSDR_WIDE_INLINE __m512i lane(const std::byte* from, std::uint64_t mask) {
        __m512i value;
        if constexpr (word_size == 8) {
            asm volatile(
                "1: vmovdqu64 %[from], %[value]%{%[mask]%}%{z%}\n"
                "vmovdqu64 %[value], %[to]%{%[mask]%}\n"
                "2:\n" OVSDR_ON_FAULT
                : [value] "=&v"(value), [fault] "+r"(fault_), [to] "+m"(bytes_at(from + distance_))
                : [from] "m"(bytes_at(from)), [mask] "Yk"(static_cast<__mmask8>(mask)));
        } else {
            asm volatile(
                "1: vmovdqu32 %[from], %[value]%{%[mask]%}%{z%}\n"
                "vmovdqu32 %[value], %[to]%{%[mask]%}\n"
                "2:\n" OVSDR_ON_FAULT
                : [value] "=&v"(value), [fault] "+r"(fault_), [to] "+m"(bytes_at(from + distance_))
                : [from] "m"(bytes_at(from)), [mask] "Yk"(static_cast<__mmask16>(mask)));
        }
        return value;
    }
    [[nodiscard]] bool failed() const { return fault_ != 0; }

private:
    using Bytes = std::byte[lane_size];
    OVSDR_WIDE_INLINE static Bytes& bytes_at(const std::byte* address) {
        return *reinterpret_cast<Bytes*>(const_cast<std::byte*>(address));
    }

    std::ptrdiff_t distance_;
    unsigned fault_ = 0;
};

/// `seed` added to the word of `first`.
template <Crc crc>
OVSDR_WIDE_INLINE __m512i seeded(__m512i lane, std::uint64_t first, std::uint64_t seed) {
    const __m512i added = crc.word_size() == 8
                              ? _mm512_maskz_set1_epi64(static_cast<__mmask8>(first), static_cast<long long>(seed))
                              : _mm512_maskz_set1_epi32(static_cast<__mmask16>(first), static_cast<int>(seed));
    return _mm512_xor_si512(lane, added);
}

/// What brings the quarters of lane `i` to the end of a group, in front of 64 bits of zeros.
template <Crc crc>
OVSDR_WIDE_INLINE __m512i to_the_end(std::size_t i) {
    struct Folds {
        Fold quarter[4 * lanes];
    };
    static constexpr Folds folds = [] {
        Folds all{};
        unsigned distance = 128 * 4 * lanes - 64;
        for (Fold& fold : all.quarter) fold = fold_by(crc.polynomial, std::exchange(distance, distance - 128));
        return all;
    }();
    return _mm512_loadu_si512(&folds.quarter[4 * i]);
}

/// Shifted by 64 bits, modulo the polynomial: the register after a group that stands for the whole message.
template <Crc crc>
OVSDR_WIDE_INLINE std::uint64_t reduced(const __m512i (&lane)[lanes]) {
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (std::size_t i = 0; i < lanes; ++i) sum = folded(lane[i], to_the_end<crc>(i), sum);
    const __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64(sum, 1));
    __m128i value = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    // Barrett's. With x^64 as the lowest bit products are not a bit off, and low halves need no higher bits.
    constexpr std::uint64_t quotient = barrett_quotient(crc.polynomial) << 1 | 1, divisor = crc.polynomial << 1 | 1;
    const __m128i by = _mm_set_epi64x(static_cast<long long>(divisor), static_cast<long long>(quotient));
    const __m128i times = _mm_clmulepi64_si128(value, by, 0x00);
    value = _mm_xor_si128(value, _mm_clmulepi64_si128(times, by, 0x10));
    // The bit that the divisor lost.
    if constexpr (crc.polynomial >> 63) value = _mm_xor_si128(value, _mm_slli_si128(times, 8));
    if constexpr (crc.mirrored) value = _mm_gf2p8affine_epi64_epi8(value, _mm_set1_epi64x(swap_bits), 0);
    return in_memory<crc>(static_cast<std::uint64_t>(_mm_extract_epi64(value, 1)));
}

/// Whole words, one at least, into `value`. false: memory was not there.
template <Crc crc, typename Source>
OVSDR_WIDE_INLINE bool take(std::uint64_t& value, std::span<const std::byte> bytes, Source source) {
    constexpr std::size_t word_size = crc.word_size(), words_in_lane = lane_size / word_size,
                          words_in_group = lanes * words_in_lane;
    // Of the first group words are there from a bit of `there` on. What lies in front of them is not touched.
    const std::size_t words = (bytes.size() / word_size - 1) % words_in_group + 1;
    const std::uint64_t there = ~std::uint64_t{0} << (words_in_group - words), first = there & -there;
    const std::byte* group = bytes.data() + words * word_size - group_size;
    __m512i lane[lanes];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < lanes; ++i) {
        const std::size_t word = words_in_lane * i;
        const std::byte* const from = group + lane_size * i;
        const __m512i read = words == words_in_group ? source.lane(from)
                                                     : source.template lane<word_size>(from, there >> word);
        lane[i] = mirrored<crc>(seeded<crc>(read, first >> word, in_memory<crc>(value)));
    }
    constexpr Fold one_group = fold_by(crc.polynomial, 8 * group_size);
    for (std::size_t left = bytes.size() - words * word_size; left != 0; left -= group_size) {
        if (source.failed()) return false;
        group += group_size;
#pragma GCC unroll 4
        for (std::size_t i = 0; i < lanes; ++i) {
            lane[i] = folded(lane[i], constants(one_group), mirrored<crc>(source.lane(group + lane_size * i)));
        }
    }
    value = reduced<crc>(lane);
    return !source.failed();
}

template <Crc crc>
std::uint64_t uneven(std::uint64_t seed, std::span<const std::byte> bytes) noexcept;

template <Crc crc>
OVSDR_WIDE std::uint64_t wide(std::uint64_t value, std::span<const std::byte> bytes) noexcept {
    if (bytes.empty() || bytes.size() % crc.word_size() != 0) [[unlikely]]
        return uneven<crc>(value, bytes);
    (void)take<crc>(value, bytes, Reading{});
    return value;
}

/// The odd bytes first.
template <Crc crc>
[[gnu::noinline]] std::uint64_t uneven(std::uint64_t value, std::span<const std::byte> bytes) noexcept {
    const auto odd = bytes.first(bytes.size() % crc.word_size()), even = bytes.subspan(odd.size());
    if (!odd.empty()) value = narrow_crc(crc.type)(value, odd);
    return even.empty() ? value : wide<crc>(value, even);
}

template <Crc crc>
OVSDR_WIDE bool copying(std::uint64_t& value, std::byte* to, std::span<const std::byte> from) noexcept {
    return from.empty() || take<crc>(value, from, Copying(to - from.data()));
}

[[nodiscard]] bool there_is() noexcept {
    static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("vpclmulqdq") &&
                            __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("gfni");
    return has;
}

}  // namespace

CrcFunction wide_crc(GuardType type) noexcept {
    if (!there_is()) return nullptr;
    switch (type) {
        case GuardType::t10_crc:
            return wide<t10_dif>;
        case GuardType::crc32:
            return wide<crc32>;
        case GuardType::crc32c:
            return wide<crc32c>;
        case GuardType::crc64_xp10:
            return wide<crc64_xp10>;
        case GuardType::ip_checksum:
            break;
    }
    return nullptr;
}

CopyingCrc copying_crc(GuardType type) noexcept {
    if (!there_is()) return {};
    switch (type) {
        case GuardType::t10_crc:
            return {copying<t10_dif>, t10_dif.word_size()};
        case GuardType::crc32:
            return {copying<crc32>, crc32.word_size()};
        case GuardType::crc32c:
            return {copying<crc32c>, crc32c.word_size()};
        case GuardType::crc64_xp10:
            return {copying<crc64_xp10>, crc64_xp10.word_size()};
        case GuardType::ip_checksum:
            break;
    }
    return {};
}

#else

CrcFunction wide_crc(GuardType) noexcept {
    return nullptr;
}

CopyingCrc copying_crc(GuardType) noexcept {
    return {};
}

#endif

}  // namespace ovsdr::soft::signature
