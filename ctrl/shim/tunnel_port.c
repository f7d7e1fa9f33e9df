/* See tunnel_port.h. */
#include <config.h>

#include "shim/tunnel_port.h"

#include <netinet/in.h>
#include <string.h>

#include "ctrl/tunnel_port.h"
#include "dp-packet.h"
#include "dpif.h"
#include "flow.h"
#include "netdev-offload.h"
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

/* NULL: dropped. OVS looks for short packets before it goes on with one, but not behind hw_miss_packet_recover(). */
static struct dp_packet *
pop(struct netdev *netdev, struct dp_packet *packet)
{
    struct dp_packet_batch batch;

    dp_packet_batch_init_packet(&batch, packet);
    netdev_pop_header(netdev, &batch);
    if (dp_packet_batch_is_empty(&batch)) {
        return NULL;
    }
    if (dp_packet_size(packet) < ETH_HEADER_LEN) {
        dp_packet_delete(packet);
        return NULL;
    }
    return packet;
}

bool
tunnel_port_pop(const char *dpif_type, odp_port_t odp_port, struct dp_packet *packet)
{
    struct netdev *netdev = netdev_ports_get(odp_port, dpif_type);
    struct ovsdr_tunnel_port port;

    if (netdev && is_tunnel_port(netdev) && ovsdr_tunnel_port_get(odp_to_u32(odp_port), &port)
        && comes_out_of(&port, packet)) {
        packet = pop(netdev, packet);
    } else {
        dp_packet_delete(packet);
        packet = NULL;
    }
    netdev_close(netdev);
    if (packet) {
        packet->md.in_port.odp_port = odp_port;
    }
    return packet != NULL;
}
