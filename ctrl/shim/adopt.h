/* Flows that were there before offload was turned on.
 *
 * dpif-netdev offers a flow for offload when it is added or modified. A flow that carries traffic all the time would stay
 * in software for good when other_config:hw-offload becomes true in a running switch. Each flow is therefore modified
 * once, to be what it is.
 *
 * The caller keeps other threads from modifying or deleting flows meanwhile.
 */
#ifndef CTRL_SHIM_ADOPT_H
#define CTRL_SHIM_ADOPT_H

struct dpif;

void adopt_flows(struct dpif *);

#endif
