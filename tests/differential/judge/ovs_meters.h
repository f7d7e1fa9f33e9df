/* Meters of OVS's software datapath, as dpif-netdev has them (dp_netdev_run_meter()), whose time stands still: a bucket
 * has what it had when the meter was set, less what it has paid. What passes depends on no clock.
 *
 * Threads: one at a time. */
#ifndef TESTS_DIFFERENTIAL_JUDGE_OVS_METERS_H
#define TESTS_DIFFERENTIAL_JUDGE_OVS_METERS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    OVS_METERS = 32,            /* numbers are below */
    OVS_METER_BANDS = 2,
};

/* As OpenFlow has it; all bands drop. */
struct ovs_judge_meter {
    bool by_packets;            /* else by kilobits */
    uint16_t n_bands;
    uint32_t rates[OVS_METER_BANDS], bursts[OVS_METER_BANDS];
    uint32_t bytes_more;        /* that each bucket has to begin with, above its burst */
};

struct ovs_judge_meter_counts {
    uint64_t packets, bytes;                   /* that met it */
    uint64_t dropped_packets, dropped_bytes;   /* by its bands */
};

#ifdef __cplusplus
}
#endif
#endif
