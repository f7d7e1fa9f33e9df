#include "datapath/steering/match.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "datapath/steering/definer.hpp"
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

constexpr unsigned block_size = 64;

[[nodiscard]] bool block_enabled(std::uint8_t enabled, unsigned match_offset) noexcept {
    return (enabled >> (match_offset / block_size) & 1) != 0;
}

/// What an application wrote of the enabled blocks.
struct Given {
    Parameters parameters{};  ///< other blocks are zeros
    Key key{};                ///< the double words that have a place there
    bool complete = true;     ///< no bit was left that has none
};

/// Neighbouring bytes of one block that are neighbours in a Key as well, or have no place there.
struct Stretch {
    unsigned offset, size;
    int place;   ///< -1: none
};
struct Stretches {
    std::array<Stretch, match_param_size / 4> all{};
    std::size_t length = 0;
};
constexpr Stretches stretches = [] {
    Stretches made;
    for (unsigned offset = 0; offset < match_param_size; offset += 4) {
        const int place = key_offset_of(offset);
        if (made.length != 0 && offset % 64 != 0) {
            Stretch& last = made.all[made.length - 1];
            if (place < 0 ? last.place < 0 : last.place >= 0 && place == last.place + static_cast<int>(last.size)) {
                last.size += 4;
                continue;
            }
        }
        made.all[made.length++] = {offset, 4, place};
    }
    return made;
}();

/// Into `key`, which is all zeros, what it has a place for. False: there was a bit that it has none for.
[[nodiscard]] bool gather(std::uint8_t enabled, std::span<const std::uint8_t> bytes, Key& key) noexcept {
    std::uint8_t left = 0;
    for (const Stretch& stretch : std::span(stretches.all.data(), stretches.length)) {
        if (stretch.offset >= bytes.size()) break;
        if (!block_enabled(enabled, stretch.offset)) continue;
        const auto from = bytes.subspan(stretch.offset, std::min<std::size_t>(stretch.size,
                                                                              bytes.size() - stretch.offset));
        if (stretch.place >= 0) {
            std::memcpy(key.bytes() + stretch.place, from.data(), from.size());
        } else {
            for (const std::uint8_t byte : from) left |= byte;
        }
    }
    return left == 0;
}

[[nodiscard]] Given gather(std::uint8_t enabled, std::span<const std::uint8_t> bytes) noexcept {
    Given given;
    given.complete = gather(enabled, bytes, given.key);
    for (unsigned offset = 0; offset < bytes.size(); offset += block_size) {
        if (!block_enabled(enabled, offset)) continue;
        const std::size_t size = std::min<std::size_t>(block_size, bytes.size() - offset);
        std::memcpy(&given.parameters[offset], &bytes[offset], size);
    }
    return given;
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

[[nodiscard]] bool any_second_vlan(const Key& key, const Block& block) noexcept {
    const bool is_inner = block.begin == inner_block.begin;
    const unsigned bits =
        is_inner ? inner_second_cvlan_bit | inner_second_svlan_bit : second_cvlan_bit | second_svlan_bit;
    return any(key, is_inner ? key_offset::inner_second_vlan : key_offset::second_vlan, 2) ||
           (key.bytes()[key_offset::second_qualifier] & bits) != 0;
}

/// Whether a look-up of Ethernet headers takes the fragment bit along. Both addresses have one of their own without it,
/// and a further one only for what that lacks.
[[nodiscard]] bool takes_fragment_bit(const Key& key, const Block& block) noexcept {
    const bool source = any(key, block.begin + key_offset::smac, 6),
               destination = any(key, block.begin + key_offset::dmac, 6);
    const bool vlan = any(key, block.begin + key_offset::first_vlan, 2) ||
                      (key.bytes()[block.begin + key_offset::l3_flags] & (cvlan_bit | svlan_bit)) != 0;
    if (any(key, block.begin + key_offset::ethertype, 2) || any_second_vlan(key, block)) return true;
    if (block.begin == inner_block.begin && any(key, key_offset::vxlan_vni, 3)) return true;
    return source != destination || (vlan && !source);
}

/// L3 and L4 fields that a builder takes only under a known IP version.
[[nodiscard]] bool any_ip_field(const Key& key, const Block& block) noexcept {
    const unsigned flags = key.bytes()[block.begin + key_offset::l3_flags];
    return any(key, block.begin + key_offset::ip_protocol, 2) || any(key, block.begin + key_offset::tcp_flags, 45) ||
           (flags & 1) != 0 || ((flags & frag_bit) != 0 && !takes_fragment_bit(key, block));
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

[[nodiscard]] bool any_source(const Key& key) noexcept {
    return any(key, key_offset::source_port, 2) || any(key, key_offset::source_sqn, 3);
}

[[nodiscard]] int check_source(const MatchSpec& spec, const Key& key) noexcept {
    const std::uint16_t port = load_be16(key.bytes() + key_offset::source_port);
    if (port != 0 && port != 0xffff) return EOPNOTSUPP;
    return any_source(key) && spec.domain == DomainType::nic_tx ? EOPNOTSUPP : 0;
}

/// A sample of the flexible parser: libmlx5 knows eight of them, and the first by its value alone. Nothing is sampled
/// here.
[[nodiscard]] bool any_sample(const Parameters& given) noexcept {
    constexpr unsigned misc4 = 320, samples = 8;
    for (unsigned i = 0; i < samples; ++i) {
        const std::uint32_t value = load_be32(&given[misc4 + 8 * i]), id = load_be32(&given[misc4 + 8 * i + 4]);
        if (id < samples && (id | value) != 0) return true;
    }
    return false;
}

[[nodiscard]] bool starts_ethernet(const Key& key, const Block& block) noexcept {
    constexpr unsigned bits = cvlan_bit | svlan_bit | ip_version_bits;
    return any(key, block.begin, key_offset::ip_protocol) || any_second_vlan(key, block) ||
           (key.bytes()[block.begin + key_offset::l3_flags] & bits) != 0;
}

[[nodiscard]] bool starts_tunnel(const MatchSpec& spec, const Given& given) noexcept {
    constexpr unsigned misc5_tunnel_header = 400, tunnel_header_size = 16;
    const Key& key = given.key;
    const std::uint8_t* header = &given.parameters[misc5_tunnel_header];
    constexpr std::uint8_t opt_len_bits = 0x3f;
    const bool geneve = any(key, key_offset::geneve_vni, 3) || any(key, key_offset::geneve_protocol, 2) ||
                        (key.bytes()[key_offset::geneve_opt_len] & opt_len_bits) != 0 ||
                        (key.bytes()[key_offset::geneve_oam] & geneve_oam_bit) != 0;
    const bool gtpu = any(key, key_offset::gtpu_teid, 6) || any(key, key_offset::gtpu_dw_2, 12);
    return (any(key, key_offset::gpe_vni, 5) && spec.profile->parses(flex_parser::vxlan_gpe)) ||
           (geneve && spec.profile->parses(flex_parser::geneve)) ||
           (any(key, key_offset::geneve_option, 4) && spec.profile->has_parser(flex_parser::geneve_option)) ||
           (gtpu && spec.profile->has_parser(flex_parser::gtpu)) || any(key, key_offset::gre_key, 4) ||
           any(key, key_offset::gre_protocol, 2) || (key.bytes()[key_offset::gre_flags] & gre_bits) != 0 ||
           any(key, key_offset::vxlan_vni, 3) ||
           std::any_of(header, header + tunnel_header_size, [](std::uint8_t byte) { return byte != 0; });
}

[[nodiscard]] bool starts_icmp(const MatchSpec& spec, const Key& key) noexcept {
    const bool v4 = any(key, key_offset::icmp, 2) || any(key, key_offset::icmp_data, 4);
    const bool v6 = any(key, key_offset::icmp + 2, 2) || any(key, key_offset::icmpv6_data, 4);
    return v4 ? spec.profile->parses(flex_parser::icmp_v4) : v6 && spec.profile->parses(flex_parser::icmp_v6);
}

/// Whether any of libmlx5's builders begins a look-up for this mask. Fields that only ride along begin none.
[[nodiscard]] bool starts_look_up(const MatchSpec& spec, const Given& given) noexcept {
    const Key& key = given.key;
    return any(key, key_offset::reg_c_7, 36) || (any_source(key) && spec.domain != DomainType::nic_tx) ||
           starts_ethernet(key, outer_block) || starts_ethernet(key, inner_block) || starts_tunnel(spec, given) ||
           any(key, key_offset::inner_tcp_seq, 16) || any(key, key_offset::outer_mpls, 8) ||
           (any(key, key_offset::mpls_over_gre, 4) && spec.profile->has_parser(flex_parser::mpls_over_gre)) ||
           (any(key, key_offset::mpls_over_udp, 4) && spec.profile->has_parser(flex_parser::mpls_over_udp)) ||
           starts_icmp(spec, key) || any_sample(given.parameters);
}

[[nodiscard]] bool known(const Given& given) noexcept {
    for (unsigned i = 0; i < sizeof(Key); ++i) {
        if ((given.key.bytes()[i] & ~matched_bits[i]) != 0) return false;
    }
    return given.complete;
}

/// What the firmware is believed to say: bits by themselves.
[[nodiscard]] int check_root(const MatchSpec& spec, const Given& given) noexcept {
    if (!known(given)) return EOPNOTSUPP;
    if (const int error = check_parsers(spec, given.key); error != 0) return error;
    if (const int error = check_source(spec, given.key); error != 0) return error;
    return spec.criteria != 0 && !any(given.key) ? EINVAL : 0;
}

/// libmlx5 looks at these before all else.
[[nodiscard]] int check_first(const Key& key) noexcept {
    for (const Block& block : {outer_block, inner_block}) {
        const unsigned version = ip_version(key, block);
        if (version != 0 && version != 4 && version != 6) return EOPNOTSUPP;
    }
    const std::uint16_t port = load_be16(key.bytes() + key_offset::source_port);
    return port != 0 && port != 0xffff ? EOPNOTSUPP : 0;
}

/// A mask put together from look-ups of headers.
[[nodiscard]] int check_builders(const MatchSpec& spec, const Given& given) noexcept {
    if (spec.criteria == 0) return 0;
    if (!starts_look_up(spec, given)) return EINVAL;
    if (!known(given)) return EOPNOTSUPP;
    for (const Block& block : {outer_block, inner_block}) {
        if (const int error = check_ip_version(given.key, block); error != 0) return error;
    }
    if (const int error = check_parsers(spec, given.key); error != 0) return error;
    if (const int error = check_source(spec, given.key); error != 0) return error;
    if (const int error = check_icmp(spec, given.key); error != 0) return error;
    return check_tunnel(spec, given.key);
}

void widen_qualifier(std::uint8_t& byte, std::uint8_t pair) noexcept {
    if ((byte & pair) != 0) byte |= pair;
}

/// As the builders write a tag: the C bit wins, and none of both is "untagged".
void narrow_qualifier(std::uint8_t& byte, std::uint8_t c_bit, std::uint8_t s_bit) noexcept {
    if ((byte & c_bit) != 0) byte = static_cast<std::uint8_t>(byte & ~s_bit);
}

[[nodiscard]] bool within(const Key& value, const Key& mask) noexcept {
    std::uint64_t outside = 0;   // no exit in between: the compiler takes several words at once
    for (unsigned i = 0; i < Key::length; ++i) outside |= value.words[i] & ~mask.words[i];
    return outside == 0;
}

}  // namespace

int make_mask(const MatchSpec& spec, std::span<const std::uint8_t> bytes, MatchMask& mask) noexcept {
    if ((spec.criteria & 0x80) != 0 || bytes.size() > match_param_size) return EINVAL;
    const Given given = gather(spec.criteria, bytes);
    mask = {.given = given.key, .key = given.key, .criteria = spec.criteria, .root = spec.root, .definer = false};
    if (spec.root) return check_root(spec, given);
    if (const int error = check_first(given.key); error != 0) return error;
    // In the FDB each side finds its own; the source port, which only one side looks at, is in none.
    mask.definer = known(given) && fits_definer(spec.profile->definers, given.key);
    if (!mask.definer) {
        if (const int error = check_builders(spec, given); error != 0) return error;
    }
    std::uint8_t* key = mask.key.bytes();
    for (const Block& block : {outer_block, inner_block}) {
        if (ip_version(mask.given, block) != 0) key[block.begin + key_offset::l3_flags] |= ip_version_bits;
        widen_qualifier(key[block.begin + key_offset::l3_flags], cvlan_bit | svlan_bit);
    }
    widen_qualifier(key[key_offset::second_qualifier], second_cvlan_bit | second_svlan_bit);
    widen_qualifier(key[key_offset::second_qualifier], inner_second_cvlan_bit | inner_second_svlan_bit);
    return 0;
}

int make_value(const MatchMask& mask, std::span<const std::uint8_t> given, Key& value) noexcept {
    if (given.size() > match_param_size || (!mask.root && given.size() % 4 != 0)) return EINVAL;
    value = {};
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
