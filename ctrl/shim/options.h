/* What operators may choose for all dr ports: other_config of the database's Open_vSwitch table.
 *
 * dr-tunnel-source-port: where a tunnel's outer UDP source port comes from.
 *   "flow"    (default) each megaflow in the NIC has one of its own, where OVS has one for each packet
 *   "exact"   as OVS: megaflows that encapsulate in UDP stay in software, and those that rewrite what OVS hashes and
 *             recirculate
 * dr-tunnel-flags: a match for whether a packet's outer headers had a UDP checksum, which the NIC does not see. OVS has
 * it in each megaflow of a tunnel port. Likewise reserved bits, where the NIC does not see those.
 *   "ignore"  (default) such a megaflow takes packets with and without, and looks at no checksum
 *   "exact"   as OVS: it stays in software
 * A value that is neither is an error that each dr port shows, and works as "exact".
 *
 * Threads: options_set() is the main thread's, options_problem() any's.
 */
#ifndef CTRL_SHIM_OPTIONS_H
#define CTRL_SHIM_OPTIONS_H

#include <stdbool.h>

struct smap;

/* Takes over what the database says now. Megaflows that are known already follow. */
void options_set(const struct smap *other_config);

/* NULL: nothing is wrong. The caller frees it. */
char *options_problem(void);

#endif
