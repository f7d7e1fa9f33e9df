#include "datapath/rdma/devx/devx_queue_domains.hpp"

#include "datapath/rdma/devx/devx_layout.hpp"

namespace ovsdr::soft::devx {

using prm::Opcode;
using prm::Status;

namespace {

class DevxPd final : public Resource {
public:
    explicit DevxPd(DeviceState& state) : Resource(state.pd_numbers().take()), state_(state) {
        protection_->number = number();
        protection_->identity = protection_.get();
        state_.protection_domains().add(number(), protection_);
    }
    ~DevxPd() override {
        state_.protection_domains().remove(number());
        state_.pd_numbers().give_back(number());
    }
    bool busy() const noexcept override { return protection_.use_count() > 1; }
    bool takes(Opcode) const noexcept override { return false; }
    Status execute(Opcode, Input, Output) override { return Status::bad_op; }

private:
    DeviceState& state_;
    const std::shared_ptr<ProtectionDomain> protection_ = std::make_shared<ProtectionDomain>();
};

[[nodiscard]] Tis::Port port_in(Input in) {
    return {.number = static_cast<unsigned>(prm::get(in, prm::within(prm::queue_context, prm::tisc::lag_port))),
            .strict = prm::get(in, prm::within(prm::queue_context, prm::tisc::strict_lag)) != 0};
}

/// Without LAG there is nothing to choose, and without a choice nothing to be strict about.
[[nodiscard]] bool may_have(DeviceState& state, Tis::Port port) {
    if (port.number == 0) return !port.strict;
    return state.device().has_lag() && port.number <= lag_ports;
}

}  // namespace

Status Tis::execute(Opcode opcode, Input in, Output out) {
    const std::lock_guard guard(mutex_);
    if (opcode != Opcode::query_tis) return modify(in);
    constexpr std::uint32_t context = 128;  // bit offset in the output
    const std::uint32_t domain = domain_.get() ? domain_.get()->number() : 0;
    prm::set(out, prm::within(context, prm::tisc::transport_domain), domain);
    prm::set(out, prm::within(context, prm::tisc::lag_port), port_.number);
    prm::set(out, prm::within(context, prm::tisc::strict_lag), port_.strict);
    return Status::ok;
}

/// Under mutex_. There are no priorities to change.
Status Tis::modify(Input in) {
    const std::uint64_t changes = prm::get(in, prm::modify_bitmask);
    constexpr std::uint64_t known = prm::tisc::modify_lag_port | prm::tisc::modify_strict_lag;
    if (!state_.device().has_lag() || changes == 0 || (changes & ~known)) return Status::bad_param;
    Port port = port_;
    const Port asked = port_in(in);
    if (changes & prm::tisc::modify_lag_port) port.number = asked.number;
    if (changes & prm::tisc::modify_strict_lag) port.strict = asked.strict;
    if (!may_have(state_, port)) return Status::bad_param;
    port_ = port;
    for (const std::uint32_t sqn : queues_) state_.device().steering().set_lag_port(sqn, port_.number, port_.strict);
    return Status::ok;
}

void Tis::add(std::uint32_t sqn) {
    const std::lock_guard guard(mutex_);
    queues_.insert(sqn);
    state_.device().steering().set_lag_port(sqn, port_.number, port_.strict);
}

void Tis::remove(std::uint32_t sqn) {
    const std::lock_guard guard(mutex_);
    queues_.erase(sqn);
    state_.device().steering().set_lag_port(sqn, 0);
}

bool hold_transport_domain(DeviceState& state, std::uint32_t number, Held& domain) {
    if (number == 0) return true;
    domain = find_resource<TransportDomain>(state, number);
    return domain.get() != nullptr;
}

Status create_tis(DeviceState& state, Input in, std::unique_ptr<Resource>& made) {
    const auto of_tis = [&](prm::Field field) {
        return static_cast<std::uint32_t>(prm::get(in, prm::within(prm::queue_context, field)));
    };
    if (of_tis(prm::tisc::underlay_qpn) != 0) return Status::bad_param;  // InfiniBand's
    const Tis::Port port = port_in(in);
    if (!may_have(state, port)) return Status::bad_param;
    Held domain;
    if (!hold_transport_domain(state, of_tis(prm::tisc::transport_domain), domain)) return Status::bad_res;
    made = std::make_unique<Tis>(state, std::move(domain), port);
    return Status::ok;
}

Status alloc_transport_domain(DeviceState& state, Input, std::unique_ptr<Resource>& made) {
    made = std::make_unique<TransportDomain>(state);
    return Status::ok;
}

Status alloc_pd(DeviceState& state, Input, std::unique_ptr<Resource>& made) {
    made = std::make_unique<DevxPd>(state);
    return Status::ok;
}

}  // namespace ovsdr::soft::devx
