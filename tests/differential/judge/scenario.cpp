#include "tests/differential/judge/scenario.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <stdexcept>
#include <tuple>
#include <type_traits>

#include "tests/differential/judge/action_list.hpp"
#include "tests/differential/judge/binary_file.hpp"
#include "tests/differential/judge/chains.hpp"
#include "tests/differential/judge/expectation.hpp"
#include "tests/differential/judge/frames.hpp"
#include "tests/differential/judge/ovn_shapes.hpp"
#include "tests/differential/judge/shortage.hpp"
#include "tests/differential/judge/trees.hpp"

namespace ovsdr::differential {

std::optional<bool> Service::is_any(const std::vector<Service>& services, const std::vector<std::uint8_t>& frame) {
    if (const auto ports = ports_of(frame)) {
        return std::ranges::any_of(services, [&](const Service& service) {
            return service.protocol == ports->protocol &&
                   (service.port == ports->source || service.port == ports->destination);
        });
    }
    const auto kind = ip_kind_of(frame);
    if (!kind || kind->protocol == protocol_tcp || kind->protocol == protocol_udp) return std::nullopt;
    return false;
}

template <typename P, typename Visit>
    requires std::is_same_v<std::remove_const_t<P>, TestPacket>
void parts_of(P& packet, Visit visit) {
    visit(packet.in_port, packet.bytes, packet.lie);
}

namespace {

constexpr unsigned chains_percent = 22;    ///< of the megaflows lie behind recirculations
constexpr unsigned tunnels_percent = 28;   ///< are tunnel ports'
constexpr std::size_t part_of_twins = 15;  ///< of the latter, one in so many has a twin
constexpr unsigned shapes_percent = 30;    ///< of the trees that can have OVN's shapes
constexpr unsigned changed_percent = 33;   ///< of the packets
constexpr std::size_t phases = 5;          ///< in which packets are counted
constexpr std::size_t part_of_untrue = 40; ///< of the packets, one in so many has a header that is not true
/// Of each wanted name, by the end; more than tests/differential/run asks for, since not all of them take packets.
constexpr std::size_t least_in_nic = 150;
constexpr std::size_t usual_goes_in = 3;   ///< phase in which no megaflow asks for the usual Geneve option
constexpr std::size_t services_in[] = {1, 2};   ///< phases in which the mirror wants services alone
constexpr std::size_t services_of_protocol = 8, near_misses_of_protocol = 6;
/// The odp port by phase, 0: none; not in the first. One that leaves in its phase and comes again (installation.cpp),
/// and one that does not.
constexpr std::uint32_t policed_in[phases + 1] = {0, 0, ports[2].odp, 0, ports[1].odp, 0};
/// Never policed: what software let pass would have filled no bucket of a device.
constexpr std::size_t priming_ports[] = {0, 3};
static_assert(std::ranges::none_of(priming_ports, [](std::size_t port) {
    return std::ranges::count(policed_in, ports[port].odp) != 0;
}));
constexpr unsigned delete_percent = 5, modify_percent = 17, return_percent = 40, aim_at_gone_percent = 20,
                   same_actions_percent = 20, tries_for_like = 200, aim_anywhere_percent = 60,
                   most_steered_percent = 8, tries_to_help = 8;   ///< steered: of the megaflows, in a phase

/// Of what goes to the mirror, how many packets are of each service.
class MirrorListener final : public OvsJudge::Listener {
public:
    void output(std::uint32_t port, std::span<const std::uint8_t> frame, std::size_t source_port_at) override {
        const auto ports = port == mirror_port ? ports_of({frame.begin(), frame.end()}) : std::nullopt;
        if (!ports) return;
        ++times_[{ports->protocol, ports->destination}];
        if (source_port_at == 0) ++times_[{ports->protocol, ports->source}];   // else a NIC chooses another one
    }
    void taken(std::uint32_t, const ovs_judge_packet&) override {}
    void missed(const ovs_judge_packet&, const ovs_judge_seen&) override {}
    [[nodiscard]] const std::map<Service, std::size_t>& times() const { return times_; }

private:
    std::map<Service, std::size_t> times_;
};

void read_packets(const std::string& path, Scenario& scenario) {
    std::ifstream file(path, std::ios::binary);
    Reader from(file);
    from.all(scenario.packets, scenario.left_out);
    for (Phase& phase : scenario.phases) {
        from.all(phase.filling_end, phase.priming_end, phase.packets_end, phase.services);
    }
    if (!file) throw std::runtime_error("cannot read " + path);
}

/// What a packet of this service nearly is of.
Service beside(const Service& service, bool in_port) {
    if (in_port) return {service.protocol, static_cast<std::uint16_t>(service.port ^ 1)};
    return {service.protocol == protocol_tcp ? protocol_udp : protocol_tcp, service.port};
}

/// Of each protocol some that most of these packets are from or to, and some that the next most nearly are.
std::vector<Service> most_frequent(const std::map<Service, std::size_t>& times) {
    std::vector<Service> services;
    for (const std::uint8_t protocol : {protocol_tcp, protocol_udp}) {
        std::vector<std::pair<std::size_t, Service>> sorted;
        for (const auto& [service, count] : times) {
            if (service.protocol == protocol) sorted.emplace_back(count, service);
        }
        std::ranges::sort(sorted, std::greater<>());
        for (const auto& one : sorted | std::views::take(services_of_protocol)) services.push_back(one.second);
        bool in_port = false;
        for (const auto& one :
             sorted | std::views::drop(services_of_protocol) | std::views::take(near_misses_of_protocol)) {
            services.push_back(beside(one.second, in_port = !in_port));
        }
    }
    return services;
}

class ScenarioMaker {
public:
    ScenarioMaker(const Draw& draw, const std::string& packets)
        : draw_(draw), given_(packets), chance_(draw.seed), packet_chance_(~draw.seed),
          shapes_(read_shapes(draw.shapes)), rarity_(chance_, draw.connectx_5),
          chains_(chance_, rarity_, shapes_, scenario_, ovs_) {
        if (!draw.wanted.empty()) shortage_.emplace(draw.wanted, draw.connectx_5);
    }

    Scenario make() {
        add_markers();
        add_priming();
        const std::size_t behind = draw_.megaflows * chains_percent / 100;
        const std::size_t in_tunnels = draw_.megaflows * tunnels_percent / 100;
        add_trees(draw_.megaflows - behind - in_tunnels);
        chains_.grow_tunnels(in_tunnels);
        chains_.grow(behind);
        add_twins();
        first_phase();
        const std::size_t untrue = draw_.packets / part_of_untrue, counted = draw_.packets - untrue;
        add_packets(counted / phases);
        for (std::size_t phase = 1; phase < phases; ++phase) {
            next_phase();
            add_packets(counted * (phase + 1) / phases);
        }
        last_phase();
        add_packets(draw_.packets, true);
        if (!given_.empty()) read_packets(given_, scenario_);
        return std::move(scenario_);
    }

private:
    void add(Megaflow megaflow) {
        megaflow.ufid = scenario_.ufids++;
        ovs_.add(megaflow);
        ovs_.put(static_cast<std::uint32_t>(scenario_.versions.size()));
        scenario_.versions.push_back(std::move(megaflow));
    }

    void add_markers() {
        for (std::size_t i = 0; i < port_length; ++i) {
            Megaflow marker{.in_port = ports[i].odp, .eth_type = type_marker};
            marker.actions = {{.kind = Action::Kind::output, .port = ports[(i + 1) % port_length].odp}};
            add(std::move(marker));
        }
    }

    /// A meter's packets come from one port, in their order.
    void add_priming() {
        for (std::uint32_t number = 1; number < meters_end; ++number) {
            const std::size_t port = priming_ports[number % std::size(priming_ports)];
            Megaflow megaflow{.in_port = ports[port].odp, .eth_type = type_priming};
            megaflow[Feature::eth_dst] = {differential::number(number), ones(48)};
            megaflow.actions = {{.kind = Action::Kind::meter, .port = number},
                                {.kind = Action::Kind::output, .port = ports[(port + 1) % port_length].odp}};
            add(std::move(megaflow));
        }
    }

    void add_trees(std::size_t length) {
        const NextTable next = [&] { return chains_.next_table({}); };
        const auto actions = [&](Megaflow megaflow) {
            megaflow.actions = draw_actions(chance_, megaflow, next, rarity_);
            rarity_.add(megaflow);
            return megaflow.actions;
        };
        const auto shaped = [&](const Megaflow& root, std::size_t share) {
            const bool has_shapes = root.is_ip() && (draw_.connectx_5 || !is_any_icmp(root));
            const bool wanted = has_shapes && happens(chance_, shapes_percent);
            auto grown = wanted ? grow_shapes(chance_, shapes_, root, share, next) : std::vector<Megaflow>();
            for (Megaflow& megaflow : grown) {
                add_copies_and_meters(chance_, megaflow, draw_.connectx_5, megaflow.actions);
                rarity_.add(megaflow);
            }
            return grown;
        };
        for (Megaflow& megaflow : grow_trees(chance_, rarity_, length, actions, shaped)) add(std::move(megaflow));
    }

    /// Of megaflows of tunnels: the same but for what no device sees. No packet is a twin's.
    void add_twins() {
        const auto all = static_cast<std::uint32_t>(scenario_.versions.size());
        for (std::uint32_t i = 0; i < all; ++i) {
            const Megaflow& megaflow = scenario_.versions[i];
            if (!megaflow.tunnel || megaflow.tunnel->kind == TunnelKind::gre) continue;
            if (below(chance_, part_of_twins) != 0) continue;
            Megaflow twin = megaflow;
            twin.tunnel->checksum = !twin.tunnel->checksum;
            twin.twin_of = megaflow.ufid;
            twins_[megaflow.ufid] = scenario_.ufids;
            chains_.replace(i, static_cast<std::uint32_t>(scenario_.versions.size()));
            add(std::move(twin));
        }
    }

    /// All come, in any order: children before parents. But for those with another Geneve option, which would keep the
    /// usual one out: they come in the second phase, and must wait until those that have it go.
    void first_phase() {
        Phase phase;
        for (std::uint32_t i = port_length; i < scenario_.versions.size(); ++i) {
            if (option_of(scenario_.versions[i]) != GeneveOptions::other) {
                phase.changes.push_back({i, true});
                continue;
            }
            ovs_.remove(i);
            gone_.insert(scenario_.versions[i].ufid);
            latest_[scenario_.versions[i].ufid] = i;
        }
        std::ranges::shuffle(phase.changes, chance_);
        for (std::uint32_t i = 0; i < port_length; ++i) phase.changes.insert(phase.changes.begin(), {i, true});
        change_meters(phase);
        for (const Change& change : phase.changes) latest_[scenario_.versions[change.version].ufid] = change.version;
        for (std::size_t i = port_length; i < scenario_.versions.size(); ++i) {
            const Megaflow& megaflow = scenario_.versions[i];
            for (std::size_t feature = 0; feature < feature_length; ++feature) {
                if (megaflow.patterns[feature].mask == PatternBytes{}) continue;
                const auto transport = is_transport(static_cast<Feature>(feature)) ? megaflow.protocol() : 0;
                looking_at_[{megaflow.eth_type, transport, feature}].push_back(megaflow.ufid);
            }
        }
        scenario_.phases.push_back(std::move(phase));
    }

    void next_phase() {
        Phase phase;
        for (std::uint32_t ufid = port_length; ufid < scenario_.ufids; ++ufid) {
            const std::uint32_t version = latest_.at(ufid);
            if (is_twin(ufid) || Scenario::is_of_priming(ufid)) continue;
            if (change_option(ufid, phase)) continue;
            if (gone_.contains(ufid)) {
                if (happens(chance_, return_percent)) change_all_of(ufid, true, phase);
            } else if (happens(chance_, delete_percent)) {
                change_all_of(ufid, false, phase);
            } else if (!twins_.contains(ufid) && happens(chance_, modify_percent)) {
                phase.changes.push_back({modified(version), true});
            }
        }
        if (shortage_) help_shortage(phase);
        std::ranges::shuffle(phase.changes, chance_);
        begin(std::move(phase));
    }

    /// Modifies some that are in the NIC and that the phase does not change, as far as a name is short.
    void help_shortage(Phase& phase) {
        const auto installed = forecast(scenario_, format());
        std::vector<std::uint8_t> ever(scenario_.versions.size());
        for (const auto& now : installed) {
            for (std::size_t i = 0; i < now.size(); ++i) ever[i] |= now[i];
        }
        const std::size_t goal = least_in_nic * (scenario_.phases.size() + 1) / phases;   // the rest comes by itself
        shortage_->recount(scenario_.versions, ever, goal);
        std::set<std::uint32_t> changed;
        for (const Change& change : phase.changes) changed.insert(scenario_.versions[change.version].ufid);
        std::vector<std::uint32_t> possible;
        for (const auto& [ufid, version] : latest_) {
            const bool in_nic = version < installed.back().size() && installed.back()[version] != 0;
            const bool is_drawn = ufid >= port_length && !Scenario::is_of_priming(ufid);
            if (is_drawn && in_nic && !changed.contains(ufid) && !twins_.contains(ufid) && !is_twin(ufid)) {
                possible.push_back(version);
            }
        }
        std::ranges::shuffle(possible, chance_);
        const std::size_t most = scenario_.steered + draw_.megaflows * most_steered_percent / 100;
        for (const std::uint32_t version : possible) {
            if (scenario_.steered >= most || !shortage_->is_there_any()) return;
            auto helping = helping_version_of(version);
            if (!helping) continue;
            shortage_->add(*helping);
            ++scenario_.steered;
            phase.changes.push_back({add_version(version, std::move(*helping)), true});
        }
    }

    /// With other actions. Not what would cut others off that are behind it.
    [[nodiscard]] std::optional<Megaflow> helping_version_of(std::uint32_t old) {
        const auto leads_on = [](const Action& action) {
            return action.kind == Action::Kind::recirc || action.kind == Action::Kind::tunnel_pop;
        };
        Megaflow megaflow = scenario_.versions[old];
        const bool led_on = std::ranges::any_of(megaflow.actions, leads_on);
        const NextTable next = [&] { return chains_.next_table(megaflow.table()); };
        for (unsigned tries = 0; tries < tries_to_help; ++tries) {
            megaflow.actions = draw_actions(chance_, megaflow, next, rarity_);
            if (led_on && std::ranges::none_of(megaflow.actions, leads_on)) continue;
            if (is_offloadable(megaflow, format()) && shortage_->has_use_for(megaflow)) return megaflow;
        }
        return std::nullopt;
    }

    /// Steering format that the draw is for: the formats behind it take the same.
    [[nodiscard]] unsigned format() const { return draw_.connectx_5 ? 0 : 1; }

    /// Whether this is a phase in which all those with an option come or go.
    bool change_option(std::uint32_t ufid, Phase& phase) {
        const auto option = option_of(scenario_.versions[latest_.at(ufid)]);
        if (!option) return false;
        const std::size_t number = scenario_.phases.size();
        const bool usual = option == GeneveOptions::usual;
        if (number != 1 && number != usual_goes_in && number != usual_goes_in + 1) return false;
        const bool there = usual ? number != usual_goes_in : number <= usual_goes_in;
        if (gone_.contains(ufid) == there) change_all_of(ufid, there, phase, /*stay_percent=*/0);
        return true;
    }

    [[nodiscard]] bool is_twin(std::uint32_t ufid) const {
        return scenario_.versions[latest_.at(ufid)].twin_of.has_value();
    }

    /// A twin is not there without the other one, whose packets it would take; of the two it goes more often:
    /// `stay_percent` of the others stay when it goes.
    void change_all_of(std::uint32_t ufid, bool put, Phase& phase, unsigned stay_percent = 50) {
        const auto twin = twins_.find(ufid);
        const bool alone =
            twin != twins_.end() && !put && !gone_.contains(twin->second) && happens(chance_, stay_percent);
        if (!alone) phase.changes.push_back({latest_.at(ufid), put});
        if (twin != twins_.end() && gone_.contains(twin->second) == put) {
            phase.changes.push_back({latest_.at(twin->second), put});
        }
    }

    /// Other actions.
    std::uint32_t modified(std::uint32_t old) {
        Megaflow megaflow = scenario_.versions[old];
        const NextTable next = [&] { return chains_.next_table(megaflow.table()); };
        const Megaflow* like = happens(chance_, same_actions_percent) ? find_like(megaflow) : nullptr;
        megaflow.actions = like != nullptr ? like->actions : draw_actions(chance_, megaflow, next, rarity_);
        return add_version(old, std::move(megaflow));
    }

    std::uint32_t add_version(std::uint32_t old, Megaflow megaflow) {
        rarity_.add(megaflow);
        const auto version = static_cast<std::uint32_t>(scenario_.versions.size());
        ovs_.add(megaflow);
        scenario_.versions.push_back(std::move(megaflow));
        chains_.replace(old, version);
        return version;
    }

    /// One of another port or table whose actions it can have as they are: what rules share shows with these.
    [[nodiscard]] const Megaflow* find_like(const Megaflow& megaflow) {
        const auto is_possible = [&](const Action& action) {
            if (action.kind == Action::Kind::recirc || action.kind == Action::Kind::tunnel_pop) return false;
            return action.kind != Action::Kind::output || vport_of(action.port) != vport_of(megaflow.in_port);
        };
        for (unsigned tries = 0; tries < tries_for_like; ++tries) {
            const auto at = below(chance_, static_cast<std::uint32_t>(scenario_.versions.size()));
            const Megaflow& other = scenario_.versions[at];
            const bool elsewhere = other.in_port != megaflow.in_port || other.recirc_id != megaflow.recirc_id;
            const bool alike = other.eth_type == megaflow.eth_type && other.tag == megaflow.tag &&
                               other.protocol() == megaflow.protocol();
            if (!elsewhere || !alike || other.actions.size() < 2) continue;
            if (std::ranges::all_of(other.actions, is_possible)) return &other;
        }
        return nullptr;
    }

    /// All go, which ends their counts, and come again, but for those with another Geneve option, for packets that only
    /// a card can tell of.
    void last_phase() {
        Phase phase{.counts = false};
        std::vector<Change> puts;
        for (const auto& [ufid, version] : latest_) {
            if (!gone_.contains(ufid)) phase.changes.push_back({version, false});
            // Who came first would have the device's option.
            if (option_of(scenario_.versions[version]) != GeneveOptions::other) puts.push_back({version, true});
        }
        std::ranges::shuffle(puts, chance_);
        phase.changes.insert(phase.changes.end(), puts.begin(), puts.end());
        begin(std::move(phase));
    }

    void begin(Phase phase) {
        phase.policed = policed_in[scenario_.phases.size()];
        change_meters(phase);
        for (const auto& [version, put] : phase.changes) {
            const std::uint32_t ufid = scenario_.versions[version].ufid;
            if (put) {
                ovs_.put(version);
                gone_.erase(ufid);
                latest_[ufid] = version;
            } else {
                ovs_.remove(version);
                gone_.insert(ufid);
            }
        }
        scenario_.phases.push_back(std::move(phase));
    }

    void change_meters(Phase& phase) {
        phase.meters = draw_meter_changes(chance_, meters_, scenario_.phases.empty());
        for (const auto& [number, spec] : phase.meters) meters_[number] = spec;
    }

    /// The ports and ethertypes of megaflows that write what a transport checksum covers.
    using Touched = std::set<std::pair<std::uint32_t, std::uint16_t>>;
    [[nodiscard]] Touched touched_checksums() const {
        Touched touched;
        for (const Megaflow& megaflow : scenario_.versions) {
            const bool touches = std::ranges::any_of(megaflow.actions, [](const Action& action) {
                return action.kind == Action::Kind::set && touches_transport_checksum(action.set);
            });
            if (touches) touched.emplace(megaflow.in_port, megaflow.eth_type);
        }
        return touched;
    }

    /// Any megaflow, or any that looks at some feature: rare ones get their part of the packets.
    [[nodiscard]] std::uint32_t aim() {
        if (happens(packet_chance_, aim_anywhere_percent)) {
            return static_cast<std::uint32_t>(port_length) +
                   below(packet_chance_, scenario_.ufids - static_cast<std::uint32_t>(port_length));
        }
        const auto at = below(packet_chance_, static_cast<std::uint32_t>(looking_at_.size()));
        const auto& ufids = std::next(looking_at_.begin(), at)->second;
        return ufids[below(packet_chance_, static_cast<std::uint32_t>(ufids.size()))];
    }

    static bool has_no_answer(const std::vector<std::uint8_t>& frame, const Recipe& recipe, const Touched& touched) {
        if (differential::has_no_answer(frame) && touched.contains({recipe.in_port, recipe.eth_type})) return true;
        if (recipe.inner.empty()) return false;
        const std::uint16_t eth_type = recipe.inner.front().eth_type;
        return differential::has_no_answer(inside_of(frame)) &&
               touched.contains({tunnel_port_of(recipe.tunnel.kind), eth_type});
    }

    /// One for each exhausted meter, so that its bucket is filled; then the others.
    void add_priming_packets() {
        Phase& phase = scenario_.phases.back();
        const auto add_packets_of = [&](std::uint32_t number, std::size_t length) {
            const Megaflow& megaflow = scenario_.versions[port_length + number - 1];
            for (std::size_t i = 0; i < length; ++i) {
                scenario_.packets.push_back(
                    {megaflow.in_port, priming_frame(number, static_cast<std::uint32_t>(scenario_.packets.size()))});
            }
        };
        for (const bool fills : {true, false}) {
            for (std::uint32_t number = 1; number < meters_end; ++number) {
                const std::size_t length = meters_[number] ? priming_length(*meters_[number]) : 0;
                if (length != 0) add_packets_of(number, fills ? 1 : length - 1);
            }
            (fills ? phase.filling_end : phase.priming_end) = scenario_.packets.size();
        }
    }

    /// Until there are so many in all. `untrue`: what some of their headers say is not true.
    void add_packets(std::size_t length, bool untrue = false) {
        if (!given_.empty()) return;
        add_priming_packets();
        const auto touched = touched_checksums();
        auto& packets = scenario_.packets;
        MirrorListener mirror;
        while (packets.size() < length) {
            const std::uint32_t ufid = aim();
            if (Scenario::is_of_priming(ufid)) continue;
            if (gone_.contains(ufid) && !happens(packet_chance_, aim_at_gone_percent)) continue;
            const std::uint32_t version = latest_.at(ufid);
            Recipe recipe = chains_.aimed_at_version(version, packet_chance_);
            if (untrue) {
                lie(recipe, packet_chance_);
            } else if (happens(packet_chance_, changed_percent)) {
                change(recipe, scenario_.versions[version], packet_chance_);
            }
            auto frame = frame_of(recipe, static_cast<std::uint32_t>(packets.size()), packet_chance_);
            // By chance: what is no tunnel's header the engine would not parse as one.
            if (recipe.in_port == uplink && recipe.inner.empty() && is_of_tunnel(frame)) continue;
            if (has_no_answer(frame, recipe, touched)) {
                scenario_.left_out.add(NamedDifference::no_checksum_answer);
            } else if (!ovs_.forward({recipe.in_port, 0, frame.data(), frame.size(), false}, mirror)) {
                scenario_.left_out.add(NamedDifference::recirculates_too_often);
            } else {
                packets.push_back({recipe.in_port, std::move(frame), recipe.tunnel_lie});
            }
        }
        Phase& phase = scenario_.phases.back();
        phase.packets_end = packets.size();
        const std::size_t number = scenario_.phases.size() - 1;
        if (std::ranges::count(services_in, number) != 0) phase.services = most_frequent(mirror.times());
    }

    const Draw& draw_;
    const std::string& given_;     ///< file of packets
    Chance chance_, packet_chance_;   ///< megaflows do not depend on how packets are drawn
    const std::vector<Shape> shapes_;
    OvsJudge ovs_;
    Scenario scenario_;
    Rarity rarity_;
    Chains chains_;
    std::optional<Shortage> shortage_;
    MeterSpecs meters_;
    std::map<std::uint32_t, std::uint32_t> latest_;   ///< version, by ufid
    std::set<std::uint32_t> gone_;                    ///< ufids
    std::map<std::uint32_t, std::uint32_t> twins_;    ///< ufids, by the other's
    /// By ethertype, by protocol if the feature is the protocol's, by feature: ufids.
    std::map<std::tuple<std::uint16_t, int, std::size_t>, std::vector<std::uint32_t>> looking_at_;
};

}  // namespace

Scenario make_scenario(const Draw& draw, const std::string& packets) { return ScenarioMaker(draw, packets).make(); }

void write_packets(const Scenario& scenario, const std::string& path) {
    std::ofstream file(path, std::ios::binary);
    Writer to(file);
    to.all(scenario.packets, scenario.left_out);
    for (const Phase& phase : scenario.phases) {
        to.all(phase.filling_end, phase.priming_end, phase.packets_end, phase.services);
    }
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace ovsdr::differential
