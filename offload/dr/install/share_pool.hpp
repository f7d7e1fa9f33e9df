// Values that many have in common, each kept once: masks, lists of actions.
//
// Model. Whoever shares a value has a Ref to it, which is one pointer. The last Ref that goes takes the value out of
// the pool; a Ref that is not the last one does not touch the pool.
//
// Threads: any. The pool outlives its Refs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace ovsdr::dr {

/// Hash and Equal also take what a value is looked for by, Equal as the second one.
template <typename T, typename Hash, typename Equal>
class SharePool {
    struct Shared {
        Shared(SharePool& its_pool, std::size_t its_hash, T its_value)
            : pool(its_pool), hash(its_hash), value(std::move(its_value)) {}

        SharePool& pool;
        const std::size_t hash;
        std::atomic<std::uint64_t> refs{0};   ///< becomes 0, and 1 again, with the pool's mutex only
        const T value;
    };

public:
    /// Empty by default and after a move.
    class Ref {
    public:
        Ref() noexcept = default;
        ~Ref() {
            if (shared_ != nullptr) shared_->pool.release(shared_);
        }
        Ref(const Ref& other) noexcept : shared_(other.shared_) {
            if (shared_ != nullptr) shared_->refs.fetch_add(1, std::memory_order_relaxed);
        }
        Ref(Ref&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
        Ref& operator=(Ref other) noexcept {
            std::swap(shared_, other.shared_);
            return *this;
        }
        [[nodiscard]] explicit operator bool() const noexcept { return shared_ != nullptr; }
        [[nodiscard]] const T& operator*() const noexcept { return shared_->value; }
        [[nodiscard]] const T* operator->() const noexcept { return &shared_->value; }
        /// The value's. The Ref is not empty.
        [[nodiscard]] std::size_t hash() const noexcept { return shared_->hash; }
        friend bool operator==(const Ref&, const Ref&) = default;

    private:
        friend class SharePool;
        explicit Ref(Shared* shared) noexcept : shared_(shared) {}
        Shared* shared_ = nullptr;
    };

    /// The value that equals `given`; if there is none, what `make` makes of it. May throw std::bad_alloc; nothing has
    /// changed then.
    template <typename Given, typename Make>
    [[nodiscard]] Ref share(const Given& given, Make&& make) {
        const std::size_t hash = Hash{}(given);
        std::lock_guard lock(mutex_);
        Shared* shared = find(hash, given);
        if (shared == nullptr) {
            shared = values_.emplace(hash, std::make_unique<Shared>(*this, hash, make(given)))->second.get();
        }
        shared->refs.fetch_add(1, std::memory_order_relaxed);
        return Ref(shared);
    }
    [[nodiscard]] Ref share(const T& value) {
        return share(value, [](const T& given) { return given; });
    }

private:
    [[nodiscard]] Shared* find(std::size_t hash, const auto& given) const {
        const auto [first, end] = values_.equal_range(hash);
        for (auto known = first; known != end; ++known) {
            if (Equal{}(known->second->value, given)) return known->second.get();
        }
        return nullptr;
    }

    void release(Shared* shared) noexcept {
        std::uint64_t refs = shared->refs.load(std::memory_order_relaxed);
        while (refs > 1) {
            if (shared->refs.compare_exchange_weak(refs, refs - 1, std::memory_order_release)) return;
        }
        std::lock_guard lock(mutex_);
        if (shared->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        auto known = values_.equal_range(shared->hash).first;
        while (known->second.get() != shared) ++known;
        values_.erase(known);
    }

    std::mutex mutex_;
    std::unordered_multimap<std::size_t, std::unique_ptr<Shared>> values_;   ///< by hash
};

}  // namespace ovsdr::dr
