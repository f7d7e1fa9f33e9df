/* dpif-netdev's look-up of packets in its megaflows.
 *
 * It looks a whole batch up among the megaflows of the first packet's port, whose masks leave the port out: all packets
 * of a batch have one. With misses in tunnel ports' tables they have not: a packet that hw_miss_packet_recover() has
 * taken out of a tunnel stands beside others of the uplink, or of another tunnel, and would be taken for one of them.
 *
 * So what a packet finds there counts only if it is its own port's. If not, dpif-netdev looks that packet up again, by
 * itself, as it does with each that has found nothing before it makes an upcall.
 */
#ifndef CTRL_SHIM_CLASSIFIER_H
#define CTRL_SHIM_CLASSIFIER_H

#include <stdbool.h>
#include <stddef.h>

struct dpcls;
struct dpcls_rule;
struct netdev_flow_key;

/* dpcls_lookup(): whether all keys have found a rule. */
bool classifier_lookup(struct dpcls *, const struct netdev_flow_key *keys[], struct dpcls_rule **rules, size_t n,
                       int *n_lookups);

#endif
