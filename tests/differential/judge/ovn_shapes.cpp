#include "tests/differential/judge/ovn_shapes.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace ovsdr::differential {

namespace {

using Text = std::string_view;

constexpr unsigned refused_percent = 10;   ///< of the megaflows: what OVN's lines of ct and the like become
constexpr std::size_t tries_for_one = 8;
constexpr char unequal_lengths[] = "check_pkt_len(size=1314,gt(userspace(pid=0)),le(1))";

/// Between the parentheses behind `name`; empty: it is not there.
Text inside(Text text, Text name) {
    for (std::size_t at = text.find(name); at != Text::npos; at = text.find(name, at + 1)) {
        const bool whole = at == 0 || text[at - 1] == ',' || text[at - 1] == '(';
        if (!whole || at + name.size() >= text.size() || text[at + name.size()] != '(') continue;
        std::size_t end = at + name.size(), open = 0;
        do {
            open += text[end] == '(' ? 1U : 0U;
            open -= text[end] == ')' ? 1U : 0U;
        } while (++end < text.size() && open > 0);
        return text.substr(at + name.size() + 1, end - at - name.size() - 2);
    }
    return {};
}

/// At commas that are in no parentheses.
std::vector<Text> split(Text text) {
    std::vector<Text> parts;
    std::size_t begin = 0, open = 0;
    for (std::size_t i = 0; i <= text.size(); ++i) {
        if (i == text.size() || (text[i] == ',' && open == 0)) {
            if (i > begin) parts.push_back(text.substr(begin, i - begin));
            begin = i + 1;
            continue;
        }
        open += text[i] == '(' || text[i] == '{' ? 1U : 0U;
        open -= text[i] == ')' || text[i] == '}' ? 1U : 0U;
    }
    return parts;
}

/// "name=value" or "name=value/mask" to a mask; nothing is written: all bits.
std::map<Text, Text> masks_in(Text items) {
    std::map<Text, Text> masks;
    for (const Text item : split(items)) {
        const std::size_t equals = item.find('='), slash = item.find('/');
        if (equals == Text::npos) continue;
        masks[item.substr(0, equals)] = slash == Text::npos ? Text() : item.substr(slash + 1);
    }
    return masks;
}

std::uint64_t number_in(Text text) {
    const bool hexadecimal = text.starts_with("0x");
    std::uint64_t value = 0;
    if (hexadecimal) text.remove_prefix(2);
    std::from_chars(text.data(), text.data() + text.size(), value, hexadecimal ? 16 : 10);
    return value;
}

/// A mask as OVS prints it: a number, a MAC address, a dotted IPv4 address, an IPv6 address with one "::".
PatternBytes mask_in(Text text, unsigned bits) {
    if (text.empty()) return ones(bits);
    PatternBytes mask{};
    const bool ipv6 = bits == 128, mac = bits == 48, dotted = text.find('.') != Text::npos;
    if (!ipv6 && !mac && !dotted) return number(number_in(text));
    const char separator = dotted ? '.' : ':';
    std::size_t at = ipv6 ? 0 : 16 - bits / 8;
    for (std::size_t begin = 0; begin < text.size() && at < 16;) {
        const std::size_t end = std::min(text.find(separator, begin), text.size());
        const Text group = text.substr(begin, end - begin);
        if (group.empty()) break;   // prefixes: zeros up to the end
        unsigned value = 0;
        std::from_chars(group.data(), group.data() + group.size(), value, dotted ? 10 : 16);
        if (ipv6) mask[at++] = static_cast<std::uint8_t>(value >> 8);
        mask[at++] = static_cast<std::uint8_t>(value);
        begin = end + 1;
    }
    return mask;
}

struct FeatureName {
    const char *header, *field;
    Feature feature;
};
constexpr FeatureName feature_names[] = {
    {"eth", "src", Feature::eth_src},       {"eth", "dst", Feature::eth_dst},    {"vlan", "vid", Feature::vid},
    {"vlan", "pcp", Feature::pcp},          {"ipv4", "src", Feature::ip_src},    {"ipv4", "dst", Feature::ip_dst},
    {"ipv4", "tos", Feature::tos},          {"ipv4", "ttl", Feature::ttl},       {"ipv6", "src", Feature::ip_src},
    {"ipv6", "dst", Feature::ip_dst},       {"ipv6", "tclass", Feature::tos},    {"ipv6", "hlimit", Feature::ttl},
    {"ipv6", "label", Feature::label},      {"tcp", "src", Feature::tp_src},     {"tcp", "dst", Feature::tp_dst},
    {"tunnel", "tun_id", Feature::tun_id},  {"tunnel", "src", Feature::tun_src}, {"tunnel", "dst", Feature::tun_dst},
    {"tunnel", "tos", Feature::tun_tos},    {"tunnel", "ttl", Feature::tun_ttl},
    {"tunnel", "tp_src", Feature::tun_tp_src}, {"tunnel", "tp_dst", Feature::tun_tp_dst},
    {"udp", "src", Feature::tp_src},        {"udp", "dst", Feature::tp_dst},     {"icmp", "type", Feature::tp_src},
    {"icmp", "code", Feature::tp_dst},      {"icmpv6", "type", Feature::tp_src}, {"icmpv6", "code", Feature::tp_dst},
};

/// A match for zero is one of metadata that no megaflow gave a value; another one is of ct and the like, which no NIC
/// has. False: there is such a one.
bool read_metadata(Text match, Megaflow& megaflow) {
    for (const Metadata one : all_metadata) {
        if (one == Metadata::tunnel) continue;
        const Text text = inside(match, name_of(one));
        const std::size_t slash = text.find('/');
        std::uint64_t mask = text.empty() ? 0 : UINT64_MAX;
        if (slash != Text::npos) mask = number_in(text.substr(slash + 1));
        if ((number_in(text.substr(0, slash)) & mask) != 0) return false;
        if (mask != 0) megaflow.zeros |= static_cast<std::uint8_t>(1U << static_cast<unsigned>(one));
    }
    return true;
}

std::optional<TunnelKind> tunnel_in(Text port) {
    if (port.find("genev_sys") != Text::npos) return TunnelKind::geneve;
    if (port.find("vxlan_sys") != Text::npos) return TunnelKind::vxlan;
    return std::nullopt;
}

/// The mask of the one option, if there is one.
void read_tunnel(Text match, TunnelKind kind, Megaflow& megaflow) {
    megaflow.tunnel = TunnelHeaders{.kind = kind, .checksum = has_checksum(kind, false)};
    const Text option = inside(inside(match, "tunnel"), "geneve");
    if (option.empty()) return;
    megaflow.tunnel->options = GeneveOptions::usual;
    const std::size_t slash = option.rfind('/');
    megaflow[Feature::tun_option].mask = slash == Text::npos ? ones(32) : number(number_in(option.substr(slash + 1)));
}

/// False: no judge can pose it.
bool read_match(Text match, Megaflow& megaflow) {
    for (const Text foreign : {"arp(", "nd(", "eth_type(0x0806"}) {
        if (match.find(foreign) != Text::npos) return false;
    }
    if (!read_metadata(match, megaflow)) return false;
    if (const auto kind = tunnel_in(inside(match, "in_port"))) read_tunnel(match, *kind, megaflow);
    megaflow.tag = match.find("eth_type(0x8100)") != Text::npos ? Tag::customer : Tag::none;
    const Text payload = megaflow.tag == Tag::none ? match : inside(match, "encap");
    megaflow.eth_type = static_cast<std::uint16_t>(number_in(inside(payload, "eth_type")));
    for (const auto& [header, field, feature] : feature_names) {
        const auto masks = masks_in(inside(match, header));
        const auto found = masks.find(field);
        const unsigned bits = Text(header).starts_with("icmp") ? 8 : bits_of(feature, megaflow.eth_type);
        if (found != masks.end()) megaflow[feature].mask = mask_in(found->second, bits);
    }
    const Text ip = inside(match, megaflow.eth_type == type_ipv4 ? "ipv4" : "ipv6");
    for (const Text item : split(ip)) {
        if (!item.starts_with("proto=") || item.ends_with("/0")) continue;
        megaflow[Feature::protocol] = {number(number_in(item.substr(6))), ones(8)};
    }
    // OVS prints what it has seen of a header that it does not look at.
    if (megaflow.protocol() == 0) megaflow[Feature::tp_src] = megaflow[Feature::tp_dst] = {};
    return megaflow.is_ip() && !inside(match, "in_port").empty();
}

SetAction set_in(Text text) {
    using enum SetHeader;
    for (const SetHeader header : {ethernet, ipv4, ipv6, tcp, udp}) {
        const SetHeaderRow& row = row_of(header);
        const Text items = inside(text, row.name);
        if (items.empty()) continue;
        SetAction set{.header = header};
        const auto masks = masks_in(items);
        for (std::size_t i = 0; i < row.fields.size(); ++i) {
            const auto found = masks.find(row.fields[i].name);
            if (found != masks.end()) set.fields[i].mask = mask_in(found->second, row.fields[i].bits);
        }
        return set;
    }
    throw std::runtime_error("set of another header: " + std::string(text));
}

Action tunnel_push_in(Text text) {
    Action action{.kind = Action::Kind::tunnel_push};
    action.tunnel.kind = text.find("geneve(") != Text::npos ? TunnelKind::geneve : TunnelKind::vxlan;
    action.tunnel.option = text.find("options(") != Text::npos;
    action.tunnel.checksum = text.find("csum=0x0") == Text::npos;
    return action;
}

/// False: OVS could not read it, or a judge cannot.
bool read_actions(Text text, Shape& shape) {
    using enum Action::Kind;
    for (const Text action : split(text)) {
        auto& list = shape.megaflow.actions;
        const auto is = [action](Text name) { return action.starts_with(name); };
        if (is("hash(")) return false;
        if (is("drop")) continue;
        if (is("clone(")) {
            list.push_back({.kind = copy_begin});
            if (!read_actions(inside(action, "clone"), shape)) return false;
            list.push_back({.kind = copy_end});
            continue;
        }
        if (is("tnl_pop(")) {
            const auto kind = tunnel_in(action);
            if (!kind) return false;
            list.push_back({.kind = tunnel_pop, .port = tunnel_port_of(*kind)});
            continue;
        }
        if (is("set(")) {
            if (inside(inside(action, "set"), "eth").empty() && is("set(tunnel")) return false;
            list.push_back({.kind = set, .set = set_in(inside(action, "set"))});
        } else if (is("push_vlan(")) {
            list.push_back({.kind = push, .tpid = customer_tag});
        } else if (is("pop_vlan")) {
            list.push_back({.kind = pop});
        } else if (is("tnl_push(")) {
            list.push_back(tunnel_push_in(action));
        } else if (is("recirc(")) {
            list.push_back({.kind = recirc});
        } else if (const std::size_t open = action.find('('); open != Text::npos || is("ct_clear")) {
            const std::string name(action.substr(0, open));
            const std::string readable = name == "ct"      ? "ct(zone=1)"
                                         : name == "meter" ? "meter(0)"
                                         : name == "check_pkt_len" ? unequal_lengths
                                         : name == "ct_clear" ? "ct_clear" : "userspace(pid=0)";
            list.push_back({.kind = refused, .text = readable});
            shape.refused = true;
        } else {
            list.push_back({.kind = output, .port = is("br-") ? host_port : 0});
        }
    }
    return true;
}

/// Values within the masks.
void draw_values(Chance& chance, Megaflow& megaflow) {
    for (std::size_t i = 0; i < feature_length; ++i) {
        if (static_cast<Feature>(i) == Feature::protocol) continue;
        Pattern& pattern = megaflow.patterns[i];
        pattern.value = both(random_bytes(chance), pattern.mask);
    }
}

/// Whether some packet is of both.
bool overlap(const Megaflow& a, const Megaflow& b) {
    for (std::size_t i = 0; i < feature_length; ++i) {
        const Pattern &one = a.patterns[i], &other = b.patterns[i];
        for (std::size_t k = 0; k < one.mask.size(); ++k) {
            if (((one.value[k] ^ other.value[k]) & one.mask[k] & other.mask[k]) != 0) return false;
        }
    }
    return true;
}

/// Of packets of the root, as far as their protocol and ports go.
bool fits(const Shape& shape, const Megaflow& root) {
    const Megaflow& megaflow = shape.megaflow;
    if (root.is_of_fragments()) return false;
    if (megaflow.tunnel || megaflow.eth_type != root.eth_type || megaflow.tag != root.tag) return false;
    if (root.protocol() != 0 && megaflow.protocol() != root.protocol()) return false;
    const auto pop = std::ranges::find(megaflow.actions, Action::Kind::tunnel_pop, &Action::kind);
    const auto tunnel = tunnel_of(root);
    if (pop == megaflow.actions.end()) return !tunnel;
    return tunnel && pop->port == tunnel_port_of(*tunnel);
}

}  // namespace

void draw_ports(Chance& chance, Megaflow& megaflow, const NextTable& next_table) {
    std::set<std::uint32_t> used;
    for (Action& action : megaflow.actions) {
        switch (action.kind) {
            case Action::Kind::output:
                if (action.port == 0) {
                    action = draw_output(chance, megaflow);
                    while (!used.insert(action.port).second && used.size() < port_length - 1) {
                        action = draw_output(chance, megaflow);
                    }
                }
                break;
            case Action::Kind::push: action = draw_push(chance); break;
            case Action::Kind::set:
                for (Pattern& field : action.set.fields) field.value = both(random_bytes(chance), field.mask);
                break;
            case Action::Kind::tunnel_push: {
                const TunnelPush like = action.tunnel;
                action.tunnel = draw_tunnel_push(chance);
                action.tunnel.kind = like.kind;
                action.tunnel.option = like.option;
                action.tunnel.checksum = like.checksum;
                break;
            }
            case Action::Kind::recirc: action.port = next_table().value_or(0); break;
            default: break;
        }
    }
    // A tunnel's table that is first led to from behind a recirculation lies so deep that what is behind it may find no
    // level: which megaflows are in a NIC would depend on who came first.
    const bool is_behind = megaflow.recirc_id != 0;
    std::erase_if(megaflow.actions, [&](const Action& action) {
        return (action.kind == Action::Kind::recirc && action.port == 0) ||
               (action.kind == Action::Kind::tunnel_pop && is_behind);
    });
}

std::vector<Shape> read_shapes(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::vector<Shape> shapes;
    for (std::string line; std::getline(file, line);) {
        const std::size_t actions = line.find("actions:");
        if (line.starts_with("#") || actions == std::string::npos) continue;
        Shape shape;
        const Text text(line);
        if (read_match(text.substr(0, actions), shape.megaflow) && read_actions(text.substr(actions + 8), shape)) {
            shapes.push_back(std::move(shape));
        }
    }
    return shapes;
}

std::vector<Megaflow> grow_shapes(Chance& chance, const std::vector<Shape>& shapes, const Megaflow& root,
                                  std::size_t length, const NextTable& next_table) {
    std::vector<const Shape*> possible, refused;
    for (const Shape& shape : shapes) {
        if (fits(shape, root)) (shape.refused ? refused : possible).push_back(&shape);
    }
    std::vector<Megaflow> grown;
    if (possible.empty()) return grown;
    for (std::size_t tries = 0; grown.size() < length && tries < tries_for_one * length; ++tries) {
        const auto& from = !refused.empty() && happens(chance, refused_percent) ? refused : possible;
        Megaflow one = from[below(chance, static_cast<std::uint32_t>(from.size()))]->megaflow;
        one.in_port = root.in_port;
        one.second = root.second;
        draw_values(chance, one);
        for (std::size_t i = 0; i < feature_length; ++i) {
            if (root.patterns[i].mask != PatternBytes{}) one.patterns[i] = root.patterns[i];
        }
        if (std::ranges::any_of(grown, [&](const Megaflow& other) { return overlap(one, other); })) continue;
        draw_ports(chance, one, next_table);
        grown.push_back(std::move(one));
    }
    return grown;
}

const Shape* shape_like(Chance& chance, const std::vector<Shape>& shapes, const Megaflow& megaflow) {
    std::vector<const Shape*> alike;
    for (const Shape& shape : shapes) {
        const Megaflow& other = shape.megaflow;
        if (shape.refused || other.eth_type != megaflow.eth_type || other.tag != megaflow.tag) continue;
        if (other.protocol() != 0 && other.protocol() != megaflow.protocol()) continue;
        if (other.tunnel == megaflow.tunnel) alike.push_back(&shape);
    }
    return alike.empty() ? nullptr : alike[below(chance, static_cast<std::uint32_t>(alike.size()))];
}

}  // namespace ovsdr::differential
