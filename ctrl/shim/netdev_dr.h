/* The netdev class "dr", for the shim's own files.
 *
 * An interface of this class is one vport of a device that offload/ drives:
 *
 *     ovs-vsctl add-port br0 vf1 -- set interface vf1 type=dr options:device=mlx5_0 options:vport=1
 *
 * or, without a vport, the function that the device is, if that manages no eSwitch (docs/nic-mode.md).
 *
 * Its packets that no rule in the NIC took come up by the vport's slow-path queue, and what the switch sends goes down
 * by it. Statistics are the vport's: traffic that never left the NIC is in them.
 *
 * With options:n_rxq above 1 its slow path has as many receive queues, and OVS's PMD threads poll them; otherwise the
 * main thread receives. What n_rxq asks for is in force once dpif-netdev has called reconfigure().
 *
 * Threads: the main thread configures and runs; send and the flow API come from any thread. `lock` protects
 * `port`: users share it, configuration owns it.
 */
#ifndef CTRL_SHIM_NETDEV_DR_H
#define CTRL_SHIM_NETDEV_DR_H

#include <stdbool.h>

#include "ctrl/port.h"
#include "netdev-provider.h"
#include "openvswitch/list.h"
#include "openvswitch/thread.h"
#include "shim/policer.h"

struct netdev_dr {
    struct netdev up;
    struct ovs_list node;           /* In all of the class; main thread only but for its lock. */

    struct ovs_rwlock lock;
    struct ovsdr_port *port;        /* NULL until configured. */
    char *device;                   /* The options in force; NULL with `port`. */
    bool function;                  /* The device's function itself, not a vport; `vport` is 0. */
    uint16_t vport;
    uint16_t vlan;                  /* Outside of such a function; 0: none. */
    unsigned int n_rxq;             /* Asked for; up.n_rxq is in force. Main thread. */
    char *n_rxq_problem;            /* Why the option's number was refused; NULL if it is in force, or will be. */
    char *qos_type;                 /* That the port was given, and which has no effect; NULL: none. */
    atomic_bool pmd_receives;       /* In force: PMD threads receive, not the main thread. */
    uint32_t odp_port;              /* OVSDR_NO_ODP_PORT outside of a datapath. */
    unsigned int waited_in;         /* The number of the main thread's last sleep in which the port waited. */
    int waited_for;                 /* The descriptor that it waited for. */

    enum netdev_flags flags;        /* Those that the vport does not hold. */
    long long int carrier_resets;
    bool link_up;                   /* When last looked at, to count resets. */
    struct policer policer;         /* Of what is received. */
    atomic_ullong tx_oversize;      /* Frames longer than the MTU allows. */
};

extern const struct netdev_class netdev_dr_class;

/* The key of netdev_get_status() that says what does not work although the interface does. */
#define NETDEV_DR_PROBLEM "problem"

bool is_netdev_dr(const struct netdev *);

/* netdev_is_pmd(): PMD threads poll the interface, or are to from the next reconfiguration of the datapath on. It stays
 * so when a single queue is asked for, until the device has granted it: dpif-netdev ends threads that no port needs
 * before it calls reconfigure(). Main thread only. */
bool netdev_dr_is_pmd(const struct netdev *);

static inline struct netdev_dr *
netdev_dr_cast(const struct netdev *netdev)
{
    return CONTAINER_OF(netdev, struct netdev_dr, up);
}

/* The datapath's number of the interface, which a port that is configured later inherits. */
void netdev_dr_set_odp_port(struct netdev_dr *, uint32_t odp_port);

/* Whether no other port of its device is open. */
bool netdev_dr_is_last_of_device(struct netdev_dr *);

/* Lets nothing in from the vport until it has a datapath's number again. */
void netdev_dr_close_entrance(struct netdev_dr *);

#endif
