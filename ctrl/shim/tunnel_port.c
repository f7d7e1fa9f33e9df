/* See tunnel_port.h. */
#include <config.h>

#include "shim/tunnel_port.h"

#include <netinet/in.h>
#include <string.h>

#include "ctrl/tunnel_port.h"
#include "dp-packet.h"
#include "dpif.h"
#include "flow.h"
#include "netdev-native-tnl.h"
#include "netdev-provider.h"
#include "netdev-vport.h"
#include "netdev.h"
#include "packets.h"
#include "util.h"

static const struct {
    const char *type;
    enum ovsdr_tunnel_kind kind;
} kinds[] = {
    {"vxlan", OVSDR_TUNNEL_VXLAN},
    {"geneve", OVSDR_TUNNEL_GENEVE},
    {"gre", OVSDR_TUNNEL_GRE},
    {"ip6gre", OVSDR_TUNNEL_GRE},
};

static bool
find_kind(const struct netdev *netdev, enum ovsdr_tunnel_kind *kind)
{
    if (netdev_vport_is_vport_class(netdev_get_class(netdev))) {
        for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
            if (!strcmp(netdev_get_type(netdev), kinds[i].type)) {
                *kind = kinds[i].kind;
                return true;
            }
        }
    }
    return false;
}

bool
tunnel_port_is_ours(const char *dpif_type)
{
    return dpif_type && !strcmp(dpif_type, "netdev");
}

bool
is_tunnel_port(const struct netdev *netdev)
{
    enum ovsdr_tunnel_kind kind;

    return tunnel_port_is_ours(netdev_get_dpif_type(netdev)) && find_kind(netdev, &kind);
}

bool
tunnel_port_of(const struct netdev *netdev, odp_port_t *odp_port)
{
    char name[NETDEV_VPORT_NAME_BUFSIZE];
    struct ovsdr_tunnel_port port;
    enum ovsdr_tunnel_kind kind;

    if (!find_kind(netdev, &kind)
        || !ovsdr_tunnel_port_find(netdev_vport_get_dpif_port(netdev, name, sizeof name), &port)) {
        return false;
    }
    *odp_port = u32_to_odp(port.odp_port);
    return true;
}

void
tunnel_port_added(const struct dpif *dpif, const struct netdev *netdev, odp_port_t odp_port)
{
    struct ovsdr_tunnel_port port = {.odp_port = odp_to_u32(odp_port)};
    char name[NETDEV_VPORT_NAME_BUFSIZE];

    if (tunnel_port_is_ours(dpif_normalize_type(dpif_type(dpif))) && find_kind(netdev, &port.kind)) {
        if (port.kind != OVSDR_TUNNEL_GRE) {
            port.udp_port = ntohs(netdev_get_tunnel_config(netdev)->dst_port);
        }
        ovsdr_tunnel_port_set(&port, netdev_vport_get_dpif_port(netdev, name, sizeof name));
    }
}

void
tunnel_port_deleted(const struct dpif *dpif, odp_port_t odp_port)
{
    if (tunnel_port_is_ours(dpif_normalize_type(dpif_type(dpif)))) {
        ovsdr_tunnel_port_remove(odp_to_u32(odp_port));
    }
}

/* The packet may come up when another port has got the number. Notes where its headers are. */
static bool
comes_out_of(const struct ovsdr_tunnel_port *port, struct dp_packet *packet)
{
    struct flow flow;

    flow_extract(packet, &flow);
    return port->kind == OVSDR_TUNNEL_GRE ? flow.nw_proto == IPPROTO_GRE
                                          : flow.nw_proto == IPPROTO_UDP && flow.tp_dst == htons(port->udp_port);
}

/* What the netdev of such a port does; without it, since whoever asks for one waits while the main thread destroys
 * another. NULL: dropped. */
static struct dp_packet *
take_headers_off(struct dp_packet *packet, enum ovsdr_tunnel_kind kind)
{
    switch (kind) {
    case OVSDR_TUNNEL_VXLAN: return netdev_vxlan_pop_header(packet);
    case OVSDR_TUNNEL_GENEVE: return netdev_geneve_pop_header(packet);
    case OVSDR_TUNNEL_GRE: return netdev_gre_pop_header(packet);
    }
    OVS_NOT_REACHED();
}

/* NULL: dropped. OVS looks for short packets before it goes on with one, but not behind hw_miss_packet_recover(). */
static struct dp_packet *
pop(struct dp_packet *packet, enum ovsdr_tunnel_kind kind)
{
    packet = take_headers_off(packet, kind);
    if (!packet) {
        return NULL;
    }
    dp_packet_reset_offload(packet);
    pkt_metadata_init_conn(&packet->md);
    if (dp_packet_size(packet) < ETH_HEADER_LEN) {
        dp_packet_delete(packet);
        return NULL;
    }
    return packet;
}

bool
tunnel_port_pop(odp_port_t odp_port, struct dp_packet *packet)
{
    struct ovsdr_tunnel_port port;

    if (ovsdr_tunnel_port_get(odp_to_u32(odp_port), &port) && comes_out_of(&port, packet)) {
        packet = pop(packet, port.kind);
    } else {
        dp_packet_delete(packet);
        packet = NULL;
    }
    if (packet) {
        packet->md.in_port.odp_port = odp_port;
    }
    return packet != NULL;
}
