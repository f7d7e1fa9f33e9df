// What queues belong to: TIS, transport domains, protection domains made by DEVX commands. They have numbers and nothing
// else that a packet could feel.
//
// Transport domain 0 stands for the one that every context has. Source: PRM, CREATE_TIS, ALLOC_TRANSPORT_DOMAIN, ALLOC_PD.
#pragma once

#include "datapath/rdma/devx_resource.hpp"

namespace ovsdr::soft::devx {

class TransportDomain final : public Resource {
public:
    explicit TransportDomain(DeviceState& state) : Resource(state.queue_numbers().take()), state_(state) {
        state_.resources().add(number(), *this);
    }
    ~TransportDomain() override {
        state_.resources().remove(number());
        state_.queue_numbers().give_back(number());
    }
    bool takes(prm::Opcode) const noexcept override { return false; }
    prm::Status execute(prm::Opcode, Input, Output) override { return prm::Status::bad_op; }

private:
    DeviceState& state_;
};

class Tis final : public Resource {
public:
    Tis(DeviceState& state, Held domain)
        : Resource(state.queue_numbers().take()), state_(state), domain_(std::move(domain)) {
        state_.resources().add(number(), *this);
    }
    ~Tis() override {
        state_.resources().remove(number());
        state_.queue_numbers().give_back(number());
    }
    bool takes(prm::Opcode opcode) const noexcept override {
        return opcode == prm::Opcode::query_tis || opcode == prm::Opcode::modify_tis;
    }
    prm::Status execute(prm::Opcode opcode, Input in, Output out) override;

private:
    DeviceState& state_;
    const Held domain_;
};

/// The transport domain of that number, held; false: there is none.
[[nodiscard]] bool hold_transport_domain(DeviceState& state, std::uint32_t number, Held& domain);

}  // namespace ovsdr::soft::devx
