/* OpenFlow meters, as the C shim sees them: all open devices know all of them (ctrl/all_devices.hpp).
 *
 * Threads: one at a time tells of meters, any thread asks. Nothing throws.
 */
#ifndef CTRL_METER_H
#define CTRL_METER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctrl/port.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ovsdr_meter {
    uint32_t number;            /* the datapath's */
    bool by_packets;            /* rate and burst in packets, else in kilobits */
    bool only_drops;            /* it has no band of another type */
    uint16_t n_bands;
    uint32_t rate, burst;       /* of the first band; the burst is not 0 */
};

/* Adds a meter, or changes it: what the devices have counted of it begins anew. */
void ovsdr_meter_set(const struct ovsdr_meter *) OVSDR_NOEXCEPT;

struct ovsdr_meter_stats {
    uint64_t packets_passed, bytes_passed;
    uint64_t packets_dropped, bytes_dropped;
};
/* The sum over all devices, asked of them. */
void ovsdr_meter_get(uint32_t number, struct ovsdr_meter_stats *) OVSDR_NOEXCEPT;

/* No device has a megaflow that it meters when this returns. Its last statistics. */
void ovsdr_meter_remove(uint32_t number, struct ovsdr_meter_stats *) OVSDR_NOEXCEPT;

/* Numbers of meters that megaflows in devices use now: the caller frees them. NULL: none. */
uint32_t *ovsdr_meters_in_devices(size_t *n) OVSDR_NOEXCEPT;

bool ovsdr_has_meters(void) OVSDR_NOEXCEPT;

/* Numbers of all meters that are set: the caller frees them. NULL: none. */
uint32_t *ovsdr_meters(size_t *n) OVSDR_NOEXCEPT;

/* `used` is called, by any thread, when a device gets the first megaflow of a meter. It calls nothing of this. */
void ovsdr_on_meter_use(void (*used)(void)) OVSDR_NOEXCEPT;

/* Tells what software has let pass of one of these since it was set or changed, `elapsed_ms` after the time before.
 * Each device lets so much less pass in the next `interval_ms`, in which it is to be told again (meter_share.hpp). */
void ovsdr_meter_charge(uint32_t number, uint64_t packets_in_software, uint64_t bytes_in_software,
                        long long elapsed_ms, unsigned interval_ms) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
