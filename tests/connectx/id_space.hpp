// Numbers of one kind of firmware object (queue pairs, tables, counters, …): ranges of them that do not overlap.
//
// A number that was given back is not given out again before the space is through, so that whoever still uses it is
// found out. Threads: the caller's lock.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "tests/connectx/refused.hpp"

namespace ovsdr::connectx {

class IdSpace {
public:
    /// Numbers from `first` to `last`.
    IdSpace(std::uint32_t first, std::uint32_t last) : first_(first), last_(last), next_(first) {}

    /// The first of `length` numbers in a row; a multiple of `length` when that is a power of two. Throws BadStatus.
    [[nodiscard]] std::uint32_t allocate(std::uint32_t length = 1) {
        for (const std::uint64_t from : {next_, first_}) {
            if (const std::uint64_t id = search(from, length); id + length <= std::uint64_t{last_} + 1) {
                taken_.emplace(static_cast<std::uint32_t>(id), length);
                next_ = static_cast<std::uint32_t>(id) + length;
                return static_cast<std::uint32_t>(id);
            }
        }
        throw BadStatus{BadStatus::no_resources, "no number is left"};
    }

    void release(std::uint32_t id) { taken_.erase(id); }
    /// `id` is the first of a range that is taken.
    [[nodiscard]] bool has(std::uint32_t id) const { return taken_.count(id) != 0; }

private:
    [[nodiscard]] std::uint64_t search(std::uint64_t from, std::uint32_t length) const {
        std::uint64_t id = aligned(from, length);
        // The range before may reach into this one.
        auto after = taken_.upper_bound(static_cast<std::uint32_t>(id));
        if (after != taken_.begin() && std::prev(after)->first + std::uint64_t{std::prev(after)->second} > id) --after;
        for (; after != taken_.end() && after->first < id + length; ++after) {
            id = aligned(after->first + std::uint64_t{after->second}, length);
        }
        return id;
    }
    [[nodiscard]] static std::uint64_t aligned(std::uint64_t id, std::uint32_t length) {
        const bool power = (length & (length - 1)) == 0;
        return power ? (id + length - 1) / length * length : id;
    }

    std::uint32_t first_, last_, next_;
    std::map<std::uint32_t, std::uint32_t> taken_;   ///< first number → how many
};

}   // namespace ovsdr::connectx
