/* See one_datapath.h. */
#include <config.h>

#include "shim/one_datapath.h"

#include <errno.h>
#include <string.h>

#include "openvswitch/vlog.h"
#include "shim/real.h"

VLOG_DEFINE_THIS_MODULE(one_datapath);

int
one_datapath_create(const char *name, const char *type, struct dpif **dpif)
{
    if (type && !strcmp(type, "netdev") && strcmp(name, "ovs-netdev")) {
        VLOG_WARN("%s@%s: there is one datapath of this type, that of the bridges; offload could not tell the ports of "
                  "two apart", type, name);
        *dpif = NULL;
        return EOPNOTSUPP;
    }
    return real_dpif_create(name, type, dpif);
}
