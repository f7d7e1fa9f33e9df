// Modify-header actions: the 8-byte commands of a list, or of an action that holds one of them.
//
// The model. A command (SET, ADD, COPY) writes a range of a window of 64 bits that a field code names. A row of
// edit_tables.hpp says which field of which header, or which register, stands where in a window.
//
// Commands of a list work two at a time: the second of a pair must touch no window that the first writes (libmlx5
// leaves a gap there), since nobody says what it would see. Codes without a row here, bits of a window where the packet
// has no field, and ADD where libmlx5 does not let it through stop the engine by their name.
//
// Threads: pure functions. Source: PRM, modify-header actions of steering entries; rewrite.hpp has checksums.
#pragma once

#include <cstdint>
#include <span>

#include "tests/connectx/entries/packet.hpp"

namespace ovsdr::connectx::entries {

inline constexpr std::size_t edit_size = 8;

/// Carries out commands on the packet's registers and headers, which are found once. A command of zeros does nothing.
void edit(unsigned format, std::span<const std::uint8_t> commands, Packet& packet);

}  // namespace ovsdr::connectx::entries
