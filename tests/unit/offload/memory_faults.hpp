// Memory that runs out: the N-th allocation of this thread throws std::bad_alloc, once.
//
// Include in one file of a test program: it replaces the global operator new.
#pragma once

#include <cstdlib>
#include <new>

#include "tests/unit/offload/fake_provider.hpp"

namespace ovsdr::test {

struct MemoryFaults {
    /// The `n`-th allocation from now on fails; 0: none.
    static void fail_allocation(unsigned n) { left = n; }
    /// It has happened.
    [[nodiscard]] static bool happened() { return left == 0; }

    static inline thread_local unsigned left = 0;
};

}  // namespace ovsdr::test

void* operator new(std::size_t size) {
    using ovsdr::test::MemoryFaults;
    const bool counts = MemoryFaults::left != 0 && ovsdr::test::NoMemoryFaults::depth == 0;
    if (counts && --MemoryFaults::left == 0) throw std::bad_alloc();
    if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
