/* Options of an interface of type "dr": options:device, which is required, options:vport, without which the interface
 * is the function itself, options:vlan of such a function, and options:n_rxq.
 *
 * A vport is opened when the options are set, so that what is wrong shows in `ovs-vsctl show`. Other options later open
 * the new vport before they close the old one: when the new one cannot be had, the netdev keeps what it has. A function
 * is one port, so that its own must be closed first, and is gone then. It comes to the same: the bridge deletes a port
 * whose options are refused.
 */
#include <config.h>

#include <errno.h>

#include "ctrl/flow.h"
#include "openvswitch/vlog.h"
#include "netdev-provider.h"
#include "shim/copies.h"
#include "shim/finish.h"
#include "shim/netdev_dr_parts.h"
#include "shim/port_del.h"
#include "smap.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(netdev_dr_options);

/* The uplink's number, which people should not have to know. */
#define UPLINK_VPORT 65535

struct dr_options {
    const char *device;     /* The caller's. */
    bool function;          /* Not a vport. */
    uint16_t vport;         /* 0 for the function itself. */
    uint16_t vlan;          /* 0: none. */
    unsigned int n_rxq;
};

int
netdev_dr_get_config(const struct netdev *netdev, struct smap *args)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        smap_add(args, "device", dev->device);
        if (!dev->function) {
            smap_add_format(args, "vport", "%u", dev->vport);
        }
        if (dev->vlan) {
            smap_add_format(args, "vlan", "%u", dev->vlan);
        }
        if (netdev->n_rxq > 1) {
            smap_add_format(args, "n_rxq", "%d", netdev->n_rxq);
        }
    }
    ovs_rwlock_unlock(&dev->lock);
    return 0;
}

static char *
parse_vport(const char *text, uint16_t *vport)
{
    unsigned int value;

    if (!strcmp(text, "uplink")) {
        *vport = UPLINK_VPORT;
        return NULL;
    }
    if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text)) {
        return xasprintf("options:vport=%s is not a number (0 to 65535, or \"uplink\")", text);
    }
    if (strlen(text) > 5 || !str_to_uint(text, 10, &value) || value > UINT16_MAX) {
        return xasprintf("options:vport=%s is out of range (0 to 65535, or \"uplink\")", text);
    }
    *vport = value;
    return NULL;
}

static char *
parse_vlan(const char *text, uint16_t *vlan)
{
    unsigned int value;

    if (strlen(text) > 4 || strspn(text, "0123456789") != strlen(text) || !str_to_uint(text, 10, &value)
        || value < 1 || value > 4094) {
        return xasprintf("options:vlan=%s is not a number from 1 to 4094", text);
    }
    *vlan = value;
    return NULL;
}

static char *
parse_n_rxq(const char *text, unsigned int *n_rxq)
{
    if (strlen(text) > 2 || strspn(text, "0123456789") != strlen(text) || !str_to_uint(text, 10, n_rxq)
        || *n_rxq < 1 || *n_rxq > OVSDR_MAX_RECEIVE_QUEUES) {
        return xasprintf("options:n_rxq=%s is not a number from 1 to %d", text, OVSDR_MAX_RECEIVE_QUEUES);
    }
    return NULL;
}

/* NULL, or what is wrong; the caller frees it. */
static char *
parse_options(const struct smap *args, struct dr_options *options)
{
    const struct smap_node *node;
    const char *vport_text, *vlan_text;
    char *message = NULL;

    SMAP_FOR_EACH (node, args) {
        if (strcmp(node->key, "device") && strcmp(node->key, "vport") && strcmp(node->key, "vlan")
            && strcmp(node->key, "n_rxq")) {
            return xasprintf("unknown option %s (an interface of type=dr has device, vport, vlan and n_rxq)",
                             node->key);
        }
    }
    options->device = smap_get(args, "device");
    if (!options->device || !options->device[0]) {
        return xstrdup("options:device is missing (the RDMA device, such as mlx5_0)");
    }
    vport_text = smap_get(args, "vport");
    vlan_text = smap_get(args, "vlan");
    options->function = !vport_text;
    options->vport = options->vlan = 0;
    if (vport_text && vlan_text) {
        return xstrdup("options:vlan is for a function that is a port itself, without options:vport; a vport's packets "
                       "get tags from OpenFlow");
    }
    if (vport_text) {
        message = parse_vport(vport_text, &options->vport);
    } else if (vlan_text) {
        message = parse_vlan(vlan_text, &options->vlan);
    }
    return message ? message : parse_n_rxq(smap_get_def(args, "n_rxq", "1"), &options->n_rxq);
}

/* With the receive queues that are in force, which may be in use: reconfigure() changes their number. */
static int
open_port(struct netdev_dr *dev, const struct dr_options *wanted, struct ovsdr_port **port, char **message)
{
    struct ovsdr_port_options options = {
        .interface = netdev_get_name(&dev->up),
        .device = wanted->device,
        .function = wanted->function,
        .vport = wanted->vport,
        .vlan = wanted->vlan,
        .receive_queues = dev->up.n_rxq,
        .segments = (finished_features() & NETDEV_TX_OFFLOAD_TCP_TSO) != 0,
        .odp_port = OVSDR_NO_ODP_PORT,
        .policed = policer_is_active(&dev->policer),
    };
    int error = ovsdr_port_open(&options, port, message);

    if (error == EBUSY && netdev_dr_release_removed(wanted->device, wanted->vport)) {
        free(*message);
        error = ovsdr_port_open(&options, port, message);
    }
    if (!error) {
        copies_start();
    }
    return error;
}

/* Not when the vport has gone: to open it anew then says so. */
static bool
is_in_force(const struct netdev_dr *dev, const struct dr_options *wanted)
{
    return dev->port && dev->vport == wanted->vport && dev->function == wanted->function && dev->vlan == wanted->vlan
           && !strcmp(dev->device, wanted->device) && !ovsdr_port_is_gone(dev->port);
}

/* Whether the port in force is where the wanted one is to be: a function is one port, with one VLAN or another. */
static bool
is_in_the_way(const struct netdev_dr *dev, const struct dr_options *wanted)
{
    return dev->port && dev->function && wanted->function && !strcmp(dev->device, wanted->device);
}

/* The rules that keep a function down go with its port. */
static bool
is_function_down(const struct netdev_dr *dev)
{
    struct ovsdr_port_state state;

    ovsdr_port_get_state(dev->port, &state);
    return !state.admin_up;
}

static int
open_function_again(struct netdev_dr *dev, const struct dr_options *wanted, struct ovsdr_port **port, char **message)
{
    bool down = is_function_down(dev);
    int error;

    port_del_flows_go(&dev->up);
    netdev_dr_close_port(dev);
    error = open_port(dev, wanted, port, message);
    if (!error && down) {
        error = ovsdr_port_set_admin_state(*port, false);
        if (error) {
            ovsdr_port_close(*port);
        }
    }
    return error;
}

static void
set_n_rxq_problem(struct netdev_dr *dev, char *problem)
    OVS_REQ_WRLOCK(dev->lock)
{
    free(dev->n_rxq_problem);
    dev->n_rxq_problem = problem;
}

/* Asks again, too, for what was refused before. */
static void
ask_for_n_rxq(struct netdev_dr *dev, unsigned int n_rxq)
{
    unsigned int in_force = dev->up.n_rxq;

    if (dev->n_rxq == n_rxq && !dev->n_rxq_problem) {
        return;
    }
    dev->n_rxq = n_rxq;
    if (n_rxq == in_force) {
        ovs_rwlock_wrlock(&dev->lock);
        set_n_rxq_problem(dev, NULL);
        ovs_rwlock_unlock(&dev->lock);
    }
    netdev_request_reconfigure(&dev->up);
}

/* A number that cannot be had leaves that which is in force. */
static void
set_receive_queues(struct netdev_dr *dev)
    OVS_REQ_WRLOCK(dev->lock)
{
    char *message = NULL, *problem = NULL;
    int error = dev->port ? ovsdr_port_set_receive_queues(dev->port, dev->n_rxq, &message) : 0;

    if (error) {
        problem = xasprintf("options:n_rxq=%u: %s", dev->n_rxq, message ? message : ovs_strerror(error));
        VLOG_WARN("%s: %s", netdev_get_name(&dev->up), problem);
        dev->n_rxq = dev->up.n_rxq;
    }
    set_n_rxq_problem(dev, problem);
    dev->up.n_rxq = dev->n_rxq;
    atomic_store_relaxed(&dev->pmd_receives, dev->n_rxq > 1);
    free(message);
}

/* Nobody receives while dpif-netdev calls this, which it also does when its threads come or go: a refusal that was told
 * stays told then. Never an error: that would take the port out of its bridge. */
int
netdev_dr_reconfigure(struct netdev *netdev)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    unsigned int before = netdev->n_rxq;

    if (dev->n_rxq != before) {
        ovs_rwlock_wrlock(&dev->lock);
        set_receive_queues(dev);
        ovs_rwlock_unlock(&dev->lock);
    }
    netdev_change_seq_changed(netdev);
    if (before > 1 && netdev->n_rxq == 1) {
        /* Once more, so that PMD threads end that no port needs now. */
        netdev_request_reconfigure(netdev);
    }
    return 0;
}

int
netdev_dr_set_config(struct netdev *netdev, const struct smap *args, char **errp)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    const char *name = netdev_get_name(netdev);
    struct ovsdr_port *port, *old_port;
    char *message, *old_device;
    struct dr_options options;
    const char *device;
    int error;

    message = parse_options(args, &options);
    if (message) {
        VLOG_WARN_BUF(errp, "%s: %s", name, message);
        free(message);
        return EINVAL;
    }
    device = options.device;
    ask_for_n_rxq(dev, options.n_rxq);
    /* Only this thread changes what is in force. */
    if (is_in_force(dev, &options)) {
        return 0;
    }
    error = is_in_the_way(dev, &options) ? open_function_again(dev, &options, &port, &message)
                                         : open_port(dev, &options, &port, &message);
    if (error) {
        VLOG_WARN_BUF(errp, "%s: %s", name, message ? message : ovs_strerror(error));
        free(message);
        return error;
    }

    if (dev->port && strcmp(dev->device, device)) {
        port_del_flows_go(netdev);
    }
    ovs_rwlock_wrlock(&dev->lock);
    old_port = dev->port;
    old_device = dev->device;
    dev->port = port;
    dev->device = xstrdup(device);
    dev->function = options.function;
    dev->vport = options.vport;
    dev->vlan = options.vlan;
    ovs_rwlock_unlock(&dev->lock);

    /* The datapath's number moves over: it must not name two vports. */
    if (old_port) {
        if (strcmp(old_device, device)) {
            ovsdr_flow_flush(old_port);
        }
        ovsdr_port_close(old_port);
    }
    free(old_device);
    if (dev->odp_port != OVSDR_NO_ODP_PORT) {
        netdev_dr_set_odp_port(dev, dev->odp_port);
    }
    netdev_dr_tell_notice(dev);
    netdev_dr_changed(dev);
    return 0;
}
