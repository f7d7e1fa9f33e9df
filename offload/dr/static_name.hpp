// A name that was written down in the source: of a match field, an action, a call, a reason.
//
// Tables that are keyed by such names cannot grow with what the traffic or the device says: a text made at run time
// does not convert to one. It points at static storage, costs a pointer, and compares by its characters.
//
// Threads: a value.
#pragma once

#include <compare>
#include <string_view>

namespace ovsdr {

class StaticName {
public:
    constexpr StaticName() noexcept = default;
    // Implicit, so that a literal is a name.
    consteval StaticName(const char* literal) noexcept : text_(literal) {}
    /// For C's tables of names: `text` is never freed and never changes.
    [[nodiscard]] static StaticName of_table(const char* text) noexcept {
        StaticName name;
        name.text_ = text;
        return name;
    }

    [[nodiscard]] constexpr const char* text() const noexcept { return text_; }
    [[nodiscard]] constexpr bool empty() const noexcept { return *text_ == '\0'; }

    friend constexpr bool operator==(StaticName left, StaticName right) noexcept {
        return std::string_view(left.text_) == right.text_;
    }
    friend constexpr std::strong_ordering operator<=>(StaticName left, StaticName right) noexcept {
        return std::string_view(left.text_) <=> std::string_view(right.text_);
    }

private:
    const char* text_ = "";
};

}  // namespace ovsdr
