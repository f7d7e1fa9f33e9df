#include "datapath/control/fault.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string>

namespace ovsdr::soft {
namespace {

struct Fault {
    int error;
    unsigned calls_left;  ///< 1: the next one fails
};

struct Armed {
    std::mutex mutex;
    std::map<std::string, Fault, std::less<>> faults;
};

// Never destroyed: calls are made until the process is gone.
Armed& armed() {
    static auto* state = new Armed;
    return *state;
}

std::atomic<unsigned> armed_count{0};

// Functions of the public headers that are inline there and call the device through a table of pointers: no symbol tells
// of them.
constexpr std::string_view inline_calls[] = {
    "ibv_create_cq_ex", "ibv_create_qp_ex", "ibv_query_device_ex", "ibv_poll_cq", "ibv_req_notify_cq", "ibv_post_send",
    "ibv_post_recv", "ibv_start_poll", "ibv_wr_start", "ibv_wr_complete", "ibv_create_wq", "ibv_modify_wq",
    "ibv_destroy_wq", "ibv_post_wq_recv"};

}  // namespace

int injected_fault(std::string_view call) noexcept {
    if (armed_count.load(std::memory_order_relaxed) == 0) [[likely]]
        return 0;
    Armed& state = armed();
    const std::lock_guard lock(state.mutex);
    const auto found = state.faults.find(call);
    if (found == state.faults.end() || --found->second.calls_left > 0) return 0;
    const int error = found->second.error;
    state.faults.erase(found);
    armed_count.store(static_cast<unsigned>(state.faults.size()), std::memory_order_relaxed);
    return error;
}

void arm_fault(std::string_view call, int error, unsigned nth) {
    Armed& state = armed();
    const std::lock_guard lock(state.mutex);
    state.faults.insert_or_assign(std::string(call), Fault{.error = error, .calls_left = nth});
    armed_count.store(static_cast<unsigned>(state.faults.size()), std::memory_order_relaxed);
}

bool can_fault(const std::string& call) {
    Dl_info own{};
    if (dladdr(reinterpret_cast<const void*>(&arm_fault), &own) == 0 || own.dli_fname == nullptr) return true;
    void* library = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return true;  // linked into a program, which exports nothing
    // A library without the best-known function is not the drop-in one, and there is no list to check against.
    const bool drop_in = dlsym(library, "ibv_open_device") != nullptr;
    // Some inline functions only pass on to one whose name has an underscore before it.
    const bool known = dlsym(library, call.c_str()) != nullptr || dlsym(library, ("_" + call).c_str()) != nullptr ||
                       std::ranges::find(inline_calls, call) != std::end(inline_calls);
    dlclose(library);
    return known || !drop_in;
}

}  // namespace ovsdr::soft
