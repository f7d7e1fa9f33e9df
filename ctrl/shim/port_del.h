/* Exact statistics of the flows of a port that goes.
 *
 * When a port has gone, neither dpif-netdev can ask the NIC what its flows counted, nor can ofproto tell any more
 * which OpenFlow rules those flows came from: what the revalidators have not yet collected is lost, and the reply to
 * the flow's deletion, smaller than what was collected before, takes even that away again. Hence the flows go first.
 * For a dr port we
 *
 *   1. close the vport's entrance: the NIC lets nothing in, and what was let in is counted;
 *   2. wake the revalidators, and have each dump of flows say of those from this port that they have long been idle;
 *      the revalidators delete them, whose statistics are exact (deletion.h) while the port is still known;
 *   3. wait for a dump without such flows, then let the port go.
 *
 * Of a tunnel's flows the same is true, and sooner: the datapath's port goes when the OpenFlow port has gone already.
 * So steps 2 and 3 are taken before that, for the flows of the datapath's port that come from the tunnel's other end.
 * Such a port has no entrance that could be closed. The main thread, which makes flows of what comes up, is here and
 * waits; PMD threads go on and make them anew, so that after three dumps it is enough.
 *
 * With the last port of a device the flows of all tunnel ports go, since what the device has counted of them goes with
 * it (ctrl/all_devices.hpp): they come again with the next packets.
 *
 * For a tunnel nothing is waited for when the revalidators have ended. Waiting ends when none is heard of for a second,
 * or after five: the port goes, and a warning says so. Where ports and tunnels have taken a second within ten, those
 * that come next go without steps 2 and 3, with the same warning: the main thread receives nothing while it waits.
 *
 * The dump's three functions add nothing but a look at one pointer while no port goes.
 *
 * Threads: the main thread deletes ports; revalidators dump flows, and their leader begins and ends each dump.
 */
#ifndef CTRL_SHIM_PORT_DEL_H
#define CTRL_SHIM_PORT_DEL_H

#include <stdbool.h>

#include "dpif.h"
#include "openvswitch/types.h"

struct netdev;
struct ofproto;

/* Once, before the first port. */
void port_del_init(void);

/* Steps 1 to 3, if it is a dr port or a tunnel port; then the caller lets it go. Main thread. */
void port_del_flows_of_port_go(struct dpif *, odp_port_t);

/* The same for an OpenFlow port that is a tunnel. */
void port_del_flows_of_tunnel_go(const struct ofproto *, ofp_port_t);

/* The dump of flows, as the contracts of dpif.h say. */
struct dpif_flow_dump *port_del_flow_dump_create(const struct dpif *, bool terse, struct dpif_flow_dump_types *);
int port_del_flow_dump_next(struct dpif_flow_dump_thread *, struct dpif_flow *, int max_flows);
int port_del_flow_dump_destroy(struct dpif_flow_dump *);

/* Steps 1 to 3 for a dr netdev that stays and moves to another device, whose counters know nothing of its flows. The
 * vport's entrance remains closed. Main thread. */
void port_del_flows_go(struct netdev *);

#endif
