#include "offload/dr/install/landing.hpp"

#include <cerrno>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

struct Match {
    MatchParam mask{}, value{};

    void set(prm::Field field, std::uint32_t bits_value, std::uint32_t bits_mask) {
        mask.set(field, bits_mask);
        value.set(field, bits_value & bits_mask);
    }
};

/// The narrower kind first, in one of two ranges.
constexpr std::uint16_t one_protocol = 0, any_protocol = 1, all_kinds = 2, range = 3;

std::uint16_t priority_of(const Landing::Place& place, std::uint16_t within) noexcept {
    return static_cast<std::uint16_t>(place.priority * range + within);
}

Match of_vport(Device::VportRegister vport) {
    Match match;
    match.set(field::metadata_reg_c_0, vport.value, vport.mask);
    return match;
}

}  // namespace

Result<std::unique_ptr<Landing>> Landing::create(const std::shared_ptr<Device>& device, const DeviceCaps& caps) {
    std::unique_ptr<Landing> landing(new Landing);
    Result<void> made = take(landing->domain_, Domain::create(device, DomainType::nic_rx));
    if (made) made = take_table(landing->root_, landing->domain_, 0);
    if (made && caps.recirculates) {
        made = take_table(landing->by_table_, landing->domain_, 1);
        if (made) made = take_table(landing->by_port_, landing->domain_, 2);
        if (made) made = take(landing->to_by_table_, Action::to_table(landing->by_table_->shared_table()));
        if (made) made = take(landing->to_by_port_, Action::to_table(landing->by_port_->shared_table()));
    } else if (made) {
        made = take(landing->tag_of_entry_, Action::tag(entry_id));
    }
    if (!made) return tl::unexpected(std::move(made.error()));
    return landing;
}

Result<Rule> Landing::name_table(std::uint32_t id) {
    return by_table_ == nullptr ? Rule() : name(id, to_by_port_);
}

Result<Rule> Landing::name(std::uint32_t id, const ActionRef& next, mlx5dv_dr_action* count) {
    ActionRef tag;
    if (auto made = take(tag, Action::tag(id)); !made) return tl::unexpected(std::move(made.error()));
    Match match;
    match.set(field::metadata_reg_c_1, mark_of(id), UINT32_MAX);
    return make_rule(*by_table_, {match.mask, 0}, match.value, {tag, next}, count);
}

Result<void> Landing::make_copies(CopyKind kind) {
    if (by_table_ == nullptr) {
        return tl::unexpected(Error{EOPNOTSUPP, "copies for software: the device's NIC_RX has no table but its root"});
    }
    Copies& copies = copies_[index_of(kind)];
    if (copies.to_table != nullptr) return {};
    Result<void> made = take_table(copies.table, domain_, 2);
    if (made) made = take(copies.to_table, Action::to_table(copies.table->shared_table()));
    return made;
}

Result<Rule> Landing::name_work(CopyKind kind, std::uint32_t id, mlx5dv_dr_action* count) {
    return name(id, copies_[index_of(kind)].to_table, count);
}

Result<Rule> Landing::to_copies_queue(CopyKind kind, std::uint16_t priority, mlx5dv_dr_action* count,
                                      ActionRef queue) {
    return make_rule(*copies_[index_of(kind)].table, {{}, priority}, {}, {std::move(queue)}, count);
}

Result<Rule> Landing::let_down(Device::VportRegister vport) {
    if (by_table_ == nullptr) return Rule();
    Match match = of_vport(vport);
    match.set(field::metadata_reg_c_1, ours, ours_mask);
    return make_rule(*root_, {match.mask, 0}, match.value, {to_by_table_});
}

Result<Rule> Landing::to_queue(const Place& place, ActionRef queue) {
    Match match = of_vport(place.vport);
    if (by_port_ != nullptr) {
        const std::uint16_t priority = place.has_kinds ? priority_of(place, all_kinds) : place.priority;
        return make_rule(*by_port_, {match.mask, priority}, match.value, {queue}, place.count);
    }
    match.set(field::metadata_reg_c_1, mark_of(entry_id), UINT32_MAX);
    return make_rule(*root_, {match.mask, place.priority}, match.value, {tag_of_entry_, queue}, place.count);
}

Result<Rule> Landing::to_queue_of_kind(const Place& place, std::uint8_t ip_version, std::uint8_t protocol,
                                       ActionRef queue) {
    if (by_port_ == nullptr) {
        return tl::unexpected(
            Error{EOPNOTSUPP, "several receive queues of a port: the device's NIC_RX has no table but its root"});
    }
    Match match = of_vport(place.vport);
    match.set(field::ip_version, ip_version, ip_version);   // as compile_match() asks for it
    if (protocol != 0) match.set(field::ip_protocol, protocol, 0xFF);
    const std::uint16_t priority = priority_of(place, protocol != 0 ? one_protocol : any_protocol);
    return make_rule(*by_port_, {match.mask, priority}, match.value, {queue}, place.count);
}

std::vector<std::pair<const char*, const MatcherSet*>> Landing::tables() const {
    std::vector<std::pair<const char*, const MatcherSet*>> tables{{"root, what goes up", root_.get()}};
    if (by_table_ != nullptr) tables.emplace_back("what goes up, by table", by_table_.get());
    if (by_port_ != nullptr) tables.emplace_back("what goes up, by port", by_port_.get());
    return tables;
}

}  // namespace ovsdr::dr
