/* Tunnel ports of the userspace datapath: VXLAN, Geneve and GRE.
 *
 * The datapath has one port for all OpenFlow ports that receive alike (vxlan_sys_4789), with a number and a name of its
 * own. In OVS's map of ports the netdev of the OpenFlow port that came first stands for it: that netdev may have been
 * removed since, may have been given another UDP port, and then stands for two ports. So what a port is, devices learn
 * when it is added to the datapath, and not from the netdev; and dpif-netdev tells the flow-API provider neither of a
 * port's first megaflow nor of its end, since it means the datapath's own netdev of the port, which offloads nothing.
 *
 * Tunnel ports of other datapaths are none of ours.
 */
#ifndef CTRL_SHIM_TUNNEL_PORT_H
#define CTRL_SHIM_TUNNEL_PORT_H

#include <stdbool.h>

#include "openvswitch/types.h"

struct dp_packet;
struct dpif;
struct netdev;

/* Whether tunnel ports of this type of datapath are. The type is normalized; NULL: no datapath's. */
bool tunnel_port_is_ours(const char *dpif_type);

/* Whether this netdev stands for a tunnel port, or will. Any thread. */
bool is_tunnel_port(const struct netdev *);

/* The datapath's port for what an OpenFlow port with this netdev receives. False: there is none, or it is none of ours.
 * Any thread. */
bool tunnel_port_of(const struct netdev *, odp_port_t *);

/* The datapath has the port, or has it no more. Main thread. */
void tunnel_port_added(const struct dpif *, const struct netdev *, odp_port_t);
void tunnel_port_deleted(const struct dpif *, odp_port_t);

/* Does to a packet that the NIC did not get through a tunnel port's table what OVS's tnl_pop does. False: the port is
 * not there, or is no port for such a packet, or the outer headers are not right; the packet is freed then. Any thread
 * that may receive packets. */
bool tunnel_port_pop(odp_port_t, struct dp_packet *);

#endif
