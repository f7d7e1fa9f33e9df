// What software does to the copy of a packet that the device cannot treat whole.
//
// Model. A megaflow whose packets the device forwards may ask for more than the device can do: an output to a port that
// is none of its vports, a packet for the controller, a sample for a collector. There the device takes a copy of the
// packet as it is at that point, and the copy comes up on a queue of its own with the id of its SoftwareWork as flow
// tag (Eswitch::work_of()). Software does that and nothing else of the megaflow: the rest has been done in the device.
//
// Threads: values; equal is what is equal by content.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "offload/dr/ids.hpp"
#include "offload/dr/megaflow.h"
#include "offload/dr/static_name.hpp"

namespace ovsdr::dr {

/// What a megaflow of a tunnel port says of the headers that its packets came with. Zero: the port is no tunnel's.
struct TunnelMetadata {
    ovsdr_tunnel_fields key{}, mask{};   ///< what the mask leaves out is not known
    friend bool operator==(const TunnelMetadata& left, const TunnelMetadata& right) noexcept;
    friend std::strong_ordering operator<=>(const TunnelMetadata& left, const TunnelMetadata& right) noexcept;
};

struct SoftwareWork {
    /// The actions of an OVSDR_ACTION_SOFTWARE.
    using Actions = std::vector<std::uint8_t>;

    OdpPort in_port{};
    TunnelMetadata tunnel{};              ///< the copy has no outer headers
    std::variant<OdpPort, Actions> work;  ///< a port: an output to it
    StaticName name{};                    ///< of the actions, for people

    friend auto operator<=>(const SoftwareWork&, const SoftwareWork&) = default;
};

/// "output to datapath port 7, from datapath port 2", "userspace 0c00…, from …". Equal texts, equal work.
[[nodiscard]] std::string text_of(const SoftwareWork& work);

/// A copy of one of so many packets, at random; 1: of each.
struct SoftwareCopy {
    std::uint32_t one_of = 1;
    SoftwareWork work;

    [[nodiscard]] bool samples() const noexcept { return one_of != 1; }
    friend auto operator<=>(const SoftwareCopy&, const SoftwareCopy&) = default;
};

/// "copy to software: …", "copy to software (1 of 64): …".
[[nodiscard]] std::string text_of(const SoftwareCopy& copy);

}  // namespace ovsdr::dr
