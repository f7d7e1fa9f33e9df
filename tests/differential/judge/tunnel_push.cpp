#include "tests/differential/judge/tunnel_push.hpp"

#include <fmt/format.h>

namespace ovsdr::differential {

namespace {

constexpr unsigned checksum_percent = 4, key_percent = 34, ipv6_percent = 35, option_percent = 60,
                   geneve_percent = 15, peers = 12;

/// OVS_VPORT_TYPE_*, over IPv4 and over IPv6.
constexpr unsigned types[][2] = {{4, 4}, {5, 5}, {3, 109}};

constexpr unsigned ethernet_size = 14, ipv4_size = 20, ipv6_size = 40, udp_size = 8, word = 4;

/// The header behind IP, as OVS prints it, and its size.
struct Text {
    std::string text;
    unsigned size;
};

Text udp_tunnel(const TunnelPush& push) {
    const bool geneve = push.kind == TunnelKind::geneve;
    const std::string udp =
        fmt::format("udp(src=0,dst={},csum={:#x})", geneve ? 6081 : 4789, push.checksum ? 0xffff : 0);
    const unsigned vni = push.id & 0xFFFFFF;
    if (!geneve) return {fmt::format("{},vxlan(flags=0x8000000,vni={:#x})", udp, vni), udp_size + 2 * word};
    std::string options;
    if (push.option) options = fmt::format(",options({{class=0x102,type=0x80,len=4,{:#x}}})", push.id ^ 0x5A5A5A5A);
    return {fmt::format("{},geneve({}vni={:#x}{})", udp, push.option ? "crit," : "", vni, options),
            udp_size + (push.option ? 4 : 2) * word};
}

Text gre(const TunnelPush& push) {
    const unsigned flags = (push.checksum ? 0x8000U : 0) | (push.key ? 0x2000U : 0);
    std::string fields;
    if (push.checksum) fields += ",csum=0x0";
    if (push.key) fields += fmt::format(",key={:#x}", push.id);
    return {fmt::format("gre((flags={:#x},proto=0x6558){})", flags, fields),
            word * (1 + (push.checksum ? 1U : 0) + (push.key ? 1U : 0))};
}

/// Seldom. Not drawn of its own: all that is drawn behind it would be something else.
Oddity oddity_of(const TunnelPush& push) {
    if (push.id % 64 != 0) return Oddity::none;
    return push.ipv6 || push.id % 128 != 0 ? Oddity::protocol : Oddity::fragment;
}

unsigned ip_protocol_of(const TunnelPush& push) {
    if (push.oddity == Oddity::protocol) return 99;
    return push.kind == TunnelKind::gre ? 47 : 17;
}

}  // namespace

TunnelPush draw_tunnel_push(Chance& chance) {
    const bool geneve = happens(chance, geneve_percent);
    TunnelPush push{.kind = geneve ? TunnelKind::geneve : tunnel_kinds[below(chance, std::size(tunnel_kinds))]};
    push.ipv6 = happens(chance, ipv6_percent);
    push.checksum = happens(chance, checksum_percent);
    push.key = happens(chance, key_percent);
    push.option = push.kind == TunnelKind::geneve && happens(chance, option_percent);
    push.dont_fragment = happens(chance, 80);
    push.tos = static_cast<std::uint8_t>(happens(chance, 30) ? below(chance, 256) : 0);
    push.ttl = static_cast<std::uint8_t>(happens(chance, 70) ? 64 : 1 + below(chance, 255));
    push.id = static_cast<std::uint32_t>(chance());
    push.peer = below(chance, peers);
    push.oddity = oddity_of(push);
    return push;
}

std::string text_of(const TunnelPush& push) {
    const Text behind_ip = push.kind == TunnelKind::gre ? gre(push) : udp_tunnel(push);
    const unsigned protocol = ip_protocol_of(push);
    const unsigned fragment = (push.dont_fragment ? 0x4000U : 0) | (push.oddity == Oddity::fragment ? 0x2000U : 0);
    const unsigned size = ethernet_size + (push.ipv6 ? ipv6_size : ipv4_size) + behind_ip.size;
    const std::string ip =
        push.ipv6 ? fmt::format("ipv6(src=fd00::1,dst=fd00::{:x},label=0,proto={},tclass={:#x},hlimit={})",
                                push.peer + 2, protocol, push.tos, push.ttl)
                  : fmt::format("ipv4(src=172.16.0.1,dst=172.16.0.{},proto={},tos={},ttl={},frag={:#x})", push.peer + 2,
                                protocol, push.tos, push.ttl, fragment);
    const unsigned type = types[static_cast<std::size_t>(push.kind)][push.ipv6 ? 1 : 0];
    return fmt::format("tnl_push(tnl_port({}),header(size={},type={},eth(dst=02:00:00:00:09:{:02x},"
                       "src=02:00:00:00:09:01,dl_type={}),{},{}),out_port({}))",
                       tunnel_port_of(push.kind), size, type, push.peer + 2,
                       push.ipv6 ? "0x86dd" : "0x0800", ip, behind_ip.text, underlay_port);
}

}  // namespace ovsdr::differential
