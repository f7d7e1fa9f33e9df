#include "datapath/control/fault.hpp"

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

// Made at build time of the sources that ask: fault_points.py.
constexpr std::string_view points[] = {
#include "datapath/control/fault_points.inc"
};

}  // namespace

bool faults_are_armed() noexcept { return armed_count.load(std::memory_order_relaxed) != 0; }

int injected_fault(std::string_view call) noexcept {
    if (!faults_are_armed()) [[likely]]
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

std::vector<ArmedFault> armed_faults() {
    Armed& state = armed();
    const std::lock_guard lock(state.mutex);
    std::vector<ArmedFault> faults;
    for (const auto& [call, fault] : state.faults) faults.push_back({call, fault.error, fault.calls_left});
    return faults;
}

void disarm_faults() noexcept {
    Armed& state = armed();
    const std::lock_guard lock(state.mutex);
    state.faults.clear();
    armed_count.store(0, std::memory_order_relaxed);
}

std::span<const std::string_view> fault_points() noexcept { return points; }

}  // namespace ovsdr::soft
