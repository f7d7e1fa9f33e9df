// A line of `ovs-appctl dpctl/dump-flows [-m]`, taken apart.
//
//   ufid:…, recirc_id(0),in_port(vm1),…, packets:3, bytes:294, used:0.2s, offloaded:yes, dp:dr, actions:vm2
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ovsdr::drcompile {

struct DumpLine {
    std::string ufid;      ///< as printed, without "ufid:"; empty: not printed
    std::string match;     ///< "recirc_id(0),in_port(vm1),…"
    std::string actions;
    std::optional<std::uint64_t> packets;
};

/// What is wrong with a line.
class BadLine : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// Nothing: the line holds no megaflow (it is empty, a comment, or the heading of a thread's flows). Throws BadLine.
[[nodiscard]] std::optional<DumpLine> take_apart(std::string_view line);

}  // namespace ovsdr::drcompile
