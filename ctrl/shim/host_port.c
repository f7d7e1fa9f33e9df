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
    if (is_ours(dpif) && ofproto_dpif_lookup_by_name(netdev_get_name(netdev))) {
        ovsdr_host_port_set(odp_to_u32(odp_port), true);
    }
}

void
host_port_deleted(const struct dpif *dpif, odp_port_t odp_port)
{
    if (is_ours(dpif)) {
        ovsdr_host_port_set(odp_to_u32(odp_port), false);
    }
}
