// RoCE of the manager function itself, and how it comes in past an uplink that is a port of the switch.
//
//   FDB root      source_port = uplink, without a VLAN tag or with that of the address's VLAN, and
//                 - to the manager's MAC, UDP 4791 to the address     → manager
//                 - ARP to the manager's MAC                          → manager and entry table
//                 - ARP to all                                        → manager and entry table
//                 - ND to the manager's MAC                           → manager and entry table
//                 - ND to the solicited-node address                  → manager and entry table
//   FDB manager   everything                                          → count, default miss
//
// Model. The entrance of an uplink that is a port leads all that comes in to the megaflows. What the manager's own
// queue pairs are sent would miss there, and the slow path has no use for it. Rules in front of the entrance lead it to
// the manager without a mark: NIC_RX's root has no rule of ours for that, and the function's own transport gets it, as
// it would if the uplink were no port. Only RoCE to MAC, VLAN and address together is taken from the switch: tenants
// behind it may have the same address in another VLAN, or by another MAC. Of what tells the link who has the address
// the switch gets its copy: a rule cannot see whom an ARP request asks for, and a bridge's own port may have the
// manager's MAC. Discovery is looked for by the MAC because answers go to whatever address the kernel asks from, often
// the link-local one; by type where the device parses ICMPv6, otherwise all ICMPv6 to there is copied. A device that
// makes no copies to tables is refused: ARP would be lost to one of the two.
//
// These rules are in a root table, where the firmware takes masks as bits.
//
// What the manager sends meets none of this: the kernel's rule of its send queue leads it out.
//
// Life cycle. Rules are there as long as the uplink's entrance is open, since copies go to the entry table. Addresses
// share those that they have in common.
//
// Threads: let_in() one at a time, what is for people any. Errors: the device's; EOPNOTSUPP, with a sentence: it makes
// no copies to tables. Source: docs/soft-nic-roce.md; RFC 826, 2464, 4861.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <vector>

#include "offload/dr/device/rule.hpp"
#include "offload/dr/install/counter.hpp"
#include "offload/dr/roce_address.hpp"

namespace ovsdr::dr {

class RoceEntrance {
public:
    /// Of a manager's packets, before entrances of vports.
    static constexpr std::uint16_t priority = 0;

    /// `to_switch`: leads to the entry table. The counters outlive this.
    RoceEntrance(std::shared_ptr<Domain> fdb, std::shared_ptr<MatcherSet> root, ActionRef to_switch,
                 const DeviceCaps& caps, CounterPool& counters) noexcept
        : fdb_(std::move(fdb)), root_(std::move(root)), to_switch_(std::move(to_switch)),
          copies_to_table_(caps.copies_to_table), parses_icmp_v6_(caps.icmp_v6), counters_(counters) {}

    using Rules = std::vector<std::shared_ptr<const Rule>>;
    /// When this returns the address's packets reach the manager. May throw std::bad_alloc; leaves nothing behind then,
    /// or after an error, but the table.
    [[nodiscard]] Result<Rules> let_in(const RoceAddress& address, std::uint32_t level);

    /// For people: whether rules of a matcher with this mask are for the switch, too.
    [[nodiscard]] bool copies(std::string_view mask) const noexcept {
        return mask.find("udp_dport") == mask.npos;
    }
    /// For people. NULL: nothing has been let in.
    [[nodiscard]] std::shared_ptr<const MatcherSet> table() const noexcept {
        return has_table_.load(std::memory_order_acquire) ? table_ : nullptr;
    }
    /// Packets that were led to the manager, copies among them; asked of the device.
    [[nodiscard]] std::uint64_t led() noexcept;

private:
    struct Match {
        MatchParam mask{}, value{};
        bool for_switch_too = true;
        void set(prm::Field field, std::uint32_t wanted, std::uint32_t bits) noexcept;
        void set_destination(const std::array<std::uint8_t, 6>& mac) noexcept;
        void set_ip(std::uint8_t version, std::uint8_t protocol) noexcept;
        void set_destination(const std::array<std::uint8_t, 16>& address) noexcept;
    };
    [[nodiscard]] static Match from_uplink(const RoceAddress& address) noexcept;
    [[nodiscard]] std::vector<Match> discovery_of(const RoceAddress& address) const;
    [[nodiscard]] std::vector<Match> matches_of(const RoceAddress& address) const;
    [[nodiscard]] Result<void> make_table(std::uint32_t level);
    [[nodiscard]] Result<std::shared_ptr<const Rule>> rule_of(const Match& match);

    std::shared_ptr<Domain> fdb_;
    std::shared_ptr<MatcherSet> root_;
    ActionRef to_switch_;
    const bool copies_to_table_, parses_icmp_v6_;
    CounterPool& counters_;

    std::atomic<bool> has_table_{false};   ///< what follows is there, and stays
    std::shared_ptr<MatcherSet> table_;
    Counter led_;
    Rule to_miss_;
    ActionRef to_manager_, to_both_;
    struct Known {
        MatchParam mask, value;
        std::weak_ptr<const Rule> rule;
    };
    std::vector<Known> rules_;
};

}  // namespace ovsdr::dr
