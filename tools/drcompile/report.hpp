// What drcompile prints: the ports, each megaflow's program or reasons, and a summary.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tools/drcompile/input.hpp"
#include "tools/drcompile/nic.hpp"

namespace ovsdr::drcompile {

struct Report {
    std::string profile;
    const Input& input;
    std::span<const Verdict> verdicts;   ///< of the input's megaflows
};

/// How many of the megaflows are offloaded, and for each reason how many are not.
struct Summary {
    struct Share {
        std::uint64_t megaflows = 0, packets = 0;
    };
    struct Row {
        std::string reason, detail;   ///< as `dr/explain` counts them: without values
        Share all;                    ///< megaflows that have this reason, perhaps among others
        std::uint64_t only = 0;       ///< and no other
    };
    Share all, offloaded;
    bool has_packets = false;         ///< the input says how many
    std::vector<Row> rows;            ///< the most frequent first
};
[[nodiscard]] Summary summary_of(const Report& report);

[[nodiscard]] std::string ports_text(const Report& report);
[[nodiscard]] std::string megaflows_text(const Report& report);
[[nodiscard]] std::string summary_text(const Summary& summary);
[[nodiscard]] std::string text_of(const Input::Fault& fault);

/// `whole`: with each megaflow.
[[nodiscard]] nlohmann::json json_of(const Report& report, bool whole);

}  // namespace ovsdr::drcompile
