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

constexpr std::uint8_t proto_tcp = 6;

/// The narrower kind first, in one of two ranges.
constexpr std::uint16_t one_protocol = 0, any_protocol = 1, all_kinds = 2, range = 3;

std::uint16_t priority_of(const Landing::Place& place, std::uint16_t within) noexcept {
    return static_cast<std::uint16_t>(place.priority * range + within);
}

/// Of a mirror's copies: what it takes, and behind that what it does not.
constexpr std::uint16_t mirror_range = 2;

std::uint16_t priority_of(const Landing::CopiesPlace& place) noexcept {
    return static_cast<std::uint16_t>(place.range * (is_mirror(place.kind) ? mirror_range : 1));
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
    if (copies.is_made.load(std::memory_order_relaxed)) return {};
    std::shared_ptr<MatcherSet> table;
    ActionRef to_table;
    Result<void> made = take_table(table, domain_, 2);
    if (made) made = take(to_table, Action::to_table(table->shared_table()));
    if (!made) return made;
    copies.table = std::move(table);
    copies.to_table = std::move(to_table);
    copies.is_made.store(true, std::memory_order_release);
    return made;
}

Result<Rule> Landing::name_work(CopyKind kind, std::uint32_t id, mlx5dv_dr_action* count) {
    return name(id, copies_[index_of(kind)].to_table, count);
}

Result<Rule> Landing::to_copies_queue(const CopiesPlace& place, ActionRef queue) {
    return make_rule(*copies_[index_of(place.kind)].table, {{}, priority_of(place)}, {}, {std::move(queue)},
                     place.count);
}

Result<void> Landing::to_copies_queue(const CopiesPlace& place, const MirrorSteering::Service& service,
                                      const ActionRef& queue, std::vector<Rule>& rules) {
    const bool tcp = service.ip_protocol == proto_tcp;
    for (const std::uint8_t ip_version : {4, 6}) {
        for (const prm::Field port : {tcp ? field::tcp_sport : field::udp_sport,
                                      tcp ? field::tcp_dport : field::udp_dport}) {
            Match match;   // as compile_match() asks for it
            match.set(field::ip_version, ip_version, ip_version);
            match.set(field::ip_protocol, service.ip_protocol, 0xFF);
            match.set(field::frag, 0, 1);
            match.set(port, service.port, 0xFFFF);
            auto rule = make_rule(*copies_[index_of(place.kind)].table, {match.mask, priority_of(place)}, match.value,
                                  {queue}, place.count);
            if (!rule) return tl::unexpected(std::move(rule.error()));
            rules.push_back(std::move(*rule));
        }
    }
    return {};
}

Result<Rule> Landing::drop_other_copies(const CopiesPlace& place) {
    ActionRef drop;
    if (auto made = take(drop, Action::drop()); !made) return tl::unexpected(std::move(made.error()));
    const auto priority = static_cast<std::uint16_t>(priority_of(place) + 1);
    return make_rule(*copies_[index_of(place.kind)].table, {{}, priority}, {}, {std::move(drop)}, place.count);
}

bool Landing::drops_copies(CopyKind kind, std::uint16_t priority) noexcept {
    return is_mirror(kind) && priority % mirror_range != 0;
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
