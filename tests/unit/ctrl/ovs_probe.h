/* What the tests of the shim need of OVS, as plain C: OVS's headers are not C++. */
#ifndef TESTS_UNIT_CTRL_OVS_PROBE_H
#define TESTS_UNIT_CTRL_OVS_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/dr/megaflow.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t probe_flow_size(void);
/* The name that a leftover mask bit in byte `offset` of struct flow gets. */
const char *probe_field_name(size_t offset);
/* Whether these bits of byte `offset` are the tunnel flag that all packets of Geneve's tunnels have in OVS. */
bool probe_is_udpif(size_t offset, uint8_t bits);

/* The match of a flow with this Ethernet type and IP protocol that has `value` in byte `offset`, where its mask has
 * `bits`, and nothing else. */
void probe_match_byte(size_t offset, uint8_t value, uint8_t bits, uint16_t eth_type, uint8_t ip_proto,
                      struct ovsdr_megaflow *);

/* As other_config:vlan-limit; 0: OVS's own. */
void probe_limit_vlans(int limit);

/* The match of ICMPv6, protocol and ethertype matched whole, that has `value` in byte `offset` of struct flow, where
 * its mask has `bits`. */
void probe_match_icmpv6(uint8_t type, uint8_t type_mask, size_t offset, uint8_t value, uint8_t bits,
                        struct ovsdr_megaflow *);

/* The match of a datapath flow as dpctl writes it. `attributes` gets a bit for each OVS_KEY_ATTR_* that the mask has.
 * False if OVS does not understand the text. */
bool probe_match_text(const char *text, struct ovsdr_megaflow *, uint64_t *attributes);

/* The same of a flow of NSH packets, which OVS 3.1 writes and does not read. */
bool probe_match_nsh(struct ovsdr_megaflow *, uint64_t *attributes);

/* Key and mask as netlink attributes, well-formed or not; aligned to 4 bytes. False if OVS does not take them. */
bool probe_match_attributes(const void *key, size_t key_size, const void *mask, size_t mask_size,
                            struct ovsdr_megaflow *);
/* Key and mask as struct flow, of probe_flow_size() bytes each. */
void probe_match_flow(const void *flow, const void *mask, struct ovsdr_megaflow *);

/* Actions as dpctl writes them. */
bool probe_actions_text(const char *text, struct ovsdr_megaflow *);
/* Their netlink attributes. Returns how many bytes they are; 0 if OVS does not understand the text. */
size_t probe_actions_bytes(const char *text, uint8_t *bytes, size_t size);

/* Actions as netlink attributes, well-formed or not; aligned to 4 bytes. */
void probe_actions(const void *actions, size_t size, struct ovsdr_megaflow *);

/* Does actions that need no datapath and keep the packet's size as OVS does them. */
void probe_execute(const void *actions, size_t actions_size, uint8_t *packet, size_t size);

/* What OVS makes of a packet by a tnl_push, as dpctl writes it, of a tunnel that needs no port to be there. Returns its
 * size; 0 if it does not fit or OVS does not understand the text. */
size_t probe_tunnel_push(const char *text, const uint8_t *inner, size_t inner_size, uint8_t *outer, size_t size);
/* UDP source ports of tunnels, for a test. */
void probe_tunnel_source_ports(uint16_t first, uint16_t end);

/* One action of this OVS_ACTION_ATTR_* with a payload of zeros; for set and set_masked, `key_attribute` is what it
 * sets. */
void probe_action(uint16_t attribute, uint16_t key_attribute, struct ovsdr_megaflow *);

extern const int probe_key_attribute_max, probe_action_attribute_max;
/* OVS_ACTION_ATTR_* that tests single out. */
extern const int probe_output, probe_push_vlan, probe_pop_vlan, probe_set, probe_set_masked, probe_drop, probe_clone;
extern const int probe_recirc, probe_check_pkt_len, probe_tunnel_push_attribute, probe_tunnel_pop_attribute;
extern const int probe_meter, probe_trunc, probe_sample, probe_sample_probability, probe_sample_actions;
/* OVS_KEY_ATTR_* whose members have header fields. */
extern const int probe_key_ethernet, probe_key_ipv4, probe_key_ipv6, probe_key_tcp, probe_key_udp;
/* OVS_KEY_ATTR_* that never stand in a userspace datapath's flow. */
extern const int probe_key_encap, probe_key_tunnel_info;

#ifdef __cplusplus
}
#endif
#endif
