#include "tests/differential/judge/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "tests/differential/judge/expectation.hpp"
#include "tests/differential/judge/frames.hpp"
#include "tests/differential/judge/sampled.hpp"

namespace ovsdr::differential {

namespace {

constexpr std::size_t most_lines = 20;
using enum NamedDifference;
using Bytes = std::vector<std::uint8_t>;

class Differences {
public:
    void add(std::string line) {
        if (lines_.size() < most_lines) {
            lines_.push_back(std::move(line));
        } else {
            ++more_;
        }
    }
    [[nodiscard]] std::vector<std::string> take() {
        if (more_ != 0) lines_.push_back(fmt::format("and {} more", more_));
        return std::move(lines_);
    }

private:
    std::vector<std::string> lines_;
    std::size_t more_ = 0;
};

std::string text_of(TableId table) {
    const std::string tunnel = table.tunnel_port == 0 ? "" : fmt::format(" of tunnel port {}", table.tunnel_port);
    return fmt::format("{:#x}{}", table.recirc_id, tunnel);
}

std::string text_of(const Told& told) {
    return fmt::format("userspace, one of {}, in_port {}, cookie {:02x}", told.one_of, told.in_port,
                       fmt::join(told.cookie, ""));
}

std::string text_of(const std::vector<Copy>& copies) {
    std::string text;
    for (const Copy& copy : copies) {
        const std::string where = copy.port == Copy::upcall      ? "upcall at " + text_of(copy.table)
                                  : copy.port == Copy::userspace ? text_of(copy.told)
                                                                 : fmt::format("{}", copy.port);
        text += fmt::format("\n      {}{}: {:02x}", where, copy.in_software ? " by software" : "",
                            fmt::join(copy.bytes, ""));
    }
    return text.empty() ? " nowhere" : text;
}

std::string text_of(const std::vector<Up>& ups) {
    std::string text;
    for (const Up& up : ups) {
        text += fmt::format("\n      up from {}: {:02x}", text_of(up.table), fmt::join(up.bytes, ""));
    }
    return text;
}

std::string text_of(const Counts& counts) {
    return fmt::format("{} packets, {} bytes in the NIC, {} packets, {} bytes in software", counts.packets,
                       counts.bytes, counts.software_packets, counts.software_bytes);
}

std::string text_of(const MeterCounts& counts) {
    return fmt::format("{} packets, {} bytes, of which {} and {} were dropped", counts.packets, counts.bytes,
                       counts.dropped_packets, counts.dropped_bytes);
}

/// What a NIC counted, and software after it, as OVS alone would.
Counts sum_of(const Counts& counts) {
    return {.software_packets = counts.packets + counts.software_packets,
            .software_bytes = counts.bytes + counts.software_bytes};
}

/// Walks through a scenario's packets phase by phase.
class Comparer {
public:
    Comparer(const Scenario& scenario, const Verdict& one, const Verdict& ovs)
        : scenario_(scenario), one_(one), ovs_(ovs) {
        for (std::size_t i = 0; i < scenario.versions.size(); ++i) {
            versions_of_[scenario.versions[i].match_number()].push_back(i);
        }
    }

    Comparison with_ovs(unsigned format) {
        Expectations expectations(scenario_, format);
        sees_headers_ = format != 0;
        for_each_phase([&](std::size_t phase) {
            expectations.apply(scenario_.phases[phase]);
            compare_installed(expectations.all(one_.installed[phase]), phase);
            note_meters(scenario_.phases[phase], format == 0);
        }, [&](std::size_t packet) {
            const std::string fault = fault_of(packet);
            if (!fault.empty()) tell(packet, fault, ovs_, "OVS");
        });
        const auto nic = of_matches(one_), ovs = of_matches(ovs_);
        for (std::size_t i = port_length; i < nic.size(); ++i) {   // not the markers'
            if (sum_of(nic[i]) != ovs[i]) tell_counts(i, nic[i], ovs[i]);
        }
        for (std::string& line : samplers_.faults()) differences_.add(std::move(line));
        compare_meters(ovs_);
        compare_filtered();
        compare_order(ovs_);
        return {differences_.take(), excused_};
    }

    Comparison with_nic(const Verdict& other) {
        for_each_phase([](std::size_t) {}, [&](std::size_t packet) {
            const bool same = without_samples(one_.copies[packet]) == without_samples(other.copies[packet]);
            if (same && one_.ups[packet] == other.ups[packet]) return;
            if (are_installed_alike(packet, other) && !excuse_untrue(packet)) tell(packet, "differs", other, "other");
        });
        const auto mine = of_matches(one_), others = of_matches(other);
        for (std::size_t i = port_length; i < mine.size(); ++i) {
            const Counts &left = mine[i], &right = others[i];
            const bool equal = is_waiting_alike(other) ? left == right : sum_of(left) == sum_of(right);
            if (!equal) tell_counts(i, left, right);
        }
        compare_meters(other);
        compare_order(other);
        return {differences_.take(), excused_};
    }

private:
    template <typename Begin, typename Each>
    void for_each_phase(Begin begin, Each each) {
        std::size_t packet = 0;
        for (phase_ = 0; phase_ < scenario_.phases.size(); ++phase_) {
            begin(phase_);
            for (; packet < scenario_.phases[phase_].packets_end; ++packet) each(packet);
        }
    }

    void compare_installed(const std::vector<Expectation>& expected, std::size_t phase) {
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const bool installed = one_.installed[phase][i] != 0;
            const bool right = expected[i] == Expectation::either ||
                               installed == (expected[i] == Expectation::installed);
            if (right) continue;
            differences_.add(fmt::format("megaflow {} is {}in the NIC in phase {}: {}", i, installed ? "" : "not ",
                                         phase, differential::text_of(scenario_.versions[i])));
        }
    }

    /// OVS's buckets have had that packet's bytes more (ovs_meters.h).
    void note_meters(const Phase& phase, bool connectx_5) {
        for (const auto& [number, spec] : phase.meters) {
            if (spec && bytes_more_for_software(*spec, connectx_5) != 0) excused_.add(meter_overshoot);
        }
    }

    void compare_meters(const Verdict& other) {
        for (std::size_t phase = 0; phase < std::max(one_.meters.size(), other.meters.size()); ++phase) {
            for (std::size_t number = 1; number < meters_end; ++number) {
                const MeterCounts left = one_.meters.at(phase).at(number), right = other.meters.at(phase).at(number);
                if (left == right) continue;
                differences_.add(fmt::format("meter {} in phase {}:\n    {}\n    {}", number, phase, text_of(left),
                                             text_of(right)));
            }
        }
    }

    /// Each copy that OVS makes for the mirror and that is nowhere has been dropped because of its service.
    void compare_filtered() {
        for (std::size_t phase = 0; phase < one_.filtered.size(); ++phase) {
            const std::uint64_t missing = filtered_[phase];
            if (!scenario_.phases[phase].counts || missing == one_.filtered[phase]) continue;
            differences_.add(fmt::format("{} copies for the mirror are missing in phase {}, the NIC says it dropped {}",
                                         missing, phase, one_.filtered[phase]));
        }
    }

    /// Empty: the packet is treated as OVS treats it.
    std::string fault_of(std::size_t packet) {
        const bool ends = ends_connection(scenario_.packets[packet].bytes);
        const auto& ups = one_.ups[packet];
        if (!are_same_copies(packet)) return excuse_lie(packet) ? "" : "differs";
        if (scenario_.packets[packet].in_port == scenario_.phases[phase_].policed && !is_all_in_software(packet)) {
            return "is a policed port's, and did not go up as it was";
        }
        if (ends && (ups.size() != 1 || ups[0].table != TableId{})) {
            return excuse_lie(packet) ? "" : "ends a connection, and did not go up";
        }
        if (has_passed_end(packet)) {
            return excuse_lie(packet) ? "" : "ends a connection in a tunnel, and did not go up";
        }
        for (const Up& up : ups) {
            if (may_come_up(packet, up)) continue;
            const auto inside = up.table.tunnel_port == 0 ? Bytes() : inside_of(up.bytes);
            if (up.table.recirc_id == 0 && ends_connection(inside.empty() ? up.bytes : inside)) {
                excused_.add(connection_end);
            } else if (is_dropped_in_pop(packet, up)) {
                const bool holds_no_frame = scenario_.packets[packet].lie == TunnelLie::not_ethernet;
                if (sees_headers_ && holds_no_frame) return "has no frame inside, and came out of its tunnel";
                excused_.add(dropped_in_pop);
            } else if (is_popped_in_software(packet, up)) {
                excused_.add(gre_checksum);
            } else if (may_go_up(up.bytes) || (!inside.empty() && may_go_up(inside))) {
                excused_.add(broken_header);
            } else if (!(up.table == TableId{} ? excuse_untrue(packet) : excuse_lie(packet))) {
                return "went up";
            }
        }
        return "";
    }

    [[nodiscard]] bool is_all_in_software(std::size_t packet) const {
        const auto& ups = one_.ups[packet];
        return ups.size() == 1 && ups[0] == Up{{}, scenario_.packets[packet].bytes} &&
               std::ranges::all_of(one_.copies[packet], &Copy::in_software);
    }

    /// OVS looked it up in a tunnel, and the NIC went on there although what is inside ends a connection. Software, to
    /// which a packet came up in front of its tunnel, may go on.
    [[nodiscard]] bool has_passed_end(std::size_t packet) const {
        const auto is_by_then = [](const TableId& table) { return table.recirc_id == 0 || table.tunnel_port == 0; };
        const auto inside = inside_of(scenario_.packets[packet].bytes);
        if (inside.empty() || !ends_connection(inside)) return false;
        const auto in_tunnel = [](const Lookup& lookup) { return lookup.table.tunnel_port != 0; };
        return std::ranges::any_of(ovs_.lookups[packet], in_tunnel) &&
               std::ranges::none_of(one_.ups[packet], is_by_then, &Up::table);
    }

    [[nodiscard]] bool is_dropped_in_pop(std::size_t packet, const Up& up) const {
        return up.table.recirc_id == 0 && up.table.tunnel_port != 0 &&
               std::ranges::count(ovs_.lookups[packet], up.table, &Lookup::table) == 0;
    }

    /// The megaflow that takes it out of its tunnel does not do so in the NIC.
    [[nodiscard]] bool is_popped_in_software(std::size_t packet, const Up& up) const {
        const auto pops = [](const Action& action) {
            return action.kind == Action::Kind::tunnel_pop && action.port == tunnel_port_of(TunnelKind::gre);
        };
        return has_gre_checksum(up.bytes) && std::ranges::any_of(ovs_.lookups[packet], [&](const Lookup& lookup) {
            return lookup.table == up.table && lookup.version >= 0 &&
                   std::ranges::any_of(scenario_.versions[static_cast<std::size_t>(lookup.version)].actions, pops);
        });
    }

    /// But for samples that a NIC's sampler has left out.
    bool are_same_copies(std::size_t packet) {
        const auto &nic = one_.copies[packet], &ovs = ovs_.copies[packet];
        if (nic.size() > ovs.size()) return false;
        std::vector<bool> used(ovs.size());
        for (const Copy& copy : nic) {
            std::size_t i = 0;
            while (i < ovs.size() && (used[i] || !is_same(copy, ovs[i]))) ++i;
            if (i == ovs.size()) return false;
            used[i] = true;
            if (copy.bytes != ovs[i].bytes) excused_.add(tunnel_source_port);
        }
        bool same = true;
        for (std::size_t i = 0; i < ovs.size(); ++i) {
            const bool by_chance = is_sampled_in_nic(packet, ovs[i]);
            const bool is_filtered = !used[i] && !by_chance && is_unwanted(ovs[i]);
            if (is_filtered) ++filtered_[phase_];
            if (!used[i] && !by_chance && !is_filtered) same = false;
            const bool all_in_nic = one_.ups[packet].empty() && scenario_.phases[phase_].counts;
            if (by_chance && all_in_nic) samplers_.add(ovs[i].told.one_of, used[i]);
        }
        return same;
    }

    /// By a megaflow in the NIC, where its packet may have got: software takes all (ovs_actions.h).
    [[nodiscard]] bool is_sampled_in_nic(std::size_t packet, const Copy& copy) const {
        if (copy.port != Copy::userspace || !copy.told.is_sampled()) return false;
        if (one_.ups[packet].empty()) return true;
        const auto version = static_cast<std::size_t>(copy.told.version);
        const std::uint32_t match = scenario_.versions[version].match_number();
        return std::ranges::any_of(versions_of_.at(match), [&](std::size_t twin) {
            return one_.installed[phase_][twin] != 0;
        });
    }

    /// Of none of the services that the mirror wants, as far as a copy that OVS may have cut says it.
    [[nodiscard]] bool is_unwanted(const Copy& copy) const {
        const auto& services = scenario_.phases[phase_].services;
        return copy.port == mirror_port && !services.empty() && Service::is_any(services, copy.bytes) != true;
    }

    [[nodiscard]] static bool is_same(const Copy& nic, const Copy& ovs) {
        const bool place = nic.port == ovs.port && nic.table == ovs.table && nic.told.says(ovs.told);
        return place && (nic.bytes == ovs.bytes || differ_in_source_port(nic.bytes, ovs.bytes, ovs.source_port_at));
    }

    [[nodiscard]] static std::vector<Copy> without_samples(std::vector<Copy> copies) {
        std::erase_if(copies, [](const Copy& copy) { return copy.told.is_sampled(); });
        return copies;
    }

    /// From a table where no megaflow in the NIC takes it.
    [[nodiscard]] bool may_come_up(std::size_t packet, const Up& up) const {
        return std::ranges::any_of(ovs_.lookups[packet], [&](const Lookup& lookup) {
            if (lookup.table != up.table) return false;
            return lookup.version < 0 || one_.installed[phase_][static_cast<std::size_t>(lookup.version)] == 0;
        });
    }

    /// Of packets that are not what their headers say.
    bool excuse_untrue(std::size_t packet) {
        if (scenario_.phases[phase_].counts) return false;
        const NamedDifference difference = untrue_part(scenario_.packets[packet]);
        if (difference == count_of_differences) return false;
        excused_.add(difference);
        return true;
    }

    /// The same, but a NIC is not excused that takes out of a tunnel what is no Ethernet frame. One that says nothing
    /// of the packet, as the entries do, has not been asked.
    bool excuse_lie(std::size_t packet) {
        const bool asked = !one_.copies[packet].empty() || !one_.ups[packet].empty();
        const bool holds_no_frame = asked && scenario_.packets[packet].lie == TunnelLie::not_ethernet;
        return !holds_no_frame && excuse_untrue(packet);
    }

    /// Those that are stand in the last phase.
    [[nodiscard]] bool is_untrue(std::size_t packet) const {
        const auto& phases = scenario_.phases;
        const bool counted = phases.size() < 2 || packet < phases[phases.size() - 2].packets_end;
        return !counted && untrue_part(scenario_.packets[packet]) != count_of_differences;
    }

    static NamedDifference untrue_part(const TestPacket& packet) {
        if (packet.lie != TunnelLie::none) return tunnel_headers;
        const NamedDifference outside = untrue_header(packet.bytes);
        return outside == count_of_differences ? untrue_header(inside_of(packet.bytes)) : outside;
    }

    /// By match: of twins a device has the one or the other.
    [[nodiscard]] std::vector<Counts> of_matches(const Verdict& verdict) const {
        std::vector<Counts> sums(verdict.counts.size());
        std::vector<std::uint32_t> matches(verdict.counts.size());
        for (const Megaflow& megaflow : scenario_.versions) matches[megaflow.ufid] = megaflow.match_number();
        for (std::size_t i = 0; i < sums.size(); ++i) sums[matches[i]] += verdict.counts[i];
        return sums;
    }

    [[nodiscard]] bool are_installed_alike(std::size_t packet, const Verdict& other) const {
        return std::ranges::all_of(ovs_.lookups[packet], [&](const Lookup& lookup) {
            const auto version = static_cast<std::size_t>(std::max(lookup.version, 0));
            const auto& twins = versions_of_.at(scenario_.versions[version].match_number());   // and itself
            return std::ranges::all_of(twins, [&](std::size_t twin) {
                return one_.installed[phase_][twin] == other.installed[phase_][twin];
            });
        });
    }

    /// No megaflow waits for a table in one of the NICs and not in the other.
    [[nodiscard]] bool is_waiting_alike(const Verdict& other) const { return one_.installed == other.installed; }

    /// Numbers of packets of one flow (the megaflows that they meet) at one place. The n-th copies of packets are a
    /// sequence of their own, since a packet's copies have no order. Only of packets of which neither judge says that
    /// any of it went up, and whose headers are true: others may be of another flow to a NIC.
    using Flow = std::vector<Lookup>;
    using Sequences = std::map<std::tuple<std::uint32_t, const Flow*, unsigned>, std::vector<std::uint32_t>>;

    Sequences sequences_of(const Verdict& verdict, const Verdict& other) {
        Sequences sequences;
        for (const auto& [place, numbers] : verdict.arrivals) {
            std::map<std::uint32_t, unsigned> copies;
            for (const std::uint32_t number : numbers) {
                if (!verdict.ups[number].empty() || !other.ups[number].empty()) continue;
                if (is_untrue(number)) continue;
                sequences[{place, flow_of(number), copies[number]++}].push_back(number);
            }
        }
        return sequences;
    }

    const Flow* flow_of(std::uint32_t number) { return &*flows_.insert(ovs_.lookups[number]).first; }

    void compare_order(const Verdict& other) {
        const Sequences left = sequences_of(one_, other), right = sequences_of(other, one_);
        for (const auto& [key, numbers] : left) {
            const auto found = right.find(key);
            if (found != right.end() && found->second == numbers) continue;
            const bool told = found == right.end() || !std::ranges::is_permutation(found->second, numbers);
            if (told) continue;   // as packets that differ
            const auto& [place, flow, copy] = key;
            std::string versions;
            for (const Lookup& lookup : *flow) versions += fmt::format(" {}", lookup.version);
            differences_.add(fmt::format("order from port {} to {} of megaflows{}:\n    {}\n    {}", place >> 16,
                                         place & 0xFFFF, versions, fmt::join(numbers, " "),
                                         fmt::join(found->second, " ")));
        }
    }

    void tell_counts(std::size_t ufid, const Counts& one, const Counts& other) {
        const auto version = std::ranges::find(scenario_.versions, ufid, &Megaflow::ufid);
        differences_.add(fmt::format("counts of megaflow {} {}:\n    {}\n    {}", ufid, differential::text_of(*version),
                                     text_of(one), text_of(other)));
    }

    void tell(std::size_t packet, const std::string& fault, const Verdict& other, const char* name) {
        std::string way;
        for (const Lookup& lookup : ovs_.lookups[packet]) {
            const auto version = static_cast<std::size_t>(std::max(lookup.version, 0));
            way += lookup.version < 0
                       ? fmt::format("\n    {}: no megaflow", text_of(lookup.table))
                       : fmt::format("\n    {}: {}{}: {}", text_of(lookup.table), lookup.version,
                                     one_.installed[phase_][version] != 0 ? "" : ", not in the NIC",
                                     differential::text_of(scenario_.versions[version]));
        }
        const TestPacket& sent = scenario_.packets[packet];
        differences_.add(fmt::format("packet {} from port {} in phase {} {} ({:02x}):{}\n    NIC{}{}\n    {}{}{}",
                                     packet, sent.in_port, phase_, fault, fmt::join(sent.bytes, ""), way,
                                     text_of(one_.copies[packet]), text_of(one_.ups[packet]), name,
                                     text_of(other.copies[packet]), text_of(other.ups[packet])));
    }

    const Scenario& scenario_;
    const Verdict &one_, &ovs_;
    std::size_t phase_ = 0;
    bool sees_headers_ = false;   ///< the device tells by a tunnel's own header whether it holds a frame
    std::map<std::uint32_t, std::vector<std::size_t>> versions_of_;   ///< by match: twins' too
    std::set<Flow> flows_;
    Differences differences_;
    Excused excused_;
    Samplers samplers_;
    std::map<std::size_t, std::uint64_t> filtered_;   ///< by phase
};

}  // namespace

Comparison compare_nics(const Scenario& scenario, const Verdict& one, const Verdict& other, const Verdict& ovs) {
    return Comparer(scenario, one, ovs).with_nic(other);
}

Comparison compare_with_ovs(const Scenario& scenario, const Verdict& nic, const Verdict& ovs, unsigned format) {
    return Comparer(scenario, nic, ovs).with_ovs(format);
}

}  // namespace ovsdr::differential
