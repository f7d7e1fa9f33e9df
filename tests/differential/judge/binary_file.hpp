// Values to and from a file, one after another: whoever has parts says only once what they are.
//
// Threads: one. Errors: the stream's state.
#pragma once

#include <cstddef>
#include <istream>
#include <ostream>
#include <type_traits>
#include <vector>

namespace ovsdr::differential {

class Writer {
public:
    explicit Writer(std::ostream& file) : file_(file) {}

    template <typename T>
    void part(const T& value) {
        if constexpr (std::is_trivially_copyable_v<T>) {
            file_.write(reinterpret_cast<const char*>(&value), sizeof value);
        } else {
            parts_of(value, [this](const auto&... parts) { all(parts...); });
        }
    }
    template <typename T>
    void part(const std::vector<T>& values) {
        part(values.size());
        if constexpr (std::is_trivially_copyable_v<T>) {
            file_.write(reinterpret_cast<const char*>(values.data()),
                        static_cast<std::streamsize>(values.size() * sizeof(T)));
        } else {
            for (const T& value : values) part(value);
        }
    }
    template <typename... T>
    void all(const T&... values) {
        (part(values), ...);
    }

private:
    std::ostream& file_;
};

class Reader {
public:
    explicit Reader(std::istream& file) : file_(file) {}

    template <typename T>
    void part(T& value) {
        if constexpr (std::is_trivially_copyable_v<T>) {
            file_.read(reinterpret_cast<char*>(&value), sizeof value);
        } else {
            parts_of(value, [this](auto&... parts) { all(parts...); });
        }
    }
    template <typename T>
    void part(std::vector<T>& values) {
        std::size_t length = 0;
        part(length);
        if (!file_) return;
        values.resize(length);
        if constexpr (std::is_trivially_copyable_v<T>) {
            file_.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(length * sizeof(T)));
        } else {
            for (T& value : values) part(value);
        }
    }
    template <typename... T>
    void all(T&... values) {
        (part(values), ...);
    }

private:
    std::istream& file_;
};

}  // namespace ovsdr::differential
