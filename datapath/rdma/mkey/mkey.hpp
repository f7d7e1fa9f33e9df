// An indirect memory key: a key whose layout leads to other keys, with access rights and, where it was made for them,
// signature attributes of its own.
//
// Model. A key of the device's one key space (MemoryTable), used as lkey and rkey. It is free after creation: every use
// fails until a work request configures it. Configuration changes what it names and leaves the rest; an invalidation
// makes the key free and clears all. Addresses count from start_address, which is 0 but for memory windows.
//
// Keys behind. A layout's entries name regions or further MKEYs, of the same protection domain, at most max_depth in a
// row; as keys used locally: who writes needs IBV_ACCESS_LOCAL_WRITE of them, the rest is granted by the outer MKEY.
// Only the outermost may have signature attributes.
//
// Errors of signatures. The first is kept until it is taken (mlx5dv_mkey_check()).
//
// Threads: readers share, a configuration excludes them; both spin for as long as a packet's bytes take to copy.
// Source: mlx5dv_create_mkey(3), mlx5dv_wr_mkey_configure(3), mlx5dv_mkey_check(3).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>

#include "datapath/rdma/memory/memory.hpp"
#include "datapath/rdma/mkey/layout.hpp"
#include "datapath/signature/field.hpp"

namespace ovsdr::soft {

class Mkey {
public:
    static constexpr unsigned max_depth = 4;
    static constexpr std::uint32_t any_qpn = 0xffffff;

    struct Spec {
        const void* domain;  ///< protection domain
        unsigned max_entries;
        bool has_signature;
        bool remote_invalidate;
    };

    /// What work requests configure.
    struct State {
        bool free = true;
        bool is_signed = false;
        unsigned access = 0;  ///< enum ibv_access_flags
        std::uint32_t qpn = any_qpn;  ///< who may use it from afar and make it free: a window of type 2 is its binder's
        std::uint32_t generation{};  ///< another after each change
        std::uint64_t start_address = 0;
        std::uint64_t length = 0;  ///< bytes of the memory domain
        Layout layout;
        signature::Attributes attributes;  ///< if is_signed

        explicit State(unsigned max_entries) : layout(max_entries) {}
        [[nodiscard]] bool is_of(std::uint32_t number) const noexcept { return qpn == any_qpn || qpn == number; }
        void clear() noexcept;
    };

    explicit Mkey(const Spec& spec) : spec_(spec), state_(spec.max_entries) {}
    Mkey(const Mkey&) = delete;
    Mkey& operator=(const Mkey&) = delete;

    [[nodiscard]] const Spec& spec() const noexcept { return spec_; }

    /// With its present tag, which work requests may change.
    [[nodiscard]] std::uint32_t key() const noexcept { return key_.load(std::memory_order_acquire); }
    void set_key(std::uint32_t key) noexcept { key_.store(key, std::memory_order_release); }

    class Reading {
    public:
        explicit Reading(Mkey& mkey) noexcept;
        ~Reading() { mkey_.users_.fetch_sub(1, std::memory_order_release); }
        Reading(const Reading&) = delete;
        Reading& operator=(const Reading&) = delete;
        [[nodiscard]] const State& operator*() const noexcept { return mkey_.state_; }
        [[nodiscard]] const State* operator->() const noexcept { return &mkey_.state_; }

    private:
        Mkey& mkey_;
    };

    class Writing {
    public:
        explicit Writing(Mkey& mkey) noexcept;
        ~Writing() { mkey_.users_.store(0, std::memory_order_release); }
        Writing(const Writing&) = delete;
        Writing& operator=(const Writing&) = delete;
        [[nodiscard]] State& operator*() const noexcept { return mkey_.state_; }
        [[nodiscard]] State* operator->() const noexcept { return &mkey_.state_; }

    private:
        Mkey& mkey_;
    };

    /// Keeps `error` unless there is one already.
    void report(const signature::Error& error) noexcept;
    /// The error, ErrorType::none if there is none; forgets it.
    [[nodiscard]] signature::Error take_error() noexcept;

private:
    const Spec spec_;
    std::atomic<std::uint32_t> key_{};
    std::atomic<std::int32_t> users_{0};  // readers; negative: a writer
    State state_;
    std::mutex error_mutex_;
    signature::Error error_;
};

/// The bytes of a layout, for signature::Stream and whoever else copies. Made under an Mkey::Reading (whose state it
/// refers to) and a MemoryTable::Reading, and gone with them: it keeps where the piece is that was copied last, so that
/// blocks of one piece are looked up once.
class LayoutMemory {
public:
    LayoutMemory(const MemoryTable& table, const void* domain, const Mkey::State& state, bool writing,
                 unsigned depth = 1) noexcept
        : table_(table), domain_(domain), state_(state), writing_(writing), depth_(depth) {}

    /// Calls use(part, size) for the pieces of [offset, offset + size). false: out of bounds, or a key behind does not
    /// grant it; pieces before it have been used then.
    template <typename Use>
    [[nodiscard]] bool visit(std::uint64_t offset, std::uint64_t size, Use&& use) noexcept {
        if (size > state_.length || offset > state_.length - size) return false;
        return state_.layout.visit(offset, size, [&](std::uint32_t key, std::uint64_t address, std::uint64_t part) {
            const unsigned access = writing_ ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u;
            if (std::byte* const memory = table_.lookup(key, address, part, access, domain_)) {
                use(memory, part);
                return true;
            }
            return visit_behind(key, address, part, access, use);
        });
    }

    /// Copies of [offset, offset + size), as visit() goes; false too where memory is not there any more.
    [[nodiscard]] bool read(std::uint64_t offset, std::span<std::byte> to) noexcept;
    [[nodiscard]] bool write(std::uint64_t offset, std::span<const std::byte> from) noexcept;
    /// And `guard` takes the bytes. It means nothing where the copy failed.
    [[nodiscard]] bool read(std::uint64_t offset, std::span<std::byte> to, signature::Guard& guard) noexcept;
    [[nodiscard]] bool write(std::uint64_t offset, std::span<const std::byte> from, signature::Guard& guard) noexcept;

private:
    template <typename Use>
    [[nodiscard]] bool visit_behind(std::uint32_t key, std::uint64_t address, std::uint64_t size, unsigned access,
                                    Use& use) noexcept {
        Mkey* const mkey = depth_ < Mkey::max_depth ? table_.mkey(key) : nullptr;
        if (!mkey || mkey->spec().domain != domain_) return false;
        const Mkey::Reading state(*mkey);
        if (state->free || state->is_signed || (state->access & access) != access) return false;
        if (address < state->start_address) return false;
        LayoutMemory behind(table_, domain_, *state, writing_, depth_ + 1);
        return behind.visit(address - state->start_address, size, use);
    }
    /// Where [offset, offset + size) is, if it lies in one piece of a region; nullptr: visit() tells.
    [[nodiscard]] std::byte* run(std::uint64_t offset, std::uint64_t size) noexcept {
        if (offset < run_begin_ || offset >= run_end_ || size > run_end_ - offset) find_run(offset);
        if (offset < run_begin_ || offset >= run_end_ || size > run_end_ - offset) return nullptr;
        return run_ + (offset - run_begin_);
    }
    void find_run(std::uint64_t offset) noexcept;
    template <typename Bytes, typename Copy>
    [[nodiscard]] bool each(std::uint64_t offset, Bytes bytes, Copy copy) noexcept;

    const MemoryTable& table_;
    const void* domain_;
    const Mkey::State& state_;
    bool writing_;
    unsigned depth_;
    std::byte* run_ = nullptr;
    std::uint64_t run_begin_ = 0, run_end_ = 0;   ///< offsets; equal: none
};

}  // namespace ovsdr::soft
