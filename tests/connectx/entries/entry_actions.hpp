// What an entry does with a packet that it recognises.
//
// The model. A table for each steering format has a row for each action that the format has: its number, name, size and
// handler. A row without a handler stops the engine by its name; ASO objects that are no flow meters, and the
// decapsulation of IP in a tunnel, become handlers when rules use them.
//
// Threads: pure functions, but for the memory. Source: PRM, actions of steering entries.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "tests/connectx/entries/entry.hpp"
#include "tests/connectx/entries/meters.hpp"
#include "tests/connectx/entries/packet.hpp"
#include "tests/connectx/entries/packet_headers.hpp"

namespace ovsdr::connectx::entries {

/// A definer object: which layout (lookups.hpp), and which of its bits count.
struct Definer {
    std::uint16_t layout;
    Vector mask;
};

/// The numbers of eight commands of a modify-header pattern.
using ModifyArgument = std::array<std::uint8_t, 64>;

/// The device memory that entries and their actions point to, and the objects that they name.
struct EntryMemory {
    unsigned format = 0;                                                      ///< 0, 1, 2
    std::function<const std::uint8_t*(std::uint64_t, std::size_t)> read;      ///< null: no memory there
    std::uint64_t modify_header_base = 0;                                     ///< lists are 64-byte units from here
    std::function<const Definer*(std::uint32_t)> definer = {};                ///< by id; null: no such definer
    std::uint64_t modify_pattern_base = 0;                                    ///< patterns are 64-byte units from here
    std::function<std::optional<ModifyArgument>(std::uint32_t)> argument = {};   ///< by id; nothing: no such one
    /// Headers of reformats of the type L2 to L2 tunnel, by id; nothing: no such one.
    std::function<std::optional<std::vector<std::uint8_t>>(std::uint32_t)> tunnel_headers = {};
    std::optional<GeneveOption> geneve_option = {};   ///< that an object names
    /// Of a packet of this size that meets the meter; nothing: no such one.
    std::function<std::optional<Colour>(MeterName, std::size_t)> meter = {};
};

/// Does all actions of an entry, in the device's order; false when there are none. Throws Stopped for what is not known
/// here.
[[nodiscard]] bool act(const EntryMemory& memory, const Entry& entry, Packet& packet);

}  // namespace ovsdr::connectx::entries
