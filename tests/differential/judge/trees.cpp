#include "tests/differential/judge/trees.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "tests/differential/judge/action_list.hpp"

namespace ovsdr::differential {

namespace {

constexpr std::uint16_t other_types[] = {0x88b5, 0x8847, 0x9000};
constexpr Tag tags[] = {Tag::none, Tag::customer, Tag::service};
constexpr Feature transport_features[] = {Feature::tp_src, Feature::tp_dst, Feature::tcp_flags};
constexpr unsigned frag_percent = 2, part_of_frag_percent = 16, refused_percent = 12, any_tag_percent = 15,
                   any_second_percent = 40, three_tags_percent = 30, transport_percent = 85, no_second_percent = 30,
                   zeros_percent = 40, one_child_percent = 35, fragments_percent = 75, told_fragments_percent = 12,
                   rarely_percent = 10;
constexpr const char* arp_matches[] = {",arp(op=1)", ",arp(sip=10.0.0.0/255.0.0.0)", ",arp(tip=10.0.0.1)",
                                       ",arp(sha=02:00:00:00:00:00/01:00:00:00:00:00)"};
constexpr std::uint32_t most_children = 9;
constexpr unsigned parts_of_icmp = 4;       ///< a power of 2
constexpr std::size_t part_of_tunnel = 11;   ///< percent, of each kind
constexpr std::size_t larger_part = 2;   ///< of the megaflows a tree gets so many times its part
constexpr std::uint16_t some_udp_port = 53;

using Bytes = PatternBytes;

/// What a node tells its children apart by.
struct Step {
    Feature feature;
    Bytes mask;
};

/// Port, ethertype, first tag.
using Place = std::tuple<std::uint32_t, std::uint16_t, Tag>;
Place place_of(const Megaflow& megaflow) { return {megaflow.in_port, megaflow.eth_type, megaflow.tag}; }

class Grower {
public:
    /// `fragmented`: where fragments have a tree of their own.
    Grower(Chance& chance, Rarity& rarity, std::size_t wanted, const DrawActions& actions,
           std::set<Place> fragmented, std::vector<Megaflow>& leaves)
        : chance_(chance), rarity_(rarity), wanted_(wanted), actions_(actions), fragmented_(std::move(fragmented)),
          leaves_(leaves) {}

    /// Grows about `share` megaflows below `root`, fewer where the values run out.
    void tree(Megaflow root, std::size_t share) {
        transport_.clear();
        std::vector<Step> steps = steps_for(root);
        if (root.protocol() != 0) steps = with_transport(root, std::move(steps), 0);
        grow(std::move(root), steps, 0, share);
    }

private:
    PatternBytes mask_for(const Megaflow& megaflow, Feature feature) {
        const std::uint8_t protocol = megaflow.protocol();
        const bool icmp = is_transport(feature) && (protocol == protocol_icmp || protocol == protocol_icmpv6);
        const unsigned bits = icmp ? 8 : bits_of(feature, megaflow.eth_type);
        if (feature == Feature::protocol) return ones(bits);
        return rarity_.wants_mask(megaflow, feature) ? part_of(chance_, bits) : ones(bits);
    }

    /// Most trees of IP tell protocols apart, and then their transport fields,
    /// before anything else.
    std::vector<Step> steps_for(const Megaflow& root) {
        std::vector<Feature> features{Feature::eth_dst, Feature::eth_src};
        if (is_there(root.tag)) features.insert(features.end(), {Feature::vid, Feature::pcp});
        if (is_there(root.second)) features.insert(features.end(), {Feature::second_vid, Feature::second_pcp});
        if (root.is_ip()) {
            features.insert(features.end(), {Feature::ip_src, Feature::ip_dst, Feature::tos, Feature::ttl});
        }
        if (root.eth_type == type_ipv6) features.push_back(Feature::label);
        std::erase_if(features, [&](Feature feature) { return root[feature].mask != Bytes{}; });
        rarity_.sort(root, features);
        features.resize(std::min<std::size_t>(features.size(), 3 + below(chance_, 5)));
        const bool refused = root.is_of_fragments() && root.eth_type == type_ipv6;   // with a protocol
        const unsigned tells_protocols = refused ? rarely_percent : transport_percent;
        if (root.is_ip() && root.protocol() == 0 && happens(chance_, tells_protocols)) {
            features.insert(features.begin() + below(chance_, 2), Feature::protocol);
        }
        std::vector<Step> steps;
        for (const Feature feature : features) steps.push_back({feature, mask_for(root, feature)});
        return steps;
    }

    /// A protocol's own fields come next; the same ones all over the tree. Later fragments have none.
    std::vector<Step> with_transport(const Megaflow& megaflow, std::vector<Step> steps, std::size_t place) {
        if (megaflow.is_of_fragments()) return steps;
        const std::uint8_t protocol = megaflow.protocol();
        const auto known = transport_.try_emplace(protocol);
        std::vector<Step>& more = known.first->second;
        if (known.second) {
            const bool has_ports = protocol == protocol_tcp || protocol == protocol_udp;
            const bool has_type = protocol == (megaflow.eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6) &&
                                  !rarity_.of_connectx_5();
            for (const Feature feature : {Feature::tp_src, Feature::tp_dst, Feature::tcp_flags}) {
                if (feature == Feature::tcp_flags ? protocol != protocol_tcp : !has_ports && !has_type) continue;
                if (megaflow[feature].mask != Bytes{}) continue;
                if (happens(chance_, 93)) more.push_back({feature, mask_for(megaflow, feature)});
            }
            std::ranges::shuffle(more, chance_);
        }
        steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(place), more.begin(), more.end());
        return steps;
    }

    void grow(Megaflow node, const std::vector<Step>& steps, std::size_t depth, std::size_t share) {
        if (leaves_.size() >= wanted_) return;
        if (depth == steps.size()) {
            refuse_sometimes(node);
            draw_metadata(chance_, node);
            node.actions = actions_(node);
            leaves_.push_back(std::move(node));
            return;
        }
        const Step step = steps[depth];
        const std::vector<Bytes> values = values_for(node, step, share);
        for (const Bytes& value : values) {
            Megaflow child = node;
            child[step.feature] = {value, step.mask};
            const auto deeper = step.feature == Feature::protocol ? with_transport(child, steps, depth + 1) : steps;
            grow(std::move(child), deeper, depth + 1, std::max<std::size_t>(1, share / values.size()));
        }
    }

    std::vector<Bytes> values_for(const Megaflow& node, const Step& step, std::size_t share) {
        if (step.feature == Feature::protocol) return protocols_for(node);
        std::set<Bytes> values;
        const bool one = share == 1 || happens(chance_, one_child_percent);
        const std::size_t wanted = one ? 1 : std::min<std::size_t>(2 + below(chance_, most_children), share + 1);
        for (std::size_t tries = 0; values.size() < wanted && tries < 4 * wanted; ++tries) {
            Bytes value = random_bytes(chance_);
            // What ends a connection goes up whatever its megaflow: so not too many of these.
            if (step.feature == Feature::tcp_flags && happens(chance_, 80)) value[15] &= static_cast<std::uint8_t>(~5U);
            values.insert(both(value, step.mask));
        }
        return {values.begin(), values.end()};
    }

    /// Mostly those whose fields are rare.
    std::vector<Bytes> protocols_for(const Megaflow& node) {
        std::vector<std::uint8_t> protocols{protocol_tcp, protocol_udp, protocol_sctp, protocol_gre,
                                            node.eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6};
        rarity_.sort(node, protocols);
        protocols.resize(happens(chance_, 70) ? 1 : 2);
        std::vector<Bytes> values;
        for (const std::uint8_t protocol : protocols) values.push_back(number(protocol));
        return values;
    }

    /// Fragments of all kinds, where no other tree has them.
    void draw_fragments(Megaflow& node) {
        using enum Fragments;
        const bool has_room = !fragmented_.contains(place_of(node));
        if (has_room && happens(chance_, frag_percent)) node.fragments = happens(chance_, 50) ? first : later;
        if (!happens(chance_, part_of_frag_percent)) return;
        const bool looks_behind_ip = std::ranges::any_of(transport_features, [&](Feature feature) {
            return node[feature].mask != Bytes{};
        });
        node.fragments = none_by_one_bit;
        if (has_room && happens(chance_, 15)) node.fragments = not_later;
        if (has_room && !looks_behind_ip && happens(chance_, 60)) node.fragments = any;
    }

    /// What no NIC matches: fragments, and fields of some protocols.
    void refuse_sometimes(Megaflow& node) {
        if (node.is_of_fragments()) return;
        if (node.is_ip()) draw_fragments(node);
        if (!happens(chance_, refused_percent)) return;
        if (node.eth_type == type_arp) node.refused_match = arp_matches[below(chance_, std::size(arp_matches))];
        if (node.protocol() == protocol_sctp) node.refused_match = ",sctp(src=7/0x1)";
        const bool is_nd = node.eth_type == type_ipv6 && node.protocol() == protocol_icmpv6;
        if (!is_nd || node[Feature::tp_src].mask != Bytes{} || node[Feature::tp_dst].mask != Bytes{}) return;
        node.refused_match = ",icmpv6(type=135,code=0),nd(target=fe80::1/ffff::)";
    }

    Chance& chance_;
    Rarity& rarity_;
    std::size_t wanted_;
    const DrawActions& actions_;
    const std::set<Place> fragmented_;
    std::vector<Megaflow>& leaves_;
    std::map<std::uint8_t, std::vector<Step>> transport_;   ///< of the tree, by protocol
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

/// What comes through the underlay: each tunnel a tree of its own, and some of other protocols.
void add_roots_of_underlay(std::uint16_t eth_type, Tag tag, std::vector<Megaflow>& found) {
    Megaflow root{.in_port = uplink, .eth_type = eth_type, .tag = tag};
    if (is_there(tag)) root.second = Tag::none;
    const auto add = [&](std::uint8_t protocol, std::uint16_t port) {
        Megaflow one = root;
        one[Feature::protocol] = {number(protocol), ones(8)};
        if (port != 0) one[Feature::tp_dst] = {number(port), ones(16)};
        found.push_back(std::move(one));
    };
    for (const TunnelKind kind : tunnel_kinds) {
        const std::uint16_t port = udp_port_of(kind);
        add(port == 0 ? protocol_gre : protocol_udp, port);
    }
    add(protocol_udp, some_udp_port);
    add(protocol_tcp, 0);
    add(eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6, 0);
}

/// Several trees: all megaflows of one look at the same bits of type and code.
void add_roots_of_icmp(Megaflow root, std::vector<Megaflow>& found) {
    for (unsigned part = 0; part < parts_of_icmp; ++part) {
        root[Feature::eth_src] = {number(part), number(parts_of_icmp - 1)};
        found.push_back(root);
    }
}

/// Each protocol a tree, since most of what there is to match is theirs.
void add_roots_of_protocols(Megaflow root, std::vector<Megaflow>& found) {
    for (const std::uint8_t protocol : {protocol_tcp, protocol_udp, protocol_sctp}) {
        root[Feature::protocol] = {number(protocol), ones(8)};
        found.push_back(root);
    }
    const std::uint8_t icmp = root.eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6;
    root[Feature::protocol] = {number(icmp), ones(8)};
    add_roots_of_icmp(root, found);
}

/// All of them in a tree, or first and later ones in two, which no NIC tells apart; neither looks behind IP. `told`:
/// two in any case.
void add_roots_of_fragments(Chance& chance, bool told, Megaflow root, std::vector<Megaflow>& found) {
    const unsigned choice = below(chance, 100);
    if (!told && choice < fragments_percent) {
        root.fragments = Fragments::any;
        found.push_back(std::move(root));
    } else if (told || choice < fragments_percent + told_fragments_percent) {
        for (const Fragments kind : {Fragments::first, Fragments::later}) {
            root.fragments = kind;
            found.push_back(root);
        }
    }
}

std::vector<Megaflow> roots(Chance& chance) {
    std::vector<Megaflow> found;
    // Of a port at least, so that no draw is without them; not of the uplink, the last one.
    const std::uint32_t tells_fragments = ports[below(chance, port_length - 1)].odp;
    for (const PortNumber& port : ports) {
        std::vector<std::uint16_t> types{type_ipv4, type_ipv6};
        types.push_back(type_arp);
        if (happens(chance, 80)) types.push_back(other_types[below(chance, std::size(other_types))]);
        for (const std::uint16_t type : types) {
            if (port.odp == uplink && (type == type_ipv4 || type == type_ipv6)) {
                add_roots_of_underlay(type, Tag::none, found);
                if (type == type_ipv4) add_roots_of_underlay(type, Tag::customer, found);
                add_roots_of_fragments(chance, false, {.in_port = uplink, .eth_type = type}, found);
                if (type == type_ipv4) {
                    add_roots_of_fragments(chance, false,
                                           {.in_port = uplink, .eth_type = type, .tag = Tag::customer,
                                            .second = Tag::none}, found);
                }
                for (const Tag second : {Tag::customer, Tag::service}) {
                    found.push_back({.in_port = uplink, .eth_type = type, .tag = Tag::service, .second = second});
                }
                continue;
            }
            // To OVS its limit of 1 leaves no packet a second tag.
            const bool asks_for_none = port.vlan_limit == 1 && happens(chance, no_second_percent);
            const bool tells = port.odp == tells_fragments && type == type_ipv4;
            if (!tells && happens(chance, any_tag_percent)) {
                found.push_back({.in_port = port.odp, .eth_type = type, .tag = Tag::any});
                continue;
            }
            for (const Tag tag : tags) {
                Megaflow root{.in_port = port.odp, .eth_type = type, .tag = tag};
                if (asks_for_none && is_there(tag)) root.second = Tag::none;
                if (root.is_ip() && tag != Tag::service) {
                    add_roots_of_protocols(root, found);
                    add_roots_of_fragments(chance, tells && tag == Tag::none, root, found);
                } else {
                    add_roots(chance, root, found);
                }
            }
        }
        if (port.vlan_limit == 1 || happens(chance, three_tags_percent)) add_roots_behind_the_limit(port, found);
    }
    return found;
}

}  // namespace

namespace {

/// Of ICMP there is much to match, and little of it comes from elsewhere. Tunnels have a part of their own.
std::size_t weight_of(const Megaflow& root, bool connectx_5) {
    if (tunnel_of(root)) return 0;
    if (root.is_of_fragments() && root.fragments != Fragments::any) return 1;
    if (root.is_of_fragments()) return connectx_5 ? 4 : 10;
    if (is_any_icmp(root)) return connectx_5 ? 2 : 19;
    if (root.protocol() == protocol_tcp || root.protocol() == protocol_udp) return connectx_5 ? 7 : 4;
    return is_tag(root.eth_type) ? 12 : is_there(root.second) ? 5 : 2;
}

/// Of each kind of tunnel equally many pop, in however many trees: all that is in tunnels needs them.
std::size_t share_of_tunnel(TunnelKind kind, const std::vector<Megaflow>& left, const Rarity& rarity,
                            std::size_t length) {
    const std::size_t wanted = length * part_of_tunnel / 100;
    const std::size_t there = rarity.drawn(fmt::format("tnl_pop({})", name_of(kind)));
    const auto trees = 1 + std::ranges::count(left, std::optional(kind), tunnel_of);
    return wanted <= there ? 1 : 1 + (wanted - there) / static_cast<std::size_t>(trees);
}

/// Takes the one out whose megaflows are the rarest; first those that lead to tunnels. Of most others more will come
/// inside of tunnels.
Megaflow take_rarest(std::vector<Megaflow>& roots, const Rarity& rarity) {
    const auto rarest = std::ranges::min_element(roots, {}, [&](const Megaflow& root) {
        const bool only_here = is_any_icmp(root) || !root.is_ip();
        if (root.is_of_fragments() && root.fragments != Fragments::any) return std::size_t{0};
        if (root.is_of_fragments()) return 1 + rarity.drawn("match frag=1/1");
        return tunnel_of(root) ? 0 : 1 + rarity.drawn_like(root) * (only_here ? 1 : 3);
    });
    std::swap(*rarest, roots.back());
    Megaflow root = std::move(roots.back());
    roots.pop_back();
    return root;
}

}  // namespace

void draw_metadata(Chance& chance, Megaflow& megaflow) {
    if (!happens(chance, zeros_percent)) return;
    megaflow.zeros = static_cast<std::uint8_t>(chance());
    constexpr unsigned tunnel = 1U << static_cast<unsigned>(Metadata::tunnel);
    if (megaflow.tunnel) megaflow.zeros &= static_cast<std::uint8_t>(~tunnel);
}

std::vector<Megaflow> grow_trees(Chance& chance, Rarity& rarity, std::size_t length, const DrawActions& actions,
                                 const GrowInstead& grow_instead) {
    std::vector<Megaflow> megaflows;
    std::vector<Megaflow> left = roots(chance);
    std::ranges::shuffle(left, chance);
    std::set<Place> fragmented;
    for (const Megaflow& root : left) {
        if (root.is_of_fragments()) fragmented.insert(place_of(root));
    }
    Grower grower(chance, rarity, length, actions, std::move(fragmented), megaflows);
    std::size_t weights = 0;
    for (const Megaflow& root : left) weights += weight_of(root, rarity.of_connectx_5());
    const std::size_t for_others = length - length * part_of_tunnel * std::size(tunnel_kinds) / 100;
    while (!left.empty() && megaflows.size() < length) {
        // Values run out now and then, and the rarest come first: each gets more than its part.
        const Megaflow root = take_rarest(left, rarity);
        const auto tunnel = tunnel_of(root);
        const std::size_t weight = weight_of(root, rarity.of_connectx_5());
        const std::size_t share = tunnel ? share_of_tunnel(*tunnel, left, rarity, length)
                                         : 1 + larger_part * for_others * weight / weights;
        auto grown = grow_instead(root, std::min(share, length - megaflows.size()));
        if (grown.empty()) {
            grower.tree(root, share);
        } else {
            std::ranges::move(grown, std::back_inserter(megaflows));
        }
    }
    return megaflows;
}

}  // namespace ovsdr::differential
