// See metrics.h.
#include "ctrl/metrics.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "ctrl/insertion_times.hpp"
#include "ctrl/port.hpp"
#include "offload/dr/device/leak.hpp"
#include "offload/dr/eswitch.hpp"

using namespace ovsdr;
using namespace ovsdr::ctrl;
using nlohmann::json;

namespace {

json datapath_json(const ovsdr_datapath_totals& datapath) {
    if (!datapath.is_there) return nullptr;
    return {{"flows", datapath.flows},
            {"hits", datapath.hits},
            {"misses", datapath.misses},
            {"lost", datapath.lost},
            {"offload", datapath.offload_is_on},
            {"waiting_offloads", datapath.waiting_offloads}};
}

json meters_json(std::span<const ovsdr_meter_totals> meters) {
    json all = json::array();
    for (const ovsdr_meter_totals& meter : meters) {
        all.push_back({{"number", meter.number},
                       {"packets", meter.packets},
                       {"bytes", meter.bytes},
                       {"dropped_packets", meter.dropped_packets},
                       {"dropped_bytes", meter.dropped_bytes}});
    }
    return all;
}

json histogram_json(const InsertionHistogram& histogram) {
    return {{"buckets", histogram.buckets}, {"nanoseconds", histogram.nanoseconds}};
}

json insertion_json() {
    return {{"bounds", insertion_bounds},
            {"outcomes",
             {{"installed", histogram_json(insertion_times(OVSDR_PUT_INSTALLED))},
              {"rejected", histogram_json(insertion_times(OVSDR_PUT_REJECTED))},
              {"failed", histogram_json(insertion_times(OVSDR_PUT_FAILED))}}}};
}

json device_json(const dr::Eswitch& eswitch) {
    const auto totals = eswitch.totals();
    json reasons = json::array(), tables = json::array();
    for (const auto& count : eswitch.reasons()) {
        reasons.push_back({{"reason", count.reason},
                           {"detail", count.detail},
                           {"megaflows", count.megaflows},
                           {"total", count.total}});
    }
    for (const auto& use : eswitch.table_use()) {
        tables.push_back({{"domain", use.domain},
                          {"level", use.level},
                          {"tables", use.tables},
                          {"matchers", use.matchers},
                          {"rules", use.rules}});
    }
    return {{"name", eswitch.device()},
            {"megaflows",
             {{"offloaded", totals.offloaded}, {"rejected", totals.rejected}, {"failed", totals.failed}}},
            {"packets", totals.packets},
            {"bytes", totals.bytes},
            {"misses", totals.misses},
            {"kept_rules", totals.kept_rules},
            {"reasons", std::move(reasons)},
            {"tables", std::move(tables)}};
}

}  // namespace

char* ovsdr_metrics(const ovsdr_datapath_totals* datapath) noexcept {
    try {
        json devices = json::array();
        for (const auto& eswitch : dr::open_eswitches()) devices.push_back(device_json(*eswitch));
        const json all{{"datapath", datapath_json(*datapath)},
                       {"meters", meters_json({datapath->meters, datapath->n_meters})},
                       {"insertion", insertion_json()},
                       {"devices", std::move(devices)},
                       {"leaked_objects", dr::leaked_objects()}};
        return c_string(all.dump(-1, ' ', false, json::error_handler_t::replace));
    } catch (...) {
        return nullptr;
    }
}
