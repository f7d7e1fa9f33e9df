#include "tests/differential/judge/verdict.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace ovsdr::differential {

namespace {

template <typename T>
void put(std::ostream& file, const T& value) {
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
T take(std::istream& file) {
    T value{};
    file.read(reinterpret_cast<char*>(&value), sizeof value);
    return value;
}

template <typename T>
void put_all(std::ostream& file, const std::vector<T>& values) {
    put(file, values.size());
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

template <typename T>
std::vector<T> take_all(std::istream& file) {
    std::vector<T> values(take<std::size_t>(file));
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
    return values;
}

}  // namespace

std::uint32_t number_of(const std::vector<std::uint8_t>& frame) {
    if (frame.size() < 4) throw std::runtime_error("a frame without a number came out");
    const std::uint8_t* last = frame.data() + frame.size() - 4;
    const auto low = static_cast<std::uint32_t>(last[1] << 16 | last[2] << 8 | last[3]);
    return static_cast<std::uint32_t>(last[0]) << 24 | low;
}

void Verdict::add(std::uint32_t in_port, Copy copy) {
    const std::uint32_t number = number_of(copy.bytes);
    if (number >= copies.size()) throw std::runtime_error("a frame with an impossible number came out");
    const std::uint32_t place = (copy.up ? 0x8000U : 0U) | copy.port;
    arrivals[in_port << 16 | place].push_back(number);
    copies[number].push_back(std::move(copy));
}

void Verdict::finish() {
    for (auto& each : copies) std::ranges::sort(each);
}

void Verdict::write(const std::string& path) const {
    std::ofstream file(path, std::ios::binary);
    put(file, copies.size());
    for (const auto& each : copies) {
        put(file, each.size());
        for (const Copy& copy : each) {
            put(file, copy.port);
            put(file, copy.up);
            put(file, copy.tag);
            put_all(file, copy.bytes);
        }
    }
    put(file, arrivals.size());
    for (const auto& [key, numbers] : arrivals) {
        put(file, key);
        put_all(file, numbers);
    }
    put_all(file, megaflows);
    put_all(file, taken_by);
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

Verdict Verdict::read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Verdict verdict;
    verdict.copies.resize(take<std::size_t>(file));
    for (auto& each : verdict.copies) {
        each.resize(take<std::size_t>(file));
        for (Copy& copy : each) {
            copy.port = take<std::uint32_t>(file);
            copy.up = take<bool>(file);
            copy.tag = take<std::uint32_t>(file);
            copy.bytes = take_all<std::uint8_t>(file);
        }
    }
    for (auto left = take<std::size_t>(file); left > 0; --left) {
        const auto key = take<std::uint32_t>(file);
        verdict.arrivals[key] = take_all<std::uint32_t>(file);
    }
    verdict.megaflows = take_all<MegaflowVerdict>(file);
    verdict.taken_by = take_all<std::int32_t>(file);
    if (!file) throw std::runtime_error("cannot read " + path);
    return verdict;
}

}  // namespace ovsdr::differential
