// The device's clock: CLOCK_MONOTONIC in nanoseconds, which is what completions are stamped with (hca_core_clock is
// 1 GHz). Turned into time of day by the offset of now.
// Source: ibv_query_rt_values_ex(3), mlx5dv_get_clock_info(3).
#include <ctime>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

[[nodiscard]] std::uint64_t nanoseconds(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

/// raw_clock is the counter, all of it in tv_nsec, as libmlx5 gives it. EINVAL for other values.
int query_rt_values_op(ibv_context*, ibv_values_ex* values) {
    if (const int error = injected_fault("ibv_query_rt_values_ex")) return failed(error);
    if (!(values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK)) return failed(EINVAL);
    values->raw_clock.tv_sec = 0;
    values->raw_clock.tv_nsec = static_cast<long>(nanoseconds(CLOCK_MONOTONIC));
    values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    return 0;
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

int mlx5dv_get_clock_info(ibv_context*, mlx5dv_clock_info* info) {
    if (const int error = injected_fault("mlx5dv_get_clock_info")) return failed(error);
    *info = mlx5dv_clock_info{};
    info->last_cycles = nanoseconds(CLOCK_MONOTONIC);
    info->nsec = nanoseconds(CLOCK_REALTIME);
    info->mult = 1;
    info->mask = ~std::uint64_t{0};
    return 0;
}

}  // extern "C"
