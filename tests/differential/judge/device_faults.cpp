#include "tests/differential/judge/device_faults.hpp"

#include <cerrno>
#include <cstdint>

namespace ovsdr::differential {

namespace {

constexpr const char* made[] = {"CREATE_FLOW_TABLE", "ALLOC_PACKET_REFORMAT_CONTEXT", "SET_FLOW_TABLE_ENTRY",
                                "ALLOC_FLOW_COUNTER"};
/// Of the calls of one name in a phase: some that fail, fewer and fewer, and a stretch in which all do.
constexpr std::uint64_t first = 3, last = 1000, stretch = 24, stretch_end = 36;

}  // namespace

void make_calls_fail(connectx::Device& device) {
    for (const std::string name : made) {
        const std::string call = "DEVX_OBJ_CREATE:" + name;
        for (std::uint64_t nth = first; nth <= last; nth += nth / 2) device.fail(call, nth, ENOMEM);
        for (std::uint64_t nth = stretch; nth < stretch_end; ++nth) device.fail(call, nth, ENOMEM);
    }
}

std::map<std::string, std::uint64_t> made_for_megaflows(const connectx::Device& device) {
    std::map<std::string, std::uint64_t> found;
    for (const auto& [kind, count] : device.alive()) {
        // Counters are kept for megaflows to come.
        if (kind.starts_with("DEVX:") && kind != "DEVX:ALLOC_FLOW_COUNTER") found[kind] = count;
    }
    return found;
}

}  // namespace ovsdr::differential
