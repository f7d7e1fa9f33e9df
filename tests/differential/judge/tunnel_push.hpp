// A tnl_push of a megaflow: the headers of VXLAN, Geneve or GRE that go in front of a packet.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>

#include "tests/differential/judge/chance.hpp"
#include "tests/differential/judge/tunnel_headers.hpp"

namespace ovsdr::differential {

/// The port by which a tunnel's packets leave, if OVS is to be believed.
inline constexpr std::uint32_t underlay_port = 100;

/// Headers that OVS never makes, and pushes as they are if it is asked to.
enum class Oddity { none, fragment, protocol };

struct TunnelPush {
    TunnelKind kind = TunnelKind::vxlan;
    bool ipv6 = false;
    bool checksum = false;    ///< an outer one, of UDP or GRE: no device makes it
    bool key = true;          ///< GRE's, which may have none
    bool option = false;      ///< one of Geneve's
    bool dont_fragment = true;
    Oddity oddity = Oddity::none;
    std::uint8_t tos = 0, ttl = 64;
    std::uint32_t id = 0;
    std::uint32_t peer = 0;   ///< of it the addresses are made

    friend auto operator<=>(const TunnelPush&, const TunnelPush&) = default;
};

[[nodiscard]] TunnelPush draw_tunnel_push(Chance& chance);
[[nodiscard]] std::string text_of(const TunnelPush& push);

}  // namespace ovsdr::differential
