#include "tests/connectx/entries/entry.hpp"

#include <fmt/format.h>

#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

constexpr std::size_t first_half = 32, second_half = 48, half_size = 16;   ///< behind the control part

/// A control bit that changes what an entry means. None of them may be set.
struct UnknownBit {
    Bits bits;
    const char* name;
};

void refuse(std::span<const UnknownBit> unknown, const std::uint8_t* bytes) {
    for (const UnknownBit& bit : unknown) {
        if (get(bytes, bit.bits) != 0) throw Stopped(fmt::format("{} of a steering entry", bit.name));
    }
}

namespace v0 {

constexpr Bits entry_type{0, 4}, lookup{8, 8}, byte_mask{16, 16};
constexpr Bits next_lookup{48, 8}, next_high{56, 8}, next_low{64, 27};
constexpr Bits counter_low{176, 16}, miss_high{216, 8}, counter_high{208, 8}, miss_low{224, 26};

constexpr UnknownBit unknown[] = {
    {{4, 4}, "reserved_at_4"},       {{91, 1}, "linear_hash_enable"}, {{92, 2}, "reserved_at_5c"},
    {{94, 2}, "next_table_rank"},    {{250, 1}, "learning_point"},    {{252, 1}, "match_polarity"},
    {{253, 1}, "mask_mode"},         {{254, 2}, "miss_rank"},
};

EntryType type_of(const std::uint8_t* bytes) {
    const std::uint32_t type = get(bytes, entry_type);
    for (const EntryType known : {EntryType::tx, EntryType::rx, EntryType::modify}) {
        if (type == static_cast<std::uint32_t>(known)) return known;
    }
    throw Stopped(fmt::format("entry type {:#x} of format 0", type));
}

}  // namespace v0

namespace v1 {

constexpr Bits entry_format{0, 8}, counter{8, 24}, index{48, 8}, miss_high{56, 8}, miss_low{64, 26}, reparse{92, 1};
constexpr Bits next_index{112, 8}, next_high{120, 8}, next_low{128, 27}, byte_mask{160, 16}, next_mode{176, 1};
constexpr std::uint32_t by_byte = 0, by_word = 1, match = 4;
constexpr std::size_t actions = 24, actions_size = 8, match_actions = 20, match_actions_size = 12;

constexpr UnknownBit unknown[] = {
    {{90, 1}, "reserved_at_5a"}, {{91, 1}, "match_polarity"},      {{93, 3}, "reserved_at_5d"},
    {{155, 2}, "hash_type"},     {{157, 1}, "hash_after_actions"}, {{158, 2}, "reserved_at_9e"},
};
constexpr UnknownBit mask_mode[] = {{{177, 1}, "mask_mode"}};

}  // namespace v1

struct AddressFields {
    Bits next_high, next_low, miss_high, miss_low;
};

void read_addresses(const std::uint8_t* bytes, const AddressFields& fields, Entry& entry) noexcept {
    constexpr std::uint64_t empty = (std::uint64_t{1} << 35) - 1;
    const std::uint64_t next = std::uint64_t{get(bytes, fields.next_high)} << 27 | get(bytes, fields.next_low);
    const std::uint64_t length = next == empty ? 0 : next & -next;
    entry.next = (next & ~length) << 5;
    entry.next_length = length;
    entry.miss = (std::uint64_t{get(bytes, fields.miss_high)} << 26 | get(bytes, fields.miss_low)) << 6;
}

Entry read_format_0(const std::uint8_t* bytes) {
    Entry entry{.bytes = bytes, .is_match = false};
    refuse(v0::unknown, bytes);
    entry.type = v0::type_of(bytes);
    entry.lookup = static_cast<std::uint16_t>(get(bytes, v0::lookup));
    entry.tag = Vector::load(bytes + first_half, half_size);
    entry.mask = Vector::load(bytes + second_half, half_size);
    read_addresses(bytes, {v0::next_high, v0::next_low, v0::miss_high, v0::miss_low}, entry);
    entry.next_lookup = static_cast<std::uint16_t>(get(bytes, v0::next_lookup));
    entry.byte_mask = static_cast<std::uint16_t>(get(bytes, v0::byte_mask));
    entry.counter = get(bytes, v0::counter_high) << 16 | get(bytes, v0::counter_low);
    entry.parse_again = true;
    return entry;
}

Entry read_format_1(const std::uint8_t* bytes) {
    const std::uint32_t format = get(bytes, v1::entry_format), index = get(bytes, v1::index);
    Entry entry{.bytes = bytes, .is_match = format == v1::match};
    refuse(v1::unknown, bytes);
    if (format == v1::match) {
        entry.lookup = static_cast<std::uint16_t>(index);
        entry.tag = Vector::load(bytes + first_half, 2 * half_size);
        entry.actions = {bytes + v1::match_actions, v1::match_actions_size};
        entry.byte_mask = 0;
        entry.next_lookup = static_cast<std::uint16_t>(get(bytes, v1::next_index));
    } else if (format == v1::by_byte || format == v1::by_word) {
        refuse(v1::mask_mode, bytes);
        entry.lookup = static_cast<std::uint16_t>(format << 8 | index);
        entry.mask = Vector::load(bytes + first_half, half_size);
        entry.tag = Vector::load(bytes + second_half, half_size);
        entry.actions = {bytes + v1::actions, v1::actions_size};
        entry.byte_mask = static_cast<std::uint16_t>(get(bytes, v1::byte_mask));
        entry.next_lookup = static_cast<std::uint16_t>(get(bytes, v1::next_mode) << 8 | get(bytes, v1::next_index));
    } else {
        throw Stopped(fmt::format("entry format {:#x}", format));
    }
    read_addresses(bytes, {v1::next_high, v1::next_low, v1::miss_high, v1::miss_low}, entry);
    entry.counter = get(bytes, v1::counter);
    entry.parse_again = get(bytes, v1::reparse) != 0;
    return entry;
}

}  // namespace

Entry read_entry(unsigned format, const std::uint8_t* bytes) {
    return format == 0 ? read_format_0(bytes) : read_format_1(bytes);
}

}  // namespace ovsdr::connectx::entries
