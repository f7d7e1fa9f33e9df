// What software does to the copy of a packet that the device cannot treat whole.
//
// Model. A megaflow whose packets the device forwards may ask for more than the device can do: an output to a port that
// is none of its vports, a packet for the controller, a sample for a collector. There the device takes a copy of the
// packet as it is at that point, and the copy comes up on a queue of its own with the id of its SoftwareWork as flow
// tag (Eswitch::work_of()). Software does that and nothing else of the megaflow: the rest has been done in the device.
//
// There are queues of their own by CopyKind: what the host is to receive is not lost because somebody who only looks on
// gets more copies than software can handle, and a storage mirror (offload/mirror) takes nothing from either.
//
// Threads: values; equal is what is equal by content. The count of an InstalledWork is anybody's.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
    first_mirror,   ///< a storage mirror; mirror_kind() has them all
};
/// What each device that has a port has queues for.
inline constexpr std::array copy_kinds{CopyKind::host, CopyKind::other};
/// Storage mirrors that there can be at a time.
inline constexpr unsigned max_mirrors = 8;
/// `index`: below max_mirrors.
[[nodiscard]] constexpr CopyKind mirror_kind(unsigned index) noexcept {
    return static_cast<CopyKind>(static_cast<unsigned>(CopyKind::first_mirror) + index);
}
[[nodiscard]] constexpr bool is_mirror(CopyKind kind) noexcept { return kind >= CopyKind::first_mirror; }
/// By CopyKind, those of mirrors too.
template <typename T>
using PerCopyKind = std::array<T, copy_kinds.size() + max_mirrors>;
[[nodiscard]] constexpr std::size_t index_of(CopyKind kind) noexcept { return static_cast<std::size_t>(kind); }
/// And those of mirrors.
inline constexpr PerCopyKind<CopyKind> all_copy_kinds = [] {
    PerCopyKind<CopyKind> kinds{};
    for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i] = static_cast<CopyKind>(i);
    return kinds;
}();
/// "host", "other", "mirror 0".
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
    /// Of a mirror's work: it takes so many bytes of a longer frame. 0: all. The copy comes up whole.
    std::uint32_t cut_at = 0;
    StaticName sampler{};                ///< as ovsdr_software::sampler; empty: nobody samples

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

/// What came up of all work that is for one sampler at one rate, since the device is open.
struct SamplerCount {
    SamplerCount(StaticName its_name, std::uint32_t its_rate) noexcept : sampler(its_name), one_of(its_rate) {}
    const StaticName sampler;
    const std::uint32_t one_of;
    mutable std::atomic<std::uint64_t> copies{0};
};

/// Work in a device, or that was in one a moment ago.
struct InstalledWork : SoftwareWork {
    InstalledWork(const SoftwareWork& installed, std::shared_ptr<const SamplerCount> its_sampler)
        : SoftwareWork(installed), count_of_sampler(std::move(its_sampler)) {}
    /// By whoever receives a copy.
    void count() const noexcept {
        done.fetch_add(1, std::memory_order_relaxed);
        if (count_of_sampler != nullptr) count_of_sampler->copies.fetch_add(1, std::memory_order_relaxed);
    }
    mutable std::atomic<std::uint64_t> done{0};                    ///< copies that came up
    const std::shared_ptr<const SamplerCount> count_of_sampler;    ///< none: it is for nobody who samples
};

/// What a storage mirror's queue gets of the copies that are led to it.
struct MirrorSteering {
    /// A packet from or to this port, with VLAN tags or without; ip_protocol is 6 or 17, over IPv4 or IPv6. Of a
    /// tunnel's packet the outer headers decide. A fragment is of no service: to a device not even the first has ports.
    struct Service {
        std::uint8_t ip_protocol;
        std::uint16_t port;
        friend auto operator<=>(const Service&, const Service&) = default;
    };
    std::uint32_t one_of = 1;          ///< of so many packets one is copied, at random
    std::vector<Service> services{};   ///< those of any of these; none: of all
    friend bool operator==(const MirrorSteering&, const MirrorSteering&) = default;
};

/// Of a meter, or of software's work that begins with one.
[[nodiscard]] std::optional<std::uint32_t> meter_of(const ovsdr_action& action) noexcept;

}  // namespace ovsdr::dr
