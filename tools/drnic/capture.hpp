// `drnic capture`: writes what passes a vport of a running soft NIC into a pcapng file.
//
// The NIC filters and copies packets into rings in memory that this process has mapped (common/capture/); here they are
// put in order and written down. The NIC waits for nothing: what this process is too slow for is dropped from the
// capture, and counted.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace ovsdr::drnic {

/// Adds the command to `app`. `socket` is read when the command runs.
void describe_capture(CLI::App& app, const std::string& socket);

}  // namespace ovsdr::drnic
