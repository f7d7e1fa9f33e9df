/* See vlan_limit.h. */
#include <config.h>

#include "shim/vlan_limit.h"

#include "dpif.h"
#include "flow.h"
#include "openvswitch/vlog.h"
#include "simap.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(vlan_limit);

void
vlan_limit_flush_if_changed(struct dpif *dpif)
{
    static struct simap limits = SIMAP_INITIALIZER(&limits);   /* By type of datapath. */
    const char *type = dpif_normalize_type(dpif_type(dpif));
    unsigned int before = simap_get(&limits, type);

    if (before == flow_vlan_limit) {
        return;
    }
    simap_put(&limits, type, flow_vlan_limit);
    if (before) {
        VLOG_INFO("%s: OVS parses %d VLAN tags instead of %u, all megaflows begin anew", dpif_name(dpif),
                  flow_vlan_limit, before);
        dpif_flow_flush(dpif);
    }
}
