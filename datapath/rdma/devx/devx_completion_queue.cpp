// CREATE_CQ: completion queues whose ring the application polls, and which it arms through a doorbell page.
//
// Events. A CQ that was armed tells its subscribers (mlx5dv_devx_subscribe_devx_event()) of the next completion, or at
// once of one that is there already at the consumer counter that the arm record gives. Then it has to be armed again.
// An overrun is told as CQ_ERROR.
#include <array>
#include <mutex>

#include "datapath/rdma/completion/completion_queue.hpp"
#include "datapath/rdma/completion/cqe_ring.hpp"
#include "datapath/rdma/completion/devx_doorbells.hpp"
#include "datapath/rdma/devx/devx_resource.hpp"
#include "datapath/rdma/memory/devx_memory.hpp"

namespace ovsdr::soft::devx {

using prm::Field;
using prm::Opcode;
using prm::Status;

namespace {

// CREATE_CQ's input, bits.
constexpr std::uint32_t cqc = 128;
constexpr Field dbr_umem_valid{cqc + 6, 1}, cqe_size{cqc + 8, 3}, collapsed{cqc + 11, 1}, overrun_ignore{cqc + 14, 1},
    compression{cqc + 17, 1}, compressed_format{cqc + 18, 2}, always_armed{cqc + 24, 1}, compressed_layout{cqc + 25, 7},
    compressed_format_more{cqc + 92, 2}, dbr_umem{cqc + 32, 32}, log_size{cqc + 99, 5},
    uar_page{cqc + 104, 24}, dbr_offset{cqc + 448, 64}, umem_offset{640, 64}, umem_number{704, 32}, umem_valid{736, 1};

/// The CQEs are written where completions are added: the queue's notifier is always armed, and takes out what is in it.
class DevxCq final : public Resource, private Armable {
public:
    DevxCq(DeviceState& state, std::uint32_t number, std::uint32_t page, const CqeRing::Spec& spec)
        : Resource(number),
          state_(state),
          page_(page),
          arm_record_(spec.doorbell[arm_word]),
          ring_(spec),
          queue_(2u << spec.log_length, true, {.completion = [this] { write(); }, .overrun = {}}) {
        queue_.arm(false);
        state_.completion_queues().add(number, queue_);
        watched_ = state_.doorbell_pages().add(page_, number, *this);
    }
    ~DevxCq() override {
        state_.completion_queues().remove(number());
        if (watched_) state_.doorbell_pages().remove(page_, number());
        state_.cq_numbers().give_back(number());
    }
    bool takes(Opcode opcode) const noexcept override {
        return opcode == Opcode::modify_cq || opcode == Opcode::query_cq;
    }
    Status execute(Opcode, Input, Output) override { return Status::bad_op; }
    bool busy() const noexcept override { return Resource::busy() || queue_.held(); }

private:
    enum class Armed : std::uint8_t { no, solicited, any };
    static constexpr std::size_t batch = 16;
    static constexpr std::size_t arm_word = 1;  // word of the doorbell record
    static constexpr std::uint32_t counter_mask = 0xffffff;

    void write() noexcept {
        std::lock_guard guard(mutex_);
        std::array<Completion, batch> taken;
        for (int length = 1; length != 0;) {
            // Armed before it is looked into: what comes after the look has an event of its own.
            queue_.arm(false);
            length = queue_.take(taken);
            for (int i = 0; i < length; ++i) write(taken[static_cast<std::size_t>(i)]);
        }
        tell();
    }
    void write(const Completion& completion) noexcept {
        if (broken_) return;
        if (!ring_.write(completion)) {
            broken_ = true;
            EventEntry entry{};
            prm::set(entry, prm::event::type, prm::event::cq_error);
            prm::set(entry, prm::event::failed_cqn, number());
            prm::set(entry, prm::event::cq_error_syndrome, prm::event::syndrome_overrun);
            events().publish(prm::event::cq_error, entry);
            return;
        }
        ++produced_;
        if (completion.solicited || completion.status != IBV_WC_SUCCESS) solicited_ = produced_;
    }

    void look_at_arm_record(bool surely) noexcept override {
        std::lock_guard guard(mutex_);
        const auto arming = arm_record_.look(surely);
        if (!arming) return;
        armed_ = arming->solicited_only ? Armed::solicited : Armed::any;
        consumed_ = arming->consumed;
        tell();
    }
    /// Under mutex_.
    void tell() noexcept {
        if (armed_ == Armed::no) return;
        const std::uint32_t ahead = ((armed_ == Armed::any ? produced_ : solicited_) - consumed_) & counter_mask;
        if (ahead == 0 || ahead > counter_mask / 2) return;
        armed_ = Armed::no;
        EventEntry entry{};
        prm::set(entry, prm::event::type, prm::event::completion);
        prm::set(entry, prm::event::completed_cqn, number());
        events().publish(prm::event::completion, entry);
    }

    DeviceState& state_;
    const std::uint32_t page_;
    bool watched_ = false;
    std::mutex mutex_;
    ArmRecord arm_record_;  ///< under mutex_
    CqeRing ring_;
    bool broken_ = false;  ///< overrun: nothing more is written
    std::uint32_t produced_ = 0, solicited_ = 0;  ///< CQEs written; up to the last solicited one
    Armed armed_ = Armed::no;
    std::uint32_t consumed_ = 0;  ///< as the arm record said
    CompletionQueue queue_;
};

/// Which CQEs it compresses is the device's choice, and this one never does: only the form of the request matters.
[[nodiscard]] bool may_compress(Input in) {
    constexpr std::uint64_t no_such_format = 2;
    if (prm::get(in, compressed_layout) || prm::get(in, compressed_format_more)) return false;
    return !prm::get(in, compression) || prm::get(in, compressed_format) != no_such_format;
}

}  // namespace

Status create_cq(DeviceState& state, Input in, std::unique_ptr<Resource>& made) {
    constexpr std::uint64_t size_64 = 0, size_128 = 1, most_log_length = 22;
    const std::uint64_t kind = prm::get(in, cqe_size);
    const auto log_length = static_cast<unsigned>(prm::get(in, log_size));
    if (kind > size_128 || log_length > most_log_length) return Status::bad_param;
    // What the device does not have the capability for.
    if (prm::get(in, collapsed) || prm::get(in, always_armed) || !may_compress(in)) return Status::bad_param;
    const unsigned entry_size = kind == size_64 ? 64 : 128;
    const DoorbellRecord doorbell = find_doorbell(state.umems(), in, dbr_umem_valid, dbr_umem, dbr_offset);
    const Buffer base = find_buffer(state.umems(), in, umem_valid, umem_number, umem_offset,
                                    std::size_t{entry_size} << log_length, Use::write);
    if (!base || !doorbell) return Status::bad_param;
    made = std::make_unique<DevxCq>(state, state.cq_numbers().take(),
                                    static_cast<std::uint32_t>(prm::get(in, uar_page)),
                                    CqeRing::Spec{.base = base.get(),
                                                  .log_length = log_length,
                                                  .entry_size = entry_size,
                                                  .doorbell = doorbell.get(),
                                                  .ignore_overrun = prm::get(in, overrun_ignore) != 0});
    made->stand_on(base);
    made->stand_on(doorbell);
    return Status::ok;
}

CompletionQueue* hold_completion_queue(DeviceState& state, std::uint32_t number) {
    CompletionQueue* held = nullptr;
    state.completion_queues().with(number, [&](CompletionQueue& queue) {
        queue.hold();
        held = &queue;
    });
    return held;
}

}  // namespace ovsdr::soft::devx
