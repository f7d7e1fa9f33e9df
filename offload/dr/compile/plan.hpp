// What the compiler makes of a megaflow: everything that installing its rules needs, and nothing of a device.
//
// Model. A megaflow's packets are matched by one rule in the table of their TableKey. What then happens is a Path: the
// packet is changed, and goes to vports, to tables of megaflows, or on along a branch, a Path of its own in a private
// table with one rule. Nowhere: drop. To one: the rule leads there itself. To several: a copy to each. A single branch
// is how a rule goes on where the device does not take an action behind another.
//
// Changes are made in one order, that of their members: nothing that OVS does to a header depends on the tags in front
// of it, and what it does to a packet inside of a tunnel's is done to the tunnel's header (tunnel_header.hpp).
//
// A Path that has a meter does nothing else: its packets are coloured, and a table behind it drops those that exceed
// the meter and lets the others go on along the only branch.
//
// A Path that has a copy for software does nothing else either: a copy of its packets goes there as they are. A copy of
// each packet is a branch beside the others and ends there; a meter may be in front of it, which drops copies. Where
// one of several is copied, the packets go on along the only branch.
//
// Packets of a tunnel port come into its table, and into those behind its recirculations, with their outer headers
// still there, so that one that misses can be given to software as it came. Each rule that sends one out takes them off
// first. Only packets from the wire can be treated so: their source is the uplink.
//
// Threads: values; equal is what is equal by content.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "offload/dr/device/geneve_option.hpp"
#include "offload/dr/device/header_field.hpp"
#include "offload/dr/device/match_param.hpp"
#include "offload/dr/ids.hpp"
#include "offload/dr/software.hpp"

namespace ovsdr::dr {

enum class L3 : std::uint8_t { none, ipv4, ipv6, arp };

struct MatchPlan {
    TableKey table{};
    MatchParam mask;
    MatchParam value;
    VportId source{0};            ///< also in mask and value
    // What each matched packet is:
    std::uint8_t vlan_tags = 0;   ///< how many tags it has: 0, 1, 2
    bool more_tags = false;       ///< it may have more than that
    L3 l3 = L3::none;             ///< none: another or not known
    std::optional<std::uint8_t> protocol{};   ///< of its IP header, if known
    bool fragment = false;        ///< it is one; what is none is matched by frag = 0
    std::optional<GeneveOption> geneve_option{};   ///< that geneve_tlv_option_0 in the mask stands for
    std::uint8_t unseen_flags = 0;   ///< of a tunnel, asked for by the megaflow, not seen by the device: key + mask

    /// Only the bits of `wanted` within `bits` go in, since a rule's value must not exceed its matcher's mask.
    void ask(prm::Field field, std::uint32_t wanted, std::uint32_t bits) noexcept {
        mask.set(field, bits);
        value.set(field, wanted & bits);
    }
    [[nodiscard]] bool in_tunnel() const noexcept { return table.tunnel_port != 0; }
    /// Where the device has a field of what the megaflow is about: with a tunnel's headers around it, the inner one.
    [[nodiscard]] prm::Field place_of(prm::Field field) const noexcept {
        return in_tunnel() ? field::inner_of(field) : field;
    }
    friend bool operator==(const MatchPlan&, const MatchPlan&) = default;
};

struct VlanTag {
    std::uint16_t tpid;   ///< host order
    std::uint16_t tci;    ///< host order, as on the wire: PCP, DEI, VID
    friend auto operator<=>(const VlanTag&, const VlanTag&) = default;
};

struct Changes {
    bool decapsulates = false;           ///< takes off the headers of the tunnel that the packet came through
    std::uint8_t pops = 0;               ///< VLAN tags
    std::vector<HeaderWrite> writes{};   ///< ascending by field, each once, no mask 0
    std::vector<VlanTag> pushes{};       ///< in order; the last is the outermost
    std::vector<std::uint8_t> tunnel{};  ///< headers that go in front of all that; the device fills in the lengths

    [[nodiscard]] bool none() const noexcept {
        return !decapsulates && pops == 0 && writes.empty() && pushes.empty() && tunnel.empty();
    }
    friend bool operator==(const Changes&, const Changes&) = default;
    friend auto operator<=>(const Changes&, const Changes&) = default;
};

/// A meter by the datapath's number, and which of those that have had that number.
struct MeterUse {
    std::uint32_t number, serial;
    friend auto operator<=>(const MeterUse&, const MeterUse&) = default;
};

struct Path {
    Changes changes{};
    // Ascending, none twice:
    std::vector<VportId> vports{};
    std::vector<TableKey> tables{};
    std::vector<Path> branches{};
    std::optional<MeterUse> meter{};
    std::optional<SoftwareCopy> software{};

    /// Its packets end here but for what software does to them.
    [[nodiscard]] bool is_copy() const noexcept { return software && !software->samples(); }
    /// So do those of its packets that a meter lets pass.
    [[nodiscard]] bool is_metered_copy() const noexcept {
        return meter && !branches.empty() && branches.front().is_copy();
    }
    /// Some of its packets are copied, and all go on.
    [[nodiscard]] bool samples() const noexcept { return software && software->samples(); }
    [[nodiscard]] std::size_t ends() const noexcept { return vports.size() + tables.size() + branches.size(); }
    /// TableKeys here and in the branches, each with the number of private tables in between.
    void for_each_table(const auto& visit, unsigned depth = 0) const {
        for (const TableKey table : tables) visit(table, depth);
        for (const Path& branch : branches) branch.for_each_table(visit, depth + 1);
    }
    friend bool operator==(const Path&, const Path&) = default;
    std::strong_ordering operator<=>(const Path& other) const noexcept;
};

struct RulePlan {
    MatchPlan match;
    Path path;
    /// Bytes that the device counts too few for each packet (tags popped before), below 0: too many (a tunnel's
    /// headers).
    std::int16_t bytes_uncounted = 0;

    friend bool operator==(const RulePlan&, const RulePlan&) = default;
};

/// "recirc_id 0x7", "tunnel port 5", "recirc_id 0x7 of tunnel port 5".
[[nodiscard]] std::string text_of(TableKey table);
/// "{source_port=0x1, ethertype=0x800/0xffff}": fields set in `mask` with their values; masks where they are not full.
[[nodiscard]] std::string text_of(const MatchParam& mask, const MatchParam& value);
/// "{source_port, ethertype, src_ip_31_0/0xffffff00}": what a matcher looks at.
[[nodiscard]] std::string text_of(const MatchParam& mask);
/// "decapsulate, pop_vlan, set ip_ttl=0x3f, push_vlan 0x8100 vid 5 pcp 0, encapsulate 0123…".
[[nodiscard]] std::string text_of(const Changes& changes);
/// The changes and the ends, or "drop". Says all that the path does: equal texts, equal paths.
[[nodiscard]] std::string text_of(const Path& path);

}  // namespace ovsdr::dr
