/* See vlan_limit.h. */
#include <config.h>

#include "shim/vlan_limit.h"

#include "dpif-netdev.h"
#include "dpif.h"
#include "flow.h"
#include "ofproto/ofproto-dpif-upcall.h"
#include "ofproto/ofproto-dpif.h"
#include "openvswitch/shash.h"
#include "openvswitch/vlog.h"
#include "simap.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(vlan_limit);

/* Not dpif_flow_flush(): the revalidators would go on knowing the flows, and take none for a packet that finds its own
 * among them. */
static void
flush(const struct dpif *dpif)
{
    struct shash_node *node;

    SHASH_FOR_EACH (node, &all_dpif_backers) {
        const struct dpif_backer *backer = node->data;

        if (backer->dpif == dpif) {
            udpif_flush(backer->udpif);
        }
    }
}

static struct simap limits = SIMAP_INITIALIZER(&limits);   /* By type of datapath. */

bool
vlan_limit_has_changed(const struct dpif *dpif)
{
    return dpif_is_netdev(dpif) && simap_get(&limits, dpif_normalize_type(dpif_type(dpif))) != flow_vlan_limit;
}

void
vlan_limit_flush_if_changed(struct dpif *dpif)
{
    const char *type = dpif_normalize_type(dpif_type(dpif));
    unsigned int before = simap_get(&limits, type);

    if (!vlan_limit_has_changed(dpif)) {
        return;
    }
    simap_put(&limits, type, flow_vlan_limit);
    if (before) {
        VLOG_INFO("%s: OVS parses %d VLAN tags instead of %u, all megaflows begin anew", dpif_name(dpif),
                  flow_vlan_limit, before);
        flush(dpif);
    }
}
