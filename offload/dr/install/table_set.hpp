// The tables of megaflows: one for packets as they come from a vport, one for packets of each tunnel port, one behind
// each recirculation of either.
//
// Model. A FlowTable has an id, which a packet that misses in it takes to software. All but the first are made for the
// first rule that leads to them, and go with the last rule that leads to them or lies in them.
//
// A packet that ends a TCP connection goes up from the first table that it enters, and from that of a tunnel port
// (pipeline.hpp says why).
//
// Levels only ascend (compile/levels.hpp) and never change: a rule that would lead from a higher level than its table's
// has to wait until that table has gone, and so has one that would lead back.
//
// Ids: landing_ids.hpp. key_of() still knows those of many tables that have gone.
//
// Threads: any. `changed` is called when a table has been made, has gone or was told of, with no lock of the
// TableSet's.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "offload/dr/compile/levels.hpp"
#include "offload/dr/ids.hpp"
#include "offload/dr/install/landing.hpp"
#include "offload/dr/install/landing_ids.hpp"

namespace ovsdr::dr {

class TableSet;

class FlowTable {
    struct Private {};   // only TableSet makes them

public:
    /// Matchers by priority: megaflows, and last what no megaflow takes. The first is for rules of the table's maker.
    static constexpr std::uint16_t first_priority = 0, megaflow_priority = 1, last_priority = 2;

    FlowTable(Private, TableKey key, std::uint32_t id, std::shared_ptr<TableSet> set) noexcept;
    ~FlowTable();
    FlowTable(const FlowTable&) = delete;
    FlowTable& operator=(const FlowTable&) = delete;

    [[nodiscard]] TableKey key() const noexcept { return key_; }
    [[nodiscard]] std::uint32_t id() const noexcept { return id_; }
    [[nodiscard]] std::uint32_t level() const noexcept { return matchers_->table().level(); }
    [[nodiscard]] MatcherSet& matchers() const noexcept { return *matchers_; }
    /// Marks a packet as having missed here, and leads it up.
    [[nodiscard]] const std::vector<ActionRef>& to_software() const noexcept { return to_software_; }

private:
    friend class TableSet;
    TableKey key_;
    std::uint32_t id_;
    std::shared_ptr<TableSet> set_;   ///< none: the entry's, or one that the device did not make whole
    std::shared_ptr<MatcherSet> matchers_;
    std::vector<ActionRef> to_software_;
    Rule named_, miss_;
    std::vector<Rule> connection_ends_;
};

class TableSet : public std::enable_shared_from_this<TableSet> {
public:
    using Changed = std::function<void(TableKey)>;

    /// `to_miss`: leads what missed up to the manager. The landing outlives all tables.
    TableSet(std::shared_ptr<Domain> fdb, ActionRef to_miss, Landing& landing,
             std::shared_ptr<LandingIds> ids) noexcept;
    void on_change(Changed changed) noexcept { changed_ = std::move(changed); }

    /// The table that packets enter. The caller's: the set does not know it.
    [[nodiscard]] Result<std::shared_ptr<FlowTable>> make_entry();

    /// Whether any set has ever had a table beside the entry's. True before packets can get there.
    [[nodiscard]] static bool any_ever() noexcept;

    /// Nothing if no rule leads there.
    [[nodiscard]] std::shared_ptr<FlowTable> find(TableKey key) const;

    /// From a rule in a table of level `level` with `depth` private tables in between. ELOOP where that is not
    /// possible.
    [[nodiscard]] Result<ActionRef> lead_to(TableKey to, std::uint32_t level, unsigned depth);

    /// Grows with each table that has been made, has gone or was told of, before `changed` is called.
    [[nodiscard]] std::uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
    /// Whose id it is or was. Does not wait for the device.
    [[nodiscard]] std::optional<TableKey> key_of(std::uint32_t id) const;
    /// All but the entry's.
    [[nodiscard]] std::vector<std::shared_ptr<FlowTable>> tables() const;
    /// Something about the table has changed: counts as a change, and calls `changed`.
    void tell(TableKey key) noexcept;

private:
    friend class FlowTable;
    struct Known {
        std::weak_ptr<FlowTable> table;
        std::weak_ptr<Action> lead;
    };
    [[nodiscard]] Result<void> furnish(FlowTable& table, std::uint32_t level);
    [[nodiscard]] Result<void> mark_connection_ends(FlowTable& table);
    void gone(const FlowTable& table) noexcept;

    std::shared_ptr<Domain> fdb_;
    ActionRef to_miss_;
    Landing& landing_;
    std::shared_ptr<LandingIds> ids_;
    Changed changed_;
    std::atomic<std::uint64_t> changes_{0};

    mutable std::mutex mutex_;      ///< held while a table is made
    std::map<TableKey, Known> known_;
};

}  // namespace ovsdr::dr
