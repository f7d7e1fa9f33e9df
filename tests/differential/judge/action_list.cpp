#include "tests/differential/judge/action_list.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "tests/differential/judge/metered_copies.hpp"
#include "tests/differential/judge/names.hpp"

namespace ovsdr::differential {

namespace {

constexpr unsigned nothing_percent = 8, plain_percent = 70, back_percent = 2;
constexpr unsigned sets_percent = 95, set_percent = 80, two_sets_percent = 80;
constexpr unsigned pushes_from_wire_percent = 14, pops_from_vports_percent = 60, rarely_percent = 5,
                   two_pops_percent = 92, two_pushes_percent = 55, late_push_percent = 3;
constexpr unsigned tunnel_percent = 68, tunnel_from_wire_percent = 4, another_tunnel_percent = 50,
                   same_tunnel_percent = 26, equal_output_percent = 10, pop_percent = 92,
                   pop_behind_tunnel_percent = 8;
constexpr unsigned copy_percent = 18, length_percent = 40, retagged_percent = 4, one_tag_percent = 2;
constexpr unsigned recirc_percent = 45, last_recirc_percent = 70, recirc_over_ipv6_percent = 2,
                   changed_in_tunnel_percent = 4;
constexpr std::uint16_t some_length = 1400;
constexpr unsigned many_sets = 6;   ///< in one list: with more of them devices have no room for it

class ActionList {
public:
    ActionList(Chance& chance, const Megaflow& megaflow, const NextTable& next_table, Rarity& rarity)
        : chance_(chance), megaflow_(megaflow), next_table_(next_table), rarity_(rarity),
          from_wire_(vport_of(megaflow.in_port) == wire_vport), sets_(happens(chance, sets_percent)) {}

    std::vector<Action> draw() {
        if (tunnel_of(megaflow_) && happens(chance_, pop_percent)) return pop_tunnel();
        if (happens(chance_, nothing_percent)) return {};
        const bool is_tagged_at_first = megaflow_.recirc_id == 0 && !megaflow_.tunnel && is_there(megaflow_.tag);
        if (is_tagged_at_first && happens(chance_, retagged_percent)) return with_and_without_its_tag();
        const bool is_in_tunnel_at_first = megaflow_.recirc_id == 0 && megaflow_.tunnel.has_value();
        if ((is_in_tunnel_at_first || !from_wire_) && happens(chance_, one_tag_percent)) return one_tag();
        const unsigned legs = happens(chance_, 85) ? 1 : 2 + below(chance_, 2);
        for (unsigned leg = 0; leg < legs; ++leg) {
            const bool plain = leg == 0 && (legs > 1 || happens(chance_, plain_percent));
            perhaps_set();
            const bool two_tags = is_there(megaflow_.second) && from_wire_ && happens(chance_, two_pops_percent);
            if (!plain || (leg == 0 && two_tags)) change_tags();
            outputs();
        }
        if (happens(chance_, copy_percent)) wrap_into_copy();
        // Of what comes over IPv6 nobody counts the bytes, where it is not taken out at once.
        const unsigned recircs = megaflow_.tunnel && megaflow_.tunnel->ipv6 ? recirc_over_ipv6_percent : recirc_percent;
        const auto table = happens(chance_, recircs) ? next_table_() : std::nullopt;
        const bool tunnel = happens(chance_, from_wire_ ? tunnel_from_wire_percent : tunnel_percent);
        if (tunnel) push_tunnels(table.has_value());
        if (table) recirculate(*table);
        if (!tunnel && happens(chance_, late_push_percent)) list_.push_back(draw_push(chance_));
        return std::move(list_);
    }

private:
    /// Mostly alone, as OVS has it.
    std::vector<Action> pop_tunnel() {
        const Action pop{.kind = Action::Kind::tunnel_pop, .port = tunnel_port_of(*tunnel_of(megaflow_))};
        const bool tagged = is_there(megaflow_.tag);
        if (tagged && happens(chance_, 90)) list_.push_back({.kind = Action::Kind::pop});
        list_.push_back(pop);
        switch (below(chance_, 12)) {
            case 0: list_.push_back(draw_output(chance_, megaflow_)); break;
            case 1: list_.insert(list_.begin(), draw_output(chance_, megaflow_)); break;
            case 2: {
                const SetAction set = draw_set(chance_, megaflow_.eth_type, 0, rarity_);
                list_.insert(list_.begin(), {.kind = Action::Kind::set, .set = set});
                break;
            }
            case 3:
                if (const auto table = next_table_()) recirculate(*table);
                break;
            default: break;
        }
        return std::move(list_);
    }

    /// One tag goes onto the packet, and in place of the one that it has.
    std::vector<Action> with_and_without_its_tag() {
        const Action push = draw_push(chance_), pop{.kind = Action::Kind::pop};
        list_ = {push, draw_output(chance_, megaflow_), pop, pop, push, draw_output(chance_, megaflow_)};
        return std::move(list_);
    }

    /// Pushed in the rule that takes a tunnel's headers off, or puts them on.
    std::vector<Action> one_tag() {
        list_ = {draw_push(chance_)};
        if (!from_wire_) list_.push_back({.kind = Action::Kind::tunnel_push, .tunnel = draw_tunnel_push(chance_)});
        list_.push_back(draw_output(chance_, megaflow_));
        return std::move(list_);
    }

    void change_tags() {
        pop();
        perhaps_set();
        // A ConnectX-5 pushes nothing onto what comes from the wire, and pops nothing off the rest.
        unsigned pushes = happens(chance_, two_pushes_percent) ? 2 : happens(chance_, 75) ? 1 : 0;
        if (from_wire_ && !happens(chance_, pushes_percent())) pushes = 0;
        for (unsigned i = 0; i < pushes; ++i) list_.push_back(draw_push(chance_));
        perhaps_set();
    }

    void outputs() {
        std::set<std::uint32_t> outputs;
        const unsigned most = happens(chance_, 60) ? 1 : 2 + below(chance_, 2);
        for (unsigned i = 0; i < most; ++i) {
            const Action one = draw_output(chance_, megaflow_);
            if (!outputs.insert(one.port).second) continue;
            list_.push_back(one);
            if (happens(chance_, 30)) perhaps_set();
        }
    }

    unsigned pushes_percent() const { return rarity_.of_connectx_5() ? rarely_percent : pushes_from_wire_percent; }

    unsigned pops_percent() const {
        if (megaflow_.tag == Tag::none) return 8;
        return from_wire_ ? 75 : rarity_.of_connectx_5() ? rarely_percent : pops_from_vports_percent;
    }

    /// Mostly tags that are there.
    void pop() {
        const bool two = is_there(megaflow_.second) || is_tag(megaflow_.eth_type);
        if (megaflow_.tag == Tag::any) return;
        if (!happens(chance_, pops_percent())) return;
        list_.push_back({.kind = Action::Kind::pop});
        if (happens(chance_, two ? 70 : 15)) list_.push_back({.kind = Action::Kind::pop});
        if (happens(chance_, two ? 4 : 0)) list_.push_back({.kind = Action::Kind::pop});
    }

    /// A set action here and there in the lists of some megaflows.
    void perhaps_set() {
        const auto there = std::ranges::count(list_, Action::Kind::set, &Action::kind);
        if (!sets_ || there > many_sets || !happens(chance_, set_percent)) return;
        const bool several = megaflow_.protocol() != 0 && happens(chance_, two_sets_percent);
        const unsigned sets = several ? 2 + below(chance_, 3) : 1;
        for (unsigned i = 0; i < sets; ++i) {
            const SetAction set = draw_set(chance_, megaflow_.eth_type, megaflow_.protocol(), rarity_);
            const bool refused = megaflow_.is_of_fragments() && touches_transport_checksum(set);
            if (!refused || happens(chance_, rarely_percent)) list_.push_back({.kind = Action::Kind::set, .set = set});
        }
    }

    /// Some actions in a row become those of a copy.
    void wrap_into_copy() {
        const auto length = static_cast<std::uint32_t>(list_.size());
        const std::uint32_t begin = below(chance_, length), end = begin + 1 + below(chance_, length - begin);
        wrap(begin, end);
    }

    void wrap(std::size_t begin, std::size_t end) {
        const std::uint16_t size = happens(chance_, length_percent) ? some_length : 0;
        list_.insert(list_.begin() + static_cast<std::ptrdiff_t>(end),
                     {.kind = Action::Kind::copy_end, .length = size});
        list_.insert(list_.begin() + static_cast<std::ptrdiff_t>(begin),
                     {.kind = Action::Kind::copy_begin, .length = size});
    }

    /// One or two; sometimes both with the same headers, mostly to two ports: that is one packet, copied.
    void push_tunnels(bool something_follows) {
        const TunnelPush push = draw_tunnel_push(chance_);
        std::set<std::uint32_t> used;
        if (happens(chance_, same_tunnel_percent)) {
            const std::size_t begin = list_.size();
            push_tunnel(push, true, {});
            for (std::size_t i = begin; i < list_.size() && !happens(chance_, equal_output_percent); ++i) {
                if (list_[i].kind == Action::Kind::output) used.insert(list_[i].port);
            }
        } else if (happens(chance_, another_tunnel_percent)) {
            push_tunnel(draw_tunnel_push(chance_), true, {});
        }
        push_tunnel(push, something_follows, used);
    }

    /// As OVS lists them: the last thing, or in a copy where something follows. Not to the `used` ports, if there are
    /// others.
    void push_tunnel(const TunnelPush& push, bool something_follows, std::set<std::uint32_t> used) {
        const std::size_t begin = list_.size();
        list_.push_back({.kind = Action::Kind::tunnel_push, .tunnel = push});
        if (happens(chance_, 25)) list_.push_back(draw_push(chance_));
        if (happens(chance_, pop_behind_tunnel_percent)) list_.push_back({.kind = Action::Kind::pop});
        const unsigned outputs = happens(chance_, 80) ? 1 : 2;
        for (unsigned i = 0; i < outputs; ++i) {
            Action output = draw_output(chance_, megaflow_);
            for (unsigned tries = 0; tries < port_length && used.contains(output.port); ++tries) {
                output = draw_output(chance_, megaflow_);
            }
            if (i == 0 || !used.contains(output.port)) list_.push_back(output);
            used.insert(output.port);
        }
        if (something_follows || happens(chance_, 40)) wrap(begin, list_.size());
    }

    void recirculate(std::uint32_t table) {
        const Action recirc{.kind = Action::Kind::recirc, .port = table};
        if (megaflow_.tunnel && !happens(chance_, changed_in_tunnel_percent)) {   // no NIC changes it before
            std::erase_if(list_, [](const Action& action) { return action.kind != Action::Kind::output; });
            list_.push_back(recirc);
            return;
        }
        if (happens(chance_, last_recirc_percent)) {
            // Most of the packets that recirculate went nowhere before.
            const auto is_output = [](const Action& action) { return action.kind == Action::Kind::output; };
            if (happens(chance_, 60)) std::erase_if(list_, is_output);
            list_.push_back(recirc);
            return;
        }
        std::size_t at = below(chance_, static_cast<std::uint32_t>(list_.size() + 1));
        for (std::size_t i = 0; i < at; ++i) {   // not behind a tunnel's header
            if (list_[i].kind == Action::Kind::tunnel_push) at = i;
        }
        list_.insert(list_.begin() + static_cast<std::ptrdiff_t>(at), recirc);
    }

    Chance& chance_;
    const Megaflow& megaflow_;
    const NextTable& next_table_;
    Rarity& rarity_;
    const bool from_wire_, sets_;
    std::vector<Action> list_;
};

}  // namespace

std::optional<TunnelKind> tunnel_of(const Megaflow& megaflow) {
    if (!megaflow.is_ip() || megaflow.in_port != uplink || megaflow.recirc_id != 0) return {};
    if (megaflow.is_of_fragments()) return {};
    if (megaflow.protocol() == protocol_gre) return TunnelKind::gre;
    const Pattern& port = megaflow[Feature::tp_dst];
    if (megaflow.protocol() != protocol_udp || port.mask != ones(16)) return {};
    for (const TunnelKind kind : {TunnelKind::vxlan, TunnelKind::geneve}) {
        if (port.value == number(udp_port_of(kind))) return kind;
    }
    return {};
}

std::vector<Action> draw_actions(Chance& chance, const Megaflow& megaflow, const NextTable& next_table,
                                 Rarity& rarity) {
    auto actions = ActionList(chance, megaflow, next_table, rarity).draw();
    add_copies_and_meters(chance, megaflow, rarity.of_connectx_5(), actions);
    return actions;
}

void add_copies_and_meters(Chance& chance, const Megaflow& megaflow, bool connectx_5, std::vector<Action>& actions) {
    add_software_parts(chance, megaflow, !connectx_5, actions);
    add_meters(chance, megaflow, connectx_5, actions);
    add_metered_copies(chance, megaflow, connectx_5, actions);
}

Action draw_output(Chance& chance, const Megaflow& megaflow) {
    while (true) {
        const std::uint32_t port = ports[below(chance, port_length)].odp;
        const bool back = vport_of(port) == vport_of(megaflow.in_port);   // nobody takes packets of a tunnel there
        if (back && !(megaflow.tunnel && happens(chance, back_percent))) continue;
        return {.kind = Action::Kind::output, .port = port};
    }
}

Action draw_push(Chance& chance) {
    // Some are alike, as a switch's are: what rules share shows with these.
    if (happens(chance, 35)) {
        const auto vid = static_cast<std::uint16_t>(1 + below(chance, 3));
        return {.kind = Action::Kind::push, .tpid = customer_tag, .vid = vid};
    }
    return {.kind = Action::Kind::push, .tpid = happens(chance, 75) ? customer_tag : service_tag,
            .vid = static_cast<std::uint16_t>(below(chance, 4096)),
            .pcp = static_cast<std::uint8_t>(below(chance, 8))};
}

}  // namespace ovsdr::differential
