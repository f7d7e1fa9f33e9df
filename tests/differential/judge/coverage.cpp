#include "tests/differential/judge/coverage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace ovsdr::differential {

namespace {

constexpr const char* feature_names[] = {"eth_dst", "eth_src", "vid",    "pcp",    "second vid",
                                         "second pcp", "ip_src", "ip_dst", "tos",    "ttl",
                                         "label",      "proto",  "tp_src", "tp_dst", "tcp_flags",
                                         "tun_id (VNI)", "tun_id (GRE's key)", "tun_src", "tun_dst", "tun_ipv6_src",
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

std::string match_name(const Megaflow& megaflow, Feature feature) {
    const Pattern& pattern = megaflow[feature];
    const std::size_t masked = pattern.mask == ones(bits_of(feature, megaflow.eth_type)) ? 0 : 1;
    std::string header;
    if (feature == Feature::ip_src || feature == Feature::ip_dst || feature == Feature::tos ||
        feature == Feature::ttl) {
        header = fmt::format("{} ", type_name(megaflow));
    }
    if (is_transport(feature)) header = fmt::format("{} ", protocol_name(megaflow));
    return fmt::format("match {}{}{}", header, feature_names[static_cast<std::size_t>(feature)], mask_names[masked]);
}

void add_matches(const Megaflow& megaflow, std::set<std::string>& names) {
    names.insert(fmt::format("match {}", type_name(megaflow)));
    names.insert(fmt::format("match {}", tag_names[static_cast<std::size_t>(megaflow.tag)]));
    if (is_there(megaflow.tag)) {
        names.insert(fmt::format("match {} (vlan-limit {})", second_names[static_cast<std::size_t>(megaflow.second)],
                                 vlan_limit_of(megaflow.in_port)));
    }
    if (megaflow.is_ip()) names.insert(megaflow.first_fragments ? "match frag=first" : "match frag=no");
    for (std::size_t i = 0; i < feature_length; ++i) {
        const auto feature = static_cast<Feature>(i);
        if (feature == Feature::protocol && megaflow.protocol() != 0) {
            names.insert(fmt::format("match {}", protocol_name(megaflow)));
        } else if (megaflow[feature].mask != PatternBytes{}) {
            names.insert(match_name(megaflow, feature));
        }
    }
}

void add_set(const SetAction& set, std::set<std::string>& names) {
    const SetHeaderRow& row = row_of(set.header);
    for (std::size_t i = 0; i < row.fields.size(); ++i) {
        const PatternBytes& mask = set.fields[i].mask;
        if (mask == PatternBytes{}) continue;
        const std::size_t masked = mask == ones(row.fields[i].bits) ? 0 : 1;
        names.insert(fmt::format("set({}({}{}))", row.name, row.fields[i].name, mask_names[masked]));
    }
}

const char* copy_name(const Action& action) { return action.length == 0 ? "clone" : "check_pkt_len"; }

std::string tunnel_name(const TunnelPush& push) {
    return fmt::format("tnl_push({} over {}{})", name_of(push.kind), push.ipv6 ? "IPv6" : "IPv4",
                       push.checksum ? ", checksum" : "");
}

void add_actions(const Megaflow& megaflow, std::set<std::string>& names) {
    std::size_t outputs = 0, pushes = 0, pops = 0;
    bool changed_behind = false, changed = false;
    for (const Action& action : megaflow.actions) {
        switch (action.kind) {
            case Action::Kind::output:
                if (changed_behind) names.insert("output, change, output");
                ++outputs;
                break;
            case Action::Kind::push: ++pushes, names.insert("push_vlan"); break;
            case Action::Kind::pop: ++pops, names.insert("pop_vlan"); break;
            case Action::Kind::set: add_set(action.set, names); break;
            case Action::Kind::tunnel_push: names.insert(tunnel_name(action.tunnel)); break;
            case Action::Kind::tunnel_pop: names.insert("tnl_pop"); break;
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
    if (pushes > 1) names.insert("push_vlan twice");
    if (pops > 1) names.insert("pop_vlan twice");
}

std::set<std::string> names_of(const Megaflow& megaflow, const Scenario& scenario) {
    std::set<std::string> names;
    add_matches(megaflow, names);
    add_actions(megaflow, names);
    const unsigned layer = megaflow.recirc_id == 0 ? 0 : scenario.tables.at(megaflow.recirc_id).layer;
    names.insert(fmt::format("behind {} recirculations", layer));
    return names;
}

/// In any phase, by version.
std::vector<bool> ever_installed(const Scenario& scenario, const Verdict& nic) {
    std::vector<bool> ever(scenario.versions.size());
    for (const auto& phase : nic.installed) {
        for (std::size_t i = 0; i < ever.size(); ++i) ever[i] = ever[i] || phase[i] != 0;
    }
    return ever;
}

}  // namespace

std::map<std::string, Covered> coverage_of(const Scenario& scenario, const Verdict& nic, const Verdict& ovs) {
    std::vector<std::size_t> packets(scenario.versions.size());
    for (std::size_t i = 0; i < scenario.packets.size(); ++i) {
        if (!nic.ups[i].empty()) continue;
        for (const Lookup& lookup : ovs.lookups[i]) {
            if (lookup.version >= 0) ++packets[static_cast<std::size_t>(lookup.version)];
        }
    }
    std::map<std::string, Covered> coverage;
    const auto installed = ever_installed(scenario, nic);
    for (std::size_t i = port_length; i < scenario.versions.size(); ++i) {   // not the markers'
        for (const std::string& name : names_of(scenario.versions[i], scenario)) {
            Covered& covered = coverage[name];
            ++covered.drawn;
            covered.installed += installed[i] ? 1 : 0;
            covered.packets += packets[i];
        }
    }
    return coverage;
}

Figures figures_of(const Scenario& scenario, const Verdict& nic) {
    Figures figures;
    for (std::size_t i = 0; i < scenario.packets.size(); ++i) {
        ++(nic.ups[i].empty() ? figures.taken : figures.up);
        figures.copies += static_cast<std::size_t>(std::ranges::count(nic.copies[i], false, &Copy::in_software));
    }
    const auto installed = ever_installed(scenario, nic);
    figures.drawn = scenario.versions.size() - port_length;
    figures.installed = static_cast<std::size_t>(std::ranges::count(installed, true)) - port_length;
    return figures;
}

}  // namespace ovsdr::differential
