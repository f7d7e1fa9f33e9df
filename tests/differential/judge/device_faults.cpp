#include "tests/differential/judge/device_faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace ovsdr::differential {

namespace {

constexpr const char* made[] = {"CREATE_FLOW_TABLE", "ALLOC_PACKET_REFORMAT_CONTEXT", "SET_FLOW_TABLE_ENTRY",
                                "ALLOC_FLOW_COUNTER"};
/// So often that offload/ does not ask again for a while; the device may have another function's option.
constexpr const char* option = "DEVX_OBJ_CREATE:CREATE_GENERAL_OBJECT:GENEVE_TLV_OPT";
constexpr std::uint64_t last_option = 4;   ///< TunnelRules' most_refusals
/// Of the calls of one name in a phase: some that fail, fewer and fewer, and a stretch in which all do.
constexpr std::uint64_t first = 3, last = 1000, stretch = 24, stretch_end = 36;
/// And of all that make something, one in so many.
constexpr std::uint64_t any_between = 37, last_any = 6000;

/// How many more definers are no leak: with hundreds of masks one would leave more than that.
constexpr std::uint64_t few_definers = 4;

/// Bulks: offload/ keeps counters and ASO objects, with the queue that writes these, and libmlx5 modify-header
/// arguments for as many lists as there ever were at once (dr_arg.c), until its domain goes.
constexpr const char* kept[] = {"DEVX:ALLOC_FLOW_COUNTER", "DEVX:CREATE_GENERAL_OBJECT:HEADER_MODIFY_ARGUMENT",
                                "DEVX:CREATE_GENERAL_OBJECT:ASO_FLOW_METER", "DEVX:CREATE_SQ", "DEVX:CREATE_CQ"};

}  // namespace

void make_calls_fail(connectx::Device& device) {
    for (const std::string name : made) {
        const std::string call = "DEVX_OBJ_CREATE:" + name;
        for (std::uint64_t nth = first; nth <= last; nth += nth / 2) device.fail(call, nth, ENOMEM);
        for (std::uint64_t nth = stretch; nth < stretch_end; ++nth) device.fail(call, nth, ENOMEM);
    }
    for (std::uint64_t nth = any_between; nth <= last_any; nth += any_between) device.fail("*", nth, ENOMEM);
    for (std::uint64_t nth = 1; nth <= last_option; ++nth) device.fail(option, nth, ENOMEM);
}

void make_next_read_fail(connectx::Device& device) { device.fail("DEVX_OBJ_QUERY:QUERY_FLOW_COUNTER", 1, ENOMEM); }

bool make_one_call_fail(connectx::Device& device, unsigned nth) {
    const bool happened = device.clear_faults() == 0;
    if (nth != 0) device.fail("*", nth, ENOMEM);
    return happened;
}

Objects made_for_megaflows(const connectx::Device& device) {
    Objects found;
    for (const auto& [kind, count] : device.alive()) {
        if (kind.starts_with("DEVX:") && std::ranges::count(kept, kind) == 0) found[kind] = count;
    }
    return found;
}

Objects with_shared_definers(const Objects& before, Objects after) {
    const std::string definers = "DEVX:CREATE_GENERAL_OBJECT:MATCH_DEFINER";
    const auto first = before.find(definers);
    if (first != before.end() && after[definers] <= first->second + few_definers) after[definers] = first->second;
    return after;
}

void check_same(const Objects& before, const Objects& after, const std::string& what) {
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> counts;
    for (const auto& [kind, count] : before) counts[kind].first = count;
    for (const auto& [kind, count] : after) counts[kind].second = count;
    std::string different;
    for (const auto& [kind, count] : counts) {
        if (count.first != count.second) different += fmt::format("\n{}: {}, then {}", kind, count.first, count.second);
    }
    if (!different.empty()) throw std::runtime_error(what + " left objects behind" + different);
}

}  // namespace ovsdr::differential
