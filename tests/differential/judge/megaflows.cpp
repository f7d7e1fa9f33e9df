#include "tests/differential/judge/megaflows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace ovsdr::differential {

namespace {

constexpr std::uint16_t other_types[] = {0x88b5, 0x8847, 0x9000};
constexpr Tag tags[] = {Tag::none, Tag::customer, Tag::service};
constexpr unsigned frag_first_percent = 2, any_tag_percent = 15, any_second_percent = 40, three_tags_percent = 30,
                   transport_percent = 80;
constexpr std::uint32_t most_children = 9;
constexpr unsigned label_bits = 20;

using Bytes = PatternBytes;

/// What a node tells its children apart by.
struct Step {
    Feature feature;
    Bytes mask;
};

/// Whole, a prefix, or any bits. Protocols are matched whole, as OVS does.
Bytes random_mask(Chance& chance, Feature feature, std::uint16_t eth_type) {
    const unsigned bits = bits_of(feature, eth_type);
    if (feature == Feature::protocol || happens(chance, 50)) return ones(bits);
    return part_of(chance, bits);
}

class Grower {
public:
    Grower(Chance& chance, std::size_t wanted, std::vector<Megaflow>& leaves)
        : chance_(chance), wanted_(wanted), leaves_(leaves) {}

    /// Grows about `share` megaflows below `root`, fewer where the values run out.
    void tree(Megaflow root, std::size_t share) {
        const std::vector<Step> steps = steps_for(root);
        grow(std::move(root), steps, 0, share);
    }

private:
    /// Most trees of a second tag look at it. Most trees of IP tell protocols apart, and then their transport fields,
    /// before anything else.
    std::vector<Step> steps_for(const Megaflow& root) {
        std::vector<Feature> features{Feature::eth_dst, Feature::eth_src};
        if (is_there(root.tag)) features.insert(features.end(), {Feature::vid, Feature::pcp});
        if (is_there(root.second)) features.insert(features.end(), {Feature::second_vid, Feature::second_pcp});
        if (root.is_ip()) {
            features.insert(features.end(), {Feature::ip_src, Feature::ip_dst, Feature::tos, Feature::ttl});
        }
        if (root.eth_type == type_ipv6) features.push_back(Feature::label);
        std::ranges::shuffle(features, chance_);
        features.resize(std::min<std::size_t>(features.size(), 1 + below(chance_, 4)));
        if (is_there(root.second) && happens(chance_, 80)) {
            const Feature one = root.second == Tag::customer ? Feature::second_vid : Feature::second_pcp;
            if (std::ranges::count(features, one) == 0) features.insert(features.begin(), one);
        }
        if (root.is_ip() && happens(chance_, transport_percent)) {
            features.insert(features.begin() + below(chance_, 2), Feature::protocol);
        }
        std::vector<Step> steps;
        for (const Feature feature : features) steps.push_back({feature, random_mask(chance_, feature, root.eth_type)});
        return steps;
    }

    /// A protocol's own fields come next; the same ones all over the tree.
    std::vector<Step> with_transport(const Megaflow& megaflow, std::vector<Step> steps, std::size_t depth) {
        const std::uint8_t protocol = megaflow.protocol();
        const Tree tree{megaflow.in_port, megaflow.eth_type, megaflow.tag, megaflow.second};
        const auto known = transport_.try_emplace({tree, protocol});
        std::vector<Step>& more = known.first->second;
        if (known.second) {
            const bool has_ports = protocol == protocol_tcp || protocol == protocol_udp;
            const bool has_type = protocol == (megaflow.eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6);
            for (const Feature feature : {Feature::tp_src, Feature::tp_dst, Feature::tcp_flags}) {
                if (feature == Feature::tcp_flags ? protocol != protocol_tcp : !has_ports && !has_type) continue;
                if (!happens(chance_, 60)) continue;
                Bytes mask = random_mask(chance_, feature, megaflow.eth_type);
                // Types and codes have 8 bits.
                if (has_type) mask[14] = 0;
                if (has_type && mask[15] == 0) mask[15] = 0xFF;
                more.push_back({feature, mask});
            }
            std::ranges::shuffle(more, chance_);
        }
        steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(depth) + 1, more.begin(), more.end());
        return steps;
    }

    void grow(Megaflow node, const std::vector<Step>& steps, std::size_t depth, std::size_t share) {
        if (leaves_.size() >= wanted_) return;
        if (depth == steps.size() || share <= 1) {
            node.first_fragments = node.is_ip() && happens(chance_, frag_first_percent);
            node.actions = actions(node);
            leaves_.push_back(std::move(node));
            return;
        }
        const Step step = steps[depth];
        const std::vector<Bytes> values = values_for(step, node.eth_type, share);
        for (const Bytes& value : values) {
            Megaflow child = node;
            child[step.feature] = {value, step.mask};
            const auto deeper = step.feature == Feature::protocol ? with_transport(child, steps, depth) : steps;
            grow(std::move(child), deeper, depth + 1, std::max<std::size_t>(1, share / values.size()));
        }
    }

    std::vector<Bytes> values_for(const Step& step, std::uint16_t eth_type, std::size_t share) {
        std::set<Bytes> values;
        const auto wanted = std::min<std::size_t>(2 + below(chance_, most_children), std::max<std::size_t>(2, share));
        for (std::size_t tries = 0; values.size() < wanted && tries < 4 * wanted; ++tries) {
            Bytes value = random_bytes(chance_);
            if (step.feature == Feature::protocol) {
                const std::uint8_t icmp = eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6;
                const std::uint8_t known[] = {protocol_tcp, protocol_tcp, protocol_udp, icmp, protocol_sctp, 47};
                value = number(known[below(chance_, std::size(known))]);
            }
            // What ends a connection goes up whatever its megaflow: so not too many of these.
            if (step.feature == Feature::tcp_flags && happens(chance_, 80)) value[15] &= static_cast<std::uint8_t>(~5U);
            values.insert(both(value, step.mask));
        }
        return {values.begin(), values.end()};
    }

    Action output(const Megaflow& megaflow) {
        while (true) {
            const std::uint32_t port = ports[below(chance_, port_length)].odp;
            if (port != megaflow.in_port) return {.kind = Action::Kind::output, .port = port};
        }
    }

    Action push() {
        return {.kind = Action::Kind::push, .tpid = happens(chance_, 75) ? customer_tag : service_tag,
                .vid = static_cast<std::uint16_t>(below(chance_, 4096)),
                .pcp = static_cast<std::uint8_t>(below(chance_, 8))};
    }

    /// Mostly tags that are there.
    void pop(const Megaflow& megaflow, std::vector<Action>& list) {
        const bool two = is_there(megaflow.second) || is_tag(megaflow.eth_type);
        if (megaflow.tag == Tag::any || !happens(chance_, megaflow.tag == Tag::none ? 8 : 50)) return;
        list.push_back({.kind = Action::Kind::pop});
        if (happens(chance_, two ? 50 : 15)) list.push_back({.kind = Action::Kind::pop});
        if (happens(chance_, two ? 4 : 0)) list.push_back({.kind = Action::Kind::pop});
    }

    /// A set action here and there in the lists of some megaflows.
    void perhaps_set(const Megaflow& megaflow, bool sets, std::vector<Action>& list) {
        if (!sets || !happens(chance_, 45)) return;
        list.push_back({.kind = Action::Kind::set, .set = draw_set(chance_, megaflow.eth_type, megaflow.protocol())});
    }

    /// Outputs between changes of tags and headers; sometimes nothing, or changes that nobody sees.
    std::vector<Action> actions(const Megaflow& megaflow) {
        std::vector<Action> list;
        if (happens(chance_, 10)) return list;
        const bool sets = happens(chance_, 60);
        const unsigned legs = happens(chance_, 85) ? 1 : 2 + below(chance_, 2);
        for (unsigned leg = 0; leg < legs; ++leg) {
            const bool plain = leg == 0 && (legs > 1 || happens(chance_, 55));
            perhaps_set(megaflow, sets, list);
            if (!plain) {
                pop(megaflow, list);
                perhaps_set(megaflow, sets, list);
                const unsigned pushes = below(chance_, 10) < 5 ? 1 : below(chance_, 3);
                for (unsigned i = 0; i < pushes; ++i) list.push_back(push());
                perhaps_set(megaflow, sets, list);
            }
            std::set<std::uint32_t> outputs;
            const unsigned most = happens(chance_, 60) ? 1 : 2 + below(chance_, 2);
            for (unsigned i = 0; i < most; ++i) {
                const Action one = output(megaflow);
                if (!outputs.insert(one.port).second) continue;
                list.push_back(one);
                if (happens(chance_, 30)) perhaps_set(megaflow, sets, list);
            }
        }
        if (happens(chance_, 3)) list.push_back(push());
        return list;
    }

    Chance& chance_;
    std::size_t wanted_;
    std::vector<Megaflow>& leaves_;
    using Tree = std::tuple<std::uint32_t, std::uint16_t, Tag, Tag>;
    std::map<std::pair<Tree, std::uint8_t>, std::vector<Step>> transport_;
};

/// Where a second tag is looked at, a tree for each kind.
void add_roots(Chance& chance, Megaflow root, std::vector<Megaflow>& found) {
    const bool looks = is_there(root.tag) && vlan_limit_of(root.in_port) > 1 && !happens(chance, any_second_percent);
    if (!looks) {
        found.push_back(root);
        return;
    }
    for (const Tag tag : tags) {
        root.second = tag;
        found.push_back(root);
    }
}

/// Ethertypes that are the TPID of a tag that OVS does not parse, behind as many as it does.
void add_roots_behind_the_limit(const PortNumber& port, std::vector<Megaflow>& found) {
    if (port.vlan_limit > 1) {   // nobody offloads these
        found.push_back({.in_port = port.odp, .eth_type = customer_tag, .tag = Tag::service, .second = Tag::customer});
        return;
    }
    for (const std::uint16_t type : {customer_tag, service_tag}) {
        for (const Tag tag : {Tag::customer, Tag::service}) {
            found.push_back({.in_port = port.odp, .eth_type = type, .tag = tag});
        }
    }
}

std::vector<Megaflow> roots(Chance& chance) {
    std::vector<Megaflow> found;
    for (const PortNumber& port : ports) {
        std::vector<std::uint16_t> types{type_ipv4, type_ipv6, type_arp};
        types.push_back(other_types[below(chance, std::size(other_types))]);
        for (const std::uint16_t type : types) {
            if (happens(chance, any_tag_percent)) {
                found.push_back({.in_port = port.odp, .eth_type = type, .tag = Tag::any});
                continue;
            }
            for (const Tag tag : tags) {
                add_roots(chance, {.in_port = port.odp, .eth_type = type, .tag = tag}, found);
            }
        }
        if (port.vlan_limit == 1 || happens(chance, three_tags_percent)) add_roots_behind_the_limit(port, found);
    }
    return found;
}

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

std::vector<Megaflow> make_megaflows(std::uint64_t seed, std::size_t length) {
    Chance chance(seed);
    std::vector<Megaflow> megaflows;
    std::vector<Megaflow> shuffled = roots(chance);
    std::ranges::shuffle(shuffled, chance);
    Grower grower(chance, length, megaflows);
    for (std::size_t i = 0; i < shuffled.size(); ++i) {
        // Values run out now and then: later trees make up for it, since each gets thrice its part of what is left.
        const std::size_t left = length - megaflows.size();
        grower.tree(shuffled[i], 1 + 3 * left / (shuffled.size() - i));
    }
    for (std::size_t i = 0; i < port_length; ++i) {
        Megaflow marker{.in_port = ports[i].odp, .eth_type = type_marker};
        marker.actions = {{.kind = Action::Kind::output, .port = ports[(i + 1) % port_length].odp}};
        megaflows.push_back(std::move(marker));
    }
    return megaflows;
}

std::string match_text(const Megaflow& megaflow) {
    std::string text = fmt::format("recirc_id(0),in_port({}){}", megaflow.in_port, ethernet_text(megaflow));
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

std::string actions_text(const Megaflow& megaflow) {
    std::string text;
    for (const Action& action : megaflow.actions) {
        if (!text.empty()) text += ",";
        switch (action.kind) {
            case Action::Kind::output: text += fmt::format("{}", action.port); break;
            case Action::Kind::pop: text += "pop_vlan"; break;
            case Action::Kind::set: text += text_of(action.set); break;
            case Action::Kind::push:
                text += fmt::format("push_vlan(tpid={:#06x},vid={},pcp={})", action.tpid, action.vid, action.pcp);
                break;
        }
    }
    return text;
}

}  // namespace ovsdr::differential
