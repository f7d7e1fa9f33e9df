#include <config.h>

#include "tests/unit/ctrl/netdev_dr_io_probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dp-packet.h"
#include "netdev-offload-provider.h"
#include "netdev-offload.h"
#include "openvswitch/poll-loop.h"
#include "shim/finish.h"
#include "shim/netdev_dr_parts.h"
#include "shim/offload_sleep.h"
#include "util.h"

const short probe_dr_packets_in = NETDEV_DR_PACKETS_IN;

bool probe_offload_is_on;
char probe_dr_log[64];
int probe_waited_for, probe_immediate_wakes;
short probe_waited_events;

/* Of netdev_dr.c. */
struct ovs_mutex netdev_dr_list_mutex = OVS_MUTEX_INITIALIZER;
struct ovs_list netdev_dr_list = OVS_LIST_INITIALIZER(&netdev_dr_list);

static int
recover(struct netdev *netdev OVS_UNUSED, struct dp_packet *packet OVS_UNUSED)
{
    return 0;
}

static const struct netdev_flow_api ours = {.type = "ours", .hw_miss_packet_recover = recover};
static const struct netdev_flow_api another = {.type = "another"};

struct netdev_dr *
probe_dr_new(struct ovsdr_port *port)
{
    struct netdev_dr *dev = xzalloc(sizeof *dev);

    ovs_rwlock_init(&dev->lock);
    policer_init(&dev->policer);
    dev->port = port;
    ovs_mutex_lock(&netdev_dr_list_mutex);
    ovs_list_push_back(&netdev_dr_list, &dev->node);
    ovs_mutex_unlock(&netdev_dr_list_mutex);
    return dev;
}

void
probe_dr_free(struct netdev_dr *dev)
{
    ovs_mutex_lock(&netdev_dr_list_mutex);
    ovs_list_remove(&dev->node);
    ovs_mutex_unlock(&netdev_dr_list_mutex);
    policer_destroy(&dev->policer);
    ovs_rwlock_destroy(&dev->lock);
    free(dev);
}

void
probe_dr_set_port(struct netdev_dr *dev, struct ovsdr_port *port)
{
    dev->port = port;
}

void
probe_dr_set_pmd_receives(struct netdev_dr *dev, bool pmd_receives)
{
    atomic_store_relaxed(&dev->pmd_receives, pmd_receives);
}

void
probe_dr_set_flow_api(struct netdev_dr *dev, bool recovers_misses)
{
    ovsrcu_set(&dev->up.flow_api, recovers_misses ? &ours : &another);
}

void
probe_dr_police(struct netdev_dr *dev, uint32_t kpkts_rate, uint32_t kpkts_burst)
{
    const struct policing limits = {.kpkts_rate = kpkts_rate, .kpkts_burst = kpkts_burst};

    policer_set(&dev->policer, &limits);
}

void
probe_become_pmd(void)
{
    set_subprogram_name("pmd-probe");
}

static struct netdev_rxq
rxq_of(struct netdev_dr *dev, int queue)
{
    return (struct netdev_rxq) {.netdev = &dev->up, .queue_id = queue};
}

void
probe_dr_wait(struct netdev_dr *dev, int queue)
{
    struct netdev_rxq rxq = rxq_of(dev, queue);

    probe_waited_for = -1;
    probe_waited_events = 0;
    probe_immediate_wakes = 0;
    netdev_dr_rxq_wait(&rxq);
}

bool
probe_dr_waits(void)
{
    return netdev_dr_waits();
}

bool
probe_dr_wait_again(void)
{
    return netdev_dr_wait_again();
}

void
probe_dr_woke(void)
{
    netdev_dr_woke();
}

int
probe_dr_receive(struct netdev_dr *dev, int queue, struct probe_packet *packets, unsigned *n)
{
    struct netdev_rxq rxq = rxq_of(dev, queue);
    struct dp_packet_batch batch;
    struct dp_packet *packet;
    int error, qfill = 0;

    dp_packet_batch_init(&batch);
    error = netdev_dr_rxq_recv(&rxq, &batch, &qfill);
    ovs_assert(qfill == -ENOTSUP);
    *n = 0;
    DP_PACKET_BATCH_FOR_EACH (i, packet, &batch) {
        struct probe_packet *to = &packets[(*n)++];

        to->size = dp_packet_size(packet);
        memcpy(to->data, dp_packet_data(packet), MIN(to->size, sizeof to->data));
        to->marked = dp_packet_has_flow_mark(packet, &to->mark);
        to->headroom = dp_packet_headroom(packet);
        to->tailroom = dp_packet_tailroom(packet);
    }
    dp_packet_delete_batch(&batch, true);
    return error;
}

void
probe_dr_drain(struct netdev_dr *dev, int queue)
{
    struct netdev_rxq rxq = rxq_of(dev, queue);

    netdev_dr_rxq_drain(&rxq);
}

unsigned
probe_dr_received(void)
{
    return netdev_dr_received();
}

int
probe_dr_send(struct netdev_dr *dev, const struct probe_frame *frames, unsigned n)
{
    struct dp_packet_batch batch;

    dp_packet_batch_init(&batch);
    for (unsigned i = 0; i < n; i++) {
        struct dp_packet *packet = dp_packet_clone_data(frames[i].data, frames[i].size);

        packet->packet_type = htonl(frames[i].is_ip ? PT_IPV4 : PT_ETH);
        dp_packet_batch_add(&batch, packet);
    }
    return netdev_dr_send(&dev->up, 0, &batch, false);
}

int
probe_dr_stats(struct netdev_dr *dev, struct probe_stats *stats)
{
    struct netdev_stats those;
    int error = netdev_dr_get_stats(&dev->up, &those);

    if (!error) {
        *stats = (struct probe_stats) {
            .rx_packets = those.rx_packets, .rx_bytes = those.rx_bytes,
            .rx_errors = those.rx_errors, .rx_dropped = those.rx_dropped,
            .tx_packets = those.tx_packets, .tx_bytes = those.tx_bytes,
            .tx_errors = those.tx_errors, .tx_dropped = those.tx_dropped,
            .multicast = those.multicast,
        };
    }
    return error;
}

uint64_t
probe_dr_custom(struct netdev_dr *dev, const char *name)
{
    struct netdev_custom_stats stats;
    uint64_t value = UINT64_MAX;

    if (netdev_dr_get_custom_stats(&dev->up, &stats)) {
        return value;
    }
    for (unsigned i = 0; i < stats.size; i++) {
        if (!strcmp(stats.counters[i].name, name)) {
            value = stats.counters[i].value;
        }
    }
    free(stats.counters);
    return value;
}

/* What OVS and the shim's other files do. */

bool
netdev_is_flow_api_enabled(void)
{
    return probe_offload_is_on;
}

void
poll_fd_wait_at(int fd, short events, const char *where OVS_UNUSED)
{
    probe_waited_for = fd;
    probe_waited_events = events;
}

void
poll_immediate_wake_at(const char *where OVS_UNUSED)
{
    probe_immediate_wakes++;
}

static void
note(char what)
{
    size_t length = strlen(probe_dr_log);

    if (length + 1 < sizeof probe_dr_log) {
        probe_dr_log[length] = what;
        probe_dr_log[length + 1] = '\0';
    }
}

void
offload_sleep_hold(void)
{
    note('h');
}

void
offload_sleep_release(void)
{
    note('r');
}

static uint8_t
kind_of(const struct dp_packet *packet)
{
    return *(const uint8_t *) dp_packet_data(packet);
}

bool
is_to_be_segmented(const struct dp_packet *packet, uint32_t frame_size OVS_UNUSED)
{
    return kind_of(packet) == PROBE_SEGMENTS || kind_of(packet) == PROBE_NO_SEGMENTS;
}

/* Of functions that have returned. */
static void
spoil_stack(void)
{
    volatile uint8_t left[128 * 1024];

    for (size_t i = 0; i < sizeof left; i++) {
        left[i] = 0xee;
    }
}

bool
finish_checksum(struct dp_packet *packet)
{
    spoil_stack();
    return kind_of(packet) != PROBE_UNFINISHABLE;
}

bool
segmentation_start(struct segmentation *segmentation, const struct dp_packet *packet, uint32_t mtu OVS_UNUSED,
                   uint32_t frame_size OVS_UNUSED)
{
    *segmentation = (struct segmentation) {.packet = packet, .size = dp_packet_size(packet)};
    return kind_of(packet) == PROBE_SEGMENTS;
}

uint32_t
segmentation_next(struct segmentation *segmentation, uint8_t *frame)
{
    uint32_t size = MIN(segmentation->size - segmentation->next, PROBE_SEGMENT_SIZE);

    memcpy(frame, (const uint8_t *) dp_packet_data(segmentation->packet) + segmentation->next, size);
    segmentation->next += size;
    return size;
}
