#include "offload/dr/install/work_set.hpp"

#include <array>
#include <utility>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

/// Destroyed when no rule marks packets with it: those that have its mark have come down since (drain).
struct WorkSet::Known {
    Known(std::shared_ptr<WorkSet> its_set, std::shared_ptr<const SoftwareWork> its_work, std::uint32_t its_id) noexcept
        : set(std::move(its_set)), work(std::move(its_work)), id(its_id) {}
    ~Known() {
        named = Rule();
        if (set != nullptr) set->gone(*this);
    }
    Known(const Known&) = delete;
    Known& operator=(const Known&) = delete;

    std::shared_ptr<WorkSet> set;   ///< none: the device did not make it whole
    const std::shared_ptr<const SoftwareWork> work;
    const std::uint32_t id;
    Rule named;                     ///< NIC_RX
    ActionRef mark;
};

WorkSet::WorkSet(std::shared_ptr<Domain> fdb, Landing& landing, std::shared_ptr<LandingIds> ids,
                 CounterPool& counters) noexcept
    : fdb_(std::move(fdb)), landing_(landing), ids_(std::move(ids)), counters_(counters) {}

Result<void> WorkSet::make_tables(std::uint32_t level) {
    std::shared_ptr<MatcherSet> copies;
    ActionRef to_copies, miss;
    Counter led_up;
    Rule missing;
    Result<void> made = take(led_up, counters_.acquire(0, false));
    if (made) made = take_table(copies, fdb_, level);
    if (made) made = take(to_copies, Action::to_table(copies->shared_table()));
    if (made) made = take(miss, Action::default_miss());
    if (made) made = take(missing, make_rule(*copies, {{}, 0}, {}, {std::move(miss)}));
    if (made) made = landing_.make_copies();
    if (made) made = fdb_->wait_written();
    if (!made) return made;
    copies_ = std::move(copies);
    to_copies_ = std::move(to_copies);
    led_up_ = std::move(led_up);
    miss_ = std::move(missing);
    has_tables_.store(true, std::memory_order_release);
    return made;
}

Result<void> WorkSet::lead(std::uint32_t level, ibv_qp* queue) {
    Result<void> made;
    if (!has_tables_.load(std::memory_order_acquire)) made = make_tables(level);
    ActionRef to_queue;
    Rule rule;
    const auto priority = static_cast<std::uint16_t>(to_queue_ ? 1 - priority_ : 0);
    if (made) made = take(to_queue, Action::to_queue_pair(queue));
    if (made) made = take(rule, landing_.to_copies_queue(priority, led_up_.action(), std::move(to_queue)));
    if (made) made = landing_.domain().wait_written();
    if (!made) return made;
    to_queue_ = std::move(rule);   // the one before goes
    priority_ = priority;
    (void)landing_.domain().drain();   // a device that fails here has been asked twice
    return made;
}

void WorkSet::stop() noexcept {
    if (!to_queue_) return;
    // First the FDB and then NIC_RX, as packets go. A device that fails here has been asked twice.
    (void)fdb_->drain();
    (void)landing_.domain().drain();
    to_queue_ = Rule();
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
    auto shared = std::make_shared<const SoftwareWork>(work);
    auto known = std::make_shared<Known>(nullptr, shared, ids_->give(shared));
    const HeaderWrite mark{HeaderField::metadata_reg_c_1, Landing::mark_of(known->id), UINT32_MAX};
    Result<void> made = take(known->named, landing_.name_work(known->id));
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

std::uint64_t WorkSet::copies() noexcept {
    return has_tables_.load(std::memory_order_acquire) ? counters_.settle(led_up_).packets : 0;
}

std::shared_ptr<const MatcherSet> WorkSet::table() const noexcept {
    return has_tables_.load(std::memory_order_acquire) ? copies_ : nullptr;
}

}  // namespace ovsdr::dr
