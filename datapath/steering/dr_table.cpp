#include "datapath/steering/dr_table.hpp"

#include <malloc.h>

#include <new>

#include "datapath/steering/dr_matcher.hpp"
#include "datapath/steering/steering_impl.hpp"

namespace ovsdr::soft {

void Domain::free_cached_memory() {
    Steering::Impl& impl = steering_.impl();
    const bool reclaim = reclaims_memory();
    if (reclaim) {
        const std::lock_guard lock(tables_mutex_);
        for (Table* table : tables_) {
            for (Matcher* matcher : table->matchers()) matcher->view().rules.shrink(impl.rcu);
        }
    }
    impl.rcu.drain();
    if (!reclaim) return;
    impl.rule_blocks.trim();
    malloc_trim(0);
}

Table::Table(Domain& domain, std::uint32_t level) : domain_(domain), level_(level) {
    if (!root()) {
        Room::Share room = domain.steering().impl().room.take(Resource::tables);
        if (!room) throw std::bad_alloc();
        view_ = new TableView;
        room.keep();
    }
    const std::lock_guard lock(domain.tables_mutex());
    domain.tables().push_back(this);
    domain.refer();
}

Table::~Table() {
    if (view_ != nullptr) {
        domain_.steering().impl().rcu.retire(view_);
        domain_.steering().impl().room.give_back(Resource::tables);
    }
    {
        const std::lock_guard lock(domain_.tables_mutex());
        std::erase(domain_.tables(), this);
    }
    domain_.forget();   // last: whoever waits for it destroys the domain, and the lock
}

std::vector<Matcher*>& Table::walked() noexcept {
    if (!root()) return walked_;
    return domain_.steering().impl().root_matchers[static_cast<unsigned>(domain_.type())];
}

std::atomic<const MatcherList*>& Table::published() noexcept {
    if (!root()) return view_->matchers;
    return domain_.steering().impl().root_lists[static_cast<unsigned>(domain_.type())];
}

}  // namespace ovsdr::soft
