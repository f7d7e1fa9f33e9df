#include "tests/differential/judge/coverage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace ovsdr::differential {

namespace {

constexpr const char* feature_names[] = {"eth_dst", "eth_src", "vid",    "pcp",    "second vid",
                                         "second pcp", "ip_src", "ip_dst", "tos",    "ttl",
                                         "label",      "proto",  "tp_src", "tp_dst", "tcp_flags"};
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
    if (feature >= Feature::tp_src) header = fmt::format("{} ", protocol_name(megaflow));
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

void add_actions(const Megaflow& megaflow, std::set<std::string>& names) {
    std::size_t outputs = 0, pushes = 0, pops = 0;
    bool changed_behind = false;
    for (const Action& action : megaflow.actions) {
        switch (action.kind) {
            case Action::Kind::output:
                if (changed_behind) names.insert("output, change, output");
                ++outputs;
                break;
            case Action::Kind::push: ++pushes, names.insert("push_vlan"); break;
            case Action::Kind::pop: ++pops, names.insert("pop_vlan"); break;
            case Action::Kind::set: add_set(action.set, names); break;
        }
        if (action.kind != Action::Kind::output && outputs > 0) changed_behind = true;
    }
    names.insert(outputs == 0 ? "drop" : outputs == 1 ? "output" : "outputs");
    if (pushes > 1) names.insert("push_vlan twice");
    if (pops > 1) names.insert("pop_vlan twice");
}

}  // namespace

std::map<std::string, Covered> coverage_of(const std::vector<Megaflow>& megaflows, const Verdict& nic) {
    std::map<std::string, Covered> coverage;
    for (std::size_t i = 0; i < megaflows.size() - port_length; ++i) {   // not the markers'
        std::set<std::string> names;
        add_matches(megaflows[i], names);
        add_actions(megaflows[i], names);
        for (const std::string& name : names) {
            ++coverage[name].drawn;
            coverage[name].installed += nic.megaflows[i].installed ? 1 : 0;
        }
    }
    return coverage;
}

}  // namespace ovsdr::differential
