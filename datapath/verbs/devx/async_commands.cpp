// Queries of DEVX objects whose answers are read from a descriptor.
//
// The device answers at once, so that an answer is there as soon as mlx5dv_devx_obj_query_async() has returned; answers
// come in the order of the queries. What the device refuses is an answer too; what the kernel would not pass on is an
// error of the query.
// Source: mlx5dv_devx_create_cmd_comp(3).
#include <cerrno>
#include <cstring>
#include <vector>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/completion/event_queue.hpp"
#include "datapath/rdma/devx/devx.hpp"
#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/verbs/objects.hpp"

using namespace ovsdr::soft;

namespace {

struct Answer {
    std::uint64_t wr_id = 0;
    std::vector<std::byte> out;
};

struct CommandCompletions : mlx5dv_devx_cmd_comp {
    explicit CommandCompletions(Context& owner) : context(owner) {
        fd = answers.fd();
        context.hold();
    }
    ~CommandCompletions() { context.let_go(); }
    [[nodiscard]] static CommandCompletions& of(mlx5dv_devx_cmd_comp* from) {
        return *static_cast<CommandCompletions*>(from);
    }

    Context& context;
    EventQueue<Answer> answers;
};

}  // namespace

extern "C" {

mlx5dv_devx_cmd_comp* mlx5dv_devx_create_cmd_comp(ibv_context* context) {
    if (const int error = injected_fault("mlx5dv_devx_create_cmd_comp")) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> mlx5dv_devx_cmd_comp* { return new CommandCompletions(Context::of(context)); });
}

/// Answers that nobody has read go with it.
void mlx5dv_devx_destroy_cmd_comp(mlx5dv_devx_cmd_comp* completions) {
    delete &CommandCompletions::of(completions);
}

int mlx5dv_devx_obj_query_async(mlx5dv_devx_obj* object, const void* in, std::size_t in_size, std::size_t out_size,
                                std::uint64_t wr_id, mlx5dv_devx_cmd_comp* completions) {
    if (const int error = injected_fault("mlx5dv_devx_obj_query_async")) return failed(error);
    try {
        Answer answer{wr_id, std::vector<std::byte>(out_size)};
        const int error = devx::query(*object, {static_cast<const std::byte*>(in), in_size}, answer.out);
        if (error && error != EREMOTEIO) return failed(error);
        CommandCompletions::of(completions).answers.push(answer);
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
    return 0;
}

/// EAGAIN where the descriptor is in non-blocking mode and nothing is there. ENOSPC for an answer longer than `size`
/// bytes, which stays.
int mlx5dv_devx_get_async_cmd_comp(mlx5dv_devx_cmd_comp* completions, mlx5dv_devx_async_cmd_hdr* out,
                                   std::size_t size) {
    if (const int error = injected_fault("mlx5dv_devx_get_async_cmd_comp")) return failed(error);
    EventQueue<Answer>& answers = CommandCompletions::of(completions).answers;
    Answer answer;
    const auto fits = [size](const Answer& first) { return sizeof(out->wr_id) + first.out.size() <= size; };
    if (const int error = answers.pop_if(answer, fits)) return failed(error);
    out->wr_id = answer.wr_id;
    std::memcpy(out->out_data, answer.out.data(), answer.out.size());
    return 0;
}

}  // extern "C"
