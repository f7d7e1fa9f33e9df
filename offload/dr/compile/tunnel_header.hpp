// A tunnel's headers on their way from a megaflow's tnl_push to the device's reformat.
//
// Model. OVS gives the headers without what depends on the packet, and fills that in for each packet: lengths and the
// IPv4 header's checksum, which the device does as well; the UDP source port, a hash of the inner packet, which is the
// same for all packets of a megaflow in the device (a documented difference); the UDP checksum if one is wanted, which
// the device cannot. Headers that the device would send otherwise than OVS are refused.
//
// What OVS does to the packet after that, it does to the outer headers: tags of the underlay become part of them.
//
// Threads: a value. Source: OVS lib/netdev-native-tnl.c.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "offload/dr/choices.hpp"
#include "offload/dr/compile/obstacles.hpp"
#include "offload/dr/compile/plan.hpp"
#include "offload/dr/megaflow.h"

namespace ovsdr::dr {

class TunnelHeader {
public:
    /// `flow_hash`: of the megaflow, for the UDP source port. Nothing: refused, and added to `obstacles`.
    [[nodiscard]] static std::optional<TunnelHeader> of(const ovsdr_tunnel_push& push, std::uint64_t flow_hash,
                                                        const Choices& choices, Obstacles& obstacles);

    void push(VlanTag tag);
    /// The tag that was pushed last; without one nothing, as OVS does.
    void pop() noexcept;

    [[nodiscard]] std::size_t tags() const noexcept { return tags_; }
    [[nodiscard]] const std::vector<std::uint8_t>& bytes() const noexcept { return bytes_; }

    /// Megaflows to one peer share so many reformats, which are firmware objects, at most.
    static constexpr unsigned source_ports = 64;

private:
    explicit TunnelHeader(std::vector<std::uint8_t> bytes) noexcept : bytes_(std::move(bytes)) {}

    std::vector<std::uint8_t> bytes_;
    std::size_t tags_ = 0;
};

}  // namespace ovsdr::dr
