// Numbers and texts in a message: least significant byte first, without padding. Whoever reads asks first whether the
// bytes are there.
//
// Threads: values, by one at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ovsdr::mirror {

class ByteWriter {
public:
    explicit ByteWriter(std::vector<std::byte>& to) noexcept : to_(to) {}

    template <std::unsigned_integral T>
    void number(T value) {
        for (std::size_t i = 0; i < sizeof value; ++i) {
            to_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> 8 * i));
        }
    }
    void bytes(std::span<const std::byte> from) { to_.insert(to_.end(), from.begin(), from.end()); }
    /// A text with its size in front, 65,535 bytes at most: what is longer is cut.
    void text(std::string_view value) {
        value = value.substr(0, UINT16_MAX);
        number(static_cast<std::uint16_t>(value.size()));
        bytes(std::as_bytes(std::span(value)));
    }

private:
    std::vector<std::byte>& to_;
};

/// Once something was missing, everything read is zero or empty, and complete() is false.
class ByteReader {
public:
    explicit ByteReader(std::span<const std::byte> from) noexcept : left_(from) {}

    template <std::unsigned_integral T>
    [[nodiscard]] T number() noexcept {
        std::uint64_t value = 0;
        const auto from = bytes(sizeof(T));
        for (std::size_t i = 0; i < from.size(); ++i) value |= std::to_integer<std::uint64_t>(from[i]) << 8 * i;
        return static_cast<T>(value);
    }
    /// `size` bytes, or none.
    [[nodiscard]] std::span<const std::byte> bytes(std::size_t size) noexcept {
        if (left_.size() < size) {
            missing_ = true;
            left_ = {};
            return {};
        }
        const auto taken = left_.first(size);
        left_ = left_.subspan(size);
        return taken;
    }
    /// Of at most `longest` bytes.
    [[nodiscard]] std::string text(std::size_t longest) {
        const std::size_t size = number<std::uint16_t>();
        if (size > longest) {
            missing_ = true;
            left_ = {};
            return {};
        }
        const auto from = bytes(size);
        return {reinterpret_cast<const char*>(from.data()), from.size()};
    }

    /// Everything was there, and nothing is left.
    [[nodiscard]] bool complete() const noexcept { return !missing_ && left_.empty(); }
    [[nodiscard]] bool missing() const noexcept { return missing_; }

private:
    std::span<const std::byte> left_;
    bool missing_ = false;
};

}  // namespace ovsdr::mirror
