// Where product and OVS's software may differ, each with its reason: the one list of them.
//
// The model. A packet or a frame that differs is held against this list; what is on it is counted and no fault.
//
// Threads: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ovsdr::differential {

enum class NamedDifference : std::uint8_t {
    tunnel_source_port, connection_end, broken_header, no_checksum_answer, recirculates_too_often, tcp_data_offset,
    ipv6_length, ipv6_chain, fragment_bits, dropped_in_pop, gre_checksum, tunnel_headers,
    meter_overshoot, count_of_differences
};
inline constexpr std::size_t named_difference_length = static_cast<std::size_t>(NamedDifference::count_of_differences);

struct NamedDifferenceRow {
    NamedDifference difference;
    const char* what;
    const char* why;
};
[[nodiscard]] const std::array<NamedDifferenceRow, named_difference_length>& named_differences();

/// How often each excused something.
struct Excused {
    std::array<std::size_t, named_difference_length> times{};
    void add(NamedDifference difference) { ++times[static_cast<std::size_t>(difference)]; }
    void add(const Excused& others);
};

/// Of a frame that the megaflows that it meets cannot tell, because it is not what its headers say: which difference
/// that is. count_of_differences: none, it must be treated as OVS treats it.
[[nodiscard]] NamedDifference untrue_header(const std::vector<std::uint8_t>& frame);

/// Whether the UDP source port of a tunnel is all that differs, and OVS may choose it. `source_port_at`: where OVS has
/// chosen one; 0: nowhere.
[[nodiscard]] bool differ_in_source_port(const std::vector<std::uint8_t>& nic, const std::vector<std::uint8_t>& ovs,
                                         std::size_t source_port_at);

}  // namespace ovsdr::differential
