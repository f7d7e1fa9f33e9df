/* See dump_text.h. */
#include <config.h>

#include "shim/dump_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "flow.h"
#include "netlink.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/match.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "shim/megaflow.h"
#include "util.h"

enum { MOST_NESTED = 32 };   /* As many as OVS's own parser goes into. */

struct reader {
    const struct ovsdr_dump_reader *ports;
    struct ofpbuf *actions;
    int depth;
    char *error;
};

static const char *read_list(struct reader *, const char *s);

/* Returns NULL, so that a function that failed can return it. */
static const char *
refuse(struct reader *reader, const char *what, const char *s, size_t length)
{
    if (!reader->error) {
        reader->error = xasprintf("%s: \"%.*s\"", what, (int) length, s);
    }
    return NULL;
}

/* An action ends at the comma or the parenthesis that is not its own. */
static size_t
length_of_action(const char *s)
{
    size_t open = 0, n;

    for (n = 0; s[n]; n++) {
        if (!open && (s[n] == ',' || s[n] == ')')) {
            break;
        }
        open += s[n] == '(';
        open -= s[n] == ')';
    }
    return n;
}

/* What stands in front of a port in the texts that OVS reads. */
static const struct port_place {
    const char *word;
    enum ovsdr_port_role role;
} port_places[] = {
    {"in_port(", OVSDR_PORT_ANY},           {"tnl_pop(", OVSDR_PORT_TUNNEL},
    {"tnl_port(", OVSDR_PORT_TUNNEL},       {"out_port(", OVSDR_PORT_BRIDGE},
    {"tunnel_out_port=", OVSDR_PORT_TUNNEL}, {"output_port=", OVSDR_PORT_ANY},
};

static const struct port_place *
port_place_at(const char *text, const char *s, const char *end)
{
    if (s == text || strchr("(, ", s[-1])) {
        for (size_t i = 0; i < ARRAY_SIZE(port_places); i++) {
            size_t length = strlen(port_places[i].word);

            if ((size_t) (end - s) > length && !strncmp(s, port_places[i].word, length)) {
                return &port_places[i];
            }
        }
    }
    return NULL;
}

/* The text with numbers for the names of ports, NULL if one is none. The caller frees it. */
static char *
with_port_numbers(struct reader *reader, const char *text, size_t length)
{
    const char *end = text + length;
    struct ds numbered = DS_EMPTY_INITIALIZER;

    for (const char *s = text; s < end;) {
        const struct port_place *place = port_place_at(text, s, end);
        size_t name;
        uint32_t number;

        if (!place) {
            ds_put_char(&numbered, *s++);
            continue;
        }
        ds_put_cstr(&numbered, place->word);
        s += strlen(place->word);
        name = strcspn(s, "),/");
        if (!reader->ports->read(reader->ports->aux, s, name, place->role, &number)) {
            refuse(reader, "not a port", s, name);
            ds_destroy(&numbered);
            return NULL;
        }
        ds_put_format(&numbered, "%"PRIu32, number);
        s += name;
    }
    return ds_steal_cstr(&numbered);
}

/* `label`, `tc`, ... fit where they belong. */
static bool
put_push_mpls(struct ofpbuf *actions, const unsigned long long value[5])
{
    struct ovs_action_push_mpls mpls;

    if (value[0] >> 20 || value[1] >> 3 || value[2] >> 8 || value[3] >> 1 || value[4] >> 16) {
        return false;
    }
    mpls.mpls_lse = htonl(value[0] << MPLS_LABEL_SHIFT | value[1] << MPLS_TC_SHIFT | value[2] << MPLS_TTL_SHIFT
                          | value[3] << MPLS_BOS_SHIFT);
    mpls.mpls_ethertype = htons(value[4]);
    nl_msg_put_unspec(actions, OVS_ACTION_ATTR_PUSH_MPLS, &mpls, sizeof mpls);
    return true;
}

static bool
put_hash(struct ofpbuf *actions, uint32_t algorithm, unsigned long long basis)
{
    struct ovs_action_hash hash = {.hash_alg = algorithm, .hash_basis = basis};

    nl_msg_put_unspec(actions, OVS_ACTION_ATTR_HASH, &hash, sizeof hash);
    return basis <= UINT32_MAX;
}

/* Actions that OVS prints and does not read. False: it is none of them. */
static bool
put_unread_action(struct ofpbuf *actions, const char *s, size_t length)
{
    struct ovs_action_push_eth eth;
    unsigned long long value[5];   /* Wide: OVS does not tell what is too much for a narrow one. */
    int n = -1;

    memset(&eth, 0, sizeof eth);
    if (ovs_scan(s, "recirc(0x%llx)%n", &value[0], &n) && n == length && value[0] <= UINT32_MAX) {
        nl_msg_put_u32(actions, OVS_ACTION_ATTR_RECIRC, value[0]);
    } else if (ovs_scan(s, "hash(l4(%llu))%n", &value[0], &n) && n == length) {
        return put_hash(actions, OVS_HASH_ALG_L4, value[0]);
    } else if (ovs_scan(s, "hash(sym_l4(%llu))%n", &value[0], &n) && n == length) {
        return put_hash(actions, OVS_HASH_ALG_SYM_L4, value[0]);
    } else if (ovs_scan(s, "push_mpls(label=%llu,tc=%llu,ttl=%llu,bos=%llu,eth_type=0x%llx)%n",
                        &value[0], &value[1], &value[2], &value[3], &value[4], &n) && n == length) {
        return put_push_mpls(actions, value);
    } else if (ovs_scan(s, "pop_mpls(eth_type=0x%llx)%n", &value[0], &n) && n == length && value[0] <= UINT16_MAX) {
        nl_msg_put_be16(actions, OVS_ACTION_ATTR_POP_MPLS, htons(value[0]));
    } else if (ovs_scan(s, "push_eth(src="ETH_ADDR_SCAN_FMT",dst="ETH_ADDR_SCAN_FMT")%n",
                        ETH_ADDR_SCAN_ARGS(eth.addresses.eth_src), ETH_ADDR_SCAN_ARGS(eth.addresses.eth_dst), &n)
               && n == length) {
        nl_msg_put_unspec(actions, OVS_ACTION_ATTR_PUSH_ETH, &eth, sizeof eth);
    } else if (length == strlen("pop_eth") && !strncmp(s, "pop_eth", length)) {
        nl_msg_put_flag(actions, OVS_ACTION_ATTR_POP_ETH);
    } else if (length == strlen("drop") && !strncmp(s, "drop", length)) {
        /* An empty list is printed so, too. */
        nl_msg_put_u32(actions, OVS_ACTION_ATTR_DROP, 0);
    } else {
        return false;
    }
    return true;
}

/* A word of its own is a port, if it is none of these. */
static bool
is_port(const char *s, size_t length)
{
    static const char *const flags[] = {"pop_vlan", "ct_clear", "ct", "pop_nsh"};

    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        if (length == strlen(flags[i]) && !strncmp(s, flags[i], length)) {
            return false;
        }
    }
    return length && !memchr(s, '(', length);
}

static const char *
read_simple(struct reader *reader, const char *s, size_t length)
{
    uint32_t number;
    char *text;
    int error;

    if (put_unread_action(reader->actions, s, length)) {
        return s + length;
    }
    if (is_port(s, length)) {
        if (!reader->ports->read(reader->ports->aux, s, length, OVSDR_PORT_ANY, &number)) {
            return refuse(reader, "neither a port nor an action", s, length);
        }
        nl_msg_put_u32(reader->actions, OVS_ACTION_ATTR_OUTPUT, number);
        return s + length;
    }
    text = with_port_numbers(reader, s, length);
    if (!text) {
        return NULL;
    }
    /* OVS takes an empty text for an empty list. */
    error = length ? odp_actions_from_string(text, NULL, reader->actions) : EINVAL;
    free(text);
    return error ? refuse(reader, "not an action", s, length) : s + length;
}

static const char *
expect(struct reader *reader, const char *s, const char *text)
{
    if (!s || strncmp(s, text, strlen(text))) {
        return s ? refuse(reader, "a list that ends in another way than it should", s, strlen(s)) : NULL;
    }
    return s + strlen(text);
}

/* Returns `s`, NULL if that is NULL or the attribute has become too long. */
static const char *
end_nested(struct reader *reader, const char *s, size_t start)
{
    if (!s) {
        return NULL;
    }
    if (nl_attr_oversized(reader->actions->size - start - NLA_HDRLEN)) {
        return refuse(reader, "a list that is too long, before", s, strlen(s));
    }
    nl_msg_end_nested(reader->actions, start);
    return s;
}

/* A list as a nested attribute. */
static const char *
read_nested(struct reader *reader, const char *s, uint16_t attribute)
{
    size_t start = nl_msg_start_nested(reader->actions, attribute);

    if (reader->depth == MOST_NESTED) {
        return refuse(reader, "nested too deep", s, strlen(s));
    }
    reader->depth++;
    s = read_list(reader, s);
    reader->depth--;
    return end_nested(reader, s, start);
}

/* OVS prints one decimal. Where that is how some 1/N is printed it is read as that, for 0.0% as some such N: devices do
 * all N from 2 on alike. */
static uint32_t
probability_of(double percentage)
{
    uint32_t n = percentage > 0 ? 100 / percentage + 0.5 : 4096;
    bool is_part = n && fabs(100.0 / n - percentage) <= 0.05;

    return is_part ? UINT32_MAX / n : UINT32_MAX * (percentage / 100);
}

/* `s` is behind "sample(sample=P%,actions(". */
static const char *
read_sample(struct reader *reader, const char *s, double percentage)
{
    size_t start = nl_msg_start_nested(reader->actions, OVS_ACTION_ATTR_SAMPLE);

    nl_msg_put_u32(reader->actions, OVS_SAMPLE_ATTR_PROBABILITY, probability_of(percentage));
    s = expect(reader, read_nested(reader, s, OVS_SAMPLE_ATTR_ACTIONS), "))");
    return end_nested(reader, s, start);
}

/* `s` is behind "check_pkt_len(size=N,gt(". */
static const char *
read_check_pkt_len(struct reader *reader, const char *s, unsigned long long size)
{
    size_t start = nl_msg_start_nested(reader->actions, OVS_ACTION_ATTR_CHECK_PKT_LEN);

    nl_msg_put_u16(reader->actions, OVS_CHECK_PKT_LEN_ATTR_PKT_LEN, size);
    s = expect(reader, read_nested(reader, s, OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_GREATER), "),le(");
    if (s) {
        s = expect(reader, read_nested(reader, s, OVS_CHECK_PKT_LEN_ATTR_ACTIONS_IF_LESS_EQUAL), "))");
    }
    return end_nested(reader, s, start);
}

static const char *
read_action(struct reader *reader, const char *s)
{
    double percentage;
    unsigned long long size;
    int n = -1;

    if (ovs_scan(s, "clone(%n", &n)) {
        return expect(reader, read_nested(reader, s + n, OVS_ACTION_ATTR_CLONE), ")");
    }
    if (ovs_scan(s, "sample(sample=%lf%%,actions(%n", &percentage, &n) && percentage >= 0 && percentage <= 100) {
        return read_sample(reader, s + n, percentage);
    }
    if (ovs_scan(s, "check_pkt_len(size=%llu,gt(%n", &size, &n)) {
        return size <= UINT16_MAX ? read_check_pkt_len(reader, s + n, size)
                                  : refuse(reader, "not a packet's length", s, n - strlen(",gt("));
    }
    return read_simple(reader, s, length_of_action(s));
}

/* Returns where the list ends: at the parenthesis that is not its own, or at the end. */
static const char *
read_list(struct reader *reader, const char *s)
{
    for (;;) {
        s = read_action(reader, s + strspn(s, " "));
        if (!s || *s != ',') {
            return s;
        }
        s++;
    }
}

static bool
match_of_attributes(const struct ofpbuf *key, const struct ofpbuf *mask, struct match *match, char **error)
{
    memset(match, 0, sizeof *match);
    /* The key may lack fields: without -m, those that are not matched on are not printed. Of a mask nothing may be
     * left over: it would be a wider match. */
    if (odp_flow_key_to_flow(key->data, key->size, &match->flow, error) == ODP_FIT_ERROR) {
        return false;
    }
    if (odp_flow_key_to_mask(mask->data, mask->size, &match->wc, &match->flow, error) != ODP_FIT_PERFECT) {
        if (!*error) {
            *error = xstrdup("a match on fields that such packets do not have");
        }
        return false;
    }
    return true;
}

static bool
read_match(struct reader *reader, const char *text, struct ovsdr_megaflow *megaflow)
{
    char *numbered = with_port_numbers(reader, text, strlen(text));
    struct ofpbuf key, mask;
    struct match match;
    char *error = NULL;
    bool ok;

    if (!numbered) {
        return false;
    }
    ofpbuf_init(&key, 0);
    ofpbuf_init(&mask, 0);
    ok = !odp_flow_from_string(numbered, NULL, &key, &mask, &error)
         && match_of_attributes(&key, &mask, &match, &error);
    if (ok) {
        megaflow_from_match(&match, megaflow);
    } else {
        reader->error = error ? error : xstrdup("not a match");
    }
    ofpbuf_uninit(&key);
    ofpbuf_uninit(&mask);
    free(numbered);
    return ok;
}

bool
actions_from_text(const char *text, const struct ovsdr_dump_reader *ports, struct ofpbuf *actions, char **error)
{
    struct reader reader = {.ports = ports, .actions = actions};
    const char *end = read_list(&reader, text);

    if (end && *end) {
        end = refuse(&reader, "a parenthesis too many", end, strlen(end));
    }
    *error = reader.error;
    return end != NULL;
}

bool
megaflow_from_text(const char *match, const char *actions, const struct ovsdr_dump_reader *ports,
                   struct ovsdr_megaflow *megaflow, void **storage, char **error)
{
    struct reader reader = {.ports = ports};
    struct ofpbuf attributes;
    bool ok;

    vlog_set_levels(NULL, VLF_ANY_DESTINATION, VLL_OFF);
    flow_limit_vlans(ports->vlan_limit);
    memset(megaflow, 0, sizeof *megaflow);
    *storage = NULL;
    if (!read_match(&reader, match, megaflow)) {
        *error = reader.error;
        return false;
    }
    ofpbuf_init(&attributes, 0);
    ok = actions_from_text(actions, ports, &attributes, error);
    if (ok) {
        size_t size = attributes.size;

        *storage = ofpbuf_steal_data(&attributes);
        megaflow_from_actions(*storage, size, megaflow);
    }
    ofpbuf_uninit(&attributes);
    return ok;
}
