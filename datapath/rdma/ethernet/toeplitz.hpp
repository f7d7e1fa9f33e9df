// The Toeplitz hash of receive-side scaling: for each bit of the input that is set, the 32 bits of the key from that
// position on are added (XOR) to the result.
//
// A hash of n bytes is n look-ups: the contribution of each value of each byte is worked out when the key is set.
// Source: Microsoft, "Verifying the RSS Hash Calculation", whose vectors the tests use.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace ovsdr::soft {

class Toeplitz {
public:
    static constexpr unsigned key_size = 40;             ///< bytes
    static constexpr unsigned max_input = key_size - 4;  ///< bytes: two IPv6 addresses and two ports

    explicit Toeplitz(const std::array<std::uint8_t, key_size>& key) noexcept {
        for (unsigned place = 0; place < max_input; ++place) {
            std::array<std::uint32_t, 8> windows;
            for (unsigned bit = 0; bit < 8; ++bit) windows[bit] = window(key, place * 8 + bit);
            for (unsigned value = 0; value < 256; ++value) {
                std::uint32_t sum = 0;
                for (unsigned bit = 0; bit < 8; ++bit) sum ^= value >> (7 - bit) & 1 ? windows[bit] : 0;
                parts_[place][value] = sum;
            }
        }
    }

    /// At most max_input bytes, in network order.
    [[nodiscard]] std::uint32_t hash(std::span<const std::uint8_t> input) const noexcept {
        std::uint32_t sum = 0;
        for (unsigned place = 0; place < input.size(); ++place) sum ^= parts_[place][input[place]];
        return sum;
    }

private:
    [[nodiscard]] static std::uint32_t window(const std::array<std::uint8_t, key_size>& key, unsigned first) noexcept {
        std::uint32_t bits = 0;
        for (unsigned bit = first; bit < first + 32; ++bit) bits = bits << 1 | (key[bit / 8] >> (7 - bit % 8) & 1);
        return bits;
    }

    std::array<std::array<std::uint32_t, 256>, max_input> parts_;
};

}  // namespace ovsdr::soft
