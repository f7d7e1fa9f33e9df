#include <fmt/format.h>

#include <algorithm>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

namespace {

using Bytes = PatternBytes;

constexpr unsigned label_bits = 20;

std::string address(const Bytes& bytes, std::uint16_t eth_type) {
    return eth_type == type_ipv4 ? ipv4_address(bytes) : ipv6_address(bytes);
}

/// "name(a=1,b=2/3)", with what the megaflow looks at.
class Part {
public:
    explicit Part(std::string name) : text_(std::move(name)) {}
    void add(const std::string& item) {
        text_ += (empty_ ? "(" : ",") + item;
        empty_ = false;
    }
    [[nodiscard]] std::string text() const { return empty_ ? "" : "," + text_ + ")"; }

private:
    std::string text_;
    bool empty_ = true;
};

std::string ethernet_text(const Megaflow& megaflow) {
    Part part("eth");
    for (const auto& [name, feature] : {std::pair{"src", Feature::eth_src}, {"dst", Feature::eth_dst}}) {
        const Pattern& pattern = megaflow[feature];
        if (pattern.mask != Bytes{}) part.add(fmt::format("{}={}/{}", name, mac(pattern.value), mac(pattern.mask)));
    }
    return part.text();
}

std::string transport_text(const Megaflow& megaflow) {
    const std::uint8_t protocol = megaflow.protocol();
    const bool icmp = protocol == protocol_icmp || protocol == protocol_icmpv6;
    const char* name = protocol == protocol_tcp ? "tcp" : protocol == protocol_udp ? "udp"
                       : protocol == protocol_icmp ? "icmp" : "icmpv6";
    Part part(name);
    for (const auto& [item, feature] :
         {std::pair{icmp ? "type" : "src", Feature::tp_src}, {icmp ? "code" : "dst", Feature::tp_dst}}) {
        const Pattern& pattern = megaflow[feature];
        if (pattern.mask != Bytes{}) part.add(fmt::format("{}={}", item, hex(pattern, icmp ? 8 : 16)));
    }
    std::string text = part.text();
    const Pattern& flags = megaflow[Feature::tcp_flags];
    if (flags.mask != Bytes{}) {
        text += fmt::format(",tcp_flags({:#x}/{:#x})", flags.value[14] << 8 | flags.value[15],
                            flags.mask[14] << 8 | flags.mask[15]);
    }
    return text;
}

std::string ip_text(const Megaflow& megaflow) {
    const bool v4 = megaflow.eth_type == type_ipv4;
    Part part(v4 ? "ipv4" : "ipv6");
    for (const auto& [name, feature] : {std::pair{"src", Feature::ip_src}, {"dst", Feature::ip_dst}}) {
        const Pattern& pattern = megaflow[feature];
        if (pattern.mask == Bytes{}) continue;
        part.add(fmt::format("{}={}/{}", name, address(pattern.value, megaflow.eth_type),
                             address(pattern.mask, megaflow.eth_type)));
    }
    if (megaflow[Feature::protocol].mask != Bytes{}) part.add("proto=" + hex(megaflow[Feature::protocol], 8));
    if (megaflow[Feature::tos].mask != Bytes{}) part.add((v4 ? "tos=" : "tclass=") + hex(megaflow[Feature::tos], 8));
    if (megaflow[Feature::ttl].mask != Bytes{}) part.add((v4 ? "ttl=" : "hlimit=") + hex(megaflow[Feature::ttl], 8));
    if (megaflow[Feature::label].mask != Bytes{}) part.add("label=" + hex(megaflow[Feature::label], label_bits));
    part.add(megaflow.first_fragments ? "frag=first" : "frag=no");
    return part.text() + transport_text(megaflow);
}

/// A tag and what is behind it.
std::string encap_text(Tag tag, const Pattern& vid, const Pattern& pcp, const std::string& payload) {
    Part vlan("vlan");
    if (vid.mask != Bytes{}) vlan.add("vid=" + hex(vid, 12));
    if (pcp.mask != Bytes{}) vlan.add("pcp=" + hex(pcp, 3));
    vlan.add("cfi=1");
    return fmt::format("eth_type({:#06x}){},encap({})", tag == Tag::customer ? customer_tag : service_tag, vlan.text(),
                       payload);
}

}  // namespace

std::uint16_t vport_of(std::uint32_t odp) {
    return std::ranges::find(ports, odp, &PortNumber::odp)->vport;
}

std::uint8_t vlan_limit_of(std::uint32_t odp) {
    return std::ranges::find(ports, odp, &PortNumber::odp)->vlan_limit;
}

unsigned bits_of(Feature feature, std::uint16_t eth_type) {
    switch (feature) {
        case Feature::eth_dst:
        case Feature::eth_src: return 48;
        case Feature::vid:
        case Feature::second_vid: return 12;
        case Feature::pcp:
        case Feature::second_pcp: return 3;
        case Feature::label: return label_bits;
        case Feature::ip_src:
        case Feature::ip_dst: return eth_type == type_ipv4 ? 32 : 128;
        case Feature::tp_src:
        case Feature::tp_dst: return 16;
        case Feature::tcp_flags: return 9;
        default: return 8;
    }
}

std::string match_text(const Megaflow& megaflow) {
    std::string text =
        fmt::format("recirc_id({}),in_port({}){}", megaflow.recirc_id, megaflow.in_port, ethernet_text(megaflow));
    const std::string payload = fmt::format("eth_type({:#06x}){}", megaflow.eth_type,
                                            megaflow.is_ip() ? ip_text(megaflow) : std::string());
    const std::string behind_one =
        is_there(megaflow.second)
            ? encap_text(megaflow.second, megaflow[Feature::second_vid], megaflow[Feature::second_pcp], payload)
            : payload;
    return text + "," + (is_there(megaflow.tag) ? encap_text(megaflow.tag, megaflow[Feature::vid],
                                                             megaflow[Feature::pcp], behind_one)
                                                : payload);
}

namespace {

/// From `at` on, up to the end of the copy that begins there, or of all.
std::string list_text(const std::vector<Action>& actions, std::size_t& at) {
    std::string text;
    for (; at < actions.size() && actions[at].kind != Action::Kind::copy_end; ++at) {
        const Action& action = actions[at];
        if (!text.empty()) text += ",";
        switch (action.kind) {
            case Action::Kind::output: text += fmt::format("{}", action.port); break;
            case Action::Kind::pop: text += "pop_vlan"; break;
            case Action::Kind::set: text += text_of(action.set); break;
            case Action::Kind::push:
                text += fmt::format("push_vlan(tpid={:#06x},vid={},pcp={})", action.tpid, action.vid, action.pcp);
                break;
            case Action::Kind::tunnel_push: text += text_of(action.tunnel); break;
            case Action::Kind::recirc: text += fmt::format("recirc({})", action.port); break;
            case Action::Kind::refused: text += action.text; break;
            case Action::Kind::copy_begin: {
                const std::string nested = list_text(actions, ++at);
                text += action.length == 0
                            ? fmt::format("clone({})", nested)
                            : fmt::format("check_pkt_len(size={},gt({}),le({}))", action.length, nested, nested);
                break;
            }
            case Action::Kind::copy_end: break;
        }
    }
    return text;
}

}  // namespace

std::string actions_text(const Megaflow& megaflow) {
    std::size_t at = 0;
    return list_text(megaflow.actions, at);
}

std::string text_of(const Megaflow& megaflow) {
    return match_text(megaflow) + " actions:" + (megaflow.actions.empty() ? "drop" : actions_text(megaflow));
}

}  // namespace ovsdr::differential
