/* OVS's own software datapath as a judge: its flow extraction, its classifier, its actions, its tunnels.
 *
 * Megaflows and actions come as text, as ovs-dpctl(8) takes them; they are also given as ctrl/'s shim passes them to
 * offload/. A packet is looked up, acted on and looked up again behind a recirculation, as dpif-netdev does.
 *
 * Threads: one at a time.
 */
#ifndef TESTS_DIFFERENTIAL_JUDGE_OVS_H
#define TESTS_DIFFERENTIAL_JUDGE_OVS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/dr/megaflow.h"
#include "tests/differential/judge/ovs_meters.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ovs_judge;

struct ovs_judge *ovs_judge_create(void);
void ovs_judge_destroy(struct ovs_judge *);

/* A tunnel's port of the datapath. `type` is an interface's in OVSDB: "vxlan", "geneve", "gre". */
bool ovs_judge_add_tunnel_port(struct ovs_judge *, uint32_t port, const char *type);

/* How many tags OVS parses, of megaflows and packets, from now on: other_config:vlan-limit. */
void ovs_judge_limit_vlans(int limit);

struct ovs_judge_megaflow {
    const char *match, *actions;
    int looks_at_tags;   /* 0: whatever tags there are; 1: not at the second; 2: at both, where the text has none too */
    bool has_no_tunnel;  /* packets that come out of one are not its */
    bool has_no_key;     /* the tunnel's: the text cannot say that there must be none */
    uint8_t fragment_mask;   /* bits of nw_frag that an IP megaflow looks at; the text means all */
};

/* Understands the next megaflow: they are numbered from 0. No packet finds it yet. A sample of its takes each packet
 * here, and the translation is of the one that was asked for, which lives as long as the
 * judge. `error`, if false is returned, points at a static buffer. */
bool ovs_judge_add(struct ovs_judge *, const struct ovs_judge_megaflow *, struct ovsdr_megaflow *, const char **error);
/* From now on packets find it, or no longer. */
void ovs_judge_put(struct ovs_judge *, int number);
void ovs_judge_remove(struct ovs_judge *, int number);

/* With full buckets and no counts; NULL: there is none of this number any more, and packets pass. */
void ovs_judge_set_meter(struct ovs_judge *, uint32_t number, const struct ovs_judge_meter *);
/* Its buckets are empty from now on. */
void ovs_judge_exhaust_meter(struct ovs_judge *, uint32_t number);
struct ovs_judge_meter_counts ovs_judge_meter_counts(const struct ovs_judge *, uint32_t number);

struct ovs_judge_packet {
    uint32_t in_port;          /* of the datapath: a tunnel's port behind tnl_pop */
    uint32_t recirc_id;
    const uint8_t *bytes;
    size_t size;
    bool in_headers;           /* the headers of the tunnel whose port this is are still in front: OVS takes them off */
};

/* What OVS sees in a packet. */
struct ovs_judge_seen;
void ovs_judge_read(const struct ovs_judge_seen *, struct ovsdr_flow_fields *, struct ovsdr_tunnel_fields *);

/* An upcall that a megaflow asks for. */
struct ovs_judge_told {
    int number;                /* the megaflow's; -1: of a copy */
    /* Of the tunnel that the packet came out of: what the megaflow looks at, or what is known of the copy. */
    const struct ovsdr_tunnel_fields *tunnel;
    const uint8_t *cookie;
    size_t cookie_size;
    size_t source_port_at;     /* as for outputs, below */
    uint32_t one_of;           /* the probability in a flow sample's cookie: one of so many packets; otherwise 1 */
};

/* What becomes of a packet, in the order in which it does. */
struct ovs_judge_events {
    /* `source_port_at`: where in the frame the UDP source port is that OVS chose for this packet; 0: nowhere. */
    void (*output)(void *aux, uint32_t port, const uint8_t *bytes, size_t size, size_t source_port_at);
    void (*userspace)(void *aux, const struct ovs_judge_packet *, const struct ovs_judge_told *);
    /* A megaflow takes the packet. */
    void (*taken)(void *aux, int number, const struct ovs_judge_packet *);
    /* None does. */
    void (*missed)(void *aux, const struct ovs_judge_packet *, const struct ovs_judge_seen *);
};

/* False: some copy of it recirculates more often than OVS allows, and is dropped there. */
bool ovs_judge_forward(struct ovs_judge *, const struct ovs_judge_packet *, const struct ovs_judge_events *, void *aux);

/* Does these actions, of a megaflow's, to a copy that came out of `tunnel`: what ctrl/shim/copies.c has dpif-netdev do.
 * `packet`: `recirc_id` and `in_headers` do not matter. */
void ovs_judge_execute(struct ovs_judge *, const struct ovs_judge_packet *, const struct ovsdr_tunnel_fields *tunnel,
                       const uint8_t *actions, size_t size, const struct ovs_judge_events *, void *aux);

#ifdef __cplusplus
}
#endif
#endif
