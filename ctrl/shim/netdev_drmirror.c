/* See netdev_drmirror.h. */
#include <config.h>

#include "shim/netdev_drmirror.h"

#include <errno.h>

#include "coverage.h"
#include "ctrl/mirror.h"
#include "dp-packet.h"
#include "dpif.h"
#include "fatal-signal.h"
#include "if-notifier.h"
#include "netdev-vport.h"
#include "openvswitch/list.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/thread.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "shim/finish.h"
#include "shim/tunnel_port.h"
#include "smap.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(netdev_drmirror);

COVERAGE_DEFINE(dr_mirror_unfinished);  /* Packets whose checksum could not be made. */

/* What a process that ends gives its mirrors: more than one that was closed a moment ago takes. */
#define FINISH_MS 2500

struct netdev_drmirror {
    struct netdev up;
    struct ovs_list node;               /* In all of the class. */
    struct ovsdr_mirror *mirror;        /* As long as the netdev. */
    struct eth_addr mac;
};

static struct ovs_mutex list_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list all_netdevs OVS_GUARDED_BY(list_mutex) = OVS_LIST_INITIALIZER(&all_netdevs);

static struct netdev_drmirror *
cast(const struct netdev *netdev)
{
    return CONTAINER_OF(netdev, struct netdev_drmirror, up);
}

static void
log_warnings(void)
{
    char *warning;

    while ((warning = ovsdr_mirror_take_warning())) {
        VLOG_WARN("%s", warning);
        free(warning);
    }
}

void
netdev_drmirror_finish(void)
{
    ovsdr_mirrors_finish(FINISH_MS);
    log_warnings();
}

static void
finish_all(void *aux OVS_UNUSED)
{
    netdev_drmirror_finish();
}

void
netdev_drmirror_init(void)
{
    fatal_signal_add_hook(finish_all, NULL, NULL, true);
}

static struct netdev *
drmirror_alloc(void)
{
    struct netdev_drmirror *dev = xzalloc(sizeof *dev);

    return &dev->up;
}

static int
drmirror_construct(struct netdev *netdev)
{
    struct netdev_drmirror *dev = cast(netdev);

    dev->mirror = ovsdr_mirror_new(netdev_get_name(netdev));
    if (!dev->mirror) {
        return ENOMEM;
    }
    netdev->ol_flags |= finished_features();
    eth_addr_random(&dev->mac);         /* A local one: no bridge takes it for its own. */
    ovs_mutex_lock(&list_mutex);
    ovs_list_push_back(&all_netdevs, &dev->node);
    ovs_mutex_unlock(&list_mutex);
    return 0;
}

static void
drmirror_destruct(struct netdev *netdev)
{
    struct netdev_drmirror *dev = cast(netdev);

    ovs_mutex_lock(&list_mutex);
    ovs_list_remove(&dev->node);
    ovs_mutex_unlock(&list_mutex);
    ovsdr_mirror_close(dev->mirror);
}

static void
drmirror_dealloc(struct netdev *netdev)
{
    free(cast(netdev));
}

static void
drmirror_run(const struct netdev_class *class OVS_UNUSED)
{
    struct netdev_drmirror *dev;

    if (!ovsdr_mirror_changes_take()) {
        return;
    }
    log_warnings();
    ovs_mutex_lock(&list_mutex);
    LIST_FOR_EACH (dev, node, &all_netdevs) {
        netdev_change_seq_changed(&dev->up);
    }
    ovs_mutex_unlock(&list_mutex);
    if (ovsdr_mirror_device_came()) {
        if_notifier_manual_report();
    }
}

static void
drmirror_wait(const struct netdev_class *class OVS_UNUSED)
{
    int fd = ovsdr_mirror_changes_fd();

    if (fd >= 0) {
        poll_fd_wait(fd, POLLIN);
    }
}

static int
drmirror_set_config(struct netdev *netdev, const struct smap *args, char **errp)
{
    struct ovsdr_mirror_option *options = xmalloc(MAX(1, smap_count(args)) * sizeof *options);
    const struct smap_node *node;
    char *message = NULL;
    size_t n = 0;
    int error;

    SMAP_FOR_EACH (node, args) {
        options[n++] = (struct ovsdr_mirror_option) {.key = node->key, .value = node->value};
    }
    error = ovsdr_mirror_configure(cast(netdev)->mirror, options, n, &message);
    if (error) {
        VLOG_WARN_BUF(errp, "%s: %s", netdev_get_name(netdev), message ? message : ovs_strerror(error));
    } else {
        netdev_change_seq_changed(netdev);
    }
    free(message);
    free(options);
    return error;
}

static void
add_to_smap(void *smap, const char *key, const char *value)
{
    smap_add(smap, key, value);
}

static int
drmirror_get_config(const struct netdev *netdev, struct smap *args)
{
    ovsdr_mirror_options(cast(netdev)->mirror, add_to_smap, args);
    return 0;
}

static int
drmirror_get_status(const struct netdev *netdev, struct smap *status)
{
    ovsdr_mirror_status(cast(netdev)->mirror, add_to_smap, status);
    return 0;
}

/* With userspace-tso-enable a packet that is to be sent as several stands in the file as one, as it was when the bridge
 * saw it. Its checksums are made. */
static int
drmirror_send(struct netdev *netdev, int qid OVS_UNUSED, struct dp_packet_batch *batch, bool concurrent_txq OVS_UNUSED)
{
    struct ovsdr_mirror_frame frames[NETDEV_MAX_BURST];
    struct dp_packet *packet;
    size_t n = 0;

    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        if (!dp_packet_is_eth(packet)) {
            continue;
        }
        if (!finish_checksum(packet)) {
            COVERAGE_INC(dr_mirror_unfinished);
        }
        frames[n++] = (struct ovsdr_mirror_frame) {
            .data = dp_packet_data(packet),
            .size = dp_packet_size(packet),
            .in_port = odp_to_u32(packet->md.in_port.odp_port),
        };
    }
    ovsdr_mirror_send(cast(netdev)->mirror, frames, n);
    dp_packet_delete_batch(batch, true);
    return 0;
}

/* It always takes what there is. */
static void
drmirror_send_wait(struct netdev *netdev OVS_UNUSED, int qid OVS_UNUSED)
{
    poll_immediate_wake();
}

static int
drmirror_get_etheraddr(const struct netdev *netdev, struct eth_addr *mac)
{
    *mac = cast(netdev)->mac;
    return 0;
}

static int
drmirror_get_carrier(const struct netdev *netdev OVS_UNUSED, bool *carrier)
{
    *carrier = true;
    return 0;
}

static int
drmirror_get_stats(const struct netdev *netdev, struct netdev_stats *stats)
{
    struct ovsdr_mirror_stats from;

    ovsdr_mirror_get_stats(cast(netdev)->mirror, &from);
    memset(stats, 0xff, sizeof *stats);     /* What is not known. */
    stats->rx_packets = stats->rx_bytes = stats->rx_errors = stats->rx_dropped = 0;
    stats->tx_packets = from.taken;
    stats->tx_bytes = from.taken_bytes;
    stats->tx_dropped = from.dropped + from.lost;
    stats->tx_errors = 0;
    return 0;
}

/* As many as ovsdr_mirror_counters() may have. */
enum { MAX_COUNTERS = 32 };

static void
add_to_counters(void *aux, const char *key, uint64_t value)
{
    struct netdev_custom_stats *stats = aux;

    if (stats->size < MAX_COUNTERS) {
        struct netdev_custom_counter *counter = &stats->counters[stats->size++];

        counter->value = value;
        ovs_strlcpy(counter->name, key, NETDEV_CUSTOM_STATS_NAME_SIZE);
    }
}

static int
drmirror_get_custom_stats(const struct netdev *netdev, struct netdev_custom_stats *stats)
{
    stats->size = 0;
    stats->counters = xcalloc(MAX_COUNTERS, sizeof *stats->counters);
    ovsdr_mirror_counters(cast(netdev)->mirror, add_to_counters, stats);
    return 0;
}

/* Always up. Promiscuous mode is set by the datapath and means nothing here. */
static int
drmirror_update_flags(struct netdev *netdev OVS_UNUSED, enum netdev_flags off, enum netdev_flags on OVS_UNUSED,
                      enum netdev_flags *old_flags)
{
    if (off & (NETDEV_UP | NETDEV_PROMISC)) {
        return EOPNOTSUPP;
    }
    *old_flags = NETDEV_UP | NETDEV_PROMISC;
    return 0;
}

const struct netdev_class netdev_drmirror_class = {
    .type = "drmirror",
    .is_pmd = false,
    .run = drmirror_run,
    .wait = drmirror_wait,
    .alloc = drmirror_alloc,
    .construct = drmirror_construct,
    .destruct = drmirror_destruct,
    .dealloc = drmirror_dealloc,
    .get_config = drmirror_get_config,
    .set_config = drmirror_set_config,
    .send = drmirror_send,
    .send_wait = drmirror_send_wait,
    .get_etheraddr = drmirror_get_etheraddr,
    .get_carrier = drmirror_get_carrier,
    .get_stats = drmirror_get_stats,
    .get_custom_stats = drmirror_get_custom_stats,
    .get_status = drmirror_get_status,
    .update_flags = drmirror_update_flags,
};

void
mirror_port_added(const struct dpif *dpif, const struct netdev *netdev, odp_port_t odp_port)
{
    char buffer[NETDEV_VPORT_NAME_BUFSIZE];

    if (!tunnel_port_is_ours(dpif_normalize_type(dpif_type(dpif)))) {
        return;
    }
    ovsdr_mirror_port_added(odp_to_u32(odp_port), netdev_vport_get_dpif_port(netdev, buffer, sizeof buffer));
    if (netdev_get_class(netdev) == &netdev_drmirror_class) {
        ovsdr_mirror_set_odp_port(cast(netdev)->mirror, odp_to_u32(odp_port));
    }
}

void
mirror_port_deleted(const struct dpif *dpif, odp_port_t odp_port)
{
    if (tunnel_port_is_ours(dpif_normalize_type(dpif_type(dpif)))) {
        ovsdr_mirror_port_deleted(odp_to_u32(odp_port));
    }
}
