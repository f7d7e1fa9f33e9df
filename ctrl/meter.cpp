// See meter.h.
#include "ctrl/meter.h"

#include <cstdlib>

#include "ctrl/all_devices.hpp"

using namespace ovsdr;
using namespace ovsdr::ctrl;

namespace {

ovsdr_meter_stats c_stats(const dr::MeterStats& stats) {
    return {.packets_passed = stats.passed.packets,
            .bytes_passed = stats.passed.bytes,
            .packets_dropped = stats.dropped.packets,
            .bytes_dropped = stats.dropped.bytes};
}

/// As the C shim frees it.
std::uint32_t* c_array(const std::vector<std::uint32_t>& numbers, std::size_t* n) {
    *n = numbers.size();
    if (numbers.empty()) return nullptr;
    auto* copy = static_cast<std::uint32_t*>(std::malloc(numbers.size() * sizeof(std::uint32_t)));
    if (copy == nullptr) std::abort();   // as OVS's own allocations
    std::copy(numbers.begin(), numbers.end(), copy);
    return copy;
}

}  // namespace

void ovsdr_meter_set(const ovsdr_meter* meter) noexcept {
    all_devices().set_meter(meter->number, {.by_packets = meter->by_packets,
                                            .only_drops = meter->only_drops,
                                            .bands = meter->n_bands,
                                            .rate = meter->rate,
                                            .burst = meter->burst});
}

void ovsdr_meter_get(std::uint32_t number, ovsdr_meter_stats* stats) noexcept {
    *stats = c_stats(all_devices().meter_stats(number));
}

void ovsdr_meter_remove(std::uint32_t number, ovsdr_meter_stats* stats) noexcept {
    *stats = c_stats(all_devices().remove_meter(number));
}

std::uint32_t* ovsdr_meters_in_devices(std::size_t* n) noexcept {
    return c_array(all_devices().meters_in_devices(), n);
}

std::uint32_t* ovsdr_meters(std::size_t* n) noexcept { return c_array(all_devices().meters(), n); }

bool ovsdr_has_meters() noexcept { return all_devices().has_meters(); }

void ovsdr_on_meter_use(void (*used)()) noexcept { all_devices().on_meter_use(used); }

void ovsdr_meter_charge(std::uint32_t number, std::uint64_t packets, std::uint64_t bytes, long long elapsed_ms,
                        unsigned interval_ms) noexcept {
    all_devices().charge_meter(number, {packets, bytes}, elapsed_ms, interval_ms);
}
