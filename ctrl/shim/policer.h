/* A port's ingress policer: what the columns ingress_policing_* of the Interface table ask for.
 *
 * Two token buckets, one of bits and one of packets, as vswitchd.conf.db(5) describes them. A frame passes if both have
 * tokens for it, and takes them; a frame that does not pass takes none. A rate of 0 is no limit. Bits are those of the
 * frame from its Ethernet header on, without FCS, as Linux's tc counts them.
 *
 * It sees the slow path only. A port that is policed has no megaflows in the NIC (ovsdr_port_set_policed()).
 *
 * Threads: any. A policer that is not active costs one load.
 */
#ifndef CTRL_SHIM_POLICER_H
#define CTRL_SHIM_POLICER_H

#include <stdbool.h>
#include <stdint.h>

#include "openvswitch/thread.h"
#include "ovs-atomic.h"

/* As in the database: kilo is 1,000, a burst of 0 is the default. */
struct policing {
    uint32_t kbits_rate, kbits_burst;
    uint32_t kpkts_rate, kpkts_burst;
};

/* Tokens are millionths of a bit or of a packet: a rate in thousands a second is as many of them a nanosecond. */
struct policer_bucket {
    uint64_t rate, size, level;
};

struct policer {
    atomic_bool active;
    struct ovs_mutex lock;
    struct policing limits;
    struct policer_bucket bits, packets;
    long long int filled_us;        /* When tokens were added last. */
    uint64_t dropped;               /* Frames. */
};

void policer_init(struct policer *);
void policer_destroy(struct policer *);

/* The same limits again leave the buckets as they are; others begin with full ones. True: the policer is active. */
bool policer_set(struct policer *, const struct policing *);
bool policer_is_active(const struct policer *);

/* A frame of `size` bytes at this moment, time_usec(); false: it is to be dropped, and has been counted. */
bool policer_passes(struct policer *, uint32_t size, long long int now_us);

uint64_t policer_dropped(struct policer *);

#endif
