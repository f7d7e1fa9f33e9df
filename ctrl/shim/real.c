/* Finds OVS's own functions. See real.h. */
#include <config.h>

#include "shim/real.h"

#include <dlfcn.h>

#include "dpif-netdev-private-dpcls.h"
#include "dpif-netdev-private-dpif.h"
#include "flow.h"
#include "id-fpool.h"
#include "mpsc-queue.h"
#include "netdev.h"
#include "odp-util.h"
#include "ofproto/ofproto.h"
#include "ovs-rcu.h"
#include "timeval.h"
#include "util.h"
#include "vswitch-idl.h"

static void *
next_definition(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);

    ovs_assert(function);
    return function;
}

/* OVS's function of this name, looked up once. Threads that look it up at the same time find the same. */
#define REAL(NAME)                                                      \
    ({                                                                  \
        static typeof(&NAME) found;                                     \
        typeof(&NAME) function = __atomic_load_n(&found, __ATOMIC_RELAXED); \
                                                                        \
        if (OVS_UNLIKELY(!function)) {                                  \
            function = next_definition(#NAME);                          \
            __atomic_store_n(&found, function, __ATOMIC_RELAXED);       \
        }                                                               \
        function;                                                       \
    })

int
real_dpif_create(const char *name, const char *type, struct dpif **dpif)
{
    return REAL(dpif_create)(name, type, dpif);
}

void
real_dpif_operate(struct dpif *dpif, struct dpif_op **ops, size_t n_ops, enum dpif_offload_type offload_type)
{
    REAL(dpif_operate)(dpif, ops, n_ops, offload_type);
}

bool
real_dpif_run(struct dpif *dpif)
{
    return REAL(dpif_run)(dpif);
}

void
real_dpif_wait(struct dpif *dpif)
{
    REAL(dpif_wait)(dpif);
}

void
real_dpif_close(struct dpif *dpif)
{
    REAL(dpif_close)(dpif);
}

int
real_dpif_set_config(struct dpif *dpif, const struct smap *config)
{
    return REAL(dpif_set_config)(dpif, config);
}

int
real_dpif_port_add(struct dpif *dpif, struct netdev *netdev, odp_port_t *port_no)
{
    return REAL(dpif_port_add)(dpif, netdev, port_no);
}

int
real_dpif_port_set_config(struct dpif *dpif, odp_port_t port_no, const struct smap *config)
{
    return REAL(dpif_port_set_config)(dpif, port_no, config);
}

int
real_dpif_port_del(struct dpif *dpif, odp_port_t port_no, bool local_delete)
{
    return REAL(dpif_port_del)(dpif, port_no, local_delete);
}

int
real_dpif_meter_set(struct dpif *dpif, ofproto_meter_id id, struct ofputil_meter_config *config)
{
    return REAL(dpif_meter_set)(dpif, id, config);
}

int
real_dpif_meter_get(const struct dpif *dpif, ofproto_meter_id id, struct ofputil_meter_stats *stats, uint16_t n_bands)
{
    return REAL(dpif_meter_get)(dpif, id, stats, n_bands);
}

int
real_dpif_meter_del(struct dpif *dpif, ofproto_meter_id id, struct ofputil_meter_stats *stats, uint16_t n_bands)
{
    return REAL(dpif_meter_del)(dpif, id, stats, n_bands);
}

struct dpif_flow_dump *
real_dpif_flow_dump_create(const struct dpif *dpif, bool terse, struct dpif_flow_dump_types *types)
{
    return REAL(dpif_flow_dump_create)(dpif, terse, types);
}

int
real_dpif_flow_dump_next(struct dpif_flow_dump_thread *thread, struct dpif_flow *flows, int max_flows)
{
    return REAL(dpif_flow_dump_next)(thread, flows, max_flows);
}

int
real_dpif_flow_dump_destroy(struct dpif_flow_dump *dump)
{
    return REAL(dpif_flow_dump_destroy)(dump);
}

void
real_ofproto_port_unregister(struct ofproto *ofproto, ofp_port_t ofp_port)
{
    REAL(ofproto_port_unregister)(ofproto, ofp_port);
}

bool
real_netdev_is_pmd(const struct netdev *netdev)
{
    return REAL(netdev_is_pmd)(netdev);
}

int32_t
real_dp_netdev_impl_set_default_by_name(const char *name)
{
    return REAL(dp_netdev_impl_set_default_by_name)(name);
}

bool
real_dp_netdev_simple_match_enabled(const struct dp_netdev_pmd_thread *pmd, odp_port_t in_port)
{
    return REAL(dp_netdev_simple_match_enabled)(pmd, in_port);
}

bool
real_dpcls_lookup(struct dpcls *classifier, const struct netdev_flow_key *keys[], struct dpcls_rule **rules, size_t n,
                  int *n_lookups)
{
    return REAL(dpcls_lookup)(classifier, keys, rules, n, n_lookups);
}

void
real_flow_wc_map(const struct flow *flow, struct flowmap *map)
{
    REAL(flow_wc_map)(flow, map);
}

void
real_odp_flow_key_hash(const void *key, size_t size, ovs_u128 *hash)
{
    REAL(odp_flow_key_hash)(key, size, hash);
}

void
real_id_fpool_free_id(struct id_fpool *pool, unsigned int user, uint32_t id)
{
    REAL(id_fpool_free_id)(pool, user, id);
}

struct mpsc_queue_node *
real_mpsc_queue_tail(struct mpsc_queue *queue)
{
    return REAL(mpsc_queue_tail)(queue);
}

void
real_mpsc_queue_insert(struct mpsc_queue *queue, struct mpsc_queue_node *node)
{
    REAL(mpsc_queue_insert)(queue, node);
}

void
real_xnanosleep(uint64_t nanoseconds)
{
    REAL(xnanosleep)(nanoseconds);
}

const struct ovsrec_open_vswitch *
real_ovsrec_open_vswitch_first(const struct ovsdb_idl *idl)
{
    return REAL(ovsrec_open_vswitch_first)(idl);
}

int
real_time_poll(struct pollfd *pollfds, int n, long long int timeout_when, int *elapsed)
{
    return REAL(time_poll)(pollfds, n, NULL, timeout_when, elapsed);
}

void
real_ovsrcu_exit(void)
{
    REAL(ovsrcu_exit)();
}
