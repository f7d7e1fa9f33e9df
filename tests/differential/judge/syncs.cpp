#include "tests/differential/judge/syncs.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace ovsdr::differential {

namespace {

struct State {
    std::mutex mutex;
    Syncs seen;
    unsigned until_failure = 0;   ///< waits; 0: none fails
    bool repeats = false;         ///< the next wait is the one that failed, asked again
    bool has_failed = false;
};

State& state() {
    static State state;
    return state;
}

bool fails(bool is_drain) {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    if (is_drain) {
        ++now.seen.drains;
        return false;
    }
    if (std::exchange(now.repeats, false)) return true;
    ++now.seen.waits;
    if (now.until_failure == 0 || --now.until_failure != 0) return false;
    now.repeats = now.has_failed = true;
    return true;
}

}  // namespace

Syncs take_syncs() {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    return std::exchange(now.seen, {});
}

bool fail_wait(unsigned nth) {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    now.until_failure = nth;
    now.repeats = false;
    return std::exchange(now.has_failed, false);
}

void expect_waits(unsigned times, const char* what, const std::function<bool()>& attempt) {
    for (unsigned nth = 1;; ++nth) {
        fail_wait(nth);
        const bool done = attempt();
        const bool has_failed = fail_wait(0);
        if (has_failed && !done) continue;
        if (has_failed) throw std::runtime_error(fmt::format("{} is there, and its rules may not be", what));
        if (!done) throw std::runtime_error(fmt::format("{} is not there", what));
        if (nth == times + 1) return;
        throw std::runtime_error(fmt::format("{} waits {} times for its rules, not {} times", what, nth - 1, times));
    }
}

void expect_drains(unsigned times, const char* what, const std::function<void()>& change) {
    (void)take_syncs();
    change();
    const unsigned drains = take_syncs().drains;
    if (drains >= times) return;
    throw std::runtime_error(fmt::format("{} drains {} times, not {} times", what, drains, times));
}

}  // namespace ovsdr::differential

extern "C" __attribute__((visibility("default"))) int mlx5dv_dr_domain_sync(mlx5dv_dr_domain* domain,
                                                                            std::uint32_t flags) {
    static const auto next =
        reinterpret_cast<decltype(&mlx5dv_dr_domain_sync)>(dlsym(RTLD_NEXT, "mlx5dv_dr_domain_sync"));
    if (next == nullptr) return ENOSYS;
    const bool is_drain = (flags & MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW) != 0;
    return ovsdr::differential::fails(is_drain) ? EIO : next(domain, flags);
}
