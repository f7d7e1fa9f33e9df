/* OpenFlow meters in devices beside dpif-netdev's.
 *
 * OVS sets, asks and deletes meters through dpif, and dpif-netdev has them all: packets that software handles meet
 * those. Devices are told of them here, so that megaflows with a meter can be offloaded; what they count is added to
 * dpif-netdev's statistics.
 *
 * dpif-netdev's meter and a device's each give the whole rate. Five times a second the devices are told what software
 * has let pass of each meter that a megaflow in a device has, and they let so much less pass (ctrl/meter_share.hpp).
 * While there is no such megaflow nobody is asked, and nobody is woken.
 *
 * Threads: the main thread runs and sets, any other asks and deletes.
 */
#ifndef CTRL_SHIM_METER_H
#define CTRL_SHIM_METER_H

#include <stdint.h>

#include "dpif.h"

/* Tells the devices, when it is time; and wakes the main thread when it is time again. */
void meter_run(struct dpif *);

int meter_set(struct dpif *, ofproto_meter_id, struct ofputil_meter_config *);
int meter_get(const struct dpif *, ofproto_meter_id, struct ofputil_meter_stats *, uint16_t n_bands);
int meter_del(struct dpif *, ofproto_meter_id, struct ofputil_meter_stats *, uint16_t n_bands);

#endif
