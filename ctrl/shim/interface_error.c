/* Shows what is wrong with an interface that works as `error` in the database, where `ovs-vsctl show` prints it.
 *
 * vswitchd itself writes that column only while it configures. The daemon is linked with
 * --wrap=ovsrec_interface_set_status: bridge.c calls that with what netdev_get_status() says, in the same transaction,
 * whenever the netdev has changed. */
#include <config.h>

#include <string.h>

#include "shim/netdev_dr.h"
#include "smap.h"
#include "vswitch-idl.h"

void __real_ovsrec_interface_set_status(const struct ovsrec_interface *, const struct smap *);
void __wrap_ovsrec_interface_set_status(const struct ovsrec_interface *, const struct smap *);

void
__wrap_ovsrec_interface_set_status(const struct ovsrec_interface *row, const struct smap *status)
{
    __real_ovsrec_interface_set_status(row, status);
    /* Without a status the interface is not there, and the error says why. */
    if (status && !strcmp(row->type, netdev_dr_class.type)) {
        const char *problem = smap_get(status, NETDEV_DR_PROBLEM);

        /* A configuration that changes the column meanwhile makes vswitchd write the status again. */
        ovsrec_interface_verify_error(row);
        ovsrec_interface_set_error(row, problem);
    }
}
