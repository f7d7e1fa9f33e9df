#include <config.h>

#include "tests/unit/tools/dump_probe.h"

#include "netlink.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/ofpbuf.h"

static char *
print(const struct ofpbuf *actions)
{
    struct ds printed = DS_EMPTY_INITIALIZER;

    format_odp_actions(&printed, actions->data, actions->size, NULL);
    return ds_steal_cstr(&printed);
}

char *
probe_print_actions(const char *text, const struct ovsdr_dump_reader *ports, char **error)
{
    struct ofpbuf actions;
    char *printed;

    ofpbuf_init(&actions, 0);
    printed = actions_from_text(text, ports, &actions, error) ? print(&actions) : NULL;
    ofpbuf_uninit(&actions);
    return printed;
}

char *
probe_print_empty_clone(bool with_drop)
{
    struct ofpbuf actions;
    size_t start;
    char *printed;

    ofpbuf_init(&actions, 0);
    start = nl_msg_start_nested(&actions, OVS_ACTION_ATTR_CLONE);
    if (with_drop) {
        nl_msg_put_u32(&actions, OVS_ACTION_ATTR_DROP, 0);
    }
    nl_msg_end_nested(&actions, start);
    printed = print(&actions);
    ofpbuf_uninit(&actions);
    return printed;
}
