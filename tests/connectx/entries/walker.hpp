// Follows steering entries from an address to where they end, as the device does.
//
// The model. At each entry the packet is compared: recognised, it is counted (with the size that it has before the
// entry's actions), acted on, and led to the next table, at the index that the hash of the next look-up's bytes gives;
// not recognised, it goes to the miss address. An address without entries ends the walk. Hash collisions, empty tables
// and matchers are nothing special: they are chains of misses.
//
// Headers are parsed once, and again after actions of an entry that asks for it; until then look-ups see them as they
// were. Registers show at once.
//
// Threads: one walker, one thread. Errors: Stopped.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/connectx/entries/entry_actions.hpp"
#include "tests/connectx/entries/lookups.hpp"
#include "tests/connectx/entries/packet_headers.hpp"

namespace ovsdr::connectx::entries {

/// A counter and the packet's size, for each entry that counts.
using CountPacket = std::function<void(std::uint32_t counter, std::size_t bytes)>;

class Walker {
public:
    Walker(EntryMemory memory, CountPacket count);

    /// Gives the address where steering ended. Throws Stopped also for a packet that goes in circles.
    std::uint64_t run(std::uint64_t address, Packet& packet);

    /// A line is added for each entry from now on; null: no more.
    void trace(std::string* lines) noexcept { trace_ = lines; }
    [[nodiscard]] std::uint64_t entries_visited() const noexcept { return visited_; }

private:
    struct Known {
        Vector vector, unknown;
        bool valid = false;
    };

    void parse(const Packet& packet) noexcept;
    void refresh_metadata(const Packet& packet) noexcept;
    [[nodiscard]] const Vector& vector_of(std::uint16_t type, const Vector& wanted);
    [[nodiscard]] const Definer& definer(std::uint16_t id) const;
    [[nodiscard]] bool recognises(const Entry& entry);
    [[nodiscard]] std::uint64_t next_of(const Entry& entry);
    void note(std::uint64_t address, const Entry& entry, bool hit);

    EntryMemory memory_;
    CountPacket count_;
    std::vector<Vector> bits_;    ///< that each look-up knows
    std::vector<Known> known_;    ///< composed of the packet under way
    PacketHeaders headers_;
    std::string* trace_ = nullptr;
    std::uint64_t visited_ = 0;
};

}  // namespace ovsdr::connectx::entries
