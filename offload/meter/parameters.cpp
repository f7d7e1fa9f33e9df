#include "offload/meter/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace ovsdr::meter {

namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t unit_rate = 1'000'000'000;   // bytes a second: mantissa 1, exponent 0
constexpr std::uint64_t bytes_of_kilobit = 125;
constexpr unsigned most_mantissa = 255, most_exponent = 31;

// Bytes of the parameters. The excess bucket stays empty: no packet is yellow.
constexpr unsigned at_flags = 0, at_burst_exponent = 8, at_burst_mantissa = 9, at_rate_exponent = 10,
                   at_rate_mantissa = 11;
constexpr std::uint8_t valid = 0x80, starts_green = 2 << 4;
constexpr std::uint8_t counts_l2_bytes = 1, counts_packets = 3;

/// `bytes` in units of 2^-exponent of unit_rate, rounded.
std::uint64_t scaled(std::uint64_t bytes, unsigned exponent) noexcept {
    return static_cast<std::uint64_t>(((Wide{bytes} << exponent) + unit_rate / 2) / unit_rate);
}

std::uint64_t burst_bytes(const Spec& spec) noexcept {
    if (!spec.by_packets) return spec.burst * bytes_of_kilobit;
    return std::max<std::uint64_t>((std::uint64_t{spec.burst} - 1) * bytes_of_packet, 1);
}

const char* unit_of(const Spec& spec) noexcept { return spec.by_packets ? "packets" : "kilobits"; }

}  // namespace

Float rate_of(std::uint64_t bytes) noexcept {
    // The widest mantissa: the largest exponent, or one less, for which it has eight bits.
    unsigned exponent = most_exponent;
    const auto whole = static_cast<unsigned>(std::bit_width(scaled(bytes, most_exponent)));
    constexpr auto mantissa_bits = static_cast<unsigned>(std::bit_width(most_mantissa));
    if (whole > mantissa_bits) exponent -= std::min(whole - mantissa_bits, most_exponent);
    std::uint64_t mantissa = scaled(bytes, exponent);
    while (mantissa > most_mantissa && exponent > 0) mantissa = scaled(bytes, --exponent);
    mantissa = std::min<std::uint64_t>(mantissa, most_mantissa);
    if (mantissa == 0) return {};
    return {static_cast<std::uint8_t>(mantissa), static_cast<std::uint8_t>(exponent)};
}

Float burst_of(std::uint64_t bytes) noexcept {
    constexpr Float highest{most_mantissa, 23};   // the next one is above most_burst
    unsigned exponent = 0;
    std::uint64_t mantissa = bytes;
    while (mantissa > most_mantissa) {
        ++exponent;
        mantissa = (bytes + (std::uint64_t{1} << (exponent - 1))) >> exponent;
    }
    if (mantissa << exponent > most_burst) return highest;
    return {static_cast<std::uint8_t>(mantissa), static_cast<std::uint8_t>(exponent)};
}

tl::expected<Parameters, Refusal> parameters_of(const Spec& spec, Counts counts) {
    const auto refused = [](StaticName name, std::string value = {}) {
        return tl::unexpected(Refusal{name, std::move(value)});
    };
    if (spec.bands != 1) return refused("a meter with several bands", fmt::format(": {}", spec.bands));
    if (!spec.only_drops) return refused("a meter with a band that does not drop");
    if (spec.by_packets && counts == Counts::bytes) {
        return refused("a meter by packets", " (the device's meters count bytes)");
    }
    if (spec.rate == 0 || spec.bytes_a_second() > most_rate) {
        return refused("a meter's rate above the device's", fmt::format(": {} {} a second", spec.rate, unit_of(spec)));
    }
    const std::uint64_t burst = burst_bytes(spec);
    if (spec.burst == 0 || burst > most_burst) {
        return refused("a meter's burst above the device's", fmt::format(": {} {}", spec.burst, unit_of(spec)));
    }
    if (!spec.by_packets && burst < longest_packet) {
        return refused("a meter's burst shorter than a packet may be", fmt::format(": {} kilobits", spec.burst));
    }
    const Float rate = rate_of(spec.bytes_a_second()), committed = burst_of(burst);
    Parameters parameters{};
    parameters[at_flags] = static_cast<std::uint8_t>(valid | starts_green |
                                                     (spec.by_packets ? counts_packets : counts_l2_bytes));
    parameters[at_burst_exponent] = committed.exponent;
    parameters[at_burst_mantissa] = committed.mantissa;
    put_rate(parameters, rate);
    return parameters;
}

std::uint32_t put_rate(Parameters& parameters, Float rate) noexcept {
    parameters[at_rate_exponent] = rate.exponent;
    parameters[at_rate_mantissa] = rate.mantissa;
    return 1U << (31 - at_rate_exponent) | 1U << (31 - at_rate_mantissa);
}

}  // namespace ovsdr::meter
