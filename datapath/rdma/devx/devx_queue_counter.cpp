// ALLOC_Q_COUNTER and QUERY_Q_COUNTER: what the receive queues of a counter set dropped because no buffer was posted.
//
// Receive queues name their set when they are made. The other counters of a set are of queue pairs, which have none
// here (CREATE_QP refuses them): they stay 0.
#include <atomic>

#include "datapath/rdma/devx/devx_layout.hpp"
#include "datapath/rdma/devx/devx_resource.hpp"

namespace ovsdr::soft::devx {

using prm::Opcode;
using prm::Status;

namespace {

class QueueCounter final : public Resource {
public:
    explicit QueueCounter(DeviceState& state) : Resource(state.queue_counter_numbers().take()), state_(state) {
        state_.queue_counters().add(number(), *this);
    }
    ~QueueCounter() override {
        state_.queue_counters().remove(number());
        state_.queue_counter_numbers().give_back(number());
    }
    [[nodiscard]] std::atomic<std::uint64_t>& out_of_buffer() noexcept { return out_of_buffer_; }

    bool takes(Opcode opcode) const noexcept override { return opcode == Opcode::query_q_counter; }
    Status execute(Opcode, Input in, Output out) override {
        const bool clear = prm::get(in, prm::q_counter::clear);
        // 32 bits, which wrap.
        prm::set(out, prm::q_counter::out_of_buffer, clear ? out_of_buffer_.exchange(0) : out_of_buffer_.load());
        return Status::ok;
    }

private:
    DeviceState& state_;
    std::atomic<std::uint64_t> out_of_buffer_{0};
};

}  // namespace

bool hold_queue_counter(DeviceState& state, std::uint32_t set_number, Held& held,
                        std::atomic<std::uint64_t>*& out_of_buffer) {
    out_of_buffer = nullptr;
    if (set_number == 0) return true;
    return state.queue_counters().with(set_number, [&](Resource& found) {
        held = Held(found);
        out_of_buffer = &static_cast<QueueCounter&>(found).out_of_buffer();
    });
}

Status alloc_q_counter(DeviceState& state, Input, std::unique_ptr<Resource>& made) {
    if (state.queue_counters().length() >= prm::q_counter::most) return Status::lim_err;
    made = std::make_unique<QueueCounter>(state);
    return Status::ok;
}

}  // namespace ovsdr::soft::devx
