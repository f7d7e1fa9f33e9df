/* The functions of OVS that interpose.c stands in front of, as OVS has them.
 *
 * Each is OVS's function with real_ before its name; the contract is that of OVS's header. The shim's files call these
 * where they must not come back to themselves.
 *
 * Threads: any. Errors: the process ends if libopenvswitch lacks one of them, as it does for any missing symbol.
 */
#ifndef CTRL_SHIM_REAL_H
#define CTRL_SHIM_REAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dpif.h"
#include "openvswitch/types.h"

struct dp_netdev_pmd_thread;
struct dpcls;
struct dpcls_rule;
struct flow;
struct flowmap;
struct id_fpool;
struct mpsc_queue;
struct mpsc_queue_node;
struct netdev;
struct netdev_flow_key;
struct ofproto;
struct ovsdb_idl;
struct ovsrec_open_vswitch;
struct pollfd;
struct smap;

int real_dpif_create(const char *name, const char *type, struct dpif **);
void real_dpif_operate(struct dpif *, struct dpif_op **, size_t n_ops, enum dpif_offload_type);
bool real_dpif_run(struct dpif *);
void real_dpif_wait(struct dpif *);
void real_dpif_close(struct dpif *);
int real_dpif_set_config(struct dpif *, const struct smap *);
int real_dpif_port_add(struct dpif *, struct netdev *, odp_port_t *);
int real_dpif_port_del(struct dpif *, odp_port_t, bool local_delete);
int real_dpif_port_set_config(struct dpif *, odp_port_t, const struct smap *);

struct dpif_flow_dump *real_dpif_flow_dump_create(const struct dpif *, bool terse, struct dpif_flow_dump_types *);
int real_dpif_flow_dump_next(struct dpif_flow_dump_thread *, struct dpif_flow *, int max_flows);
int real_dpif_flow_dump_destroy(struct dpif_flow_dump *);

int real_dpif_meter_set(struct dpif *, ofproto_meter_id, struct ofputil_meter_config *);
int real_dpif_meter_get(const struct dpif *, ofproto_meter_id, struct ofputil_meter_stats *, uint16_t n_bands);
int real_dpif_meter_del(struct dpif *, ofproto_meter_id, struct ofputil_meter_stats *, uint16_t n_bands);

void real_ofproto_port_unregister(struct ofproto *, ofp_port_t);

bool real_netdev_is_pmd(const struct netdev *);
int32_t real_dp_netdev_impl_set_default_by_name(const char *name);
bool real_dp_netdev_simple_match_enabled(const struct dp_netdev_pmd_thread *, odp_port_t in_port);

bool real_dpcls_lookup(struct dpcls *, const struct netdev_flow_key *keys[], struct dpcls_rule **, size_t n,
                       int *n_lookups);

void real_flow_wc_map(const struct flow *, struct flowmap *);
void real_odp_flow_key_hash(const void *key, size_t size, ovs_u128 *hash);

void real_id_fpool_free_id(struct id_fpool *, unsigned int user, uint32_t id);

struct mpsc_queue_node *real_mpsc_queue_tail(struct mpsc_queue *);
void real_mpsc_queue_insert(struct mpsc_queue *, struct mpsc_queue_node *);
void real_xnanosleep(uint64_t nanoseconds);

int real_time_poll(struct pollfd *, int n, long long int timeout_when, int *elapsed);

const struct ovsrec_open_vswitch *real_ovsrec_open_vswitch_first(const struct ovsdb_idl *);

void real_ovsrcu_exit(void);

#endif
