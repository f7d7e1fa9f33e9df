// drgen's command line.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/drgen/frame.hpp"

namespace ovsdr::drgen {

/// A wrong option: its name, its value, and what would be right.
class OptionError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct StreamOptions {
    unsigned from;             ///< index of the sending port
    std::vector<unsigned> to;  ///< the ports where each frame is expected once; none: nowhere
    MacAddress source, destination;
    std::vector<std::uint16_t> vlans;
};

struct Options {
    std::vector<std::string> ports;  ///< DPDK device arguments without a number
    std::vector<StreamOptions> streams;
    std::vector<std::size_t> sizes{smallest_frame};  ///< used in turn
    std::uint32_t flows = 1;
    double rate = 1000;       ///< frames per second of each stream, 0: as fast as possible
    double duration = 10;     ///< seconds; 0: no limit
    std::uint64_t count = 0;  ///< frames of each stream; 0: no limit
    unsigned drain_ms = 500;  ///< how long late frames are waited for
    unsigned nap_us = 0;      ///< sleeps this long when nothing is due; 0: never sleeps
    unsigned memory_mb = 128;
    int cpu = -1;         ///< -1: anywhere
    std::string json;     ///< file for the report, "-" for stdout
    bool strict = false;  ///< anything lost, duplicated, corrupted or stray is a failure
};

/// Throws OptionError; prints help and exits for --help.
[[nodiscard]] Options parse_options(int argc, char** argv);

// For parse_options() and its tests. `option` names the option in errors.
[[nodiscard]] std::vector<std::size_t> parse_sizes(const std::string& text);
[[nodiscard]] StreamOptions parse_stream(const std::string& text, std::size_t port_count);
[[nodiscard]] MacAddress parse_mac(const std::string& text, const std::string& option);
[[nodiscard]] std::vector<std::uint16_t> parse_vlans(const std::string& text);

}  // namespace ovsdr::drgen
