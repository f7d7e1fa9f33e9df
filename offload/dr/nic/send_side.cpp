#include "offload/dr/nic/send_side.hpp"

#include <cerrno>

#include "offload/dr/install/make.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint32_t root_level = 0, port_level = 1;
constexpr std::uint16_t down_priority = 0, port_priority = 1;
constexpr std::uint16_t tpid_customer = 0x8100;

}  // namespace

Result<std::unique_ptr<SendSide>> SendSide::create(const std::shared_ptr<Device>& device, const DeviceCaps& caps) {
    std::unique_ptr<SendSide> side(new SendSide);
    auto made = take(side->domain_, Domain::create(device, DomainType::nic_tx));
    if (made) made = take_table(side->root_, side->domain_, root_level);
    if (made && caps.recirculates) {
        made = take_table(side->port_, side->domain_, port_level);
        if (made) made = take(side->to_port_, Action::to_table(side->port_->shared_table()));
        if (made) made = take(side->drop_, Action::drop());
    }
    if (!made) return tl::unexpected(std::move(made.error()));
    return side;
}

Result<void> SendSide::let_out(std::uint16_t vlan, const Counter& counter) {
    if (port_ == nullptr) return {};
    ActionRef last;
    auto made = vlan != 0 ? take(last, Action::push_vlan(domain_, tpid_customer, vlan))
                          : take(last, Action::default_miss());
    if (made) made = take(leave_, make_rule(*port_, {{}, port_priority}, {}, {last}, counter.action()));
    if (made) made = domain_->wait_written();
    if (made) made = take(enter_, make_rule(*root_, {{}, 0}, {}, {to_port_}));
    if (!made) leave_ = Rule();
    return made;
}

void SendSide::shut() noexcept {
    enter_ = Rule();
    leave_ = Rule();
    (void)domain_->drain();
}

Result<Rule> SendSide::drop_everything(const Counter& counter) {
    if (port_ == nullptr) {
        return tl::unexpected(Error{EOPNOTSUPP, "down: the device's NIC_TX has no table but its root"});
    }
    return make_rule(*port_, {{}, down_priority}, {}, {drop_}, counter.action());
}

std::vector<std::pair<const char*, const MatcherSet*>> SendSide::tables() const {
    std::vector<std::pair<const char*, const MatcherSet*>> tables{{"root, what the function sends", root_.get()}};
    if (port_ != nullptr) tables.emplace_back("what the port sends", port_.get());
    return tables;
}

}  // namespace ovsdr::dr
