/* Bridges' own ports (LOCAL): what goes there is the host's, and comes up apart from other copies (ctrl/copies.h).
 *
 * A bridge's own port is the one that has the bridge's name.
 */
#ifndef CTRL_SHIM_HOST_PORT_H
#define CTRL_SHIM_HOST_PORT_H

#include "openvswitch/types.h"

struct dpif;
struct netdev;

/* The datapath has the port, or has it no more. Main thread. */
void host_port_added(const struct dpif *, const struct netdev *, odp_port_t);
void host_port_deleted(const struct dpif *, odp_port_t);

#endif
