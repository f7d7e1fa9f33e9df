/* Puts the netdev class, the flow-API provider and the commands into ovs-vswitchd.
 *
 * The daemon is linked with --wrap=unixctl_server_create: main() calls that once, after it has forked into the
 * background and before it looks at the database. */
#include <config.h>

#include <sys/prctl.h>

#include "netdev-offload-provider.h"
#include "netdev-provider.h"
#include "openvswitch/vlog.h"
#include "shim/commands.h"
#include "shim/flow_api.h"
#include "shim/netdev_dr.h"
#include "shim/port_del.h"
#include "unixctl.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(dr);

int __real_unixctl_server_create(const char *path, struct unixctl_server **);
int __wrap_unixctl_server_create(const char *path, struct unixctl_server **);

static void
register_all(void)
{
    int error = netdev_register_provider(&netdev_dr_class);

    if (!error) {
        error = netdev_register_flow_api_provider(&flow_api_dr);
    }
    if (error) {
        VLOG_ERR("cannot register interfaces of type=dr: %s", ovs_strerror(error));
        return;
    }
    commands_register();
    /* Not INFO: OVS's own tests take an INFO line of an unknown module for a failure. */
    VLOG_DBG("registered interfaces of type=dr");
}

int
__wrap_unixctl_server_create(const char *path, struct unixctl_server **server)
{
    /* ovs-ctl finds a running daemon by the process name, which the kernel made of the program's file. */
    prctl(PR_SET_NAME, program_name);
    port_del_init();
    register_all();
    return __real_unixctl_server_create(path, server);
}
