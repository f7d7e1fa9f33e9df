// CREATE_SQ and CREATE_RQ, MODIFY and QUERY: Ethernet queues whose rings the application fills and rings.
//
// Rings are cyclic, in a UMEM, their doorbell record in another or the same. A queue is made in RST and moves RST, RDY,
// ERR; from ERR only to RST, where its counters begin anew and the application clears its doorbell record. A failed
// entry or buffer is a move to ERR of the device's own.
//
// Refused as by a device without the capability: striding and shared receive memory (RMP), hairpin, UMR and
// multi-packet entries, offsets for the parser, the reserved lkey, delayed drops, padding of what is written, rate
// limits (all BAD_PARAM).
#include <infiniband/mlx5dv.h>

#include <optional>

#include "datapath/rdma/devx/devx_layout.hpp"
#include "datapath/rdma/devx/devx_queue_domains.hpp"
#include "datapath/rdma/devx/devx_resource.hpp"
#include "datapath/rdma/ethernet/ethernet_send_queue.hpp"
#include "datapath/rdma/ethernet/receive_queue.hpp"
#include "datapath/rdma/memory/devx_memory.hpp"

namespace ovsdr::soft::devx {

using prm::Field;
using prm::Opcode;
using prm::queue_context;
using prm::Status;

namespace {

[[nodiscard]] std::uint32_t field(Input in, std::uint32_t structure, Field which) {
    return static_cast<std::uint32_t>(prm::get(in, prm::within(structure, which)));
}

/// A work queue context's ring.
struct Ring {
    Buffer base;
    std::uint32_t length, stride;
    DoorbellRecord doorbells;
    std::shared_ptr<ProtectionDomain> domain;
};

/// `structure`: of the WQ context.
[[nodiscard]] Status read_ring(DeviceState& state, Input in, std::uint32_t structure, Ring& ring) {
    namespace wq = prm::wq;
    constexpr std::uint32_t least_log_stride = 4, most_log_stride = 9, most_log_size = 15;
    const std::uint32_t log_size = field(in, structure, wq::log_size);
    const std::uint32_t log_stride = field(in, structure, wq::log_stride);
    if (field(in, structure, wq::type) != wq::cyclic || field(in, structure, wq::signature)) return Status::bad_param;
    if (field(in, structure, wq::end_padding) || log_size > most_log_size) return Status::bad_param;
    if (log_stride < least_log_stride || log_stride > most_log_stride) return Status::bad_param;
    ring.length = 1u << log_size;
    ring.stride = 1u << log_stride;
    const auto of_wq = [structure](Field which) { return prm::within(structure, which); };
    ring.base = find_buffer(state.umems(), in, of_wq(wq::umem_valid), of_wq(wq::umem), of_wq(wq::umem_offset),
                            std::size_t{ring.length} << log_stride, Use::read);
    ring.doorbells = find_doorbell(state.umems(), in, of_wq(wq::doorbell_umem_valid), of_wq(wq::doorbell_umem),
                                   of_wq(wq::doorbell_offset));
    if (!ring.base || !ring.doorbells) return Status::bad_param;
    ring.domain = state.protection_domains().find(field(in, structure, wq::pd));
    return ring.domain ? Status::ok : Status::bad_res;
}

void stand(Resource& queue, const Ring& ring) {
    queue.stand_on(ring.base);
    queue.stand_on(ring.doorbells);
}

/// A completion queue that is held.
class HeldCq {
public:
    HeldCq(DeviceState& state, std::uint32_t number) : queue_(hold_completion_queue(state, number)) {}
    ~HeldCq() {
        if (queue_) queue_->release();
    }
    HeldCq(const HeldCq&) = delete;
    HeldCq& operator=(const HeldCq&) = delete;
    [[nodiscard]] CompletionQueue* get() const noexcept { return queue_; }

private:
    CompletionQueue* queue_;
};

/// Copies a context from where it stands in commands.
[[nodiscard]] std::vector<std::byte> context_of(Input in) {
    constexpr std::size_t begin = queue_context / 8;
    return {in.begin() + begin, in.begin() + prm::queue_mailbox};
}
void put_context(Output out, const std::vector<std::byte>& context) {
    std::copy(context.begin(), context.end(), out.begin() + queue_context / 8);
}

/// May a queue go from one state to the other? Three states, of enum QueueState.
[[nodiscard]] bool may_move(std::uint32_t from, std::uint32_t to) {
    if (to == prm::queue_ready) return from == prm::queue_reset || from == prm::queue_ready;
    return to == prm::queue_reset || to == prm::queue_error;
}

/// The head of MODIFY_SQ and MODIFY_RQ.
[[nodiscard]] Status check_move(Input in, std::uint32_t now, std::uint32_t to) {
    if (prm::get(in, prm::state_in) != now) return Status::bad_res_state;
    return may_move(now, to) ? Status::ok : Status::bad_param;
}

class Sq final : public Resource {
public:
    Sq(DeviceState& state, Input in, const EthernetSendQueueSpec& spec, std::shared_ptr<ProtectionDomain> domain,
       Held tis, std::uint32_t kilobits)
        : Resource(spec.number),
          state_(state),
          context_(context_of(in)),
          domain_(std::move(domain)),
          tis_(std::move(tis)),
          queue_(spec) {
        queue_.limit_rate(kilobits);
        if (tis_.get()) static_cast<Tis*>(tis_.get())->add(number());
    }
    ~Sq() override {
        if (tis_.get()) static_cast<Tis*>(tis_.get())->remove(number());
        state_.queue_numbers().give_back(number());
    }

    bool takes(Opcode opcode) const noexcept override {
        return opcode == Opcode::modify_sq || opcode == Opcode::query_sq;
    }
    Status execute(Opcode opcode, Input in, Output out) override {
        if (opcode == Opcode::query_sq) {
            put_context(out, context_);
            prm::set(out, prm::within(queue_context, prm::sqc::state), state());
            return Status::ok;
        }
        const std::uint32_t to = field(in, queue_context, prm::sqc::state);
        const std::uint64_t changes = prm::get(in, prm::modify_bitmask);
        if (changes & ~prm::sqc::modify_rate_limit) return Status::bad_param;
        if (const Status status = check_move(in, state(), to); status != Status::ok) return status;
        if (changes & prm::sqc::modify_rate_limit) {
            const std::uint32_t index = field(in, queue_context, prm::sqc::rate_limit);
            const auto rate = state_.rates().rate_of(index);
            if (!rate) return Status::bad_param;
            queue_.limit_rate(*rate);
            prm::set(context_, prm::sqc::rate_limit, index);
        }
        queue_.move(to == prm::queue_ready   ? EthernetSendQueue::State::ready
                    : to == prm::queue_error ? EthernetSendQueue::State::failed
                                             : EthernetSendQueue::State::reset);
        return Status::ok;
    }

private:
    [[nodiscard]] std::uint32_t state() const noexcept {
        switch (queue_.state()) {
            case EthernetSendQueue::State::ready:
                return prm::queue_ready;
            case EthernetSendQueue::State::failed:
                return prm::queue_error;
            default:
                return prm::queue_reset;
        }
    }

    DeviceState& state_;
    std::vector<std::byte> context_;
    const std::shared_ptr<ProtectionDomain> domain_;
    const Held tis_;
    EthernetSendQueue queue_;
};

class Rq final : public Resource {
public:
    Rq(DeviceState& state, Input in, const ReceiveQueueSpec& spec, std::shared_ptr<ProtectionDomain> domain,
       Held counter)
        : Resource(spec.number),
          state_(state),
          context_(context_of(in)),
          domain_(std::move(domain)),
          counter_(std::move(counter)),
          queue_(spec) {
        state_.add_receive_queue(number(), queue_);
    }
    ~Rq() override {
        (void)state_.remove_receive_queue(number());
        state_.device().steering().synchronize();  // batches that were under way to it
        state_.queue_numbers().give_back(number());
    }

    bool busy() const noexcept override { return Resource::busy() || queue_.held(); }
    bool takes(Opcode opcode) const noexcept override {
        return opcode == Opcode::modify_rq || opcode == Opcode::query_rq;
    }
    Status execute(Opcode opcode, Input in, Output out) override {
        if (opcode == Opcode::query_rq) {
            put_context(out, context_);
            prm::set(out, prm::within(queue_context, prm::rqc::state), state());
            return Status::ok;
        }
        const std::uint64_t changes = prm::get(in, prm::modify_bitmask);
        const std::uint32_t to = field(in, queue_context, prm::rqc::state);
        if (changes & ~prm::rqc::modify_keep_vlan) return Status::bad_param;
        if (const Status status = check_move(in, state(), to); status != Status::ok) return status;
        if (changes & prm::rqc::modify_keep_vlan) {
            const std::uint32_t keep = field(in, queue_context, prm::rqc::keep_vlan);
            queue_.strip_cvlan(keep == 0);
            prm::set(context_, prm::rqc::keep_vlan, keep);
        }
        if (to == prm::queue_ready) queue_.open();
        if (to == prm::queue_error) queue_.fail();
        if (to == prm::queue_reset) queue_.reset();
        return Status::ok;
    }

private:
    [[nodiscard]] std::uint32_t state() const noexcept {
        switch (queue_.state()) {
            case ReceiveQueue::State::open:
                return prm::queue_ready;
            case ReceiveQueue::State::failed:
                return prm::queue_error;
            default:
                return prm::queue_reset;
        }
    }

    DeviceState& state_;
    std::vector<std::byte> context_;
    const std::shared_ptr<ProtectionDomain> domain_;
    const Held counter_;
    ReceiveQueue queue_;
};

/// Any of these asks for what the device does not have.
template <std::size_t Length>
[[nodiscard]] bool any(Input in, const std::array<Field, Length>& fields) {
    return std::any_of(fields.begin(), fields.end(), [&](Field which) { return field(in, queue_context, which) != 0; });
}

}  // namespace

Status create_sq(DeviceState& state, Input in, std::unique_ptr<Resource>& made) {
    namespace sqc = prm::sqc;
    constexpr std::array absent{sqc::reserved_lkey, sqc::multi_packet, sqc::reg_umr, sqc::allow_swp, sqc::hairpin};
    constexpr std::uint32_t ethernet_header = 14;
    const std::uint32_t min_inline = field(in, queue_context, sqc::min_inline);  // 0 nothing, 1 the Ethernet header
    if (any(in, absent) || field(in, queue_context, sqc::state) != prm::queue_reset || min_inline > 1) {
        return Status::bad_param;
    }
    if (!prm::has_timestamps(field(in, queue_context, sqc::timestamp_format))) return Status::bad_param;
    const std::uint32_t tis_count = field(in, queue_context, sqc::tis_count);
    const auto rate = state.rates().rate_of(field(in, queue_context, sqc::rate_limit));
    if (tis_count > 1 || !rate) return Status::bad_param;
    Ring ring{};
    if (const Status status = read_ring(state, in, queue_context + sqc::wq, ring); status != Status::ok) return status;
    if (ring.stride != roce::basic_block_size) return Status::bad_param;
    Held tis;
    if (tis_count == 1) tis = find_resource<Tis>(state, field(in, queue_context, sqc::tisn));
    const HeldCq completions(state, field(in, queue_context, sqc::cqn));
    if ((tis_count == 1 && !tis.get()) || !completions.get()) return Status::bad_res;
    const EthernetSendQueueSpec spec{
        .state = state,
        .domain = ring.domain->identity,
        .domain_number = ring.domain->number,
        .completions = *completions.get(),
        .number = state.queue_numbers().take(),
        .ring = {.base = ring.base.get(), .length = ring.length, .doorbell = ring.doorbells.get() + MLX5_SND_DBR},
        .user_index = field(in, queue_context, sqc::user_index),
        .min_inline = min_inline * ethernet_header,
        .flush_in_error = field(in, queue_context, sqc::flush_in_error) != 0,
        .sends_frames = tis_count == 1};
    made = std::make_unique<Sq>(state, in, spec, ring.domain, std::move(tis), *rate);
    stand(*made, ring);
    return Status::ok;
}

Status create_rq(DeviceState& state, Input in, std::unique_ptr<Resource>& made) {
    namespace rqc = prm::rqc;
    constexpr std::array absent{rqc::delay_drop, rqc::memory_type, rqc::hairpin};
    if (any(in, absent) || field(in, queue_context, rqc::state) != prm::queue_reset) return Status::bad_param;
    if (!prm::has_timestamps(field(in, queue_context, rqc::timestamp_format))) return Status::bad_param;
    Ring ring{};
    if (const Status status = read_ring(state, in, queue_context + rqc::wq, ring); status != Status::ok) return status;
    const HeldCq completions(state, field(in, queue_context, rqc::cqn));
    if (!completions.get()) return Status::bad_res;
    Held counter;
    std::atomic<std::uint64_t>* out_of_buffer = nullptr;
    if (!hold_queue_counter(state, field(in, queue_context, rqc::counter_set_id), counter, out_of_buffer)) {
        return Status::bad_res;
    }
    const ReceiveQueueSpec spec{
        .memory = state.memory(),
        .completions = *completions.get(),
        .domain = ring.domain->identity,
        .length = 0,
        .max_sges = 0,
        .flags = {.strip_cvlan = field(in, queue_context, rqc::keep_vlan) == 0,
                  .scatter_fcs = field(in, queue_context, rqc::scatter_fcs) != 0,
                  .flush_in_error = field(in, queue_context, rqc::flush_in_error) != 0},
        .number = state.queue_numbers().take(),
        .ring = roce::ReceiveRing{.base = ring.base.get(),
                                  .length = ring.length,
                                  .stride = ring.stride,
                                  .doorbell = ring.doorbells.get() + MLX5_RCV_DBR},
        .user_index = field(in, queue_context, rqc::user_index),
        .out_of_buffer = out_of_buffer};
    made = std::make_unique<Rq>(state, in, spec, ring.domain, std::move(counter));
    stand(*made, ring);
    return Status::ok;
}

}  // namespace ovsdr::soft::devx
