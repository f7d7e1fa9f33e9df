#include <config.h>

#include "ovs_probe.h"

#include <string.h>

#include "dp-packet.h"
#include "flow.h"
#include "netdev-native-tnl.h"
#include "netlink.h"
#include "odp-execute.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "openvswitch/match.h"
#include "openvswitch/nsh.h"
#include "openvswitch/ofpbuf.h"
#include "packets.h"
#include "shim/megaflow.h"
#include "simap.h"
#include "util.h"

const int probe_key_attribute_max = OVS_KEY_ATTR_MAX;
const int probe_action_attribute_max = OVS_ACTION_ATTR_MAX;
const int probe_output = OVS_ACTION_ATTR_OUTPUT;
const int probe_push_vlan = OVS_ACTION_ATTR_PUSH_VLAN;
const int probe_pop_vlan = OVS_ACTION_ATTR_POP_VLAN;
const int probe_set = OVS_ACTION_ATTR_SET;
const int probe_set_masked = OVS_ACTION_ATTR_SET_MASKED;
const int probe_drop = OVS_ACTION_ATTR_DROP;
const int probe_clone = OVS_ACTION_ATTR_CLONE;
const int probe_recirc = OVS_ACTION_ATTR_RECIRC;
const int probe_meter = OVS_ACTION_ATTR_METER;
const int probe_trunc = OVS_ACTION_ATTR_TRUNC;
const int probe_sample = OVS_ACTION_ATTR_SAMPLE;
const int probe_sample_probability = OVS_SAMPLE_ATTR_PROBABILITY;
const int probe_sample_actions = OVS_SAMPLE_ATTR_ACTIONS;
const int probe_check_pkt_len = OVS_ACTION_ATTR_CHECK_PKT_LEN;
const int probe_tunnel_push_attribute = OVS_ACTION_ATTR_TUNNEL_PUSH;
const int probe_tunnel_pop_attribute = OVS_ACTION_ATTR_TUNNEL_POP;
const int probe_key_ethernet = OVS_KEY_ATTR_ETHERNET;
const int probe_key_ipv4 = OVS_KEY_ATTR_IPV4;
const int probe_key_ipv6 = OVS_KEY_ATTR_IPV6;
const int probe_key_tcp = OVS_KEY_ATTR_TCP;
const int probe_key_udp = OVS_KEY_ATTR_UDP;
const int probe_key_encap = OVS_KEY_ATTR_ENCAP;
const int probe_key_tunnel_info = OVS_KEY_ATTR_TUNNEL_INFO;

size_t
probe_flow_size(void)
{
    return sizeof(struct flow);
}

const char *
probe_field_name(size_t offset)
{
    return megaflow_field_name(offset);
}

bool
probe_is_udpif(size_t offset, uint8_t bits)
{
    struct flow flow;

    memset(&flow, 0, sizeof flow);
    *((uint8_t *) &flow + offset) = bits;
    return flow.tunnel.flags == FLOW_TNL_F_UDPIF;
}

void
probe_match_byte(size_t offset, uint8_t value, uint8_t bits, uint16_t eth_type, uint8_t ip_proto,
                 struct ovsdr_megaflow *megaflow)
{
    struct match match;

    memset(&match, 0, sizeof match);
    match.flow.dl_type = htons(eth_type);
    match.flow.nw_proto = ip_proto;
    ((uint8_t *) &match.flow)[offset] |= value;
    ((uint8_t *) &match.wc.masks)[offset] = bits;
    megaflow_from_match(&match, megaflow);
}

void
probe_match_icmpv6(uint8_t type, uint8_t type_mask, size_t offset, uint8_t value, uint8_t bits,
                   struct ovsdr_megaflow *megaflow)
{
    struct match match;

    memset(&match, 0, sizeof match);
    match_set_dl_type(&match, htons(ETH_TYPE_IPV6));
    match_set_nw_proto(&match, IPPROTO_ICMPV6);
    match.flow.tp_src = htons(type);
    match.wc.masks.tp_src = htons(type_mask);
    ((uint8_t *) &match.flow)[offset] |= value;
    ((uint8_t *) &match.wc.masks)[offset] |= bits;
    megaflow_from_match(&match, megaflow);
}

static void
collect(const struct ofpbuf *attrs, uint64_t *attributes)
{
    const struct nlattr *attr;
    size_t left;

    NL_ATTR_FOR_EACH (attr, left, attrs->data, attrs->size) {
        *attributes |= UINT64_C(1) << nl_attr_type(attr);
        if (nl_attr_type(attr) == OVS_KEY_ATTR_ENCAP) {
            struct ofpbuf nested;

            nl_attr_get_nested(attr, &nested);
            collect(&nested, attributes);
        }
    }
}

static bool
match_from_attributes(const struct ofpbuf *key, const struct ofpbuf *mask, struct ovsdr_megaflow *megaflow,
                      uint64_t *attributes)
{
    struct match match;

    memset(&match, 0, sizeof match);
    if (odp_flow_key_to_flow(key->data, key->size, &match.flow, NULL) == ODP_FIT_ERROR
        || odp_flow_key_to_mask(mask->data, mask->size, &match.wc, &match.flow, NULL) == ODP_FIT_ERROR) {
        return false;
    }
    collect(mask, attributes);
    megaflow_from_match(&match, megaflow);
    return true;
}

bool
probe_match_attributes(const void *key, size_t key_size, const void *mask, size_t mask_size,
                       struct ovsdr_megaflow *megaflow)
{
    struct match match;

    memset(&match, 0, sizeof match);
    if (odp_flow_key_to_flow(key, key_size, &match.flow, NULL) == ODP_FIT_ERROR
        || odp_flow_key_to_mask(mask, mask_size, &match.wc, &match.flow, NULL) == ODP_FIT_ERROR) {
        return false;
    }
    megaflow_from_match(&match, megaflow);
    return true;
}

void
probe_match_flow(const void *flow, const void *mask, struct ovsdr_megaflow *megaflow)
{
    struct match match;

    memset(&match, 0, sizeof match);
    memcpy(&match.flow, flow, sizeof match.flow);
    memcpy(&match.wc.masks, mask, sizeof match.wc.masks);
    megaflow_from_match(&match, megaflow);
}

void
probe_limit_vlans(int limit)
{
    flow_limit_vlans(limit);
}

bool
probe_match_text(const char *text, struct ovsdr_megaflow *megaflow, uint64_t *attributes)
{
    struct ofpbuf key, mask;
    char *error = NULL;
    bool ok;

    ofpbuf_init(&key, 0);
    ofpbuf_init(&mask, 0);
    ok = !odp_flow_from_string(text, NULL, &key, &mask, &error)
         && match_from_attributes(&key, &mask, megaflow, attributes);
    free(error);
    ofpbuf_uninit(&key);
    ofpbuf_uninit(&mask);
    return ok;
}

bool
probe_match_nsh(struct ovsdr_megaflow *megaflow, uint64_t *attributes)
{
    struct flow flow, masks;
    struct odp_flow_key_parms parms = {.flow = &flow, .mask = &masks, .support = {.recirc = true}};
    struct ofpbuf key, mask;
    bool ok;

    memset(&flow, 0, sizeof flow);
    memset(&masks, 0, sizeof masks);
    flow.packet_type = htonl(PT_ETH);
    flow.dl_type = htons(ETH_TYPE_NSH);
    flow.nsh.mdtype = NSH_M_TYPE1;
    flow.nsh.path_hdr = htonl(0x12305);
    masks.dl_type = OVS_BE16_MAX;
    masks.nsh.path_hdr = OVS_BE32_MAX;
    ofpbuf_init(&key, 0);
    ofpbuf_init(&mask, 0);
    odp_flow_key_from_flow(&parms, &key);
    parms.key_buf = &key;
    odp_flow_key_from_mask(&parms, &mask);
    ok = match_from_attributes(&key, &mask, megaflow, attributes);
    ofpbuf_uninit(&key);
    ofpbuf_uninit(&mask);
    return ok;
}

size_t
probe_actions_bytes(const char *text, uint8_t *bytes, size_t size)
{
    struct ofpbuf actions;
    size_t length = 0;

    ofpbuf_init(&actions, 0);
    if (!odp_actions_from_string(text, NULL, &actions) && actions.size <= size) {
        length = actions.size;
        memcpy(bytes, actions.data, length);
    }
    ofpbuf_uninit(&actions);
    return length;
}

bool
probe_actions_text(const char *text, struct ovsdr_megaflow *megaflow)
{
    struct ofpbuf actions;
    bool ok;

    ofpbuf_init(&actions, 0);
    ok = !odp_actions_from_string(text, NULL, &actions);
    if (ok) {
        megaflow_from_actions(actions.data, actions.size, megaflow);
    }
    ofpbuf_uninit(&actions);
    return ok;
}

void
probe_actions(const void *actions, size_t size, struct ovsdr_megaflow *megaflow)
{
    megaflow_from_actions(actions, size, megaflow);
}

void
probe_execute(const void *actions, size_t actions_size, uint8_t *bytes, size_t size)
{
    struct dp_packet *packet = dp_packet_clone_data(bytes, size);
    struct dp_packet_batch batch;
    struct flow flow;

    odp_execute_init();
    flow_extract(packet, &flow);
    dp_packet_batch_init_packet(&batch, packet);
    odp_execute_actions(NULL, &batch, false, actions, actions_size, NULL);
    memcpy(bytes, dp_packet_data(packet), size);
    dp_packet_delete(packet);
}

size_t
probe_tunnel_push(const char *text, const uint8_t *inner, size_t inner_size, uint8_t *outer, size_t size)
{
    struct dp_packet *packet = dp_packet_clone_data_with_headroom(inner, inner_size, TNL_PUSH_HEADER_SIZE);
    struct ofpbuf actions;
    size_t made = 0;

    ofpbuf_init(&actions, 0);
    if (!odp_actions_from_string(text, NULL, &actions)) {
        const struct ovs_action_push_tnl *push = nl_attr_get(actions.data);
        int ip_size;

        if (push->tnl_type == OVS_VPORT_TYPE_GRE || push->tnl_type == OVS_VPORT_TYPE_IP6GRE) {
            netdev_tnl_push_ip_header(packet, push->header, push->header_len, &ip_size);
        } else {
            dp_packet_set_rss_hash(packet, 0x12345678);
            netdev_tnl_push_udp_header(NULL, packet, push);
        }
        if (dp_packet_size(packet) <= size) {
            made = dp_packet_size(packet);
            memcpy(outer, dp_packet_data(packet), made);
        }
    }
    ofpbuf_uninit(&actions);
    dp_packet_delete(packet);
    return made;
}

void
probe_tunnel_source_ports(uint16_t first, uint16_t end)
{
    tnl_udp_port_min = first;
    tnl_udp_port_max = end;
}

void
probe_action(uint16_t attribute, uint16_t key_attribute, struct ovsdr_megaflow *megaflow)
{
    static const uint8_t zeros[64];
    struct ofpbuf actions;

    ofpbuf_init(&actions, 0);
    if (attribute == OVS_ACTION_ATTR_SET || attribute == OVS_ACTION_ATTR_SET_MASKED) {
        size_t nested = nl_msg_start_nested(&actions, attribute);

        nl_msg_put_unspec(&actions, key_attribute, zeros, sizeof zeros);
        nl_msg_end_nested(&actions, nested);
    } else {
        nl_msg_put_unspec(&actions, attribute, zeros, sizeof zeros);
    }
    megaflow_from_actions(actions.data, actions.size, megaflow);
    ofpbuf_uninit(&actions);
}
