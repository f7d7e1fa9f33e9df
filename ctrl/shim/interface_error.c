/* Shows what is wrong with an interface that works as `error` in the database, where `ovs-vsctl show` prints it.
 *
 * vswitchd itself writes that column only while it configures. The daemon is linked with
 * --wrap=ovsrec_interface_set_status: bridge.c calls that with what netdev_get_status() says, in the same transaction,
 * whenever the netdev has changed.
 *
 * It is linked with --wrap=ovsrec_interface_set_error, too. Whenever bridge.c configures anything it clears all errors,
 * and writes each status again in the next transaction. The database's answer to the first has not come by then: to
 * write what seems to be there already is no write, and a transaction without writes does not verify anything. The
 * error would be lost. So what is cleared becomes what the status says.
 *
 * The status of an interface that is created is written in the configuration's own transaction, which bridge.c neither
 * waits for nor repeats. Nothing may be verified there: where the configuration before wrote an error that vswitchd has
 * not got back yet, the database would drop all of the transaction. So the daemon is linked with --wrap for the first
 * call of bridge_reconfigure() and the first one behind it, too. In between the netdev is marked as changed instead, so
 * that the next transaction writes the status again, and verifies. */
#include <config.h>

#include <string.h>

#include "ctrl/mirror.h"
#include "ofproto/ofproto.h"
#include "shim/netdev_dr.h"
#include "shim/netdev_drmirror.h"
#include "smap.h"
#include "util.h"
#include "vswitch-idl.h"

void __real_ovsrec_interface_set_status(const struct ovsrec_interface *, const struct smap *);
void __wrap_ovsrec_interface_set_status(const struct ovsrec_interface *, const struct smap *);
void __real_ovsrec_interface_set_error(const struct ovsrec_interface *, const char *error);
void __wrap_ovsrec_interface_set_error(const struct ovsrec_interface *, const char *error);
void __real_ofproto_set_flow_limit(unsigned limit);
void __wrap_ofproto_set_flow_limit(unsigned limit);
void __real_ovsrec_open_vswitch_set_cur_cfg(const struct ovsrec_open_vswitch *, int64_t cur_cfg);
void __wrap_ovsrec_open_vswitch_set_cur_cfg(const struct ovsrec_open_vswitch *, int64_t cur_cfg);

/* Main thread only. Stays set where the database has no row to tell, and so no interface either. */
static bool configuring;

void
__wrap_ofproto_set_flow_limit(unsigned limit)
{
    configuring = true;
    __real_ofproto_set_flow_limit(limit);
}

void
__wrap_ovsrec_open_vswitch_set_cur_cfg(const struct ovsrec_open_vswitch *row, int64_t cur_cfg)
{
    configuring = false;
    __real_ovsrec_open_vswitch_set_cur_cfg(row, cur_cfg);
}

/* The key of the status that says what is wrong; NULL: the interface's type has none. */
static const char *
key_of_problem(const struct ovsrec_interface *row)
{
    return !strcmp(row->type, netdev_dr_class.type) ? NETDEV_DR_PROBLEM
           : !strcmp(row->type, netdev_drmirror_class.type) ? OVSDR_MIRROR_PROBLEM
           : NULL;
}

static void
have_status_written_again(const char *name)
{
    struct netdev *netdev = netdev_from_name(name);

    if (netdev) {
        netdev_change_seq_changed(netdev);
        netdev_close(netdev);
    }
}

void
__wrap_ovsrec_interface_set_status(const struct ovsrec_interface *row, const struct smap *status)
{
    const char *key = key_of_problem(row);
    char *before = key ? nullable_xstrdup(smap_get(&row->status, key)) : NULL;

    __real_ovsrec_interface_set_status(row, status);
    if (key && status) {
        /* A configuration that changes the column meanwhile makes vswitchd write the status again. */
        if (configuring) {
            have_status_written_again(row->name);
        } else {
            ovsrec_interface_verify_error(row);
        }
        __real_ovsrec_interface_set_error(row, smap_get(status, key));
    } else if (before && nullable_string_is_equal(row->error, before)) {
        /* The interface is not there any more. Another error says why; this one was about it. */
        __real_ovsrec_interface_set_error(row, NULL);
    }
    free(before);
}

void
__wrap_ovsrec_interface_set_error(const struct ovsrec_interface *row, const char *error)
{
    const char *key = key_of_problem(row);

    __real_ovsrec_interface_set_error(row, !error && key ? smap_get(&row->status, key) : error);
}
