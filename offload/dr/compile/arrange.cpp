#include "offload/dr/compile/arrange.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ovsdr::dr {

namespace {

/// A device's branches are tables, and levels are few.
constexpr unsigned max_depth = 6;

std::vector<HeaderWrite> without(const std::vector<HeaderWrite>& writes, const std::vector<HeaderWrite>& those) {
    std::vector<HeaderWrite> rest;
    std::ranges::set_difference(writes, those, std::back_inserter(rest));
    return rest;
}

/// What is done to the packet in all of the legs.
Changes common_to(const std::vector<Path>& legs) {
    Changes common = legs.front().changes;
    for (const Path& leg : legs) {
        common.decapsulates = common.decapsulates && leg.changes.decapsulates;
        common.pops = std::min(common.pops, leg.changes.pops);
        std::vector<HeaderWrite> both;
        std::ranges::set_intersection(common.writes, leg.changes.writes, std::back_inserter(both));
        common.writes = std::move(both);
        const auto differ = std::ranges::mismatch(common.pushes, leg.changes.pushes).in1;
        common.pushes.erase(differ, common.pushes.end());
    }
    // A tag that was pushed is in front of those that one leg still has to pop.
    const bool equally_popped = std::ranges::all_of(
        legs, [&](const Path& leg) { return leg.changes.pops == common.pops; });
    // Behind three tags the device finds no header to write.
    const bool equally_written = std::ranges::all_of(
        legs, [&](const Path& leg) { return leg.changes.writes == common.writes; });
    if (!equally_popped || !equally_written) common.pushes.clear();
    // Legs with one tunnel differ in what comes before it.
    common.tunnel.clear();
    return common;
}

void take_out(Changes& changes, const Changes& common) {
    changes.decapsulates = changes.decapsulates && !common.decapsulates;
    changes.pops = static_cast<std::uint8_t>(changes.pops - common.pops);
    changes.writes = without(changes.writes, common.writes);
    changes.pushes.erase(changes.pushes.begin(),
                         changes.pushes.begin() + static_cast<std::ptrdiff_t>(common.pushes.size()));
}

/// One rule's actions, as the device takes them one after another.
class Arranger {
public:
    Arranger(Side side, const DeviceCaps& caps, Obstacles& obstacles) noexcept
        : side_(side), caps_(caps), obstacles_(obstacles) {}

    void rule(Path& path, OrderState state, unsigned depth) {
        if (depth > max_depth) {
            return obstacles_.add(RejectReason::unsupported_order, "actions that need too many tables in a row");
        }
        if (path.software || path.meter) {   // marks or colours the packet, and leads it up or on: devices take that
            for (Path& branch : path.branches) rule(branch, OrderState::none, depth + 1);
            return;
        }
        const bool counts = state == OrderState::counted;
        Changes done;
        Changes& left = path.changes;
        if (left.decapsulates && follows(state, OrderAction::decapsulate)) {
            done.decapsulates = std::exchange(left.decapsulates, false);
        }
        for (; !left.decapsulates && done.pops < left.pops && follows(state, OrderAction::pop_vlan); ++done.pops) {}
        left.pops = static_cast<std::uint8_t>(left.pops - done.pops);
        const bool bare = !left.decapsulates && left.pops == 0;   // nothing is in front of the headers any more
        if (bare && !left.writes.empty() && follows(state, OrderAction::modify_header)) {
            done.writes = std::exchange(left.writes, {});
        }
        if (bare && left.writes.empty() && !(counts && miscounts(done, left))) {
            auto tag = left.pushes.begin();
            while (tag != left.pushes.end() && follows(state, OrderAction::push_vlan)) done.pushes.push_back(*tag++);
            left.pushes.erase(left.pushes.begin(), tag);
            if (left.pushes.empty() && !left.tunnel.empty() && follows(state, OrderAction::encapsulate)) {
                done.tunnel = std::exchange(left.tunnel, {});
            }
        }
        if (!left.none() || !ends(state, path)) {
            if (done.none() && !counts) {
                return obstacles_.add(RejectReason::unsupported_order, "actions that the device takes in no order");
            }
            Path rest = std::exchange(path, Path{});
            path.branches.push_back(std::move(rest));
        }
        path.changes = std::move(done);
        if (path.ends() > 1 && path.ends() != path.vports.size() && !caps_.copies_to_table) {
            const bool software = std::ranges::any_of(path.branches, [](const Path& branch) {
                return branch.is_copy() || branch.is_metered_copy();
            });
            obstacles_.add(RejectReason::device_limit,
                           software ? StaticName("copy to software") : "outputs before and after another action",
                           " (no copies to tables)");
        }
        for (Path& branch : path.branches) rule(branch, OrderState::none, depth + 1);
    }

private:
    [[nodiscard]] bool follows(OrderState& state, OrderAction action) const noexcept {
        const auto next = next_state(side_, state, action);
        if (next) state = *next;
        return next.has_value();
    }

    [[nodiscard]] bool ends(OrderState state, const Path& path) const noexcept {
        if (path.ends() == 0) return follows(state, OrderAction::drop);
        if (path.ends() > 1) return follows(state, OrderAction::array);
        return follows(state, path.vports.empty() ? OrderAction::table : OrderAction::vport);
    }

    /// See DeviceCaps: two things that the counting rule puts in front of the packet. When it has taken off a tunnel's
    /// headers, one is too many, for libmlx5 puts the counter into an entry behind that of the push; not if it writes
    /// into the packet between the two.
    [[nodiscard]] bool miscounts(const Changes& done, const Changes& left) const noexcept {
        const bool wire = side_ == Side::wire;
        const bool tunnel = !left.tunnel.empty() && caps_.counts_before_tunnel(wire);
        const bool opened = done.decapsulates && done.writes.empty() && !left.pushes.empty();
        return left.pushes.size() + (tunnel || opened ? 1 : 0) > 1 && caps_.counts_after_push(wire);
    }

    const Side side_;
    const DeviceCaps& caps_;
    Obstacles& obstacles_;
};

bool any_change(const Path& path, auto&& is) {
    return is(path.changes) ||
           std::ranges::any_of(path.branches, [&](const Path& branch) { return any_change(branch, is); });
}

}  // namespace

Path join(std::vector<Path> legs) {
    if (legs.empty()) return {};
    if (legs.size() == 1) return std::move(legs.front());
    Path path{common_to(legs), {}, {}, {}};
    for (Path& leg : legs) {
        take_out(leg.changes, path.changes);
        if (leg.changes.none()) {
            path.vports = std::move(leg.vports);
            path.tables = std::move(leg.tables);
            std::ranges::move(leg.branches, std::back_inserter(path.branches));
        } else {
            path.branches.push_back(std::move(leg));
        }
    }
    std::ranges::sort(path.branches);
    return path;
}

Path sample(Path path) {
    std::vector<Path> samples;
    for (Path& branch : std::exchange(path.branches, {})) {
        if (branch.samples()) {
            samples.push_back(std::move(branch));
        } else {
            path.branches.push_back(sample(std::move(branch)));
        }
    }
    if (samples.empty()) return path;
    Changes before = std::exchange(path.changes, {});
    if (path.vports.empty() && path.tables.empty() && path.branches.size() == 1) {
        Path only = std::move(path.branches.front());
        path = std::move(only);
    }
    for (auto each = samples.rbegin(); each != samples.rend(); ++each) {
        each->branches.push_back(std::move(path));
        path = std::move(*each);
    }
    if (before.none()) return path;
    Path changed{std::move(before), {}, {}, {}};
    changed.branches.push_back(std::move(path));
    return changed;
}

void arrange(Path& path, Side side, const DeviceCaps& caps, std::size_t in_front, Obstacles& obstacles) {
    const bool wire = side == Side::wire;
    const auto decapsulates = [](const Changes& changes) { return changes.decapsulates; };
    const auto pops = [](const Changes& changes) { return changes.pops != 0; };
    const auto pushes = [](const Changes& changes) { return !changes.pushes.empty(); };
    const auto tunnels = [](const Changes& changes) { return !changes.tunnel.empty(); };
    const bool cannot_pop = !wire && !caps.pops_from_vports() && any_change(path, pops);
    const bool cannot_push = wire && !caps.pushes_from_wire() && any_change(path, pushes);
    if (cannot_pop) obstacles.add(RejectReason::device_limit, "pop_vlan of packets from a vport");
    if (cannot_push) obstacles.add(RejectReason::device_limit, "push_vlan onto packets from the wire");
    const bool cannot_encapsulate = wire && !caps.encapsulates_from_wire() && any_change(path, tunnels);
    if (cannot_encapsulate) obstacles.add(RejectReason::device_limit, "tnl_push of packets from the wire");
    const bool cannot_decapsulate = !caps.decapsulates && any_change(path, decapsulates);
    if (cannot_decapsulate) obstacles.add(RejectReason::device_limit, "decapsulation");
    if (cannot_pop || cannot_push || cannot_encapsulate || cannot_decapsulate) return;
    Arranger(side, caps, obstacles).rule(path, OrderState::counted, static_cast<unsigned>(in_front));
}

Path put_in_front(Path path, std::span<const Path> front, Side side, const DeviceCaps& caps) {
    const auto behind = [](Path rest) {
        Path rule;
        rule.branches.push_back(std::move(rest));
        return rule;
    };
    if (front.empty()) return path;
    // A meter takes the frame inside of a tunnel: a rule before it takes that out.
    const bool decapsulates = std::exchange(path.changes.decapsulates, false);
    // What counts the bytes that passed must not take a tag off before.
    if (side == Side::wire && caps.counts_after_pop() && path.changes.pops != 0) path = behind(std::move(path));
    for (auto each = front.rbegin(); each != front.rend(); ++each) {
        path = behind(std::move(path));
        if (each->samples()) {
            path.software = each->software;
        } else if (each->meter && each->branches.empty()) {
            path.meter = each->meter;
        } else {
            path.branches.push_back(*each);
            std::ranges::sort(path.branches);
        }
    }
    if (decapsulates) path = behind(std::move(path));
    path.changes.decapsulates = decapsulates;
    return path;
}

}  // namespace ovsdr::dr
