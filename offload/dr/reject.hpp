// Why a megaflow stays in software: each field and each action at fault, by name.
//
// Obstacles are counted by reason and name, both written down in the source; the value that made the field or action an
// obstacle is for whoever asks about this megaflow.
//
// Threads: values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "offload/dr/ids.hpp"
#include "offload/dr/static_name.hpp"

namespace ovsdr::dr {

enum class RejectReason {
    unsupported_match,      ///< a field without a DR equivalent
    unsupported_mask,       ///< a field that DR matches whole or not at all
    unsupported_action,
    unsupported_order,      ///< actions that the device does not take in this order
    recirculation,          ///< nothing in the device leads to its recirc_id, or what it leads to cannot follow
    in_port_not_offloaded,  ///< in_port is no dr port, or is not matched whole
    output_not_offloaded,   ///< an output to a port that is no vport of this device
    too_many_actions,
    policed_port,           ///< in_port has a policer, which is in the slow path
    device_limit,           ///< the device's profile lacks what is needed
};

struct Obstacle {
    RejectReason reason;
    StaticName name;                ///< field or action
    std::string value{};            ///< goes on behind the name: "=0x05ff", "/0xff00", " (a second tag)"
    std::optional<OdpPort> port{};  ///< which port it is about

    friend bool operator==(const Obstacle&, const Obstacle&) = default;
};

/// All obstacles of one megaflow, none twice; at least one.
struct Reject {
    std::vector<Obstacle> obstacles;
};

/// "unsupported match", as users read it.
[[nodiscard]] StaticName name_of(RejectReason reason) noexcept;

/// "unsupported match: eth_type=0x05ff (802.3 with LLC)". A port that is not in `names` is "datapath port 7".
[[nodiscard]] std::string text_of(const Obstacle& obstacle, const PortNames& names = {});
/// All of them in one line.
[[nodiscard]] std::string text_of(const Reject& reject, const PortNames& names = {});

}  // namespace ovsdr::dr
