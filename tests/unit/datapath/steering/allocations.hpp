// What the program holds of the heap by operator new, and a way to make it fail: defining both replaces the program's.
#pragma once

namespace ovsdr::soft::test {

/// How many blocks there are. Threads: any.
[[nodiscard]] long blocks_in_use();

/// While it lives, after `left` allocations of the calling thread the next `times` fail.
class NoMemory {
public:
    explicit NoMemory(unsigned left = 0, unsigned times = ~0U);
    ~NoMemory();
    NoMemory(const NoMemory&) = delete;
    NoMemory& operator=(const NoMemory&) = delete;
};

}  // namespace ovsdr::soft::test
