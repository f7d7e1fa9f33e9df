/* The functions of OVS that the daemon takes over.
 *
 * These definitions stand in front of libopenvswitch's in every call from one library to another, and in those within
 * libopenvswitch that go through its PLT. Each forwards to the file of its concern, or to OVS's own (real.h). Nothing
 * else of the shim calls what is defined here: the files of the concerns call OVS's own.
 */
#include <config.h>

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "ctrl/flow.h"
#include "ctrl/port.h"
#include "dpif.h"
#include "dpif-netdev-private-dpcls.h"
#include "dpif-netdev-private-dpif.h"
#include "flow.h"
#include "id-fpool.h"
#include "mpsc-queue.h"
#include "netdev-offload.h"
#include "odp-util.h"
#include "ofproto/ofproto.h"
#include "ovs-rcu.h"
#include "shim/adopt.h"
#include "shim/classifier.h"
#include "shim/copies.h"
#include "shim/deletion.h"
#include "shim/flow_mark.h"
#include "shim/flow_watch.h"
#include "shim/gate.h"
#include "shim/host_port.h"
#include "shim/mega_ufid.h"
#include "shim/meter.h"
#include "shim/netdev_dr.h"
#include "shim/netdev_drmirror.h"
#include "shim/offload_sleep.h"
#include "shim/one_datapath.h"
#include "shim/options.h"
#include "shim/packet_poll.h"
#include "shim/port_del.h"
#include "shim/real.h"
#include "shim/ssl_row.h"
#include "shim/tunnel_port.h"
#include "shim/vlan_limit.h"
#include "timeval.h"
#include "util.h"
#include "vswitch-idl.h"

/* ThreadSanitizer does not see the atomics of OVS, which is not built with it: what one thread puts into a queue and
 * another takes out of it would be a race. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define HAPPENS_BEFORE(OBJECT) __tsan_release(OBJECT)
#define HAPPENS_AFTER(OBJECT) __tsan_acquire(OBJECT)
#else
#define HAPPENS_BEFORE(OBJECT) ((void) 0)
#define HAPPENS_AFTER(OBJECT) ((void) 0)
#endif

/* Within libopenvswitch. */
int
dpif_create(const char *name, const char *type, struct dpif **dpif)
{
    return one_datapath_create(name, type, dpif);
}

void
dpif_operate(struct dpif *dpif, struct dpif_op **ops, size_t n_ops, enum dpif_offload_type offload_type)
{
    if (netdev_is_flow_api_enabled() && !flow_watch_active()) {
        deletion_operate(dpif, ops, n_ops, offload_type);
    } else {
        real_dpif_operate(dpif, ops, n_ops, offload_type);
    }
}

/* The main thread receives and classifies packets in there. */
bool
dpif_run(struct dpif *dpif)
{
    bool result;

    if (!netdev_is_flow_api_enabled()) {
        return real_dpif_run(dpif);
    }
    vlan_limit_flush_if_changed(dpif);
    gate_close();
    result = packet_poll_run(dpif);
    /* Last, so that no packet waits for these. */
    adopt_flows(dpif);
    gate_open();
    meter_run(dpif);
    copies_run(dpif);
    return result;
}

void
dpif_wait(struct dpif *dpif)
{
    /* No packet of a new limit among megaflows of the old one. */
    if (netdev_is_flow_api_enabled() && !vlan_limit_has_changed(dpif)) {
        packet_poll_wait(dpif);
    } else {
        real_dpif_wait(dpif);
    }
}

/* When the last bridge of a type goes, too. */
void
dpif_close(struct dpif *dpif)
{
    copies_close(dpif);
    packet_poll_forget(dpif);
    real_dpif_close(dpif);
}

/* other_config of the Open_vSwitch table, whenever vswitchd configures a datapath. */
int
dpif_set_config(struct dpif *dpif, const struct smap *config)
{
    options_set(config);
    return real_dpif_set_config(dpif, config);
}

/* While the datapath's ports are being changed, dpif-netdev asks no flow_get(): deletions wait. */
int
dpif_port_add(struct dpif *dpif, struct netdev *netdev, odp_port_t *port_nop)
{
    odp_port_t port_no = port_nop ? *port_nop : ODPP_NONE;
    int error;

    gate_close();
    error = real_dpif_port_add(dpif, netdev, &port_no);
    if (!error) {
        tunnel_port_added(dpif, netdev, port_no);
        host_port_added(dpif, netdev, port_no);
        mirror_port_added(dpif, netdev, port_no);
    }
    gate_open();
    if (port_nop) {
        *port_nop = port_no;
    }
    return error;
}

int
dpif_port_set_config(struct dpif *dpif, odp_port_t port_no, const struct smap *config)
{
    int error;

    gate_close();
    error = real_dpif_port_set_config(dpif, port_no, config);
    gate_open();
    return error;
}

/* The gate stays open until the port's flows are gone. */
int
dpif_port_del(struct dpif *dpif, odp_port_t port_no, bool local_delete)
{
    int error;

    offload_sleep_release();    /* It waits for the offload threads. */
    if (!local_delete) {
        port_del_flows_of_port_go(dpif, port_no);
    }
    gate_close();
    host_port_goes(dpif, port_no);
    error = real_dpif_port_del(dpif, port_no, local_delete);
    if (!error) {
        tunnel_port_deleted(dpif, port_no);
        mirror_port_deleted(dpif, port_no);
    }
    if (error || local_delete) {
        host_port_restore(dpif, port_no);
    }
    gate_open();
    return error;
}

int
dpif_meter_set(struct dpif *dpif, ofproto_meter_id meter_id, struct ofputil_meter_config *config)
{
    return meter_set(dpif, meter_id, config);
}

int
dpif_meter_get(const struct dpif *dpif, ofproto_meter_id meter_id, struct ofputil_meter_stats *stats, uint16_t n_bands)
{
    return meter_get(dpif, meter_id, stats, n_bands);
}

int
dpif_meter_del(struct dpif *dpif, ofproto_meter_id meter_id, struct ofputil_meter_stats *stats, uint16_t n_bands)
{
    return meter_del(dpif, meter_id, stats, n_bands);
}

/* vswitchd is about to let go of the interface; ofproto still knows the port. */
void
ofproto_port_unregister(struct ofproto *ofproto, ofp_port_t ofp_port)
{
    port_del_flows_of_tunnel_go(ofproto, ofp_port);
    real_ofproto_port_unregister(ofproto, ofp_port);
}

/* Within libopenvswitch. OVS asks this of a class; whether PMD threads poll a dr port is the port's affair. */
bool
netdev_is_pmd(const struct netdev *netdev)
{
    return is_netdev_dr(netdev) ? netdev_dr_is_pmd(netdev) : real_netdev_is_pmd(netdev);
}

struct dpif_flow_dump *
dpif_flow_dump_create(const struct dpif *dpif, bool terse, struct dpif_flow_dump_types *types)
{
    return port_del_flow_dump_create(dpif, terse, types);
}

int
dpif_flow_dump_next(struct dpif_flow_dump_thread *thread, struct dpif_flow *flows, int max_flows)
{
    return port_del_flow_dump_next(thread, flows, max_flows);
}

int
dpif_flow_dump_destroy(struct dpif_flow_dump *dump)
{
    return port_del_flow_dump_destroy(dump);
}

/* Within libopenvswitch. A simple match does not look at the recirc_id and the in_port that dr_hw_miss_packet_recover()
 * restores: it would take the packet through the megaflows that it has been through already. */
bool
dp_netdev_simple_match_enabled(const struct dp_netdev_pmd_thread *pmd, odp_port_t in_port)
{
    return !ovsdr_recirculates() && real_dp_netdev_simple_match_enabled(pmd, in_port);
}

/* Within libopenvswitch. */
bool
dpcls_lookup(struct dpcls *classifier, const struct netdev_flow_key *keys[], struct dpcls_rule **rules,
             const size_t n, int *n_lookups)
{
    return classifier_find_own(classifier, keys, rules, n, n_lookups);
}

/* Within libopenvswitch, for the command dpif-netdev/dpif-impl-set. The AVX512 implementation can take packets by
 * parsers that do not look at the recirc_id that dr_hw_miss_packet_recover() restores. */
int32_t
dp_netdev_impl_set_default_by_name(const char *name)
{
    if (netdev_is_flow_api_enabled() && !strcmp(name, "dpif_avx512")) {
        return -ENOTSUP;
    }
    return real_dp_netdev_impl_set_default_by_name(name);
}

/* Within libopenvswitch: its only caller is dpif-netdev, for the match of a megaflow that it adds. */
void
flow_wc_map(const struct flow *flow, struct flowmap *map)
{
    real_flow_wc_map(flow, map);
    mega_ufid_note_match(flow, map);
}

/* Within libopenvswitch too. */
void
odp_flow_key_hash(const void *key, size_t size, ovs_u128 *hash)
{
    mega_ufid_hash(key, size, hash);
}

/* Within libopenvswitch: its only caller is dpif-netdev, for the mark of a megaflow that it has deleted. */
void
id_fpool_free_id(struct id_fpool *pool, unsigned int user, uint32_t id)
{
    flow_mark_free(pool, user, id);
}

/* Within libopenvswitch: dpif-netdev's offload threads look into their queues, and sleep while they are empty. */
struct mpsc_queue_node *
mpsc_queue_tail(struct mpsc_queue *queue)
{
    struct mpsc_queue_node *node;

    offload_sleep_look(queue);
    node = real_mpsc_queue_tail(queue);
    HAPPENS_AFTER(queue);
    return node;
}

void
xnanosleep(uint64_t nanoseconds)
{
    offload_sleep(nanoseconds);
}

/* vswitchd begins each trip through its main loop with this row. */
const struct ovsrec_open_vswitch *
ovsrec_open_vswitch_first(const struct ovsdb_idl *idl)
{
    const struct ovsrec_open_vswitch *row = real_ovsrec_open_vswitch_first(idl);

    ssl_row_look(idl, row);
    return row;
}

/* Within libopenvswitch: poll_block() sleeps in there. */
int
time_poll(struct pollfd *pollfds, int n, HANDLE *handles OVS_UNUSED, long long int timeout_when, int *elapsed)
{
    return packet_poll(pollfds, n, timeout_when, elapsed);
}

/* Whoever has something for an offload thread. */
void
mpsc_queue_insert(struct mpsc_queue *queue, struct mpsc_queue_node *node)
{
    HAPPENS_BEFORE(queue);
    real_mpsc_queue_insert(queue, node);
    offload_sleep_wake(queue);
}

/* vswitchd's last call but one. Ports that were closed are gone when OVS's own returns; what may still have their
 * devices ends behind it, for the process must not end while a device is being closed. Nor may a signal end it in
 * between, which init scripts send two seconds behind the command "exit". */
void
ovsrcu_exit(void)
{
    signal(SIGTERM, SIG_IGN);
    real_ovsrcu_exit();
    ovsdr_missing_vports_forget();
    netdev_drmirror_finish();
    copies_stop();
}
