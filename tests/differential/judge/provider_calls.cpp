#include "tests/differential/judge/provider_calls.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace ovsdr::differential {

namespace {

/// Which call of a kind is to fail.
class Failure {
public:
    bool arm(unsigned nth) noexcept {
        calls_left_ = nth;
        return std::exchange(has_happened_, false);
    }
    /// Of the next call.
    bool happens() noexcept {
        if (calls_left_ == 0 || --calls_left_ != 0) return false;
        return has_happened_ = true;
    }

private:
    unsigned calls_left_ = 0;   ///< 1: the next one fails; 0: none does
    bool has_happened_ = false;
};

struct State {
    std::mutex mutex;
    unsigned drains = 0;         ///< since they were taken
    Failure wait, make;
    bool repeats_wait = false;   ///< the next one is the one that failed, asked again
};

State& state() {
    static State state;
    return state;
}

bool fails_to_sync(bool is_drain) {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    if (is_drain) {
        ++now.drains;
        return false;
    }
    if (std::exchange(now.repeats_wait, false)) return true;
    return now.repeats_wait = now.wait.happens();
}

bool fails_to_make() {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    return now.make.happens();
}

unsigned take_drains() {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    return std::exchange(now.drains, 0);
}

/// The `nth` wait from now on (1: the next one) fails; 0: none. Tells whether the one of before has failed.
bool fail_wait(unsigned nth) {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    now.repeats_wait = false;
    return now.wait.arm(nth);
}

bool fail_make(unsigned nth) {
    State& now = state();
    const std::lock_guard lock(now.mutex);
    return now.make.arm(nth);
}

/// How many calls of the kind the attempt makes.
unsigned count_calls(const char* kind, bool (*fail)(unsigned nth), const char* what,
                     const std::function<Result<void>()>& attempt) {
    constexpr unsigned most = 1000;
    for (unsigned nth = 1; nth != most; ++nth) {
        fail(nth);
        const Result<void> done = attempt();
        const bool has_failed = fail(0);
        if (has_failed == done.has_value()) {
            throw std::runtime_error(fmt::format("{} {} when call {} that {} {}", what, done ? "is said to be there" :
                                                 "is not there: " + done.error().what, nth, kind,
                                                 has_failed ? "has failed" : "has not failed"));
        }
        if (done) return nth - 1;
    }
    throw std::runtime_error(fmt::format("{} has no end of calls that {}", what, kind));
}

/// The provider's function of the name of one here.
template <typename Function>
Function* next(Function* /*here*/, const char* name) {
    auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
    if (found == nullptr) {
        fmt::print(stderr, "the provider has no {}\n", name);
        std::abort();
    }
    return found;
}

template <typename Made, typename... Parameters>
Made* make(Made* (*here)(Parameters...), const char* name, std::type_identity_t<Parameters>... arguments) {
    auto* const provider = next(here, name);
    if (!fails_to_make()) return provider(arguments...);
    errno = ENOMEM;
    return nullptr;
}

}  // namespace

void expect_waits(unsigned times, const char* what, const std::function<Result<void>()>& attempt) {
    const unsigned waits = count_calls("waits", fail_wait, what, attempt);
    if (waits == times) return;
    throw std::runtime_error(fmt::format("{} waits {} times for its rules, not {} times", what, waits, times));
}

void expect_makes(unsigned times, const char* what, const std::function<Result<void>()>& attempt) {
    const unsigned calls = count_calls("makes something", fail_make, what, attempt);
    if (calls != times) throw std::runtime_error(fmt::format("{} makes {} things, not {}", what, calls, times));
}

void expect_makes(const char* what, const std::function<Result<void>()>& attempt) {
    const unsigned calls = count_calls("makes something", fail_make, what, attempt);
    if (calls == 0) throw std::runtime_error(fmt::format("{} makes nothing", what));
}

void expect_drains(unsigned times, const char* what, const std::function<void()>& change) {
    (void)take_drains();
    change();
    const unsigned drains = take_drains();
    if (drains >= times) return;
    throw std::runtime_error(fmt::format("{} drains {} times, not {} times", what, drains, times));
}

}  // namespace ovsdr::differential

using ovsdr::differential::make;

// The linker takes these for the program's own calls; the provider's, whichever is loaded, come behind them. libmlx5's
// own calls of these come here, too: it makes some where a ConnectX-5 samples in the FDB, and for connections, neither
// of which offload/ asks for.
extern "C" {

#pragma GCC visibility push(default)

int mlx5dv_dr_domain_sync(mlx5dv_dr_domain* domain, std::uint32_t flags) {
    auto* const provider = ovsdr::differential::next(&mlx5dv_dr_domain_sync, __func__);
    const bool is_drain = (flags & MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW) != 0;
    return ovsdr::differential::fails_to_sync(is_drain) ? EIO : provider(domain, flags);
}

mlx5dv_dr_table* mlx5dv_dr_table_create(mlx5dv_dr_domain* domain, std::uint32_t level) {
    return make(&mlx5dv_dr_table_create, __func__, domain, level);
}

mlx5dv_dr_matcher* mlx5dv_dr_matcher_create(mlx5dv_dr_table* table, std::uint16_t priority, std::uint8_t criteria,
                                            mlx5dv_flow_match_parameters* mask) {
    return make(&mlx5dv_dr_matcher_create, __func__, table, priority, criteria, mask);
}

mlx5dv_dr_rule* mlx5dv_dr_rule_create(mlx5dv_dr_matcher* matcher, mlx5dv_flow_match_parameters* value,
                                      std::size_t length, mlx5dv_dr_action* actions[]) {
    return make(&mlx5dv_dr_rule_create, __func__, matcher, value, length, actions);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_ibv_qp(ibv_qp* qp) {
    return make(&mlx5dv_dr_action_create_dest_ibv_qp, __func__, qp);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_table(mlx5dv_dr_table* table) {
    return make(&mlx5dv_dr_action_create_dest_table, __func__, table);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_vport(mlx5dv_dr_domain* domain, std::uint32_t vport) {
    return make(&mlx5dv_dr_action_create_dest_vport, __func__, domain, vport);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_dest_array(mlx5dv_dr_domain* domain, std::size_t length,
                                                     mlx5dv_dr_action_dest_attr* destinations[]) {
    return make(&mlx5dv_dr_action_create_dest_array, __func__, domain, length, destinations);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_drop() { return make(&mlx5dv_dr_action_create_drop, __func__); }

mlx5dv_dr_action* mlx5dv_dr_action_create_default_miss() {
    return make(&mlx5dv_dr_action_create_default_miss, __func__);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_tag(std::uint32_t tag) {
    return make(&mlx5dv_dr_action_create_tag, __func__, tag);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_flow_counter(mlx5dv_devx_obj* counters, std::uint32_t offset) {
    return make(&mlx5dv_dr_action_create_flow_counter, __func__, counters, offset);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_aso(mlx5dv_dr_domain* domain, mlx5dv_devx_obj* object, std::uint32_t offset,
                                              std::uint32_t flags, std::uint8_t return_reg_c) {
    return make(&mlx5dv_dr_action_create_aso, __func__, domain, object, offset, flags, return_reg_c);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_packet_reformat(mlx5dv_dr_domain* domain, std::uint32_t flags,
                                                          mlx5dv_flow_action_packet_reformat_type type,
                                                          std::size_t size, void* data) {
    return make(&mlx5dv_dr_action_create_packet_reformat, __func__, domain, flags, type, size, data);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_modify_header(mlx5dv_dr_domain* domain, std::uint32_t flags,
                                                        std::size_t size, __be64 actions[]) {
    return make(&mlx5dv_dr_action_create_modify_header, __func__, domain, flags, size, actions);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_flow_meter(mlx5dv_dr_flow_meter_attr* meter) {
    return make(&mlx5dv_dr_action_create_flow_meter, __func__, meter);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_flow_sampler(mlx5dv_dr_flow_sampler_attr* sampler) {
    return make(&mlx5dv_dr_action_create_flow_sampler, __func__, sampler);
}

mlx5dv_dr_action* mlx5dv_dr_action_create_pop_vlan() { return make(&mlx5dv_dr_action_create_pop_vlan, __func__); }

mlx5dv_dr_action* mlx5dv_dr_action_create_push_vlan(mlx5dv_dr_domain* domain, __be32 tag) {
    return make(&mlx5dv_dr_action_create_push_vlan, __func__, domain, tag);
}

#pragma GCC visibility pop

}  // extern "C"
