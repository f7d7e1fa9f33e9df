// The headers of a tunnel in front of a frame, as a packet has them and as megaflows of the tunnel's port ask for them.
//
// The model. What has a value and a mask is a Feature (megaflows.hpp); here is the rest: the kinds of headers, flags
// and options that there are. OVS matches flags and the size of the options in every megaflow of a tunnel port.
//
// Whether there is an outer UDP checksum no device sees (docs/tunnels.md). So all packets of a tunnel over one IP
// version are alike in that, and so are their megaflows; of some there is a twin that asks for the contrary.
//
// Threads: pure.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace ovsdr::differential {

enum class TunnelKind : std::uint8_t { vxlan, geneve, gre };
inline constexpr TunnelKind tunnel_kinds[] = {TunnelKind::vxlan, TunnelKind::geneve, TunnelKind::gre};

/// The tunnel's port of the datapath.
[[nodiscard]] std::uint32_t tunnel_port_of(TunnelKind kind);
[[nodiscard]] bool is_tunnel_port(std::uint32_t odp);
[[nodiscard]] const char* name_of(TunnelKind kind);   ///< an interface's type in OVSDB
[[nodiscard]] std::uint16_t udp_port_of(TunnelKind kind);   ///< 0: it is GRE's

/// Of Geneve; each has one word.
enum class GeneveOptions : std::uint8_t {
    none,
    usual,   ///< the one that most megaflows ask for
    other,
    two,     ///< the usual one behind another one
    twice,   ///< the usual one: no megaflow asks for that
};

struct TunnelHeaders {
    TunnelKind kind = TunnelKind::vxlan;
    bool ipv6 = false;
    bool key = true;        ///< GRE's
    bool checksum = false;
    bool oam = false;       ///< Geneve's
    GeneveOptions options = GeneveOptions::none;

    friend auto operator<=>(const TunnelHeaders&, const TunnelHeaders&) = default;
};

/// Whether packets have an outer UDP checksum.
[[nodiscard]] bool has_checksum(TunnelKind kind, bool ipv6);
/// Whether megaflows look at options, their class and type, or at their size alone: over one IP version always one.
[[nodiscard]] bool asks_for_options(const TunnelHeaders& headers);

/// Whether megaflows look at the flag, which only Geneve's headers have: over one IP version always one.
[[nodiscard]] bool asks_for_oam(const TunnelHeaders& headers);

struct GeneveOption {
    std::uint16_t option_class;
    std::uint8_t type;
};
/// In their order.
[[nodiscard]] std::vector<GeneveOption> list_of(GeneveOptions options);

}  // namespace ovsdr::differential
