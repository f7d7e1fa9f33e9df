// Actions by content: one dest_vport per vport, one push_vlan per tag, one dest_array per set of destinations.
//
// Model. Arrays are several firmware objects each, so megaflows with the same outputs share one. The cache holds its
// actions weakly: the last rule that uses an action destroys it.
//
// A changed leg of several (see compile/plan.hpp) is a branch: a private table at branch_level with one rule that matches
// the source vport, does the leg's operations and sends the copy on. Branches are shared by (source, leg) and go with
// their last user.
//
// Threads: any; creation is serialised. Errors: the device's.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "offload/dr/device/action.hpp"
#include "offload/dr/device/rule.hpp"
#include "offload/dr/compile/plan.hpp"

namespace ovsdr::dr {

class ActionCache {
public:
    /// `branch_level`: above the table of the megaflows.
    ActionCache(std::shared_ptr<Domain> fdb, std::uint32_t branch_level) noexcept;

    /// Everything that the plan's rule does, behind its counter.
    [[nodiscard]] Result<ActionList> actions_for(const RulePlan& plan) noexcept;
    [[nodiscard]] Result<ActionRef> to_vport(VportId vport);   ///< may throw std::bad_alloc

private:
    using Key = std::string;
    /// All that the list depends on.
    struct ListKey {
        VportId source;   ///< of several legs, else 0
        std::vector<Leg> legs;
        friend auto operator<=>(const ListKey&, const ListKey&) = default;
    };
    [[nodiscard]] Result<std::vector<ActionRef>> make_list(const RulePlan& plan);
    template <typename Make>
    [[nodiscard]] Result<ActionRef> cached(const Key& key, Make&& make);

    [[nodiscard]] Result<ActionRef> to_vport_locked(VportId vport);
    [[nodiscard]] Result<ActionRef> to_outputs(const std::vector<VportId>& outputs);
    [[nodiscard]] Result<std::vector<ActionRef>> leg_actions(const Leg& leg);
    [[nodiscard]] Result<ActionRef> branch(const Leg& leg, VportId source);
    [[nodiscard]] Result<ActionRef> make_branch(const Leg& leg, VportId source);
    [[nodiscard]] Result<ActionRef> to_legs(const RulePlan& plan);

    std::shared_ptr<Domain> fdb_;
    std::uint32_t branch_level_;
    std::mutex mutex_;
    std::map<Key, std::weak_ptr<Action>> actions_;
    std::map<ListKey, std::weak_ptr<const std::vector<ActionRef>>> lists_;
    std::size_t prune_at_ = 64;         ///< when there are so many actions; lists likewise
    std::size_t prune_lists_at_ = 64;
};

}  // namespace ovsdr::dr
