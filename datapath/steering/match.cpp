#include "datapath/steering/match.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "datapath/steering/flow_cache.hpp"

namespace ovsdr::soft {
namespace {

using Bytes = std::array<std::uint8_t, sizeof(Key)>;
using Parameters = std::array<std::uint8_t, match_param_size>;

struct Range {
    unsigned offset, size;
    std::uint8_t bits;
};

/// What packets are parsed into; everything else in a mask is refused.
constexpr Range matched_fields[] = {
    {key_offset::smac, 24, 0xff},              // to tcp_dport
    {key_offset::ihl, 1, 0xf0},
    {key_offset::ttl, 37, 0xff},               // to the end of the outer block
    {key_offset::gre_flags, 1, gre_bits},
    {key_offset::source_sqn, 3, 0xff},
    {key_offset::source_port, 2, 0xff},
    {key_offset::second_vlan, 4, 0xff},        // outer and inner
    {key_offset::second_qualifier, 1, 0xf0},
    {key_offset::gre_protocol, 2, 0xff},
    {key_offset::icmp, 12, 0xff},
    {key_offset::reg_c_7, 36, 0xff},
    {key_offset::inner + key_offset::smac, 24, 0xff},
    {key_offset::inner + key_offset::ihl, 1, 0xf0},
    {key_offset::inner + key_offset::ttl, 37, 0xff},
    {key_offset::gre_key, 4, 0xff},
    {key_offset::vxlan_vni, 3, 0xff},
    {key_offset::geneve_vni, 3, 0xff},
    {key_offset::geneve_oam, 1, geneve_oam_bit | geneve_option_exists},
    {key_offset::outer_flow_label + 1, 1, 0x0f},
    {key_offset::outer_flow_label + 2, 2, 0xff},
    {key_offset::inner_flow_label + 1, 1, 0x0f},
    {key_offset::inner_flow_label + 2, 2, 0xff},
    {key_offset::geneve_opt_len, 1, 0x3f},
    {key_offset::geneve_protocol, 2, 0xff},
    {key_offset::outer_mpls, 8, 0xff},         // outer and inner
    {key_offset::inner_tcp_seq, 16, 0xff},     // four TCP numbers
    {key_offset::gpe_vni, 5, 0xff},            // to gpe_flags
    {key_offset::tunnel_header, 8, 0xff},
    {key_offset::mpls_over_gre, 8, 0xff},      // and over UDP
    {key_offset::gtpu_teid, 6, 0xff},          // to gtpu_flags
    {key_offset::gtpu_dw_2, 16, 0xff},         // to geneve_option
};

constexpr Bytes matched_bits = [] {
    Bytes bits{};
    for (const Range& range : matched_fields) {
        for (unsigned i = 0; i < range.size; ++i) bits[range.offset + i] = range.bits;
    }
    return bits;
}();

/// What the flow cache is keyed by at most: the words of all masks together, without the registers.
[[nodiscard]] constexpr unsigned cached_words() noexcept {
    unsigned words = 0;
    for (unsigned word = 0; word < Key::length; ++word) {
        bool used = false;
        for (unsigned at = word * 8; at < word * 8 + 8; ++at) {
            const bool is_register = at >= key_offset::reg_c_7 && at < key_offset::registers_end;
            used = used || (!is_register && matched_bits[at] != 0);
        }
        words += used ? 1 : 0;
    }
    return words;
}
static_assert(cached_words() <= FlowCache::max_words);

[[nodiscard]] bool block_enabled(std::uint8_t enabled, unsigned match_offset) noexcept {
    return (enabled >> (match_offset / 64) & 1) != 0;
}

/// The enabled blocks' double words at their places; false when bits are left that have none.
[[nodiscard]] bool gather(std::uint8_t enabled, std::span<const std::uint8_t> given, Key& key) noexcept {
    Parameters parameters{};
    std::copy(given.begin(), given.end(), parameters.begin());
    key = Key{};
    bool complete = true;
    for (unsigned offset = 0; offset < match_param_size; offset += 4) {
        if (!block_enabled(enabled, offset)) continue;
        const int place = key_offset_of(offset);
        if (place >= 0) {
            std::memcpy(key.bytes() + place, &parameters[offset], 4);
        } else {
            complete = complete && std::all_of(&parameters[offset], &parameters[offset] + 4,
                                               [](std::uint8_t byte) { return byte == 0; });
        }
    }
    return complete;
}

[[nodiscard]] bool any(const Key& key, unsigned offset, unsigned size) noexcept {
    return std::any_of(key.bytes() + offset, key.bytes() + offset + size, [](std::uint8_t byte) { return byte != 0; });
}

[[nodiscard]] bool any(const Key& key) noexcept { return any(key, 0, sizeof key); }

/// The outer block or the inner one, and the flow label that belongs to it.
struct Block {
    unsigned begin, flow_label;
};
constexpr Block outer_block{0, key_offset::outer_flow_label};
constexpr Block inner_block{key_offset::inner, key_offset::inner_flow_label};

[[nodiscard]] unsigned ip_version(const Key& key, const Block& block) noexcept {
    return (key.bytes()[block.begin + key_offset::l3_flags] & ip_version_bits) >> 1;
}

/// L3 and L4 fields that a builder takes only under a known IP version.
[[nodiscard]] bool any_ip_field(const Key& key, const Block& block) noexcept {
    return any(key, block.begin + key_offset::ip_protocol, 2) || any(key, block.begin + key_offset::tcp_flags, 45) ||
           (key.bytes()[block.begin + key_offset::l3_flags] & (frag_bit | 1)) != 0;
}

[[nodiscard]] int check_ip_version(const Key& key, const Block& block) noexcept {
    const unsigned version = ip_version(key, block);
    if (version != 6 && any(key, block.flow_label, 4)) return EOPNOTSUPP;
    switch (version) {
        case 0: return any_ip_field(key, block) ? EOPNOTSUPP : 0;
        case 4:
            return any(key, block.begin + key_offset::source_ip, 12) ||
                           any(key, block.begin + key_offset::destination_ip, 12)
                       ? EOPNOTSUPP
                       : 0;
        case 6: return any(key, block.begin + key_offset::ihl, 1) ? EOPNOTSUPP : 0;
        default: return EOPNOTSUPP;
    }
}

/// One builder takes either ICMP or ICMPv6; ConnectX-5 needs a parser for both that its firmware must have been set up
/// for.
[[nodiscard]] int check_icmp(const MatchSpec& spec, const Key& key) noexcept {
    const bool v4 = any(key, key_offset::icmp, 2) || any(key, key_offset::icmp_data, 4);
    const bool v6 = any(key, key_offset::icmp + 2, 2) || any(key, key_offset::icmpv6_data, 4);
    if (v4 && v6) return EOPNOTSUPP;
    if (v4) return spec.profile->parses(flex_parser::icmp_v4) ? 0 : EOPNOTSUPP;
    return v6 && !spec.profile->parses(flex_parser::icmp_v6) ? EOPNOTSUPP : 0;
}

[[nodiscard]] bool asks_for_option(const Key& key) noexcept {
    return (key.bytes()[key_offset::geneve_oam] & geneve_option_exists) != 0;
}

/// What only a parser that the firmware was set up for reads.
[[nodiscard]] int check_parsers(const MatchSpec& spec, const Key& key) noexcept {
    const auto lacks = [&](std::uint32_t protocol, unsigned offset, unsigned size) {
        return any(key, offset, size) && !spec.profile->has_parser(protocol);
    };
    return lacks(flex_parser::mpls_over_gre, key_offset::mpls_over_gre, 4) ||
                   lacks(flex_parser::mpls_over_udp, key_offset::mpls_over_udp, 4) ||
                   lacks(flex_parser::geneve_option, key_offset::geneve_option, 4) ||
                   (asks_for_option(key) && !spec.profile->tells_geneve_options()) ||
                   lacks(flex_parser::gtpu, key_offset::gtpu_teid, 20)
               ? EOPNOTSUPP
               : 0;
}

/// VXLAN-GPE, Geneve, GTP-U and the bare tunnel header share a place in the device: one of them at most. Whether there
/// is an option is asked beside another field of Geneve.
[[nodiscard]] int check_tunnel(const MatchSpec& spec, const Key& key) noexcept {
    const bool gpe = any(key, key_offset::gpe_vni, 5);
    const bool oam = (key.bytes()[key_offset::geneve_oam] & geneve_oam_bit) != 0;
    const bool geneve = any(key, key_offset::geneve_vni, 3) || oam || any(key, key_offset::geneve_opt_len, 3) ||
                        any(key, key_offset::geneve_option, 4);
    const bool bare = any(key, key_offset::tunnel_header, 8);
    const bool gtpu = any(key, key_offset::gtpu_teid, 20);
    if (gpe + geneve + gtpu + bare > 1 || (asks_for_option(key) && !geneve)) return EOPNOTSUPP;
    if (gpe && !spec.profile->parses(flex_parser::vxlan_gpe)) return EOPNOTSUPP;
    return geneve && !spec.profile->parses(flex_parser::geneve) ? EOPNOTSUPP : 0;
}

[[nodiscard]] int check_source(const MatchSpec& spec, const Key& key) noexcept {
    const std::uint16_t port = load_be16(key.bytes() + key_offset::source_port);
    if (port != 0 && port != 0xffff) return EOPNOTSUPP;
    const bool any_source = port != 0 || any(key, key_offset::source_sqn, 3);
    return any_source && spec.domain == DomainType::nic_tx ? EOPNOTSUPP : 0;
}

void widen_qualifier(std::uint8_t& byte, std::uint8_t pair) noexcept {
    if ((byte & pair) != 0) byte |= pair;
}

/// As the builders write a tag: the C bit wins, and none of both is "untagged".
void narrow_qualifier(std::uint8_t& byte, std::uint8_t c_bit, std::uint8_t s_bit) noexcept {
    if ((byte & c_bit) != 0) byte = static_cast<std::uint8_t>(byte & ~s_bit);
}

[[nodiscard]] bool within(const Key& value, const Key& mask) noexcept {
    for (unsigned i = 0; i < Key::length; ++i) {
        if ((value.words[i] & ~mask.words[i]) != 0) return false;
    }
    return true;
}

}  // namespace

int make_mask(const MatchSpec& spec, std::span<const std::uint8_t> given, MatchMask& mask) noexcept {
    if ((spec.criteria & 0x80) != 0 || given.size() > match_param_size) return EINVAL;
    mask.criteria = spec.criteria;
    mask.root = spec.root;
    if (!gather(spec.criteria, given, mask.given)) return EOPNOTSUPP;
    for (unsigned i = 0; i < sizeof(Key); ++i) {
        if ((mask.given.bytes()[i] & ~matched_bits[i]) != 0) return EOPNOTSUPP;
    }
    if (const int error = check_parsers(spec, mask.given); error != 0) return error;
    if (const int error = check_source(spec, mask.given); error != 0) return error;
    if (spec.criteria != 0 && !any(mask.given)) return EINVAL;
    mask.key = mask.given;
    if (spec.root) return 0;
    for (const Block& block : {outer_block, inner_block}) {
        if (const int error = check_ip_version(mask.given, block); error != 0) return error;
    }
    if (const int error = check_icmp(spec, mask.given); error != 0) return error;
    if (const int error = check_tunnel(spec, mask.given); error != 0) return error;
    std::uint8_t* bytes = mask.key.bytes();
    for (const Block& block : {outer_block, inner_block}) {
        if (ip_version(mask.given, block) != 0) bytes[block.begin + key_offset::l3_flags] |= ip_version_bits;
        widen_qualifier(bytes[block.begin + key_offset::l3_flags], cvlan_bit | svlan_bit);
    }
    widen_qualifier(bytes[key_offset::second_qualifier], second_cvlan_bit | second_svlan_bit);
    widen_qualifier(bytes[key_offset::second_qualifier], inner_second_cvlan_bit | inner_second_svlan_bit);
    return 0;
}

int make_value(const MatchMask& mask, std::span<const std::uint8_t> given, Key& value) noexcept {
    if (given.size() > match_param_size || (!mask.root && given.size() % 4 != 0)) return EINVAL;
    if (!gather(mask.criteria, given, value) || !within(value, mask.given)) return EINVAL;
    if (mask.root) return 0;
    std::uint8_t* bytes = value.bytes();
    for (const Block& block : {outer_block, inner_block}) {
        if (ip_version(value, block) != ip_version(mask.given, block)) return EOPNOTSUPP;
        narrow_qualifier(bytes[block.begin + key_offset::l3_flags], cvlan_bit, svlan_bit);
    }
    narrow_qualifier(bytes[key_offset::second_qualifier], inner_second_cvlan_bit, inner_second_svlan_bit);
    narrow_qualifier(bytes[key_offset::second_qualifier], second_cvlan_bit, second_svlan_bit);
    return 0;
}

}  // namespace ovsdr::soft
