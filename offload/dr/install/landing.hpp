// Where what missed in the FDB comes down: NIC_RX's tables, from the manager's root to a port's slow-path queue.
//
//   root      vport bits of reg_c_0, reg_c_1 is a mark of ours   → by table
//   by table  reg_c_1 = mark of the table                        → tag(table's id), by port
//   by port   vport bits of reg_c_0                              → count, the port's slow-path QP
//
// A port with several receive queues has more rules by port, for the kinds of packets that are hashed:
//
//             vport bits, IP version, TCP or UDP                 → count, the TIR of the kind
//             vport bits, IP version                             → count, the TIR of the kind
//
// Copies for software (work_set.hpp) have queues of their own, one for each CopyKind, with a table in front of it:
//
//   by table  reg_c_1 = mark of the work                         → count, tag(work's id), copies
//   copies    everything                                         → count, the queue for copies
//
// A storage mirror may want some services only, and its table of copies is the filter. Of a tunnel's packet the outer
// headers are looked at; a fragment has no ports to a device, so it is dropped:
//
//   copies    IP version, TCP or UDP, source or destination port → count, the mirror's queue
//   copies    everything                                         → count, drop
//
// So a table of megaflows costs one rule here, and so does a port. Devices whose NIC_RX has only its root
// (DeviceCaps::recirculates) have one table of megaflows, whose mark the root rule asks for:
//
//   root      vport bits of reg_c_0, reg_c_1 = mark of table 1   → count, tag(1), the port's slow-path QP
//
// A port's queue may be replaced while packets come down: the new queue's rules have the other of two priorities (or of
// two ranges of them), so that at any moment a packet finds exactly one of all, and none after the old queue's have
// gone but the new one's. The same is true of a queue for copies, and of a filter, whose rules come with the one that
// drops as the last and go with that one as the first.
//
// Threads: any. Errors: the device's; may throw std::bad_alloc and leaves nothing behind then.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "offload/dr/device/action.hpp"
#include "offload/dr/device/caps.hpp"
#include "offload/dr/device/rule.hpp"
#include "offload/dr/software.hpp"

namespace ovsdr::dr {

class Landing {
public:
    /// The id of the table that packets enter; 0 is none's.
    static constexpr std::uint32_t entry_id = 1;
    /// What a packet that missed in the table has in reg_c_1. Packets that are not ours have something else there.
    [[nodiscard]] static constexpr std::uint32_t mark_of(std::uint32_t id) noexcept { return ours | id; }

    [[nodiscard]] static Result<std::unique_ptr<Landing>> create(const std::shared_ptr<Device>& device,
                                                                 const DeviceCaps& caps);

    /// Lets packets that missed in the table come down. Nothing where the device has only one table.
    [[nodiscard]] Result<Rule> name_table(std::uint32_t id);
    /// A table for such copies, if there is none yet. EOPNOTSUPP where NIC_RX has only its root.
    [[nodiscard]] Result<void> make_copies(CopyKind kind);
    /// Lets copies that have the mark of this id come down. There is a table for them. `count`: the caller's.
    [[nodiscard]] Result<Rule> name_work(CopyKind kind, std::uint32_t id, mlx5dv_dr_action* count);
    /// Where copies are led to a queue. There is a table for them.
    struct CopiesPlace {
        CopyKind kind;
        std::uint16_t range;      ///< of priorities: the one of 0 and 1 that the queue before does not have
        mlx5dv_dr_action* count;  ///< the caller's
    };
    /// All copies.
    [[nodiscard]] Result<Rule> to_copies_queue(const CopiesPlace& place, ActionRef queue);
    static constexpr std::size_t rules_of_service = 4;
    /// Of a mirror's those that come from or go to the service, over IPv4 and IPv6: so many rules more. After an error
    /// there may be some of them.
    [[nodiscard]] Result<void> to_copies_queue(const CopiesPlace& place, const MirrorSteering::Service& service,
                                               const ActionRef& queue, std::vector<Rule>& rules);
    /// Behind those of services: drops.
    [[nodiscard]] Result<Rule> drop_other_copies(const CopiesPlace& place);
    /// Whether the rules of this priority in the table of copies drop.
    [[nodiscard]] static bool drops_copies(CopyKind kind, std::uint16_t priority) noexcept;
    /// Lets those of a vport come down. Nothing where to_queue() does.
    [[nodiscard]] Result<Rule> let_down(Device::VportRegister vport);
    struct Place {
        Device::VportRegister vport;
        std::uint16_t priority;   ///< 0 for a port's first queue; one that replaces it has the other of 0 and 1
        mlx5dv_dr_action* count;  ///< the caller's
        bool has_kinds;           ///< there are rules of kinds in front
    };
    [[nodiscard]] Result<Rule> to_queue(const Place& place, ActionRef queue);
    /// `protocol` 0: any. EOPNOTSUPP where NIC_RX has only its root.
    [[nodiscard]] Result<Rule> to_queue_of_kind(const Place& place, std::uint8_t ip_version, std::uint8_t protocol,
                                                ActionRef queue);

    [[nodiscard]] Domain& domain() noexcept { return *domain_; }
    /// NULL: make_copies() has not been called, or not returned.
    [[nodiscard]] std::shared_ptr<const MatcherSet> copies(CopyKind kind) const noexcept {
        const Copies& copies = copies_[index_of(kind)];
        return copies.is_made.load(std::memory_order_acquire) ? copies.table : nullptr;
    }
    /// For people; all but copies().
    [[nodiscard]] std::vector<std::pair<const char*, const MatcherSet*>> tables() const;

private:
    static constexpr std::uint32_t ours = 0xD5000000, ours_mask = 0xFF000000;
    Landing() = default;

    std::shared_ptr<Domain> domain_;
    std::shared_ptr<MatcherSet> root_, by_table_, by_port_;   ///< all but the first: perhaps none
    ActionRef to_by_table_, to_by_port_, tag_of_entry_;
    struct Copies {
        std::atomic<bool> is_made{false};    ///< what follows is there, and stays
        std::shared_ptr<MatcherSet> table;
        ActionRef to_table;
    };
    PerCopyKind<Copies> copies_;
    [[nodiscard]] Result<Rule> name(std::uint32_t id, const ActionRef& next, mlx5dv_dr_action* count = nullptr);
};

}  // namespace ovsdr::dr
