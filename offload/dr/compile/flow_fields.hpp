// The fields of struct ovsdr_flow_fields by their place in it, with the names that users know from ovs-fields(7).
//
// The compiler ends with a look at every byte of the mask through this table: a bit that no step translated is refused
// under its field's name. A field without a row does not compile.
#pragma once

#include <array>
#include <cstddef>

#include "offload/dr/megaflow.h"
#include "offload/dr/static_name.hpp"

namespace ovsdr::dr {

struct FlowField {
    std::size_t offset, size;
    StaticName name;
    // Where the same bytes have another name in packets of a protocol.
    StaticName in_arp{}, in_igmp{}, in_sctp{};
};

#define OVSDR_FIELD(MEMBER) offsetof(ovsdr_flow_fields, MEMBER), sizeof(ovsdr_flow_fields::MEMBER)

inline constexpr std::array flow_fields{
    FlowField{OVSDR_FIELD(in_port), "in_port"},
    FlowField{OVSDR_FIELD(recirc_id), "recirc_id"},
    FlowField{OVSDR_FIELD(eth_dst), "eth_dst"},
    FlowField{OVSDR_FIELD(eth_src), "eth_src"},
    FlowField{OVSDR_FIELD(be_eth_type), "eth_type"},
    FlowField{OVSDR_FIELD(be_vlan_tpid), "vlan_tpid"},
    FlowField{OVSDR_FIELD(be_vlan_tci), "vlan_tci"},
    FlowField{OVSDR_FIELD(ip_proto), "nw_proto", "arp_op"},
    FlowField{OVSDR_FIELD(ip_tos), "nw_tos"},
    FlowField{OVSDR_FIELD(ip_ttl), "nw_ttl"},
    FlowField{OVSDR_FIELD(ip_frag), "nw_frag"},
    FlowField{OVSDR_FIELD(ipv6), "ipv6"},
    FlowField{OVSDR_FIELD(arp), "arp"},
    FlowField{OVSDR_FIELD(src), "nw_src", "arp_spa"},
    FlowField{OVSDR_FIELD(dst), "nw_dst", "arp_tpa"},
    FlowField{OVSDR_FIELD(be_ipv6_label), "ipv6_label"},
    FlowField{OVSDR_FIELD(be_tp_src), "tp_src", {}, "igmp_type", "sctp_src"},
    FlowField{OVSDR_FIELD(be_tp_dst), "tp_dst", {}, "igmp_code", "sctp_dst"},
    FlowField{OVSDR_FIELD(be_tcp_flags), "tcp_flags"},
    FlowField{OVSDR_FIELD(vlan_limit), "vlan_limit"},
    FlowField{OVSDR_FIELD(reserved), "reserved"},
};

#undef OVSDR_FIELD

consteval bool flow_fields_cover_every_byte() {
    std::size_t end = 0;
    for (const FlowField& field : flow_fields) {
        if (field.offset != end) return false;
        end += field.size;
    }
    return end == sizeof(ovsdr_flow_fields);
}
static_assert(flow_fields_cover_every_byte(),
              "a field of ovsdr_flow_fields has no row here, or padding is before or behind it");

}  // namespace ovsdr::dr
