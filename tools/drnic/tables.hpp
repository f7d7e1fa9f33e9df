// What `drnic list`, `stats`, `limits` and `faults` print for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ovsdr::drnic {

[[nodiscard]] std::string list_table(const nlohmann::json& answer);
[[nodiscard]] std::string stats_table(const nlohmann::json& answer);
[[nodiscard]] std::string limits_table(const nlohmann::json& answer);
[[nodiscard]] std::string faults_table(const nlohmann::json& answer);

}  // namespace ovsdr::drnic
