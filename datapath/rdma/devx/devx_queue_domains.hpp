// What queues belong to: TIS, transport domains, protection domains made by DEVX commands. They have numbers and
// nothing else that a packet could feel, but that a TIS may choose the port of a LAG by which its SQs send
// (lag_tx_port_affinity).
//
// Transport domain 0 stands for the one that every context has. Source: PRM, CREATE_TIS, ALLOC_TRANSPORT_DOMAIN,
// ALLOC_PD.
#pragma once

#include <mutex>
#include <set>

#include "datapath/rdma/devx/devx_resource.hpp"

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
    /// Of a LAG; 0: none. A strict one stands by it though its link is down.
    struct Port {
        unsigned number = 0;
        bool strict = false;
    };

    Tis(DeviceState& state, Held domain, Port port)
        : Resource(state.queue_numbers().take()), state_(state), domain_(std::move(domain)), port_(port) {
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

    /// An SQ that sends by this TIS, which it holds.
    void add(std::uint32_t sqn);
    void remove(std::uint32_t sqn);

private:
    [[nodiscard]] prm::Status modify(Input in);

    DeviceState& state_;
    const Held domain_;
    std::mutex mutex_;
    Port port_;
    std::set<std::uint32_t> queues_;
};

/// The transport domain of that number, held; false: there is none.
[[nodiscard]] bool hold_transport_domain(DeviceState& state, std::uint32_t number, Held& domain);

}  // namespace ovsdr::soft::devx
