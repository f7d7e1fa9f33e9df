// Registered memory: which addresses of the application a queue of the device may touch.
//
// Model. Each region has one key, used as lkey and rkey: index << 8 | tag; the tag changes when the index is used
// again, so that a stale key finds nothing. A queue asks for each piece of memory just before it copies, as the device
// does when it executes the work request, not when it is posted.
//
// MKEYs (mkey/mkey.hpp) are keys of the same space: lookup() finds regions only, mkey() finds MKEYs only.
//
// Life cycle. Between Reading's constructor and destructor no region that lookup() returned goes away: remove() waits
// for readers that were there before it. Keep a Reading for one batch, never while waiting.
//
// Threads: lookup() and Reading from any thread without a lock; add() and remove() from any thread.
// Source: ibv_reg_mr(3).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace ovsdr::soft {

class Mkey;

struct MemoryRegion {
    std::uint64_t iova;     ///< the address that work requests use for the first byte
    std::uint64_t size;     ///< bytes
    std::byte* base;        ///< where the first byte is in this process
    unsigned access;        ///< enum ibv_access_flags
    const void* domain;     ///< protection domain
    std::uint32_t key = 0;  ///< set by add()
    std::byte* discard = nullptr;  ///< a null region: reads find zeros at `base`, writes go here, whatever the address
    Mkey* mkey = nullptr;   ///< of a slot that an MKEY has; its region is empty and has no key

    /// The byte behind so many; a region of the whole address space begins at 0.
    [[nodiscard]] std::byte* at(std::uint64_t offset) const noexcept {
        return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + offset);
    }
};

class MemoryTable {
public:
    static constexpr unsigned max_regions = 1u << 18;
    /// Keys below are the device's own: 0x100 ends a list of data segments, 0x400 marks a repeat block.
    static constexpr unsigned first_index = 16;

    MemoryTable();
    ~MemoryTable();
    MemoryTable(const MemoryTable&) = delete;
    MemoryTable& operator=(const MemoryTable&) = delete;

    /// ENOMEM past max_regions. The key is in `region` afterwards.
    [[nodiscard]] int add(MemoryRegion& region);
    /// Sets the MKEY's key. The MKEY stays the caller's, who removes it before it goes.
    [[nodiscard]] int add(Mkey& mkey);
    /// Puts `region` in the place of the one with its key, and returns once no reader can be using that one. EINVAL
    /// where there is none.
    [[nodiscard]] int replace(const MemoryRegion& region);
    /// The region of an index (a key without its tag); false where there is none.
    [[nodiscard]] bool find(std::uint32_t index, MemoryRegion& region);
    /// Returns once no reader can be using the region or MKEY.
    void remove(std::uint32_t key) noexcept;

    /// A reader's stay in the table; `stripe` spreads readers over cache lines (a worker's or queue's number).
    class Reading {
    public:
        Reading(MemoryTable& table, unsigned stripe) noexcept : count_(table.readers_[stripe % stripes].count) {
            count_.fetch_add(1, std::memory_order_seq_cst);
        }
        ~Reading() { count_.fetch_sub(1, std::memory_order_release); }
        Reading(const Reading&) = delete;
        Reading& operator=(const Reading&) = delete;

    private:
        std::atomic<std::uint32_t>& count_;
    };

    /// Where `size` bytes at `address` are, or nullptr: unknown key, other domain, out of bounds, access not granted.
    [[nodiscard]] std::byte* lookup(std::uint32_t key, std::uint64_t address, std::uint64_t size, unsigned access,
                                    const void* domain) const noexcept;

    /// The MKEY of that key; nullptr for a region's key, and where the tag is not the present one.
    [[nodiscard]] Mkey* mkey(std::uint32_t key) const noexcept;
    /// The same whatever the tag: for work requests that change it.
    [[nodiscard]] Mkey* mkey_of_any_tag(std::uint32_t key) const noexcept;

private:
    static constexpr unsigned stripes = 32;
    static constexpr unsigned chunk_length = 1024;
    struct alignas(64) Readers {
        std::atomic<std::uint32_t> count{0};
    };
    struct Chunk {
        std::array<std::atomic<const MemoryRegion*>, chunk_length> slots{};
    };

    [[nodiscard]] std::atomic<const MemoryRegion*>* slot(std::uint32_t index) const noexcept;

    mutable std::array<Readers, stripes> readers_;
    std::unique_ptr<std::atomic<Chunk*>[]> chunks_;
    /// Reserves the next key, and room for it. Under mutex_.
    [[nodiscard]] int reserve(std::uint32_t& key);

    void await_readers() noexcept;

    std::mutex mutex_;
    std::vector<std::uint32_t> free_;  // keys to use next, their tags advanced
    std::uint32_t next_index_ = first_index;
};

}  // namespace ovsdr::soft
