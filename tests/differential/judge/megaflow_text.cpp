#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

namespace {

using Bytes = PatternBytes;

constexpr unsigned label_bits = 20, vni_bits = 24;

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
    const bool first = megaflow.fragments == Fragments::first || megaflow.fragments == Fragments::any;
    part.add(megaflow.fragments == Fragments::later ? "frag=later" : first ? "frag=first" : "frag=no");
    return part.text() + transport_text(megaflow);
}

std::string flags_text(const TunnelHeaders& headers) {
    const auto sign = [](bool set) { return set ? '+' : '-'; };
    return fmt::format("flags(-df{}csum{}key{})", sign(headers.checksum), sign(headers.key),
                       asks_for_oam(headers) ? fmt::format("{}oam", sign(headers.oam)) : std::string());
}

/// The usual option's data is the feature; of those that are not asked for only the size matters.
std::string options_text(const Megaflow& megaflow) {
    const TunnelHeaders& headers = *megaflow.tunnel;
    if (headers.kind != TunnelKind::geneve) return "";
    const bool asked = asks_for_options(headers);
    std::string text;
    for (const auto& [option_class, type] : list_of(headers.options)) {
        const Pattern& data = megaflow[Feature::tun_option];
        const Pattern shown = asked ? data : Pattern{};
        text += fmt::format("{{class={:#x}{m},type={:#x}{m},len=4{m},{}}}", option_class, type, hex(shown, 32),
                            fmt::arg("m", asked ? "" : "/0"));
    }
    return fmt::format(",geneve({})", text);
}

/// What OVS puts behind "tunnel(". Without a key "+key" means that OVS looks whether there is one (ovs_judge.hpp).
std::string tunnel_text(const Megaflow& megaflow) {
    const TunnelHeaders& headers = *megaflow.tunnel;
    const bool v6 = headers.ipv6, gre = headers.kind == TunnelKind::gre;
    const auto masked = [](const Pattern& pattern, const std::string& value, const std::string& mask) {
        return pattern.mask == PatternBytes{} ? std::string() : fmt::format("{}/{}", value, mask);
    };
    std::string text = "tun_id=";
    text += gre && !headers.key ? "0" : hex(megaflow[gre ? Feature::tun_key : Feature::tun_id], gre ? 32 : vni_bits);
    for (const auto& [name, feature] :
         {std::pair{v6 ? "ipv6_src" : "src", v6 ? Feature::tun_ipv6_src : Feature::tun_src},
          {v6 ? "ipv6_dst" : "dst", v6 ? Feature::tun_ipv6_dst : Feature::tun_dst}}) {
        const Pattern& pattern = megaflow[feature];
        const std::uint16_t type = v6 ? type_ipv6 : type_ipv4;
        const std::string item = masked(pattern, address(pattern.value, type), address(pattern.mask, type));
        if (!item.empty()) text += fmt::format(",{}={}", name, item);
    }
    for (const auto& [name, feature, bits] :
         {std::tuple{"tos", Feature::tun_tos, 8U}, {"tp_src", Feature::tun_tp_src, 16U},
          {"tp_dst", Feature::tun_tp_dst, 16U}}) {
        if (megaflow[feature].mask != Bytes{}) text += fmt::format(",{}={}", name, hex(megaflow[feature], bits));
    }
    text += ",ttl=" + hex(megaflow[Feature::tun_ttl], 8);   // OVS refuses tunnels that do not say it
    return fmt::format("tunnel({}{},{}),", text, options_text(megaflow), flags_text(headers));
}

struct MetadataRow {
    const char *name, *zero;
};
/// That a packet is of no tunnel no text can say (ovs_judge.cpp).
constexpr MetadataRow metadata_rows[] = {
    {"skb_priority", "skb_priority(0/0xffffffff),"}, {"skb_mark", "skb_mark(0/0xffffffff),"},
    {"ct_state", "ct_state(0/0x3f),"},               {"ct_zone", "ct_zone(0/0xffff),"},
    {"ct_mark", "ct_mark(0/0x3),"},                  {"ct_label", "ct_label(0/0x3),"},
    {"dp_hash", "dp_hash(0/0xf),"},                  {"tunnel", ""},
};

std::string metadata_text(const Megaflow& megaflow) {
    std::string text;
    for (const Metadata one : all_metadata) {
        if (megaflow.looks_for_zero_of(one)) text += metadata_rows[static_cast<std::size_t>(one)].zero;
    }
    return text;
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

namespace {

const PortNumber& port_of(std::uint32_t odp) {
    static constexpr PortNumber no_vport{};
    const auto found = std::ranges::find(ports, is_tunnel_port(odp) ? uplink : odp, &PortNumber::odp);
    return found == std::end(ports) ? no_vport : *found;
}

}  // namespace

bool is_any_icmp(const Megaflow& megaflow) {
    return megaflow.protocol() == protocol_icmp || megaflow.protocol() == protocol_icmpv6;
}

std::optional<GeneveOptions> option_of(const Megaflow& megaflow) {
    const bool asks = megaflow.tunnel && asks_for_options(*megaflow.tunnel);
    return asks ? std::optional(megaflow.tunnel->options) : std::nullopt;
}

const char* name_of(Metadata metadata) { return metadata_rows[static_cast<std::size_t>(metadata)].name; }

std::uint16_t vport_of(std::uint32_t odp) { return port_of(odp).vport; }
std::uint8_t vlan_limit_of(std::uint32_t odp) { return port_of(odp).vlan_limit; }

std::uint8_t fragment_mask_of(Fragments fragments) {
    switch (fragments) {
        case Fragments::none_by_one_bit:
        case Fragments::any: return 1;
        case Fragments::not_later: return 2;
        default: return 3;
    }
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
        case Feature::tun_id: return vni_bits;
        case Feature::ip_src:
        case Feature::ip_dst: return eth_type == type_ipv4 ? 32 : 128;
        case Feature::tp_src:
        case Feature::tp_dst:
        case Feature::tun_tp_src:
        case Feature::tun_tp_dst: return 16;
        case Feature::tun_key:
        case Feature::tun_src:
        case Feature::tun_dst:
        case Feature::tun_option: return 32;
        case Feature::tun_ipv6_src:
        case Feature::tun_ipv6_dst: return 128;
        case Feature::tcp_flags: return 9;
        default: return 8;
    }
}

std::string match_text(const Megaflow& megaflow) {
    std::string text = metadata_text(megaflow);
    if (megaflow.tunnel) text += tunnel_text(megaflow);
    text += fmt::format("recirc_id({}),in_port({}){}", megaflow.recirc_id, megaflow.in_port, ethernet_text(megaflow));
    const std::string payload = fmt::format("eth_type({:#06x}){}", megaflow.eth_type,
                                            megaflow.is_ip() ? ip_text(megaflow) : std::string()) +
                                megaflow.refused_match;
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
            case Action::Kind::tunnel_pop: text += fmt::format("tnl_pop({})", action.port); break;
            case Action::Kind::recirc: text += fmt::format("recirc({})", action.port); break;
            case Action::Kind::refused: text += action.text; break;
            case Action::Kind::software: text += text_of(action.software); break;
            case Action::Kind::meter: text += fmt::format("meter({})", action.port); break;
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
