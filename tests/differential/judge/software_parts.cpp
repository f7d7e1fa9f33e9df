#include "tests/differential/judge/software_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tests/differential/judge/action_list.hpp"
#include "tests/differential/judge/metered_copies.hpp"

namespace ovsdr::differential {

namespace {

constexpr unsigned mirror_percent = 30, cut_mirror_percent = 62;
constexpr unsigned some_percent = 27, behind_recirc_percent = 60, another_percent = 45, between_percent = 55,
                   to_vport_percent = 30, inside_percent = 75, into_drop_percent = 6, again_percent = 12,
                   refused_samples_percent = 4;
constexpr std::uint32_t cookies = 6;   ///< few, so that megaflows share works
constexpr std::uint32_t samplers[] = {2, 3, 8, 64};
constexpr unsigned each_percent = 45;   ///< of the samples take each packet
constexpr std::uint16_t shortest_cut = 14, cuts = 120;
constexpr std::size_t most_in_list = 28;   ///< fields and actions: a megaflow has room for 32

using Form = SoftwarePart::Form;

std::string userspace_text(const SoftwarePart& part) {
    if (part.to_controller) {
        return fmt::format("userspace(pid=0,controller(reason=1,dont_send=0,continuation=0,recirc_id=7,"
                           "rule_cookie={:#x},controller_id=0,max_len=65535))", part.cookie);
    }
    return fmt::format("userspace(pid=0,flow_sample(probability={},collector_set_id=1,obs_domain_id=0,"
                       "obs_point_id={},output_port=4294967295))", part.one_of, part.cookie);
}

std::string truncated_text(const SoftwarePart& part, const std::string& taken_by) {
    const std::string between = part.between ? text_of(*part.between) + "," : "";
    return fmt::format("trunc({}),{}{}", part.length, between, taken_by);
}

std::string metered_text(const SoftwarePart& part) {
    std::string list;
    for (const std::uint32_t number : part.meters) list += fmt::format("meter({}),", number);
    if (part.length != 0) list += fmt::format("trunc({}),", part.length);
    return fmt::format("sample(sample=100.0%,actions({}{}))", list, userspace_text(part));
}

std::uint32_t draw_software_port(Chance& chance, unsigned percent_of_mirror = mirror_percent) {
    if (happens(chance, percent_of_mirror)) return mirror_port;
    return happens(chance, 50) ? host_port : tap_ports[below(chance, std::size(tap_ports))];
}

/// One write that every packet of the megaflow takes.
SetAction draw_between(Chance& chance) {
    SetAction set{.header = SetHeader::ethernet};
    set.fields[below(chance, 2)] = {both(random_bytes(chance), ones(48)), ones(48)};
    return set;
}

Action draw_part(Chance& chance, const Megaflow& megaflow, bool samples) {
    SoftwarePart part{.cookie = static_cast<std::uint8_t>(below(chance, cookies))};
    const unsigned choice = below(chance, 100);
    if (choice < 27) return {.kind = Action::Kind::output, .port = draw_software_port(chance)};
    if (choice < 44) return {.kind = Action::Kind::software, .software = part};
    if (choice < 70) {
        part.form = Form::sample;
        const bool each = happens(chance, samples ? each_percent : 100 - refused_samples_percent);
        part.one_of = each ? 1 : samplers[below(chance, std::size(samplers))];
        return {.kind = Action::Kind::software, .software = part};
    }
    part.form = choice < 86 ? Form::truncated_output : Form::truncated_userspace;
    part.length = static_cast<std::uint16_t>(shortest_cut + below(chance, cuts));
    if (happens(chance, between_percent)) part.between = draw_between(chance);
    if (part.form == Form::truncated_output) {
        const bool to_vport = happens(chance, to_vport_percent);
        part.port = to_vport ? draw_output(chance, megaflow).port : draw_software_port(chance, cut_mirror_percent);
        part.cookie = 0;
    }
    return {.kind = Action::Kind::software, .software = part};
}

}  // namespace

std::string text_of(const SoftwarePart& part) {
    switch (part.form) {
        case Form::userspace: return userspace_text(part);
        case Form::sample: {
            // So many digits that OVS finds the number again of which the NIC must know that it is 1/N.
            const double percent = 100.0 * (UINT32_MAX / part.one_of) / UINT32_MAX;
            return fmt::format("sample(sample={:.13f}%,actions({}))", percent, userspace_text(part));
        }
        case Form::metered_sample: return metered_text(part);
        case Form::truncated_output: return truncated_text(part, fmt::format("{}", part.port));
        case Form::truncated_userspace: return truncated_text(part, userspace_text(part));
    }
    return "";
}

/// Anywhere, but more often behind a tnl_push or in a clone, if there is one.
std::size_t draw_place(Chance& chance, const std::vector<Action>& actions) {
    for (const Action::Kind kind : {Action::Kind::tunnel_push, Action::Kind::copy_begin}) {
        const auto wanted = std::ranges::find(actions, kind, &Action::kind);
        if (wanted == actions.end() || !happens(chance, inside_percent)) continue;
        return static_cast<std::size_t>(wanted - actions.begin()) + 1;
    }
    return below(chance, static_cast<std::uint32_t>(actions.size() + 1));
}

void add_software_parts(Chance& chance, const Megaflow& megaflow, bool samples, std::vector<Action>& actions) {
    const auto is_refused = [](const Action& action) { return action.kind == Action::Kind::refused; };
    const auto goes_on = [](const Action& action) {
        return action.kind == Action::Kind::output || action.kind == Action::Kind::recirc ||
               action.kind == Action::Kind::tunnel_pop;
    };
    const bool wanted = happens(chance, megaflow.recirc_id != 0 ? behind_recirc_percent : some_percent) &&
                        (std::ranges::any_of(actions, goes_on) || happens(chance, into_drop_percent));
    if (!wanted || std::ranges::any_of(actions, is_refused)) return;
    bool sampled = false;
    do {
        if (entries_of(actions) > most_in_list) return;
        Action part = draw_part(chance, megaflow, samples);
        const bool samples_this = part.kind == Action::Kind::software && !part.software.copies_each();
        if (sampled && samples_this) continue;   // each takes a level, and devices have few
        const auto is_same = [&](const Action& other) {
            return other.kind == part.kind && other.port == part.port && other.software == part.software;
        };
        if (std::ranges::any_of(actions, is_same) && !happens(chance, again_percent)) continue;
        sampled = sampled || samples_this;
        const auto at = static_cast<std::ptrdiff_t>(draw_place(chance, actions));
        actions.insert(actions.begin() + at, std::move(part));
    } while (happens(chance, another_percent));
}

void add_software_names(const Megaflow& megaflow, std::set<std::string>& names) {
    bool changed = false, in_tunnel = false;
    unsigned copies = 0;
    const auto add = [&](const std::string& name) {
        names.insert(name);
        if (changed) names.insert("a copy for software behind a change");
        if (in_tunnel) names.insert("a copy for software behind tnl_push");
        if (copies != 0) names.insert("a copy for software in a clone");
        if (megaflow.recirc_id != 0) names.insert("a copy for software behind a recirculation");
        if (megaflow.tunnel) names.insert("a copy for software out of a tunnel");
    };
    const auto& actions = megaflow.actions;
    for (std::size_t i = 0; i < actions.size(); ++i) {
        const Action& action = actions[i];
        using enum Action::Kind;
        switch (action.kind) {
            case output:
                if (action.port == host_port) add("output to LOCAL");
                if (action.port == mirror_port) add("output to a storage mirror");
                if (action.port == tap_ports[0] || action.port == tap_ports[1]) add("output to a tap");
                break;
            case software: {
                const SoftwarePart& part = action.software;
                const bool at_end = i > 0 && is_metered_end(actions, i - 1);
                if (part.form == Form::userspace) add(at_end ? metered_end_name : "userspace");
                if (part.form == Form::metered_sample) add(metered_sample_name);
                if (part.form == Form::sample) add(part.copies_each() ? "sample (each)" : "sample (1 of N)");
                if (part.form == Form::truncated_output) add("trunc, output");
                if (part.is_cut_for_mirror()) add("trunc, output to a storage mirror");
                if (part.form == Form::truncated_userspace) add("trunc, userspace");
                if (part.between) names.insert("trunc, change, output");
                changed = changed || part.between.has_value();
                break;
            }
            case tunnel_push: in_tunnel = true; break;
            case push: case pop: case set: changed = true; break;
            case copy_begin: ++copies; break;
            case copy_end:   // what is around it is not changed, if anything was
                --copies;
                changed = in_tunnel = false;
                break;
            default: break;
        }
    }
}

}  // namespace ovsdr::differential
