#include "offload/dr/install/work_set.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

/// Whoever asked the device just before a mirror began may have less than that.
std::uint64_t since(const std::atomic<std::uint64_t>& first, std::uint64_t now) noexcept {
    const std::uint64_t before = first.load(std::memory_order_relaxed);
    return now > before ? now - before : 0;
}

}  // namespace

/// Destroyed when no rule marks packets with it: those that have its mark have come down since (drain).
struct WorkSet::Known {
    Known(std::shared_ptr<WorkSet> its_set, std::shared_ptr<const InstalledWork> its_work, std::uint32_t its_id,
          std::uint32_t its_rate) noexcept
        : set(std::move(its_set)), work(std::move(its_work)), id(its_id), one_of(its_rate) {}
    ~Known() {
        named = Rule();
        if (set != nullptr) set->gone(*this);
    }
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;

    std::shared_ptr<WorkSet> set;   ///< none: the device did not make it whole
    const std::shared_ptr<const InstalledWork> work;
    const std::uint32_t id;
    const std::uint32_t one_of;
    Counter copies;
    Rule named;                     ///< NIC_RX
    ActionRef mark;
};

WorkSet::WorkSet(std::shared_ptr<Domain> fdb, Landing& landing, std::shared_ptr<LandingIds> ids,
                 CounterPool& counters) noexcept
    : fdb_(std::move(fdb)), landing_(landing), ids_(std::move(ids)), counters_(counters) {}

/// In the FDB, for copies of all kinds.
Result<void> WorkSet::make_table(std::uint32_t level) {
    std::shared_ptr<MatcherSet> copies;
    ActionRef to_copies, miss;
    Rule missing;
    Result<void> made = take_table(copies, fdb_, level);
    if (made) made = take(to_copies, Action::to_table(copies->shared_table()));
    if (made) made = take(miss, Action::default_miss());
    if (made) made = take(missing, make_rule(*copies, {{}, 0}, {}, {std::move(miss)}));
    if (made) made = fdb_->wait_written();
    if (!made) return made;
    copies_ = std::move(copies);
    to_copies_ = std::move(to_copies);
    miss_ = std::move(missing);
    has_table_.store(true, std::memory_order_release);
    return made;
}

Result<void> WorkSet::make_tables(CopyKind kind, std::uint32_t level) {
    Queue& queue = queues_[index_of(kind)];
    Counter led_up, filtered;
    Result<void> made = take(led_up, counters_.acquire(0, false));
    if (made && is_mirror(kind)) made = take(filtered, counters_.acquire(0, false));
    if (made && !has_table_.load(std::memory_order_acquire)) made = make_table(level);
    if (made) made = landing_.make_copies(kind);
    if (!made) return made;
    queue.led_up = std::move(led_up);
    queue.filtered = std::move(filtered);
    queue.has_tables.store(true, std::memory_order_release);
    return made;
}

Result<void> WorkSet::lead(CopyKind kind, std::uint32_t level, ibv_qp* qp) {
    Queue& queue = queues_[index_of(kind)];
    Result<void> made;
    if (!queue.has_tables.load(std::memory_order_acquire)) made = make_tables(kind, level);
    ActionRef to_qp;
    if (made) made = take(to_qp, Action::to_queue_pair(qp));
    if (made && is_mirror(kind) && !queue.rules) {   // another one's: the counters are the kind's
        queue.first_led_up.store(counters_.read_now(queue.led_up).packets, std::memory_order_relaxed);
        queue.first_filtered.store(counters_.read_now(queue.filtered).packets, std::memory_order_relaxed);
    }
    if (made) made = replace_rules(kind, std::move(to_qp), queue.services);
    return made;
}

Result<void> WorkSet::make_rules(CopyKind kind, std::uint16_t range, const ActionRef& to_qp, const Services& services,
                                 QueueRules& rules) {
    const Queue& queue = queues_[index_of(kind)];
    const Landing::CopiesPlace place{kind, range, queue.led_up.action()};
    rules.to_queue.reserve(services.empty() ? 1 : Landing::rules_of_service * services.size());
    if (services.empty()) {
        Rule all;
        auto made = take(all, landing_.to_copies_queue(place, to_qp));
        if (made) rules.to_queue.push_back(std::move(all));
        return made;
    }
    Result<void> made;
    for (const MirrorSteering::Service& service : services) {
        if (made) made = landing_.to_copies_queue(place, service, to_qp, rules.to_queue);
    }
    if (made) {
        made = take(rules.drop_others, landing_.drop_other_copies({kind, range, queue.filtered.action()}));
    }
    return made;
}

Result<void> WorkSet::replace_rules(CopyKind kind, ActionRef to_qp, const Services& services) {
    Queue& queue = queues_[index_of(kind)];
    const auto range = static_cast<std::uint16_t>(queue.rules ? 1 - queue.range : 0);
    QueueRules rules;
    Result<void> made;
    try {
        made = make_rules(kind, range, to_qp, services, rules);
    } catch (const std::bad_alloc&) {
        end(rules);
        throw;
    }
    if (made) made = landing_.domain().wait_written();
    if (made) {
        std::swap(queue.rules, rules);
        queue.range = range;
        queue.to_qp = std::move(to_qp);
    }
    // The rules that go may lead copies to their queue: the one before's, or after an error the new one's.
    end(rules);
    return made;
}

/// First the one that drops: what it would have dropped finds others behind it, and what the first ones take finds no
/// other before them.
void WorkSet::end(QueueRules& rules) noexcept {
    if (!rules) return;
    rules.drop_others = Rule();
    rules.to_queue.clear();
    (void)landing_.domain().drain();   // a device that fails here has been asked twice
}

Result<void> WorkSet::set_services(CopyKind kind, Services services) {
    Queue& queue = queues_[index_of(kind)];
    std::ranges::sort(services);
    services.erase(std::unique(services.begin(), services.end()), services.end());
    if (services == queue.services) return {};
    if (queue.rules) {
        if (auto replaced = replace_rules(kind, queue.to_qp, services); !replaced) return replaced;
    }
    queue.services = std::move(services);
    return {};
}

void WorkSet::stop(CopyKind kind) noexcept {
    Queue& queue = queues_[index_of(kind)];
    if (!queue.rules) return;
    // First the FDB and then NIC_RX, as packets go. A device that fails here has been asked twice.
    (void)fdb_->drain();
    (void)landing_.domain().drain();
    end(queue.rules);
    queue.to_qp = {};
}

Result<ActionRef> WorkSet::mark(const SoftwareCopy& copy) {
    std::shared_ptr<Known> known;   // let go of without the lock, which its end takes
    std::unique_lock lock(mutex_);
    if (const auto found = works_.find(copy); found != works_.end()) known = found->second.lock();
    if (known == nullptr) {
        auto made = make(copy);
        if (!made) {
            lock.unlock();
            return tl::unexpected(std::move(made.error()));
        }
        known = std::move(*made);
        works_[copy] = known;
    }
    ActionRef mark(known, known->mark.get());
    lock.unlock();
    return mark;
}

Result<std::shared_ptr<WorkSet::Known>> WorkSet::make(const SoftwareCopy& copy) {
    const SoftwareWork& work = copy.work;
    auto shared = std::make_shared<const InstalledWork>(work, sampler_of(copy));
    auto known = std::make_shared<Known>(nullptr, shared, ids_->give(shared), copy.one_of);
    const HeaderWrite mark{HeaderField::metadata_reg_c_1, Landing::mark_of(known->id), UINT32_MAX};
    Result<void> made = take(known->copies, counters_.acquire(0, false));
    if (made) made = take(known->named, landing_.name_work(work.kind, known->id, known->copies.action()));
    if (made) made = take(known->mark, Action::modify_header(fdb_, std::array{mark}));
    // Before a packet is marked, what takes it up must be in the device.
    if (made) made = landing_.domain().wait_written();
    if (!made) {
        ids_->take_back(known->id);
        return tl::unexpected(std::move(made.error()));
    }
    known->set = shared_from_this();
    return known;
}

std::shared_ptr<const SamplerCount> WorkSet::sampler_of(const SoftwareCopy& copy) {
    if (copy.work.sampler.empty()) return nullptr;
    const auto is_its = [&](const auto& count) {
        return count->sampler == copy.work.sampler && count->one_of == copy.one_of;
    };
    const auto found = std::ranges::find_if(samplers_, is_its);
    if (found != samplers_.end()) return *found;
    return samplers_.emplace_back(std::make_shared<const SamplerCount>(copy.work.sampler, copy.one_of));
}

void WorkSet::gone(const Known& known) noexcept {
    {
        std::lock_guard lock(mutex_);
        const auto found = works_.find({known.one_of, *known.work});
        if (found != works_.end() && found->second.expired()) works_.erase(found);
    }
    ids_->gone(known.id);
}

std::uint32_t WorkSet::id_of(const SoftwareCopy& copy) const {
    std::shared_ptr<Known> known;
    std::lock_guard lock(mutex_);
    if (const auto found = works_.find(copy); found != works_.end()) known = found->second.lock();
    return known == nullptr ? 0 : known->id;
}

std::uint64_t WorkSet::copies(CopyKind kind) noexcept {
    Queue& queue = queues_[index_of(kind)];
    if (!queue.has_tables.load(std::memory_order_acquire)) return 0;
    return since(queue.first_led_up, counters_.read_now(queue.led_up).packets);
}

std::uint64_t WorkSet::filtered(CopyKind kind) noexcept {
    Queue& queue = queues_[index_of(kind)];
    const bool filters = is_mirror(kind) && queue.has_tables.load(std::memory_order_acquire);
    return filters ? since(queue.first_filtered, counters_.read_now(queue.filtered).packets) : 0;
}

std::vector<std::shared_ptr<WorkSet::Known>> WorkSet::known() const {
    std::vector<std::shared_ptr<Known>> all;
    std::lock_guard lock(mutex_);
    for (const auto& [work, weak] : works_) {
        if (auto known = weak.lock()) all.push_back(std::move(known));
    }
    return all;
}

std::vector<WorkSet::Row> WorkSet::rows() {
    const auto all = known();
    std::vector<const Counter*> counters;
    for (const auto& each : all) counters.push_back(&each->copies);
    counters_.read_now(counters);
    std::vector<Row> rows;
    for (const auto& each : all) rows.push_back({each->id, each->work, each->copies.read().packets});
    std::ranges::sort(rows, {}, &Row::id);
    return rows;
}

std::vector<std::shared_ptr<const SamplerCount>> WorkSet::samplers() const {
    std::lock_guard lock(mutex_);
    return samplers_;
}

std::shared_ptr<const MatcherSet> WorkSet::table() const noexcept {
    return has_table_.load(std::memory_order_acquire) ? copies_ : nullptr;
}

}  // namespace ovsdr::dr
