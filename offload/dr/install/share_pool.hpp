// Values that many megaflows have in common, each kept once: masks, lists of actions.
//
// Model. The pool knows its values weakly: the last owner of a value destroys it, without the pool's lock. What the
// pool still remembers of such values it forgets whenever it has doubled.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace ovsdr::dr {

template <typename T, typename Hash, typename Equal>
class SharePool {
public:
    /// May throw std::bad_alloc; nothing has changed then.
    [[nodiscard]] std::shared_ptr<const T> share(const T& value) {
        std::lock_guard lock(mutex_);
        std::weak_ptr<const T>& known = values_[value];
        if (auto shared = known.lock()) return shared;
        auto made = std::make_shared<const T>(value);
        known = made;
        if (values_.size() >= prune_at_) {
            std::erase_if(values_, [](const auto& entry) { return entry.second.expired(); });
            prune_at_ = 2 * values_.size() + 1024;
        }
        return made;
    }

private:
    std::mutex mutex_;
    std::unordered_map<T, std::weak_ptr<const T>, Hash, Equal> values_;
    std::size_t prune_at_ = 1024;
};

}  // namespace ovsdr::dr
