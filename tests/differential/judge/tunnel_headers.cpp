#include "tests/differential/judge/tunnel_headers.hpp"

#include <algorithm>
#include <iterator>

namespace ovsdr::differential {

namespace {

struct Row {
    const char* name;
    std::uint32_t port;
    std::uint16_t udp_port;
};
constexpr Row rows[] = {{"vxlan", 101, 4789}, {"geneve", 102, 6081}, {"gre", 103, 0}};

constexpr GeneveOption usual{0x102, 0x80}, other{0x102, 0x01}, foreign{0x1234, 0x05};

const Row& row_of(TunnelKind kind) { return rows[static_cast<std::size_t>(kind)]; }

}  // namespace

std::uint32_t tunnel_port_of(TunnelKind kind) { return row_of(kind).port; }
const char* name_of(TunnelKind kind) { return row_of(kind).name; }
std::uint16_t udp_port_of(TunnelKind kind) { return row_of(kind).udp_port; }

bool is_tunnel_port(std::uint32_t odp) { return std::ranges::count(rows, odp, &Row::port) != 0; }

bool has_checksum(TunnelKind kind, bool ipv6) { return kind == (ipv6 ? TunnelKind::vxlan : TunnelKind::geneve); }

bool asks_for_options(const TunnelHeaders& headers) {
    switch (headers.options) {
        case GeneveOptions::usual:
        case GeneveOptions::other: return !headers.ipv6;
        case GeneveOptions::two: return headers.ipv6;
        default: return false;
    }
}

bool asks_for_oam(const TunnelHeaders& headers) {
    return headers.kind == TunnelKind::geneve || headers.ipv6 == (headers.kind == TunnelKind::vxlan);
}

std::vector<GeneveOption> list_of(GeneveOptions options) {
    switch (options) {
        case GeneveOptions::usual: return {usual};
        case GeneveOptions::other: return {other};
        case GeneveOptions::two: return {foreign, usual};
        case GeneveOptions::twice: return {usual, usual};
        default: return {};
    }
}

}  // namespace ovsdr::differential
