/* OVS's match and actions as a struct ovsdr_megaflow.
 *
 * Translation and validation are one pass: what is carried over is cleared in a copy of the mask, and each bit that is
 * left over has its field named in `unsupported_match`. A match for zero of metadata (ct_state, skb_mark, ...) is no
 * match: no packet in the NIC has any. The tunnel's is zero for all packets that came through none.
 *
 * Actions are carried over in order; one that has no place is there as OVSDR_ACTION_UNSUPPORTED under its name,
 * "malformed" where OVS itself could not read it. A set becomes one OVSDR_ACTION_SET for each header field that OVS
 * would write, none where its mask is empty. clone, and check_pkt_len whose two lists are equal, become a copy; what
 * is nested in them counts as actions do. An explicit drop ends its list: the copy, or all. What software does to a
 * copy (software_actions.h) is one OVSDR_ACTION_SOFTWARE, and so is a sample of nothing else, if OVS takes exactly one
 * of N packets; a sample of all is a copy.
 *
 * Pure functions: any thread, no device, no allocation that outlives the call.
 */
#ifndef CTRL_SHIM_MEGAFLOW_H
#define CTRL_SHIM_MEGAFLOW_H

#include <stddef.h>

#include "offload/dr/megaflow.h"

struct match;
struct nlattr;

void megaflow_from_match(const struct match *, struct ovsdr_megaflow *);

/* `actions` are those of struct dpif_flow_put, and outlive the megaflow: tunnel headers and software's actions lie in
 * there. No actions, or an explicit drop first: n_actions 0. Reads nothing behind `actions_len`, whatever lengths the
 * attributes claim. */
void megaflow_from_actions(const struct nlattr *actions, size_t actions_len, struct ovsdr_megaflow *);

/* Name of the field of struct flow that holds byte `offset`. */
const char *megaflow_field_name(size_t offset);

#endif
