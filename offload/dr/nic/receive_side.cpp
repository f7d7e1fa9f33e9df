#include "offload/dr/nic/receive_side.hpp"

#include <cerrno>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

// Levels of the domain.
constexpr std::uint32_t root_level = 0, vlan_level = 1, megaflow_level = 2, queue_level = 3;
// In the table of megaflows.
constexpr std::uint16_t down_priority = 0, end_priority = 1, megaflow_priority = 2, last_priority = 3;
// In the table of queues: the narrower kind first, in one of two ranges.
constexpr std::uint16_t one_protocol = 0, any_protocol = 1, all_kinds = 2, range_length = 3;

struct Match {
    MatchParam mask{}, value{};

    void set(prm::Field field, std::uint32_t bits_value, std::uint32_t bits_mask) {
        mask.set(field, bits_mask);
        value.set(field, bits_value & bits_mask);
    }
};

std::uint16_t priority_of(std::uint16_t range, std::uint16_t kind) noexcept {
    return static_cast<std::uint16_t>(range * range_length + kind);
}

}  // namespace

Result<std::unique_ptr<ReceiveSide>> ReceiveSide::create(const std::shared_ptr<Device>& device,
                                                         const DeviceCaps& caps) {
    std::unique_ptr<ReceiveSide> side(new ReceiveSide);
    side->device_ = device;
    auto made = take(side->domain_, Domain::create(device, DomainType::nic_rx));
    if (made) made = side->make_tables(caps);
    if (made && caps.recirculates) made = side->make_fixed_rules();
    if (!made) return tl::unexpected(std::move(made.error()));
    return side;
}

Result<void> ReceiveSide::make_tables(const DeviceCaps& caps) {
    auto made = take_table(root_, domain_, root_level);
    if (!made || !caps.recirculates) return made;
    made = take_table(vlan_, domain_, vlan_level);
    if (made) made = take_table(megaflows_, domain_, megaflow_level);
    if (made) made = take_table(queues_, domain_, queue_level);
    if (made) made = take(to_vlan_, Action::to_table(vlan_->shared_table()));
    if (made) made = take(to_megaflows_, Action::to_table(megaflows_->shared_table()));
    if (made) made = take(to_queues_, Action::to_table(queues_->shared_table()));
    if (made) made = take(pop_, Action::pop_vlan());
    if (made) made = take(drop_, Action::drop());
    return made;
}

Result<void> ReceiveSide::make_fixed_rules() {
    constexpr std::uint32_t tcp = 6, fin = 0x01, rst = 0x04, either = fin | rst;
    auto made = take(untag_, make_rule(*vlan_, {{}, 0}, {}, {pop_, to_megaflows_}));
    if (made) made = take(miss_, make_rule(*megaflows_, {{}, last_priority}, {}, {to_queues_}));
    for (const std::uint32_t version : {4U, 6U}) {
        for (const std::uint32_t flags : {fin, rst, either}) {
            if (!made) return made;
            Match match;
            match.set(field::ip_version, version, version);
            match.set(field::ip_protocol, tcp, 0xFF);
            match.set(field::tcp_flags, flags, either);
            made = take(connection_ends_.emplace_back(),
                        make_rule(*megaflows_, {match.mask, end_priority}, match.value, {to_queues_}));
        }
    }
    return made;
}

Result<void> ReceiveSide::serve(ibv_qp* qp, std::span<const QueuePairFor> by_kind, std::uint16_t range,
                                QueueRules& rules) {
    if (queues_ == nullptr && !by_kind.empty()) {
        return tl::unexpected(
            Error{EOPNOTSUPP, "several receive queues of a port: the device's NIC_RX has no table but its root"});
    }
    rules.range = range;
    ActionRef to_qp;
    std::uint32_t slot = 0;
    auto made = take(rules.led_up, CounterBulk::create(device_, CounterBulk::single_counter));
    if (made) made = take(slot, rules.led_up->take(0, false));
    if (made) made = take(to_qp, Action::to_queue_pair(qp));
    if (!made) return made;
    mlx5dv_dr_action* const count = rules.led_up->action(slot);
    if (queues_ != nullptr) {
        made = take(rules.to_queue, make_rule(*queues_, {{}, priority_of(range, all_kinds)}, {}, {to_qp}, count));
    } else {
        // The only rule of the root is the way in, too.
        made = take(rules.to_queue, make_rule(*root_, {{}, range}, {}, {to_qp}, count));
    }
    for (const QueuePairFor& kind : by_kind) {
        Match match;
        match.set(field::ip_version, kind.ip_version, kind.ip_version);   // as compile_match() asks for it
        if (kind.ip_protocol != 0) match.set(field::ip_protocol, kind.ip_protocol, 0xFF);
        const std::uint16_t priority = priority_of(range, kind.ip_protocol != 0 ? one_protocol : any_protocol);
        ActionRef to_kind;
        if (made) made = take(to_kind, Action::to_queue_pair(kind.qp));
        if (!made) break;
        made = take(rules.by_kind.emplace_back(),
                    make_rule(*queues_, {match.mask, priority}, match.value, {to_kind}, count));
    }
    if (made) made = domain_->wait_written();
    return made;
}

std::uint64_t ReceiveSide::stop(QueueRules& rules) noexcept {
    if (!rules.to_queue) return 0;
    rules.by_kind.clear();
    rules.to_queue = Rule();
    // A device that fails here has been asked twice: what it has counted so far is the best that there is.
    (void)domain_->drain();
    return led_up(rules);
}

std::uint64_t ReceiveSide::led_up(QueueRules& rules) noexcept {
    constexpr std::uint32_t only = 0;
    if (rules.led_up == nullptr) return 0;
    if (!rules.led_up->read_now(only)) (void)rules.led_up->read_now(only);
    return rules.led_up->read(only).packets;
}

Result<void> ReceiveSide::let_in(std::uint16_t vlan) {
    if (megaflows_ == nullptr) {
        if (vlan == 0) return {};
        return tl::unexpected(Error{EOPNOTSUPP, "a VLAN of the port: the device's NIC_RX has no table but its root"});
    }
    Match match;
    if (vlan != 0) {
        match.set(field::cvlan_tag, 1, 1);
        match.set(field::first_vid, vlan, 0xFFF);
    }
    return take(enter_, make_rule(*root_, {match.mask, 0}, match.value, {vlan != 0 ? to_vlan_ : to_megaflows_}));
}

void ReceiveSide::shut() noexcept {
    enter_ = Rule();
    (void)domain_->drain();
}

Result<Rule> ReceiveSide::drop_everything(const Counter& counter) {
    if (megaflows_ == nullptr) {
        return tl::unexpected(Error{EOPNOTSUPP, "down: the device's NIC_RX has no table but its root"});
    }
    return make_rule(*megaflows_, {{}, down_priority}, {}, {drop_}, counter.action());
}

Result<Rule> ReceiveSide::install(const MatchParam& mask, const MatchParam& value, const Counter& counter,
                                  std::uint32_t tag) {
    const MatcherSpec spec{mask, megaflow_priority};
    if (tag == 0) return make_rule(*megaflows_, spec, value, {drop_}, counter.action());
    ActionRef mark;
    if (auto made = take(mark, Action::tag(tag)); !made) return tl::unexpected(std::move(made.error()));
    return make_rule(*megaflows_, spec, value, {mark, to_queues_}, counter.action());
}

std::vector<std::pair<const char*, const MatcherSet*>> ReceiveSide::tables() const {
    std::vector<std::pair<const char*, const MatcherSet*>> tables{{"root, what comes in", root_.get()}};
    if (megaflows_ == nullptr) return tables;
    tables.emplace_back("the port's VLAN", vlan_.get());
    tables.emplace_back("megaflows", megaflows_.get());
    tables.emplace_back("the port's queues", queues_.get());
    return tables;
}

}  // namespace ovsdr::dr
