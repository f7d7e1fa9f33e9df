#include "datapath/steering/dr_matcher.hpp"

#include <cerrno>

#include "datapath/steering/steering_impl.hpp"

namespace ovsdr::soft {

int Matcher::create(Table& table, std::uint16_t priority, std::uint8_t criteria, std::span<const std::uint8_t> given,
                    std::unique_ptr<Matcher>& matcher) {
    if (const int error = create_ranked(table, rank::of_priority(priority), criteria, given, matcher); error != 0) {
        return error;
    }
    matcher->priority_ = priority;
    return 0;
}

int Matcher::create_ranked(Table& table, std::uint32_t rank, std::uint8_t criteria, std::span<const std::uint8_t> given,
                           std::unique_ptr<Matcher>& matcher) {
    const MatchSpec spec{.domain = table.domain().type(),
                         .root = table.root(),
                         .criteria = criteria,
                         .profile = &table.domain().steering().profile()};
    MatchMask mask;
    if (const int error = make_mask(spec, given, mask); error != 0) return error;
    Room::Share room = table.domain().steering().impl().room.take(Resource::matchers);
    if (!room) return ENOMEM;
    auto view = std::make_unique<MatcherView>(mask.key);
    view->rank = rank;
    view->of_nic_tx = spec.domain == DomainType::nic_tx;
    matcher.reset(new Matcher(table, mask, std::move(view)));
    room.keep();
    return 0;
}

Matcher::Matcher(Table& table, const MatchMask& mask, std::unique_ptr<MatcherView> view)
    : table_(table), mask_(mask), view_(view.release()) {
    table.refer();
    Steering::Impl& impl = table.domain().steering().impl();
    {
        const auto lock = impl.unchanged();
        impl.add_matcher(*this, table.walked(), table.published());
    }
    const std::lock_guard lock(table.domain().tables_mutex());
    table.matchers().push_back(this);
}

Matcher::~Matcher() {
    Steering::Impl& impl = table_.domain().steering().impl();
    {
        const std::lock_guard lock(table_.domain().tables_mutex());
        std::erase(table_.matchers(), this);
    }
    {
        const auto lock = impl.unchanged();
        impl.remove_matcher(*this, table_.walked(), table_.published());
        impl.rcu.retire(view_);
        impl.room.give_back(Resource::matchers);
    }
    table_.forget();
}

void Matcher::set_layout(const Layout& layout) {
    Steering::Impl& impl = table_.domain().steering().impl();
    const std::lock_guard lock(table_.domain().tables_mutex());
    if (layout.rules) view_->rules.reserve(*layout.rules, impl.rcu);
    view_->rules.fix_size(!layout.resizable);
}

}  // namespace ovsdr::soft
