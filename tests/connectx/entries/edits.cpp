#include "tests/connectx/entries/edits.hpp"

#include <fmt/format.h>

#include <array>

#include "tests/connectx/entries/bits.hpp"
#include "tests/connectx/entries/edit_tables.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

/// Parts of a format's table.
using Rows = std::array<std::span<const EditRow>, 2>;
constexpr Rows rows_of[] = {
    {tables::edits_0, {}},
    {tables::edits_1_and_2, tables::registers_of_1},
    {tables::edits_1_and_2, tables::registers_of_2},
};

enum class Verb : std::uint8_t { copy, set, add };
constexpr const char* names[] = {"COPY", "SET", "ADD"};   ///< by Verb
constexpr std::uint32_t first_verb[] = {1, 5, 5};         ///< by format: the number of COPY; SET and ADD follow

constexpr Bits command_code{0, 8}, field_code{8, 8}, left_shift{18, 6}, length_0{27, 5}, length{26, 6}, data{32, 32};
constexpr Bits source_code{40, 8}, source_shift{50, 6};

/// `length` bits of a window.
struct Range {
    std::uint32_t code;
    unsigned shift, length;

    [[nodiscard]] std::uint64_t mask() const noexcept { return std::uint64_t{low_ones(length)} << shift; }
};

struct Command {
    Verb verb;
    Range to, from;   ///< from: COPY
    std::uint32_t data;
};

Command read_command(unsigned format, const std::uint8_t* bytes) {
    const std::uint32_t code = get(bytes, command_code), verb = code - first_verb[format];
    if (verb >= std::size(names)) throw Stopped(fmt::format("modify-header action {:#x} of format {}", code, format));
    Command command{.verb = static_cast<Verb>(verb), .data = get(bytes, data)};
    const bool short_length = format == 0 && command.verb != Verb::copy;
    unsigned bits = get(bytes, short_length ? length_0 : length);
    if (short_length && bits == 0) bits = 32;
    command.to = {get(bytes, field_code), get(bytes, left_shift), bits};
    command.from = {get(bytes, source_code), get(bytes, source_shift), bits};
    return command;
}

class Edits {
public:
    Edits(unsigned format, Packet& packet) noexcept : format_(format), rewriter_(packet) {}

    void run(const Command& command) {
        verb_ = command.verb;
        switch (command.verb) {
            case Verb::set: return write(command.to, command.data);
            case Verb::copy: return write(command.to, read(command.from));
            case Verb::add: return write(command.to, read(command.to) + command.data);
        }
    }

private:
    [[noreturn]] void stop(const Range& range, const char* why) const {
        throw Stopped(fmt::format("modify-header action {} of field {:#x} of format {}{}",
                                  names[static_cast<std::size_t>(verb_)], range.code, format_, why));
    }

    /// Calls `each` with the rows that the packet has and that share bits with the range.
    template <typename Each>
    void for_each_row(const Range& range, Each each) {
        if (range.length == 0 || range.length > 32 || range.shift + range.length > 64) {
            stop(range, fmt::format(": {} bits at {}", range.length, range.shift).c_str());
        }
        bool known = false;
        std::uint64_t missing = range.mask();
        for (const std::span<const EditRow> part : rows_of[format_]) {
            for (const EditRow& row : part) {
                const std::uint64_t mask = std::uint64_t{low_ones(row.field.length)} << row.low;
                if (row.code != range.code || (mask & range.mask()) == 0) continue;
                known = true;
                if (!rewriter_.has(row.field.header)) continue;
                if (verb_ == Verb::add && !row.adds) stop(range, "");
                missing &= ~mask;
                each(row);
            }
        }
        if (!known) stop(range, "");
        if (missing != 0) stop(range, ": the packet has no such header, or not all of these bits");
    }

    [[nodiscard]] std::uint32_t read(const Range& range) {
        std::uint64_t window = 0;
        for_each_row(range, [&](const EditRow& row) {
            window |= std::uint64_t{rewriter_.read(row.field)} << row.low;
        });
        return static_cast<std::uint32_t>((window & range.mask()) >> range.shift);
    }

    void write(const Range& range, std::uint32_t value) {
        const std::uint64_t bits = std::uint64_t{value} << range.shift & range.mask();
        // Nothing is written unless the packet has all of the range.
        for_each_row(range, [](const EditRow&) {});
        for_each_row(range, [&](const EditRow& row) {
            const auto mask = static_cast<std::uint32_t>(range.mask() >> row.low & low_ones(row.field.length));
            const auto part = static_cast<std::uint32_t>(bits >> row.low) & mask;
            rewriter_.write(row.field, (rewriter_.read(row.field) & ~mask) | part);
        });
    }

    unsigned format_;
    Rewriter rewriter_;
    Verb verb_ = Verb::set;
};

bool touches(const Command& command, std::uint32_t window) {
    return command.to.code == window || (command.verb == Verb::copy && command.from.code == window);
}

}  // namespace

void edit(unsigned format, std::span<const std::uint8_t> commands, Packet& packet) {
    Edits edits(format, packet);
    constexpr std::uint32_t none = UINT32_MAX;
    std::uint32_t written = none;   // the window of the first of a pair
    for (std::size_t i = 0; (i + 1) * edit_size <= commands.size(); ++i) {
        const std::uint8_t* const bytes = commands.data() + i * edit_size;
        const bool is_first = i % 2 == 0;
        if (is_first) written = none;
        if (get(bytes, command_code) == 0) continue;
        const Command command = read_command(format, bytes);
        if (touches(command, written)) {
            throw Stopped(fmt::format("two modify-header actions of a pair on field {:#x}", written));
        }
        edits.run(command);
        if (is_first) written = command.to.code;
    }
}

}  // namespace ovsdr::connectx::entries
