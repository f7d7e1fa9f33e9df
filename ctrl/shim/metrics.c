/* See metrics.h. */
#include <config.h>

#include "shim/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "ctrl/meter.h"
#include "ctrl/metrics.h"
#include "dpif.h"
#include "netdev-offload.h"
#include "openvswitch/ofp-meter.h"
#include "util.h"

/* As many as dpif-netdev takes. */
enum { BANDS_AT_MOST = 8 };

/* False: it went meanwhile. */
static bool
count_meter(struct dpif *dpif, uint32_t number, struct ovsdr_meter_totals *totals)
{
    struct ofputil_meter_band_stats bands[BANDS_AT_MOST] = {{0, 0}};
    struct ofputil_meter_stats stats = {.bands = bands};

    if (dpif_meter_get(dpif, (ofproto_meter_id) {number}, &stats, BANDS_AT_MOST)) {
        return false;
    }
    *totals = (struct ovsdr_meter_totals) {
        .number = number, .packets = stats.packet_in_count, .bytes = stats.byte_in_count,
    };
    for (size_t i = 0; i < stats.n_bands; i++) {
        totals->dropped_packets += bands[i].packet_count;
        totals->dropped_bytes += bands[i].byte_count;
    }
    return true;
}

static void
count_meters(struct dpif *dpif, struct ovsdr_datapath_totals *datapath)
{
    size_t n;
    uint32_t *numbers = ovsdr_meters(&n);

    datapath->meters = n ? xmalloc(n * sizeof *datapath->meters) : NULL;
    for (size_t i = 0; i < n; i++) {
        if (count_meter(dpif, numbers[i], &datapath->meters[datapath->n_meters])) {
            datapath->n_meters++;
        }
    }
    free(numbers);
}

/* The first of dpif-netdev's statistics is how many wait, of all offload threads together. */
static uint64_t
waiting_offloads(struct dpif *dpif)
{
    struct netdev_custom_stats stats = {.size = 0};
    uint64_t waiting = 0;

    if (!dpif_offload_stats_get(dpif, &stats)) {
        if (stats.size && strstr(stats.counters[0].name, "Enqueued")) {
            waiting = stats.counters[0].value;
        }
        netdev_free_custom_stats_counters(&stats);
    }
    return waiting;
}

char *
metrics_text(void)
{
    struct ovsdr_datapath_totals datapath = {.is_there = false};
    struct dpif_dp_stats stats;
    struct dpif *dpif;
    char *text;

    if (!dpif_open("ovs-netdev", "netdev", &dpif)) {
        if (!dpif_get_dp_stats(dpif, &stats)) {
            datapath.is_there = true;
            datapath.flows = stats.n_flows;
            datapath.hits = stats.n_hit;
            datapath.misses = stats.n_missed;
            datapath.lost = stats.n_lost;
        }
        datapath.offload_is_on = netdev_is_flow_api_enabled();
        datapath.waiting_offloads = waiting_offloads(dpif);
        count_meters(dpif, &datapath);
        dpif_close(dpif);
    }
    text = ovsdr_metrics(&datapath);
    free(datapath.meters);
    return text;
}
