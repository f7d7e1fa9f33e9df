/* See meter.h. */
#include <config.h>

#include "shim/meter.h"

#include <stdlib.h>
#include <string.h>

#include "ctrl/meter.h"
#include "openvswitch/ofp-meter.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/thread.h"
#include "seq.h"
#include "shim/real.h"
#include "timeval.h"
#include "util.h"

enum { INTERVAL_MS = 200 };

/* Software's statistics and the devices' begin anew together. */
static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static bool any_set;            /* Of the main thread. */
static struct seq *uses;        /* Changes when a device gets the first megaflow of a meter. */

/* The flow-API provider is offered the megaflows of no other datapath. */
static bool
is_ours(const struct dpif *dpif)
{
    return !strcmp(dpif_type(dpif), "netdev");
}

static void
charge(struct dpif *dpif, uint32_t number, long long int elapsed)
{
    struct ofputil_meter_band_stats band = {0, 0};
    struct ofputil_meter_stats stats = {.bands = &band};
    ofproto_meter_id id = {number};

    ovs_mutex_lock(&mutex);
    if (!real_dpif_meter_get(dpif, id, &stats, 1)) {
        ovsdr_meter_charge(number, stats.packet_in_count - band.packet_count, stats.byte_in_count - band.byte_count,
                           elapsed, INTERVAL_MS);
    }
    ovs_mutex_unlock(&mutex);
}

void
meter_run(struct dpif *dpif)
{
    static long long int last, next;
    static uint64_t seen;
    static bool in_use = true;
    long long int now = time_msec();
    uint32_t *numbers;
    size_t n;

    if (!any_set || !is_ours(dpif)) {
        return;
    }
    if (!in_use && seq_read(uses) == seen) {
        /* No megaflow has come that is to be metered. */
        seq_wait(uses, seen);
        return;
    }
    if (now >= next) {
        next = now + INTERVAL_MS;
        seen = seq_read(uses);
        numbers = ovsdr_meters_in_devices(&n);
        for (size_t i = 0; i < n; i++) {
            charge(dpif, numbers[i], now - last);
        }
        free(numbers);
        last = now;
        in_use = n > 0;
        any_set = n || ovsdr_has_meters();
    }
    poll_timer_wait_until(next);
}

static void
note_use(void)
{
    seq_change(uses);
}

/* dpif-netdev has put the burst into `config` where there was none. */
static void
tell_devices(uint32_t number, const struct ofputil_meter_config *config)
{
    struct ovsdr_meter meter = {
        .number = number,
        .by_packets = config->flags & OFPMF13_PKTPS,
        .only_drops = true,
        .n_bands = config->n_bands,
        .rate = config->bands[0].rate,
        .burst = config->bands[0].burst_size,
    };

    for (size_t i = 0; i < config->n_bands; i++) {
        meter.only_drops &= config->bands[i].type == OFPMBT13_DROP;
    }
    if (!uses) {
        uses = seq_create();
        ovsdr_on_meter_use(note_use);
    }
    ovsdr_meter_set(&meter);
    any_set = true;
}

int
meter_set(struct dpif *dpif, ofproto_meter_id id, struct ofputil_meter_config *config)
{
    int error;

    if (!is_ours(dpif)) {
        return real_dpif_meter_set(dpif, id, config);
    }
    ovs_mutex_lock(&mutex);
    error = real_dpif_meter_set(dpif, id, config);
    if (!error) {
        tell_devices(id.uint32, config);
    }
    ovs_mutex_unlock(&mutex);
    return error;
}

static void
add(const struct ovsdr_meter_stats *in_devices, struct ofputil_meter_stats *stats)
{
    stats->packet_in_count += in_devices->packets_passed + in_devices->packets_dropped;
    stats->byte_in_count += in_devices->bytes_passed + in_devices->bytes_dropped;
    if (stats->n_bands) {
        stats->bands[0].packet_count += in_devices->packets_dropped;
        stats->bands[0].byte_count += in_devices->bytes_dropped;
    }
}

int
meter_get(const struct dpif *dpif, ofproto_meter_id id, struct ofputil_meter_stats *stats, uint16_t n_bands)
{
    int error = real_dpif_meter_get(dpif, id, stats, n_bands);

    if (!error && stats && is_ours(dpif)) {
        struct ovsdr_meter_stats in_devices;

        ovsdr_meter_get(id.uint32, &in_devices);
        add(&in_devices, stats);
    }
    return error;
}

/* First what the devices do by it, so that no packet goes unmetered. */
int
meter_del(struct dpif *dpif, ofproto_meter_id id, struct ofputil_meter_stats *stats, uint16_t n_bands)
{
    struct ovsdr_meter_stats last;
    int error;

    if (!is_ours(dpif)) {
        return real_dpif_meter_del(dpif, id, stats, n_bands);
    }
    ovs_mutex_lock(&mutex);
    ovsdr_meter_remove(id.uint32, &last);
    error = real_dpif_meter_del(dpif, id, stats, n_bands);
    ovs_mutex_unlock(&mutex);
    if (!error && stats) {
        add(&last, stats);
    }
    return error;
}
