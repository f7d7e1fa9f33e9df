/* See options.h. */
#include <config.h>

#include "shim/options.h"

#include <string.h>

#include "netdev-provider.h"
#include "openvswitch/shash.h"
#include "openvswitch/thread.h"
#include "shim/adopt.h"
#include "shim/flow_api.h"
#include "shim/netdev_dr.h"
#include "smap.h"
#include "util.h"

#define SOURCE_PORT "dr-tunnel-source-port"

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static char *wrong_source_port OVS_GUARDED_BY(mutex);   /* NULL: it is right. */

char *
options_problem(void)
{
    char *problem = NULL;

    ovs_mutex_lock(&mutex);
    if (wrong_source_port) {
        problem = xasprintf("other_config:" SOURCE_PORT "=%s is neither flow nor exact: taken as exact",
                            wrong_source_port);
    }
    ovs_mutex_unlock(&mutex);
    return problem;
}

/* Status of each port is read again, and with it the problem. */
static void
tell_ports(void)
{
    struct shash devices = SHASH_INITIALIZER(&devices);
    struct shash_node *node;

    netdev_get_devices(&netdev_dr_class, &devices);
    SHASH_FOR_EACH (node, &devices) {
        netdev_change_seq_changed(node->data);
        netdev_close(node->data);
    }
    shash_destroy(&devices);
}

void
options_set(const struct smap *other_config)
{
    const char *source_port = smap_get_def(other_config, SOURCE_PORT, "flow");
    bool want_exact = strcmp(source_port, "flow");
    bool is_wrong = want_exact && strcmp(source_port, "exact");
    bool differs;

    ovs_mutex_lock(&mutex);
    differs = is_wrong ? !nullable_string_is_equal(wrong_source_port, source_port) : wrong_source_port != NULL;
    if (differs) {
        free(wrong_source_port);
        wrong_source_port = is_wrong ? xstrdup(source_port) : NULL;
    }
    ovs_mutex_unlock(&mutex);
    if (flow_api_set_exact_source_port(want_exact)) {
        adopt_flows_again();
    }
    if (differs) {
        tell_ports();
    }
}
