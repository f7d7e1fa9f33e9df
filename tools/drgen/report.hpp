// drgen's report, for people and for programs.
//
// JSON: {"seconds", "sent", "lost", "duplicated", "overtaken", "corrupted", "stray": totals,
//        "streams": [{"from", "sent", "sent_bytes", "rate", "largest_backlog",
//                     "arrivals": [{"port", "received", "lost", "duplicated", "overtaken",
//                                   "latency_ns": {"p50", "p90", "p99", "p99.9", "max"}}]}],
//        "ports": [{"port", "dpdk", "received", "received_bytes", "corrupted", "stray", "foreign"}]}
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/drgen/generator.hpp"

namespace ovsdr::drgen {

[[nodiscard]] nlohmann::json report_json(const Options& options, const Generator& generator);
[[nodiscard]] std::string report_text(const nlohmann::json& report);

/// Nothing was lost, duplicated, corrupted or stray.
[[nodiscard]] bool is_clean(const nlohmann::json& report);

}  // namespace ovsdr::drgen
