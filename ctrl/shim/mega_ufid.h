/* The megaflow's ufid of a datapath flow: one for each megaflow of each thread.
 *
 * dpif-netdev names a flow twice: by `ufid`, which users read in dpctl/dump-flows, and by `mega_ufid`, which it gives
 * to flow-API providers and by which it knows what is offloaded. OVS makes the second one of `key & mask` without
 * the mask, so that two megaflows with other masks share one: {tos=0/0xfc} and {tos any}. We add the mask.
 *
 * We also add the thread. OVS means a megaflow that several PMD threads have to be offloaded once. Then each of these
 * flows has its statistics, and the first one that is deleted takes it out of the NIC for all. With a name of its own
 * each has a rule and a counter of its own. One of two equal rules gets the packets; the flow whose rule gets none ends
 * when it has been idle.
 *
 * OVS's hash function is not told the mask. But when dpif-netdev adds a flow (dp_netdev_flow_add()), it first calls
 * flow_wc_map() with the flow of its struct match, then makes the ufid, and calls neither function in between. Nobody
 * else calls flow_wc_map(): the next hash of a struct flow in the same thread is that ufid. All other hashes are as OVS
 * makes them.
 *
 * The mask is taken as the classifier takes it: without fields that this kind of packet does not have.
 */
#ifndef CTRL_SHIM_MEGA_UFID_H
#define CTRL_SHIM_MEGA_UFID_H

#include <stdbool.h>
#include <stddef.h>

#include "openvswitch/types.h"

struct dpif;
struct flow;
struct flowmap;

/* After flow_wc_map(): `flow` is that of a struct match, which stays as it is until the ufid is made. */
void mega_ufid_note_match(const struct flow *, const struct flowmap *);

/* odp_flow_key_hash(). */
void mega_ufid_hash(const void *key, size_t size, ovs_u128 *hash);

/* False if no dr port has a flow with this ufid. Any thread that does not watch (flow_watch.h). */
bool mega_ufid_find(struct dpif *, const ovs_u128 *ufid, ovs_u128 *mega_ufid);

#endif
