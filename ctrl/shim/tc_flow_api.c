/* See tc_flow_api.h. */
#include <config.h>

#include "shim/tc_flow_api.h"

#include <errno.h>

#include "netdev-offload-provider.h"
#include "shim/netdev_dr.h"
#include "sset.h"

static int
init_unless_dr(struct netdev *netdev)
{
    return is_netdev_dr(netdev) ? EOPNOTSUPP : netdev_offload_tc.init_flow_api(netdev);
}

/* OVS registers its own providers when it is first asked for something of interfaces. */
static void
have_providers_registered(void)
{
    struct sset types = SSET_INITIALIZER(&types);

    netdev_enumerate_types(&types);
    sset_destroy(&types);
}

int
tc_flow_api_keep_from_dr_ports(void)
{
    static struct netdev_flow_api tc;
    int error;

    have_providers_registered();
    error = netdev_unregister_flow_api_provider(netdev_offload_tc.type);
    if (error) {
        return error;
    }
    tc = netdev_offload_tc;
    tc.init_flow_api = init_unless_dr;
    return netdev_register_flow_api_provider(&tc);
}
