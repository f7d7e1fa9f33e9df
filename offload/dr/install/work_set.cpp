#include "offload/dr/install/work_set.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

/// Destroyed when no rule marks packets with it: those that have its mark have come down since (drain).
struct WorkSet::Known {
    Known(std::shared_ptr<WorkSet> its_set, std::shared_ptr<const InstalledWork> its_work,
          std::uint32_t its_id) noexcept
        : set(std::move(its_set)), work(std::move(its_work)), id(its_id) {}
    ~Known() {
        named = Rule();
        if (set != nullptr) set->gone(*this);
    }
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;

    std::shared_ptr<WorkSet> set;   ///< none: the device did not make it whole
    const std::shared_ptr<const InstalledWork> work;
    const std::uint32_t id;
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
    Counter led_up;
    Result<void> made = take(led_up, counters_.acquire(0, false));
    if (made && !has_table_.load(std::memory_order_acquire)) made = make_table(level);
    if (made) made = landing_.make_copies(kind);
    if (!made) return made;
    queue.led_up = std::move(led_up);
    queue.has_tables.store(true, std::memory_order_release);
    return made;
}

Result<void> WorkSet::lead(CopyKind kind, std::uint32_t level, ibv_qp* qp) {
    Queue& queue = queues_[index_of(kind)];
    Result<void> made;
    if (!queue.has_tables.load(std::memory_order_acquire)) made = make_tables(kind, level);
    ActionRef to_qp;
    Rule rule;
    const auto priority = static_cast<std::uint16_t>(queue.to_queue ? 1 - queue.priority : 0);
    if (made) made = take(to_qp, Action::to_queue_pair(qp));
    if (made) made = take(rule, landing_.to_copies_queue(kind, priority, queue.led_up.action(), std::move(to_qp)));
    if (made) made = landing_.domain().wait_written();
    if (made) std::swap(queue.to_queue, rule);
    if (made) queue.priority = priority;
    // The rule that goes may lead copies to its queue: the one before's, or after an error the new one's.
    if (std::exchange(rule, Rule())) (void)landing_.domain().drain();   // a device that fails here has been asked twice
    return made;
}

void WorkSet::stop(CopyKind kind) noexcept {
    Queue& queue = queues_[index_of(kind)];
    if (!queue.to_queue) return;
    // First the FDB and then NIC_RX, as packets go. A device that fails here has been asked twice.
    (void)fdb_->drain();
    (void)landing_.domain().drain();
    queue.to_queue = Rule();
    (void)landing_.domain().drain();
}

Result<ActionRef> WorkSet::mark(const SoftwareWork& work) {
    std::shared_ptr<Known> known;   // let go of without the lock, which its end takes
    std::unique_lock lock(mutex_);
    if (const auto found = works_.find(work); found != works_.end()) known = found->second.lock();
    if (known == nullptr) {
        auto made = make(work);
        if (!made) {
            lock.unlock();
            return tl::unexpected(std::move(made.error()));
        }
        known = std::move(*made);
        works_[work] = known;
    }
    ActionRef mark(known, known->mark.get());
    lock.unlock();
    return mark;
}

Result<std::shared_ptr<WorkSet::Known>> WorkSet::make(const SoftwareWork& work) {
    auto shared = std::make_shared<const InstalledWork>(work);
    auto known = std::make_shared<Known>(nullptr, shared, ids_->give(shared));
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

void WorkSet::gone(const Known& known) noexcept {
    {
        std::lock_guard lock(mutex_);
        const auto found = works_.find(*known.work);
        if (found != works_.end() && found->second.expired()) works_.erase(found);
    }
    ids_->gone(known.id);
}

std::uint32_t WorkSet::id_of(const SoftwareWork& work) const {
    std::shared_ptr<Known> known;
    std::lock_guard lock(mutex_);
    if (const auto found = works_.find(work); found != works_.end()) known = found->second.lock();
    return known == nullptr ? 0 : known->id;
}

std::uint64_t WorkSet::copies(CopyKind kind) noexcept {
    Queue& queue = queues_[index_of(kind)];
    return queue.has_tables.load(std::memory_order_acquire) ? counters_.settle(queue.led_up).packets : 0;
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
    std::vector<Row> rows;
    for (const auto& each : known()) {
        rows.push_back({each->id, each->work, counters_.settle(each->copies).packets});
    }
    std::ranges::sort(rows, {}, &Row::id);
    return rows;
}

std::shared_ptr<const MatcherSet> WorkSet::table() const noexcept {
    return has_table_.load(std::memory_order_acquire) ? copies_ : nullptr;
}

}  // namespace ovsdr::dr
