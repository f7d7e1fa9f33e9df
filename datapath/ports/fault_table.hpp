// Instructions that may touch memory which is not there, and where the thread goes on when it is not.
//
// Whoever copies memory of others by instructions of their own (guarded_copy.hpp says why copies are guarded) writes an
// asm statement with these instructions between the labels 1 and 2 and ON_FAULT behind them: a fault in there sets the
// operand [fault], a 32-bit register that is 0 before, to 1 and goes on at label 2. What the statement moved until then
// stays moved, and its other results mean nothing.
//
// guard_copies() installs the handler that reads this table.
// Threads: any.
#pragma once

#include <cstdint>

/// Inside of asm: see above.
#define OVSDR_ON_FAULT                                       \
    ".pushsection .text.softnic_faults, \"ax\", @progbits\n" \
    "3: movl $1, %[fault]\n"                                 \
    "jmp 2b\n"                                               \
    ".popsection\n"                                          \
    ".pushsection softnic_faults, \"a\", @progbits\n"        \
    ".long 1b - ., 2b - ., 3b - .\n"                         \
    ".popsection\n"

namespace ovsdr::soft {

/// An entry: each word is the distance to an address from the word itself.
struct FaultRange {
    std::int32_t begin, end, resume;

    [[nodiscard]] static std::uintptr_t address(const std::int32_t& word) noexcept {
        return reinterpret_cast<std::uintptr_t>(&word) + static_cast<std::uintptr_t>(std::intptr_t{word});
    }
    [[nodiscard]] bool covers(std::uintptr_t at) const noexcept { return at >= address(begin) && at < address(end); }
};
static_assert(sizeof(FaultRange) == 12);

}  // namespace ovsdr::soft
