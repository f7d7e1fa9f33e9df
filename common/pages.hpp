// Memory of our own in whole pages, all of them there from the beginning: for rings that a NIC reads or writes.
//
// Threads: a value that stays where it is. Errors: std::bad_alloc.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <span>

namespace ovsdr {

class Pages {
public:
    /// Bytes, zero at first.
    explicit Pages(std::size_t size) {
        void* const made =
            mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (made == MAP_FAILED) throw std::bad_alloc();
        bytes_ = {static_cast<std::byte*>(made), size};
    }
    ~Pages() { munmap(bytes_.data(), bytes_.size()); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;

    [[nodiscard]] std::span<std::byte> get() const noexcept { return bytes_; }

private:
    std::span<std::byte> bytes_;
};

}  // namespace ovsdr
