// Work for software in a device: what marks a copy with it, and how copies come up.
//
//   FDB copies      everything                   → default miss (the manager)
//   NIC_RX by table reg_c_1 = mark of the work   → count, tag(work's id), copies of its kind
//   NIC_RX copies   everything, or a mirror's services → count, the queue for copies of this kind
//
// Model. A rule that copies each packet marks one of two copies and leads it to the FDB's table of copies; one that
// samples marks the packet and lets the sampler miss (action_cache.hpp). Work is shared by content and rate: it has an
// id and a rule in NIC_RX as long as rules mark packets with it. The tables of a kind are made when there is a queue
// for it for the first time. What samplers count outlives work, since a sampler's megaflows come and go.
//
// A queue may be replaced while copies come up, and so may a mirror's filter: the new rules have the other of two
// ranges of priorities (landing.hpp).
//
// Threads: any; lead(), stop() and set_services() one at a time, and mark() while there is a queue of the work's kind.
// Errors: the device's.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "offload/dr/install/counter.hpp"
#include "offload/dr/install/landing.hpp"
#include "offload/dr/install/landing_ids.hpp"

namespace ovsdr::dr {

class WorkSet : public std::enable_shared_from_this<WorkSet> {
public:
    /// The landing and the counters outlive all work.
    WorkSet(std::shared_ptr<Domain> fdb, Landing& landing, std::shared_ptr<LandingIds> ids,
            CounterPool& counters) noexcept;

    /// Copies go to this queue from now on, and none is under way to the one before when this returns. May throw
    /// std::bad_alloc; all is as it was then, and after an error. But until an error returns the new queue may have got
    /// copies, which the one before has not got; no more come.
    [[nodiscard]] Result<void> lead(CopyKind kind, std::uint32_t level, ibv_qp* queue);
    /// Such copies are lost from now on, and none is under way when this returns.
    void stop(CopyKind kind) noexcept;

    /// A mirror's queue gets copies of these services only; none: all copies. Of those that come up meanwhile each is
    /// treated as before or as asked. May throw std::bad_alloc; all is as it was then, and after an error.
    [[nodiscard]] Result<void> set_services(CopyKind kind, std::vector<MirrorSteering::Service> services);

    /// What marks a packet for this copy's work. The work is in the device as long as the action is there.
    [[nodiscard]] Result<ActionRef> mark(const SoftwareCopy& copy);
    /// Leads a copy that has been marked up.
    [[nodiscard]] const ActionRef& to_copies() const noexcept { return to_copies_; }

    /// 0: it is in no device.
    [[nodiscard]] std::uint32_t id_of(const SoftwareCopy& copy) const;
    /// That came to such a queue, asked of the device. A mirror's begin at 0 when it gets a queue and had none.
    [[nodiscard]] std::uint64_t copies(CopyKind kind) noexcept;
    /// That a mirror's filter dropped, asked of the device.
    [[nodiscard]] std::uint64_t filtered(CopyKind kind) noexcept;
    struct Row {
        std::uint32_t id;
        std::shared_ptr<const InstalledWork> work;
        std::uint64_t copies;   ///< that went to the queue or its filter, asked of the device
    };
    /// Of all work that is in the device, by id.
    [[nodiscard]] std::vector<Row> rows();
    /// Of all samplers and rates that there have been, in the order in which they came.
    [[nodiscard]] std::vector<std::shared_ptr<const SamplerCount>> samplers() const;
    /// For people. NULL: there has been no queue.
    [[nodiscard]] std::shared_ptr<const MatcherSet> table() const noexcept;

private:
    struct Known;
    using Works = std::map<SoftwareCopy, std::weak_ptr<Known>>;

    using Services = std::vector<MirrorSteering::Service>;
    /// Of a queue, in NIC_RX.
    struct QueueRules {
        std::vector<Rule> to_queue;
        Rule drop_others{};
        [[nodiscard]] explicit operator bool() const noexcept { return !to_queue.empty(); }
    };
    struct Queue {
        std::atomic<bool> has_tables{false};
        Counter led_up, filtered;          ///< the second one is a mirror's
        std::atomic<std::uint64_t> first_led_up{0}, first_filtered{0};   ///< when its mirror began
        Services services;                 ///< ascending, each once
        ActionRef to_qp;                   ///< none: no queue
        QueueRules rules;
        std::uint16_t range = 0;           ///< of the rules' priorities
    };

    [[nodiscard]] Result<void> make_table(std::uint32_t level);
    [[nodiscard]] Result<void> make_tables(CopyKind kind, std::uint32_t level);
    [[nodiscard]] Result<void> make_rules(CopyKind kind, std::uint16_t range, const ActionRef& to_qp,
                                          const Services& services, QueueRules& rules);
    /// By rules that lead there, if such come.
    [[nodiscard]] Result<void> replace_rules(CopyKind kind, ActionRef to_qp, const Services& services);
    /// Nothing is under way by the rules when this returns.
    void end(QueueRules& rules) noexcept;
    /// Such as rules use, held.
    [[nodiscard]] std::vector<std::shared_ptr<Known>> known() const;
    [[nodiscard]] Result<std::shared_ptr<Known>> make(const SoftwareCopy& copy);
    /// None: the copy is for nobody who samples.
    [[nodiscard]] std::shared_ptr<const SamplerCount> sampler_of(const SoftwareCopy& copy);
    void gone(const Known& known) noexcept;

    std::shared_ptr<Domain> fdb_;
    Landing& landing_;
    std::shared_ptr<LandingIds> ids_;
    CounterPool& counters_;

    std::atomic<bool> has_table_{false};
    std::shared_ptr<MatcherSet> copies_;   ///< in the FDB
    ActionRef to_copies_;
    Rule miss_;
    PerCopyKind<Queue> queues_;

    mutable std::mutex mutex_;             ///< held while work is put into the device
    Works works_;
    std::vector<std::shared_ptr<const SamplerCount>> samplers_;
};

}  // namespace ovsdr::dr
