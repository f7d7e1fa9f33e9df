/* Flows that were there before the NIC could have them.
 *
 * dpif-netdev offers a flow for offload when it is added or modified. A flow that carries traffic all the time would
 * stay in software for good when other_config:hw-offload becomes true in a running switch. Each flow is therefore
 * modified once, to be what it is. A device that is opened later gets the flows of tunnel ports in the same way, which
 * all devices have.
 *
 * Once for each datapath that has dr ports when we first hear of it after that: flows of ports that come later are
 * offered when they are added. There is one datapath of each type (ofproto-dpif).
 *
 * Threads: the main thread, which keeps others from modifying or deleting flows meanwhile (gate.h).
 */
#ifndef CTRL_SHIM_ADOPT_H
#define CTRL_SHIM_ADOPT_H

struct dpif;

/* Offers what has to be offered, which is nothing but the first time for a datapath and behind the opening of a device.
 * Offload is on. */
void adopt_flows(struct dpif *);

#endif
