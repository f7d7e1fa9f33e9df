#include "datapath/rdma/devx/devx.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "datapath/rdma/devx/devx_layout.hpp"
#include "datapath/rdma/devx/devx_object.hpp"

namespace ovsdr::soft::devx {

using prm::Opcode;
using prm::Status;

namespace {

constexpr std::size_t mailbox_head = 16;      // bytes, input and output
constexpr std::size_t mailbox_limit = 65535;  // what one attribute of the kernel's interface carries

/// The smallest mailboxes of each command, bytes, and who makes what it asks for.
struct Command {
    Opcode opcode;
    std::size_t in, out;
    Creator create = nullptr;
};
constexpr std::array commands{
    Command{Opcode::query_hca_cap, 16, 16},
    Command{Opcode::query_vport_state, 16, 16},
    Command{Opcode::modify_vport_state, 16, 16},
    Command{Opcode::query_esw_vport_context, 16, 16 + 256},
    Command{Opcode::query_nic_vport_context, 16, 16 + prm::nic_vport_context::size},
    Command{Opcode::modify_nic_vport_context, 512, 16},
    Command{Opcode::query_vport_counter, 32, prm::vport_counter::out_size},
    Command{Opcode::query_lag, 16, 16},
    Command{Opcode::alloc_flow_counter, 16, 16},
    Command{Opcode::query_flow_counter, 32, 16},
    Command{Opcode::create_mkey, prm::mkc::list, 16, create_mkey},
    Command{Opcode::alloc_q_counter, 16, 16, alloc_q_counter},
    Command{Opcode::query_q_counter, 32, prm::q_counter::out_size},
    Command{Opcode::create_cq, 272, 16, create_cq},
    Command{Opcode::modify_cq, 272, 16},
    Command{Opcode::query_cq, 16, 272},
    Command{Opcode::create_qp, 272, 16, create_qp},
    Command{Opcode::query_qp, 16, 16},
    Command{Opcode::alloc_pd, 16, 16, alloc_pd},
    Command{Opcode::alloc_transport_domain, 16, 16, alloc_transport_domain},
    Command{Opcode::create_sq, prm::queue_mailbox, 16, create_sq},
    Command{Opcode::modify_sq, prm::queue_mailbox, 16},
    Command{Opcode::query_sq, 16, prm::queue_mailbox},
    Command{Opcode::create_rq, prm::queue_mailbox, 16, create_rq},
    Command{Opcode::modify_rq, prm::queue_mailbox, 16},
    Command{Opcode::query_rq, 16, prm::queue_mailbox},
    Command{Opcode::create_tis, 32 + prm::tisc::size, 16, create_tis},
    Command{Opcode::modify_tis, 32 + prm::tisc::size, 16},
    Command{Opcode::query_tis, 16, 16 + prm::tisc::size},
    Command{Opcode::create_tir, prm::queue_mailbox, 16, create_tir},
    Command{Opcode::modify_tir, prm::queue_mailbox, 16},
    Command{Opcode::query_tir, 16, prm::queue_mailbox},
    Command{Opcode::create_rqt, prm::queue_mailbox, 16, create_rqt},
    Command{Opcode::modify_rqt, prm::queue_mailbox, 16},
    Command{Opcode::query_rqt, 16, prm::queue_mailbox},
    Command{Opcode::create_general_object, 16, 16},
    Command{Opcode::query_general_object, 16, 16},
};

[[nodiscard]] bool deliverable(Input in, Output out) {
    return in.size() >= mailbox_head && out.size() >= mailbox_head && in.size() <= mailbox_limit &&
           out.size() <= mailbox_limit;
}

[[nodiscard]] Opcode opcode_of(Input in) {
    return static_cast<Opcode>(prm::get(in, prm::opcode));
}

/// nullptr: the device does not know it.
[[nodiscard]] const Command* command_of(Opcode opcode) {
    const auto* const known = std::find_if(commands.begin(), commands.end(),
                                           [&](const Command& command) { return command.opcode == opcode; });
    return known == commands.end() ? nullptr : known;
}

[[nodiscard]] Status check_sizes(const Command* known, Input in, Output out) {
    if (known == nullptr) return Status::bad_op;
    if (in.size() < known->in) return Status::bad_inp_len;
    return out.size() < known->out ? Status::bad_outp_len : Status::ok;
}

[[nodiscard]] int answer(Output out, Status status) {
    write_status(out, status);
    return status == Status::ok ? 0 : EREMOTEIO;
}

[[nodiscard]] Status query_lag(Device& device, Output out) {
    namespace context = prm::lag_context;
    constexpr unsigned active = 1;
    if (!device.has_lag()) return Status::bad_op;
    prm::set(out, context::shared_fdb, 1);
    prm::set(out, context::state, active);
    prm::set(out, context::remap_1, device.active_lag_port(1));
    prm::set(out, context::remap_2, device.active_lag_port(2));
    return Status::ok;
}

/// The commands that the kernel passes on as makers of an object. Event queues are its own.
[[nodiscard]] bool is_maker(Opcode opcode) {
    constexpr std::array<std::uint16_t, 29> makers{0x200, 0x400, 0x500, 0x600, 0x700, 0x705, 0x710, 0x717, 0x771, 0x782,
                                                   0x800, 0x806, 0x80e, 0x816, 0x827, 0x829, 0x900, 0x904, 0x908, 0x90c,
                                                   0x912, 0x916, 0x930, 0x933, 0x936, 0x939, 0x93d, 0x940, 0xa00};
    return std::find(makers.begin(), makers.end(), static_cast<std::uint16_t>(opcode)) != makers.end();
}

[[nodiscard]] bool is_query(Opcode opcode) {
    constexpr std::array queries{Opcode::query_cq,  Opcode::query_qp,        Opcode::query_sq,
                                 Opcode::query_rq,  Opcode::query_tis,       Opcode::query_tir,
                                 Opcode::query_rqt, Opcode::query_q_counter, Opcode::query_general_object};
    return std::find(queries.begin(), queries.end(), opcode) != queries.end();
}

/// Commands about queues, none of which the kernel passes on without their object.
[[nodiscard]] bool is_of_resources(Opcode opcode) {
    const auto number = static_cast<unsigned>(opcode);
    return (number >= 0x400 && number < 0x600) || (number >= 0x900 && number < 0x930);
}

/// What a modification or a query is about.
[[nodiscard]] std::uint64_t number_in(Opcode opcode, Input in) {
    return prm::get(in, opcode == Opcode::query_q_counter ? prm::q_counter::number : prm::number_in);
}

[[nodiscard]] int execute(mlx5dv_devx_obj& object, Opcode opcode, Input in, Output out) {
    if (!object.resource->takes(opcode) || number_in(opcode, in) != object.number) return EINVAL;
    std::fill(out.begin(), out.end(), std::byte{0});
    const Command* const command = command_of(opcode);
    Status status = command ? check_sizes(command, in, out) : Status::ok;
    if (status == Status::ok) status = object.resource->execute(opcode, in, out);
    return answer(out, status);
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
    const Command* const command = command_of(opcode);
    // The kernel wants an object for these.
    if (is_of_resources(opcode) || (command && command->create)) return EINVAL;
    Status status = check_sizes(command, in, out);
    if (status == Status::ok) {
        switch (opcode) {
            case Opcode::query_hca_cap:
                status = query_capabilities(state, in, out);
                break;
            case Opcode::query_lag:
                status = query_lag(state.device(), out);
                break;
            case Opcode::alloc_flow_counter:
            case Opcode::query_flow_counter:
            case Opcode::query_q_counter:
            case Opcode::create_general_object:
            case Opcode::query_general_object:
                return EINVAL;  // For these too.
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
    if (!is_maker(opcode)) return EINVAL;
    const Command* const command = command_of(opcode);
    Status status = check_sizes(command, in, out);
    if (status == Status::ok) {
        std::unique_ptr<mlx5dv_devx_obj> made(new mlx5dv_devx_obj{context, state, opcode, 0});
        if (command->create) {
            status = command->create(state, in, made->resource);
            if (status == Status::ok) {
                made->number = made->resource->number();
                prm::set(out, prm::number_out, made->number);
            }
        } else if (opcode == Opcode::alloc_flow_counter) {
            status = alloc_flow_counter(*made, in, out);
        } else {
            status = create_general_object(*made, in, out);
        }
        if (status == Status::ok) object = std::move(made);
    }
    return answer(out, status);
}

int query(mlx5dv_devx_obj& object, Input in, Output out) {
    if (!deliverable(in, out)) return EINVAL;
    const Opcode opcode = opcode_of(in);
    if (object.resource) return is_query(opcode) ? execute(object, opcode, in, out) : EINVAL;
    if (opcode == Opcode::query_general_object && is_general_object(object, in)) {
        std::fill(out.begin(), out.end(), std::byte{0});
        return answer(out, query_general_object(object, in, out));
    }
    if (opcode != Opcode::query_flow_counter || !object.counters) return EINVAL;
    const auto id = static_cast<std::uint32_t>(prm::get(in, prm::flow_counter::id));
    if (id < object.number || id >= object.number + object.counters->length()) return EINVAL;
    std::fill(out.begin(), out.end(), std::byte{0});
    Status status = check_sizes(command_of(opcode), in, out);
    if (status == Status::ok) status = query_flow_counter(object, in, out);
    return answer(out, status);
}

int modify(mlx5dv_devx_obj& object, Input in, Output out) {
    // Flow counters and ASO objects have no modification.
    if (!object.resource || !deliverable(in, out)) return EINVAL;
    const Opcode opcode = opcode_of(in);
    return is_query(opcode) ? EINVAL : execute(object, opcode, in, out);
}

int retire(mlx5dv_devx_obj& object) {
    if (object.holders.load(std::memory_order_acquire)) return EBUSY;
    if (object.resource && object.resource->busy()) return EBUSY;
    retire_general_object(object);
    return 0;
}

}  // namespace ovsdr::soft::devx
