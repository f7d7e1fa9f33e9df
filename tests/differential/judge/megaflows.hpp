// A megaflow as the judges know it, and its text.
//
// The model. A megaflow is a pattern (value and mask) for each Feature of a packet, a number of tags and actions, in
// the table of one recirc_id, of a vport or of a tunnel port. One of a tunnel port sees the frame inside, and looks at
// the tunnel's headers beside.
//
// OVS has one vlan-limit. Here each port has its own, so that both are judged at once: behind a limit of 1 a second
// tag's TPID is the ethertype, behind one of 2 a third's.
//
// Which of them offload/ must install is worked out here a second time, from docs/architecture.md and the devices'
// limits.
//
// Threads: pure.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/differential/judge/meters.hpp"
#include "tests/differential/judge/set_action.hpp"
#include "tests/differential/judge/software_parts.hpp"
#include "tests/differential/judge/tunnel_headers.hpp"
#include "tests/differential/judge/tunnel_push.hpp"

namespace ovsdr::differential {

/// Datapath port numbers and the vports behind them. Those of tunnels are in tunnel_headers.hpp: what comes through one
/// comes from the wire.
struct PortNumber {
    std::uint32_t odp;
    std::uint16_t vport;
    std::uint8_t vlan_limit;
};
inline constexpr std::uint16_t wire_vport = 0xFFFF;
inline constexpr PortNumber ports[] = {{1, 1, 2}, {2, 2, 1}, {3, 3, 1}, {9, wire_vport, 2}};
inline constexpr std::size_t port_length = std::size(ports);
inline constexpr std::uint32_t uplink = 9;
/// 0: it is no vport's, and no tunnel's.
[[nodiscard]] std::uint16_t vport_of(std::uint32_t odp);
[[nodiscard]] std::uint8_t vlan_limit_of(std::uint32_t odp);

inline constexpr std::uint16_t customer_tag = 0x8100, service_tag = 0x88a8;
[[nodiscard]] constexpr bool is_tag(std::uint16_t eth_type) {
    return eth_type == customer_tag || eth_type == service_tag;
}
/// Frames that a judge sends to know that what was before them has come out, and those that exhaust a meter. No tree
/// has these ethertypes.
inline constexpr std::uint16_t type_marker = 0x88b6, type_priming = 0x88b7;

enum class Feature : std::uint8_t {
    eth_dst, eth_src, vid, pcp, second_vid, second_pcp, ip_src, ip_dst, tos, ttl, label, protocol, tp_src, tp_dst,
    tcp_flags,
    /// Of the tunnel that the packet came out of: VNI or GRE's key, the addresses of one IP version, one Geneve option.
    tun_id, tun_key, tun_src, tun_dst, tun_ipv6_src, tun_ipv6_dst, tun_tos, tun_ttl, tun_tp_src, tun_tp_dst, tun_option,
    count_of_features
};
inline constexpr std::size_t feature_length = static_cast<std::size_t>(Feature::count_of_features);
[[nodiscard]] constexpr bool is_of_tunnel(Feature feature) { return feature >= Feature::tun_id; }
/// Whose meaning depends on the protocol.
[[nodiscard]] constexpr bool is_transport(Feature feature) {
    return feature >= Feature::tp_src && feature <= Feature::tcp_flags;
}

/// Which packets of IP a megaflow takes. OVS has two bits: 1 is set of all fragments, 2 of later ones.
enum class Fragments : std::uint8_t {
    none,              ///< frag=no
    none_by_one_bit,   ///< 0/1: the same packets
    not_later,         ///< 0/2
    first,
    later,
    any,               ///< 1/1
};

enum class Tag : std::uint8_t { none, customer, service, any };   ///< any: the megaflow does not look at it
[[nodiscard]] constexpr bool is_there(Tag tag) { return tag == Tag::customer || tag == Tag::service; }

/// That no packet has which no megaflow has given one: OVS may look whether it is 0, which is no match.
enum class Metadata : std::uint8_t { skb_priority, skb_mark, ct_state, ct_zone, ct_mark, ct_label, dp_hash, tunnel };
inline constexpr Metadata all_metadata[] = {Metadata::skb_priority, Metadata::skb_mark, Metadata::ct_state,
                                            Metadata::ct_zone,      Metadata::ct_mark,  Metadata::ct_label,
                                            Metadata::dp_hash,      Metadata::tunnel};
[[nodiscard]] const char* name_of(Metadata metadata);

struct Action {
    enum class Kind : std::uint8_t {
        output, push, pop, set, tunnel_push, tunnel_pop, recirc,
        copy_begin, copy_end,   ///< clone, or check_pkt_len with two equal lists (`length` is not 0)
        software,               ///< a copy for software, and what that does to it
        meter,                  ///< `port` is its number
        refused,                ///< no NIC does it
    };
    Kind kind;
    std::uint32_t port = 0;      ///< output, tunnel_pop; recirc: the id
    std::uint16_t tpid = 0, vid = 0;
    std::uint8_t pcp = 0;
    std::uint16_t length = 0;    ///< copy_begin and copy_end
    SetAction set{};
    TunnelPush tunnel{};
    SoftwarePart software{};
    std::string text{};          ///< refused
};

/// Where a packet is looked up.
struct TableId {
    std::uint32_t recirc_id = 0;
    std::uint32_t tunnel_port = 0;   ///< 0: as it came from a vport
    friend auto operator<=>(const TableId&, const TableId&) = default;
};

struct Megaflow {
    std::uint32_t ufid = 0;          ///< its number; who modifies it keeps it
    std::uint32_t recirc_id = 0;
    std::uint32_t in_port = 0;
    std::uint16_t eth_type = 0;
    Tag tag = Tag::none, second = Tag::any;   ///< second: behind a first one; none or any where vlan-limit is 1
    Fragments fragments = Fragments::none;
    std::array<Pattern, feature_length> patterns{};
    std::uint8_t zeros = 0;          ///< of Metadata, a bit each
    std::string refused_match{};     ///< of the payload, as text: no NIC has it
    std::optional<TunnelHeaders> tunnel{};   ///< if in_port is a tunnel's
    std::optional<std::uint32_t> twin_of{};  ///< ufid of one that differs in nothing that a device sees
    std::vector<Action> actions;

    [[nodiscard]] Pattern& operator[](Feature feature) { return patterns[static_cast<std::size_t>(feature)]; }
    [[nodiscard]] const Pattern& operator[](Feature feature) const {
        return patterns[static_cast<std::size_t>(feature)];
    }
    [[nodiscard]] bool looks_for_zero_of(Metadata one) const { return (zeros >> static_cast<unsigned>(one) & 1) != 0; }
    /// 0: not matched.
    [[nodiscard]] std::uint8_t protocol() const { return (*this)[Feature::protocol].value[15]; }
    /// Equal: the same match to a device.
    [[nodiscard]] std::uint32_t match_number() const { return twin_of.value_or(ufid); }
    [[nodiscard]] TableId table() const { return {recirc_id, tunnel ? in_port : 0}; }
    /// Of no whole packets.
    [[nodiscard]] bool is_of_fragments() const { return fragments >= Fragments::first; }
    [[nodiscard]] bool is_ip() const { return eth_type == type_ipv4 || eth_type == type_ipv6; }
};

/// As `ovs-dpctl add-flow` takes them.
[[nodiscard]] std::string match_text(const Megaflow& megaflow);
[[nodiscard]] std::string actions_text(const Megaflow& megaflow);
/// Both, for people.
[[nodiscard]] std::string text_of(const Megaflow& megaflow);

/// Whether a device has the meter of this number at some time.
using HasMeter = std::function<bool(std::uint32_t)>;

/// Whether a device of this steering format (0, 1, 2) can do it, if the tables that it leads to may be there, and at a
/// time at which it has these meters.
[[nodiscard]] bool is_offloadable(const Megaflow& megaflow, unsigned format, const HasMeter& has_meter);
/// The same while it has all meters that it may have.
[[nodiscard]] bool is_offloadable(const Megaflow& megaflow, unsigned format);

/// Of ctrl/'s value of a megaflow, where each field of a set is an action of its own.
[[nodiscard]] std::size_t entries_of(const std::vector<Action>& actions);

/// The Geneve options that a device has to look for, if the megaflow asks for any.
[[nodiscard]] std::optional<GeneveOptions> option_of(const Megaflow& megaflow);

/// Of either version of IP.
[[nodiscard]] bool is_any_icmp(const Megaflow& megaflow);

/// Of OVS's fragment field: what is looked at.
[[nodiscard]] std::uint8_t fragment_mask_of(Fragments fragments);

/// Bits that a feature has in packets of this ethertype.
[[nodiscard]] unsigned bits_of(Feature feature, std::uint16_t eth_type);

}  // namespace ovsdr::differential
