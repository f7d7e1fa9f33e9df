/* Vports of interfaces that were removed and live on for a while. See netdev_dr_parts.h. */
#include <config.h>

#include "shim/netdev_dr_parts.h"

#include <string.h>

#include "netdev-offload.h"
#include "odp-util.h"
#include "shim/port_del.h"

static bool
is_removed(const struct netdev_dr *dev, const char *device, uint16_t vport)
{
    return !dev->up.node && dev->port && dev->vport == vport && !strcmp(dev->device, device);
}

/* While it is the datapath's port it cannot go: only this thread takes it out. */
static struct netdev *
find_removed_in_datapath(const char *device, uint16_t vport)
{
    odp_port_t odp_port = ODPP_NONE;
    const char *type = NULL;
    struct netdev_dr *dev;

    ovs_mutex_lock(&netdev_dr_list_mutex);
    LIST_FOR_EACH (dev, node, &netdev_dr_list) {
        if (is_removed(dev, device, vport) && dev->odp_port != OVSDR_NO_ODP_PORT) {
            odp_port = u32_to_odp(dev->odp_port);
            type = netdev_get_dpif_type(&dev->up);
        }
    }
    ovs_mutex_unlock(&netdev_dr_list_mutex);
    return type ? netdev_ports_get(odp_port, type) : NULL;
}

/* A removed interface lives on while another thread holds a reference, and with it its vport. The vport is free for
 * others all the same. Only the main thread removes interfaces, and it is the one that calls this. */
bool
netdev_dr_release_removed(const char *device, uint16_t vport)
{
    struct netdev *in_datapath = find_removed_in_datapath(device, vport);
    struct netdev_dr *dev;
    bool released = false;

    if (in_datapath && is_netdev_dr(in_datapath)
        && is_removed(netdev_dr_cast(in_datapath), device, vport)) {
        port_del_flows_go(in_datapath);
    }
    netdev_close(in_datapath);
    ovs_mutex_lock(&netdev_dr_list_mutex);
    LIST_FOR_EACH (dev, node, &netdev_dr_list) {
        if (is_removed(dev, device, vport)) {
            netdev_dr_close_port(dev);
            released = true;
        }
    }
    ovs_mutex_unlock(&netdev_dr_list_mutex);
    return released;
}
