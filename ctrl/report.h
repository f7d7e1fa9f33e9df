/* What unixctl commands print. The caller frees the text; NULL: out of memory.
 *
 * `json` is for programs: the same facts as one JSON document.
 */
#ifndef CTRL_REPORT_H
#define CTRL_REPORT_H

#include "ctrl/flow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whose megaflows devices are offered. */
enum ovsdr_offered { OVSDR_OFFERED_NONE, OVSDR_OFFERED_ITS_DEVICE, OVSDR_OFFERED_ALL_DEVICES };

struct ovsdr_datapath_port {
    uint32_t odp_port;
    const char *name, *type;    /* of the interface */
    enum ovsdr_offered offered; /* dr ports to their device, tunnel ports to all */
    uint64_t megaflows;         /* that come in by it */
    uint64_t software_packets;  /* of flows that are not offloaded, or whose actions are not */
};

/* A flow of the datapath that devices were offered, and none has now. */
struct ovsdr_software_flow {
    struct ovsdr_ufid ufid;     /* the megaflow's */
    uint64_t packets;
};

/* The datapath as dpif-netdev knows it. Devices know ports by number, and their own only. */
struct ovsdr_datapath {
    struct ovsdr_datapath_port *ports;
    size_t n_ports;
    struct ovsdr_software_flow *in_software;
    size_t n_in_software;
    uint64_t packets;           /* of all flows that are there now */
};

/* dr/show: per device totals, and domains, tables, matchers, rules and hits. Of `datapath`, the names. */
char *ovsdr_report_devices(const struct ovsdr_datapath *datapath, bool verbose, bool json) OVSDR_NOEXCEPT;

/* dr/graph: the pipelines in the devices, for Graphviz; `device` NULL: all that are open. `known`: there is such a
 * device. If not, the text says which there are. */
char *ovsdr_report_graph(const char *device, bool *known) OVSDR_NOEXCEPT;

/* dr/ports: each port with its traffic and how much of it took the slow path, and each tunnel port. */
char *ovsdr_report_ports(bool json) OVSDR_NOEXCEPT;

/* dr/explain without argument: how many megaflows per reason, those of ports that no device is offered too. */
char *ovsdr_report_reasons(const struct ovsdr_datapath *, bool json) OVSDR_NOEXCEPT;

/* dr/explain UFID: the megaflow's rules, or all reasons why there are none, of each device that knows it; as JSON of
 * the first one, of those that have it offloaded if any has. NULL also if none knows it. */
char *ovsdr_report_megaflow(const struct ovsdr_ufid *, const struct ovsdr_datapath *, bool json) OVSDR_NOEXCEPT;

/* dr/explain UFID of a megaflow from a port that no device is offered. */
char *ovsdr_report_other_port(const struct ovsdr_datapath_port *, bool json) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
