#include "tests/differential/judge/tables_in_a_row.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

namespace ovsdr::differential {

namespace {

/// Of a header's field, as a device writes it: value and mask.
using Piece = std::tuple<SetHeader, std::size_t, std::size_t, PatternBytes, PatternBytes>;

struct Changes {
    bool decapsulates = false;
    unsigned pops = 0;
    std::set<Piece> writes;
    std::vector<PushedTag> pushes;
    bool has_tunnel = false;
    [[nodiscard]] bool none() const {
        return !decapsulates && pops == 0 && writes.empty() && pushes.empty() && !has_tunnel;
    }
};

struct Path {
    enum class Kind : std::uint8_t { rule, copy, meter, sampler };
    Kind kind = Kind::rule;
    Changes changes{};
    bool goes_out = false;
    std::vector<Path> branches{};
};

/// Masks of a field's pieces: words of 32 bits from the front, of TOS its DSCP and ECN.
std::vector<PatternBytes> pieces_of(SetHeader header, std::size_t field) {
    constexpr std::uint64_t dscp = 0xFC, ecn = 0x03;
    const unsigned bits = row_of(header).fields[field].bits;
    const bool is_tos = (header == SetHeader::ipv4 || header == SetHeader::ipv6) && field == 2;
    if (is_tos) return {number(dscp), number(ecn)};
    std::vector<PatternBytes> pieces;
    constexpr std::size_t word = 4;
    for (std::size_t at = sizeof(PatternBytes) - bits / 8; at < sizeof(PatternBytes); at += word) {
        PatternBytes piece{};
        for (std::size_t i = at; i < std::min(at + word, sizeof(PatternBytes)); ++i) piece[i] = 0xFF;
        pieces.push_back(piece);
    }
    return pieces;
}

Changes changes_of(const Leg& leg) {
    Changes changes{leg.decapsulates, leg.shape.popped, {}, leg.shape.pushed, leg.shape.tunnel.has_value()};
    for (const auto& [where, written] : leg.shape.written) {
        const auto pieces = pieces_of(where.first, where.second);
        for (std::size_t i = 0; i < pieces.size(); ++i) {
            const PatternBytes mask = both(written.second, pieces[i]);
            if (mask == PatternBytes{}) continue;
            changes.writes.emplace(where.first, where.second, i, both(written.first, mask), mask);
        }
    }
    return changes;
}

Path path_of(const Leg& leg) {
    Path path{.changes = changes_of(leg), .goes_out = leg.goes_out};
    for (const auto& [work, is_limited] : leg.copies) {
        const Path copy{.kind = Path::Kind::copy};
        path.branches.push_back(is_limited ? Path{.kind = Path::Kind::meter, .branches = {copy}} : copy);
    }
    for (unsigned i = 0; i < leg.samplers; ++i) path.branches.push_back({.kind = Path::Kind::sampler});
    return path;
}

/// What one rule can do for all of them.
Changes common_to(const std::vector<Path>& paths) {
    Changes common = paths.front().changes;
    bool alike = true;   // but for tags that are pushed, and tunnels
    for (const Path& path : paths) {
        const Changes& changes = path.changes;
        alike = alike && changes.pops == common.pops && changes.writes == common.writes;
        common.decapsulates = common.decapsulates && changes.decapsulates;
        common.pops = std::min(common.pops, changes.pops);
        std::set<Piece> writes;
        std::ranges::set_intersection(common.writes, changes.writes, std::inserter(writes, writes.end()));
        common.writes = std::move(writes);
        const auto differ = std::ranges::mismatch(common.pushes, changes.pushes).in1;
        common.pushes.erase(differ, common.pushes.end());
    }
    if (!alike) common.pushes.clear();
    common.has_tunnel = false;
    return common;
}

void take_out(Changes& changes, const Changes& common) {
    changes.decapsulates = changes.decapsulates && !common.decapsulates;
    changes.pops -= common.pops;
    for (const Piece& piece : common.writes) changes.writes.erase(piece);
    changes.pushes.erase(changes.pushes.begin(),
                         changes.pushes.begin() + static_cast<std::ptrdiff_t>(common.pushes.size()));
}

Path joined(std::vector<Path> paths) {
    if (paths.empty()) return {};
    if (paths.size() == 1) return std::move(paths.front());
    Path path{.changes = common_to(paths)};
    for (Path& one : paths) {
        take_out(one.changes, path.changes);
        if (one.changes.none()) {
            path.goes_out = path.goes_out || one.goes_out;
            std::ranges::move(one.branches, std::back_inserter(path.branches));
        } else {
            path.branches.push_back(std::move(one));
        }
    }
    return path;
}

/// With samplers in front of what they sample, behind what is done to it before.
Path sampled(Path path) {
    std::size_t samplers = 0;
    std::vector<Path> rest;
    for (Path& branch : path.branches) {
        if (branch.kind == Path::Kind::sampler) {
            ++samplers;
        } else {
            rest.push_back(sampled(std::move(branch)));
        }
    }
    path.branches = std::move(rest);
    if (samplers == 0) return path;
    Path before{.changes = std::exchange(path.changes, {})};
    if (!path.goes_out && path.branches.size() == 1) {
        Path only = std::move(path.branches.front());
        path = std::move(only);
    }
    for (; samplers != 0; --samplers) path = {.kind = Path::Kind::sampler, .branches = {std::move(path)}};
    if (before.changes.none()) return path;
    before.branches.push_back(std::move(path));
    return before;
}

struct Device {
    bool from_wire, connectx_5;

    /// From the wire none takes a push right behind a pop. Where the counter would count what is pushed, only one thing
    /// is pushed by the rule that counts. Nothing is dropped behind a change.
    [[nodiscard]] bool takes_two_rules(const Path& path, bool counts) const {
        const Changes& changes = path.changes;
        const bool pushes = !changes.pushes.empty(), bare = changes.writes.empty();
        if (from_wire && changes.pops != 0 && bare && pushes) return true;
        if (!path.goes_out && path.branches.empty()) return !changes.none();
        const bool opens = changes.decapsulates && bare && pushes;
        const bool adds = opens || (!from_wire && changes.has_tunnel);
        return counts && from_wire != connectx_5 && changes.pushes.size() + (adds ? 1 : 0) > 1;
    }

    [[nodiscard]] unsigned depth(const Path& path, bool counts) const {
        unsigned deepest = 0;
        for (const Path& branch : path.branches) deepest = std::max(deepest, 1 + depth(branch, false));
        return deepest + (path.kind == Path::Kind::rule && takes_two_rules(path, counts) ? 1 : 0);
    }
};

}  // namespace

unsigned tables_in_a_row(const std::vector<Leg>& legs, bool from_wire, bool connectx_5) {
    std::vector<Path> paths;
    std::ranges::transform(legs, std::back_inserter(paths), path_of);
    return Device{from_wire, connectx_5}.depth(sampled(joined(std::move(paths))), true);
}

}  // namespace ovsdr::differential
