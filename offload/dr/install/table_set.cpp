#include "offload/dr/install/table_set.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

std::atomic<bool> any_made{false};

}  // namespace

bool TableSet::any_ever() noexcept { return any_made.load(std::memory_order_acquire); }

FlowTable::FlowTable(Private, TableKey key, std::uint32_t id, std::shared_ptr<TableSet> set) noexcept
    : key_(key), id_(id), set_(std::move(set)) {}

FlowTable::~FlowTable() {
    // No packet is in here any more: whoever took the last rule out that led here has drained since.
    connection_ends_.clear();
    miss_ = Rule();
    named_ = Rule();
    if (set_ != nullptr) set_->gone(*this);
}

TableSet::TableSet(std::shared_ptr<Domain> fdb, ActionRef to_miss, Landing& landing,
                   std::shared_ptr<LandingIds> ids) noexcept
    : fdb_(std::move(fdb)), to_miss_(std::move(to_miss)), landing_(landing), ids_(std::move(ids)) {}

Result<void> TableSet::furnish(FlowTable& table, std::uint32_t level) {
    const HeaderWrite mark{HeaderField::metadata_reg_c_1, Landing::mark_of(table.id()), UINT32_MAX};
    ActionRef marked;
    Result<void> made = take_table(table.matchers_, fdb_, level);
    if (made) made = take(table.named_, landing_.name_table(table.id()));
    if (made) made = take(marked, Action::modify_header(fdb_, std::array{mark}));
    if (made) {
        table.to_software_ = {std::move(marked), to_miss_};
        made = take(table.miss_, make_rule(*table.matchers_, {{}, FlowTable::last_priority}, {}, table.to_software_));
    }
    if (made && table.key().recirc_id == 0) made = mark_connection_ends(table);
    // Before a packet gets here, all of it must be in the device.
    if (made) made = landing_.domain().wait_written();
    if (made) made = fdb_->wait_written();
    return made;
}

/// A matcher for each IP version, which the device has to know where it looks at TCP; with both flags in its mask, so
/// that every packet of the table passes two of them and not four. No packet is counted here.
Result<void> TableSet::mark_connection_ends(FlowTable& table) {
    constexpr std::uint32_t tcp = 6, fin = 0x01, rst = 0x04, either = fin | rst;
    const bool in_tunnel = table.key().tunnel_port != 0;
    const auto place = [&](prm::Field field) { return in_tunnel ? field::inner_of(field) : field; };
    for (const std::uint32_t version : {4U, 6U}) {
        for (const std::uint32_t flags : {fin, rst, either}) {
            MatchParam mask, value;
            if (in_tunnel) {
                mask.set(field::source_port, 0xFFFF);
                value.set(field::source_port, uplink_vport.value);
            }
            mask.set(place(field::ip_version), version);
            value.set(place(field::ip_version), version);
            mask.set(place(field::ip_protocol), 0xFF);
            value.set(place(field::ip_protocol), tcp);
            mask.set(place(field::tcp_flags), either);
            value.set(place(field::tcp_flags), flags);
            auto rule = make_rule(*table.matchers_, {mask, FlowTable::first_priority}, value, table.to_software_);
            if (!rule) return tl::unexpected(std::move(rule.error()));
            table.connection_ends_.push_back(std::move(*rule));
        }
    }
    return {};
}

Result<std::shared_ptr<FlowTable>> TableSet::make_entry() {
    auto table = std::make_shared<FlowTable>(FlowTable::Private{}, TableKey{}, Landing::entry_id, nullptr);
    if (auto made = furnish(*table, Levels::entry); !made) return tl::unexpected(std::move(made.error()));
    return table;
}

std::shared_ptr<FlowTable> TableSet::find(TableKey key) const {
    std::lock_guard lock(mutex_);
    const auto known = known_.find(key);
    return known == known_.end() ? nullptr : known->second.table.lock();
}

Result<ActionRef> TableSet::lead_to(TableKey to, std::uint32_t level, unsigned depth) {
    std::shared_ptr<FlowTable> table;   // let go of without the lock, which the end of a table takes
    std::unique_lock lock(mutex_);
    if (const auto known = known_.find(to); known != known_.end()) table = known->second.table.lock();
    const auto its_level = table == nullptr ? std::nullopt : std::optional(table->level());
    if (lead(its_level, level, depth) != Lead::possible) {
        return tl::unexpected(Error{ELOOP, "no way up to " + text_of(to), "recirc"});
    }
    const bool is_new = table == nullptr;
    if (is_new) {
        any_made.store(true, std::memory_order_release);
        table = std::make_shared<FlowTable>(FlowTable::Private{}, to, ids_->give(to), shared_from_this());
        if (auto made = furnish(*table, level + Levels::per_table); !made) {
            // Nobody was told of it, and no packet has its id.
            ids_->take_back(table->id());
            table->set_ = nullptr;
            lock.unlock();
            return tl::unexpected(std::move(made.error()));
        }
        known_[to] = {table, {}};
    }
    Known& known = known_[to];
    ActionRef leading = known.lead.lock();
    if (leading == nullptr) {
        auto made = Action::to_table(table->matchers().shared_table(), table);
        if (!made) {
            lock.unlock();
            return made;
        }
        leading = std::move(*made);
        known.lead = leading;
    }
    lock.unlock();
    if (is_new) tell(to);
    return leading;
}

void TableSet::gone(const FlowTable& table) noexcept {
    {
        std::lock_guard lock(mutex_);
        const auto known = known_.find(table.key());
        if (known != known_.end() && known->second.table.expired()) known_.erase(known);
    }
    ids_->gone(table.id());
    tell(table.key());
}

void TableSet::tell(TableKey key) noexcept {
    changes_.fetch_add(1, std::memory_order_acq_rel);
    if (changed_) changed_(key);
}

std::optional<TableKey> TableSet::key_of(std::uint32_t id) const {
    if (id == Landing::entry_id) return TableKey{};
    const auto meaning = ids_->find(id);
    const auto* key = meaning ? std::get_if<TableKey>(&*meaning) : nullptr;
    return key == nullptr ? std::nullopt : std::optional(*key);
}

std::vector<std::shared_ptr<FlowTable>> TableSet::tables() const {
    std::vector<std::shared_ptr<FlowTable>> tables;
    std::lock_guard lock(mutex_);
    for (const auto& [key, known] : known_) {
        if (auto table = known.table.lock()) tables.push_back(std::move(table));
    }
    return tables;
}

}  // namespace ovsdr::dr
