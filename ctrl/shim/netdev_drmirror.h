/* The netdev class "drmirror": a port that takes what is sent to it to a collector, by RDMA (ctrl/mirror.h).
 *
 *     ovs-vsctl add-port br0 stor0 -- set interface stor0 type=drmirror options:collector=192.0.2.7:4180
 *
 * Nothing comes in from such a port: it has no receive queues, as a tunnel's has none. What devices forward reaches the
 * mirror by queues of its own (offload/mirror/mirror.hpp); what software forwards, a flow's first packets among it, by
 * send(). A frame takes one of the two ways.
 *
 * The port is up whether or not its collector answers; its status says what there is to say. It takes frames of any
 * size, so that it has no MTU and a bridge's is that of the other ports.
 *
 * Options are OVSDB's; they are understood in ctrl/mirror_options.cpp.
 *
 * Threads: the main thread configures and runs; send comes from any thread.
 */
#ifndef CTRL_SHIM_NETDEV_DRMIRROR_H
#define CTRL_SHIM_NETDEV_DRMIRROR_H

#include "netdev-provider.h"
#include "openvswitch/types.h"

struct dpif;

extern const struct netdev_class netdev_drmirror_class;

/* What there is in rings is delivered when the process ends. Once, before the class is used. */
void netdev_drmirror_init(void);

/* That, now, some seconds at most: a mirror that was closed before may still be at it, and has its device till then. */
void netdev_drmirror_finish(void);

/* The datapath has a port, of whatever type, or has it no more: mirrors name it in their files, and a mirror's own port
 * gets its copies from then on. Main thread. */
void mirror_port_added(const struct dpif *, const struct netdev *, odp_port_t);
void mirror_port_deleted(const struct dpif *, odp_port_t);

#endif
