// What only software does, beside what a NIC does with the packet: outputs to LOCAL and taps, packets for a controller
// or a collector, samples, truncated outputs; and what a storage mirror takes. Devices make a copy there
// (docs/software-branch.md, docs/storage-mirror.md).
//
// An output to LOCAL, a tap or a storage mirror is an output as others are, to a port that is no vport. All else is a
// SoftwarePart.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/differential/judge/set_action.hpp"

namespace ovsdr::differential {

struct Action;
struct Megaflow;

/// Of the datapath: a bridge's own, taps, and a storage mirror's.
inline constexpr std::uint32_t host_port = 77, tap_ports[] = {78, 79}, mirror_port = 80;
[[nodiscard]] constexpr bool is_software_port(std::uint32_t port) {
    return port == host_port || port == tap_ports[0] || port == tap_ports[1] || port == mirror_port;
}

struct SoftwarePart {
    enum class Form : std::uint8_t {
        userspace, sample, truncated_output, truncated_userspace,
        metered_sample,   ///< of each packet (metered_copies.hpp)
    };
    Form form = Form::userspace;
    std::uint32_t one_of = 1;   ///< sample: of so many packets one
    std::uint8_t cookie = 0;    ///< of userspace: which one it is
    std::uint16_t length = 0;   ///< bytes that are left of what is truncated; of a metered sample 0: all
    bool to_controller = false; ///< userspace: for a controller, else for a collector
    std::vector<std::uint32_t> meters{};   ///< of a metered sample: that each copy meets, by number; then it is cut
    std::uint32_t port = 0;     ///< of a truncated output: LOCAL, a tap or a vport, by which software sends it then
    /// Done to the packet between trunc and what takes it. The packet itself has it done, too.
    std::optional<SetAction> between{};

    [[nodiscard]] bool copies_each() const { return one_of == 1; }
    /// All that is done is that a storage mirror takes the packet's beginning: nothing is left to software.
    [[nodiscard]] bool is_cut_for_mirror() const {
        return form == Form::truncated_output && port == mirror_port && !between;
    }
    /// Equal: equal work. What is between is a part of it.
    friend bool operator==(const SoftwarePart&, const SoftwarePart&) = default;
};

/// As OVS prints it: one action, or trunc with those behind it.
[[nodiscard]] std::string text_of(const SoftwarePart& part);

/// Puts some of them, and outputs to software's ports, somewhere into some lists of actions. `samples`: of several
/// packets one, too, which a ConnectX-5 does not.
void add_software_parts(Chance& chance, const Megaflow& megaflow, bool samples, std::vector<Action>& actions);

/// What names.hpp says of them, and of where they stand.
void add_software_names(const Megaflow& megaflow, std::set<std::string>& names);

}  // namespace ovsdr::differential
