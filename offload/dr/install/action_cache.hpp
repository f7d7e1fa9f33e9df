// Actions by content: one dest_vport per vport, one push_vlan per tag, one dest_array per set of destinations, one
// modify_header per list of writes, one reformat per tunnel header; and whole lists of them by Path.
//
// Model. Arrays are several firmware objects each and reformats one, so megaflows with the same share them. The cache
// holds its actions weakly: the last rule that uses an action destroys it.
//
// A branch of a Path is a private table above the rule's own with one rule, which matches the source vport so that it
// exists on one side of the FDB only. Branches are shared by (source, level, path) and go with their last user. Behind
// a meter the private table has two rules, by colour (meter_set.hpp).
//
// A copy for software (work_set.hpp) is a branch, too: its rule marks the packet and leads it up. A sampler's rule
// marks each packet, copied or not: whatever else leads packets up gives them another mark.
//
// Threads: any; creation is serialised, and whoever asks for a list that is there waits for no creation: some actions
// are firmware commands. Errors: the device's, and ELOOP of TableSet::lead_to().
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "offload/dr/compile/plan.hpp"
#include "offload/dr/device/action.hpp"
#include "offload/dr/device/rule.hpp"
#include "offload/dr/install/meter_set.hpp"
#include "offload/dr/install/table_set.hpp"
#include "offload/dr/install/work_set.hpp"

namespace ovsdr::dr {

class ActionCache {
public:
    /// The meters outlive the cache.
    ActionCache(std::shared_ptr<Domain> fdb, std::shared_ptr<TableSet> tables, MeterSet& meters,
                std::shared_ptr<WorkSet> works) noexcept;

    /// Everything that a rule in a table of `level` does, behind its counter.
    [[nodiscard]] Result<ActionList> actions_for(const Path& path, VportId source, std::uint32_t level) noexcept;
    [[nodiscard]] Result<ActionRef> to_vport(VportId vport);   ///< may throw std::bad_alloc

private:
    using Key = std::string;
    /// Where a path begins, as far as its actions depend on it.
    struct Start {
        VportId source;          ///< of paths with branches, else 0
        std::uint32_t level;     ///< of the megaflow's table, for paths with branches or tables, else 0
        unsigned depth;          ///< private tables in between
        friend auto operator<=>(const Start&, const Start&) = default;
    };
    struct List {
        Start start;
        Path path;
        std::weak_ptr<const std::vector<ActionRef>> actions;
        [[nodiscard]] bool expired() const noexcept { return actions.expired(); }
    };
    /// Those of equal hash, of which there is hardly ever more than one.
    using Lists = std::unordered_multimap<std::size_t, List>;
    /// NULL: nobody has such a list.
    [[nodiscard]] ActionList find(std::size_t hash, Start start, const Path& path);
    void remember(std::size_t hash, List list);
    template <typename Make>
    [[nodiscard]] Result<ActionRef> cached(const Key& key, Make&& make);

    // With making_.
    [[nodiscard]] Result<ActionRef> to_vport_locked(VportId vport);
    [[nodiscard]] Result<std::vector<ActionRef>> make_list(const Path& path, Start start);
    [[nodiscard]] Result<void> append_changes(std::vector<ActionRef>& actions, const Changes& changes);
    [[nodiscard]] Result<ActionRef> end_of(const Path& path, Start start);
    [[nodiscard]] Result<ActionRef> branch(const Path& path, Start start);
    [[nodiscard]] Result<Action::Next> make_private_table(const Path& path, Start start);
    [[nodiscard]] Result<std::vector<ActionRef>> copied(const Path& path, Start start);
    [[nodiscard]] Result<std::vector<ActionRef>> metered(const Path& path, Start start);
    [[nodiscard]] Result<ActionRef> make_by_colour(const Path& path, std::shared_ptr<DeviceMeter> meter, Start start);

    std::shared_ptr<Domain> fdb_;
    std::shared_ptr<TableSet> tables_;
    MeterSet& meters_;
    std::shared_ptr<WorkSet> works_;
    std::mutex making_;                 ///< held across the device's commands; guards actions_
    std::map<Key, std::weak_ptr<Action>> actions_;
    std::size_t prune_at_ = 64;         ///< when there are so many actions; lists likewise

    std::mutex mutex_;                  ///< taken last and held for a moment: guards lists_
    Lists lists_;
    std::size_t prune_lists_at_ = 64;
};

}  // namespace ovsdr::dr
