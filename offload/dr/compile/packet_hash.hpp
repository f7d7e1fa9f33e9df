// Whether OVS's hash of a packet is still the one that the packet's headers give.
//
// Model. OVS hashes the addresses, the protocol and the ports that a packet comes in with, behind as many VLAN tags as
// it parses, and keeps the hash whatever its actions write. hash(l4) and a tunnel's UDP source port are made of it. A
// packet that a NIC has marked, or that misses behind a recirculation, has no hash when it recirculates in OVS, which
// then hashes the headers as they are by that time.
//
// Threads: a value. Source: OVS lib/flow.c miniflow_extract(), miniflow_hash_5tuple(); lib/dpif-netdev.c
// dfc_processing().
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "offload/dr/compile/plan.hpp"
#include "offload/dr/megaflow.h"
#include "offload/dr/static_name.hpp"

namespace ovsdr::dr {

class PacketHash {
public:
    /// `parsed_tags`: behind how many OVS looks.
    PacketHash(const MatchPlan& match, unsigned parsed_tags) noexcept
        : parsed_(parsed_tags), tags_(most_tags(match)), all_parsed_(tags_ <= parsed_) {}

    /// What an action does to the packet that goes on. Copies are the caller's.
    void follow(const ovsdr_action& action) noexcept {
        switch (action.type) {
            case OVSDR_ACTION_PUSH_VLAN: return retag("push_vlan", tags_ + 1);
            case OVSDR_ACTION_POP_VLAN: return retag("pop_vlan", tags_ == 0 ? 0 : tags_ - 1);
            case OVSDR_ACTION_SET: return change(name_of_hashed(action.set.field));
            case OVSDR_ACTION_UNSUPPORTED: return follow_unsupported(action.unsupported);
            default: return;
        }
    }

    /// The action that changed what is hashed; empty: none has.
    [[nodiscard]] StaticName changed_by() const noexcept {
        if (!changed_by_.empty()) return changed_by_;
        return all_parsed_ && tags_ <= parsed_ ? StaticName() : retagged_by_;
    }

private:
    static constexpr unsigned device_tags = 2;   ///< that the device parses

    /// That a matched packet may have. More than OVS parses are all one: it sees no IP header behind them.
    static unsigned most_tags(const MatchPlan& match) noexcept {
        if (!match.more_tags) return match.vlan_tags;
        return match.mask.get(match.place_of(field::ethertype)) != 0 ? device_tags : device_tags + 1;
    }

    static constexpr StaticName name_of_hashed(std::uint8_t field) noexcept {
        switch (field) {
            case OVSDR_HEADER_IP_SRC:
            case OVSDR_HEADER_IP_DST: return "set(ipv4)";
            case OVSDR_HEADER_IPV6_SRC:
            case OVSDR_HEADER_IPV6_DST: return "set(ipv6)";
            case OVSDR_HEADER_TCP_SRC:
            case OVSDR_HEADER_TCP_DST: return "set(tcp)";
            case OVSDR_HEADER_UDP_SRC:
            case OVSDR_HEADER_UDP_DST: return "set(udp)";
            default: return {};
        }
    }

    void follow_unsupported(const char* name) noexcept {
        constexpr std::array<std::string_view, 8> harmless{"ct", "ct_clear", "hash", "trunc", "userspace",
                                                           "set(ipv6(label))", "set(skb_mark)", "set(skb_priority)"};
        if (name == nullptr) return change("unknown");
        const std::string_view text(name);
        const bool of_copy = text.starts_with("sample") || text.starts_with("check_pkt_len");
        if (!of_copy && std::ranges::find(harmless, text) == harmless.end()) change(StaticName::of_table(name));
    }

    void change(StaticName by) noexcept {
        if (changed_by_.empty()) changed_by_ = by;
    }

    void retag(StaticName by, unsigned tags) noexcept {
        retagged_by_ = by;
        tags_ = tags;
    }

    unsigned parsed_, tags_;
    bool all_parsed_;   ///< of each packet as it came in
    StaticName changed_by_, retagged_by_;
};

}  // namespace ovsdr::dr
