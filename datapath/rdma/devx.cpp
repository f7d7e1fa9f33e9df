#include "datapath/rdma/devx.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "datapath/rdma/devx_object.hpp"
#include "datapath/rdma/receive_queue.hpp"

namespace ovsdr::soft::devx {

using prm::Opcode;
using prm::Status;

namespace {

constexpr std::size_t mailbox_head = 16;      // bytes, input and output
constexpr std::size_t mailbox_limit = 65535;  // what one attribute of the kernel's interface carries

constexpr prm::Field qpn_in{72, 24};  // of queries and modifications of queue pairs

/// The smallest mailboxes of each command, bytes.
struct Sizes {
    Opcode opcode;
    std::size_t in, out;
};
constexpr std::array sizes{
    Sizes{Opcode::query_hca_cap, 16, 16},
    Sizes{Opcode::query_vport_state, 16, 16},
    Sizes{Opcode::modify_vport_state, 16, 16},
    Sizes{Opcode::query_esw_vport_context, 16, 16 + 256},
    Sizes{Opcode::query_nic_vport_context, 16, 16 + prm::nic_vport_context::size},
    Sizes{Opcode::modify_nic_vport_context, 512, 16},
    Sizes{Opcode::query_vport_counter, 32, prm::vport_counter::out_size},
    Sizes{Opcode::create_tir, 272, 16},
    Sizes{Opcode::alloc_flow_counter, 16, 16},
    Sizes{Opcode::query_flow_counter, 32, 32},
    Sizes{Opcode::create_cq, 272, 16},
    Sizes{Opcode::create_qp, 272, 16},
    Sizes{Opcode::create_general_object, 16, 16},
    Sizes{Opcode::query_general_object, 16, 16},
};

[[nodiscard]] bool deliverable(Input in, Output out) {
    return in.size() >= mailbox_head && out.size() >= mailbox_head && in.size() <= mailbox_limit &&
           out.size() <= mailbox_limit;
}

[[nodiscard]] Opcode opcode_of(Input in) {
    return static_cast<Opcode>(prm::get(in, prm::opcode));
}

[[nodiscard]] Status check_sizes(Opcode opcode, Input in, Output out) {
    const auto known = std::find_if(sizes.begin(), sizes.end(), [&](const Sizes& s) { return s.opcode == opcode; });
    if (known == sizes.end()) return Status::bad_op;
    if (in.size() < known->in) return Status::bad_inp_len;
    return out.size() < known->out ? Status::bad_outp_len : Status::ok;
}

[[nodiscard]] int answer(Output out, Status status) {
    write_status(out, status);
    return status == Status::ok ? 0 : EREMOTEIO;
}

/// Counters of a bulk that the input asks for; 0: no bulk of that size can be had.
[[nodiscard]] unsigned bulk_length(Input in) {
    const auto units = static_cast<unsigned>(prm::get(in, prm::flow_counter::bulk));
    const auto log_size = static_cast<unsigned>(prm::get(in, prm::flow_counter::bulk_log_size));
    if (units && log_size) return 0;
    if (log_size) return log_size <= 14 ? 1u << log_size : 0;
    if (units == 0) return 1;
    return std::has_single_bit(units) ? units * prm::flow_counter::bulk_unit : 0;
}

[[nodiscard]] Status alloc_flow_counter(mlx5dv_devx_obj& object, Input in, Output out) {
    const unsigned length = bulk_length(in);
    if (length == 0) return Status::bad_param;
    object.counters = std::make_shared<CounterBulk>(length);
    object.number = object.state.counter_ids().take_run(length);
    prm::set(out, prm::flow_counter::id_in_alloc_out, object.number);
    return Status::ok;
}

[[nodiscard]] Status create_tir(mlx5dv_devx_obj& object, Input in, Output out) {
    namespace tir = prm::tir;
    if (prm::get(in, prm::within(tir::context, tir::disp_type)) != 0) return Status::bad_param;
    const auto rqn = static_cast<std::uint32_t>(prm::get(in, prm::within(tir::context, tir::inline_rqn)));
    const bool found = object.state.with_receive_queue(rqn, [&](ReceiveQueue& queue) {
        queue.hold();
        object.receiver = &queue;
    });
    if (!found) return Status::bad_res;
    object.number = object.state.queue_numbers().take();
    prm::set(out, tir::tirn_out, object.number);
    return Status::ok;
}

[[nodiscard]] Status query_flow_counter(mlx5dv_devx_obj& object, Input in, Output out) {
    namespace fc = prm::flow_counter;
    const auto first = static_cast<unsigned>(prm::get(in, fc::id)) - object.number;
    const auto asked = static_cast<unsigned>(prm::get(in, fc::length));
    const unsigned length = std::max(asked, 1u);
    if (prm::get(in, fc::dump_to_memory)) return Status::bad_param;
    if (asked > 1 && (object.number + first) % 4 != 0) return Status::bad_param;
    if (length > object.counters->length() - first) return Status::bad_param;
    if (out.size() < fc::statistics + length * 16ull) return Status::bad_outp_len;
    const bool clear = prm::get(in, fc::clear);
    for (unsigned i = 0; i < length; ++i) {
        CounterBulk& bulk = *object.counters;
        const CounterBulk::Value value = clear ? bulk.read_and_clear(first + i) : bulk.read(first + i);
        const std::uint32_t at = (fc::statistics + i * 16) * 8;
        prm::set(out, {at, 64}, value.packets);
        prm::set(out, {at + 64, 64}, value.bytes);
    }
    return Status::ok;
}

}  // namespace

void write_status(Output out, Status status) {
    prm::set(out, prm::status, static_cast<std::uint8_t>(status));
    // The device's syndromes name places in its firmware; ours repeat the status, so that none is 0.
    prm::set(out, prm::syndrome, static_cast<std::uint8_t>(status));
}

int general_command(DeviceState& state, Input in, Output out) {
    if (!deliverable(in, out)) return EINVAL;
    std::fill(out.begin(), out.end(), std::byte{0});
    const Opcode opcode = opcode_of(in);
    Status status = check_sizes(opcode, in, out);
    if (status == Status::ok) {
        switch (opcode) {
            case Opcode::query_hca_cap:
                status = query_capabilities(state, in, out);
                break;
            case Opcode::create_tir:
            case Opcode::create_cq:
            case Opcode::create_qp:
            case Opcode::alloc_flow_counter:
            case Opcode::query_flow_counter:
            case Opcode::create_general_object:
            case Opcode::query_general_object:
                return EINVAL;  // The kernel passes these on for objects only.
            default:
                status = vport_command(state, opcode, in, out);
        }
    }
    return answer(out, status);
}

int create(DeviceState& state, ibv_context* context, Input in, Output out, std::unique_ptr<mlx5dv_devx_obj>& object) {
    if (!deliverable(in, out)) return EINVAL;
    std::fill(out.begin(), out.end(), std::byte{0});
    const Opcode opcode = opcode_of(in);
    Status status = check_sizes(opcode, in, out);
    if (status == Status::ok) {
        std::unique_ptr<mlx5dv_devx_obj> made(new mlx5dv_devx_obj{context, state, opcode, 0, nullptr, nullptr, nullptr});
        switch (opcode) {
            case Opcode::alloc_flow_counter:
                status = alloc_flow_counter(*made, in, out);
                break;
            case Opcode::create_tir:
                status = create_tir(*made, in, out);
                break;
            case Opcode::create_cq:
                status = create_cq(state, in, out, made->queue, made->number);
                break;
            case Opcode::create_qp:
                status = create_qp(state, in, out, made->queue, made->number);
                break;
            case Opcode::create_general_object:
                status = create_general_object(*made, in, out);
                break;
            default:
                return EINVAL;
        }
        if (status == Status::ok) object = std::move(made);
    }
    return answer(out, status);
}

int query(mlx5dv_devx_obj& object, Input in, Output out) {
    if (!deliverable(in, out)) return EINVAL;
    const Opcode opcode = opcode_of(in);
    if (object.queue) {
        if (prm::get(in, qpn_in) != object.number) return EINVAL;
        std::fill(out.begin(), out.end(), std::byte{0});
        return answer(out, object.queue->query(opcode, out));
    }
    if (opcode == Opcode::query_general_object && is_general_object(object, in)) {
        std::fill(out.begin(), out.end(), std::byte{0});
        return answer(out, query_general_object(object, in, out));
    }
    if (opcode != Opcode::query_flow_counter || !object.counters) return EINVAL;
    const auto id = static_cast<std::uint32_t>(prm::get(in, prm::flow_counter::id));
    if (id < object.number || id >= object.number + object.counters->length()) return EINVAL;
    std::fill(out.begin(), out.end(), std::byte{0});
    Status status = check_sizes(opcode, in, out);
    if (status == Status::ok) status = query_flow_counter(object, in, out);
    return answer(out, status);
}

int modify(mlx5dv_devx_obj& object, Input in, Output out) {
    if (object.queue && deliverable(in, out) && modifies_qp(opcode_of(in))) {
        if (prm::get(in, qpn_in) != object.number) return EINVAL;
        std::fill(out.begin(), out.end(), std::byte{0});
        return answer(out, object.queue->modify(opcode_of(in), in));
    }
    // TIRs and flow counters have no modification that is implemented; what the opcode says decides who refuses it.
    constexpr auto modify_tir = static_cast<Opcode>(0x901);
    if (!deliverable(in, out) || opcode_of(in) != modify_tir) return EINVAL;
    std::fill(out.begin(), out.end(), std::byte{0});
    return answer(out, Status::bad_op);
}

int retire(mlx5dv_devx_obj& object) {
    if (object.holders.load(std::memory_order_acquire)) return EBUSY;
    if (object.queue && object.queue->busy()) return EBUSY;
    retire_general_object(object);
    if (object.receiver) {
        object.receiver->release();
        object.state.queue_numbers().give_back(object.number);
    }
    return 0;
}

}  // namespace ovsdr::soft::devx
