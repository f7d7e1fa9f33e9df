// A list that lives where it stands and has room for a few: what is not in it is neither made nor destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace ovsdr::soft {

template <typename T, std::size_t most>
class ShortList {
public:
    ShortList() noexcept {}
    ~ShortList() { std::destroy_n(values_, length_); }
    ShortList(const ShortList&) = delete;
    ShortList& operator=(const ShortList&) = delete;

    /// There is room.
    void push_back(T value) noexcept { std::construct_at(values_ + length_++, std::move(value)); }
    [[nodiscard]] std::span<T> all() noexcept { return {values_, length_}; }
    [[nodiscard]] std::uint8_t length() const noexcept { return length_; }

private:
    static_assert(most <= UINT8_MAX);
    union {
        T values_[most];
    };
    std::uint8_t length_ = 0;
};

}  // namespace ovsdr::soft
