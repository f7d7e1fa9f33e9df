/* Modifications reach the megaflow that they name.
 *
 * A revalidator names a megaflow by its ufid, but dpif-netdev, when it modifies one, looks the key up as it does with a
 * packet, and takes what it finds first. Megaflows overlap when one was made while the OpenFlow flows asked for more of
 * a packet than they do now. Then it would change the other's actions, and the NIC would go on with the old actions of
 * the one: its packets need not find the other there.
 *
 * So where the look-up finds another, the modification is made once more, and finds the one whose ufid it has.
 */
#ifndef CTRL_SHIM_MODIFICATION_H
#define CTRL_SHIM_MODIFICATION_H

#include <stdbool.h>
#include <stddef.h>

#include "dpif.h"

struct dpcls_rule;

bool is_modification(const struct dpif_op *);

/* dpif_operate(). The thread has no watch that has not paused. */
void modification_operate(struct dpif *, struct dpif_op **, size_t n_ops, enum dpif_offload_type);

/* What dpcls_lookup() is to find in place of this rule, which may be NULL. Where this thread modifies nothing: it. */
struct dpcls_rule *modification_find(struct dpcls_rule *found);

#endif
