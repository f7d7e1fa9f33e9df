/* Copies that devices took for software, as the C shim sees them: what is to be done to each.
 *
 * All open devices have two queues for them (offload/slowpath/copy_queue.hpp), one for what goes to the host itself and
 * one for all else. One thread receives from all of them: what is for the host first, with a turn for others between.
 * Another one makes and destroys queues, whose commands to a device take long: no device's copies wait for another's
 * firmware.
 *
 * Threads: receive and arm by one thread, the receiver; tend by another one. Nothing throws.
 *
 * End. The receiver lets go of what it holds, and the tender's next call is its last: a device whose ports are closed
 * is closed when that returns.
 */
#ifndef CTRL_COPIES_H
#define CTRL_COPIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctrl/port.h"
#include "offload/dr/megaflow.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ovsdr_copy {
    const uint8_t *data;
    uint32_t size;                      /* bytes, without FCS */
    uint32_t in_port;                   /* the datapath's number of it */
    struct ovsdr_tunnel_fields tunnel;  /* of an in_port that is a tunnel port; zero where nothing is known */
    /* What is to be done: OVS's attributes; NULL: an output to each of these ports of the datapath. */
    const uint8_t *actions;
    uint16_t actions_size;
    uint16_t n_outputs;                 /* at most OVSDR_MAX_ACTIONS */
    const uint32_t *outputs;
};

/* At most OVSDR_BATCH that wait in one queue, each with work to be done, valid until the next call; `*waits` says
 * whether there was anything. */
unsigned ovsdr_copies_receive(struct ovsdr_copy *copies, bool *waits) OVSDR_NOEXCEPT;

/* Asks all devices for one wake-up, and calls `wait_for` with each descriptor that becomes readable then, or when a
 * device comes or goes. Returns in how many milliseconds the receiver is to look again even so; 0: copies wait; -1:
 * never. */
int ovsdr_copies_arm(void (*wait_for)(int fd)) OVSDR_NOEXCEPT;

/* Replaces queues that have failed or are too small, and lets go of what the receiver needs no more. Calls `wait_for`
 * with the descriptor that becomes readable when there is more of that. Returns in how many milliseconds to call it
 * again even so; -1: never. */
int ovsdr_copies_tend(void (*wait_for)(int fd)) OVSDR_NOEXCEPT;

/* The descriptors that arm and tend have waited for become readable. Any thread. */
void ovsdr_copies_wake(void) OVSDR_NOEXCEPT;

/* The receiver's last call: leaves all that it holds to the tender. */
void ovsdr_copies_let_go(void) OVSDR_NOEXCEPT;

/* The datapath has a port of this number, or is about to have none: what goes there is no copy for anybody then. Of a
 * bridge's own (LOCAL) it is for the host. Main thread. */
void ovsdr_datapath_port_add(uint32_t odp_port, bool is_host) OVSDR_NOEXCEPT;
void ovsdr_datapath_port_remove(uint32_t odp_port) OVSDR_NOEXCEPT;

/* dr/copies: what came up from each device, and what was lost. The caller frees it; NULL: out of memory. */
char *ovsdr_report_copies(bool json) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
