#include "tests/connectx/entries/entry_actions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "tests/connectx/entries/decapsulation.hpp"
#include "tests/connectx/entries/edits.hpp"
#include "tests/connectx/entries/encapsulation.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

constexpr std::size_t tag_offset = 12, tag_size = 4;   ///< of a frame's first VLAN tag
constexpr std::uint16_t customer_tag = 0x8100, service_tag = 0x88a8;
constexpr std::size_t list_unit = 64;
constexpr std::uint32_t flow_tag_bits = 0xFFFFFF;

void insert(Packet& packet, std::size_t offset, std::span<const std::uint8_t> bytes) {
    if (offset > packet.bytes.size()) throw Stopped(fmt::format("an insertion at {} of a shorter packet", offset));
    packet.bytes.insert(packet.bytes.begin() + static_cast<std::ptrdiff_t>(offset), bytes.begin(), bytes.end());
}

void remove(Packet& packet, std::size_t offset, std::size_t size) {
    if (offset + size > packet.bytes.size()) throw Stopped(fmt::format("a removal of {} bytes at {}", size, offset));
    const auto begin = packet.bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    packet.bytes.erase(begin, begin + static_cast<std::ptrdiff_t>(size));
}

/// What the device takes away where there is no tag is not known.
void remove_tags(Packet& packet, std::size_t size) {
    if (size % tag_size != 0) throw Stopped(fmt::format("a removal of {} bytes of tags", size));
    for (std::size_t at = tag_offset; at < tag_offset + size; at += tag_size) {
        const std::uint16_t type = at + tag_size <= packet.bytes.size() ? load16(packet.bytes.data() + at) : 0;
        if (type != customer_tag && type != service_tag) throw Stopped("a removal of a tag that is not there");
    }
    remove(packet, tag_offset, size);
}

void run_list(const EntryMemory& memory, std::uint32_t pointer, std::uint32_t length, Packet& packet) {
    const std::uint64_t address = memory.modify_header_base + std::uint64_t{pointer} * list_unit;
    const std::uint8_t* list = memory.read(address, length * edit_size);
    if (list == nullptr) throw Stopped(fmt::format("a modify-header list at {:#x}, where there is no memory", address));
    edit(memory.format, {list, length * edit_size}, packet);
}

/// A pattern has the commands, arguments have their numbers: what runs is the one OR the other.
void run_pattern(const EntryMemory& memory, std::uint32_t pattern, std::uint32_t argument, std::uint32_t length,
                 Packet& packet) {
    const std::uint64_t address = memory.modify_pattern_base + std::uint64_t{pattern} * list_unit;
    const std::uint8_t* bytes = memory.read(address, length * edit_size);
    if (bytes == nullptr) {
        throw Stopped(fmt::format("a modify-header pattern at {:#x}, where there is no memory", address));
    }
    std::vector<std::uint8_t> commands(bytes, bytes + length * edit_size);
    for (std::size_t at = 0; at < commands.size(); at += list_unit, ++argument) {
        const auto numbers = memory.argument ? memory.argument(argument) : std::nullopt;
        if (!numbers) throw Stopped(fmt::format("modify-header argument {:#x}, which is not there", argument));
        for (std::size_t i = 0; i < list_unit && at + i < commands.size(); ++i) commands[at + i] |= (*numbers)[i];
    }
    edit(memory.format, commands, packet);
}

/// `size`: as the action says it.
void encapsulate(const EntryMemory& memory, std::uint32_t id, std::size_t size, Packet& packet) {
    const auto headers = memory.tunnel_headers ? memory.tunnel_headers(id) : std::nullopt;
    if (!headers) throw Stopped(fmt::format("reformat {:#x}, which is no L2 to L2 tunnel or not there", id));
    if (headers->size() != size) {
        throw Stopped(fmt::format("reformat {:#x} of {} bytes as one of {}", id, headers->size(), size));
    }
    entries::encapsulate(*headers, packet);
}

using Handler = void (*)(const EntryMemory&, const std::uint8_t* action, Packet&);

struct ActionRow {
    std::uint8_t number;
    const char* name;
    std::size_t size;
    Handler handler;   ///< null: known by name only
};

namespace v0 {

/// One field of the control part decides; the sizes of the rows are not used.
constexpr Bits tx_action{102, 3}, tx_size{106, 6}, tx_data{128, 32}, tx_go_back{251, 1};
constexpr Bits rx_action{161, 3}, rx_description{164, 4}, rx_tag{128, 32}, rx_fail_on_error{251, 1};
constexpr Bits list_length{96, 16}, list_pointer{128, 32};
constexpr std::uint32_t tag_enabled = 1U << 31;

struct UnknownBits {
    Bits bits;
    const char* name;
};
constexpr UnknownBits unknown_tx[] = {
    {{96, 1}, "sx_wire"},           {{97, 1}, "sx_func_lb"},        {{98, 1}, "sx_sniffer"},
    {{99, 1}, "sx_wire_enable"},    {{100, 1}, "sx_func_lb_enable"}, {{101, 1}, "sx_sniffer_enable"},
    {{160, 8}, "loopback_syndrome_en"},
};
constexpr UnknownBits unknown_rx[] = {
    {{96, 16}, "member_count"}, {rx_description, "action_description"},
};
constexpr UnknownBits unknown_modify_rx[] = {{rx_description, "action_description"}};
constexpr UnknownBits unknown_modify_tx[] = {
    {rx_action, "tunneling_action"}, {rx_description, "action_description"}, {{251, 1}, "fail_on_error"},
};

struct EntryKind {
    const char* name;
    std::span<const UnknownBits> unknown;
};
constexpr EntryKind tx_entry{"a TX entry", unknown_tx}, rx_entry{"an RX entry", unknown_rx};
constexpr EntryKind modify_rx{"a MODIFY entry on the RX side", unknown_modify_rx};
constexpr EntryKind modify_tx{"a MODIFY entry on the TX side", unknown_modify_tx};

const EntryKind& kind_of(EntryType type, Side side) {
    if (type == EntryType::modify) return side == Side::rx ? modify_rx : modify_tx;
    if (type != (side == Side::rx ? EntryType::rx : EntryType::tx)) throw Stopped("an entry of the other side");
    return side == Side::rx ? rx_entry : tx_entry;
}

void flow_tag(const std::uint8_t* entry, Packet& packet) {
    const std::uint32_t tag = get(entry, rx_tag);
    if (tag == 0) return;
    if ((tag & ~flow_tag_bits) != tag_enabled) throw Stopped(fmt::format("qp_list_pointer {:#x}", tag));
    packet.flow_tag = tag & flow_tag_bits;
}

void sends_unchanged(const EntryMemory&, const std::uint8_t* entry, Packet&) {
    if (get(entry, tx_size) != 0) throw Stopped("action_description of a TX entry without an action");
    if (get(entry, tx_go_back) != 0) throw Stopped("go_back of a TX entry without an action");
}

/// go_back: libmlx5 sets it where the packet is encapsulated later, which would not work without.
void push_vlan(const EntryMemory&, const std::uint8_t* entry, Packet& packet) {
    if (get(entry, tx_size) != 0) throw Stopped("action_description of PUSH_VLAN");
    std::uint8_t tag[tag_size];
    store32(tag, get(entry, tx_data));
    insert(packet, tag_offset, tag);
}

void no_failure(const std::uint8_t* entry, const char* action) {
    if (get(entry, rx_fail_on_error) != 0) throw Stopped(fmt::format("fail_on_error of an RX entry {}", action));
}

void receives_unchanged(const EntryMemory&, const std::uint8_t* entry, Packet&) {
    no_failure(entry, "without an action");
}

void pop_vlan(const EntryMemory&, const std::uint8_t* entry, Packet& packet) {
    no_failure(entry, "with POP_VLAN");
    remove_tags(packet, tag_size);
}

/// What fails is a packet that cannot be decapsulated; what a device makes of one without the bit is not known.
void decap(const EntryMemory&, const std::uint8_t* entry, Packet& packet) {
    if (get(entry, rx_fail_on_error) == 0) throw Stopped("DECAP without fail_on_error");
    decapsulate(packet);
}

void encap(const EntryMemory& memory, const std::uint8_t* entry, Packet& packet) {
    if (get(entry, tx_go_back) != 0) throw Stopped("go_back of ENCAP");
    constexpr std::size_t unit = 2;
    encapsulate(memory, get(entry, tx_data), get(entry, tx_size) * unit, packet);
}

constexpr ActionRow tx_actions[] = {
    {0, "none", 0, sends_unchanged},
    {1, "PUSH_VLAN", 0, push_vlan},
    {3, "ENCAP_L3", 0, nullptr},
    {4, "ENCAP", 0, encap},
};
constexpr ActionRow rx_actions[] = {
    {0, "none", 0, receives_unchanged},
    {1, "ENABLE", 0, nullptr},
    {2, "DECAP", 0, decap},
    {3, "L3_DECAP", 0, nullptr},
    {4, "POP_VLAN", 0, pop_vlan},
};

}  // namespace v0

namespace v1 {

constexpr Bits action_number{0, 8};
constexpr Bits remove_anchor{10, 6}, remove_l4{16, 1}, remove_offset{18, 7}, remove_length{26, 6};
/// From anchor 0, the frame's start, to 0x13, the inner frame's; decap; vni_to_cqe, of which no packet shows anything.
constexpr std::uint32_t decapsulation = 0x09 << 24 | 0x13 << 8 | 1 << 3 | 1 << 2;
constexpr Bits insert_anchor{10, 6}, insert_offset{16, 7}, insert_size{23, 6}, insert_attributes{29, 3};
constexpr std::uint32_t is_encapsulation = 1;
constexpr Bits list_length{8, 8}, list_pointer{16, 16};
constexpr Bits aso_number{8, 24}, aso_register{32, 2}, aso_ordering{34, 2}, aso_type{36, 4}, aso_initial_colour{61, 2},
    aso_line{63, 1};
constexpr Bits pattern_pointer{8, 24}, pattern_length{32, 8}, argument_pointer{40, 24};
constexpr std::uint32_t anchor_start = 0, anchor_first_vlan = 2;
constexpr std::size_t unit = 2;   ///< offsets and sizes count 2 bytes

void flow_tag(const EntryMemory&, const std::uint8_t* action, Packet& packet) {
    packet.flow_tag = load32(action) & flow_tag_bits;
}

void remove_by_size(const EntryMemory&, const std::uint8_t* action, Packet& packet) {
    const std::uint32_t anchor = get(action, remove_anchor);
    const std::size_t offset = get(action, remove_offset) * unit, size = get(action, remove_length) * unit;
    if (get(action, remove_l4) != 0) throw Stopped("outer_l4_remove of REMOVE_BY_SIZE");
    if (anchor == anchor_start) return remove(packet, offset, size);
    if (anchor == anchor_first_vlan && offset == 0) return remove_tags(packet, size);
    throw Stopped(fmt::format("REMOVE_BY_SIZE {} bytes behind header anchor {:#x}", offset, anchor));
}

void remove_header_to_header(const EntryMemory&, const std::uint8_t* action, Packet& packet) {
    if (load32(action) != decapsulation) {
        throw Stopped(fmt::format("REMOVE_HEADER_TO_HEADER as {:#010x}", load32(action)));
    }
    decapsulate(packet);
}

void insert_inline(const EntryMemory&, const std::uint8_t* action, Packet& packet) {
    const std::uint32_t anchor = get(action, insert_anchor);
    if (anchor != anchor_start) throw Stopped(fmt::format("INSERT_INLINE at header anchor {:#x}", anchor));
    insert(packet, get(action, insert_offset) * unit, {action + 4, 4});
}

void insert_pointer(const EntryMemory& memory, const std::uint8_t* action, Packet& packet) {
    const std::uint32_t anchor = get(action, insert_anchor), offset = get(action, insert_offset);
    if (anchor != anchor_start || offset != 0 || get(action, insert_attributes) != is_encapsulation) {
        throw Stopped(fmt::format("INSERT_POINTER {} words behind header anchor {:#x}, attributes {:#x}", offset,
                                  anchor, get(action, insert_attributes)));
    }
    encapsulate(memory, load32(action + 4), get(action, insert_size) * unit, packet);
}

void modify_list(const EntryMemory& memory, const std::uint8_t* action, Packet& packet) {
    run_list(memory, get(action, list_pointer), get(action, list_length), packet);
}

void edit_inline(const EntryMemory& memory, const std::uint8_t* action, Packet& packet) {
    edit(memory.format, {action, edit_size}, packet);
}

void accelerated_list(const EntryMemory& memory, const std::uint8_t* action, Packet& packet) {
    run_pattern(memory, get(action, pattern_pointer), get(action, argument_pointer), get(action, pattern_length),
                packet);
}

/// A packet's colour is the low byte of a register; what becomes of the rest is not known, and nobody looks.
void access_object(const EntryMemory& memory, const std::uint8_t* action, Packet& packet) {
    constexpr std::uint32_t is_meter = 2;
    if (get(action, aso_type) != is_meter) throw Stopped(fmt::format("ASO of type {}", get(action, aso_type)));
    if (get(action, aso_ordering) != 0) throw Stopped("ASO that asks for an order");
    if (get(action, aso_initial_colour) != static_cast<std::uint32_t>(Colour::green)) {
        throw Stopped("a meter whose packets do not come in green");
    }
    const MeterName name{true, get(action, aso_number), get(action, aso_line) != 0};
    const auto colour = memory.meter ? memory.meter(name, packet.bytes.size()) : std::nullopt;
    if (!colour) throw Stopped(fmt::format("ASO object {:#x}, which is no flow meter or not there", name.id));
    std::uint32_t& to = packet.reg_c[2 * get(action, aso_register) + 1];
    to = (to & ~0xFFU) | static_cast<std::uint32_t>(*colour);
}

constexpr std::uint8_t nop = 0;
constexpr ActionRow actions[] = {
    {nop, "NOP", 4, [](const EntryMemory&, const std::uint8_t*, Packet&) {}},
    {0x05, "COPY", 8, edit_inline},
    {0x06, "SET", 8, edit_inline},
    {0x07, "ADD", 8, edit_inline},
    {0x08, "REMOVE_BY_SIZE", 4, remove_by_size},
    {0x09, "REMOVE_HEADER_TO_HEADER", 4, remove_header_to_header},
    {0x0a, "INSERT_INLINE", 8, insert_inline},
    {0x0b, "INSERT_POINTER", 8, insert_pointer},
    {0x0c, "FLOW_TAG", 4, flow_tag},
    {0x0d, "QUEUE_ID_SEL", 4, nullptr},
    {0x0e, "ACCELERATED_LIST", 8, accelerated_list},
    {0x0f, "MODIFY_LIST", 4, modify_list},
    {0x12, "ASO", 8, access_object},
    {0x13, "TRAILER", 8, nullptr},
    {0x14, "COUNTER_ID", 4, nullptr},
};

}  // namespace v1

const ActionRow& row_of(std::span<const ActionRow> rows, std::uint32_t number, unsigned format) {
    const auto found = std::ranges::find(rows, number, &ActionRow::number);
    if (found == rows.end()) throw Stopped(fmt::format("action {:#x} of format {}", number, format));
    if (found->handler == nullptr) throw Stopped(fmt::format("action {} of format {}", found->name, format));
    return *found;
}

/// Format 0's fields; which of them there are is the entry's kind's.
bool act_format_0(const EntryMemory& memory, const Entry& entry, Packet& packet) {
    const bool rx = packet.side == Side::rx, modifies = entry.type == EntryType::modify;
    const v0::EntryKind& kind = v0::kind_of(entry.type, packet.side);
    for (const auto& one : kind.unknown) {
        if (get(entry.bytes, one.bits) != 0) throw Stopped(fmt::format("{} of {}", one.name, kind.name));
    }
    std::uint32_t action = 0;
    if (rx || !modifies) {
        const std::span<const ActionRow> rows = rx ? std::span<const ActionRow>(v0::rx_actions) : v0::tx_actions;
        action = get(entry.bytes, rx ? v0::rx_action : v0::tx_action);
        row_of(rows, action, 0).handler(memory, entry.bytes, packet);
    }
    if (rx && !modifies) v0::flow_tag(entry.bytes, packet);
    if (modifies) run_list(memory, get(entry.bytes, v0::list_pointer), get(entry.bytes, v0::list_length), packet);
    return action != 0 || modifies;
}

bool act_format_1(const EntryMemory& memory, const Entry& entry, Packet& packet) {
    bool acts = false;
    std::span<const std::uint8_t> rest = entry.actions;
    while (!rest.empty()) {
        const ActionRow& row = row_of(v1::actions, get(rest.data(), v1::action_number), memory.format);
        if (row.size > rest.size()) throw Stopped(fmt::format("action {} without room for it", row.name));
        row.handler(memory, rest.data(), packet);
        acts = acts || row.number != v1::nop;
        rest = rest.subspan(row.size);
    }
    return acts;
}

}  // namespace

bool act(const EntryMemory& memory, const Entry& entry, Packet& packet) {
    if (memory.format == 0) return act_format_0(memory, entry, packet);
    return act_format_1(memory, entry, packet);
}

}  // namespace ovsdr::connectx::entries
