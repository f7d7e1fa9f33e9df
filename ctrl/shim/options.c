/* See options.h. */
#include <config.h>

#include "shim/options.h"

#include <string.h>

#include "ctrl/tunnel_port.h"
#include "netdev-provider.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/shash.h"
#include "openvswitch/thread.h"
#include "shim/netdev_dr.h"
#include "smap.h"
#include "util.h"

static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;

/* Each is exact, or what it is by default. */
enum { SOURCE_PORT, FLAGS, N_OPTIONS };
static struct option {
    const char *name, *by_default;
    char *wrong;                /* A value that is neither; NULL: it is right. */
} options[N_OPTIONS] OVS_GUARDED_BY(mutex) = {
    [SOURCE_PORT] = {"dr-tunnel-source-port", "flow", NULL},
    [FLAGS] = {"dr-tunnel-flags", "ignore", NULL},
};

char *
options_problem(void)
{
    struct ds problem = DS_EMPTY_INITIALIZER;

    ovs_mutex_lock(&mutex);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (options[i].wrong) {
            ds_put_format(&problem, "%sother_config:%s=%s is neither %s nor exact: taken as exact",
                          problem.length ? "; " : "", options[i].name, options[i].wrong, options[i].by_default);
        }
    }
    ovs_mutex_unlock(&mutex);
    return problem.length ? ds_steal_cstr(&problem) : NULL;
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

/* Whether it is exact. `*differs` becomes true if there is something else to tell of it than before. */
static bool
take(struct option *option, const struct smap *other_config, bool *differs)
{
    const char *value = smap_get_def(other_config, option->name, option->by_default);
    bool is_exact = strcmp(value, option->by_default);
    const char *wrong = is_exact && strcmp(value, "exact") ? value : NULL;

    if (!nullable_string_is_equal(option->wrong, wrong)) {
        free(option->wrong);
        option->wrong = nullable_xstrdup(wrong);
        *differs = true;
    }
    return is_exact;
}

void
options_set(const struct smap *other_config)
{
    struct ovsdr_choices choices;
    bool differs = false;

    ovs_mutex_lock(&mutex);
    choices.exact_tunnel_source_port = take(&options[SOURCE_PORT], other_config, &differs);
    choices.exact_tunnel_flags = take(&options[FLAGS], other_config, &differs);
    ovs_mutex_unlock(&mutex);
    ovsdr_choose(&choices);
    if (differs) {
        tell_ports();
    }
}
