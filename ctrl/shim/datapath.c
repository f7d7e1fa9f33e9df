/* See datapath.h. */
#include <config.h>

#include "shim/datapath.h"

#include "ctrl/tunnel_port.h"
#include "dpif.h"
#include "flow.h"
#include "netlink.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "openvswitch/ofpbuf.h"
#include "shim/flow_api.h"
#include "shim/flow_watch.h"
#include "shim/netdev_dr.h"
#include "shim/real.h"
#include "util.h"

/* Flows whose in_port is none of the ports: a packet that has none, or whose port has just gone. */
#define NO_PORT "none"

static struct dpif *
open_datapath(void)
{
    struct dpif *dpif;

    return dpif_open("ovs-netdev", "netdev", &dpif) ? NULL : dpif;
}

static enum ovsdr_offered
offered_to(odp_port_t odp_port, const char *type)
{
    struct ovsdr_tunnel_port tunnel;

    if (!strcmp(type, netdev_dr_class.type)) {
        return OVSDR_OFFERED_ITS_DEVICE;
    }
    return ovsdr_tunnel_port_get(odp_to_u32(odp_port), &tunnel) ? OVSDR_OFFERED_ALL_DEVICES : OVSDR_OFFERED_NONE;
}

static void
add_port(struct ovsdr_datapath *datapath, size_t *allocated, odp_port_t odp_port, const char *name, const char *type)
{
    if (datapath->n_ports == *allocated) {
        datapath->ports = x2nrealloc(datapath->ports, allocated, sizeof *datapath->ports);
    }
    datapath->ports[datapath->n_ports++] = (struct ovsdr_datapath_port) {
        .odp_port = odp_to_u32(odp_port),
        .name = xstrdup(name),
        .type = xstrdup(type),
        .offered = offered_to(odp_port, type),
    };
}

static struct ovsdr_datapath
ports_of(const struct dpif *dpif)
{
    struct ovsdr_datapath datapath = {.n_ports = 0};
    struct dpif_port_dump dump;
    struct dpif_port port;
    size_t allocated = 0;

    DPIF_PORT_FOR_EACH (&port, &dump, dpif) {
        add_port(&datapath, &allocated, port.port_no, port.name, port.type);
    }
    add_port(&datapath, &allocated, ODPP_NONE, NO_PORT, NO_PORT);
    return datapath;
}

struct ovsdr_datapath
datapath_ports(void)
{
    struct ovsdr_datapath datapath = {.n_ports = 0};
    struct dpif *dpif = open_datapath();

    if (dpif) {
        datapath = ports_of(dpif);
        dpif_close(dpif);
    }
    return datapath;
}

void
datapath_free(struct ovsdr_datapath *datapath)
{
    for (size_t i = 0; i < datapath->n_ports; i++) {
        free(CONST_CAST(char *, datapath->ports[i].name));
        free(CONST_CAST(char *, datapath->ports[i].type));
    }
    free(datapath->ports);
    free(datapath->in_software);
}

/* The last one, NO_PORT, stands for all that is not known. */
static struct ovsdr_datapath_port *
find_port(const struct ovsdr_datapath *datapath, const struct dpif_flow *flow)
{
    const struct nlattr *in_port = nl_attr_find__(flow->key, flow->key_len, OVS_KEY_ATTR_IN_PORT);
    size_t i = 0;

    while (i + 1 < datapath->n_ports && !(in_port && datapath->ports[i].odp_port == nl_attr_get_u32(in_port))) {
        i++;
    }
    return &datapath->ports[i];
}

/* What devices know of a flow. */
struct in_devices {
    bool offered;
    ovs_u128 mega_ufid;
    uint64_t packets;           /* While it was in one, perhaps earlier. */
};

/* One flow, so that its megaflow's ufid is known. False: there are no more. */
static bool
next_flow(struct dpif_flow_dump_thread *thread, struct dpif_flow *flow, struct in_devices *in_devices)
{
    struct flow_watch watch;
    int n;

    flow_watch_begin(&watch);
    n = real_dpif_flow_dump_next(thread, flow, 1);
    *in_devices = (struct in_devices) {
        .offered = watch.netdev != NULL, .mega_ufid = watch.mega_ufid, .packets = watch.stats.n_packets,
    };
    flow_api_end_watch(&watch);
    return n > 0;
}

static void
add_software_flow(struct ovsdr_datapath *datapath, size_t *allocated, const ovs_u128 *mega_ufid, uint64_t packets)
{
    if (datapath->n_in_software == *allocated) {
        datapath->in_software = x2nrealloc(datapath->in_software, allocated, sizeof *datapath->in_software);
    }
    datapath->in_software[datapath->n_in_software++] = (struct ovsdr_software_flow) {
        .ufid = {.value = {mega_ufid->u64.lo, mega_ufid->u64.hi}}, .packets = packets,
    };
}

/* Its packets are marked in the NIC, and software does what it says. */
static bool
is_partial(const struct dpif_flow *flow)
{
    return flow->attrs.offloaded && flow->attrs.dp_layer && !strcmp(flow->attrs.dp_layer, "ovs");
}

/* Each thread's own ones, as dpctl/dump-flows and the devices have them, equal ones of two threads too. */
static void
count_megaflows(struct ovsdr_datapath *datapath, struct dpif *dpif)
{
    struct dpif_flow_dump *dump = real_dpif_flow_dump_create(dpif, false, NULL);
    struct dpif_flow_dump_thread *thread = dpif_flow_dump_thread_create(dump);
    struct in_devices in_devices;
    struct dpif_flow flow;
    size_t allocated = 0;

    while (next_flow(thread, &flow, &in_devices)) {
        struct ovsdr_datapath_port *port = find_port(datapath, &flow);
        uint64_t software = flow.stats.n_packets - MIN(flow.stats.n_packets, in_devices.packets);

        port->megaflows++;
        datapath->packets += flow.stats.n_packets;
        if (!flow.attrs.offloaded || is_partial(&flow)) {
            port->software_packets += software;
        }
        if (!flow.attrs.offloaded && in_devices.offered) {
            add_software_flow(datapath, &allocated, &in_devices.mega_ufid, software);
        }
    }
    dpif_flow_dump_thread_destroy(thread);
    real_dpif_flow_dump_destroy(dump);
}

struct ovsdr_datapath
datapath_with_megaflows(void)
{
    struct ovsdr_datapath datapath = {.n_ports = 0};
    struct dpif *dpif = open_datapath();

    if (dpif) {
        datapath = ports_of(dpif);
        count_megaflows(&datapath, dpif);
        dpif_close(dpif);
    }
    return datapath;
}

const struct ovsdr_datapath_port *
datapath_in_port(const struct ovsdr_datapath *datapath, const ovs_u128 *ufid)
{
    const struct ovsdr_datapath_port *port = NULL;
    struct dpif *dpif = open_datapath();
    struct dpif_flow flow;
    uint64_t stub[4096 / 8];
    struct ofpbuf buffer;

    if (!dpif) {
        return NULL;
    }
    ofpbuf_use_stub(&buffer, stub, sizeof stub);
    if (datapath->n_ports && !dpif_flow_get(dpif, NULL, 0, ufid, PMD_ID_NULL, &buffer, &flow)) {
        port = find_port(datapath, &flow);
    }
    ofpbuf_uninit(&buffer);
    dpif_close(dpif);
    return port;
}
