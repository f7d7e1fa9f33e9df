#include "tests/connectx/entries/edits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "tests/connectx/entries/bits.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

using Register = std::uint32_t& (*)(Packet&);

template <unsigned number>
std::uint32_t& reg_c(Packet& packet) {
    return packet.reg_c[number];
}
std::uint32_t& reg_a(Packet& packet) { return packet.reg_a; }
std::uint32_t& reg_b(Packet& packet) { return packet.reg_b; }

/// Null: nothing there.
struct Window {
    std::uint8_t code;
    Register high, low;
};

constexpr Window windows_0[] = {
    {0x0c, reg_c<0>, reg_c<1>},
    {0x0d, reg_c<2>, reg_c<3>},
    {0x0e, reg_c<4>, reg_c<5>},
    {0x16, reg_b, reg_a},
};
constexpr Window windows_1[] = {
    {0x7b, reg_b, nullptr},   {0x7c, reg_a, nullptr},   {0x8c, reg_c<4>, nullptr}, {0x8d, reg_c<5>, nullptr},
    {0x8e, reg_c<2>, nullptr}, {0x8f, reg_c<3>, nullptr}, {0x90, reg_c<0>, nullptr}, {0x91, reg_c<1>, nullptr},
};
constexpr Window windows_2[] = {
    {0x7b, reg_b, nullptr},   {0x7c, reg_a, nullptr},   {0x90, reg_c<4>, nullptr}, {0x91, reg_c<5>, nullptr},
    {0x92, reg_c<2>, nullptr}, {0x93, reg_c<3>, nullptr}, {0x94, reg_c<0>, nullptr}, {0x95, reg_c<1>, nullptr},
};
constexpr std::span<const Window> windows[] = {windows_0, windows_1, windows_2};

struct Command {
    std::uint8_t code;
    const char* name;
    bool known;
};
constexpr Command commands_0[] = {{1, "COPY", false}, {2, "SET", true}, {3, "ADD", false}};
constexpr Command commands_1[] = {{5, "COPY", false}, {6, "SET", true}, {7, "ADD", false}};
constexpr std::span<const Command> commands[] = {commands_0, commands_1, commands_1};

constexpr Bits command_code{0, 8}, field_code{8, 8}, left_shift{18, 6}, length_0{27, 5}, length_1{26, 6}, data{32, 32};

template <typename Row>
const Row* find(std::span<const Row> rows, std::uint32_t code) noexcept {
    const auto found = std::ranges::find(rows, code, &Row::code);
    return found == rows.end() ? nullptr : &*found;
}

void write(Packet& packet, const Window& window, unsigned shift, unsigned length, std::uint32_t value) {
    if (length == 0 || length > 32 || shift + length > 64) {
        throw Stopped(fmt::format("a modify-header action of {} bits at {}", length, shift));
    }
    const std::uint64_t mask = std::uint64_t{low_ones(length)} << shift;
    const std::uint64_t bits = std::uint64_t{value & low_ones(length)} << shift;
    const auto apply = [&](Register half, unsigned down) {
        const auto part = static_cast<std::uint32_t>(mask >> down);
        if (part == 0) return;
        if (half == nullptr) throw Stopped(fmt::format("a modify-header action below field {:#x}", window.code));
        std::uint32_t& there = half(packet);
        there = (there & ~part) | static_cast<std::uint32_t>(bits >> down);
    };
    apply(window.high, 32);
    apply(window.low, 0);
}

void refuse_one_field(const std::uint8_t* first, const std::uint8_t* second) {
    const std::uint32_t field = get(second, field_code);
    if (get(first, command_code) == 0 || get(second, command_code) == 0 || get(first, field_code) != field) return;
    throw Stopped(fmt::format("two modify-header actions at once of field {:#x}", field));
}

}  // namespace

void edit(unsigned format, const std::uint8_t* bytes, Packet& packet) {
    const std::uint32_t code = get(bytes, command_code);
    if (code == 0) return;
    const Command* command = find(commands[format], code);
    if (command == nullptr) throw Stopped(fmt::format("modify-header action {:#x} of format {}", code, format));
    const Window* window = find(windows[format], get(bytes, field_code));
    if (!command->known || window == nullptr) {
        throw Stopped(fmt::format("modify-header action {} of field {:#x} of format {}", command->name,
                                  get(bytes, field_code), format));
    }
    unsigned length = get(bytes, format == 0 ? length_0 : length_1);
    if (format == 0 && length == 0) length = 32;
    write(packet, *window, get(bytes, left_shift), length, get(bytes, data));
}

void edit_all(unsigned format, const std::uint8_t* commands, std::uint32_t length, Packet& packet) {
    for (std::uint32_t i = 0; i < length; ++i) {
        const std::uint8_t* const command = commands + i * edit_size;
        if (i % 2 == 1) refuse_one_field(command - edit_size, command);
        edit(format, command, packet);
    }
}

}  // namespace ovsdr::connectx::entries
