/* See host_port.h. */
#include <config.h>

#include "shim/host_port.h"

#include "ctrl/copies.h"
#include "dpif.h"
#include "netdev.h"
#include "ofproto/ofproto-dpif.h"
#include "shim/tunnel_port.h"

static bool
is_ours(const struct dpif *dpif)
{
    return tunnel_port_is_ours(dpif_normalize_type(dpif_type(dpif)));
}

/* The bridge is there before its port is. */
void
host_port_added(const struct dpif *dpif, const struct netdev *netdev, odp_port_t odp_port)
{
    if (is_ours(dpif)) {
        ovsdr_datapath_port_add(odp_to_u32(odp_port), ofproto_dpif_lookup_by_name(netdev_get_name(netdev)) != NULL);
    }
}

void
host_port_goes(const struct dpif *dpif, odp_port_t odp_port)
{
    if (is_ours(dpif)) {
        ovsdr_datapath_port_remove(odp_to_u32(odp_port));
    }
}

void
host_port_restore(const struct dpif *dpif, odp_port_t odp_port)
{
    struct dpif_port_dump dump;
    struct dpif_port port;

    if (!is_ours(dpif)) {
        return;
    }
    /* A dump, because asking by number for a port that has gone writes a warning into the log. */
    DPIF_PORT_FOR_EACH (&port, &dump, dpif) {
        if (port.port_no == odp_port) {
            ovsdr_datapath_port_add(odp_to_u32(odp_port), ofproto_dpif_lookup_by_name(port.name) != NULL);
        }
    }
}
