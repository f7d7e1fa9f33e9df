#include "offload/dr/install/roce_entrance.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <utility>

#include "offload/dr/device/device.hpp"
#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

using Mac = std::array<std::uint8_t, 6>;
using Address = std::array<std::uint8_t, 16>;

constexpr std::uint16_t type_arp = 0x0806, roce_port = 4791;
constexpr std::uint8_t proto_udp = 17, proto_icmpv6 = 58, solicitation = 135, advertisement = 136;
constexpr Mac everyone{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

std::uint32_t word_of(std::span<const std::uint8_t> bytes) noexcept {
    std::uint32_t word = 0;
    for (const std::uint8_t byte : bytes) word = word << 8 | byte;
    return word;
}

/// RFC 4291, 2.7.1: ff02::1:ff00:0/104 and the last three bytes.
Address solicited_node(const Address& address) noexcept {
    Address node{0xff, 0x02, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff};
    std::copy(address.begin() + 13, address.end(), node.begin() + 13);
    return node;
}

}  // namespace

void RoceEntrance::Match::set(prm::Field field, std::uint32_t wanted, std::uint32_t bits) noexcept {
    mask.set(field, bits);
    value.set(field, wanted);
}

void RoceEntrance::Match::set_destination(const Mac& mac) noexcept {
    set(field::dmac_47_16, word_of(std::span(mac).first<4>()), UINT32_MAX);
    set(field::dmac_15_0, word_of(std::span(mac).last<2>()), 0xFFFF);
}

void RoceEntrance::Match::set_ip(std::uint8_t version, std::uint8_t protocol) noexcept {
    set(field::ip_version, version, 0xF);   // not as compile_match() asks for it: the firmware takes bits
    set(field::ip_protocol, protocol, 0xFF);
}

/// The version is known already; one of IPv4 is in the last word.
void RoceEntrance::Match::set_destination(const Address& address) noexcept {
    constexpr std::uint32_t version_4 = 4;
    for (std::size_t word = value.get(field::ip_version) == version_4 ? 3 : 0; word < 4; ++word) {
        set(field::dst_ip[word], word_of(std::span(address).subspan(4 * word, 4)), UINT32_MAX);
    }
}

RoceEntrance::Match RoceEntrance::from_uplink(const RoceAddress& address) noexcept {
    Match match;
    match.set(field::source_port, uplink_vport.value, 0xFFFF);
    match.set(field::cvlan_tag, address.vlan != 0 ? 1 : 0, 1);   // 0: neither a customer's nor a service tag
    if (address.vlan != 0) match.set(field::first_vid, address.vlan, 0xFFF);
    return match;
}

std::vector<RoceEntrance::Match> RoceEntrance::discovery_of(const RoceAddress& address) const {
    std::vector<Match> matches;
    const auto add = [&](Match match, std::uint8_t type) {
        if (parses_icmp_v6_) match.set(field::icmpv6_type, type, 0xFF);
        matches.push_back(match);
    };
    Match unicast = from_uplink(address);
    unicast.set_ip(6, proto_icmpv6);
    Match to_node = unicast;
    unicast.set_destination(address.mac);
    add(unicast, solicitation);
    if (parses_icmp_v6_) add(unicast, advertisement);
    const Address node = solicited_node(address.gid);
    to_node.set_destination(Mac{0x33, 0x33, node[12], node[13], node[14], node[15]});   // RFC 2464, 7
    to_node.set_destination(node);
    add(to_node, solicitation);
    return matches;
}

std::vector<RoceEntrance::Match> RoceEntrance::matches_of(const RoceAddress& address) const {
    Match roce = from_uplink(address);
    roce.set_destination(address.mac);
    roce.set_ip(address.is_ipv4() ? 4 : 6, proto_udp);
    roce.set_destination(address.gid);
    roce.set(field::udp_dport, roce_port, 0xFFFF);
    roce.for_switch_too = false;
    std::vector<Match> matches{roce};
    if (!address.is_ipv4()) {
        std::ranges::copy(discovery_of(address), std::back_inserter(matches));
        return matches;
    }
    for (const Mac& to : {address.mac, everyone}) {
        Match arp = from_uplink(address);
        arp.set(field::ethertype, type_arp, 0xFFFF);
        arp.set_destination(to);
        matches.push_back(arp);
    }
    return matches;
}

Result<void> RoceEntrance::make_table(std::uint32_t level) {
    if (table_ != nullptr) return {};
    std::shared_ptr<MatcherSet> table;
    ActionRef miss, to_manager, to_both;
    Counter led;
    Rule to_miss;
    Result<void> made = take(led, counters_.acquire(0, false));
    if (made) made = take_table(table, fdb_, level);
    if (made) made = take(to_manager, Action::to_table(table->shared_table()));
    if (made) made = take(to_both, Action::to_all(fdb_, std::array{to_manager, to_switch_}));
    if (made) made = take(miss, Action::default_miss());
    if (made) made = take(to_miss, make_rule(*table, {{}, 0}, {}, {std::move(miss)}, led.action()));
    if (made) made = fdb_->wait_written();
    if (!made) return made;
    table_ = std::move(table);
    to_manager_ = std::move(to_manager);
    to_both_ = std::move(to_both);
    led_ = std::move(led);
    to_miss_ = std::move(to_miss);
    has_table_.store(true, std::memory_order_release);
    return made;
}

Result<std::shared_ptr<const Rule>> RoceEntrance::rule_of(const Match& match) {
    std::erase_if(rules_, [](const Known& known) { return known.rule.expired(); });
    const auto found = std::ranges::find_if(rules_, [&](const Known& known) {
        return known.mask == match.mask && known.value == match.value;
    });
    if (found != rules_.end()) return found->rule.lock();
    auto made = make_rule(*root_, {match.mask, priority}, match.value, {match.for_switch_too ? to_both_ : to_manager_});
    if (!made) return tl::unexpected(std::move(made.error()));
    auto rule = std::make_shared<const Rule>(std::move(*made));
    rules_.push_back({match.mask, match.value, rule});
    return rule;
}

Result<RoceEntrance::Rules> RoceEntrance::let_in(const RoceAddress& address, std::uint32_t level) {
    if (!copies_to_table_) {
        return tl::unexpected(Error{EOPNOTSUPP, "RoCE of the manager function by an uplink that is a port: the device "
                                                "makes no copies to tables, and ARP has to reach switch and manager"});
    }
    Result<void> made = make_table(level);
    Rules rules;
    for (const Match& match : matches_of(address)) {
        std::shared_ptr<const Rule> rule;
        if (made) made = take(rule, rule_of(match));
        if (made) rules.push_back(std::move(rule));
    }
    if (made) made = fdb_->wait_written();
    if (!made) return tl::unexpected(std::move(made.error()));
    return rules;
}

std::uint64_t RoceEntrance::led() noexcept {
    return has_table_.load(std::memory_order_acquire) ? counters_.read_now(led_).packets : 0;
}

}  // namespace ovsdr::dr
