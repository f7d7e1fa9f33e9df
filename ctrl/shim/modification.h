/* Modifications reach the megaflow that they name.
 *
 * A revalidator names a megaflow by its ufid, but dpif-netdev, when it modifies one, looks the key up as it does with a
 * packet, and takes what it finds first. Megaflows overlap when one was made while the OpenFlow flows asked for more of
 * a packet than they do now. Then it would change the other's actions, and the NIC would go on with the old actions of
 * the one: its packets need not find the other there.
 *
 * So the flow is looked up by its ufid first, and is what the look-up of its key finds.
 */
#ifndef CTRL_SHIM_MODIFICATION_H
#define CTRL_SHIM_MODIFICATION_H

#include <stdbool.h>

#include "dpif.h"

struct dpcls_rule;

/* Whether it names one flow: without a thread it is of each that has a flow with this ufid. */
bool is_modification_of_one(const struct dpif_op *);

/* dpif_operate() for such a modification, of a flow whose in_port's netdev flow_api_takes(). `patience_ms`: see
 * flow_ask.h; where it does not suffice the operation may fail with ENOENT, and changes no other flow. The thread has
 * no watch that has not paused. */
void modification_operate(struct dpif *, struct dpif_op *, enum dpif_offload_type, unsigned int *patience_ms);

/* What dpcls_lookup() is to find in place of this rule, which may be NULL. Where this thread modifies nothing: it. */
struct dpcls_rule *modification_find(struct dpcls_rule *found);

#endif
