/* Megaflows, as the C shim sees them: those of a `dr` port are in its device, those of a tunnel port in all devices
 * that are open. Where a function takes a port, NULL stands for the tunnel ports.
 *
 * A ufid is the hash that dpif-netdev makes of a megaflow (its mega_ufid), not the one of the datapath flow that users
 * read in dpctl/dump-flows.
 *
 * Threads: any. Errors: positive errno values. Nothing here throws.
 */
#ifndef CTRL_FLOW_H
#define CTRL_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctrl/port.h"
#include "offload/dr/megaflow.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ovsdr_ufid {
    uint64_t value[2];
};

/* Cumulative since the ufid was first put. */
struct ovsdr_flow_stats {
    uint64_t packets, bytes;
    int64_t used_ms;            /* CLOCK_MONOTONIC; 0 never */
    bool partly;                /* offloaded, but the caller does the actions: its packets come up with its mark */
    bool offloaded;             /* now; false after a change of actions that the device could not take */
};

/* What became of a megaflow. For OVSDR_PUT_FAILED, `*error` is a message, which the caller frees. A megaflow that is
 * not installed is known all the same, with its reason, until it is deleted; but not for OVSDR_PUT_NOWHERE: its in_port
 * is no tunnel port, or there is no device. */
enum ovsdr_put_outcome { OVSDR_PUT_INSTALLED, OVSDR_PUT_REJECTED, OVSDR_PUT_FAILED, OVSDR_PUT_NOWHERE };

/* Megaflows that are likely to be deleted together are cheaper to delete if they have the same `neighbourhood`. `mark`
 * is what the datapath knows the megaflow's packets by, for ports that are plain functions; 0: nothing. */
enum ovsdr_put_outcome ovsdr_flow_put(struct ovsdr_port *, const struct ovsdr_ufid *, const struct ovsdr_megaflow *,
                                      uint16_t neighbourhood, uint32_t mark, char **error) OVSDR_NOEXCEPT;

/* Has `hold` called with a mark before packets can come up with it, and `let_go`, as often, when none can any more. In
 * any thread. Once, before the first megaflow. */
void ovsdr_on_marks(void (*hold)(uint32_t mark), void (*let_go)(uint32_t mark)) OVSDR_NOEXCEPT;

/* Whether a device has been told of the ufid, with or without a rule. */
bool ovsdr_flow_known(const struct ovsdr_port *, const struct ovsdr_ufid *) OVSDR_NOEXCEPT;

/* The sum over all devices that have or had it; false if none did. */
bool ovsdr_flow_get(const struct ovsdr_port *, const struct ovsdr_ufid *, struct ovsdr_flow_stats *) OVSDR_NOEXCEPT;

struct ovsdr_flow_deletion {
    struct ovsdr_port *port;        /* NULL: a tunnel port's. */
    struct ovsdr_ufid ufid;
    bool had_stats;                 /* Out: a device has or had it. */
    struct ovsdr_flow_stats last;   /* Out, if so: final ones, no packet is counted after them. */
};

/* Forgets the ufids. A device is waited for once, however many they are: delete in batches. The ports are of any
 * device, and may be the same. */
void ovsdr_flows_del(struct ovsdr_flow_deletion *, size_t n) OVSDR_NOEXCEPT;

/* In which table a packet missed that came up with a tag. It goes on behind that recirculation (0: none), as it is or,
 * with a tunnel port (0: none), as what it has inside. */
struct ovsdr_missed {
    uint32_t recirc_id;
    uint32_t tunnel_port;
    uint32_t mark;          /* 0: none; else it missed nowhere, and is the megaflow's that was put with this mark */
};
/* False: no table of the port's device has or had the tag lately. */
bool ovsdr_missed_in(const struct ovsdr_port *, uint32_t tag, struct ovsdr_missed *) OVSDR_NOEXCEPT;

/* Whether packets can come up that go on elsewhere than where a vport's begin. */
bool ovsdr_recirculates(void) OVSDR_NOEXCEPT;

/* Removes every megaflow whose in_port is this port. Not for tunnel ports: see ovsdr_tunnel_port_remove(). */
void ovsdr_flow_flush(struct ovsdr_port *) OVSDR_NOEXCEPT;

/* Whether a device has been opened since the last call: it does not have the megaflows of tunnel ports. */
bool ovsdr_lacks_tunnel_flows(void) OVSDR_NOEXCEPT;

/* Megaflows installed in the port's device; 0 for all of its ports but one, so that a sum over ports is right. */
uint64_t ovsdr_flow_count_of_device(const struct ovsdr_port *) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
