#include "tests/connectx/entries/walker.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

/// Far above what tables of thousands of matchers need.
constexpr unsigned most_entries = 1'000'000;

}  // namespace

Walker::Walker(EntryMemory memory, CountPacket count) : memory_(std::move(memory)), count_(std::move(count)) {
    for (const Lookup& lookup : lookups_of(memory_.format)) bits_.push_back(bits_of(lookup));
    known_.resize(bits_.size());
}

void Walker::parse(const Packet& packet) noexcept {
    headers_.parse(packet, memory_.geneve_option);
    refresh_metadata(packet);
}

void Walker::refresh_metadata(const Packet& packet) noexcept {
    headers_.take_metadata(packet);
    for (Known& known : known_) known.valid = false;
}

const Vector& Walker::vector_of(std::uint16_t type, const Vector& wanted) {
    const int index = find_lookup(memory_.format, type);
    if (index < 0) throw Stopped(fmt::format("look-up type {:#x} of format {}", type, memory_.format));
    const auto place = static_cast<std::size_t>(index);
    const Lookup& lookup = lookups_of(memory_.format)[place];
    if (const Vector unknown = wanted.without(bits_[place]); !unknown.zero()) {
        throw Stopped(fmt::format("bits {:016x} of look-up type {:#x} ({}) of format {}", fmt::join(unknown.words, ""),
                                  type, lookup.name, memory_.format));
    }
    Known& known = known_[place];
    if (!known.valid) known = {compose(lookup, headers_), unknown_bits(lookup, headers_), true};
    if (const Vector unknown = wanted.within(known.unknown); !unknown.zero()) {
        throw Stopped(fmt::format("bits {:016x} of look-up type {:#x} ({}) of format {}, on a packet in no such tunnel",
                                  fmt::join(unknown.words, ""), type, lookup.name, memory_.format));
    }
    return known.vector;
}

const Definer& Walker::definer(std::uint16_t id) const {
    const Definer* found = memory_.definer ? memory_.definer(id) : nullptr;
    if (found == nullptr) throw Stopped(fmt::format("definer {}, which is not there", id));
    return *found;
}

bool Walker::recognises(const Entry& entry) {
    if (entry.is_match && entry.lookup == any_packet) return true;
    if (entry.is_match) {
        const Definer& by = definer(entry.lookup);
        return vector_of(definer_layout | by.layout, by.mask).within(by.mask) == entry.tag;
    }
    if (entry.mask.zero()) return entry.tag.zero();
    return vector_of(entry.lookup, entry.mask).within(entry.mask) == entry.tag;
}

std::uint64_t Walker::next_of(const Entry& entry) {
    if (entry.next_length == 0) throw Stopped("an empty entry that recognises a packet");
    if (entry.next_length == 1) return entry.next;
    constexpr std::size_t size = 16;
    std::uint32_t index = 0;
    if (entry.is_match) {
        const Definer& by = definer(entry.next_lookup);
        const Vector& vector = vector_of(definer_layout | by.layout, by.mask);
        index = hash_index(vector.within(by.mask), 2 * size, entry.next_length);
    } else if (entry.byte_mask != 0) {
        const Vector hashed = bytes_of(entry.byte_mask);
        index = hash_index(vector_of(entry.next_lookup, hashed).within(hashed), size, entry.next_length);
    }
    return entry.next + std::uint64_t{index} * entry_size;
}

void Walker::note(std::uint64_t address, const Entry& entry, bool hit) {
    if (trace_ == nullptr) return;
    *trace_ += fmt::format("  {:#x} {} {:#05x} {} counter {:#x} next {:#x}\n    {:02x}\n", address,
                           entry.is_match ? "definer" : "look-up", entry.lookup, hit ? "hit " : "miss",
                           hit ? entry.counter : 0, hit ? entry.next : entry.miss,
                           fmt::join(entry.bytes, entry.bytes + entry_size, ""));
}

std::uint64_t Walker::run(std::uint64_t address, Packet& packet) {
    parse(packet);
    for (unsigned visited = 0; visited < most_entries; ++visited) {
        const std::uint8_t* bytes = memory_.read(address, entry_size);
        if (bytes == nullptr) return address;
        ++visited_;
        const Entry entry = read_entry(memory_.format, bytes);
        const bool hit = recognises(entry);
        note(address, entry, hit);
        if (!hit) {
            address = entry.miss;
            continue;
        }
        if (entry.counter != 0) count_(entry.counter, packet.bytes.size());
        // Whether the hash takes the packet before or behind the actions is not known.
        if (act(memory_, entry, packet) && entry.next_length > 1) {
            throw Stopped("an entry with actions that leads to a hash table");
        }
        if (entry.parse_again) {
            parse(packet);
        } else {
            refresh_metadata(packet);
        }
        address = next_of(entry);
    }
    throw Stopped("a packet that goes in circles");
}

}  // namespace ovsdr::connectx::entries
