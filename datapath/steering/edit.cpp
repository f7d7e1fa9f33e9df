#include "datapath/steering/edit.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "datapath/steering/edit_field.hpp"
#include "datapath/steering/parser.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t field_reg_a = 0x49, field_reg_b = 0x50;
constexpr unsigned command_set = 1, command_add = 2, command_copy = 3;

/// Bits [offset, offset + length) counted from the lowest, as the PRM's action layouts count within a double word.
[[nodiscard]] constexpr std::uint32_t bits(std::uint64_t word, unsigned high, unsigned length) noexcept {
    return static_cast<std::uint32_t>(word >> (64 - high - length) & ((1ULL << length) - 1));
}

[[nodiscard]] constexpr std::uint32_t ones(unsigned length) noexcept {
    return length >= 32 ? 0xffffffffU : (1U << length) - 1;
}

[[nodiscard]] std::uint32_t load_container(const std::uint8_t* from, unsigned bytes) noexcept {
    return bytes == 1 ? *from : bytes == 2 ? load_be16(from) : load_be32(from);
}

void store_container(std::uint8_t* to, unsigned bytes, std::uint32_t value) noexcept {
    if (bytes == 1) {
        *to = static_cast<std::uint8_t>(value);
    } else if (bytes == 2) {
        store_be16(to, static_cast<std::uint16_t>(value));
    } else {
        store_be32(to, value);
    }
}

/// The frame offset of a field's container and its shift; 0 where the packet has no such header.
struct Found {
    std::uint32_t offset;
    unsigned shift;
};

[[nodiscard]] Found find(const EditField& field, const Headers& headers) noexcept {
    const unsigned l4 = headers.fragment ? 0 : headers.l4;
    switch (field.place) {
        case EditPlace::ethernet: return {field.offset, field.shift};
        case EditPlace::type: return {headers.type, field.shift};
        case EditPlace::vlan: return {headers.vlan == 0 ? 0U : headers.vlan + 2U, field.shift};
        case EditPlace::ipv4: return {headers.l3_version == 4 ? headers.l3 + 0U + field.offset : 0, field.shift};
        case EditPlace::ipv6: return {headers.l3_version == 6 ? headers.l3 + 0U + field.offset : 0, field.shift};
        // The traffic class lies 4 bits across IPv6's first bytes.
        case EditPlace::tos: return {headers.l3, headers.l3_version == 6 ? field.shift + 4U : field.shift};
        case EditPlace::tcp: return {l4 != 0 && headers.l4_protocol == 6 ? l4 + field.offset : 0, field.shift};
        case EditPlace::udp: return {l4 != 0 && headers.l4_protocol == 17 ? l4 + field.offset : 0, field.shift};
        case EditPlace::reg: break;
    }
    return {0, 0};
}

/// dmac begins at 0, which otherwise means "not there".
[[nodiscard]] bool present(const EditField& field, const Found& found) noexcept {
    return found.offset != 0 || field.place == EditPlace::ethernet;
}

/// RFC 1624: what `old` -> `now` does to a ones' complement checksum.
[[nodiscard]] std::uint16_t updated(std::uint16_t checksum, std::uint32_t old, std::uint32_t now) noexcept {
    std::uint32_t sum = static_cast<std::uint16_t>(~checksum);
    sum += static_cast<std::uint16_t>(~(old >> 16)) + static_cast<std::uint16_t>(~old);
    sum += (now >> 16) + (now & 0xffff);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(~sum);
}

void fix_l4(std::uint8_t* frame, const Headers& headers, std::uint32_t old, std::uint32_t now) noexcept {
    if (headers.l4 == 0) return;
    const unsigned place = headers.l4_protocol == 6    ? 16
                           : headers.l4_protocol == 17 ? 6
                           : headers.l4_protocol == 58 ? 2
                                                       : 0;
    if (place == 0) return;
    std::uint8_t* at = frame + headers.l4 + place;
    const std::uint16_t checksum = load_be16(at);
    if (headers.l4_protocol == 17) {
        if (checksum == 0) return;
        const std::uint16_t fixed = updated(checksum, old, now);
        store_be16(at, fixed == 0 ? 0xffff : fixed);
    } else {
        store_be16(at, updated(checksum, old, now));
    }
}

/// The 16-bit words (two at most) that hold `bytes` bytes at `offset`: every header begins at an even one.
[[nodiscard]] std::uint32_t words_around(const std::uint8_t* frame, unsigned offset, unsigned bytes) noexcept {
    const std::uint8_t* begin = frame + (offset & ~1U);
    return bytes == 4 ? load_be32(begin) : load_be16(begin);
}

void fix_checksums(std::uint8_t* frame, const Headers& headers, const EditField& field, std::uint32_t old,
                   std::uint32_t now) noexcept {
    const bool in_l3 = field.place == EditPlace::ipv4 || field.place == EditPlace::tos;
    if (in_l3 && headers.l3_version == 4) {
        std::uint8_t* at = frame + headers.l3 + 10;
        store_be16(at, updated(load_be16(at), old, now));
    }
    if (field.address || field.place == EditPlace::tcp || field.place == EditPlace::udp) {
        fix_l4(frame, headers, old, now);
    }
}

/// Replaces the bits of `mask` (within the field) by those of `value`.
void write(std::uint8_t* frame, const Headers& headers, const EditField& field, const Found& found, std::uint32_t value,
           std::uint32_t mask) noexcept {
    std::uint8_t* at = frame + found.offset;
    const std::uint32_t container = load_container(at, field.bytes);
    const std::uint32_t now = (container & ~(mask << found.shift)) | (value & mask) << found.shift;
    if (now == container) return;
    const std::uint32_t old_words = words_around(frame, found.offset, field.bytes);
    store_container(at, field.bytes, now);
    fix_checksums(frame, headers, field, old_words, words_around(frame, found.offset, field.bytes));
}

/// The field's bits, right-aligned; 0 where the packet lacks the header.
[[nodiscard]] std::uint32_t read(const EditField& field, const std::uint8_t* frame, const Headers& headers,
                                 const Key& registers) noexcept {
    if (field.place == EditPlace::reg) return load_be32(registers.bytes() + field.offset);
    const Found found = find(field, headers);
    if (!present(field, found)) return 0;
    return load_container(frame + found.offset, field.bytes) >> found.shift & ones(field.length);
}

}  // namespace

int EditList::compile(DomainType domain, std::span<const std::uint64_t> commands,
                      std::shared_ptr<const EditList>& list) {
    if (commands.empty()) return EINVAL;
    auto made = std::make_shared<EditList>();
    made->edits_.reserve(commands.size());
    for (const std::uint64_t command : commands) {
        if (const int error = made->add(domain, __builtin_bswap64(command)); error != 0) return error;
        if (const int error = made->check_types(*made->edits_.back().destination); error != 0) return error;
    }
    list = std::move(made);
    return 0;
}

int EditList::add(DomainType domain, std::uint64_t command) {
    const unsigned kind = bits(command, 0, 4);
    if (kind < command_set || kind > command_copy) return EOPNOTSUPP;
    const auto first_id = static_cast<std::uint16_t>(bits(command, 4, 12));
    const auto copy_id = static_cast<std::uint16_t>(bits(command, 36, 12));
    const EditField* named = edit_field(first_id);
    if (kind == command_add && (named == nullptr || !named->addable)) return EINVAL;
    for (const std::uint16_t id : {first_id, kind == command_copy ? copy_id : first_id}) {
        if (id == field_reg_b && domain != DomainType::nic_rx) return EINVAL;
        if (id == field_reg_a && domain != DomainType::nic_tx) return EINVAL;
    }
    const EditField* first = named;
    const EditField* last = kind == command_copy ? edit_field(copy_id) : first;
    if (first == nullptr || last == nullptr) return EINVAL;
    Edit edit{};
    edit.destination = last;
    edit.length = static_cast<std::uint8_t>(bits(command, 27, 5));
    if (edit.length == 0) edit.length = 32;
    edit.data = bits(command, 32, 32);
    switch (kind) {
        case command_set:
            edit.kind = Edit::Kind::set;
            edit.offset = static_cast<std::uint8_t>(bits(command, 19, 5));
            break;
        case command_add:
            edit.kind = Edit::Kind::add;
            edit.length = first->length;
            break;
        default:
            edit.kind = Edit::Kind::copy;
            edit.source = first;
            edit.source_offset = static_cast<std::uint8_t>(bits(command, 19, 5));
            edit.offset = static_cast<std::uint8_t>(bits(command, 51, 5));
            if (edit.source_offset + edit.length > first->length) return EINVAL;
    }
    if (edit.offset + edit.length > last->length) return EINVAL;
    note_effect(edit);
    edits_.push_back(edit);
    return 0;
}

int EditList::check_types(const EditField& field) noexcept {
    if (field.l3 != 0 && l3_ != 0 && field.l3 != l3_) return ENOTSUP;
    if (field.l3 != 0) l3_ = field.l3;
    if (field.l4 != 0 && l4_ != 0 && field.l4 != l4_) return EINVAL;
    if (field.l4 != 0) l4_ = field.l4;
    return 0;
}

void EditList::note_effect(const Edit& edit) noexcept {
    const EditField& field = *edit.destination;
    (field.place == EditPlace::reg ? edits_registers_ : edits_headers_) = true;
    edits_reg_b_ = edits_reg_b_ || field.id == field_reg_b;
    const bool leaves_registers = field.place != EditPlace::reg || field.id == field_reg_b;
    if (edit.kind == Edit::Kind::copy && edit.source->place == EditPlace::reg && leaves_registers) repeatable_ = false;
    const bool in_key = field.place != EditPlace::reg && field.key_bytes != 0;
    if (in_key) edited_words_ |= std::uint64_t{1} << field.key_offset / 8;  // no field lies across two
    // A constant in a register, or in the Ethernet header that every packet has, is known beforehand.
    const bool known = edit.kind == Edit::Kind::set &&
                       (field.place == EditPlace::reg || field.place == EditPlace::ethernet);
    if (known) return;
    for (unsigned i = 0; i < field.key_bytes; ++i) taint_.bytes()[field.key_offset + i] = 0xff;
}

void EditList::run(std::uint8_t* frame, std::uint32_t size, Key& registers) const noexcept {
    const Headers headers = locate(frame, size);
    if (size < 14) return;
    for (const Edit& edit : edits_) {
        const EditField& field = *edit.destination;
        const Found found = find(field, headers);
        if (field.place != EditPlace::reg && !present(field, found)) continue;
        const std::uint32_t mask = ones(edit.length) << edit.offset;
        std::uint32_t value = edit.data << edit.offset;
        if (edit.kind == Edit::Kind::add) {
            value = read(field, frame, headers, registers) + edit.data;
        } else if (edit.kind == Edit::Kind::copy) {
            value = read(*edit.source, frame, headers, registers) >> edit.source_offset << edit.offset;
        }
        if (field.place == EditPlace::reg) {
            std::uint8_t* at = registers.bytes() + field.offset;
            store_be32(at, (load_be32(at) & ~mask) | (value & mask));
        } else {
            write(frame, headers, field, found, value, mask);
        }
    }
}

void EditList::apply(std::uint8_t* frame, std::uint32_t size, const Key& registers) const noexcept {
    Key own;  // A list that edits no register only reads them.
    run(frame, size, edits_registers_ ? own = registers : const_cast<Key&>(registers));
}

std::uint32_t EditList::apply(std::uint8_t* frame, std::uint32_t size, const Key& registers,
                              std::uint32_t reg_b) const noexcept {
    Key own = registers;
    store_be32(own.bytes() + key_offset::reg_b, reg_b);
    run(frame, size, own);
    return load_be32(own.bytes() + key_offset::reg_b);
}

void EditList::apply_registers(Key& key, const std::uint8_t* frame, std::uint32_t size) const noexcept {
    // On a copy: a command may copy into a register what one before it made of a header.
    std::array<std::uint8_t, 16384> copy;  // longer than any frame that a port takes
    const std::uint32_t kept = std::min<std::uint32_t>(size, copy.size());
    std::copy_n(frame, kept, copy.begin());
    run(copy.data(), kept, key);
}

}  // namespace ovsdr::soft
