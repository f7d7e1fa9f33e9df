/* The text of dr/metrics: what a monitoring system asks for every few seconds, as one JSON document.
 *
 * It has only what is there to be read: sums that are kept anyway, matchers, meters. It looks at no megaflow, so that
 * the main thread answers as quickly with a hundred thousand of them as with one. What it does not have: ports
 * (dr/ports -j), and packets per reason (dr/explain).
 *
 * Members: `datapath` (null without one), `meters`, `insertion` (bounds and buckets of each outcome; nanoseconds),
 * `devices`, `leaked_objects`. Counters begin at 0 with the process, a meter's with each change of the meter.
 */
#ifndef CTRL_METRICS_H
#define CTRL_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctrl/port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In NIC and software together, as `ovs-ofctl meter-stats` has it. */
struct ovsdr_meter_totals {
    uint32_t number;            /* the datapath's */
    uint64_t packets, bytes;
    uint64_t dropped_packets, dropped_bytes;
};

/* What dpif-netdev knows. */
struct ovsdr_datapath_totals {
    bool is_there;
    uint64_t flows;             /* now */
    uint64_t hits, misses, lost;        /* look-ups of the slow path: found, upcall, no upcall possible */
    bool offload_is_on;
    uint64_t waiting_offloads;  /* that the offload threads have not come to */
    struct ovsdr_meter_totals *meters;
    size_t n_meters;
};

/* The caller frees it. NULL: out of memory. */
char *ovsdr_metrics(const struct ovsdr_datapath_totals *) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
