/* Exact statistics of flows that are deleted while packets hit them.
 *
 * dpif-netdev answers a deletion with what it counts itself and what flow_get said a moment before; hits after that, in
 * the NIC or by packets that another thread has classified already, are lost. For each deletion of a flow whose in_port
 * is a dr port or a tunnel port we
 *
 *   1. keep the main thread, which alone classifies what dr ports receive and changes ports, out of both (gate.h);
 *   2. let dpif-netdev delete the flow, and learn from its flow_get in this thread which megaflow that was, and what it
 *      had counted then (flow_watch.h);
 *   3. take the megaflow out of the NIC, and add what was counted since to the reply.
 *
 * The gate and the NIC are once for all operations of a call: asking a device to drain and reading its counters cost
 * about as much for one flow as for many. A flow that is put between two deletions of the same ufid keeps its rule
 * (flow_watch.h).
 *
 * Packets that come after that find neither rule nor flow: they are a new flow's first ones.
 *
 * Where PMD threads receive (options:n_rxq) the gate does not keep them out. What they have classified when a flow is
 * deleted, a batch each at most, is forwarded and not counted, as in OVS itself; the NIC's part is exact all the same.
 *
 * Modifications wait for dpif_run() as well: the first one that finds offload turned on adopts the flows that are there
 * (adopt.h).
 *
 * Waiting is bounded: a thread that cannot enter the gate, and then cannot get at the datapath's ports since they are
 * being reconfigured, goes on with the statistics that there are.
 */
#ifndef CTRL_SHIM_DELETION_H
#define CTRL_SHIM_DELETION_H

#include <stddef.h>

#include "dpif.h"

/* dpif_operate() with exact deletions. Any thread that does not watch, while offload is on. */
void deletion_operate(struct dpif *, struct dpif_op **, size_t n_ops, enum dpif_offload_type);

#endif
