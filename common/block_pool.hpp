// Memory for what there are a million of: blocks of one size lie side by side in slabs of 64 KB.
//
// Taking a block and giving one back takes the same time however many there are, and a block has no header. The C
// library's malloc() keeps what small blocks leave in lists that it goes through at once some day: after a million it
// stands still for a tenth of a second, in whichever thread has asked for something.
//
// Under a sanitizer each block is the C library's own: it sees then who looks at one that was given back.
//
// A pool that has grown takes memory for its slabs by huge pages, where the system has them: to touch 4 KB at a time
// costs more than to fill them.
//
// Slabs that are empty stay for blocks to come until trim().
//
// Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace ovsdr {

class BlockPool {
public:
    static constexpr std::size_t slab_size = std::size_t{1} << 16;
    static constexpr std::size_t largest = 4096;  ///< bytes of a block
    static constexpr std::size_t alignment = 8;

    BlockPool() = default;
    /// Blocks that have not been given back stay where they are, for good.
    ~BlockPool() { trim(); }
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    /// Aligned to `alignment` bytes. `size` up to `largest`. Throws std::bad_alloc.
    [[nodiscard]] void* take(std::size_t size);
    /// To the pool that it is of.
    static void give_back(void* block) noexcept;
    /// Gives empty slabs back to the system.
    void trim() noexcept;

private:
    struct Slab;
    void link(Slab& slab) noexcept;
    void unlink(Slab& slab) noexcept;
    [[nodiscard]] void* new_slab();

    std::mutex mutex_;
    std::size_t slabs_ = 0;              ///< that have blocks, or had some and were not trimmed
    std::byte* region_ = nullptr;        ///< what is left of a huge page, for slabs to come
    std::byte* region_end_ = nullptr;
    /// By size in units of 8 bytes: the first of the slabs that have a block free.
    std::array<Slab*, largest / 8 + 1> classes_{};
};

}  // namespace ovsdr
