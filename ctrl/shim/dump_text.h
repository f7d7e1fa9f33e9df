/* A megaflow as dpctl/dump-flows prints it -> struct ovsdr_megaflow, as flow_api.c makes it of the same flow.
 *
 * Model. OVS reads the match, and each action that has no list of actions in it. Lists, ports and what OVS 3.1 prints
 * and cannot read are read here: recirc(0x..), hash, lists that say "drop", MPLS, names of ports in lists.
 *
 * OVS prints a sample's probability with one decimal: where some 1/N is printed so, it is read
 * as that.
 *
 * Not OVS's headers: drcompile, which is C++, includes this one. Threads: one at a time. OVS's log goes silent.
 */
#ifndef CTRL_SHIM_DUMP_TEXT_H
#define CTRL_SHIM_DUMP_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/dr/megaflow.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ovsdr_port_role {
    OVSDR_PORT_ANY,       /* packets come from it or go to it */
    OVSDR_PORT_TUNNEL,    /* of tnl_push and tnl_pop */
    OVSDR_PORT_BRIDGE,    /* by which a tunnel's packets leave: the LOCAL port of a bridge */
};

struct ovsdr_dump_reader {
    /* Gives `number` to the port whose name or number stands in `length` bytes at `text`; false if no port can be
     * called that. Does not throw. */
    bool (*read)(void *aux, const char *text, size_t length, enum ovsdr_port_role, uint32_t *number);
    void *aux;
    int vlan_limit;       /* other_config:vlan-limit of the switch that printed: tags that it parsed; 0: 2 */
};

/* `match` is "recirc_id(0),in_port(vm1),eth(),...", `actions` what stands behind "actions:". The megaflow points into
 * `storage`. False: `error` says what was not understood. The caller frees both. */
bool megaflow_from_text(const char *match, const char *actions, const struct ovsdr_dump_reader *,
                        struct ovsdr_megaflow *, void **storage, char **error);

struct ofpbuf;

/* The actions alone, appended as OVS's attributes. */
bool actions_from_text(const char *actions, const struct ovsdr_dump_reader *, struct ofpbuf *, char **error);

#ifdef __cplusplus
}
#endif
#endif
