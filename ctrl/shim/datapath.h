/* The datapath's ports by name, and how many megaflows come in by each.
 *
 * Devices know only what the flow-API provider is offered: what comes from dr ports and from tunnel ports. dpif-netdev
 * offers nothing that comes from another port (LOCAL, taps, other tunnels): such megaflows are found in a dump of the
 * datapath's flows, on demand. The dump takes the calling thread as long as dpctl/dump-flows does.
 *
 * Threads: the main thread.
 */
#ifndef CTRL_SHIM_DATAPATH_H
#define CTRL_SHIM_DATAPATH_H

#include "ctrl/report.h"
#include "openvswitch/types.h"

/* Without a datapath there are no ports. The caller passes the result to datapath_free(). */
struct ovsdr_datapath datapath_ports(void);

/* The same with the megaflows and their packets counted. One that several PMD threads have counts for each of them, as
 * in the devices. */
struct ovsdr_datapath datapath_with_megaflows(void);

void datapath_free(struct ovsdr_datapath *);

/* The port that the flow with this ufid comes from. NULL: no such flow. */
const struct ovsdr_datapath_port *datapath_in_port(const struct ovsdr_datapath *, const ovs_u128 *ufid);

#endif
