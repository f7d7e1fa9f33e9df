// A steering entry: 64 bytes of device memory, read by the layout of the device's steering format.
//
// The model. An entry says how to recognise a packet (look-up type, mask, tag), where to go when it is recognised (a
// hash table of entries, with the look-up and the bytes to hash, or an address where steering ends) and where otherwise
// (the miss address), and what to do with a packet that it recognises (a counter, actions).
//
// Format 0 (ConnectX-5) has entry types: TX, RX, and MODIFY, whose control part holds a modify-header list. The actions
// are fields of the control part.
//
// Formats 1 and 2 (ConnectX-6 Dx, 7) have a list of actions of 4 or 8 bytes each. A "match" entry has room for 12 bytes
// of them; its tag is 32 bytes long, and its look-up is a definer, whose mask is not in the entry.
//
// An address with its table's length is one number: the address in 32-byte units, and the lowest bit that is set is the
// length.
//
// Threads: pure functions. Source: PRM, steering entry formats.
#pragma once

#include <cstdint>
#include <span>

#include "tests/connectx/entries/lookups.hpp"

namespace ovsdr::connectx::entries {

inline constexpr std::size_t entry_size = 64;
/// In the place of a look-up type: no look-up at all.
inline constexpr std::uint16_t any_packet = 0x0F;

/// Format 0's.
enum class EntryType : std::uint8_t { tx = 1, rx = 2, modify = 6 };

struct Entry {
    const std::uint8_t* bytes;         ///< all 64
    bool is_match;                     ///< look-ups are definers' ids, or any_packet; no `mask`, no `byte_mask`
    std::uint16_t lookup;
    Vector mask, tag;
    std::uint64_t miss;
    std::uint64_t next;                ///< address of the next hash table, or where steering ends
    std::uint64_t next_length;         ///< entries of that table; 0: an empty entry, which leads nowhere
    std::uint16_t next_lookup;
    std::uint16_t byte_mask;           ///< bytes of the next look-up that are hashed
    std::uint32_t counter;             ///< 0 none
    bool parse_again;                  ///< when the actions are done
    EntryType type;                    ///< format 0
    std::span<const std::uint8_t> actions;   ///< formats 1 and 2
};

/// Throws Stopped for entry types and control bits that are not known here.
[[nodiscard]] Entry read_entry(unsigned format, const std::uint8_t* bytes);

}  // namespace ovsdr::connectx::entries
