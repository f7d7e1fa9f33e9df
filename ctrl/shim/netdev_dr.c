/* The netdev class "dr": life cycle and properties. See netdev_dr.h; packets are in netdev_dr_io.c, options in
 * netdev_dr_options.c. */
#include <config.h>

#include "shim/netdev_dr.h"

#include <errno.h>
#include <stdio.h>

#include "ctrl/flow.h"
#include "if-notifier.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "shim/finish.h"
#include "shim/netdev_dr_parts.h"
#include "shim/options.h"
#include "smap.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(netdev_dr);

struct ovs_mutex netdev_dr_list_mutex = OVS_MUTEX_INITIALIZER;
struct ovs_list netdev_dr_list = OVS_LIST_INITIALIZER(&netdev_dr_list);

bool
is_netdev_dr(const struct netdev *netdev)
{
    return netdev_get_class(netdev) == &netdev_dr_class;
}

bool
netdev_dr_is_pmd(const struct netdev *netdev)
{
    return netdev_dr_cast(netdev)->n_rxq > 1 || netdev->n_rxq > 1;
}

static struct netdev *
dr_alloc(void)
{
    struct netdev_dr *dev = xzalloc(sizeof *dev);

    return &dev->up;
}

static int
dr_construct(struct netdev *netdev)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);

    ovs_rwlock_init(&dev->lock);
    netdev->ol_flags |= finished_features();
    dev->odp_port = OVSDR_NO_ODP_PORT;
    dev->n_rxq = 1;
    atomic_init(&dev->pmd_receives, false);
    policer_init(&dev->policer);
    atomic_init(&dev->tx_oversize, 0);
    ovs_mutex_lock(&netdev_dr_list_mutex);
    ovs_list_push_back(&netdev_dr_list, &dev->node);
    ovs_mutex_unlock(&netdev_dr_list_mutex);
    return 0;
}

static void
dr_destruct(struct netdev *netdev)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);

    ovs_mutex_lock(&netdev_dr_list_mutex);
    ovs_list_remove(&dev->node);
    ovs_mutex_unlock(&netdev_dr_list_mutex);
    netdev_dr_close_port(dev);
    policer_destroy(&dev->policer);
    free(dev->n_rxq_problem);
    free(dev->qos_type);
    ovs_rwlock_destroy(&dev->lock);
}

static void
dr_dealloc(struct netdev *netdev)
{
    free(netdev_dr_cast(netdev));
}

void
netdev_dr_close_port(struct netdev_dr *dev)
{
    struct ovsdr_port *port;
    char *device;

    ovs_rwlock_wrlock(&dev->lock);
    port = dev->port;
    device = dev->device;
    dev->port = NULL;
    dev->device = NULL;
    ovs_rwlock_unlock(&dev->lock);

    if (port) {
        ovsdr_flow_flush(port);     /* Whoever deletes them later finds no port to ask. */
    }
    ovsdr_port_close(port);
    free(device);
}

void
netdev_dr_set_odp_port(struct netdev_dr *dev, uint32_t odp_port)
{
    int error = 0;

    ovs_rwlock_wrlock(&dev->lock);
    dev->odp_port = odp_port;
    if (dev->port) {
        error = ovsdr_port_set_odp_port(dev->port, odp_port);
    }
    ovs_rwlock_unlock(&dev->lock);
    if (error) {
        VLOG_ERR("%s: nothing comes in from the vport: %s", netdev_get_name(&dev->up), ovs_strerror(error));
    }
}

bool
netdev_dr_is_last_of_device(struct netdev_dr *dev)
{
    bool is_last;

    ovs_rwlock_rdlock(&dev->lock);
    is_last = dev->port && ovsdr_port_is_last_of_device(dev->port);
    ovs_rwlock_unlock(&dev->lock);
    return is_last;
}

void
netdev_dr_close_entrance(struct netdev_dr *dev)
{
    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        ovsdr_port_close_entrance(dev->port);
    }
    ovs_rwlock_unlock(&dev->lock);
}

/* What there is to say of the port goes to the log. */
void
netdev_dr_tell_notice(struct netdev_dr *dev)
{
    static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 10);
    char *notice = NULL;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        notice = ovsdr_port_take_notice(dev->port);
    }
    ovs_rwlock_unlock(&dev->lock);
    if (notice) {
        VLOG_WARN_RL(&rl, "%s: %s", netdev_get_name(&dev->up), notice);
        free(notice);
    }
}

/* Carrier, MAC, MTU or admin state changed, by the device or by us. */
void
netdev_dr_changed(struct netdev_dr *dev)
{
    struct ovsdr_port_state state = {.link_up = false};

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        ovsdr_port_get_state(dev->port, &state);
    }
    ovs_rwlock_unlock(&dev->lock);
    if (state.link_up != dev->link_up) {
        dev->link_up = state.link_up;
        dev->carrier_resets++;
    }
    netdev_change_seq_changed(&dev->up);
}

/* When a slow path that has stopped is to be started again, in time_msec()'s milliseconds; LLONG_MAX: none has. Main
 * thread only. */
static long long int next_restart = LLONG_MAX;

/* True if the interface's vport has gone. */
static bool
refresh(struct netdev_dr *dev)
{
    bool changed = false;
    bool gone = false;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        long long int restart_in;

        changed = ovsdr_port_refresh(dev->port);
        gone = changed && ovsdr_port_is_gone(dev->port);
        restart_in = ovsdr_port_restart_in_ms(dev->port);
        if (restart_in >= 0) {
            next_restart = MIN(next_restart, time_msec() + restart_in);
        }
    }
    ovs_rwlock_unlock(&dev->lock);
    netdev_dr_tell_notice(dev);
    if (changed) {
        netdev_dr_changed(dev);
    }
    return gone;
}

/* A reconfiguration sets each interface's options anew: that fails where the vport has gone, and OVS then takes the
 * port out of its bridge and shows the error, as it does when an interface of the kernel's goes; and it opens the
 * interfaces that could not be opened before. */
static void
dr_run(const struct netdev_class *class OVS_UNUSED)
{
    bool changes = ovsdr_changes_take();
    bool reconfigure = ovsdr_missing_vports_check(changes);
    struct netdev_dr *dev;

    if (changes || time_msec() >= next_restart) {
        next_restart = LLONG_MAX;
        ovs_mutex_lock(&netdev_dr_list_mutex);
        LIST_FOR_EACH (dev, node, &netdev_dr_list) {
            reconfigure |= refresh(dev);
        }
        ovs_mutex_unlock(&netdev_dr_list_mutex);
    }
    if (reconfigure) {
        if_notifier_manual_report();
    }
}

static void
dr_wait(const struct netdev_class *class OVS_UNUSED)
{
    int timeout = ovsdr_missing_vports_timeout();
    int fd = ovsdr_changes_fd();

    if (fd >= 0) {
        poll_fd_wait(fd, POLLIN);
    }
    if (next_restart != LLONG_MAX) {
        poll_timer_wait_until(next_restart);
    }
    if (timeout >= 0) {
        poll_timer_wait(timeout);
    }
}

/* The vport's state as last asked of the device; ENODEV while there is none. */
static int
get_state(const struct netdev *netdev, struct ovsdr_port_state *state)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    int error = ENODEV;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        ovsdr_port_get_state(dev->port, state);
        error = 0;
    }
    ovs_rwlock_unlock(&dev->lock);
    return error;
}

static int
dr_set_etheraddr(struct netdev *netdev, const struct eth_addr mac)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    struct ovsdr_port_state state;
    int error = get_state(netdev, &state);

    if (error || !memcmp(state.mac, mac.ea, sizeof mac.ea)) {
        return error;
    }
    ovs_rwlock_rdlock(&dev->lock);
    error = dev->port ? ovsdr_port_set_mac(dev->port, mac.ea) : ENODEV;
    ovs_rwlock_unlock(&dev->lock);
    netdev_dr_tell_notice(dev);
    if (!error) {
        netdev_dr_changed(dev);
    }
    return error;
}

static int
dr_get_etheraddr(const struct netdev *netdev, struct eth_addr *mac)
{
    struct ovsdr_port_state state;
    int error = get_state(netdev, &state);

    if (!error) {
        memcpy(mac->ea, state.mac, sizeof mac->ea);
    }
    return error;
}

static int
dr_get_mtu(const struct netdev *netdev, int *mtu)
{
    struct ovsdr_port_state state;
    int error = get_state(netdev, &state);

    *mtu = error ? 0 : state.mtu;
    return error;
}

/* EOPNOTSUPP where only the kernel's tools set it: netdev.c is silent then, the notice is not, and the bridge goes on
 * with the MTU there is. */
static int
dr_set_mtu(struct netdev *netdev, int mtu)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    struct ovsdr_port_state state;
    int error = get_state(netdev, &state);

    if (error) {
        return error;
    }
    if (mtu <= 0 || mtu > UINT16_MAX) {
        return EINVAL;
    }
    ovs_rwlock_rdlock(&dev->lock);
    error = dev->port ? ovsdr_port_set_mtu(dev->port, mtu) : ENODEV;
    ovs_rwlock_unlock(&dev->lock);
    netdev_dr_tell_notice(dev);
    if (!error && state.mtu != mtu) {
        netdev_dr_changed(dev);
    }
    return error;
}

static int
dr_get_carrier(const struct netdev *netdev, bool *carrier)
{
    struct ovsdr_port_state state;
    int error = get_state(netdev, &state);

    *carrier = !error && state.link_up;
    return error;
}

static long long int
dr_get_carrier_resets(const struct netdev *netdev)
{
    return netdev_dr_cast(netdev)->carrier_resets;
}

static int
dr_get_features(const struct netdev *netdev, enum netdev_features *current, enum netdev_features *advertised,
                enum netdev_features *supported, enum netdev_features *peer)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    uint32_t speed = 0;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        speed = ovsdr_port_speed(dev->port);
    }
    ovs_rwlock_unlock(&dev->lock);

    *current = (speed == 10000 ? NETDEV_F_10GB_FD
                : speed == 40000 ? NETDEV_F_40GB_FD
                : speed == 100000 ? NETDEV_F_100GB_FD
                : speed ? NETDEV_F_OTHER : 0);
    *advertised = *supported = *peer = 0;
    return 0;
}

/* The NIC polices nothing yet: a port that is policed has its megaflows in software, where they cost what they cost,
 * and the limit holds. `dr/explain` says why they are there. */
static int
dr_set_policing(struct netdev *netdev, uint32_t kbits_rate, uint32_t kbits_burst, uint32_t kpkts_rate,
                uint32_t kpkts_burst)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    struct policing limits = {
        .kbits_rate = kbits_rate, .kbits_burst = kbits_burst, .kpkts_rate = kpkts_rate, .kpkts_burst = kpkts_burst,
    };
    bool active = policer_set(&dev->policer, &limits);

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        ovsdr_port_set_policed(dev->port, active);
    }
    ovs_rwlock_unlock(&dev->lock);
    return 0;
}

/* The bridge calls this at each reconfiguration, with "" for none, and tells nobody of an error: the interface does.
 * linux-noop asks for nothing. */
static int
dr_set_qos(struct netdev *netdev, const char *type, const struct smap *details OVS_UNUSED)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    const char *wanted = type[0] && strcmp(type, "linux-noop") ? type : NULL;

    if (!nullable_string_is_equal(dev->qos_type, wanted)) {
        ovs_rwlock_wrlock(&dev->lock);
        free(dev->qos_type);
        dev->qos_type = nullable_xstrdup(wanted);
        ovs_rwlock_unlock(&dev->lock);
        if (wanted) {
            VLOG_WARN("%s: qos type=%s has no effect", netdev_get_name(netdev), wanted);
        }
        netdev_change_seq_changed(netdev);
    }
    return wanted ? EOPNOTSUPP : 0;
}

static char *
qos_problem(const struct netdev_dr *dev)
{
    return dev->qos_type
        ? xasprintf("qos type=%s has no effect: a dr port has no queues to shape what leaves through it. Limit what "
                    "comes in (ingress_policing_rate, ingress_policing_kpkts_rate) or clear the port's qos",
                    dev->qos_type)
        : NULL;
}

/* Where the device's function is, for dpif-netdev's choice of PMD threads; the soft NIC is nowhere in particular. */
static int
dr_get_numa_id(const struct netdev *netdev)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    int numa_id = -1;
    FILE *file = NULL;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->device) {
        char *name = xasprintf("/sys/class/infiniband/%s/device/numa_node", dev->device);

        file = fopen(name, "r");
        free(name);
    }
    ovs_rwlock_unlock(&dev->lock);
    if (file) {
        if (fscanf(file, "%d", &numa_id) != 1) {
            numa_id = -1;
        }
        fclose(file);
    }
    return MAX(numa_id, 0);
}

static void
add_problem(struct ds *problems, char *problem)
{
    if (problem) {
        ds_put_format(problems, "%s%s", problems->length ? "; " : "", problem);
        free(problem);
    }
}

static int
dr_get_status(const struct netdev *netdev, struct smap *status)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    int error = ENODEV;
    struct ds problems = DS_EMPTY_INITIALIZER;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->port) {
        smap_add(status, "driver_name", "ovs-dr");
        smap_add(status, "device", dev->device);
        if (dev->function) {
            smap_add(status, "mode", "nic");
        } else {
            smap_add_format(status, "vport", "%u", dev->vport);
        }
        add_problem(&problems, ovsdr_port_problem(dev->port));
        add_problem(&problems, nullable_xstrdup(dev->n_rxq_problem));
        add_problem(&problems, qos_problem(dev));
        add_problem(&problems, options_problem());
        if (problems.length) {
            smap_add(status, NETDEV_DR_PROBLEM, ds_cstr(&problems));
        }
        error = 0;
    }
    ovs_rwlock_unlock(&dev->lock);
    ds_destroy(&problems);
    return error;
}

/* Up and down are the vport's administrative state: down, the NIC moves nothing to it or from it, offloaded or not.
 * Promiscuous mode, which the datapath sets on each port, is no state of the vport: it must not fail with that. */
static int
dr_update_flags(struct netdev *netdev, enum netdev_flags off, enum netdev_flags on, enum netdev_flags *old_flags)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    struct ovsdr_port_state state;
    enum netdev_flags wanted;
    int error = get_state(netdev, &state);

    if (error) {
        return error;
    }
    if ((off | on) & ~(NETDEV_UP | NETDEV_PROMISC)) {
        return EINVAL;
    }
    *old_flags = dev->flags | (state.admin_up ? NETDEV_UP : 0);
    wanted = (*old_flags & ~off) | on;
    if (wanted == *old_flags) {
        return 0;
    }
    if ((wanted ^ *old_flags) & NETDEV_UP) {
        ovs_rwlock_rdlock(&dev->lock);
        error = dev->port ? ovsdr_port_set_admin_state(dev->port, wanted & NETDEV_UP) : ENODEV;
        ovs_rwlock_unlock(&dev->lock);
        netdev_dr_tell_notice(dev);
        if (error) {
            return error;
        }
    }
    dev->flags = wanted & ~NETDEV_UP;
    netdev_dr_changed(dev);
    return 0;
}

const struct netdev_class netdev_dr_class = {
    .type = "dr",
    .is_pmd = false,                /* But see netdev_dr_is_pmd(). */
    .run = dr_run,
    .wait = dr_wait,
    .alloc = dr_alloc,
    .construct = dr_construct,
    .destruct = dr_destruct,
    .dealloc = dr_dealloc,
    .get_config = netdev_dr_get_config,
    .set_config = netdev_dr_set_config,
    .send = netdev_dr_send,
    .send_wait = netdev_dr_send_wait,
    .set_etheraddr = dr_set_etheraddr,
    .get_etheraddr = dr_get_etheraddr,
    .get_mtu = dr_get_mtu,
    .set_mtu = dr_set_mtu,
    .get_carrier = dr_get_carrier,
    .get_carrier_resets = dr_get_carrier_resets,
    .get_ifindex = netdev_dr_get_ifindex,
    .get_stats = netdev_dr_get_stats,
    .get_custom_stats = netdev_dr_get_custom_stats,
    .get_features = dr_get_features,
    .set_policing = dr_set_policing,
    .set_qos = dr_set_qos,
    .get_numa_id = dr_get_numa_id,
    .reconfigure = netdev_dr_reconfigure,
    .get_status = dr_get_status,
    .update_flags = dr_update_flags,
    .rxq_alloc = netdev_dr_rxq_alloc,
    .rxq_construct = netdev_dr_rxq_construct,
    .rxq_destruct = netdev_dr_rxq_destruct,
    .rxq_dealloc = netdev_dr_rxq_dealloc,
    .rxq_recv = netdev_dr_rxq_recv,
    .rxq_wait = netdev_dr_rxq_wait,
    .rxq_drain = netdev_dr_rxq_drain,
};
