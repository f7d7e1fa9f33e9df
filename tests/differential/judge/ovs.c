#include <config.h>

#include "tests/differential/judge/ovs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "classifier.h"
#include "dp-packet.h"
#include "flow.h"
#include "hash.h"
#include "netdev-vport.h"
#include "netdev.h"
#include "netlink.h"
#include "odp-execute.h"
#include "odp-netlink.h"
#include "odp-util.h"
#include "openvswitch/hmap.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "ovs-router.h"
#include "packets.h"
#include "seq.h"
#include "shim/megaflow.h"
#include "smap.h"
#include "tests/differential/judge/ovs_actions.h"
#include "tests/differential/judge/ovs_meter_table.h"
#include "util.h"

enum {
    MOST_RECIRCULATIONS = 6,    /* dpif-netdev's MAX_RECIRC_DEPTH */
    MOST_TUNNEL_PORTS = 8,
    HEADROOM = 256,
    OF_UDP_TUNNEL = 1,          /* pkt_mark of what has been put into one; no megaflow of a test sets it */
};

/* The megaflows of one table: all look at the port, the recirculation and the ethertype as a whole. dpif-netdev has a
 * classifier for each port, too; one for all would have to try the masks of all. */
struct table {
    struct hmap_node node;
    odp_port_t in_port;
    uint32_t recirc_id;
    ovs_be16 dl_type;
    struct classifier classifier;
};

struct judge_flow {
    struct match match;
    struct table *table;
    struct cls_rule rule;
    bool there;                 /* in the table's classifier */
    int number;
    struct ofpbuf actions;
    struct ovsdr_tunnel_fields known;   /* of its packets' tunnel: what it looks at */
};

struct tunnel_port {
    uint32_t number;
    struct netdev *netdev;
};

struct ovs_judge {
    struct hmap tables;
    struct judge_flow **flows;
    size_t n_flows, allocated;
    struct tunnel_port tunnel_ports[MOST_TUNNEL_PORTS];
    size_t n_tunnel_ports;
    struct ovs_meter_table meters;
};

/* A packet on its way. */
struct journey {
    struct ovs_judge *judge;
    const struct ovs_judge_events *events;
    void *aux;
    int recirculations;
    bool too_many;
    const struct judge_flow *flow;                  /* whose actions are done; NULL: a copy's */
    const struct ovsdr_tunnel_fields *copy_tunnel;  /* of a copy */
};

struct ovs_judge *
ovs_judge_create(void)
{
    struct ovs_judge *judge = xzalloc(sizeof *judge);

    vlog_set_levels(NULL, VLF_ANY_DESTINATION, VLL_OFF);
    odp_execute_init();
    /* Tunnel ports ask for the way to their peer. */
    if (!tnl_conf_seq) {
        tnl_conf_seq = seq_create();
    }
    ovs_router_init();
    netdev_vport_tunnel_register();
    hmap_init(&judge->tables);
    return judge;
}

static uint32_t
hash_of_table(const struct flow *flow)
{
    return hash_3words((OVS_FORCE uint32_t) flow->in_port.odp_port, flow->recirc_id,
                       (OVS_FORCE uint32_t) flow->dl_type);
}

/* NULL: no megaflow was ever added to it. */
static struct table *
table_of(const struct ovs_judge *judge, const struct flow *flow)
{
    struct table *table;

    HMAP_FOR_EACH_WITH_HASH (table, node, hash_of_table(flow), &judge->tables) {
        if (table->in_port == flow->in_port.odp_port && table->recirc_id == flow->recirc_id
            && table->dl_type == flow->dl_type) {
            return table;
        }
    }
    return NULL;
}

static struct table *
table_for(struct ovs_judge *judge, const struct flow *flow)
{
    struct table *table = table_of(judge, flow);

    if (!table) {
        table = xzalloc(sizeof *table);
        table->in_port = flow->in_port.odp_port;
        table->recirc_id = flow->recirc_id;
        table->dl_type = flow->dl_type;
        classifier_init(&table->classifier, NULL);
        hmap_insert(&judge->tables, &table->node, hash_of_table(flow));
    }
    return table;
}

void
ovs_judge_destroy(struct ovs_judge *judge)
{
    struct table *table;

    for (size_t i = 0; i < judge->n_flows; i++) {
        struct judge_flow *flow = judge->flows[i];

        if (flow->there) {
            ovs_judge_remove(judge, i);
        }
        ofpbuf_uninit(&flow->actions);
        free(flow);
    }
    for (size_t i = 0; i < judge->n_tunnel_ports; i++) {
        netdev_close(judge->tunnel_ports[i].netdev);
    }
    HMAP_FOR_EACH_POP (table, node, &judge->tables) {
        classifier_destroy(&table->classifier);
        free(table);
    }
    hmap_destroy(&judge->tables);
    free(judge->flows);
    free(judge);
}

bool
ovs_judge_add_tunnel_port(struct ovs_judge *judge, uint32_t port, const char *type)
{
    struct tunnel_port *tunnel_port = &judge->tunnel_ports[judge->n_tunnel_ports];
    struct smap options = SMAP_INITIALIZER(&options);
    char name[16];
    bool ok;

    if (judge->n_tunnel_ports == MOST_TUNNEL_PORTS) {
        return false;
    }
    snprintf(name, sizeof name, "judge%u", port);
    smap_add(&options, "remote_ip", "flow");
    smap_add(&options, "key", "flow");
    ok = !netdev_open(name, type, &tunnel_port->netdev);
    if (ok && netdev_set_config(tunnel_port->netdev, &options, NULL)) {
        netdev_close(tunnel_port->netdev);
        ok = false;
    }
    smap_destroy(&options);
    tunnel_port->number = port;
    judge->n_tunnel_ports += ok;
    return ok;
}

static struct netdev *
tunnel_netdev(const struct ovs_judge *judge, uint32_t port)
{
    for (size_t i = 0; i < judge->n_tunnel_ports; i++) {
        if (judge->tunnel_ports[i].number == port) {
            return judge->tunnel_ports[i].netdev;
        }
    }
    return NULL;
}

void
ovs_judge_limit_vlans(int limit)
{
    flow_limit_vlans(limit);
}

/* The text cannot say that a tag does not matter, nor that there is no second one. */
static void
mask_tags(int looks_at_tags, struct match *match)
{
    union flow_vlan_hdr *masks = match->wc.masks.vlans;

    if (looks_at_tags < 1) {
        masks[0].qtag = 0;
    }
    if (looks_at_tags < 2) {
        masks[1].qtag = 0;
    } else {
        masks[1].tci |= htons(VLAN_CFI);
    }
}

static bool
match_from_text(const struct ovs_judge_megaflow *from, struct match *match, char **error)
{
    const char *text = from->match;
    struct ofpbuf key, mask;
    bool ok;

    ofpbuf_init(&key, 0);
    ofpbuf_init(&mask, 0);
    memset(match, 0, sizeof *match);
    ok = !odp_flow_from_string(text, NULL, &key, &mask, error)
         && odp_flow_key_to_flow(key.data, key.size, &match->flow, error) != ODP_FIT_ERROR
         && odp_flow_key_to_mask(mask.data, mask.size, &match->wc, &match->flow, error) != ODP_FIT_ERROR;
    ofpbuf_uninit(&key);
    ofpbuf_uninit(&mask);
    /* What dpif-netdev always matches, and the text need not say. */
    match->wc.masks.in_port.odp_port = ODPP_NONE;
    match->wc.masks.recirc_id = UINT32_MAX;
    mask_tags(from->looks_at_tags, match);
    if (from->has_no_tunnel) {
        match->wc.masks.tunnel.ip_dst = OVS_BE32_MAX;
    }
    match->wc.masks.nw_frag &= from->fragment_mask;
    if (from->has_no_key) {
        match->flow.tunnel.flags &= ~FLOW_TNL_F_KEY;
    }
    match_zero_wildcarded_fields(match);
    return ok;
}

static void
note_tunnel(const struct ovsdr_megaflow *megaflow, struct ovsdr_tunnel_fields *known)
{
    const uint8_t *key = (const uint8_t *) &megaflow->tunnel_key;
    const uint8_t *mask = (const uint8_t *) &megaflow->tunnel_mask;

    for (size_t i = 0; i < sizeof *known; i++) {
        ((uint8_t *) known)[i] = key[i] & mask[i];
    }
    known->ipv6 = megaflow->tunnel_key.ipv6;
}

bool
ovs_judge_add(struct ovs_judge *judge, const struct ovs_judge_megaflow *text, struct ovsdr_megaflow *megaflow,
              const char **error)
{
    static char message[2048];
    struct judge_flow *flow = xzalloc(sizeof *flow);
    char *why = NULL;

    ofpbuf_init(&flow->actions, 0);
    if (!match_from_text(text, &flow->match, &why)
        || (*text->actions && odp_actions_from_string(text->actions, NULL, &flow->actions) < 0)) {
        snprintf(message, sizeof message, "%s: %s: %s", text->match, text->actions, why ? why : "not understood");
        free(why);
        ofpbuf_uninit(&flow->actions);
        free(flow);
        *error = message;
        return false;
    }
    free(why);
    memset(megaflow, 0, sizeof *megaflow);
    megaflow_from_match(&flow->match, megaflow);
    ovs_clear_unset(flow->actions.data, flow->actions.size);
    megaflow_from_actions(flow->actions.data, flow->actions.size, megaflow);
    note_tunnel(megaflow, &flow->known);
    ovs_sample_all(flow->actions.data, flow->actions.size);

    if (judge->n_flows == judge->allocated) {
        judge->flows = x2nrealloc(judge->flows, &judge->allocated, sizeof *judge->flows);
    }
    ovs_assert(flow->match.wc.masks.dl_type == OVS_BE16_MAX);
    flow->table = table_for(judge, &flow->match.flow);
    flow->number = judge->n_flows;
    judge->flows[judge->n_flows++] = flow;
    return true;
}

void
ovs_judge_put(struct ovs_judge *judge, int number)
{
    struct judge_flow *flow = judge->flows[number];

    cls_rule_init(&flow->rule, &flow->match, 0);
    classifier_insert(&flow->table->classifier, &flow->rule, OVS_VERSION_MIN, NULL, 0);
    flow->there = true;
}

void
ovs_judge_remove(struct ovs_judge *judge, int number)
{
    struct judge_flow *flow = judge->flows[number];

    classifier_remove_assert(&flow->table->classifier, &flow->rule);
    cls_rule_destroy(&flow->rule);
    flow->there = false;
}

static void take(struct journey *, struct dp_packet *);

/* What callbacks see of it. */
static struct ovs_judge_packet
shown(const struct dp_packet *packet)
{
    return (struct ovs_judge_packet) {odp_to_u32(packet->md.in_port.odp_port), packet->md.recirc_id,
                                      dp_packet_data(packet), dp_packet_size(packet), false};
}

/* Of a tunnel's, in UDP; 0: it is none. */
static size_t
source_port_at(const struct dp_packet *packet)
{
    return packet->md.pkt_mark == OF_UDP_TUNNEL ? packet->l4_ofs : 0;
}

static void
put_out(struct journey *journey, struct dp_packet_batch *batch, uint32_t port)
{
    struct dp_packet *packet;

    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        journey->events->output(journey->aux, port, dp_packet_data(packet), dp_packet_size(packet),
                                source_port_at(packet));
    }
}

static void
tell(struct journey *journey, struct dp_packet_batch *batch, const struct nlattr *action)
{
    static const struct ovsdr_tunnel_fields none;
    const struct nlattr *userdata = nl_attr_find_nested(action, OVS_USERSPACE_ATTR_USERDATA);
    struct ovs_judge_told told = {.number = journey->flow ? journey->flow->number : -1, .one_of = 1};
    struct user_action_cookie cookie;
    struct dp_packet *packet;

    if (userdata) {
        told.cookie = nl_attr_get(userdata);
        told.cookie_size = nl_attr_get_size(userdata);
    }
    if (told.cookie_size == sizeof cookie) {
        memcpy(&cookie, told.cookie, sizeof cookie);
        told.one_of = cookie.type == USER_ACTION_COOKIE_FLOW_SAMPLE ? cookie.flow_sample.probability : 1;
    }
    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        struct ovs_judge_packet seen = shown(packet);

        told.tunnel = (journey->copy_tunnel ? journey->copy_tunnel
                       : flow_tnl_dst_is_set(&packet->md.tunnel) ? &journey->flow->known : &none);
        told.source_port_at = source_port_at(packet);
        journey->events->userspace(journey->aux, &seen, &told);
    }
}

/* An output or an upcall, of what trunc() left: dpif-netdev cuts a copy, and with that the cutting is over. */
static void
give_away(struct journey *journey, struct dp_packet_batch *batch, const struct nlattr *action)
{
    struct dp_packet_batch cut;
    bool trunc = batch->trunc;

    if (trunc) {
        dp_packet_batch_clone(&cut, batch);
        dp_packet_batch_reset_cutlen(batch);
        dp_packet_batch_apply_cutlen(&cut);
        batch = &cut;
    }
    if (nl_attr_type(action) == OVS_ACTION_ATTR_OUTPUT) {
        put_out(journey, batch, nl_attr_get_u32(action));
    } else {
        tell(journey, batch, action);
    }
    if (trunc) {
        dp_packet_delete_batch(&cut, true);
    }
}

/* Looks them up behind a recirculation, or in the tunnel that they have come out of. */
static void
look_up_again(struct journey *journey, struct dp_packet_batch *batch)
{
    struct dp_packet *packet;

    if (journey->recirculations == MOST_RECIRCULATIONS) {
        journey->too_many = true;
        return;
    }
    journey->recirculations++;
    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        take(journey, dp_packet_clone(packet));
    }
    journey->recirculations--;
}

static void
push_tunnel(struct journey *journey, struct dp_packet_batch *batch, const struct ovs_action_push_tnl *push)
{
    const struct netdev *netdev = tunnel_netdev(journey->judge, odp_to_u32(push->tnl_port));
    struct dp_packet *packet;

    if (!netdev) {
        ovs_fatal(0, "tnl_push to port %u, which is no tunnel's", odp_to_u32(push->tnl_port));
    }
    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        dp_packet_set_rss_hash(packet, hash_bytes(dp_packet_data(packet), dp_packet_size(packet), 0));
    }
    netdev_push_header(netdev, batch, push);
    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        bool udp = push->tnl_type == OVS_VPORT_TYPE_VXLAN || push->tnl_type == OVS_VPORT_TYPE_GENEVE;

        packet->md.pkt_mark = udp ? OF_UDP_TUNNEL : 0;
    }
}

static void
pop_tunnel(struct journey *journey, struct dp_packet_batch *batch, odp_port_t port)
{
    const struct netdev *netdev = tunnel_netdev(journey->judge, odp_to_u32(port));
    struct dp_packet_batch popped;
    struct dp_packet *packet;

    if (!netdev) {
        return;
    }
    dp_packet_batch_clone(&popped, batch);
    netdev_pop_header(CONST_CAST(struct netdev *, netdev), &popped);
    DP_PACKET_BATCH_FOR_EACH (i, packet, &popped) {
        packet->md.in_port.odp_port = port;
    }
    look_up_again(journey, &popped);
    dp_packet_delete_batch(&popped, true);
}

/* What odp_execute_actions() leaves to the datapath. */
static void
execute(void *journey_, struct dp_packet_batch *batch, const struct nlattr *action, bool should_steal)
{
    struct journey *journey = journey_;
    struct dp_packet *packet;

    switch (nl_attr_type(action)) {
    case OVS_ACTION_ATTR_OUTPUT:
    case OVS_ACTION_ATTR_USERSPACE:
        give_away(journey, batch, action);
        break;
    case OVS_ACTION_ATTR_RECIRC: {
        struct dp_packet_batch again;

        dp_packet_batch_clone(&again, batch);
        DP_PACKET_BATCH_FOR_EACH (i, packet, &again) {
            packet->md.recirc_id = nl_attr_get_u32(action);
        }
        look_up_again(journey, &again);
        dp_packet_delete_batch(&again, true);
        break;
    }
    case OVS_ACTION_ATTR_TUNNEL_PUSH:
        if (!should_steal) {
            push_tunnel(journey, batch, nl_attr_get(action));
        }
        break;
    case OVS_ACTION_ATTR_TUNNEL_POP:
        pop_tunnel(journey, batch, nl_attr_get_odp_port(action));
        break;
    case OVS_ACTION_ATTR_METER: ovs_meter_table_run(&journey->judge->meters, nl_attr_get_u32(action), batch); break;
    case OVS_ACTION_ATTR_CT:
        break;   /* No NIC has such a megaflow: packets get here in software on both sides, and nothing comes of it. */
    default:
        ovs_fatal(0, "action %d of a test's megaflow", nl_attr_type(action));
    }
    dp_packet_delete_batch(batch, should_steal);
}

/* Takes ownership of the packet. */
static void
take(struct journey *journey, struct dp_packet *packet)
{
    const struct judge_flow *flow, *outside = journey->flow;
    const struct cls_rule *rule;
    const struct table *table;
    struct ovs_judge_packet seen;
    struct dp_packet_batch batch;
    struct flow key;

    flow_extract(packet, &key);
    seen = shown(packet);
    table = table_of(journey->judge, &key);
    rule = table ? classifier_lookup(&table->classifier, OVS_VERSION_MIN, &key, NULL) : NULL;
    if (!rule) {
        journey->events->missed(journey->aux, &seen, (const struct ovs_judge_seen *) &key);
        dp_packet_delete(packet);
        return;
    }
    flow = CONTAINER_OF(rule, struct judge_flow, rule);
    journey->events->taken(journey->aux, flow->number, &seen);
    dp_packet_batch_init_packet(&batch, packet);
    journey->flow = flow;
    odp_execute_actions(journey, &batch, true, flow->actions.data, flow->actions.size, execute);
    journey->flow = outside;
}

static struct dp_packet *
packet_of(const struct ovs_judge_packet *from)
{
    struct dp_packet *packet = dp_packet_clone_data_with_headroom(from->bytes, from->size, HEADROOM);

    pkt_metadata_init(&packet->md, u32_to_odp(from->in_port));
    packet->md.recirc_id = from->recirc_id;
    return packet;
}

/* As ctrl/ recovers what missed in a tunnel's table, and dpif-netdev goes on with it. */
static void
take_out(struct journey *journey, const struct ovs_judge_packet *from)
{
    struct netdev *netdev = CONST_CAST(struct netdev *, tunnel_netdev(journey->judge, from->in_port));
    struct dp_packet_batch batch;
    struct dp_packet *packet;
    struct flow headers;

    dp_packet_batch_init_packet(&batch, packet_of(from));
    DP_PACKET_BATCH_FOR_EACH (i, packet, &batch) {
        flow_extract(packet, &headers);   /* notes where they are */
    }
    netdev_pop_header(netdev, &batch);
    DP_PACKET_BATCH_FOR_EACH (i, packet, &batch) {
        packet->md.in_port.odp_port = u32_to_odp(from->in_port);
        packet->md.recirc_id = from->recirc_id;
        take(journey, packet);
    }
}

bool
ovs_judge_forward(struct ovs_judge *judge, const struct ovs_judge_packet *packet,
                  const struct ovs_judge_events *events, void *aux)
{
    struct journey journey = {.judge = judge, .events = events, .aux = aux};

    if (packet->in_headers) {
        take_out(&journey, packet);
    } else {
        take(&journey, packet_of(packet));
    }
    return !journey.too_many;
}

void
ovs_judge_execute(struct ovs_judge *judge, const struct ovs_judge_packet *from,
                  const struct ovsdr_tunnel_fields *tunnel, const uint8_t *actions, size_t size,
                  const struct ovs_judge_events *events, void *aux)
{
    struct journey journey = {.judge = judge, .events = events, .aux = aux, .copy_tunnel = tunnel};
    struct dp_packet *packet = packet_of(from);
    struct dp_packet_batch batch;
    struct flow headers;

    packet->md.recirc_id = 0;
    flow_extract(packet, &headers);   /* notes where they are */
    dp_packet_batch_init_packet(&batch, packet);
    odp_execute_actions(&journey, &batch, true, ALIGNED_CAST(const struct nlattr *, actions), size, execute);
}

void
ovs_judge_set_meter(struct ovs_judge *judge, uint32_t number, const struct ovs_judge_meter *meter)
{
    ovs_meter_table_set(&judge->meters, number, meter);
}

void
ovs_judge_exhaust_meter(struct ovs_judge *judge, uint32_t number)
{
    ovs_meter_table_exhaust(&judge->meters, number);
}

struct ovs_judge_meter_counts
ovs_judge_meter_counts(const struct ovs_judge *judge, uint32_t number)
{
    return judge->meters.meters[number].counts;
}
