#include "datapath/steering/flow_tables.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

namespace ovsdr::soft {

/// One rule and the flows that share it.
struct FlowTables::Entry {
    /// What one flow adds.
    struct Share {
        const Flow* flow;
        Receiver receiver;
        bool goes_on;
        std::shared_ptr<CounterBulk> counters;
        std::uint32_t counter;
    };

    /// A rule and the actions made for it. It refers to them, and an array, made last, to its branches.
    struct Installed {
        Installed() = default;
        Installed(Installed&&) = default;
        Installed& operator=(Installed&&) = default;
        ~Installed() {
            rule.reset();
            while (!owned.empty()) owned.pop_back();
        }
        std::vector<Action::Created> owned;
        std::unique_ptr<Rule> rule;
    };

    FlowRequest::Fate fate;
    std::optional<std::uint32_t> tag;
    std::vector<std::shared_ptr<Action>> rewrites;
    std::list<Share> shares;
    Installed installed;

    [[nodiscard]] bool agrees_with(const FlowRequest& request) const noexcept {
        if (request.fate != fate || (request.tag && request.tag != tag)) return false;
        return request.rewrites.empty() && rewrites.empty();
    }

    [[nodiscard]] int install(Domain& domain, const Place& place, Matcher& matcher,
                              std::span<const std::uint8_t> value);
    [[nodiscard]] int list_ends(Domain& domain, std::uint32_t rank, Installed& next, std::vector<Action*>& list) const;
};

/// The end of the rule and its counters: an array where one action of each kind would not do.
int FlowTables::Entry::list_ends(Domain& domain, std::uint32_t rank, Installed& next,
                                 std::vector<Action*>& list) const {
    std::vector<Action*> branches;
    std::vector<void*> seen;
    bool goes_on = false;
    for (const Share& share : shares) {
        goes_on = goes_on || share.goes_on;
        if (share.counters != nullptr) {
            if (const int error = Action::counter(share.counters, share.counter, next.owned.emplace_back());
                error != 0) {
                return error;
            }
            branches.push_back(next.owned.back().get());
        }
        void* const object = share.receiver.object;
        if (object == nullptr || std::find(seen.begin(), seen.end(), object) != seen.end()) continue;
        seen.push_back(object);
        branches.push_back(next.owned.emplace_back(Action::receiver(share.receiver)).get());
    }
    const auto counted = static_cast<unsigned>(branches.size() - seen.size());
    if (goes_on || seen.size() > 1 || counted > 1 || (!seen.empty() && domain.type() != DomainType::nic_rx)) {
        if (fate == FlowRequest::Fate::next_namespace) return EOPNOTSUPP;
        const std::optional<std::uint32_t> next_rank = goes_on ? std::optional(rank + 1) : std::nullopt;
        Action::Created array;
        if (const int error = Action::flow_array(domain, branches, next_rank, array); error != 0) return error;
        list.push_back(next.owned.emplace_back(std::move(array)).get());
        return 0;
    }
    list.insert(list.end(), branches.begin(), branches.end());
    if (fate == FlowRequest::Fate::drop) list.push_back(next.owned.emplace_back(Action::drop()).get());
    if (fate == FlowRequest::Fate::next_namespace) {
        list.push_back(next.owned.emplace_back(Action::default_miss()).get());
    }
    return 0;
}

int FlowTables::Entry::install(Domain& domain, const Place& place, Matcher& matcher,
                               std::span<const std::uint8_t> value) {
    Installed next;
    std::vector<Action*> list;
    for (const std::shared_ptr<Action>& rewrite : rewrites) list.push_back(rewrite.get());
    if (tag) list.push_back(next.owned.emplace_back(Action::tag(*tag)).get());
    if (const int error = list_ends(domain, place.rank, next, list); error != 0) return error;
    const int error = installed.rule ? Rule::create_successor(*installed.rule, value, list, next.rule)
                                     : Rule::create(matcher, value, list, next.rule);
    if (error == 0) std::swap(installed, next);
    return error;
}

FlowTables::FlowTables(Steering& steering)
    : kernel_{Kernel{steering, DomainType::nic_rx}, Kernel{steering, DomainType::nic_tx},
              Kernel{steering, DomainType::fdb}} {}

FlowTables::~FlowTables() = default;

int FlowTables::find_group(const Place& place, Group*& group) {
    const auto found = groups_.find(place);
    if (found != groups_.end()) {
        group = &found->second;
        return 0;
    }
    Group made;
    Table& table = kernel_[static_cast<unsigned>(place.domain)].table;
    if (const int error = Matcher::create_ranked(table, place.rank, place.criteria, place.mask, made.matcher)) {
        return error;
    }
    group = &groups_.emplace(place, std::move(made)).first->second;
    return 0;
}

void FlowTables::drop_if_unused(const Place& place) noexcept {
    const auto found = groups_.find(place);
    if (found != groups_.end() && found->second.entries.empty()) groups_.erase(found);
}

int FlowTables::create(const FlowRequest& request, std::unique_ptr<Flow>& flow) {
    const Place place{request.domain, request.rank, request.criteria, {request.mask.begin(), request.mask.end()}};
    std::unique_ptr<Flow> made;
    const std::lock_guard lock(mutex_);
    Group* group = nullptr;
    if (const int error = find_group(place, group); error != 0) return error;
    std::vector<std::uint8_t> value(request.value.begin(), request.value.end());
    const auto [position, fresh] = group->entries.try_emplace(value);
    auto& entry = position->second;
    if (fresh) entry = std::make_unique<Entry>(Entry{request.fate, request.tag, request.rewrites, {}, {}});
    int error = fresh || entry->agrees_with(request) ? 0 : EEXIST;
    if (error == 0) {
        made.reset(new Flow(place, std::move(value)));
        entry->shares.push_back({made.get(), request.receiver, request.goes_on, request.counters, request.counter});
        error = entry->install(kernel_[static_cast<unsigned>(request.domain)].domain, place, *group->matcher,
                               request.value);
        if (error != 0) entry->shares.pop_back();
    }
    if (error != 0) {
        if (fresh) group->entries.erase(position);
        drop_if_unused(place);
        return error;
    }
    made->tables_ = this;
    flow = std::move(made);
    return 0;
}

void FlowTables::remove(Flow& flow) noexcept {
    const std::lock_guard lock(mutex_);
    const auto group = groups_.find(flow.place_);
    const auto found = group->second.entries.find(flow.value_);
    Entry& entry = *found->second;
    entry.shares.remove_if([&](const Entry::Share& share) { return share.flow == &flow; });
    if (!entry.shares.empty()) {
        // Fewer branches than before need nothing new but memory; where there is none, all of them go.
        Domain& domain = kernel_[static_cast<unsigned>(flow.place_.domain)].domain;
        int error = ENOMEM;
        try {
            error = entry.install(domain, flow.place_, *group->second.matcher, flow.value_);
        } catch (const std::bad_alloc&) {
        }
        if (error != 0) {
            const Entry::Installed gone = std::move(entry.installed);  // its rule goes before its actions
        }
        return;
    }
    group->second.entries.erase(found);
    drop_if_unused(flow.place_);
}

}  // namespace ovsdr::soft
