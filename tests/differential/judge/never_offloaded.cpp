#include "tests/differential/judge/never_offloaded.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <variant>
#include <vector>

#include "tests/differential/judge/frames.hpp"
#include "tests/differential/judge/megaflows.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::differential {

namespace {

using dr::test::HeaderBytes;
using dr::test::MegaflowBuilder;

constexpr dr::Ufid ufid{0x6e65766572, 1}, parent{0x6e65766572, 2};
constexpr std::uint32_t in_port = ports[0].odp, out_port = ports[1].odp, nobody = 177;
constexpr std::uint32_t recirc_id = 0xFFFF0, odd_meter = 0xFFFF0;   ///< no scenario's
constexpr std::uint8_t protocol_igmp = 2, protocol_sctp = 132;
constexpr std::uint16_t present = dr::test::vlan_present, odd_tpid = 0x9100;
constexpr std::uint16_t reverse_arp = 0x8035, experimental = 0x88B5;   ///< ethertypes

struct Row {
    const char* obstacle;
    MegaflowBuilder megaflow;
};

MegaflowBuilder from_vport() { return MegaflowBuilder(in_port); }
MegaflowBuilder udp_to(TunnelKind kind, std::uint32_t from) {
    return MegaflowBuilder(from).ipv4().proto(protocol_udp).ports(0, udp_port_of(kind));
}

/// Changes what a builder has no word for.
template <typename Change>
MegaflowBuilder changed(MegaflowBuilder megaflow, Change change) {
    change(megaflow.raw());
    return megaflow;
}

MegaflowBuilder tagged_by(std::uint16_t tpid, std::uint16_t tpid_mask, std::uint16_t tci, std::uint16_t tci_mask) {
    return changed(from_vport().ipv4().output(out_port), [&](ovsdr_megaflow& megaflow) {
        megaflow.key.be_vlan_tpid[0] = htobe16(tpid);
        megaflow.mask.be_vlan_tpid[0] = htobe16(tpid_mask);
        megaflow.key.be_vlan_tci[0] = htobe16(tci);
        megaflow.mask.be_vlan_tci[0] = htobe16(tci_mask);
    });
}

std::vector<Row> odd_matches() {
    const auto plain = [] { return from_vport().ipv4().output(out_port); };
    const auto masked = [&](auto change) { return changed(plain(), change); };
    const std::uint32_t geneve_port = tunnel_port_of(TunnelKind::geneve);
    const auto from_geneve = [&] { return MegaflowBuilder(geneve_port).from_tunnel(5).options_size(0).ipv4(); };
    const auto of_arp = [](auto change) {
        return changed(from_vport().arp().output(out_port), [&](ovsdr_megaflow& megaflow) { change(megaflow.mask); });
    };
    const auto of_protocol = [](ovsdr_megaflow& megaflow) { megaflow.mask.ip_proto = 0xFF; };
    const auto from_udp_tunnel = [](auto change) {
        const std::uint32_t port = tunnel_port_of(TunnelKind::vxlan);
        return changed(MegaflowBuilder(port).from_tunnel(5).ipv4().output(out_port), change);
    };
    const auto from_gre = [](std::uint64_t id) {
        return MegaflowBuilder(tunnel_port_of(TunnelKind::gre)).from_tunnel(id).ipv4().output(out_port);
    };
    return {
        {"in_port is not matched whole", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.in_port = 0xFF; })},
        {"in_port is no dr port of this device", MegaflowBuilder(nobody).ipv4().output(out_port)},
        {"recirc_id", changed(plain().behind(recirc_id), [](ovsdr_megaflow& megaflow) {
             megaflow.mask.recirc_id = 0xFFFFF;
         })},
        {"nw_frag", changed(from_vport().eth_type(0x88CC).output(out_port), [](ovsdr_megaflow& megaflow) {
             megaflow.mask.ip_frag = 3;
         })},
        {"eth_type", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.be_eth_type = htobe16(0xFF00); })},
        {"eth_type", from_vport().eth_type(0x5FF).output(out_port)},
        {"vlan_tpid", plain().vlan(5, odd_tpid)},
        {"vlan_tci", tagged_by(0, 0, 5, 0xFFF)},
        {"vlan_tpid", tagged_by(customer_tag, 0xFF00, 0, 0)},
        {"vlan_tci", tagged_by(0, 0, 5, present | 0xFFF)},
        {"vlan_tpid", tagged_by(customer_tag, 0xFFFF, 0, present)},
        {"vlan_tci[1]", plain().second_vlan(5)},
        {"vlan_tci[1]", masked([](ovsdr_megaflow& megaflow) {
             megaflow.key.be_vlan_tci[1] = megaflow.mask.be_vlan_tci[1] = htobe16(present);
         })},
        {"vlan_tpid[1]", masked([](ovsdr_megaflow& megaflow) {
             megaflow.key.be_vlan_tpid[1] = htobe16(customer_tag);
             megaflow.mask.be_vlan_tpid[1] = 0xFFFF;
         })},
        {"ipv6_label", changed(from_vport().ipv6().output(out_port), [](ovsdr_megaflow& megaflow) {
             megaflow.key.be_ipv6_label = megaflow.mask.be_ipv6_label = htobe32(1U << 20);
         })},
        {"nw_proto", from_vport().ipv6().proto(stepped_over[0]).output(out_port)},
        {"nw_proto", from_vport().ipv6().proto(stepped_over[1]).output(out_port)},
        {"nw_proto", from_vport().ipv6().proto(stepped_over[2]).output(out_port)},
        {"nw_proto", from_vport().ipv6().proto(stepped_over[3]).output(out_port)},
        {"nw_proto", from_vport().ipv6().proto(fragment_header).output(out_port)},
        {"nw_proto", changed(plain().proto(0xF0), [](ovsdr_megaflow& megaflow) { megaflow.mask.ip_proto = 0xF0; })},
        {"tcp_flags", changed(plain().proto(protocol_tcp), [](ovsdr_megaflow& megaflow) {
             megaflow.key.be_tcp_flags = megaflow.mask.be_tcp_flags = htobe16(0x200);
         })},
        {"tcp_flags", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.be_tcp_flags = htobe16(1); })},
        {"tp_src", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.be_tp_src = htobe16(1); })},
        {"tp_dst", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.be_tp_dst = htobe16(1); })},
        {"tp_src", from_vport().ipv6().proto(protocol_icmp).ports(8, 0).output(out_port)},
        {"tp_src", plain().proto(protocol_icmpv6).ports(8, 0)},
        {"igmp_type", plain().proto(protocol_igmp).ports(17, 0)},
        {"igmp_code", plain().proto(protocol_igmp).ports(17, 3)},
        {"sctp_src", plain().proto(protocol_sctp).ports(1, 2)},
        {"sctp_dst", plain().proto(protocol_sctp).ports(1, 2)},
        {"arp_op", of_arp([](ovsdr_flow_fields& mask) { mask.ip_proto = 0xFF; })},
        {"arp_op", changed(from_vport().eth_type(reverse_arp).output(out_port), of_protocol)},
        {"nw_proto", changed(from_vport().eth_type(experimental).output(out_port), of_protocol)},
        {"arp_spa", of_arp([](ovsdr_flow_fields& mask) { mask.src[0] = 0xFF; })},
        {"arp_tpa", of_arp([](ovsdr_flow_fields& mask) { mask.dst[0] = 0xFF; })},
        {"nw_tos", of_arp([](ovsdr_flow_fields& mask) { mask.ip_tos = 0xFF; })},
        {"nw_ttl", of_arp([](ovsdr_flow_fields& mask) { mask.ip_ttl = 0xFF; })},
        {"nw_src", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.src[4] = 1; })},
        {"nw_dst", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.dst[4] = 1; })},
        {"nw_frag", changed(plain().proto(protocol_udp).ports(1, 2), [](ovsdr_megaflow& megaflow) {
             megaflow.key.ip_frag = megaflow.mask.ip_frag = 1;
         })},
        {"ipv6_label", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.be_ipv6_label = htobe32(1); })},
        {"vlan_limit", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.vlan_limit = 1; })},
        {"reserved", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.reserved = 1; })},
        {"icmp_type", plain().proto(protocol_icmp).ports(0x108, 0)},
        {"icmp_type", from_geneve().proto(protocol_icmp).ports(8, 0).output(out_port)},
        {"tunnel", plain().from_tunnel(5)},
        {"tunnel", masked([](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_key.be_id = megaflow.tunnel_mask.be_id = htobe64(1UL << 56);
         })},
        {"tun_metadata", changed(from_geneve().option(1, 2, 3).output(out_port), [](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_mask.option[0] = 0xF0;
         })},
        {"tun_metadata", from_geneve().option(1, 2, 3).options_size(16).output(out_port)},
        {"tun_metadata", changed(from_geneve().option(1, 2, 3).output(out_port), [](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_key.option[3] = 2;   // words
         })},
        {"tun_metadata", changed(from_geneve().option(1, 2, 3).output(out_port), [](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_mask.options_size = 0xF0;
         })},
        {"tun_metadata", from_udp_tunnel([](ovsdr_megaflow& megaflow) { megaflow.tunnel_mask.options_size = 0xFF; })},
        {"tun_metadata", from_udp_tunnel([](ovsdr_megaflow& megaflow) { megaflow.tunnel_mask.option[4] = 1; })},
        {"tun_flags", from_udp_tunnel([](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_key.flags |= OVSDR_TUNNEL_OAM;
             megaflow.tunnel_mask.flags |= OVSDR_TUNNEL_OAM;
         })},
        {"tun_flags", from_udp_tunnel([](ovsdr_megaflow& megaflow) { megaflow.tunnel_key.flags = 0; })},
        {"reserved", from_udp_tunnel([](ovsdr_megaflow& megaflow) { megaflow.tunnel_mask.reserved[0] = 1; })},
        {"tun_id", from_udp_tunnel([](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_key.be_id = htobe64(1UL << 24);
         })},
        {"tun_id", from_gre(1UL << 32)},
        {"tun_id", changed(from_gre(5), [](ovsdr_megaflow& megaflow) { megaflow.tunnel_key.flags = 0; })},
        {"tun_src", from_udp_tunnel([](ovsdr_megaflow& megaflow) { megaflow.tunnel_mask.src[4] = 1; })},
        {"tun_metadata", changed(from_geneve().output(out_port), [](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_mask.options_size = 0xF0;
         })},
        {"tun_tp_dst", changed(from_gre(5), [](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_key.be_tp_dst = megaflow.tunnel_mask.be_tp_dst = 1;
         })},
        {"tun_tp_src", changed(from_gre(5), [](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_key.be_tp_src = megaflow.tunnel_mask.be_tp_src = 1;
         })},
    };
}

std::vector<Row> odd_sets() {
    const auto set = [](MegaflowBuilder megaflow, ovsdr_header_field field, std::initializer_list<std::uint8_t> value) {
        return megaflow.set(field, value).output(out_port);
    };
    const auto ipv6_udp = [] { return from_vport().ipv6().proto(protocol_udp); };
    const auto every_other_bit = [](MegaflowBuilder megaflow, ovsdr_header_field field) {
        constexpr std::uint8_t bits = 0x55;
        megaflow.set(field, {bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits,
                             bits});
        return megaflow.under({bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits, bits,
                               bits});
    };
    return {
        {"set(ipv4)", set(from_vport().ipv6(), OVSDR_HEADER_IP_SRC, {10, 0, 0, 1})},
        {"set(ipv6)", set(from_vport().ipv4(), OVSDR_HEADER_IPV6_DST, {0xfd, 1})},
        {"set(ipv4) or set(ipv6)", set(from_vport().arp(), OVSDR_HEADER_IP_TOS, {0x20})},
        {"set(ipv4) or set(ipv6)", set(from_vport().arp(), OVSDR_HEADER_IP_TTL, {7})},
        {"set(tcp)", set(from_vport().ipv4().proto(protocol_udp), OVSDR_HEADER_TCP_SRC, {0, 7})},
        {"set(udp)", set(from_vport().ipv4(), OVSDR_HEADER_UDP_DST, {0, 7})},
        {"set of an unknown field", set(from_vport().ipv4(), static_cast<ovsdr_header_field>(nobody), {1})},
        {"set actions whose masks have too many parts",
         every_other_bit(every_other_bit(ipv6_udp(), OVSDR_HEADER_IPV6_SRC), OVSDR_HEADER_IPV6_DST).output(out_port)},
    };
}

/// `headers` outlive what is made of them.
struct Headers {
    HeaderBytes vxlan = dr::test::vxlan(), long_one = dr::test::geneve(200);
};

/// What a header's bytes are refused as.
struct OddHeader {
    const char* obstacle;
    HeaderBytes bytes;
};

/// Over IPv4, with another byte there, and a checksum that is right all the same.
HeaderBytes odd_vxlan(std::size_t at, std::uint8_t byte) {
    constexpr std::size_t ip = 14, ip_size = 20, checksum = ip + 10;
    HeaderBytes bytes = dr::test::vxlan();
    bytes[at] = byte;
    bytes[checksum] = bytes[checksum + 1] = 0;
    std::uint32_t sum = 0;
    for (std::size_t i = ip; i < ip + ip_size; i += 2) sum += bytes[i] << 8 | bytes[i + 1];
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    bytes[checksum] = static_cast<std::uint8_t>(~sum >> 8);
    bytes[checksum + 1] = static_cast<std::uint8_t>(~sum);
    return bytes;
}

HeaderBytes cut(HeaderBytes bytes, std::size_t size) {
    bytes.resize(size);
    return bytes;
}

std::vector<OddHeader> odd_headers() {
    using namespace dr::test;
    constexpr std::size_t ipv4_end = 34, ipv6_end = 54, version = 14, length = 16, fragment = 20, checksum = 24;
    constexpr std::uint8_t more_fragments = 0x20, options = 0x46, another_protocol = 6;
    const char* const broken = "tnl_push with a broken header";
    HeaderBytes wrong_checksum = vxlan(), no_ipv6 = vxlan_over(outer_ipv6(protocol_udp));
    ++wrong_checksum[checksum];
    no_ipv6[version] = 0x40;
    return {
        {broken, {2, 0, 0, 0, 0, 1}},
        {broken, cut(vxlan(), ipv4_end - 2)},
        {broken, cut(vxlan(), ipv4_end)},
        {broken, cut(vxlan(), ipv4_end + 6)},
        {broken, cut(vxlan(), vxlan().size() + 1)},
        {broken, odd_vxlan(version, options)},
        {broken, odd_vxlan(length + 1, 1)},
        {broken, odd_vxlan(length, 1)},
        {broken, odd_vxlan(fragment, more_fragments)},
        {broken, wrong_checksum},
        {broken, no_ipv6},
        {broken, cut(vxlan_over(outer_ipv6(protocol_udp)), ipv6_end - 2)},
        {broken, cut(vxlan_over(outer_ipv6(protocol_udp)), ipv6_end)},
        {broken, cut(gre(outer_ipv4(protocol_gre)), ipv4_end + 2)},
        {broken, cut(gre(outer_ipv4(protocol_gre)), ipv4_end + 6)},
        {broken, gre(outer_ipv4(protocol_gre), 0x4000)},
        {"tnl_push with a GRE checksum (set options:csum=false)", gre(outer_ipv4(protocol_gre), 0x8000)},
        {"tnl_push with a GRE sequence number (set options:seq=false)", gre(outer_ipv4(protocol_gre), 0x1000)},
        {"tnl_push with an outer UDP checksum (OVS sets one in every UDP tunnel over IPv6)",
         vxlan_over(outer_ipv6(protocol_udp), 5, 1)},
        {"tnl_push with an outer UDP checksum (set options:csum=false, or OVN's external_ids:ovn-encap-csum=false)",
         vxlan(5, 1)},
        {"tnl_push of another protocol", vxlan_over(outer_ipv4(another_protocol))},
        {"tnl_push of another protocol", cut(outer_ipv4(another_protocol), ipv4_end)},
        {"tnl_push of another protocol", cut(outer_ipv6(another_protocol), ipv6_end)},
    };
}

std::vector<Row> odd_lists(const Headers& headers) {
    const auto plain = [] { return from_vport().ipv4(); };
    const std::uint32_t vxlan_port = tunnel_port_of(TunnelKind::vxlan), gre_port = tunnel_port_of(TunnelKind::gre);
    return {
        {"output to the in_port", plain().output(in_port)},
        {"output to a port that is no dr port of this device", plain().output(nobody)},
        {"output to a port that is no dr port of this device", plain().output(vxlan_port)},
        {"push_vlan", plain().push(5, odd_tpid).output(out_port)},
        {"recirc to the table that it comes from", plain().behind(recirc_id).recirc(recirc_id)},
        {"recirc twice to one recirc_id", plain().recirc(recirc_id).recirc(recirc_id)},
        {"the end of a copy that never began", plain().end_copy().output(out_port)},
        {"tnl_pop of packets from another vport than the uplink",
         udp_to(TunnelKind::vxlan, in_port).tunnel_pop(vxlan_port)},
        {"tnl_pop twice into one tunnel",
         udp_to(TunnelKind::vxlan, uplink).tunnel_pop(vxlan_port).tunnel_pop(vxlan_port)},
        {"tnl_pop to a port that is no known tunnel", udp_to(TunnelKind::vxlan, uplink).tunnel_pop(nobody)},
        {"tnl_pop of VXLAN", MegaflowBuilder(uplink).ipv4().proto(protocol_udp).tunnel_pop(vxlan_port)},
        {"tnl_pop of GRE", MegaflowBuilder(uplink).ipv4().tunnel_pop(gre_port)},
        {"tnl_push with a header longer than the device's", plain().tunnel(headers.long_one).output(uplink)},
    };
}

/// Each action may be in a megaflow, but not there.
std::vector<Row> odd_orders(const Headers& headers) {
    const auto plain = [] { return from_vport().ipv4(); };
    const std::uint32_t vxlan_port = tunnel_port_of(TunnelKind::vxlan), gre_port = tunnel_port_of(TunnelKind::gre);
    const auto from_gre = [&] { return MegaflowBuilder(gre_port).from_tunnel(5).ipv4(); };
    const auto fragment = [](MegaflowBuilder megaflow) {
        return changed(megaflow, [](ovsdr_megaflow& raw) { raw.key.ip_frag = raw.mask.ip_frag = 1; });
    };
    return {
        {"two outputs to one port", plain().output(out_port).output(out_port)},
        {"two outputs to one port", plain().output(host_port).output(host_port)},
        {"output to a port that is no dr port of this device", plain().output(vxlan_port).output(out_port)},
        {"more than two push_vlan", plain().push(1).push(2).push(3).output(out_port)},
        {"pop_vlan of packets that may have no tag", from_vport().vlan(5).vlan_limit(2).pop().pop().output(out_port)},
        {"set behind tnl_push",
         plain().tunnel(headers.vxlan).set(OVSDR_HEADER_ETH_DST, {2, 0, 0, 0, 0, 1}).output(uplink)},
        {"tnl_push behind tnl_push", plain().tunnel(headers.vxlan).tunnel(headers.vxlan).output(uplink)},
        {"recirc behind tnl_push", plain().tunnel(headers.vxlan).recirc(recirc_id)},
        {"recirc behind a change of packets from a tunnel", from_gre().push(5).recirc(recirc_id)},
        {"tnl_pop behind tnl_push",
         udp_to(TunnelKind::vxlan, uplink).tunnel(headers.vxlan).tunnel_pop(vxlan_port)},
        {"tnl_pop of packets from a tunnel", from_gre().proto(protocol_udp).tunnel_pop(vxlan_port)},
        {"tnl_pop of packets that may have a tag", udp_to(TunnelKind::vxlan, uplink).push(5).tunnel_pop(vxlan_port)},
        {"tnl_pop of packets that may have a tag",
         udp_to(TunnelKind::vxlan, uplink).vlan(5).perhaps_second_vlan().pop().tunnel_pop(vxlan_port)},
        {"tnl_pop", fragment(MegaflowBuilder(uplink).ipv4().proto(protocol_gre).tunnel_pop(gre_port))},
        {"output to the uplink of packets from a tunnel", from_gre().output(uplink)},
        {"set(ipv4) of addresses", fragment(plain().set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).output(out_port))},
        {"set(ipv6) of addresses", from_vport().ipv6().set(OVSDR_HEADER_IPV6_SRC, {0xfd, 1}).output(out_port)},
        {"set(udp)", fragment(plain().proto(protocol_udp).set(OVSDR_HEADER_UDP_SRC, {0, 7}).output(out_port))},
        {"meter", plain().meter(nobody).output(out_port)},
        {"meter behind an output", plain().output(out_port).meter(odd_meter).output(uplink)},
        {"meter in a copy", plain().copy().meter(odd_meter).output(out_port).end_copy().output(uplink)},
        {"meter behind a change of the packet's length", plain().tunnel(headers.vxlan).meter(odd_meter).output(uplink)},
        {"meter behind a change of the packet's length", plain().push(5).meter(odd_meter).output(out_port)},
        {"meter behind a copy of a packet that has been changed",
         plain().set(OVSDR_HEADER_IP_TTL, {7}).output(host_port).meter(odd_meter).output(out_port)},
        {"an action that has a name", plain().unsupported("an action that has a name").output(out_port)},
    };
}

void check_refused(dr::Eswitch& eswitch, const Row& row) {
    const auto outcome = eswitch.put(ufid, row.megaflow);
    if (eswitch.status(ufid) || eswitch.del(ufid) || eswitch.status(ufid)) {
        throw std::runtime_error(fmt::format("has been in the NIC: {}", row.obstacle));
    }
    const auto* reject = std::get_if<dr::Reject>(&outcome);
    if (reject == nullptr) throw std::runtime_error(fmt::format("not refused: {}", row.obstacle));
    const std::string_view wanted = row.obstacle;
    if (std::ranges::any_of(reject->obstacles, [&](const auto& each) { return each.name.text() == wanted; })) return;
    throw std::runtime_error(fmt::format("refused as {}, not for {}", text_of(*reject), row.obstacle));
}

}  // namespace

void check_never_offloaded(dr::Eswitch& eswitch, const std::function<void()>& while_exact) {
    const Headers headers;
    eswitch.set_meter(odd_meter, {.rate = 1000, .burst = 100});
    (void)eswitch.put(parent, from_vport().recirc(recirc_id));   // or they would be refused because nothing leads there
    for (const auto& rows : {odd_matches(), odd_sets(), odd_lists(headers), odd_orders(headers)}) {
        for (const Row& row : rows) check_refused(eswitch, row);
    }
    for (const OddHeader& odd : odd_headers()) {
        check_refused(eswitch, {odd.obstacle, from_vport().ipv4().tunnel(odd.bytes).output(uplink)});
    }
    (void)eswitch.del(parent);
    (void)eswitch.remove_meter(odd_meter);
    eswitch.choose({.exact_tunnel_source_port = true, .exact_tunnel_flags = true});
    check_refused(eswitch, {"tnl_push in UDP (other_config:dr-tunnel-source-port=exact)",
                            from_vport().ipv4().tunnel(headers.vxlan).output(uplink)});
    check_refused(eswitch, {"recirc behind a change of what OVS hashes (other_config:dr-tunnel-source-port=exact)",
                            from_vport().ipv4().set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).recirc(recirc_id)});
    check_refused(eswitch, {"tun_flags",
                            MegaflowBuilder(tunnel_port_of(TunnelKind::vxlan)).from_tunnel(5).ipv4().output(out_port)});
    while_exact();
    eswitch.choose({});
}

}  // namespace ovsdr::differential
