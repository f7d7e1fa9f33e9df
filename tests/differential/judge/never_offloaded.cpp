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

constexpr dr::Ufid ufid{0x6e65766572, 1};
constexpr std::uint32_t in_port = ports[0].odp, out_port = ports[1].odp, nobody = 177;
constexpr std::uint32_t recirc_id = 0xFFFF0;   ///< no scenario's
constexpr std::uint16_t present = dr::test::vlan_present, odd_tpid = 0x9100;

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
    return {
        {"in_port is not matched whole", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.in_port = 0xFF; })},
        {"in_port is no dr port of this device", MegaflowBuilder(nobody).ipv4().output(out_port)},
        {"recirc_id", changed(plain().behind(recirc_id), [](ovsdr_megaflow& megaflow) {
             megaflow.mask.recirc_id = 0xFFFFF;
         })},
        {"eth_type", masked([](ovsdr_megaflow& megaflow) { megaflow.mask.be_eth_type = htobe16(0xFF00); })},
        {"eth_type", from_vport().eth_type(0x5FF).output(out_port)},
        {"vlan_tpid", plain().vlan(5, odd_tpid)},
        {"vlan_tci", tagged_by(0, 0, 5, 0xFFF)},
        {"vlan_tpid", tagged_by(customer_tag, 0xFF00, 0, 0)},
        {"vlan_tci", tagged_by(0, 0, 5, present | 0xFFF)},
        {"vlan_tpid", tagged_by(customer_tag, 0xFFFF, 0, present)},
        {"vlan_tci[1]", plain().second_vlan(5)},
        {"ipv6_label", changed(from_vport().ipv6().output(out_port), [](ovsdr_megaflow& megaflow) {
             megaflow.key.be_ipv6_label = megaflow.mask.be_ipv6_label = htobe32(1U << 20);
         })},
        {"nw_proto", from_vport().ipv6().proto(routing_header).output(out_port)},
        {"nw_proto", changed(plain().proto(0xF0), [](ovsdr_megaflow& megaflow) { megaflow.mask.ip_proto = 0xF0; })},
        {"tcp_flags", changed(plain().proto(protocol_tcp), [](ovsdr_megaflow& megaflow) {
             megaflow.key.be_tcp_flags = megaflow.mask.be_tcp_flags = htobe16(0x200);
         })},
        {"icmp_type", plain().proto(protocol_icmp).ports(0x108, 0)},
        {"icmp_type", from_geneve().proto(protocol_icmp).ports(8, 0).output(out_port)},
        {"tunnel", plain().from_tunnel(5)},
        {"tun_metadata", changed(from_geneve().option(1, 2, 3).output(out_port), [](ovsdr_megaflow& megaflow) {
             megaflow.tunnel_mask.option[0] = 0xF0;
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
    HeaderBytes vxlan = dr::test::vxlan(), cut{dr::test::outer_ipv4(protocol_udp)}, cut_ip{2, 0, 0, 0, 0, 1},
                sequenced = dr::test::gre(dr::test::outer_ipv4(protocol_gre), 0x1000), long_one = dr::test::geneve(200);
};

std::vector<Row> odd_lists(const Headers& headers) {
    const auto plain = [] { return from_vport().ipv4(); };
    const std::uint32_t vxlan_port = tunnel_port_of(TunnelKind::vxlan), gre_port = tunnel_port_of(TunnelKind::gre);
    return {
        {"output to the in_port", plain().output(in_port)},
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
        {"tnl_push with a broken header", plain().tunnel(headers.cut_ip).output(uplink)},
        {"tnl_push with a broken header", plain().tunnel(headers.cut).output(uplink)},
        {"tnl_push with a GRE sequence number (set options:seq=false)",
         plain().tunnel(headers.sequenced).output(uplink)},
        {"tnl_push with a header longer than the device's", plain().tunnel(headers.long_one).output(uplink)},
    };
}

void check_refused(dr::Eswitch& eswitch, const Row& row) {
    const auto outcome = eswitch.put(ufid, row.megaflow);
    (void)eswitch.del(ufid);
    const auto* reject = std::get_if<dr::Reject>(&outcome);
    if (reject == nullptr) throw std::runtime_error(fmt::format("not refused: {}", row.obstacle));
    const std::string_view wanted = row.obstacle;
    if (std::ranges::any_of(reject->obstacles, [&](const auto& each) { return each.name.text() == wanted; })) return;
    throw std::runtime_error(fmt::format("refused as {}, not for {}", text_of(*reject), row.obstacle));
}

}  // namespace

void check_never_offloaded(dr::Eswitch& eswitch, const std::function<void()>& while_exact) {
    const Headers headers;
    for (const auto& rows : {odd_matches(), odd_sets(), odd_lists(headers)}) {
        for (const Row& row : rows) check_refused(eswitch, row);
    }
    eswitch.choose({.exact_tunnel_source_port = true, .exact_tunnel_flags = true});
    check_refused(eswitch, {"tnl_push in UDP (other_config:dr-tunnel-source-port=exact)",
                            from_vport().ipv4().tunnel(headers.vxlan).output(uplink)});
    check_refused(eswitch, {"tun_flags",
                            MegaflowBuilder(tunnel_port_of(TunnelKind::vxlan)).from_tunnel(5).ipv4().output(out_port)});
    while_exact();
    eswitch.choose({});
}

}  // namespace ovsdr::differential
