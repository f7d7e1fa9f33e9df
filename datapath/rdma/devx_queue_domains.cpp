#include "datapath/rdma/devx_queue_domains.hpp"

#include "datapath/rdma/devx_layout.hpp"

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

}  // namespace

Status Tis::execute(Opcode opcode, Input, Output out) {
    if (opcode != Opcode::query_tis) return Status::bad_param;  // priorities and LAG affinity: nothing to change
    constexpr std::uint32_t context = 128;  // bit offset in the output
    const std::uint32_t domain = domain_.get() ? domain_.get()->number() : 0;
    prm::set(out, prm::within(context, prm::tisc::transport_domain), domain);
    return Status::ok;
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
    Held domain;
    if (!hold_transport_domain(state, of_tis(prm::tisc::transport_domain), domain)) return Status::bad_res;
    made = std::make_unique<Tis>(state, std::move(domain));
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
