#include "tests/differential/judge/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tests/differential/judge/metered_copies.hpp"

namespace ovsdr::differential {

namespace {

constexpr unsigned perverse_percent = 12;   ///< of the choices go against rarity

constexpr const char* feature_names[] = {"eth_dst", "eth_src", "vid",    "pcp",    "second vid",
                                         "second pcp", "ip_src", "ip_dst", "tos",    "ttl",
                                         "label",      "proto",  "tp_src", "tp_dst", "tcp_flags",
                                         "tun_id", "tun_id", "tun_src", "tun_dst", "tun_ipv6_src",
                                         "tun_ipv6_dst", "tun_tos", "tun_ttl", "tun_tp_src", "tun_tp_dst",
                                         "tun_metadata (an option)"};
constexpr const char* tag_names[] = {"untagged", "802.1Q tag", "802.1ad tag", "any tags"};
constexpr const char* second_names[] = {"no second tag", "second 802.1Q tag", "second 802.1ad tag",
                                        "any second tag"};
constexpr const char* mask_names[] = {"", "/mask"};

const char* protocol_name(const Megaflow& megaflow) {
    switch (megaflow.protocol()) {
        case protocol_tcp: return "tcp";
        case protocol_udp: return "udp";
        case protocol_icmp: return "icmp";
        case protocol_icmpv6: return "icmpv6";
        case protocol_sctp: return "sctp";
        default: return "proto";
    }
}

const char* type_name(const Megaflow& megaflow) {
    switch (megaflow.eth_type) {
        case type_ipv4: return "ipv4";
        case type_ipv6: return "ipv6";
        case type_arp: return "arp";
        case customer_tag:
        case service_tag: return "the TPID of a tag that OVS does not parse";
        default: return "another ethertype";
    }
}

std::string protocol_prefix(const Megaflow& megaflow, Feature feature) {
    const bool of_ip = feature == Feature::ip_src || feature == Feature::ip_dst || feature == Feature::tos ||
                       feature == Feature::ttl;
    if (of_ip) return fmt::format("{} ", type_name(megaflow));
    return is_transport(feature) ? fmt::format("{} ", protocol_name(megaflow)) : std::string();
}

/// Of a megaflow's match; types and codes are 8 bits of a port.
unsigned width_of(const Megaflow& megaflow, Feature feature) {
    const bool icmp = megaflow.protocol() == protocol_icmp || megaflow.protocol() == protocol_icmpv6;
    return icmp && is_transport(feature) ? 8 : bits_of(feature, megaflow.eth_type);
}

void add_tunnel(const TunnelHeaders& headers, std::set<std::string>& names) {
    const char* version = headers.ipv6 ? "IPv6" : "IPv4";
    names.insert(fmt::format("match in {}", name_of(headers.kind)));
    names.insert(fmt::format("match in a tunnel over {}", version));
    names.insert(fmt::format("in {} over {}", name_of(headers.kind), version));
    if (headers.kind == TunnelKind::gre) names.insert(headers.key ? "match tun_flags=+key" : "match tun_flags=-key");
    if (headers.kind != TunnelKind::geneve && asks_for_oam(headers)) names.insert("match tun_flags=-oam, not Geneve's");
    if (headers.kind != TunnelKind::geneve) return;
    names.insert(headers.oam ? "match tun_flags=+oam" : "match tun_flags=-oam");
    const bool asked = asks_for_options(headers);
    names.insert(headers.options == GeneveOptions::none ? "match geneve()"
                 : !asked                               ? "match geneve(options of a size)"
                 : headers.options == GeneveOptions::usual ? "match geneve(an option)"
                                                           : "refused: match geneve(other options)");
}

std::string name_of_fragments(const Megaflow& megaflow) {
    const bool protocol_over_ipv6 = megaflow.eth_type == type_ipv6 && megaflow.protocol() != 0;
    switch (megaflow.fragments) {
        case Fragments::none: return "match frag=no";
        case Fragments::none_by_one_bit: return "match frag=0/1";
        case Fragments::not_later: return "refused: match frag=0/2";
        case Fragments::first: return "refused: match frag=first";
        case Fragments::later: return "refused: match frag=later";
        case Fragments::any: break;
    }
    return protocol_over_ipv6 ? "refused: match frag=1/1 with a protocol over IPv6" : "match frag=1/1";
}

void add_matches(const Megaflow& megaflow, std::set<std::string>& names) {
    names.insert(fmt::format("match {}", type_name(megaflow)));
    names.insert(fmt::format("match {}", tag_names[static_cast<std::size_t>(megaflow.tag)]));
    if (is_there(megaflow.tag)) {
        names.insert(fmt::format("match {} (vlan-limit {})", second_names[static_cast<std::size_t>(megaflow.second)],
                                 vlan_limit_of(megaflow.in_port)));
    }
    if (megaflow.is_ip()) names.insert(name_of_fragments(megaflow));
    if (megaflow.tunnel) add_tunnel(*megaflow.tunnel, names);
    if (!megaflow.refused_match.empty()) {
        names.insert("refused: match " + megaflow.refused_match.substr(0, megaflow.refused_match.find('=')));
    }
    for (const Metadata one : all_metadata) {
        if (megaflow.looks_for_zero_of(one)) names.insert(fmt::format("match {}=0", name_of(one)));
    }
    for (std::size_t i = 0; i < feature_length; ++i) {
        const auto feature = static_cast<Feature>(i);
        if (feature == Feature::protocol && megaflow.protocol() != 0) {
            names.insert(fmt::format("match {}", protocol_name(megaflow)));
        } else if (megaflow[feature].mask != PatternBytes{}) {
            const unsigned bits = width_of(megaflow, feature);
            names.insert(name_of_match(megaflow, feature, megaflow[feature].mask != ones(bits)));
        }
    }
}

void add_set(const SetAction& set, std::set<std::string>& names) {
    const SetHeaderRow& row = row_of(set.header);
    for (std::size_t i = 0; i < row.fields.size(); ++i) {
        const PatternBytes& mask = set.fields[i].mask;
        if (mask == PatternBytes{}) continue;
        names.insert(name_of_set(set.header, i, mask != ones(row.fields[i].bits)));
    }
}

const char* copy_name(const Action& action) { return action.length == 0 ? "clone" : "check_pkt_len"; }

void add_push(const TunnelPush& push, std::set<std::string>& names) {
    const char *kind = name_of(push.kind), *version = push.ipv6 ? "IPv6" : "IPv4";
    if (push.checksum) {
        names.insert(fmt::format("refused: tnl_push({} over {} with a checksum)", kind, version));
        return;
    }
    if (push.oddity != Oddity::none) {
        names.insert(push.oddity == Oddity::fragment ? "refused: tnl_push of a fragment"
                                                     : "refused: tnl_push of another protocol");
        return;
    }
    names.insert(fmt::format("tnl_push({})", kind));
    names.insert(fmt::format("tnl_push over {}", version));
    if (push.option) names.insert("tnl_push(geneve with an option)");
    if (push.kind == TunnelKind::gre && !push.key) names.insert("tnl_push(gre without a key)");
}

/// One header around two copies of a packet.
bool pushes_one_header_twice(const Megaflow& megaflow) {
    std::set<TunnelPush> pushes;
    return std::ranges::any_of(megaflow.actions, [&](const Action& action) {
        return action.kind == Action::Kind::tunnel_push && !pushes.insert(action.tunnel).second;
    });
}

void add_pop(std::uint32_t tunnel_port, std::set<std::string>& names) {
    const auto* kind = std::ranges::find(tunnel_kinds, tunnel_port, tunnel_port_of);
    names.insert("tnl_pop");
    if (kind != std::end(tunnel_kinds)) names.insert(fmt::format("tnl_pop({})", name_of(*kind)));
}

void add_actions(const Megaflow& megaflow, std::set<std::string>& names) {
    std::size_t outputs = 0, pushes = 0, pops = 0;
    bool changed_behind = false, changed = false;
    for (const Action& action : megaflow.actions) {
        switch (action.kind) {
            case Action::Kind::software:
            case Action::Kind::meter: break;
            case Action::Kind::output:
                if (is_software_port(action.port)) break;
                if (changed_behind) names.insert("output, change, output");
                ++outputs;
                break;
            case Action::Kind::push: ++pushes, names.insert("push_vlan"); break;
            case Action::Kind::pop: ++pops, names.insert("pop_vlan"); break;
            case Action::Kind::set: add_set(action.set, names); break;
            case Action::Kind::tunnel_push: add_push(action.tunnel, names); break;
            case Action::Kind::tunnel_pop: add_pop(action.port, names); break;
            case Action::Kind::recirc: names.insert(changed ? "change, recirc" : "recirc"); break;
            case Action::Kind::copy_begin: names.insert(copy_name(action)); break;
            case Action::Kind::copy_end: break;
            case Action::Kind::refused: names.insert("refused: " + action.text.substr(0, action.text.find('('))); break;
        }
        const bool changes = action.kind == Action::Kind::push || action.kind == Action::Kind::pop ||
                             action.kind == Action::Kind::set;
        changed = changed || changes;
        if (changes && outputs > 0) changed_behind = true;
    }
    names.insert(outputs > 1 ? "outputs" : outputs == 1 ? "output" : megaflow.actions.empty() ? "drop" : "no output");
    if (pushes_one_header_twice(megaflow)) names.insert("tnl_push of one header twice");
    if (pushes > 1) names.insert("push_vlan twice");
    if (pops > 1) names.insert("pop_vlan twice");
}

}  // namespace

std::string name_of_match(const Megaflow& megaflow, Feature feature, bool masked) {
    return fmt::format("match {}{}{}", protocol_prefix(megaflow, feature),
                       feature_names[static_cast<std::size_t>(feature)], mask_names[masked ? 1 : 0]);
}

std::string name_of_set(SetHeader header, std::size_t field, bool masked) {
    const SetHeaderRow& row = row_of(header);
    return fmt::format("set({}({}{}))", row.name, row.fields[field].name, mask_names[masked ? 1 : 0]);
}

std::set<std::string> names_of(const Megaflow& megaflow) {
    std::set<std::string> names;
    add_matches(megaflow, names);
    add_actions(megaflow, names);
    add_software_names(megaflow, names);
    add_meter_names(megaflow, names);
    add_metered_copy_names(megaflow, names);
    return names;
}

void Rarity::add(const Megaflow& megaflow) {
    if (!is_offloadable(megaflow, connectx_5_ ? 0 : 1)) return;
    for (const std::string& name : names_of(megaflow)) ++drawn_[name];
}

std::size_t Rarity::drawn(const std::string& name) const {
    const auto found = drawn_.find(name);
    return found == drawn_.end() ? 0 : found->second;
}

std::size_t Rarity::drawn_like(const Megaflow& root) const {
    std::size_t least = drawn(fmt::format("match {}", type_name(root)));
    const auto or_less = [&](std::size_t other) { least = std::min(least, other); };
    if (is_there(root.tag)) or_less(drawn(fmt::format("match {}", tag_names[static_cast<std::size_t>(root.tag)])));
    if (is_there(root.second)) {
        or_less(drawn("pop_vlan twice"));
        for (const Feature feature : {Feature::second_vid, Feature::second_pcp}) {
            for (const bool masked : {false, true}) or_less(drawn(name_of_match(root, feature, masked)));
        }
    }
    if (root.protocol() != 0) or_less(drawn(root, root.protocol()));
    return least;
}

bool Rarity::is_rarer(const std::string& one, const std::string& other) {
    return (drawn(one) < drawn(other)) != happens(chance_, perverse_percent);
}

bool Rarity::wants_mask(const Megaflow& megaflow, Feature feature) {
    return is_rarer(name_of_match(megaflow, feature, true), name_of_match(megaflow, feature, false));
}

bool Rarity::wants_mask(SetHeader header, std::size_t field) {
    return is_rarer(name_of_set(header, field, true), name_of_set(header, field, false));
}

void Rarity::sort(const Megaflow& megaflow, std::vector<Feature>& features) {
    std::ranges::shuffle(features, chance_);
    if (happens(chance_, perverse_percent)) return;
    std::ranges::stable_sort(features, {}, [&](Feature feature) {
        return std::min(drawn(name_of_match(megaflow, feature, false)), drawn(name_of_match(megaflow, feature, true)));
    });
}

void Rarity::sort(std::vector<SetHeader>& headers) {
    std::ranges::shuffle(headers, chance_);
    if (happens(chance_, perverse_percent)) return;
    std::ranges::stable_sort(headers, {}, [&](SetHeader header) { return drawn(header); });
}

void Rarity::sort(const Megaflow& megaflow, std::vector<std::uint8_t>& protocols) {
    std::ranges::shuffle(protocols, chance_);
    if (happens(chance_, perverse_percent)) return;
    std::ranges::stable_sort(protocols, {}, [&](std::uint8_t protocol) { return drawn(megaflow, protocol); });
}

/// Of the rarest field of its header; of one without fields, of itself.
std::size_t Rarity::drawn(Megaflow megaflow, std::uint8_t protocol) const {
    megaflow[Feature::protocol] = {number(protocol), ones(8)};
    const bool tcp = protocol == protocol_tcp, udp = protocol == protocol_udp;
    const bool icmp = protocol == protocol_icmp || protocol == protocol_icmpv6;
    if (!tcp && !udp && (!icmp || connectx_5_)) {
        return drawn(fmt::format("match {}", protocol_name(megaflow)));
    }
    std::size_t least = SIZE_MAX;
    for (const Feature feature : {Feature::tp_src, Feature::tp_dst, Feature::tcp_flags}) {
        if (feature == Feature::tcp_flags && !tcp) continue;
        for (const bool masked : {false, true}) {
            least = std::min(least, drawn(name_of_match(megaflow, feature, masked)));
        }
    }
    return least;
}

/// Of its rarest field.
std::size_t Rarity::drawn(SetHeader header) const {
    std::size_t least = SIZE_MAX;
    for (std::size_t i = 0; i < row_of(header).fields.size(); ++i) {
        for (const bool masked : {false, true}) least = std::min(least, drawn(name_of_set(header, i, masked)));
    }
    return least;
}

}  // namespace ovsdr::differential
