// Steering entries made by hand, for the engine's own tests; and memory that holds them.
//
// Not by the engine's tables: offsets are written here a second time.
#pragma once

#include <array>
#include <cstring>
#include <map>

#include "tests/connectx/entries/entry_actions.hpp"

namespace ovsdr::connectx::entries::test {

using EntryBytes = std::array<std::uint8_t, 64>;
using TagBytes = std::array<std::uint8_t, 16>;

inline void put_bits(std::uint8_t* bytes, unsigned offset, unsigned length, std::uint64_t value) {
    for (unsigned i = 0; i < length; ++i) {
        const unsigned at = offset + length - 1 - i;
        const auto bit = static_cast<std::uint8_t>(0x80U >> at % 8);
        if ((value >> i & 1) != 0) {
            bytes[at / 8] |= bit;
        } else {
            bytes[at / 8] &= static_cast<std::uint8_t>(~bit);
        }
    }
}

/// Format 1, which is also 2's.
class Entry1 {
public:
    explicit Entry1(std::uint16_t lookup = any_packet) {
        put_bits(bytes_.data(), 0, 8, lookup >> 8);
        put_bits(bytes_.data(), 48, 8, lookup & 0xFF);
    }
    Entry1& mask(const TagBytes& mask) { return copy(32, mask); }
    Entry1& tag(const TagBytes& tag) { return copy(48, tag); }
    Entry1& miss(std::uint64_t address) { return bits(56, 8, address >> 32).bits(64, 26, address >> 6); }
    Entry1& hit(std::uint64_t address, std::uint64_t length = 1) {
        const std::uint64_t word = address >> 5 | length;
        return bits(120, 8, word >> 27).bits(128, 27, word);
    }
    Entry1& next(std::uint16_t lookup, std::uint16_t byte_mask) {
        return bits(176, 1, lookup >> 8).bits(112, 8, lookup & 0xFF).bits(160, 16, byte_mask);
    }
    Entry1& counter(std::uint32_t id) { return bits(8, 24, id); }
    Entry1& reparse() { return bits(92, 1, 1); }
    /// At most 8 bytes, behind what is there.
    Entry1& action(std::uint64_t words, unsigned size) {
        bits(192 + used_ * 8, size * 8, words);
        used_ += size;
        return *this;
    }
    Entry1& bits(unsigned offset, unsigned length, std::uint64_t value) {
        put_bits(bytes_.data(), offset, length, value);
        return *this;
    }
    operator const EntryBytes&() const { return bytes_; }

private:
    Entry1& copy(std::size_t at, const TagBytes& from) {
        std::memcpy(bytes_.data() + at, from.data(), from.size());
        return *this;
    }
    EntryBytes bytes_{};
    unsigned used_ = 0;
};

class Entry0 {
public:
    explicit Entry0(unsigned type, std::uint8_t lookup = any_packet) { bits(0, 4, type).bits(8, 8, lookup); }
    Entry0& tag(const TagBytes& tag) { return copy(32, tag); }
    Entry0& mask(const TagBytes& mask) { return copy(48, mask); }
    Entry0& miss(std::uint64_t address) { return bits(216, 8, address >> 32).bits(224, 26, address >> 6); }
    Entry0& hit(std::uint64_t address, std::uint64_t length = 1) {
        const std::uint64_t word = address >> 5 | length;
        return bits(56, 8, word >> 27).bits(64, 27, word);
    }
    Entry0& next(std::uint8_t lookup, std::uint16_t byte_mask) { return bits(48, 8, lookup).bits(16, 16, byte_mask); }
    Entry0& counter(std::uint32_t id) { return bits(176, 16, id).bits(208, 8, id >> 16); }
    Entry0& bits(unsigned offset, unsigned length, std::uint64_t value) {
        put_bits(bytes_.data(), offset, length, value);
        return *this;
    }
    operator const EntryBytes&() const { return bytes_; }

private:
    Entry0& copy(std::size_t at, const TagBytes& from) {
        std::memcpy(bytes_.data() + at, from.data(), from.size());
        return *this;
    }
    EntryBytes bytes_{};
};

/// Device memory with entries here and there.
class Icm {
public:
    void put(std::uint64_t address, const EntryBytes& entry) { entries_[address] = entry; }
    [[nodiscard]] const std::uint8_t* read(std::uint64_t address, std::size_t size) const {
        const auto found = entries_.find(address);
        return found == entries_.end() || size > found->second.size() ? nullptr : found->second.data();
    }
    [[nodiscard]] EntryMemory memory(unsigned format) const {
        return {format, [this](std::uint64_t address, std::size_t size) { return read(address, size); }, modify_base};
    }
    static constexpr std::uint64_t modify_base = 0x700000000;

private:
    std::map<std::uint64_t, EntryBytes> entries_;
};

}  // namespace ovsdr::connectx::entries::test
