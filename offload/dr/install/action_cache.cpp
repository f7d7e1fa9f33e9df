#include "offload/dr/install/action_cache.hpp"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <numeric>
#include <string_view>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

ActionCache::ActionCache(std::shared_ptr<Domain> fdb, std::shared_ptr<TableSet> tables, MeterSet& meters,
                         std::shared_ptr<WorkSet> works) noexcept
    : fdb_(std::move(fdb)), tables_(std::move(tables)), meters_(meters), works_(std::move(works)) {}

namespace {

/// Once there are `limit` entries; the next time when they have doubled.
void forget_expired(auto& known, std::size_t& limit) {
    if (known.size() < limit) return;
    std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
    limit = 2 * known.size() + 64;
}

std::size_t mixed(std::size_t hash, std::size_t more) noexcept {
    return (hash ^ more) * 0x9E3779B97F4A7C15ULL;
}

std::size_t hash_of(const SoftwareCopy& copy) noexcept {
    const std::size_t hash = mixed(copy.one_of, copy.work.in_port.value);
    if (const auto* ports = std::get_if<SoftwareWork::Ports>(&copy.work.work)) {
        return std::accumulate(ports->begin(), ports->end(), hash,
                               [](std::size_t sum, OdpPort port) { return mixed(sum, port.value); });
    }
    const auto& actions = std::get<SoftwareWork::Actions>(copy.work.work);
    const std::string_view bytes(reinterpret_cast<const char*>(actions.data()), actions.size());
    return mixed(hash, std::hash<std::string_view>{}(bytes));
}

/// Equal paths have equal hashes.
std::size_t hash_of(const Path& path) noexcept {
    const Changes& changes = path.changes;
    const std::string_view tunnel(reinterpret_cast<const char*>(changes.tunnel.data()), changes.tunnel.size());
    std::size_t hash = mixed(changes.pops, changes.writes.size());
    for (const HeaderWrite& write : changes.writes) hash = mixed(hash, write.value);
    for (const VlanTag& tag : changes.pushes) hash = mixed(hash, tag.tci);
    if (!tunnel.empty()) hash = mixed(hash, std::hash<std::string_view>{}(tunnel));
    for (const VportId vport : path.vports) hash = mixed(hash, vport.value);
    for (const TableKey table : path.tables) hash = mixed(hash, table.recirc_id);
    for (const Path& branch : path.branches) hash = mixed(hash, hash_of(branch));
    if (path.meter) hash = mixed(hash, path.meter->number);
    if (path.software) hash = mixed(hash, hash_of(*path.software));
    return hash;
}

Result<void> append(std::vector<ActionRef>& actions, Result<ActionRef> action) {
    if (!action) return tl::unexpected(std::move(action.error()));
    actions.push_back(std::move(*action));
    return {};
}

}  // namespace

/// The key is the action's text, which says all that it does.
template <typename Make>
Result<ActionRef> ActionCache::cached(const Key& key, Make&& make) {
    if (const auto found = actions_.find(key); found != actions_.end()) {
        if (ActionRef action = found->second.lock()) return action;
    }
    Result<ActionRef> made = make();
    if (!made) return made;
    forget_expired(actions_, prune_at_);
    actions_[key] = *made;
    return made;
}

Result<ActionList> ActionCache::actions_for(const Path& path, VportId source, std::uint32_t level) noexcept {
    Start start{VportId{0}, 0, 0};
    if (!path.branches.empty()) start.source = source;
    if (!path.branches.empty() || !path.tables.empty()) start.level = level;
    const std::size_t hash = mixed(mixed(hash_of(path), start.level), start.source.value);
    if (ActionList list = find(hash, start, path)) return list;
    std::lock_guard making(making_);
    if (ActionList list = find(hash, start, path)) return list;   // made by somebody meanwhile
    auto made = make_list(path, start);
    if (!made) return tl::unexpected(std::move(made.error()));
    auto list = std::make_shared<const std::vector<ActionRef>>(std::move(*made));
    remember(hash, {start, path, list});
    return list;
}

ActionList ActionCache::find(std::size_t hash, Start start, const Path& path) {
    std::lock_guard lock(mutex_);
    const auto [first, end] = lists_.equal_range(hash);
    for (auto known = first; known != end; ++known) {
        const List& list = known->second;
        if (list.start != start || list.path != path) continue;
        if (ActionList actions = list.actions.lock()) return actions;
    }
    return nullptr;
}

void ActionCache::remember(std::size_t hash, List list) {
    std::lock_guard lock(mutex_);
    forget_expired(lists_, prune_lists_at_);
    lists_.emplace(hash, std::move(list));
}

Result<ActionRef> ActionCache::to_vport(VportId vport) {
    std::lock_guard making(making_);
    return to_vport_locked(vport);
}

Result<ActionRef> ActionCache::to_vport_locked(VportId vport) {
    return cached(fmt::format("dest_vport {}", vport.value), [&] { return Action::to_vport(fdb_, vport); });
}

Result<std::vector<ActionRef>> ActionCache::make_list(const Path& path, Start start) {
    if (path.meter) return metered(path, start);
    if (path.software) return copied(path, start);
    std::vector<ActionRef> actions;
    Result<void> made = append_changes(actions, path.changes);
    if (made) made = append(actions, end_of(path, start));
    if (!made) return tl::unexpected(std::move(made.error()));
    return actions;
}

Result<void> ActionCache::append_changes(std::vector<ActionRef>& actions, const Changes& changes) {
    Result<void> made;
    if (changes.decapsulates) {
        made = append(actions, cached("decapsulate", [&] { return Action::decapsulate(fdb_); }));
    }
    for (unsigned i = 0; made && i < changes.pops; ++i) {
        made = append(actions, cached("pop_vlan", [] { return Action::pop_vlan(); }));
    }
    if (made && !changes.writes.empty()) {
        made = append(actions, cached(text_of(Changes{.writes = changes.writes}),
                                      [&] { return Action::modify_header(fdb_, changes.writes); }));
    }
    for (const VlanTag& tag : changes.pushes) {
        if (!made) break;
        made = append(actions, cached(fmt::format("push_vlan {:#x} {:#x}", tag.tpid, tag.tci),
                                      [&] { return Action::push_vlan(fdb_, tag.tpid, tag.tci); }));
    }
    if (made && !changes.tunnel.empty()) {
        made = append(actions, cached(text_of(Changes{.tunnel = changes.tunnel}),
                                      [&] { return Action::encapsulate(fdb_, changes.tunnel); }));
    }
    return made;
}

/// The one place that the packet goes to, or an array of them.
Result<ActionRef> ActionCache::end_of(const Path& path, Start start) {
    std::vector<ActionRef> ends;
    Result<void> made;
    for (const VportId vport : path.vports) {
        if (made) made = append(ends, to_vport_locked(vport));
    }
    for (const TableKey table : path.tables) {
        if (made) made = append(ends, tables_->lead_to(table, start.level, start.depth));
    }
    for (const Path& each : path.branches) {
        if (made) made = append(ends, branch(each, {start.source, start.level, start.depth + 1}));
    }
    if (!made) return tl::unexpected(std::move(made.error()));
    if (ends.empty()) return cached("drop", [] { return Action::drop(); });
    if (ends.size() == 1) return std::move(ends.front());
    const Path destinations{{}, path.vports, path.tables, path.branches};
    return cached(fmt::format("from vport {} level {}+{}: {}", start.source.value, start.level, start.depth,
                              text_of(destinations)),
                  [&] { return Action::to_all(fdb_, ends); });
}

Result<ActionRef> ActionCache::branch(const Path& path, Start start) {
    return cached(fmt::format("branch from vport {} level {}+{}: {}", start.source.value, start.level, start.depth,
                              text_of(path)),
                  [&]() -> Result<ActionRef> {
                      auto next = make_private_table(path, start);
                      if (!next) return tl::unexpected(std::move(next.error()));
                      return Action::to_table(std::move(next->table), std::move(next->holds));
                  });
}

Result<Action::Next> ActionCache::make_private_table(const Path& path, Start start) {
    struct Branch {
        std::shared_ptr<MatcherSet> matchers;
        Rule rule;
    };
    auto branch = std::make_shared<Branch>();
    MatchParam mask, value;
    mask.set(field::source_port, 0xFFFF);
    value.set(field::source_port, start.source.value);
    auto actions = make_list(path, start);
    if (!actions) return tl::unexpected(std::move(actions.error()));
    Result<void> made = take_table(branch->matchers, fdb_, start.level + start.depth);
    if (made) made = take(branch->rule, make_rule(*branch->matchers, {mask, 0}, value, std::move(*actions)));
    if (!made) return tl::unexpected(std::move(made.error()));
    std::shared_ptr<Table> table = branch->matchers->shared_table();
    return Action::Next{std::move(table), std::move(branch)};
}

/// Marks the packet and leads it up; or each packet, of which the sampler leads some up.
Result<std::vector<ActionRef>> ActionCache::copied(const Path& path, Start start) {
    std::vector<ActionRef> actions;
    Result<void> made = append(actions, works_->mark(*path.software));
    if (made && path.is_copy()) actions.push_back(works_->to_copies());
    if (made && !path.is_copy()) {
        const Start behind{start.source, start.level, start.depth + 1};
        made = append(actions, cached(fmt::format("from vport {} level {}+{}: {}", start.source.value, start.level,
                                                  start.depth, text_of(path)),
                                      [&]() -> Result<ActionRef> {
                                          auto next = make_private_table(path.branches.front(), behind);
                                          if (!next) return tl::unexpected(std::move(next.error()));
                                          return Action::sample(path.software->one_of, std::move(*next));
                                      }));
    }
    if (!made) return tl::unexpected(std::move(made.error()));
    return actions;
}

Result<std::vector<ActionRef>> ActionCache::metered(const Path& path, Start start) {
    auto meter = meters_.use(*path.meter);
    if (!meter) return tl::unexpected(std::move(meter.error()));
    const Start behind{start.source, start.level, start.depth + 1};
    if ((*meter)->behind() != nullptr) return policed(path.branches.front(), std::move(*meter), behind);
    std::vector<ActionRef> actions{(*meter)->colour()};
    auto made = append(actions, cached(fmt::format("from vport {} level {}+{}: {}", start.source.value, start.level,
                                                   start.depth, text_of(path)),
                                       [&] { return make_by_colour(path.branches.front(), *meter, behind); }));
    if (!made) return tl::unexpected(std::move(made.error()));
    return actions;
}

namespace {

/// What a packet of the source looks like that a meter has let pass.
void match_passing(VportId source, MatchParam& mask, MatchParam& value) {
    static_assert(DeviceMeter::colour_register == 5);
    mask.set(field::source_port, 0xFFFF);
    value.set(field::source_port, source.value);
    mask.set(field::metadata_reg_c_5, 0xFF);
    value.set(field::metadata_reg_c_5, DeviceMeter::green);
}

}  // namespace

/// The rule writes down which path its packets take, and ends in the meter.
Result<std::vector<ActionRef>> ActionCache::policed(const Path& path, std::shared_ptr<DeviceMeter> meter, Start start) {
    struct Policed {
        std::shared_ptr<DeviceMeter> meter;
        Rule passing;
    };
    const HeaderWrite number{HeaderField::metadata_reg_c_1, meter->new_path(), UINT32_MAX};
    MatchParam mask, value;
    match_passing(start.source, mask, value);
    mask.set(field::metadata_reg_c_1, UINT32_MAX);
    value.set(field::metadata_reg_c_1, number.value);
    auto actions = make_list(path, start);
    if (!actions) return actions;
    ActionRef write;
    auto policed = std::make_shared<Policed>(Policed{std::move(meter), Rule()});
    Result<void> made = take(write, Action::modify_header(fdb_, std::array{number}));
    if (made) {
        made = take(policed->passing, make_rule(*policed->meter->behind(), {mask, DeviceMeter::passing_priority}, value,
                                                std::move(*actions), policed->meter->count_passed()));
    }
    if (!made) return tl::unexpected(std::move(made.error()));
    Action* const meets = policed->meter->colour().get();
    return std::vector<ActionRef>{std::move(write), ActionRef(std::move(policed), meets)};
}

/// Green goes on along the path, all else is dropped.
Result<ActionRef> ActionCache::make_by_colour(const Path& path, std::shared_ptr<DeviceMeter> meter, Start start) {
    struct ByColour {
        std::shared_ptr<DeviceMeter> meter;
        std::shared_ptr<MatcherSet> matchers;
        Rule exceeding, passing;
    };
    auto by_colour = std::make_shared<ByColour>();
    by_colour->meter = std::move(meter);
    MatchParam mask, value;
    mask.set(field::source_port, 0xFFFF);
    value.set(field::source_port, start.source.value);
    MatchParam green_mask, green_value;
    match_passing(start.source, green_mask, green_value);
    auto actions = make_list(path, start);
    if (!actions) return tl::unexpected(std::move(actions.error()));
    auto drop = cached("drop", [] { return Action::drop(); });
    if (!drop) return drop;
    Result<void> made = take_table(by_colour->matchers, fdb_, start.level + start.depth);
    if (made) {
        const MatcherSpec exceeding{mask, DeviceMeter::exceeding_priority};
        made = take(by_colour->exceeding, make_rule(*by_colour->matchers, exceeding, value, {*drop},
                                                    by_colour->meter->count_dropped()));
    }
    if (made) {
        made = take(by_colour->passing, make_rule(*by_colour->matchers, {green_mask, DeviceMeter::passing_priority},
                                                  green_value, std::move(*actions),
                                                  by_colour->meter->count_passed()));
    }
    if (!made) return tl::unexpected(std::move(made.error()));
    std::shared_ptr<Table> table = by_colour->matchers->shared_table();
    return Action::to_table(std::move(table), std::move(by_colour));
}

}  // namespace ovsdr::dr
