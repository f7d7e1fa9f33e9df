// What software does to the copy of a packet that the device cannot treat whole.
//
// Model. A megaflow whose packets the device forwards may ask for more than the device can do: an output to a port that
// is none of its vports, a packet for the controller, a sample for a collector. There the device takes a copy of the
// packet as it is at that point, and the copy comes up on a queue of its own with the id of its SoftwareWork as flow
// tag (Eswitch::work_of()). Software does that and nothing else of the megaflow: the rest has been done in the device.
//
// There are two queues, by CopyKind: what the host is to receive is not lost because somebody who only looks on gets
// more copies than software can handle.
//
// Threads: values; equal is what is equal by content. The count of an InstalledWork is anybody's.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <optional>
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

/// Whom copies are for.
enum class CopyKind : std::uint8_t {
    host,    ///< the host itself: outputs to bridges' own ports (LOCAL)
    other,   ///< taps, and with them mirrors; samples, controllers, logs
};
inline constexpr std::array copy_kinds{CopyKind::host, CopyKind::other};
/// By CopyKind.
template <typename T>
using PerCopyKind = std::array<T, copy_kinds.size()>;
[[nodiscard]] constexpr std::size_t index_of(CopyKind kind) noexcept { return static_cast<std::size_t>(kind); }
/// "host", "other".
[[nodiscard]] const char* name_of(CopyKind kind) noexcept;

struct SoftwareWork {
    /// An output to each of these, which are in ascending order.
    using Ports = std::vector<OdpPort>;
    /// The actions of an OVSDR_ACTION_SOFTWARE.
    using Actions = std::vector<std::uint8_t>;

    OdpPort in_port{};
    TunnelMetadata tunnel{};             ///< the copy has no outer headers
    std::variant<Ports, Actions> work;
    StaticName name{};                   ///< of the actions, for people
    CopyKind kind = CopyKind::other;

    friend auto operator<=>(const SoftwareWork&, const SoftwareWork&) = default;
};

/// "output to datapath port 7, from datapath port 2", "userspace 0c00…, from …". Equal texts, equal work.
[[nodiscard]] std::string text_of(const SoftwareWork& work);

/// Work in a device, or that was in one a moment ago.
struct InstalledWork : SoftwareWork {
    explicit InstalledWork(const SoftwareWork& installed) : SoftwareWork(installed) {}
    mutable std::atomic<std::uint64_t> done{0};   ///< copies that came up; counted by whoever receives them
};

/// A copy of one of so many packets, at random; 1: of each.
struct SoftwareCopy {
    std::uint32_t one_of = 1;
    SoftwareWork work;

    [[nodiscard]] bool samples() const noexcept { return one_of != 1; }
    friend auto operator<=>(const SoftwareCopy&, const SoftwareCopy&) = default;
};

/// "copy to software: …", "copy to software (1 of 64): …".
[[nodiscard]] std::string text_of(const SoftwareCopy& copy);

/// Of a meter, or of software's work that begins with one.
[[nodiscard]] std::optional<std::uint32_t> meter_of(const ovsdr_action& action) noexcept;

}  // namespace ovsdr::dr
