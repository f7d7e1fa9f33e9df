// What a DEVX command made and other commands name by number: CQ, QP, SQ, RQ, TIS, TIR, RQT, a domain, a memory key.
//
// Life cycle. Made by one of the creators below, owned by its mlx5dv_devx_obj. Whoever uses a resource holds it; one
// that is held cannot be destroyed (busy()). Numbers are given back when it goes.
//
// Threads: commands of one object one at a time; hold() and release() from any. Source: PRM, the commands' chapters.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <span>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/rdma/device_state.hpp"
#include "datapath/rdma/devx/devx_events.hpp"
#include "datapath/rdma/prm.hpp"

namespace ovsdr::soft::devx {

using Input = std::span<const std::byte>;
using Output = std::span<std::byte>;

class Resource {
public:
    explicit Resource(std::uint32_t number) : number_(number) {}
    virtual ~Resource() = default;
    Resource(const Resource&) = delete;
    Resource& operator=(const Resource&) = delete;

    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    /// Whether commands of that opcode are about resources of this kind.
    [[nodiscard]] virtual bool takes(prm::Opcode opcode) const noexcept = 0;
    /// A modification or a query that it takes, with room for whatever its head is.
    [[nodiscard]] virtual prm::Status execute(prm::Opcode opcode, Input in, Output out) = 0;
    /// Where packets go that a rule leads here; empty: nowhere.
    [[nodiscard]] virtual Sink sink() noexcept { return {}; }

    [[nodiscard]] virtual bool busy() const noexcept { return holders_.load(std::memory_order_acquire) != 0; }
    void hold() noexcept { holders_.fetch_add(1, std::memory_order_relaxed); }
    void release() noexcept { holders_.fetch_sub(1, std::memory_order_release); }

    /// Keeps what its rings stand in, to the end of its life.
    void stand_on(std::shared_ptr<const void> memory) { memory_.push_back(std::move(memory)); }

    /// What applications may subscribe to.
    [[nodiscard]] ObjectEvents& events() noexcept { return events_; }

private:
    const std::uint32_t number_;
    std::atomic<unsigned> holders_{0};
    ObjectEvents events_;
    std::vector<std::shared_ptr<const void>> memory_;
};

/// Keeps a resource held.
class Held {
public:
    Held() = default;
    explicit Held(Resource& resource) : resource_(&resource) { resource.hold(); }
    Held(Held&& from) noexcept : resource_(std::exchange(from.resource_, nullptr)) {}
    Held& operator=(Held&& from) noexcept {
        std::swap(resource_, from.resource_);
        return *this;
    }
    ~Held() {
        if (resource_) resource_->release();
    }
    [[nodiscard]] Resource* get() const noexcept { return resource_; }

private:
    Resource* resource_ = nullptr;
};

/// Finds the resource of that number and kind and holds it; empty: there is none.
template <typename Kind>
[[nodiscard]] Held find_resource(DeviceState& state, std::uint32_t number) {
    Held held;
    state.resources().with(number, [&](Resource& found) {
        if (dynamic_cast<Kind*>(&found)) held = Held(found);
    });
    return held;
}

/// A counter of what receive queues had no buffer for, held; `set_number` 0 stands for none, and nothing is held then.
/// false: there is none of that number.
[[nodiscard]] bool hold_queue_counter(DeviceState& state, std::uint32_t set_number, Held& held,
                                      std::atomic<std::uint64_t>*& out_of_buffer);

/// A completion queue that commands name, held; nullptr: there is none.
[[nodiscard]] CompletionQueue* hold_completion_queue(DeviceState& state, std::uint32_t number);

/// Makes what the command asks for.
using Creator = prm::Status (*)(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status create_cq(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status create_qp(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status create_sq(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status create_rq(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status create_tis(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status create_tir(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status create_rqt(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status alloc_transport_domain(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status alloc_q_counter(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status create_mkey(DeviceState& state, Input in, std::unique_ptr<Resource>& made);
[[nodiscard]] prm::Status alloc_pd(DeviceState& state, Input in, std::unique_ptr<Resource>& made);

}  // namespace ovsdr::soft::devx
