#include "datapath/rdma/mkey/mkey.hpp"

#include <algorithm>
#include <limits>
#include <thread>

#include "datapath/ports/guarded_copy.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::int32_t a_writer = std::numeric_limits<std::int32_t>::min();

}  // namespace

void Mkey::State::clear() noexcept {
    free = true;
    is_signed = false;
    access = 0;
    qpn = any_qpn;
    ++generation;
    start_address = 0;
    length = 0;
    layout.clear();
}

Mkey::Reading::Reading(Mkey& mkey) noexcept : mkey_(mkey) {
    std::int32_t users = mkey.users_.load(std::memory_order_relaxed);
    for (;;) {
        if (users < 0) {
            std::this_thread::yield();
            users = mkey.users_.load(std::memory_order_relaxed);
        } else if (mkey.users_.compare_exchange_weak(users, users + 1, std::memory_order_acquire)) {
            return;
        }
    }
}

Mkey::Writing::Writing(Mkey& mkey) noexcept : mkey_(mkey) {
    std::int32_t nobody = 0;
    while (!mkey.users_.compare_exchange_weak(nobody, a_writer, std::memory_order_acquire)) {
        nobody = 0;
        std::this_thread::yield();
    }
}

void Mkey::report(const signature::Error& error) noexcept {
    const std::lock_guard guard(error_mutex_);
    if (error_.type == signature::ErrorType::none) error_ = error;
}

signature::Error Mkey::take_error() noexcept {
    const std::lock_guard guard(error_mutex_);
    const signature::Error error = error_;
    error_ = {};
    return error;
}

void LayoutMemory::find_run(std::uint64_t offset) noexcept {
    run_end_ = run_begin_ = 0;
    if (offset >= state_.length) return;
    const Layout::Rest rest = state_.layout.rest_at(offset);
    const std::uint64_t size = std::min(rest.size, state_.length - offset);
    const unsigned access = writing_ ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u;
    run_ = table_.lookup(rest.key, rest.address, size, access, domain_);
    // A null region is in one place, whatever the address.
    if (!run_ || table_.lookup(rest.key, rest.address + size - 1, 1, access, domain_) != run_ + size - 1) return;
    run_begin_ = offset;
    run_end_ = offset + size;
}

/// Calls copy(memory, part) for the pieces of `bytes`, until one returns false.
template <typename Bytes, typename Copy>
bool LayoutMemory::each(std::uint64_t offset, Bytes bytes, Copy copy) noexcept {
    if (std::byte* const memory = run(offset, bytes.size())) return copy(memory, bytes);
    bool copied = true;
    const bool visited = visit(offset, bytes.size(), [&](std::byte* memory, std::uint64_t size) {
        copied = copied && copy(memory, bytes.first(size));
        bytes = bytes.subspan(size);
    });
    return visited && copied;
}

bool LayoutMemory::read(std::uint64_t offset, std::span<std::byte> to) noexcept {
    return each(offset, to, [](const std::byte* memory, std::span<std::byte> part) {
        return guarded_copy(part.data(), memory, part.size());
    });
}

bool LayoutMemory::write(std::uint64_t offset, std::span<const std::byte> from) noexcept {
    return each(offset, from, [](std::byte* memory, std::span<const std::byte> part) {
        return guarded_copy(memory, part.data(), part.size());
    });
}

bool LayoutMemory::read(std::uint64_t offset, std::span<std::byte> to, signature::Guard& guard) noexcept {
    return each(offset, to, [&guard](const std::byte* memory, std::span<std::byte> part) {
        if (guard.copies(part.size())) return guard.copy(part.data(), {memory, part.size()});
        if (!guarded_copy(part.data(), memory, part.size())) return false;
        guard.update(part);
        return true;
    });
}

bool LayoutMemory::write(std::uint64_t offset, std::span<const std::byte> from, signature::Guard& guard) noexcept {
    return each(offset, from, [&guard](std::byte* memory, std::span<const std::byte> part) {
        if (guard.copies(part.size())) return guard.copy(memory, part);
        if (!guarded_copy(memory, part.data(), part.size())) return false;
        guard.update(part);
        return true;
    });
}

}  // namespace ovsdr::soft
