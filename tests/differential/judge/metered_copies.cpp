#include "tests/differential/judge/metered_copies.hpp"

#include <algorithm>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

namespace {

constexpr unsigned some_percent = 12, behind_recirc_percent = 45, into_nothing_percent = 20, end_percent = 50,
                   another_percent = 15, used_meter_percent = 50, two_meters_percent = 15, cut_percent = 15,
                   in_copy_percent = 40, controller_percent = 75, in_front_percent = 60;
constexpr std::uint32_t cookies = 6;   ///< few, so that megaflows share works
constexpr std::uint16_t shortest_cut = 14, cuts = 120;
constexpr std::size_t most_in_list = 28;   ///< fields and actions: a megaflow has room for 32

using enum Action::Kind;
using Form = SoftwarePart::Form;

bool is_userspace(const Action& action) {
    return action.kind == software && action.software.form == Form::userspace;
}

/// Sometimes one that the packet meets already: then it matters who comes first, and software meters the copy.
std::uint32_t draw_meter(Chance& chance, bool connectx_5, const std::vector<Action>& actions) {
    const auto uses = meter_uses(actions);
    if (!uses.empty() && happens(chance, used_meter_percent)) return uses.begin()->first;
    return draw_meter_number(chance, connectx_5);
}

SoftwarePart draw_sample(Chance& chance, bool connectx_5, const std::vector<Action>& actions) {
    SoftwarePart part{.form = Form::metered_sample};
    const std::size_t meters = happens(chance, two_meters_percent) ? 2 : 1;
    while (part.meters.size() < meters) part.meters.push_back(draw_meter(chance, connectx_5, actions));
    if (happens(chance, cut_percent)) part.length = static_cast<std::uint16_t>(shortest_cut + below(chance, cuts));
    return part;
}

/// Ends of the lists: of all, and of the copies in it.
std::vector<std::size_t> ends_of_lists(const std::vector<Action>& actions) {
    std::vector<std::size_t> ends;
    for (std::size_t i = 0; i < actions.size(); ++i) {
        if (actions[i].kind == copy_end) ends.push_back(i);
    }
    return ends;
}

}  // namespace

bool is_metered_end(const std::vector<Action>& actions, std::size_t at) {
    if (actions[at].kind != meter || at + 1 >= actions.size() || !is_userspace(actions[at + 1])) return false;
    return at + 2 == actions.size() || actions[at + 2].kind == copy_end;
}

std::optional<std::uint32_t> meter_in_front(const SoftwarePart& part) {
    if (part.meters.empty()) return {};
    const std::uint32_t first = part.meters.front();
    return std::ranges::count(part.meters, first) == 1 ? std::optional(first) : std::nullopt;
}

std::map<std::uint32_t, unsigned> meter_uses(const std::vector<Action>& actions) {
    std::map<std::uint32_t, unsigned> uses;
    for (const Action& action : actions) {
        if (action.kind == meter) ++uses[action.port];
        if (action.kind != software) continue;
        if (const auto number = meter_in_front(action.software)) ++uses[*number];
    }
    return uses;
}

void add_metered_copies(Chance& chance, const Megaflow& megaflow, bool connectx_5, std::vector<Action>& actions) {
    const auto is_refused = [](const Action& action) { return action.kind == refused; };
    if (!happens(chance, megaflow.recirc_id != 0 ? behind_recirc_percent : some_percent)) return;
    if (std::ranges::any_of(actions, is_refused)) return;
    if (actions.empty() && !happens(chance, into_nothing_percent)) return;
    do {
        if (entries_of(actions) > most_in_list) return;
        const bool at_end = happens(chance, end_percent);
        SoftwarePart part = at_end ? SoftwarePart{} : draw_sample(chance, connectx_5, actions);
        part.cookie = static_cast<std::uint8_t>(below(chance, cookies));
        part.to_controller = happens(chance, controller_percent);
        std::size_t at = below(chance, static_cast<std::uint32_t>(actions.size() + 1));
        const bool is_metered = !actions.empty() && actions.front().kind == meter;
        if (is_metered && happens(chance, in_front_percent)) at = 0;
        if (at_end) {
            const auto ends = ends_of_lists(actions);
            at = !ends.empty() && happens(chance, in_copy_percent)
                     ? ends[below(chance, static_cast<std::uint32_t>(ends.size()))]
                     : actions.size();
            const Action limit{.kind = meter, .port = draw_meter(chance, connectx_5, actions)};
            actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(at), limit);
            ++at;
        }
        actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(at),
                       {.kind = software, .software = std::move(part)});
    } while (happens(chance, another_percent));
}

void add_metered_copy_names(const Megaflow& megaflow, std::set<std::string>& names) {
    const auto& actions = megaflow.actions;
    const auto uses = meter_uses(actions);
    bool written = false, resized = false;
    std::vector<bool> outside;   ///< resized, around the copies that we are in
    for (std::size_t i = 0; i < actions.size(); ++i) {
        const Action& action = actions[i];
        if (action.kind == set) written = true;
        if (action.kind == push || action.kind == pop || action.kind == tunnel_push) resized = true;
        if (action.kind == copy_begin) outside.push_back(resized);
        if (action.kind == copy_end) {
            resized = outside.back();
            outside.pop_back();
        }
        const bool at_end = is_metered_end(actions, i);
        const bool sampled = action.kind == software && !action.software.meters.empty();
        if (!at_end && !sampled) continue;
        const auto number = at_end ? std::optional(action.port) : meter_in_front(action.software);
        const bool once = number && uses.at(*number) == 1;
        if (!once) names.insert("a metered copy whose meter is met again");
        if (once && resized) names.insert("a metered copy behind another length");
        if (once && written && !resized) names.insert("change, a metered copy");
        if (megaflow.recirc_id != 0) names.insert("a metered copy behind a recirculation");
        if (megaflow.tunnel) names.insert("a metered copy out of a tunnel");
    }
}

}  // namespace ovsdr::differential
