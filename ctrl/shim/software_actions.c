/* See software_actions.h. */
#include <config.h>

#include "shim/software_actions.h"

#include "netlink.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "packets.h"
#include "util.h"

/* USER_ACTION_COOKIE_UNSPEC: it is no userspace action, or none that tells. */
static uint16_t
cookie_type(const struct nlattr *action)
{
    const struct nlattr *userdata;
    struct user_action_cookie cookie;

    if (nl_attr_type(action) != OVS_ACTION_ATTR_USERSPACE) {
        return USER_ACTION_COOKIE_UNSPEC;
    }
    userdata = nl_attr_find_nested(action, OVS_USERSPACE_ATTR_USERDATA);
    if (!userdata || nl_attr_get_size(userdata) != sizeof cookie) {
        return USER_ACTION_COOKIE_UNSPEC;
    }
    memcpy(&cookie, nl_attr_get(userdata), sizeof cookie);
    return cookie.type;
}

bool
is_userspace_beside(const struct nlattr *action)
{
    uint16_t type = cookie_type(action);

    return type != USER_ACTION_COOKIE_SLOW_PATH && type != USER_ACTION_COOKIE_UNSPEC;
}

static const char *
sampler_name(uint16_t type)
{
    switch (type) {
    case USER_ACTION_COOKIE_SFLOW: return "sflow";
    case USER_ACTION_COOKIE_FLOW_SAMPLE: return "flow_sample";
    case USER_ACTION_COOKIE_IPFIX: return "ipfix";
    case USER_ACTION_COOKIE_CONTROLLER: return "controller";
    default: return NULL;
    }
}

const char *
sampler_of_work(const struct nlattr *work, size_t size)
{
    const struct nlattr *action;
    const char *name;
    size_t left;

    NL_ATTR_FOR_EACH (action, left, work, size) {
        name = sampler_name(cookie_type(action));
        if (name) {
            return name;
        }
    }
    return NULL;
}

static bool
has_size(const struct nlattr *attr, size_t size)
{
    return nl_attr_get_size(attr) == size;
}

static bool
is_trunc(const struct nlattr *action)
{
    return nl_attr_type(action) == OVS_ACTION_ATTR_TRUNC && has_size(action, sizeof(struct ovs_action_trunc));
}

static bool
is_meter(const struct nlattr *action)
{
    return nl_attr_type(action) == OVS_ACTION_ATTR_METER && has_size(action, sizeof(uint32_t));
}

/* Of headers, by actions that leave the packet's being cut for the next output. */
static bool
changes_packet(const struct nlattr *action)
{
    switch (nl_attr_type(action)) {
    case OVS_ACTION_ATTR_SET:
    case OVS_ACTION_ATTR_SET_MASKED:
    case OVS_ACTION_ATTR_PUSH_VLAN:
    case OVS_ACTION_ATTR_POP_VLAN: return true;
    default: return false;
    }
}

static bool
takes_packet(const struct nlattr *action)
{
    return is_userspace_beside(action)
           || (nl_attr_type(action) == OVS_ACTION_ATTR_OUTPUT && has_size(action, sizeof(odp_port_t)));
}

/* The first action that takes the packet behind the trunc, up to which it is only changed. */
static const struct nlattr *
end_of_truncated(const struct nlattr *trunc, size_t size)
{
    const struct nlattr *action;
    size_t left;

    NL_ATTR_FOR_EACH (action, left, trunc, size) {
        if (takes_packet(action)) {
            return action;
        }
        if (action != trunc && !changes_packet(action)) {
            break;
        }
    }
    return NULL;
}

/* The only action behind the meter, if it is userspace's. */
static const struct nlattr *
end_of_metered(const struct nlattr *meter, size_t size)
{
    const struct nlattr *action, *last = NULL;
    size_t left, n = 0;

    NL_ATTR_FOR_EACH (action, left, meter, size) {
        last = action;
        n++;
    }
    return !left && n == 2 && is_userspace_beside(last) ? last : NULL;
}

size_t
software_work_size(const struct nlattr *list, size_t size, const struct nlattr **last)
{
    const struct nlattr *end = (is_userspace_beside(list) ? list
                                : is_trunc(list) ? end_of_truncated(list, size)
                                : is_meter(list) ? end_of_metered(list, size)
                                : NULL);
    size_t work = end ? (const char *) nl_attr_next(end) - (const char *) list : 0;

    /* OVS does only lists whose attributes are all padded. */
    if (!work || work > size) {
        return 0;
    }
    *last = end;
    return work;
}

bool
is_cut_output(const struct nlattr *work, size_t size, uint32_t *cut_at, uint32_t *port)
{
    const struct ovs_action_trunc *trunc;
    const struct nlattr *output;

    if (size != NL_ATTR_SIZE(sizeof *trunc) + NL_ATTR_SIZE(sizeof *port) || !is_trunc(work)) {
        return false;
    }
    output = nl_attr_next(work);
    if (nl_attr_type(output) != OVS_ACTION_ATTR_OUTPUT || !has_size(output, sizeof *port)) {
        return false;
    }
    trunc = nl_attr_get(work);
    *cut_at = MAX(trunc->max_len, ETH_HEADER_LEN);
    *port = nl_attr_get_u32(output);
    return true;
}

bool
is_software_work(const struct nlattr *list, size_t size)
{
    const struct nlattr *action;
    bool any = false;
    size_t left;

    NL_ATTR_FOR_EACH (action, left, list, size) {
        if (is_userspace_beside(action)) {
            any = true;
        } else if (!is_trunc(action) && !is_meter(action)) {
            return false;
        }
    }
    return any && !left && size % NLA_ALIGNTO == 0;
}

size_t
meter_in_front(const struct nlattr *work, size_t size, uint32_t *number)
{
    const struct nlattr *action;
    size_t behind, left;

    if (size < NLA_HDRLEN || !is_meter(work)) {
        return 0;
    }
    *number = nl_attr_get_u32(work);
    /* Two of the same are one rate: both are software's. */
    NL_ATTR_FOR_EACH (action, left, work, size) {
        if (action != work && is_meter(action) && nl_attr_get_u32(action) == *number) {
            return 0;
        }
    }
    behind = (const char *) nl_attr_next(work) - (const char *) work;
    return behind < size ? behind : 0;
}

uint32_t
one_of_how_many(uint32_t probability)
{
    uint32_t n = probability ? UINT32_MAX / probability : 0;

    return n && UINT32_MAX / n == probability ? n : 0;
}
