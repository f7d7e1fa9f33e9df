#include "offload/dr/device/rule.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include "offload/dr/device/leak.hpp"

namespace ovsdr::dr {

namespace {
constexpr std::size_t max_actions = 16;
}

Result<Rule> Rule::create(MatcherRef matcher, const MatchParam& value, ActionList actions,
                          mlx5dv_dr_action* counter) noexcept {
    std::array<mlx5dv_dr_action*, max_actions> list;
    std::size_t length = 0;
    if (counter != nullptr) list[length++] = counter;
    if (length + actions->size() > list.size()) {
        return tl::unexpected(Error{E2BIG, "a rule with more actions than a device takes", "a rule's actions"});
    }
    for (const ActionRef& action : *actions) list[length++] = action->get();
    ProviderMatch match(value, matcher.criteria());
    mlx5dv_dr_rule* created = mlx5dv_dr_rule_create(matcher.get(), match.get(), length, list.data());
    if (created == nullptr) return tl::unexpected(failure(errno, "mlx5dv_dr_rule_create"));
    return Rule(std::move(matcher), std::move(actions), created);
}

Rule::~Rule() { end(); }

bool Rule::end() noexcept {
    mlx5dv_dr_rule* const rule = std::exchange(rule_, nullptr);
    return rule == nullptr || destroyed([rule] { return mlx5dv_dr_rule_destroy(rule); });
}

Rule::Rule(Rule&& other) noexcept
    : rule_(std::exchange(other.rule_, nullptr)),
      actions_(std::move(other.actions_)),
      matcher_(std::move(other.matcher_)) {}

Rule& Rule::operator=(Rule&& other) noexcept {
    end();
    matcher_ = std::move(other.matcher_);
    actions_ = std::move(other.actions_);
    rule_ = std::exchange(other.rule_, nullptr);
    return *this;
}

}  // namespace ovsdr::dr
