/* Puts the netdev class, the flow-API provider and the commands into ovs-vswitchd.
 *
 * The daemon is linked with --wrap=unixctl_server_create: main() calls that once, after it has forked into the
 * background and before it looks at the database. */
#include <config.h>

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "netdev-offload-provider.h"
#include "netdev-provider.h"
#include "openvswitch/vlog.h"
#include "shim/commands.h"
#include "shim/flow_api.h"
#include "shim/flow_mark.h"
#include "shim/netdev_dr.h"
#include "shim/netdev_drmirror.h"
#include "shim/port_del.h"
#include "shim/tc_flow_api.h"
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
        error = netdev_register_provider(&netdev_drmirror_class);
    }
    if (!error) {
        error = tc_flow_api_keep_from_dr_ports();
    }
    if (!error) {
        error = netdev_register_flow_api_provider(&flow_api_dr);
    }
    if (error) {
        VLOG_ERR("cannot register interfaces of type=dr and type=drmirror: %s", ovs_strerror(error));
        return;
    }
    flow_mark_init();
    netdev_drmirror_init();
    commands_register();
    /* Not INFO: OVS's own tests take an INFO line of an unknown module for a failure. */
    VLOG_DBG("registered interfaces of type=dr");
}

/* Linux's struct sched_attr, of which the C library knows nothing (sched_setattr(2)). */
struct scheduling_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;     /* Nanoseconds. */
};

/* The main thread takes packets from the slow path. When it wakes for one it must not wait until whoever computes on
 * its CPU has used up a slice of 3 ms or more. Since Linux 6.12 a thread that asks for short slices may interrupt one
 * with longer ones; older kernels ignore the wish. */
static void
ask_for_short_slices(void)
{
    struct scheduling_attributes attributes;

    if (!syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) && attributes.policy == SCHED_OTHER) {
        attributes.runtime = 100000;
        syscall(SYS_sched_setattr, 0, &attributes, 0);
    }
}

int
__wrap_unixctl_server_create(const char *path, struct unixctl_server **server)
{
    /* ovs-ctl finds a running daemon by the process name, which the kernel made of the program's file. */
    prctl(PR_SET_NAME, program_name);
    ask_for_short_slices();
    port_del_init();
    register_all();
    return __real_unixctl_server_create(path, server);
}
