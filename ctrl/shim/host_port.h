/* Which ports the datapath has, and which of them are bridges' own (LOCAL): what goes there is the host's, and comes up
 * apart from other copies (ctrl/copies.h).
 *
 * A bridge's own port is the one that has the bridge's name.
 */
#ifndef CTRL_SHIM_HOST_PORT_H
#define CTRL_SHIM_HOST_PORT_H

#include "openvswitch/types.h"

struct dpif;
struct netdev;

/* The datapath has the port. Main thread. */
void host_port_added(const struct dpif *, const struct netdev *, odp_port_t);
/* It is about to go: before, since the netdev's end has megaflows compiled without it. Main thread. */
void host_port_goes(const struct dpif *, odp_port_t);
/* The datapath has deleted nothing. If a port of this number is there, it counts again: LOCAL of the datapath cannot be
 * deleted, and ofproto may clean up late behind a device whose number another port has got. Main thread. */
void host_port_restore(const struct dpif *, odp_port_t);

#endif
