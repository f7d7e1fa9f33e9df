/* See flow_watch.h. */
#include <config.h>

#include "shim/flow_watch.h"

#include "netdev.h"

static __thread struct flow_watch *watch;

void
flow_watch_begin(struct flow_watch *begun)
{
    *begun = (struct flow_watch) {.netdev = NULL};
    watch = begun;
}

void
flow_watch_end(struct flow_watch *ended)
{
    watch = NULL;
    netdev_close(ended->netdev);
    ended->netdev = NULL;
}

bool
flow_watch_active(void)
{
    return watch != NULL;
}

void
flow_watch_note(struct netdev *netdev, const ovs_u128 *mega_ufid, const struct dpif_flow_stats *stats)
{
    if (watch) {
        if (!watch->netdev) {
            watch->netdev = netdev_ref(netdev);
        }
        watch->mega_ufid = *mega_ufid;
        watch->stats = *stats;
    }
}
