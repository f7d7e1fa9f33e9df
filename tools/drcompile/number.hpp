// A text that is a decimal number and nothing else.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace ovsdr::drcompile {

template <typename T>
[[nodiscard]] std::optional<T> decimal(std::string_view text) {
    T value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace ovsdr::drcompile
