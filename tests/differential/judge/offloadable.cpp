// What offload/ takes of the megaflows drawn here, worked out a second time.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/differential/judge/action_list.hpp"
#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/metered_copies.hpp"
#include "tests/differential/judge/packet_shape.hpp"
#include "tests/differential/judge/tables_in_a_row.hpp"

namespace ovsdr::differential {

namespace {

constexpr std::size_t most_entries = 32;
constexpr std::size_t most_in_front = 3;
constexpr std::size_t most_tables_in_a_row = 6;
constexpr std::size_t most_pushed = 2;   ///< in front of the packet, and in front of a tunnel's headers

bool looks_at_icmp(const Megaflow& megaflow) {
    const auto looks_at = [&](Feature feature) { return megaflow[feature].mask != PatternBytes{}; };
    const bool icmp = megaflow.protocol() == protocol_icmp || megaflow.protocol() == protocol_icmpv6;
    return icmp && (looks_at(Feature::tp_src) || looks_at(Feature::tp_dst));
}

/// A device knows whether a packet is a fragment, and of one no header behind IP; of a later one over IPv6 it has
/// another protocol than OVS.
bool are_fragments_told(const Megaflow& megaflow) {
    if (!megaflow.is_ip()) return true;
    if (megaflow.fragments == Fragments::none || megaflow.fragments == Fragments::none_by_one_bit) return true;
    if (megaflow.fragments != Fragments::any) return false;
    if (megaflow.eth_type == type_ipv6 && megaflow.protocol() != 0) return false;
    return std::ranges::none_of(megaflow.actions, [](const Action& action) {
        return action.kind == Action::Kind::set && touches_transport_checksum(action.set);
    });
}

/// Whether a device of the format tells packets of this tunnel apart as the megaflow does.
bool is_tunnel_told(const Megaflow& megaflow, bool connectx_5) {
    const TunnelHeaders& headers = *megaflow.tunnel;
    if (looks_at_icmp(megaflow)) return false;   // inside nobody knows where it is
    if (headers.kind == TunnelKind::gre) return !headers.checksum;
    if (!asks_for_options(headers)) return true;
    const Pattern& option = megaflow[Feature::tun_option];
    // One that is not there reads 0 to a ConnectX-5.
    const bool told = !connectx_5 || option.value != PatternBytes{};
    return list_of(headers.options).size() == 1 && option.mask != PatternBytes{} && told;
}

/// The size of IPv6 headers nobody knows: bytes are right only where the rule that counts takes them off.
bool is_counted_right(const Megaflow& megaflow, bool connectx_5) {
    const bool recirculates = std::ranges::count(megaflow.actions, Action::Kind::recirc, &Action::kind) != 0;
    return !megaflow.tunnel->ipv6 || (!connectx_5 && !recirculates);
}

std::size_t entries_of(const SetAction& set) {
    return static_cast<std::size_t>(
        std::ranges::count_if(set.fields, [](const Pattern& field) { return field.mask != PatternBytes{}; }));
}

std::size_t entries_of(const Action& action) {
    if (action.kind == Action::Kind::set) return entries_of(action.set);
    const auto& between = action.software.between;
    return 1 + (action.kind == Action::Kind::software && between ? entries_of(*between) : 0);
}

/// Follows the packet. What cannot be done on the way, or to a packet that then goes somewhere, ends it.
class Follower {
public:
    Follower(const Megaflow& megaflow, bool connectx_5, const HasMeter& has_meter)
        : megaflow_(megaflow), connectx_5_(connectx_5), has_meter_(has_meter),
          meter_uses_(meter_uses(megaflow.actions)) {
        // Behind a limit of 1 OVS's ethertype says whether there is a second tag, and not whether there is a third.
        const bool second_by_type = is_tag(megaflow.eth_type);
        if (is_there(megaflow.tag)) own_tags_ = is_there(megaflow.second) || second_by_type ? 2 : 1;
        const bool second_unknown = megaflow.second == Tag::any && vlan_limit_of(megaflow.in_port) > 1;
        // Inside of a tunnel offload/ does not use that the ethertype behind two tags says that there is no third.
        const bool two_inside = megaflow.tunnel && own_tags_ == 2;
        const bool unknown = megaflow.tag == Tag::any || (megaflow.tag != Tag::none && second_unknown);
        may_have_more_ = two_inside || unknown || second_by_type;
    }

    /// False: no NIC does it.
    bool step(const Action& action) {
        switch (action.kind) {
            case Action::Kind::set: shape_.set(action.set); return !shape_.tunnel && is_writable(action.set);
            case Action::Kind::pop: return pop();
            case Action::Kind::push: {
                auto& tags = shape_.tunnel ? shape_.tunnel_tags : shape_.pushed;
                tags.emplace_back(action.tpid, action.vid, action.pcp);
                return tags.size() <= most_pushed;
            }
            case Action::Kind::output: return output(action.port);
            case Action::Kind::tunnel_push: {
                const bool first = !shape_.tunnel;
                shape_.tunnel = action.tunnel;
                return first && !action.tunnel.checksum && action.tunnel.oddity == Oddity::none;
            }
            case Action::Kind::tunnel_pop:
                leads_on();
                return can_pop_tunnel() && tables_.insert({{0, action.port}, shape_}).second;
            case Action::Kind::recirc:
                leads_on();
                // Out of a tunnel it goes on with its headers.
                if (megaflow_.tunnel && (shape_ != PacketShape{} || metered_)) return false;
                return !shape_.tunnel && action.port != megaflow_.recirc_id && device_takes() &&
                       tables_.insert({{action.port, 0}, shape_}).second;
            case Action::Kind::copy_begin: outside_.push_back(shape_); return true;
            case Action::Kind::copy_end:
                shape_ = std::move(outside_.back());
                outside_.pop_back();
                return true;
            case Action::Kind::software: return copy_to_software(action.software, meter_in_front(action.software));
            case Action::Kind::meter: return meter(action.port);
            case Action::Kind::refused: return false;
        }
        return false;
    }
    /// The end of a list, whose meter drops copies.
    bool metered_end(std::uint32_t number, const SoftwarePart& part) { return copy_to_software(part, number); }
    /// At the end: where all packets are copied and go nowhere else, they stay in software.
    [[nodiscard]] bool goes_on() const { return goes_on_ || metered_ || !copies_each_ || !to_software_; }
    /// At the end: whether there is a level for each private table.
    [[nodiscard]] bool has_levels() {
        const bool in_tunnel = megaflow_.tunnel.has_value();
        // Without its tunnel's headers a packet is counted that is dropped, too.
        if (legs_.empty() && in_tunnel && !connectx_5_) (void)leg();
        const std::size_t in_front = in_front_ + (in_front_ != 0 && in_tunnel ? 1 : 0);
        const bool from_wire = vport_of(megaflow_.in_port) == wire_vport;
        return in_front + tables_in_a_row(legs_, from_wire, connectx_5_) <= most_tables_in_a_row;
    }

private:
    /// The packet as it is here goes out, without a tunnel's headers, or on in a table of megaflows, with them.
    Leg& leg(bool goes_out = true) {
        const bool decapsulates = goes_out && megaflow_.tunnel.has_value();
        const auto known = std::ranges::find_if(legs_, [&](const Leg& one) {
            return one.decapsulates == decapsulates && one.shape == shape_;
        });
        return known != legs_.end() ? *known : legs_.emplace_back(Leg{shape_, decapsulates});
    }

    void leads_on() {
        leg(false).goes_out = true;
        goes_on_ = true;
    }

    /// Once of the same packet. `number`: the meter that its work begins with.
    bool copy_to_software(const SoftwarePart& part, std::optional<std::uint32_t> number) {
        std::string work = text_of(part);
        if (number) work += " limited by " + std::to_string(*number);
        const bool known = std::ranges::count(parts_, std::pair(work, shape_)) != 0;
        // A ConnectX-5 would have to be told where the packet came from behind a sampler.
        if (known || !device_takes() || (connectx_5_ && !part.copies_each())) return false;
        parts_.emplace_back(work, shape_);
        const bool limited = number && does_device_limit(*number);
        if (part.copies_each()) {
            leg().copies[work] = limited;
        } else {
            ++leg().samplers;
        }
        note_copy(std::move(work));
        copies_each_ = copies_each_ || (part.copies_each() && !limited);
        to_software_ = to_software_ || !part.is_cut_for_mirror();
        if (!part.between) return true;
        shape_.set(*part.between);
        return !shape_.tunnel && is_writable(*part.between);
    }

    /// Copies, where nobody else asks the meter, and with the length that the packet came with.
    bool does_device_limit(std::uint32_t number) const {
        return !connectx_5_ && has_meter_(number) && is_as_long_as_it_came() && meter_uses_.at(number) == 1;
    }

    bool is_as_long_as_it_came() const {
        return shape_.popped == 0 && shape_.pushed.empty() && !shape_.tunnel;
    }

    void note_copy(std::string work) {
        front_of_copies_.insert(std::move(work));
        copies_changed_ = copies_changed_ || shape_ != PacketShape{} || megaflow_.tunnel.has_value();
    }

    /// In front of all that leads the packet somewhere but copies of it as it came, and not with another length than it
    /// came with.
    bool meter(std::uint32_t number) {
        if (!has_meter_(number) || goes_on_ || !outside_.empty() || copies_changed_) return false;
        if (!is_as_long_as_it_came()) return false;
        // There a rule ends in a meter, which leads to a table of its own at one level.
        const bool entry = megaflow_.recirc_id == 0 && !megaflow_.tunnel;
        in_front_ += std::exchange(front_of_copies_, {}).size();
        if (connectx_5_ && (!entry || in_front_ != 0)) return false;
        if (in_front_ >= most_in_front) return false;
        ++in_front_;
        copies_.clear();
        parts_.clear();
        legs_.clear();
        metered_ = true;
        return true;
    }

    /// A checksum covers the addresses of ICMPv6 that no device is known to mend.
    bool is_writable(const SetAction& set) const {
        const std::uint8_t protocol = megaflow_.protocol();
        const bool may_be_icmpv6 = protocol == 0 || protocol == protocol_icmpv6;
        return set.header != SetHeader::ipv6 || !touches_transport_checksum(set) || !may_be_icmpv6;
    }

    bool pop() {
        if (shape_.tunnel) {
            if (!shape_.tunnel_tags.empty()) shape_.tunnel_tags.pop_back();
            return true;
        }
        if (!shape_.pushed.empty()) {
            shape_.pushed.pop_back();
            return true;
        }
        if (shape_.popped == own_tags_) return !may_have_more_;
        ++shape_.popped;
        return true;
    }

    /// All that it takes are packets of the tunnel, from the wire, without tags.
    bool can_pop_tunnel() const {
        return tunnel_of(megaflow_) && !shape_.tunnel && shape_.pushed.empty() && shape_.popped == own_tags_ &&
               !may_have_more_;
    }

    bool output(std::uint32_t port) {
        const bool by_software = is_software_port(port);
        if (!by_software && std::ranges::count(ports, port, &PortNumber::odp) == 0) return false;
        if (vport_of(port) == vport_of(megaflow_.in_port)) return false;
        (by_software ? copies_each_ : goes_on_) = true;
        if (by_software) {
            // One copy for all taps, and one for the host.
            const std::string work = std::to_string(port == tap_ports[1] ? tap_ports[0] : port);
            leg().copies[work] = false;
            note_copy(work);
            to_software_ = to_software_ || port != mirror_port;
        } else {
            leg().goes_out = true;
        }
        return device_takes() && copies_.insert({port, shape_}).second;
    }

    bool device_takes() const {
        const bool from_wire = vport_of(megaflow_.in_port) == wire_vport;
        const bool adds = !shape_.pushed.empty() || shape_.tunnel.has_value();
        return !connectx_5_ || !(from_wire ? adds : shape_.popped > 0);
    }

    const Megaflow& megaflow_;
    const bool connectx_5_;
    const HasMeter& has_meter_;
    const std::map<std::uint32_t, unsigned> meter_uses_;
    unsigned own_tags_ = 0;   ///< at least
    bool may_have_more_ = false;
    PacketShape shape_;
    std::vector<PacketShape> outside_;   ///< of the copies that we are in
    std::set<std::pair<std::uint32_t, PacketShape>> copies_;
    std::set<std::pair<TableId, PacketShape>> tables_;
    std::vector<std::pair<std::string, PacketShape>> parts_;
    std::vector<Leg> legs_;
    bool goes_on_ = false, metered_ = false;
    bool copies_each_ = false, to_software_ = false;   ///< to_software: not only to mirrors
    /// Since the last meter: the copies, and whether one is of a packet that was not as it came.
    std::set<std::string> front_of_copies_;
    bool copies_changed_ = false;
    std::size_t in_front_ = 0;                         ///< meters, and the copies in front of them
};

}  // namespace

std::size_t entries_of(const std::vector<Action>& actions) {
    std::size_t entries = 0;
    for (std::size_t i = 0; i < actions.size(); ++i) {
        if (!is_metered_end(actions, i)) entries += entries_of(actions[i]);   // one with what is behind it
    }
    return entries;
}

bool is_offloadable(const Megaflow& megaflow, unsigned format) {
    return is_offloadable(megaflow, format,
                          [&](std::uint32_t number) { return can_device_have_number(number, format == 0); });
}

bool is_offloadable(const Megaflow& megaflow, unsigned format, const HasMeter& has_meter) {
    const bool connectx_5 = format == 0;
    if (!megaflow.refused_match.empty() || !are_fragments_told(megaflow)) return false;
    if ((connectx_5 && looks_at_icmp(megaflow))) return false;
    if (is_tag(megaflow.eth_type) && vlan_limit_of(megaflow.in_port) > 1) return false;   // a third tag
    if (megaflow.tunnel && !is_tunnel_told(megaflow, connectx_5)) return false;
    if (megaflow.tunnel && !is_counted_right(megaflow, connectx_5)) return false;
    Follower follower(megaflow, connectx_5, has_meter);
    const auto& actions = megaflow.actions;
    for (std::size_t i = 0; i < actions.size(); ++i) {
        const bool at_end = is_metered_end(actions, i);
        const bool can = at_end ? follower.metered_end(actions[i].port, actions[i + 1].software)
                                : follower.step(actions[i]);
        if (!can) return false;
        if (at_end) ++i;
    }
    return entries_of(megaflow.actions) <= most_entries && follower.goes_on() && follower.has_levels();
}

}  // namespace ovsdr::differential
