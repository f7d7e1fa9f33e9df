#include "tests/differential/judge/meters.hpp"

#include <algorithm>
#include <iterator>

#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/metered_copies.hpp"

namespace ovsdr::differential {

namespace {

constexpr unsigned some_percent = 24, behind_recirc_percent = 36, elsewhere_percent = 5, software_percent = 5,
                   unset_percent = 20, against_device_percent = 3, last_place_percent = 55;
constexpr unsigned exhausted_percent = 15, change_percent = 22, go_percent = 6, return_percent = 70,
                   second_band_percent = 8;
constexpr std::uint32_t lowest_rate = 1;
/// More than a run's packets and bytes.
constexpr std::uint32_t endless_packets = 4'000'000, endless_kilobits = 8'000'000;
/// 16,000 bytes: 125 * 2^7, which devices have exactly; software's endless ones need not be.
constexpr std::uint32_t small_kilobits = 128, too_short_kilobits = 8;
constexpr std::uint32_t most_small_packets = 6, bytes_of_kilobit = 125;
constexpr std::size_t packets_more = 3;   ///< of priming, that do not pass any more
constexpr std::size_t most_in_list = 28;  ///< fields and actions: a megaflow has room for 32

// Of devices, in units of the specification.
constexpr std::uint64_t most_packet_rate = 1'992'187'500, most_kilobit_rate = 2'040'000'000,
                        most_packet_burst = 16'777'216, most_kilobit_burst = 17'179'869, least_kilobit_burst = 80;

MeterSpec draw_spec(Chance& chance, std::uint32_t number) {
    MeterSpec spec{.by_packets = is_by_packets(number)};
    spec.is_exhausted = number == short_burst_meter || happens(chance, exhausted_percent);
    if (number == short_burst_meter) spec.by_packets = false;
    if (number == two_band_meter || (number <= last_device_meter && happens(chance, second_band_percent))) {
        spec.bands = 2;
    }
    if (spec.is_exhausted) {
        spec.rate = lowest_rate;
        spec.burst = spec.by_packets ? 1 + below(chance, most_small_packets) : small_kilobits;
        if (number == short_burst_meter) spec.burst = too_short_kilobits;
    } else {
        spec.rate = 1000 * (1 + below(chance, 1000));
        spec.burst = spec.by_packets ? endless_packets : endless_kilobits;
    }
    if (number == high_rate_meter) {
        spec = {.by_packets = false, .rate = 3'000'000'000, .burst = endless_kilobits};
    }
    return spec;
}

bool is_copy(const Action& action) {
    return action.kind == Action::Kind::software ||
           (action.kind == Action::Kind::output && is_software_port(action.port));
}

/// Places in front of which nothing has been done to a packet that a device cannot meter behind.
std::vector<std::size_t> good_places(const Megaflow& megaflow, bool connectx_5, const std::vector<Action>& actions) {
    std::vector<std::size_t> places{0};
    bool written = false;
    std::size_t copies = 0;
    for (std::size_t i = 0; i < actions.size(); ++i) {
        const bool is_meter = actions[i].kind == Action::Kind::meter;
        if (actions[i].kind == Action::Kind::set) {
            written = true;
        } else if (is_copy(actions[i]) && !written && !connectx_5 && !megaflow.tunnel && copies < 1) {
            ++copies;
            written = written || actions[i].software.between.has_value();
        } else if (!is_meter) {
            break;
        }
        places.push_back(i + 1);
    }
    return places;
}

/// What takes rules of its own in a device: behind many of them there is no room for several meters.
std::size_t rules_behind(const std::vector<Action>& actions) {
    using enum Action::Kind;
    return static_cast<std::size_t>(std::ranges::count_if(actions, [](const Action& action) {
        return action.kind == push || action.kind == pop || action.kind == tunnel_push || action.kind == copy_begin ||
               is_copy(action);
    }));
}

}  // namespace

std::uint32_t draw_meter_number(Chance& chance, bool connectx_5) {
    if (happens(chance, software_percent)) {
        if (happens(chance, unset_percent)) return unset_meter;
        return last_device_meter + 1 + below(chance, meters_end - 1 - last_device_meter);
    }
    const std::uint32_t number = 1 + below(chance, last_device_meter);
    if (!connectx_5 || !is_by_packets(number) || happens(chance, against_device_percent)) return number;
    return number - 1;
}

bool can_device_have(const MeterSpec& spec, bool connectx_5) {
    if (spec.bands != 1 || (spec.by_packets && connectx_5)) return false;
    if (spec.by_packets) return spec.rate <= most_packet_rate && spec.burst <= most_packet_burst;
    return spec.rate <= most_kilobit_rate && spec.burst >= least_kilobit_burst && spec.burst <= most_kilobit_burst;
}

bool can_device_have_number(std::uint32_t number, bool connectx_5) {
    return number <= last_device_meter && !(is_by_packets(number) && connectx_5);
}

std::vector<MeterChange> draw_meter_changes(Chance& chance, const MeterSpecs& now, bool first) {
    std::vector<MeterChange> changes;
    for (std::uint32_t number = 1; number < meters_end; ++number) {
        const bool is_there = now[number].has_value();
        const bool comes = first || happens(chance, is_there ? change_percent : return_percent);
        const bool goes = is_there && number <= last_device_meter && happens(chance, go_percent);
        if (goes) {
            changes.push_back({number, std::nullopt});
        } else if (comes) {
            changes.push_back({number, draw_spec(chance, number)});
        }
    }
    return changes;
}

std::size_t priming_length(const MeterSpec& spec) {
    if (!spec.is_exhausted) return 0;
    const std::size_t bands = spec.bands;   // the second one is twice as large, and pays for what passes alone
    if (spec.by_packets) return spec.burst * bands + packets_more;
    return std::size_t{spec.burst} * bands * bytes_of_kilobit / priming_size + packets_more;
}

std::uint32_t bytes_more_for_software(const MeterSpec& spec, bool connectx_5) {
    const bool differs = spec.is_exhausted && !spec.by_packets && can_device_have(spec, connectx_5);
    return differs ? static_cast<std::uint32_t>(priming_size) : 0;
}

void add_meters(Chance& chance, const Megaflow& megaflow, bool connectx_5, std::vector<Action>& actions) {
    using enum Action::Kind;
    if (!happens(chance, megaflow.recirc_id != 0 ? behind_recirc_percent : some_percent)) return;
    const auto is_refused = [](const Action& action) { return action.kind == refused; };
    const bool recirculates = std::ranges::count(actions, recirc, &Action::kind) != 0;
    const bool in_vain = std::ranges::any_of(actions, is_refused) || entries_of(actions) > most_in_list ||
                         (connectx_5 && (megaflow.recirc_id != 0 || megaflow.tunnel)) ||
                         (megaflow.tunnel && recirculates);
    if (in_vain && !happens(chance, against_device_percent)) return;
    if (entries_of(actions) > most_in_list) return;
    const bool simple = rules_behind(actions) <= 1 && !megaflow.tunnel;
    const unsigned several = connectx_5 ? against_device_percent : simple ? 40 : 0;
    const unsigned length = happens(chance, several) ? 2 + below(chance, 2) : 1;
    for (unsigned i = 0; i < length; ++i) {
        const auto places = good_places(megaflow, connectx_5, actions);
        std::size_t at = happens(chance, last_place_percent)
                             ? places.back()
                             : places[below(chance, static_cast<std::uint32_t>(places.size()))];
        if (happens(chance, elsewhere_percent)) at = below(chance, static_cast<std::uint32_t>(actions.size() + 1));
        actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(at),
                       {.kind = meter, .port = draw_meter_number(chance, connectx_5)});
    }
}

void add_meter_names(const Megaflow& megaflow, std::set<std::string>& names) {
    std::size_t meters = 0;
    bool written = false, copied = false;
    const auto& actions = megaflow.actions;
    for (std::size_t i = 0; i < actions.size(); ++i) {
        const Action& action = actions[i];
        using enum Action::Kind;
        if (action.kind == set) {
            if (meters != 0) names.insert("meter, change");
            written = true;
        }
        if (action.kind == push && meters != 0) names.insert("meter, change");
        if (action.kind == tunnel_push && meters != 0) names.insert("meter, tnl_push");
        if (action.kind == recirc && meters != 0) names.insert("meter, recirc");
        if (is_copy(action)) {
            if (meters != 0) names.insert("meter, a copy for software");
            copied = true;
        }
        if (action.kind != meter || is_metered_end(actions, i)) continue;
        ++meters;
        const std::uint32_t number = action.port;
        names.insert(number == unset_meter         ? "refused: meter that nobody has set"
                     : number > last_device_meter ? "refused: meter that no device has"
                     : is_by_packets(number)       ? "meter (packets)"
                                                   : "meter (kilobits)");
        if (written) names.insert("change, meter");
        if (copied) names.insert("a copy for software, meter");
        if (megaflow.recirc_id != 0) names.insert("meter behind a recirculation");
        if (megaflow.tunnel) names.insert("meter out of a tunnel");
    }
    if (meters > 1) names.insert("meters");
}

}  // namespace ovsdr::differential
