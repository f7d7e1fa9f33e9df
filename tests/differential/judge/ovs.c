#include <config.h>

#include "tests/differential/judge/ovs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "classifier.h"
#include "dp-packet.h"
#include "flow.h"
#include "netlink.h"
#include "odp-execute.h"
#include "odp-util.h"
#include "openvswitch/match.h"
#include "openvswitch/ofpbuf.h"
#include "ovs-rcu.h"
#include "packets.h"
#include "shim/megaflow.h"
#include "util.h"

struct judge_flow {
    struct cls_rule rule;
    int number;
    struct ofpbuf actions;
};

struct ovs_judge {
    struct classifier classifier;
    struct judge_flow **flows;
    int n_flows, allocated;
};

struct output_aux {
    ovs_judge_output *output;
    void *aux;
};

struct ovs_judge *
ovs_judge_create(void)
{
    struct ovs_judge *judge = xzalloc(sizeof *judge);

    odp_execute_init();
    classifier_init(&judge->classifier, NULL);
    return judge;
}

void
ovs_judge_destroy(struct ovs_judge *judge)
{
    for (int i = 0; i < judge->n_flows; i++) {
        struct judge_flow *flow = judge->flows[i];

        classifier_remove_assert(&judge->classifier, &flow->rule);
        cls_rule_destroy(&flow->rule);
        ofpbuf_uninit(&flow->actions);
        free(flow);
    }
    classifier_destroy(&judge->classifier);
    free(judge->flows);
    free(judge);
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
match_from_text(const char *text, int looks_at_tags, struct match *match, char **error)
{
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
    mask_tags(looks_at_tags, match);
    match_zero_wildcarded_fields(match);
    return ok;
}

bool
ovs_judge_add(struct ovs_judge *judge, const struct ovs_judge_megaflow *text, struct ovsdr_megaflow *megaflow,
              const char **error)
{
    static char message[1024];
    struct judge_flow *flow = xzalloc(sizeof *flow);
    struct match match;
    char *why = NULL;

    ofpbuf_init(&flow->actions, 0);
    if (!match_from_text(text->match, text->looks_at_tags, &match, &why)
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
    megaflow_from_match(&match, megaflow);
    megaflow_from_actions(flow->actions.data, flow->actions.size, megaflow);

    flow->number = judge->n_flows;
    cls_rule_init(&flow->rule, &match, 0);
    classifier_insert(&judge->classifier, &flow->rule, OVS_VERSION_MIN, NULL, 0);
    if (judge->n_flows == judge->allocated) {
        judge->flows = x2nrealloc(judge->flows, (size_t *) &(size_t) { judge->allocated }, sizeof *judge->flows);
        judge->allocated = judge->allocated ? 2 * judge->allocated : 1;
    }
    judge->flows[judge->n_flows++] = flow;
    return true;
}

static void
output_packets(void *aux_, struct dp_packet_batch *batch, const struct nlattr *action, bool should_steal)
{
    const struct output_aux *aux = aux_;
    struct dp_packet *packet;

    if (nl_attr_type(action) != OVS_ACTION_ATTR_OUTPUT) {
        ovs_fatal(0, "action %d of a test's megaflow", nl_attr_type(action));
    }
    DP_PACKET_BATCH_FOR_EACH (i, packet, batch) {
        aux->output(aux->aux, nl_attr_get_u32(action), dp_packet_data(packet), dp_packet_size(packet));
    }
    dp_packet_delete_batch(batch, should_steal);
}

int
ovs_judge_forward(struct ovs_judge *judge, uint32_t in_port, const uint8_t *bytes, size_t size,
                  ovs_judge_output *output, void *aux)
{
    struct dp_packet *packet = dp_packet_clone_data_with_headroom(bytes, size, 64);
    struct output_aux output_aux = { output, aux };
    const struct cls_rule *rule;
    struct judge_flow *judge_flow;
    struct dp_packet_batch batch;
    struct flow flow;

    pkt_metadata_init(&packet->md, u32_to_odp(in_port));
    flow_extract(packet, &flow);
    rule = classifier_lookup(&judge->classifier, OVS_VERSION_MIN, &flow, NULL);
    if (!rule) {
        dp_packet_delete(packet);
        return -1;
    }
    judge_flow = CONTAINER_OF(rule, struct judge_flow, rule);
    dp_packet_batch_init_packet(&batch, packet);
    odp_execute_actions(&output_aux, &batch, true, judge_flow->actions.data, judge_flow->actions.size, output_packets);
    return judge_flow->number;
}
