/* Packets and statistics of an interface of type "dr". */
#include <config.h>

#include <errno.h>

#include "coverage.h"
#include "dp-packet.h"
#include "netdev-offload-provider.h"
#include "netdev-offload.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "shim/finish.h"
#include "shim/netdev_dr_parts.h"
#include "shim/offload_sleep.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(netdev_dr_io);

COVERAGE_DEFINE(dr_segmented);      /* Packets that were sent as several. */
COVERAGE_DEFINE(dr_unfinished);     /* That could not be finished, and were dropped. */

/* As other netdevs leave in front of a packet, for headers that actions push. */
#define HEADROOM 128

/* And behind it. OVS's connection tracking lengthens an FTP packet in place, by up to 45 bytes, and looks only whether
 * the whole buffer is that much larger than the packet, headroom included (repl_ftp_v6_addr() in conntrack.c): without
 * room here it would write into somebody else's memory. */
#define TAILROOM 128

/* Of the largest MTU, with two VLAN tags. */
#define LONGEST_FRAME ROUND_UP(UINT16_MAX + ETH_HEADER_LEN + 2 * VLAN_HEADER_LEN, 64)

BUILD_ASSERT_DECL((int) OVSDR_BATCH == (int) NETDEV_MAX_BURST);

/* Packets of this thread, since it was asked last. */
static __thread unsigned int received;

/* Of the main thread. */
static unsigned int sleep_number = 1;
static bool waits;      /* A dr port does, in the next sleep or this one. */

struct netdev_rxq *
netdev_dr_rxq_alloc(void)
{
    return xzalloc(sizeof(struct netdev_rxq));
}

int
netdev_dr_rxq_construct(struct netdev_rxq *rxq OVS_UNUSED)
{
    return 0;
}

void
netdev_dr_rxq_destruct(struct netdev_rxq *rxq OVS_UNUSED)
{
}

void
netdev_dr_rxq_dealloc(struct netdev_rxq *rxq)
{
    free(rxq);
}

/* Our hw_miss_packet_recover() takes the mark off a packet again. Where nobody does, dpif-netdev would take it for one
 * of its own: offload is off, or the interface's flow API is not ours. */
static bool
recovers_misses(const struct netdev *netdev)
{
    const struct netdev_flow_api *api = ovsrcu_get(const struct netdev_flow_api *, &netdev->flow_api);

    return netdev_is_flow_api_enabled() && api && api->hw_miss_packet_recover;
}

struct dp_packet *
netdev_dr_packet_new(const void *frame, uint32_t size)
{
    struct dp_packet *packet = dp_packet_new_with_headroom(size + TAILROOM, HEADROOM);

    dp_packet_put(packet, frame, size);
    return packet;
}

static struct dp_packet *
packet_from_frame(const struct ovsdr_frame *frame, bool offload)
{
    struct dp_packet *packet = netdev_dr_packet_new(frame->data, frame->size);

    /* The table that missed. */
    if (offload && frame->tag) {
        dp_packet_set_flow_mark(packet, frame->tag);
    }
    return packet;
}

/* While OVS hands the interface over from the main thread to PMD threads, or back, both may come. */
static bool
is_receiver(const struct netdev_dr *dev)
{
    bool pmd_receives;

    atomic_read_relaxed(&CONST_CAST(struct netdev_dr *, dev)->pmd_receives, &pmd_receives);
    return thread_is_pmd() == pmd_receives;
}

int
netdev_dr_rxq_recv(struct netdev_rxq *rxq, struct dp_packet_batch *batch, int *qfill)
{
    struct netdev_dr *dev = netdev_dr_cast(rxq->netdev);
    bool offload = recovers_misses(rxq->netdev);
    struct ovsdr_frame frames[OVSDR_BATCH];
    unsigned int n = 0;

    batch->count = 0;
    offload_sleep_release();    /* Whatever came before has been sent. */
    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port && is_receiver(dev)) {
        n = ovsdr_port_receive(dev->port, rxq->queue_id, frames);
    }
    for (unsigned int i = 0; i < n; i++) {
        if (!policer_is_active(&dev->policer) || policer_passes(&dev->policer, frames[i].size, time_usec())) {
            batch->packets[batch->count++] = packet_from_frame(&frames[i], offload);
        }
    }
    ovs_rwlock_unlock(&dev->lock);

    if (qfill) {
        *qfill = -ENOTSUP;
    }
    if (!batch->count) {
        return EAGAIN;
    }
    offload_sleep_hold();
    received += n;
    return 0;
}

unsigned int
netdev_dr_received(void)
{
    unsigned int result = received;

    received = 0;
    return result;
}

void
netdev_dr_rxq_wait(struct netdev_rxq *rxq)
{
    struct netdev_dr *dev = netdev_dr_cast(rxq->netdev);

    offload_sleep_release();
    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port && is_receiver(dev)) {
        if (ovsdr_port_arm(dev->port, rxq->queue_id)) {
            int fd = ovsdr_port_receive_fd(dev->port, rxq->queue_id);

            poll_fd_wait(fd, NETDEV_DR_PACKETS_IN);
            if (!thread_is_pmd()) {
                waits = netdev_is_flow_api_enabled();
                dev->waited_in = sleep_number;
                dev->waited_for = fd;
            }
        } else {
            poll_immediate_wake();
        }
    }
    ovs_rwlock_unlock(&dev->lock);
}

static bool
wait_again(struct netdev_dr *dev)
{
    bool result = true;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port && is_receiver(dev)) {
        result = ovsdr_port_arm(dev->port, 0) && ovsdr_port_receive_fd(dev->port, 0) == dev->waited_for;
    }
    ovs_rwlock_unlock(&dev->lock);
    return result;
}

bool
netdev_dr_wait_again(void)
{
    struct netdev_dr *dev;
    bool result = true;

    offload_sleep_release();
    ovs_mutex_lock(&netdev_dr_list_mutex);
    LIST_FOR_EACH (dev, node, &netdev_dr_list) {
        if (dev->waited_in == sleep_number && !wait_again(dev)) {
            result = false;
            break;
        }
    }
    ovs_mutex_unlock(&netdev_dr_list_mutex);
    return result;
}

bool
netdev_dr_waits(void)
{
    return waits;
}

void
netdev_dr_woke(void)
{
    waits = false;
    sleep_number++;
}

int
netdev_dr_rxq_drain(struct netdev_rxq *rxq)
{
    struct netdev_dr *dev = netdev_dr_cast(rxq->netdev);
    struct ovsdr_frame frames[OVSDR_BATCH];

    ovs_rwlock_rdlock(&dev->lock);
    while (dev->port && is_receiver(dev) && ovsdr_port_receive(dev->port, rxq->queue_id, frames)) {
        continue;
    }
    ovs_rwlock_unlock(&dev->lock);
    return 0;
}

/* What is to be sent next, in order. */
struct outgoing {
    struct netdev_dr *dev;
    uint32_t max_size;
    struct ovsdr_frame frames[NETDEV_MAX_BURST];
    unsigned int n;
    int error;
};

static void
flush(struct outgoing *to)
{
    if (to->n && ovsdr_port_transmit(to->dev->port, to->frames, to->n) < to->n) {
        to->error = EAGAIN;
    }
    to->n = 0;
}

static void
drop_unfinished(struct outgoing *to)
{
    COVERAGE_INC(dr_unfinished);
    to->error = EINVAL;
}

static void
send_segments(struct outgoing *to, const struct dp_packet *packet)
{
    struct ovsdr_port_state state;
    struct segmentation segmentation;
    uint32_t room = ROUND_UP(to->max_size, 64);     /* Headers are written in words. */
    OVS_ALIGNED_VAR(64) uint8_t frames[LONGEST_FRAME];
    unsigned int most = MIN(NETDEV_MAX_BURST, sizeof frames / room);
    uint32_t size;

    ovsdr_port_get_state(to->dev->port, &state);
    if (!segmentation_start(&segmentation, packet, state.mtu, to->max_size)) {
        drop_unfinished(to);
        return;
    }
    flush(to);
    while ((size = segmentation_next(&segmentation, frames + to->n * (size_t) room))) {
        to->frames[to->n] = (struct ovsdr_frame) {.data = frames + to->n * (size_t) room, .size = size};
        if (++to->n == most) {
            flush(to);
        }
    }
    flush(to);
    COVERAGE_INC(dr_segmented);
}

/* Of what the vport cannot take, frames that are too long are counted. */
static void
send_packet(struct outgoing *to, struct dp_packet *packet)
{
    uint32_t size = dp_packet_size(packet);

    if (!dp_packet_is_eth(packet)) {
        to->error = EPFNOSUPPORT;
    } else if (is_to_be_segmented(packet, to->max_size)) {
        send_segments(to, packet);
    } else if (size < ETH_HEADER_LEN || size > to->max_size) {
        unsigned long long before;

        to->error = EMSGSIZE;
        atomic_add_relaxed(&to->dev->tx_oversize, 1, &before);
    } else if (!finish_checksum(packet)) {
        drop_unfinished(to);
    } else {
        to->frames[to->n++] = (struct ovsdr_frame) {.data = dp_packet_data(packet), .size = size};
    }
}

static int
send_batch(struct netdev_dr *dev, struct dp_packet_batch *batch)
{
    struct outgoing to = {.dev = dev, .max_size = ovsdr_port_max_frame_size(dev->port), .n = 0, .error = 0};
    struct dp_packet *packet;

    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        send_packet(&to, packet);
    }
    flush(&to);
    return to.error;
}

int
netdev_dr_send(struct netdev *netdev, int qid OVS_UNUSED, struct dp_packet_batch *batch,
               bool concurrent_txq OVS_UNUSED)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    int error;

    ovs_rwlock_rdlock(&dev->lock);
    error = dev->port ? send_batch(dev, batch) : ENODEV;
    ovs_rwlock_unlock(&dev->lock);
    dp_packet_delete_batch(batch, true);
    return error;
}

/* The slow path's ring drops when it is full; the vport's worker empties it without being asked. */
void
netdev_dr_send_wait(struct netdev *netdev OVS_UNUSED, int qid OVS_UNUSED)
{
    poll_immediate_wake();
}

/* `oversize`: frames that OVS sent and that exceeded the MTU. */
static int
read_stats(const struct netdev *netdev, struct ovsdr_port_stats *from, unsigned long long *oversize)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    int error = ENODEV;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        error = ovsdr_port_get_stats(dev->port, from);
    }
    ovs_rwlock_unlock(&dev->lock);
    atomic_read_relaxed(&dev->tx_oversize, oversize);
    return error;
}

int
netdev_dr_get_stats(const struct netdev *netdev, struct netdev_stats *stats)
{
    struct ovsdr_port_stats from;
    unsigned long long oversize;
    int error = read_stats(netdev, &from, &oversize);

    if (error) {
        return error;
    }
    memset(stats, 0xff, sizeof *stats);     /* What is not known. */
    stats->rx_packets = from.rx_packets;
    stats->rx_bytes = from.rx_bytes;
    stats->rx_errors = from.rx_errors + from.slow_path_rx_errors;
    stats->rx_dropped = from.slow_path_rx_missed + policer_dropped(&netdev_dr_cast(netdev)->policer);
    stats->tx_packets = from.tx_packets;
    stats->tx_bytes = from.tx_bytes;
    stats->tx_errors = from.tx_errors + from.slow_path_tx_errors;
    stats->tx_dropped = from.slow_path_tx_drops + oversize;
    return 0;
}

int
netdev_dr_get_custom_stats(const struct netdev *netdev, struct netdev_custom_stats *stats)
{
    struct ovsdr_port_stats from;
    unsigned long long oversize;
    int error = read_stats(netdev, &from, &oversize);

    if (error) {
        return error;
    }

    const struct {
        const char *name;
        uint64_t value;
    } counters[] = {
        {"slow_path_rx_packets", from.slow_path_rx},
        {"slow_path_rx_errors", from.slow_path_rx_errors},
        {"slow_path_rx_missed", from.slow_path_rx_missed},
        {"slow_path_rx_policed", policer_dropped(&netdev_dr_cast(netdev)->policer)},
        {"slow_path_tx_packets", from.slow_path_tx},
        {"slow_path_tx_drops", from.slow_path_tx_drops},
        {"slow_path_tx_errors", from.slow_path_tx_errors},
        {"slow_path_tx_size_drops", oversize},
        {"slow_path_restarts", from.slow_path_restarts},
        /* Of a plain function only. */
        {"nic_rx_megaflow_drops", from.nic_rx_dropped},
        {"nic_rx_marked_packets", from.nic_rx_marked},
        {"nic_rx_down_drops", from.nic_rx_down},
        {"nic_tx_packets", from.nic_tx_sent},
        {"nic_tx_down_drops", from.nic_tx_down},
    };
    enum { N_OF_FUNCTIONS = 5 };

    stats->size = ARRAY_SIZE(counters) - (from.function ? 0 : N_OF_FUNCTIONS);
    stats->counters = xcalloc(stats->size, sizeof *stats->counters);
    for (size_t i = 0; i < stats->size; i++) {
        stats->counters[i].value = counters[i].value;
        ovs_strlcpy(stats->counters[i].name, counters[i].name, NETDEV_CUSTOM_STATS_NAME_SIZE);
    }
    return 0;
}
