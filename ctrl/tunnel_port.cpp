// See tunnel_port.h.
#include "ctrl/tunnel_port.h"

#include "ctrl/all_devices.hpp"

using namespace ovsdr;
using namespace ovsdr::ctrl;

namespace {

dr::TunnelKind kind_of(ovsdr_tunnel_kind kind) {
    switch (kind) {
        case OVSDR_TUNNEL_GENEVE: return dr::TunnelKind::geneve;
        case OVSDR_TUNNEL_GRE: return dr::TunnelKind::gre;
        case OVSDR_TUNNEL_VXLAN: break;
    }
    return dr::TunnelKind::vxlan;
}

ovsdr_tunnel_kind kind_of(dr::TunnelKind kind) {
    switch (kind) {
        case dr::TunnelKind::geneve: return OVSDR_TUNNEL_GENEVE;
        case dr::TunnelKind::gre: return OVSDR_TUNNEL_GRE;
        case dr::TunnelKind::vxlan: break;
    }
    return OVSDR_TUNNEL_VXLAN;
}

}  // namespace

void ovsdr_tunnel_port_set(const ovsdr_tunnel_port* port, const char* name) noexcept {
    all_devices().set_tunnel_port({.odp_port = dr::OdpPort{port->odp_port},
                                   .kind = kind_of(port->kind),
                                   .udp_port = port->udp_port,
                                   .name = name});
}

void ovsdr_tunnel_port_remove(std::uint32_t odp_port) noexcept {
    all_devices().remove_tunnel_port(dr::OdpPort{odp_port});
}

bool ovsdr_tunnel_port_get(std::uint32_t odp_port, ovsdr_tunnel_port* port) noexcept {
    const auto found = all_devices().tunnel_port(dr::OdpPort{odp_port});
    if (found) *port = {.odp_port = odp_port, .kind = kind_of(found->kind), .udp_port = found->udp_port};
    return found.has_value();
}

void ovsdr_choose(const ovsdr_choices* choices) noexcept {
    all_devices().choose({.exact_tunnel_source_port = choices->exact_tunnel_source_port,
                          .exact_tunnel_flags = choices->exact_tunnel_flags});
}
