// Packet pacing: the rate of a raw packet queue, and rates that DEVX commands name by index.
//
// Bounds of bursts and typical packet sizes are EINVAL, as of a device without those capabilities: what idle time is
// worth is the queue's own (rate_limit.hpp).
// Source: ibv_modify_qp_rate_limit(3), mlx5dv_pp_alloc(3); PRM, SET_PP_RATE_LIMIT; libmlx5 and mlx5_ib, whose errors
// these are.
#include <infiniband/mlx5_api.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/prm.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

struct PacingEntry : mlx5dv_pp {
    Context& context;
    RateTable::Hold rate;
};

// set_pp_rate_limit_context
constexpr std::size_t pacing_context_size = 48;
constexpr std::size_t rate_limit_size = 4;  // the first field, kilobits per second

/// A context may be cut short: what is not there is 0.
[[nodiscard]] int read_context(const void* context, std::size_t size, std::uint32_t& kilobits) {
    if (size == 0 || size > pacing_context_size) return EINVAL;
    std::array<std::byte, pacing_context_size> whole{};
    std::memcpy(whole.data(), context, size);
    if (std::any_of(whole.begin() + rate_limit_size, whole.end(),
                    [](std::byte byte) { return byte != std::byte{0}; })) {
        return EINVAL;
    }
    kilobits = static_cast<std::uint32_t>(prm::get(whole, prm::Field{0, 32}));
    return 0;
}

}  // namespace

int modify_qp_rate_limit_op(ibv_qp* base, ibv_qp_rate_limit_attr* limit) {
    if (const int error = injected_fault("ibv_modify_qp_rate_limit")) return failed(error);
    Qp& qp = Qp::of(base);
    if (limit->comp_mask || limit->max_burst_sz || limit->typical_pkt_sz) return failed(EINVAL);
    if (qp.rss) return failed(ENOSYS);
    if (!qp.raw) return failed(EINVAL);
    ibv_qp_attr attr{};
    attr.rate_limit = limit->rate_limit;
    const int error = modify_raw_qp(qp, attr, IBV_QP_RATE_LIMIT);
    return error ? failed(error) : 0;
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

mlx5dv_pp* mlx5dv_pp_alloc(ibv_context* context, std::size_t size, const void* pacing_context, std::uint32_t flags) {
    int error = injected_fault("mlx5dv_pp_alloc");
    std::uint32_t kilobits = 0;
    RateTable::Hold rate;
    if (!error && (flags & ~std::uint32_t{MLX5DV_PP_ALLOC_FLAGS_DEDICATED_INDEX})) error = EOPNOTSUPP;
    if (!error) error = read_context(pacing_context, size, kilobits);
    if (!error) error = Context::of(context).state.rates().take(kilobits, flags != 0, rate);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> mlx5dv_pp* {
        const std::uint16_t index = rate.index();
        auto* const entry = new PacingEntry{{index}, Context::of(context), std::move(rate)};
        entry->context.hold();
        return entry;
    });
}

void mlx5dv_pp_free(mlx5dv_pp* base) {
    auto* const entry = static_cast<PacingEntry*>(base);
    Context& context = entry->context;
    delete entry;
    context.let_go();
}

}  // extern "C"
