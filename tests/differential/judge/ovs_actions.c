#include <config.h>

#include "tests/differential/judge/ovs_actions.h"

#include <netinet/ip6.h>
#include <string.h>

#include "odp-netlink.h"
#include "packets.h"
#include "util.h"

static struct nlattr *
inside(const struct nlattr *attr)
{
    return CONST_CAST(struct nlattr *, (const struct nlattr *) nl_attr_get(attr));
}

/* Of samples and tnl_push. */
typedef void visit_func(const struct nlattr *action);

static void visit_all(const struct nlattr *actions, size_t size, visit_func *);

/* Of attributes of which some are lists of actions. */
static void
visit_lists(const struct nlattr *action, uint32_t lists, visit_func *visit)
{
    const struct nlattr *attr;
    size_t left;

    NL_NESTED_FOR_EACH (attr, left, action) {
        if (lists >> nl_attr_type(attr) & 1) {
            visit_all(inside(attr), nl_attr_get_size(attr), visit);
        }
    }
}

static void
visit_all(const struct nlattr *actions, size_t size, visit_func *visit)
{
    const uint32_t of_lengths = 1u << OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_GREATER
                                | 1u << OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_LESS_EQUAL;
    const struct nlattr *action;
    size_t left;

    NL_ATTR_FOR_EACH (action, left, actions, size) {
        switch (nl_attr_type(action)) {
        case OVS_ACTION_ATTR_CLONE: visit_all(inside(action), nl_attr_get_size(action), visit); break;
        case OVS_ACTION_ATTR_CHECK_PKT_LEN: visit_lists(action, of_lengths, visit); break;
        case OVS_ACTION_ATTR_SAMPLE:
            visit(action);
            visit_lists(action, 1u << OVS_SAMPLE_ATTR_ACTIONS, visit);
            break;
        case OVS_ACTION_ATTR_TUNNEL_PUSH: visit(action); break;
        default: break;
        }
    }
}

static void
sample_all(const struct nlattr *action)
{
    if (nl_attr_type(action) == OVS_ACTION_ATTR_SAMPLE) {
        const struct nlattr *probability = nl_attr_find_nested(action, OVS_SAMPLE_ATTR_PROBABILITY);
        const uint32_t all = UINT32_MAX;

        memcpy(inside(probability), &all, sizeof all);
    }
}

void
ovs_sample_all(struct nlattr *actions, size_t size)
{
    visit_all(actions, size, sample_all);
}

/* IPv6's payload length, which OVS fills in with each packet. */
static void
clear_payload_length(const struct nlattr *tunnel_push)
{
    struct ovs_action_push_tnl *push = (void *) inside(tunnel_push);
    uint8_t *header = (uint8_t *) push->header;
    ovs_be16 eth_type;

    memcpy(&eth_type, header + offsetof(struct eth_header, eth_type), sizeof eth_type);
    if (push->header_len >= ETH_HEADER_LEN + IPV6_HEADER_LEN && eth_type == htons(ETH_TYPE_IPV6)) {
        memset(header + ETH_HEADER_LEN + offsetof(struct ip6_hdr, ip6_plen), 0, sizeof(ovs_be16));
    }
}

static void
clear_unset(const struct nlattr *action)
{
    if (nl_attr_type(action) == OVS_ACTION_ATTR_TUNNEL_PUSH) {
        clear_payload_length(action);
    }
}

void
ovs_clear_unset(struct nlattr *actions, size_t size)
{
    visit_all(actions, size, clear_unset);
}
