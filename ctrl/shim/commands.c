/* unixctl commands: arguments here, texts in ctrl/report.cpp. They run in the main thread. */
#include <config.h>

#include "shim/commands.h"

#include <stdlib.h>
#include <string.h>

#include "ctrl/copies.h"
#include "ctrl/mirror.h"
#include "ctrl/report.h"
#include "dpif.h"
#include "odp-util.h"
#include "shim/datapath.h"
#include "shim/mega_ufid.h"
#include "shim/metrics.h"
#include "unixctl.h"
#include "util.h"

/* What a command takes. */
enum {
    JSON = 1 << 0,
    VERBOSE = 1 << 1,
    UFID = 1 << 2,
    DEVICE = 1 << 3,
};

struct options {
    bool verbose, json;
    const char *name;    /* the ufid or the device, or NULL */
};

/* False after an error reply. */
static bool
parse(struct unixctl_conn *conn, int argc, const char *argv[], unsigned int takes, struct options *options)
{
    *options = (struct options) {.name = NULL};
    for (int i = 1; i < argc; i++) {
        if (takes & JSON && (!strcmp(argv[i], "-j") || !strcmp(argv[i], "--json"))) {
            options->json = true;
        } else if (takes & VERBOSE && (!strcmp(argv[i], "-v") || !strcmp(argv[i], "--verbose"))) {
            options->verbose = true;
        } else if (takes & (UFID | DEVICE) && argv[i][0] != '-' && !options->name) {
            options->name = argv[i];
        } else {
            char *message = xasprintf("%s: unknown argument %s", argv[0], argv[i]);

            unixctl_command_reply_error(conn, message);
            free(message);
            return false;
        }
    }
    return true;
}

static void
reply(struct unixctl_conn *conn, char *text)
{
    if (text) {
        unixctl_command_reply(conn, text);
    } else {
        unixctl_command_reply_error(conn, "out of memory");
    }
    free(text);
}

static void
dr_show(struct unixctl_conn *conn, int argc, const char *argv[], void *aux OVS_UNUSED)
{
    struct options options;

    if (parse(conn, argc, argv, JSON | VERBOSE, &options)) {
        struct ovsdr_datapath datapath = datapath_ports();

        reply(conn, ovsdr_report_devices(&datapath, options.verbose, options.json));
        datapath_free(&datapath);
    }
}

static void
dr_ports(struct unixctl_conn *conn, int argc, const char *argv[], void *aux OVS_UNUSED)
{
    struct options options;

    if (parse(conn, argc, argv, JSON, &options)) {
        reply(conn, ovsdr_report_ports(options.json));
    }
}

static void
dr_copies(struct unixctl_conn *conn, int argc, const char *argv[], void *aux OVS_UNUSED)
{
    struct options options;

    if (parse(conn, argc, argv, JSON, &options)) {
        reply(conn, ovsdr_report_copies(options.json));
    }
}

static void
dr_mirror(struct unixctl_conn *conn, int argc, const char *argv[], void *aux OVS_UNUSED)
{
    struct options options;

    if (parse(conn, argc, argv, JSON, &options)) {
        reply(conn, ovsdr_report_mirrors(options.json));
    }
}

static void
dr_graph(struct unixctl_conn *conn, int argc, const char *argv[], void *aux OVS_UNUSED)
{
    struct options options;
    bool known = false;
    char *text;

    if (!parse(conn, argc, argv, DEVICE, &options)) {
        return;
    }
    text = ovsdr_report_graph(options.name, &known);
    if (text && !known) {
        unixctl_command_reply_error(conn, text);
        free(text);
    } else {
        reply(conn, text);
    }
}

/* People have the datapath flow's ufid, devices the megaflow's. */
static ovs_u128
mega_ufid_of(const ovs_u128 *ufid)
{
    ovs_u128 mega_ufid;
    struct dpif *dpif;
    bool found = false;

    if (!dpif_open("ovs-netdev", "netdev", &dpif)) {
        found = mega_ufid_find(dpif, ufid, &mega_ufid);
        dpif_close(dpif);
    }
    return found ? mega_ufid : *ufid;
}

static void
explain_ufid(struct unixctl_conn *conn, const struct options *options)
{
    const struct ovsdr_datapath_port *in_port;
    struct ovsdr_datapath datapath;
    ovs_u128 ufid, mega_ufid;
    struct ovsdr_ufid key;
    char *text;

    if (odp_ufid_from_string(options->name, &ufid) <= 0) {
        unixctl_command_reply_error(conn, "not a ufid: give one as dpctl/dump-flows -m prints it");
        return;
    }
    mega_ufid = mega_ufid_of(&ufid);
    key = (struct ovsdr_ufid) {.value = {mega_ufid.u64.lo, mega_ufid.u64.hi}};
    datapath = datapath_ports();
    text = ovsdr_report_megaflow(&key, &datapath, options->json);
    in_port = text ? NULL : datapath_in_port(&datapath, &ufid);
    if (in_port && in_port->offered == OVSDR_OFFERED_NONE) {
        text = ovsdr_report_other_port(in_port, options->json);
    }
    if (text) {
        unixctl_command_reply(conn, text);
    } else {
        unixctl_command_reply_error(conn, "no device knows such a flow: it is gone, or other_config:hw-offload was "
                                          "off when it came");
    }
    free(text);
    datapath_free(&datapath);
}

static void
dr_explain(struct unixctl_conn *conn, int argc, const char *argv[], void *aux OVS_UNUSED)
{
    struct options options;

    if (!parse(conn, argc, argv, JSON | UFID, &options)) {
        return;
    }
    if (options.name) {
        explain_ufid(conn, &options);
    } else {
        struct ovsdr_datapath datapath = datapath_with_megaflows();

        reply(conn, ovsdr_report_reasons(&datapath, options.json));
        datapath_free(&datapath);
    }
}

static void
dr_metrics(struct unixctl_conn *conn, int argc OVS_UNUSED, const char *argv[] OVS_UNUSED, void *aux OVS_UNUSED)
{
    reply(conn, metrics_text());
}

void
commands_register(void)
{
    unixctl_command_register("dr/show", "[-v] [-j]", 0, 2, dr_show, NULL);
    unixctl_command_register("dr/graph", "[device]", 0, 1, dr_graph, NULL);
    unixctl_command_register("dr/copies", "[-j]", 0, 1, dr_copies, NULL);
    unixctl_command_register("dr/mirror", "[-j]", 0, 1, dr_mirror, NULL);
    unixctl_command_register("dr/ports", "[-j]", 0, 1, dr_ports, NULL);
    unixctl_command_register("dr/explain", "[ufid] [-j]", 0, 2, dr_explain, NULL);
    unixctl_command_register("dr/metrics", "", 0, 0, dr_metrics, NULL);
}
