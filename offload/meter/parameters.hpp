// An OpenFlow meter as a device takes it: its rate and its burst, each as a mantissa and an exponent.
//
// Model. The device has a bucket of tokens, which are bytes; a packet of a meter that counts packets costs 128. A
// packet passes while the bucket is not negative, and takes its tokens then. OVS lets a packet pass if the bucket holds
// all of it. So by bytes the device's burst is up to one packet longer; by packets it is made one packet shorter, which
// comes to the same as OVS's.
//
//   rate   10^9 * mantissa / 2^exponent   bytes a second
//   burst  mantissa * 2^exponent          bytes, 2^31 - 1 at most
//
// Mantissas have eight bits, exponents five. The nearest value is taken: a rate is wrong by less than one part in 256
// (parameters_test.cpp computes how much at worst).
//
// What is refused, and stays in software: what a device has no form for, and a burst that is shorter than a packet may
// be, since OVS drops packets that are longer than the burst, and a device does not.
//
// Threads: pure functions. Source: PRM flow_meter_parameters; the kernel's en/tc/meter.c and DPDK's mlx5_flow_meter.c
// compute with the same formulas.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <tl/expected.hpp>

#include "offload/dr/static_name.hpp"

namespace ovsdr::meter {

/// As OpenFlow has it.
struct Spec {
    bool by_packets = false;   ///< rate and burst are packets a second and packets; else kilobits (of 1,000 bits)
    bool only_drops = true;    ///< it has no band of another type
    std::uint16_t bands = 1;
    std::uint32_t rate = 0;    ///< of the first band, as the next
    std::uint32_t burst = 0;   ///< not 0: OVS puts the rate there when nobody said
    friend bool operator==(const Spec&, const Spec&) = default;

    /// Of its rate, in bytes a second as a device counts them.
    [[nodiscard]] std::uint64_t bytes_a_second() const noexcept { return rate * (by_packets ? 128UL : 125UL); }
};

/// Why a meter stays in software; `value` goes on behind the name.
struct Refusal {
    StaticName name;
    std::string value{};
    friend bool operator==(const Refusal&, const Refusal&) = default;
};

struct Float {
    std::uint8_t mantissa = 0, exponent = 0;
    friend bool operator==(const Float&, const Float&) = default;
};

/// Up to most_rate.
[[nodiscard]] Float rate_of(std::uint64_t bytes_a_second) noexcept;
/// 1 up to most_burst.
[[nodiscard]] Float burst_of(std::uint64_t bytes) noexcept;

inline constexpr std::uint64_t most_rate = 255'000'000'000;   ///< bytes a second
inline constexpr std::uint64_t most_burst = 0x7FFF'FFFF;      ///< bytes
inline constexpr std::uint32_t bytes_of_packet = 128;
/// No port's MTU lets a packet be longer.
inline constexpr std::uint64_t longest_packet = 10'000;       ///< bytes

/// The device's structure: half of an ASO object.
using Parameters = std::array<std::uint8_t, 32>;

/// What meters of a device count. Source: DPDK's net_mlx5 offers meters of packets where there are ASO meters only.
enum class Counts : std::uint8_t { bytes_or_packets, bytes };

/// Full buckets, green to begin with.
[[nodiscard]] tl::expected<Parameters, Refusal> parameters_of(const Spec& spec,
                                                              Counts counts = Counts::bytes_or_packets);

/// Puts another rate into the parameters, and says by bits which bytes these are: bit 31 stands for byte 0.
std::uint32_t put_rate(Parameters& parameters, Float rate) noexcept;

}  // namespace ovsdr::meter
