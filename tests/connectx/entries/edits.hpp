// Modify-header actions: the 8-byte commands of a list, or of an action that holds one of them.
//
// The model. A command writes a range of a window of 64 bits that a field code names. Formats 1 and 2 have windows with
// one 32-bit field in the upper half; format 0's registers share a window two by two. Codes without a row here, and
// commands other than SET, stop the engine by their name.
//
// Threads: pure functions. Source: PRM, modify-header actions of steering entries.
#pragma once

#include <cstdint>

#include "tests/connectx/entries/packet.hpp"

namespace ovsdr::connectx::entries {

inline constexpr std::size_t edit_size = 8;

/// Carries out one command on the packet's registers or headers. A command of zeros does nothing.
void edit(unsigned format, const std::uint8_t* command, Packet& packet);

/// The same for a list. The device carries out its commands two at a time; where both of a pair name one field, what
/// comes of it is not known (libmlx5 leaves a gap there).
void edit_all(unsigned format, const std::uint8_t* commands, std::uint32_t length, Packet& packet);

}  // namespace ovsdr::connectx::entries
