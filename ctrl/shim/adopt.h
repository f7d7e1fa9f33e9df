/* Flows that were there before offload was turned on.
 *
 * dpif-netdev offers a flow for offload when it is added or modified. A flow that carries traffic all the time would
 * stay in software for good when other_config:hw-offload becomes true in a running switch. Each flow is therefore
 * modified once, to be what it is.
 *
 * Once for each datapath that has dr ports when we first hear of it after that: flows of ports that come later are
 * offered when they are added. There is one datapath of each type (ofproto-dpif).
 *
 * Threads: the main thread, which keeps others from modifying or deleting flows meanwhile (gate.h).
 */
#ifndef CTRL_SHIM_ADOPT_H
#define CTRL_SHIM_ADOPT_H

struct dpif;

/* Does nothing but the first time for a datapath. Offload is on. */
void adopt_flows_once(struct dpif *);

/* What decides on offload has changed for flows that are known already: the next time is the first again. */
void adopt_flows_again(void);

#endif
