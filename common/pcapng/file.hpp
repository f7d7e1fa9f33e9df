// A pcapng file, or a pipe to somebody who reads one.
//
// Blocks are gathered in memory and written when there are enough of them, or by flush(). Threads: one at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "common/pcapng/blocks.hpp"

namespace ovsdr::pcapng {

class File {
public:
    /// `descriptor` stays the caller's.
    explicit File(int descriptor);

    /// Appends a block: any of those in blocks.hpp. Throws std::system_error when the file cannot be written (ENOSPC,
    /// EPIPE); the file then ends within a block at worst.
    template <typename T>
    void append(const T& block) {
        std::size_t size = write(room(), block);
        if (size > room().size()) {
            make_room(size);
            size = write(room(), block);
        }
        used_ += size;
    }

    /// Passes everything on to the system. Throws as append() does.
    void flush();

private:
    [[nodiscard]] std::span<std::byte> room() noexcept { return std::span(buffer_).subspan(used_); }
    void make_room(std::size_t size);

    int descriptor_;
    std::vector<std::byte> buffer_;
    std::size_t used_ = 0;
};

}  // namespace ovsdr::pcapng
