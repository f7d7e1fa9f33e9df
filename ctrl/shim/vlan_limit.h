/* Megaflows and other_config:vlan-limit.
 *
 * The limit says how many tags OVS parses, and so what a megaflow's match means. dpif-netdev parses packets with the
 * new limit as soon as it is set; rules in the NIC would go on with the old meaning. So all megaflows are deleted when
 * the limit changes, as revalidators delete them, and come anew with the next packets.
 *
 * Threads: the main thread, with the gate open: deletions go through it.
 */
#ifndef CTRL_SHIM_VLAN_LIMIT_H
#define CTRL_SHIM_VLAN_LIMIT_H

#include <stdbool.h>

struct dpif;

/* Whether megaflows are there that were made with another limit. */
bool vlan_limit_has_changed(const struct dpif *);

/* Offload is on. */
void vlan_limit_flush_if_changed(struct dpif *);

#endif
