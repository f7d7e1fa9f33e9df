// An address by which the manager function itself speaks RoCEv2, beside the switch that it manages.
//
// Threads: a value; reading one from a device is for any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "offload/dr/result.hpp"

struct ibv_context;

namespace ovsdr::dr {

struct RoceAddress {
    std::array<std::uint8_t, 16> gid;   ///< an IPv4 address as ::ffff:a.b.c.d
    std::array<std::uint8_t, 6> mac;
    std::uint16_t vlan = 0;             ///< whose tag its packets have, 1 to 4094; 0: they have none

    [[nodiscard]] bool is_ipv4() const noexcept;
    friend auto operator<=>(const RoceAddress&, const RoceAddress&) = default;
};

/// That of a port's GID. The MAC is what the port's first link-local GID was made of; the VLAN that of the GID's
/// network interface, none where it has no such interface. ENOENT: GID or MAC is not there; `what` says which.
/// EPROTONOSUPPORT: the GID is not of RoCE v2. Other errors: of the call that `what` names, among them whatever kept
/// the VLAN from being told; to be asked again.
[[nodiscard]] Result<RoceAddress> roce_address(ibv_context* context, std::uint8_t ib_port, int gid_index) noexcept;

}  // namespace ovsdr::dr
