// The OpenFlow meters of a scenario.
//
// The model. What a meter lets pass depends on time, and the judges have no common clock. So each meter is one of two
// kinds: one whose burst no run fills, or one that is exhausted. An exhausted one has a small burst, and packets of its
// own come before all others of a phase (priming): the first of them pass, just as many as the burst has room for, and
// from then on none. Its rate is the lowest one, and in a device is lowered to nothing as soon as the bucket has been
// filled, so that no token comes back.
//
// Numbers up to last_device_meter are of meters that devices have, most of the time: from phase to phase they get other
// rates and bursts, a second band, or go for a while. The others are software's by their nature.
//
// Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/differential/judge/set_action.hpp"

namespace ovsdr::differential {

struct Action;
struct Megaflow;

struct MeterSpec {
    bool by_packets = false;                 ///< else by kilobits
    std::uint16_t bands = 1;                 ///< the second has twice the rate and burst
    std::uint32_t rate = 1, burst = 1;       ///< of the first band
    bool is_exhausted = false;

    friend bool operator==(const MeterSpec&, const MeterSpec&) = default;
};

/// First numbers are last_device_meter long.
inline constexpr std::uint32_t last_device_meter = 16, two_band_meter = 17, short_burst_meter = 18,
                               high_rate_meter = 19, meters_end = 20, unset_meter = 25;
/// Odd ones count bytes.
[[nodiscard]] constexpr bool is_by_packets(std::uint32_t number) { return number % 2 == 0; }

/// Whether a device has such a meter. `connectx_5`: its meters count bytes only.
[[nodiscard]] bool can_device_have(const MeterSpec& spec, bool connectx_5);
/// The same of all that a meter of this number becomes, but for a second band or being gone.
[[nodiscard]] bool can_device_have_number(std::uint32_t number, bool connectx_5);

/// By number.
using MeterSpecs = std::array<std::optional<MeterSpec>, meters_end>;

struct MeterChange {
    std::uint32_t number;
    std::optional<MeterSpec> spec;   ///< nothing: it goes
};

/// Of a phase; `first`: all that there are come.
[[nodiscard]] std::vector<MeterChange> draw_meter_changes(Chance& chance, const MeterSpecs& now, bool first);

/// Priming: bytes of its packets, and how many of them exhaust the meter for sure.
inline constexpr std::size_t priming_size = 1400;
[[nodiscard]] std::size_t priming_length(const MeterSpec& spec);
/// That software's bucket needs more than its burst to let pass in priming what a device lets pass: by bytes a device
/// lets the packet pass that empties the bucket, OVS only one that the bucket holds (docs/meters.md).
[[nodiscard]] std::uint32_t bytes_more_for_software(const MeterSpec& spec, bool connectx_5);

/// Of a meter since it was set, in NIC and software together.
struct MeterCounts {
    std::uint64_t packets = 0, bytes = 0;                    ///< that met it
    std::uint64_t dropped_packets = 0, dropped_bytes = 0;

    MeterCounts& operator+=(const MeterCounts& more) {
        packets += more.packets;
        bytes += more.bytes;
        dropped_packets += more.dropped_packets;
        dropped_bytes += more.dropped_bytes;
        return *this;
    }
    friend bool operator==(const MeterCounts&, const MeterCounts&) = default;
};

[[nodiscard]] std::uint32_t draw_meter_number(Chance& chance, bool connectx_5);
/// Puts meters into some lists of actions, mostly where devices have them. Software's parts are there already.
void add_meters(Chance& chance, const Megaflow& megaflow, bool connectx_5, std::vector<Action>& actions);

/// What names.hpp says of them, and of where they stand.
void add_meter_names(const Megaflow& megaflow, std::set<std::string>& names);

}  // namespace ovsdr::differential
