#include "tests/differential/judge/recipe.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "tests/differential/judge/action_list.hpp"
#include "tests/differential/judge/bytes.hpp"
#include "tests/differential/judge/frames.hpp"
#include "tests/differential/judge/outer_headers.hpp"

namespace ovsdr::differential {

namespace {

constexpr std::uint16_t dont_fragment = 0x4000, more_fragments = 0x2000;
constexpr std::size_t largest_payload = 200, number_size = 4;
constexpr std::uint8_t destination_options = 60;
constexpr std::uint32_t most_options = 10;   ///< words of an IPv4 header

template <typename Range>
void put(Bytes& bytes, const Range& range, std::size_t last) {
    bytes.insert(bytes.end(), range.end() - static_cast<std::ptrdiff_t>(last), range.end());
}

/// `carried`: instead of a payload, if it is not empty.
Bytes transport(const Recipe& recipe, const Bytes& carried, Chance& chance) {
    const std::uint8_t protocol = recipe.byte(Feature::protocol);
    if (protocol == protocol_gre && !carried.empty()) return carried;
    Bytes bytes;
    if (protocol == protocol_icmp || protocol == protocol_icmpv6) {
        bytes = {recipe.byte(Feature::tp_src), recipe.byte(Feature::tp_dst)};
        put16(bytes, 0);
        put32(bytes, static_cast<std::uint32_t>(chance()));
    } else {
        put16(bytes, recipe.half(Feature::tp_src));
        put16(bytes, recipe.half(Feature::tp_dst));
    }
    if (protocol == protocol_tcp) {
        put32(bytes, static_cast<std::uint32_t>(chance()));
        put32(bytes, static_cast<std::uint32_t>(chance()));
        const auto reserved = static_cast<unsigned>(chance() & 0xE00);
        const unsigned flags = recipe.half(Feature::tcp_flags) & 0x1FFU;
        put16(bytes, static_cast<unsigned>(recipe.offset_lie << 12) | reserved | flags);
        bytes.resize(20);
    } else if (protocol == protocol_udp) {
        const std::size_t size = carried.empty() ? recipe.payload : carried.size();
        put16(bytes, static_cast<unsigned>(8 + size + (recipe.tunnel_lie == TunnelLie::udp_length ? 4 : 0)));
        put16(bytes, 0);
    }
    if (!carried.empty()) {
        bytes.insert(bytes.end(), carried.begin(), carried.end());
        return bytes;
    }
    const std::size_t header = bytes.size();
    bytes.resize(header + recipe.payload, 0xA5);
    if (recipe.cut > 0) bytes.resize(header > recipe.cut ? header - recipe.cut : 0);
    return bytes;
}

/// `addresses`: as the pseudo header has them. Mostly right; sometimes wrong, of UDP sometimes absent. That of a tunnel
/// is there or not as `recipe` says, and right.
void put_transport_checksum(Bytes& l4, std::span<const std::uint8_t> addresses, const Recipe& recipe, Chance& chance) {
    const std::uint8_t protocol = recipe.byte(Feature::protocol);
    const std::size_t at = protocol == protocol_tcp ? 16 : protocol == protocol_udp ? 6 : 2;
    if (protocol != protocol_tcp && protocol != protocol_udp && protocol != protocol_icmpv6) return;
    const bool in_tunnel = !recipe.inner.empty();
    const bool absent = in_tunnel ? !recipe.tunnel.checksum : happens(chance, 10);
    if (at + 2 > l4.size() || (protocol == protocol_udp && absent)) return;
    put_checksum(l4, at, sum_of(addresses) + protocol + static_cast<std::uint32_t>(l4.size()) + sum_of(l4));
    if (protocol == protocol_udp && l4[at] == 0 && l4[at + 1] == 0) l4[at] = l4[at + 1] = 0xFF;
    const unsigned wrong = !in_tunnel ? 10 : recipe.tunnel_lie == TunnelLie::checksum ? 100 : 0;
    if (happens(chance, wrong)) l4[at] ^= static_cast<std::uint8_t>(1 + below(chance, 0xFE));
}

void finish_ipv4_checksum(Bytes& bytes, std::size_t begin, std::size_t size, const Recipe& recipe, Chance& chance) {
    put_checksum(bytes, begin + 10, sum_of(std::span(bytes).subspan(begin, size)));
    const unsigned wrong = recipe.inner.empty() ? 3 : recipe.tunnel_lie == TunnelLie::checksum ? 100 : 0;
    if (happens(chance, wrong)) bytes[begin + 11] ^= static_cast<std::uint8_t>(1 + below(chance, 0xFE));
}

void put_ipv4(Bytes& bytes, const Recipe& recipe, const Bytes& carried, Chance& chance) {
    Bytes l4 = transport(recipe, carried, chance);
    const std::size_t begin = bytes.size(), header = 20 + 4 * recipe.options;
    const unsigned version = recipe.version_lie != 0 ? recipe.version_lie : 4;
    const std::size_t words = recipe.size_lie != 0 ? recipe.size_lie : header / 4;
    bytes.push_back(static_cast<std::uint8_t>(version << 4 | words));
    bytes.push_back(recipe.byte(Feature::tos));
    put16(bytes, static_cast<unsigned>(static_cast<int>(header + l4.size()) + recipe.length_lie));
    put16(bytes, 0);
    put16(bytes, recipe.fragment);
    bytes.push_back(recipe.byte(Feature::ttl));
    bytes.push_back(recipe.byte(Feature::protocol));
    put16(bytes, 0);
    put(bytes, recipe[Feature::ip_src], 4);
    put(bytes, recipe[Feature::ip_dst], 4);
    for (std::size_t i = 0; i < recipe.options; ++i) put32(bytes, 0x01010101);
    finish_ipv4_checksum(bytes, begin, header, recipe, chance);
    put_transport_checksum(l4, std::span(bytes).subspan(begin + 12, 8), recipe, chance);
    bytes.insert(bytes.end(), l4.begin(), l4.end());
}

void put_ipv6(Bytes& bytes, const Recipe& recipe, const Bytes& carried, Chance& chance) {
    Bytes rest;
    std::uint8_t next = recipe.byte(Feature::protocol);
    if (recipe.options != 0) {
        const auto words = static_cast<std::uint8_t>(recipe.chain_lie ? 200 : 0);
        rest = {recipe.fragment_header ? fragment_header : next, words, 1, 4, 0, 0, 0, 0};
        next = recipe.extension;
    }
    if (recipe.fragment_header) {
        rest.push_back(recipe.byte(Feature::protocol));
        rest.push_back(0);
        const unsigned more = (recipe.fragment & more_fragments) != 0 ? 1 : 0;
        put16(rest, static_cast<unsigned>(recipe.fragment & 0x1FFF) << 3 | recipe.fragment_lie | more);
        put32(rest, 7);
        if (recipe.options == 0) next = fragment_header;
    }
    Bytes l4 = transport(recipe, carried, chance), addresses;
    put(addresses, recipe[Feature::ip_src], 16);
    put(addresses, recipe[Feature::ip_dst], 16);
    put_transport_checksum(l4, addresses, recipe, chance);
    rest.insert(rest.end(), l4.begin(), l4.end());
    const unsigned version = recipe.version_lie != 0 ? recipe.version_lie : 6;
    put32(bytes, version << 28 | static_cast<std::uint32_t>(recipe.byte(Feature::tos)) << 20 | recipe.label());
    put16(bytes, static_cast<unsigned>(rest.size() + (recipe.ipv6_length_lie ? 200 : 0)));
    bytes.push_back(next);
    bytes.push_back(recipe.byte(Feature::ttl));
    bytes.insert(bytes.end(), addresses.begin(), addresses.end());
    bytes.insert(bytes.end(), rest.begin(), rest.end());
}

}  // namespace

Bytes frame_of(const Recipe& recipe, std::uint32_t number, Chance& chance) {
    Bytes bytes, carried;
    if (!recipe.inner.empty()) carried = in_tunnel(recipe, frame_of(recipe.inner.front(), number, chance));
    put(bytes, recipe[Feature::eth_dst], 6);
    put(bytes, recipe[Feature::eth_src], 6);
    for (const TagOnWire& tag : recipe.tags) {
        put16(bytes, tag.tpid);
        put16(bytes, tag.tci);
    }
    if (recipe.llc) {
        put16(bytes, 100);
        for (const std::uint8_t byte : {0xAA, 0xAA, 3, 0, 0, 0}) bytes.push_back(byte);
    }
    put16(bytes, recipe.eth_type);
    if (recipe.eth_type == type_ipv4) {
        put_ipv4(bytes, recipe, carried, chance);
    } else if (recipe.eth_type == type_ipv6) {
        put_ipv6(bytes, recipe, carried, chance);
    } else {
        for (std::size_t i = 0; i < 28 + recipe.payload; ++i) bytes.push_back(static_cast<std::uint8_t>(chance()));
    }
    if (!carried.empty() && (recipe.eth_type == type_ipv4 || recipe.eth_type == type_ipv6)) return bytes;
    // With its number it is still shorter than it was: no part of the number is a checksum that a rewrite mends.
    if (recipe.shortened_to != 0 && recipe.shortened_to + number_size < bytes.size()) {
        bytes.resize(recipe.shortened_to);
    } else {
        bytes.resize(std::max<std::size_t>(bytes.size(), 56));
    }
    put32(bytes, number);
    return bytes;
}

namespace {

std::uint16_t random_tci(Chance& chance) { return static_cast<std::uint16_t>(chance()); }

std::uint8_t random_protocol(Chance& chance, std::uint16_t eth_type) {
    const std::uint8_t icmp = eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6;
    const std::uint8_t known[] = {protocol_tcp, protocol_tcp, protocol_udp, protocol_udp, icmp,
                                  icmp,         icmp,         protocol_sctp, 253};
    return known[below(chance, std::size(known))];
}

TagOnWire random_tag(Chance& chance) {
    return {happens(chance, 50) ? customer_tag : service_tag, random_tci(chance)};
}

TagOnWire tag_for(Tag tag, const Pattern& vid, const Pattern& pcp, Chance& chance) {
    std::uint16_t tci = random_tci(chance);
    const auto apply = [&tci](const Pattern& pattern, unsigned shift) {
        const auto mask = static_cast<std::uint16_t>((pattern.mask[14] << 8 | pattern.mask[15]) << shift);
        const auto value = static_cast<std::uint16_t>((pattern.value[14] << 8 | pattern.value[15]) << shift);
        tci = static_cast<std::uint16_t>((tci & ~mask) | (value & mask));
    };
    apply(vid, 0);
    apply(pcp, 13);
    return {tag == Tag::customer ? customer_tag : service_tag, tci};
}

/// Those that the megaflow asks for, and where it asks for none, some.
std::vector<TagOnWire> tags_for(const Megaflow& megaflow, Chance& chance) {
    std::vector<TagOnWire> tags;
    if (megaflow.tag == Tag::none) return tags;
    if (is_there(megaflow.tag)) {
        tags.push_back(tag_for(megaflow.tag, megaflow[Feature::vid], megaflow[Feature::pcp], chance));
    } else if (happens(chance, 50)) {
        tags.push_back(random_tag(chance));
    }
    if (is_there(megaflow.second)) {
        tags.push_back(tag_for(megaflow.second, megaflow[Feature::second_vid], megaflow[Feature::second_pcp], chance));
    } else if (megaflow.second == Tag::any && vlan_limit_of(megaflow.in_port) > 1 && happens(chance, 40)) {
        tags.push_back(random_tag(chance));
    }
    if (is_tag(megaflow.eth_type)) tags.push_back({megaflow.eth_type, random_tci(chance)});
    return tags;
}

/// What is behind the tags; a megaflow whose ethertype is a tag's does not care.
std::uint16_t payload_type(const Megaflow& megaflow, Chance& chance) {
    constexpr std::uint16_t types[] = {type_ipv4, type_ipv6, type_arp, 0x88b5};
    return is_tag(megaflow.eth_type) ? types[below(chance, std::size(types))] : megaflow.eth_type;
}

TunnelHeaders random_headers(TunnelKind kind, bool ipv6, Chance& chance) {
    TunnelHeaders headers{.kind = kind, .ipv6 = ipv6, .checksum = has_checksum(kind, ipv6)};
    if (kind == TunnelKind::gre) headers.key = happens(chance, 60);
    if (kind != TunnelKind::geneve) return headers;
    headers.oam = happens(chance, 8);
    const std::uint32_t drawn = below(chance, 100);
    headers.options = drawn < 84   ? GeneveOptions::usual
                      : drawn < 93 ? GeneveOptions::none
                      : drawn < 97 ? GeneveOptions::two : GeneveOptions::other;
    return headers;
}

Tag random_kind_of_tag(Chance& chance, unsigned percent) {
    if (!happens(chance, percent)) return Tag::none;
    return happens(chance, 60) ? Tag::customer : Tag::service;
}

/// Any frame, as it may come out of a tunnel.
Recipe random_inner(std::uint32_t tunnel_port, Chance& chance) {
    constexpr std::uint16_t types[] = {type_ipv4, type_ipv4, type_ipv4, type_ipv4, type_ipv6, type_ipv6, type_ipv6,
                                       type_ipv6, type_arp,  0x88b5};
    Megaflow like{.in_port = tunnel_port, .eth_type = types[below(chance, std::size(types))]};
    like.tag = random_kind_of_tag(chance, 45);
    like.second = like.tag == Tag::none ? Tag::none : random_kind_of_tag(chance, 60);
    const std::uint8_t protocols[] = {protocol_tcp, protocol_tcp, protocol_tcp, protocol_udp, protocol_udp,
                                      protocol_udp, like.eth_type == type_ipv4 ? protocol_icmp : protocol_icmpv6,
                                      protocol_sctp};
    like[Feature::protocol] = {number(protocols[below(chance, std::size(protocols))]), ones(8)};
    return aimed_at(like, chance);
}

/// Behind IPv6 extension headers OVS takes a right UDP checksum for a wrong one, and drops the packet.
bool is_checksum_lost(const Recipe& recipe) { return recipe.eth_type == type_ipv6 && recipe.tunnel.checksum; }

/// A frame in the tunnel that the megaflow's packets are of.
void wrap(Recipe& recipe, std::uint32_t tunnel_port, Chance& chance) {
    const auto* kind = std::ranges::find(tunnel_kinds, tunnel_port, tunnel_port_of);
    recipe.tunnel = random_headers(*kind, recipe.eth_type == type_ipv6, chance);
    if (recipe.eth_type == type_ipv4 && happens(chance, 80)) recipe.options = 0;   // OVS drops it with options
    if (is_checksum_lost(recipe)) recipe.options = 0;
    recipe.inner.push_back(random_inner(tunnel_port, chance));
}

}  // namespace

Feature in_underlay(Feature feature) {
    switch (feature) {
        case Feature::tun_src:
        case Feature::tun_ipv6_src: return Feature::ip_src;
        case Feature::tun_dst:
        case Feature::tun_ipv6_dst: return Feature::ip_dst;
        case Feature::tun_tos: return Feature::tos;
        case Feature::tun_ttl: return Feature::ttl;
        case Feature::tun_tp_src: return Feature::tp_src;
        case Feature::tun_tp_dst: return Feature::tp_dst;
        default: return feature;
    }
}

Recipe aimed_at(const Megaflow& megaflow, Chance& chance) {
    Recipe recipe{.in_port = megaflow.in_port, .eth_type = payload_type(megaflow, chance)};
    for (std::size_t i = 0; i < feature_length; ++i) {
        recipe.values[i] = filled(chance, megaflow.patterns[i].value, megaflow.patterns[i].mask);
    }
    if (megaflow[Feature::protocol].mask[15] == 0) {
        recipe[Feature::protocol][15] = random_protocol(chance, recipe.eth_type);
    }
    if (!happens(chance, 4)) recipe[Feature::tcp_flags][15] &= static_cast<std::uint8_t>(~tcp_ends);
    recipe.tags = tags_for(megaflow, chance);
    if (happens(chance, 50)) recipe.fragment = dont_fragment;
    if (megaflow.is_of_fragments()) {
        const bool any = megaflow.fragments == Fragments::any;
        const bool first = any ? happens(chance, 50) : megaflow.fragments == Fragments::first;
        recipe.fragment = first ? more_fragments : static_cast<std::uint16_t>(1 + below(chance, 100));
        recipe.fragment_header = true;
    }
    if (happens(chance, 8)) recipe.options = 1 + below(chance, most_options);
    recipe.extension = stepped_over[below(chance, std::size(stepped_over))];
    recipe.payload = below(chance, largest_payload);
    const auto pop = std::ranges::find(megaflow.actions, Action::Kind::tunnel_pop, &Action::kind);
    if (pop != megaflow.actions.end()) {
        wrap(recipe, pop->port, chance);
    } else if (const auto kind = tunnel_of(megaflow)) {
        wrap(recipe, tunnel_port_of(*kind), chance);
    }
    return recipe;
}

namespace {

void flip_bit(Recipe& recipe, const Megaflow& megaflow, Chance& chance) {
    std::vector<std::pair<std::size_t, unsigned>> bits;
    for (std::size_t i = 0; i < feature_length; ++i) {
        // Another protocol would have the tunnel's bytes for its header.
        if (!megaflow.tunnel && !recipe.inner.empty() && static_cast<Feature>(i) == Feature::protocol) continue;
        for (unsigned bit = 0; bit < 128; ++bit) {
            if ((megaflow.patterns[i].mask[bit / 8] >> (7 - bit % 8) & 1) != 0) bits.emplace_back(i, bit);
        }
    }
    if (bits.empty()) return;
    const auto [number, bit] = bits[below(chance, static_cast<std::uint32_t>(bits.size()))];
    const auto feature = static_cast<Feature>(number);
    const auto flipped = static_cast<std::uint8_t>(1U << (7 - bit % 8));
    Recipe& frame = megaflow.tunnel && !is_of_tunnel(feature) ? recipe.inner.front() : recipe;
    frame[in_underlay(feature)][bit / 8] ^= flipped;
    const auto of_tag = static_cast<std::uint16_t>((bit / 8 == 14 ? flipped << 8 : flipped));
    const auto tag = feature < Feature::second_vid ? std::size_t{0} : std::size_t{1};
    if (tag >= frame.tags.size()) return;
    switch (feature) {
        case Feature::vid:
        case Feature::second_vid: frame.tags[tag].tci ^= of_tag; break;
        case Feature::pcp:
        case Feature::second_pcp: frame.tags[tag].tci ^= static_cast<std::uint16_t>(of_tag << 13); break;
        default: break;
    }
}

void change_tags(Recipe& recipe, Chance& chance) {
    const TagOnWire one = random_tag(chance);
    if (!recipe.tags.empty() && happens(chance, 30)) {
        TagOnWire& tag = recipe.tags[below(chance, static_cast<std::uint32_t>(recipe.tags.size()))];
        tag.tpid = tag.tpid == customer_tag ? service_tag : customer_tag;
        return;
    }
    switch (below(chance, 5)) {
        case 0: recipe.tags.insert(recipe.tags.begin(), one); break;
        case 1: recipe.tags.push_back(one); break;
        case 2: recipe.tags.insert(recipe.tags.end(), 2, one); break;
        case 3:
            if (!recipe.tags.empty()) recipe.tags.pop_back();
            break;
        default: recipe.tags.clear(); break;
    }
}

void make_fragment(Recipe& recipe, Chance& chance) {
    recipe.fragment_header = true;
    recipe.fragment = happens(chance, 20) ? 0 : happens(chance, 50) ? more_fragments
                      : static_cast<std::uint16_t>(1 + below(chance, 100));
}

void flip_anywhere(Recipe& recipe, Feature feature, unsigned bits, Chance& chance) {
    const std::uint32_t bit = below(chance, bits);
    recipe[feature][15 - bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
}

/// IPv6 within its header: a payload beyond the frame is a lie.
void shorten(Recipe& frame, Chance& chance) {
    constexpr std::size_t ethernet_size = 14;
    frame.shortened_to = ethernet_size + below(chance, frame.eth_type == type_ipv6 ? 20 : 50);
}

/// Its headers, with what any megaflow could tell them apart by; or the underlay's.
void change_tunnel(Recipe& recipe, Chance& chance) {
    const bool gre = recipe.tunnel.kind == TunnelKind::gre, geneve = recipe.tunnel.kind == TunnelKind::geneve;
    constexpr GeneveOptions options[] = {GeneveOptions::none, GeneveOptions::usual, GeneveOptions::other,
                                         GeneveOptions::two};
    switch (below(chance, 9)) {
        case 0: recipe.in_port = ports[below(chance, port_length)].odp; break;
        case 1: change_tags(recipe, chance); break;
        case 2:
            if (!is_checksum_lost(recipe)) make_fragment(recipe, chance);
            break;
        case 3:
            if (!is_checksum_lost(recipe)) recipe.options = 1 + below(chance, most_options);
            break;
        case 4: shorten(recipe.inner.front(), chance); break;
        case 5:
            if (gre) recipe.tunnel.key = !recipe.tunnel.key;
            if (geneve) recipe.tunnel.options = options[below(chance, std::size(options))];
            break;
        case 6:
            if (gre) recipe.tunnel.checksum = true;
            if (geneve) recipe.tunnel.oam = !recipe.tunnel.oam;
            break;
        case 7: flip_anywhere(recipe, Feature::tun_option, 32, chance); break;
        default: flip_anywhere(recipe, gre ? Feature::tun_key : Feature::tun_id, 24, chance); break;
    }
}

int random_length_lie(Chance& chance) {
    switch (below(chance, 4)) {
        case 0: return 100;
        case 1: return static_cast<int>(below(chance, 9));   // 4 and more: up to the frame's end, or beyond it
        default: return -static_cast<int>(below(chance, 60));
    }
}

}  // namespace

void change(Recipe& recipe, const Megaflow& megaflow, Chance& chance) {
    const bool in_tunnel = !recipe.inner.empty();
    if (in_tunnel && happens(chance, megaflow.tunnel ? 40 : 70)) return change_tunnel(recipe, chance);
    Recipe& frame = in_tunnel ? recipe.inner.front() : recipe;
    switch (below(chance, 16)) {
        case 0: recipe.in_port = ports[below(chance, port_length)].odp; break;
        case 1: change_tags(frame, chance); break;
        case 2: make_fragment(frame, chance); break;
        case 3: frame[Feature::tcp_flags][15] ^= static_cast<std::uint8_t>(happens(chance, 50) ? 1 : 4); break;
        case 4: frame[Feature::protocol][15] = random_protocol(chance, frame.eth_type); break;
        case 5: frame.eth_type = happens(chance, 50) ? type_ipv4 : type_ipv6; break;
        case 6: frame.cut = 1 + below(chance, 8), frame.payload = 0; break;
        case 7: frame.length_lie = random_length_lie(chance); break;
        case 8: frame.version_lie = static_cast<std::uint8_t>(below(chance, 16)); break;
        case 9: frame.size_lie = static_cast<std::uint8_t>(1 + below(chance, 4)); break;
        case 10: frame.llc = true; break;
        default: flip_bit(recipe, megaflow, chance); break;
    }
}

namespace {

void lie_about_tunnel(Recipe& recipe, Chance& chance) {
    constexpr TunnelLie lies[] = {TunnelLie::udp_length, TunnelLie::option_twice, TunnelLie::reserved_bits,
                                  TunnelLie::not_ethernet, TunnelLie::checksum};
    recipe.tunnel_lie = lies[below(chance, std::size(lies))];
    if (recipe.tunnel_lie == TunnelLie::option_twice) recipe.tunnel.options = GeneveOptions::twice;
}

}  // namespace

void lie(Recipe& recipe, Chance& chance) {
    if (!recipe.inner.empty()) {
        return happens(chance, 70) ? lie_about_tunnel(recipe, chance) : lie(recipe.inner.front(), chance);
    }
    if (recipe.eth_type == type_ipv6 && happens(chance, 60)) {
        switch (below(chance, 3)) {
            case 0:
                // To OVS there is no header behind this one. A device may take one that is cut short, too, for whole,
                // and nobody knows what it writes into that.
                recipe.ipv6_length_lie = true;
                recipe.cut = recipe.shortened_to = 0;
                return;
            case 1:
                recipe.options = 1;
                recipe.extension = destination_options;   // no routing header: it has no answer
                recipe.chain_lie = true;
                return;
            default:
                recipe.fragment_header = true;
                recipe.fragment_lie = static_cast<std::uint8_t>(2 * (1 + below(chance, 3)));
                return;
        }
    }
    recipe.offset_lie = static_cast<std::uint8_t>(happens(chance, 50) ? below(chance, 5) : 6 + below(chance, 10));
    if (recipe.offset_lie > 5) recipe.payload = below(chance, 8);
}

namespace {

void vary_frame(Recipe& recipe, const Masks& masks, Chance& chance) {
    const std::uint8_t protocol = recipe.byte(Feature::protocol);
    for (std::size_t i = 0; i < feature_length; ++i) {
        recipe.values[i] = filled(chance, recipe.values[i], masks[i]);
    }
    recipe[Feature::protocol][15] = protocol;
    if (!happens(chance, 4)) recipe[Feature::tcp_flags][15] &= static_cast<std::uint8_t>(~tcp_ends);
    recipe.payload = below(chance, largest_payload);
}

}  // namespace

void vary(Recipe& recipe, const MasksOfFrame& masks, Chance& chance) {
    const auto destination_port = recipe[Feature::tp_dst];
    vary_frame(recipe, masks.outer, chance);
    if (recipe.inner.empty()) return;
    recipe[Feature::tp_dst] = destination_port;   // what makes it a tunnel's
    vary_frame(recipe.inner.front(), masks.inner, chance);
}

std::vector<std::uint8_t> marker_frame(std::uint32_t number) {
    Chance chance(0);
    Recipe recipe{.eth_type = type_marker};
    return frame_of(recipe, number, chance);
}

std::vector<std::uint8_t> priming_frame(std::uint32_t meter, std::uint32_t number) {
    constexpr std::size_t mac_size = 6, number_size = 4;
    std::vector<std::uint8_t> frame(priming_size);
    frame[mac_size - 1] = static_cast<std::uint8_t>(meter);
    frame[mac_size] = 2;   // a source of our own
    frame[2 * mac_size] = type_priming >> 8;
    frame[2 * mac_size + 1] = type_priming & 0xFF;
    for (std::size_t i = 0; i < number_size; ++i) {
        frame[priming_size - 1 - i] = static_cast<std::uint8_t>(number >> (8 * i));
    }
    return frame;
}

}  // namespace ovsdr::differential
