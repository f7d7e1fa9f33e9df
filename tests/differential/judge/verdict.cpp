#include "tests/differential/judge/verdict.hpp"

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <type_traits>

namespace ovsdr::differential {

namespace {

/// A verdict's parts to and from a file, one after another: each says only once what it is made of.
class Writer {
public:
    explicit Writer(std::ostream& file) : file_(file) {}
    template <typename T>
    void part(const T& value) requires std::is_trivially_copyable_v<T> {
        file_.write(reinterpret_cast<const char*>(&value), sizeof value);
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
    void part(const Copy& copy) { all(copy.port, copy.table, copy.in_software, copy.source_port_at, copy.bytes); }
    void part(const Up& up) { all(up.table, up.bytes); }
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
    void part(T& value) requires std::is_trivially_copyable_v<T> {
        file_.read(reinterpret_cast<char*>(&value), sizeof value);
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
    void part(Copy& copy) { all(copy.port, copy.table, copy.in_software, copy.source_port_at, copy.bytes); }
    void part(Up& up) { all(up.table, up.bytes); }
    template <typename... T>
    void all(T&... values) {
        (part(values), ...);
    }

private:
    std::istream& file_;
};

}  // namespace

std::uint32_t number_of(const std::vector<std::uint8_t>& frame) {
    if (frame.size() < 4) throw std::runtime_error("a frame without a number came out");
    const std::uint8_t* last = frame.data() + frame.size() - 4;
    const auto low = static_cast<std::uint32_t>(last[1] << 16 | last[2] << 8 | last[3]);
    return static_cast<std::uint32_t>(last[0]) << 24 | low;
}

Verdict::Verdict(std::size_t packets, std::size_t ufids) : copies(packets), ups(packets), counts(ufids) {}

void Verdict::finish() {
    for (auto& each : copies) std::ranges::sort(each);
    for (auto& each : ups) std::ranges::sort(each);
}

void Verdict::write(const std::string& path) const {
    std::ofstream file(path, std::ios::binary);
    Writer to(file);
    to.all(copies, ups, counts, installed, lookups, arrivals.size());
    for (const auto& [key, numbers] : arrivals) to.all(key, numbers);
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

Verdict Verdict::read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Reader from(file);
    Verdict verdict;
    std::size_t left = 0;
    from.all(verdict.copies, verdict.ups, verdict.counts, verdict.installed, verdict.lookups, left);
    for (; file && left > 0; --left) {
        std::uint32_t key = 0;
        from.part(key);
        from.part(verdict.arrivals[key]);
    }
    if (!file) throw std::runtime_error("cannot read " + path);
    return verdict;
}

void Recorder::output(std::uint32_t port, std::span<const std::uint8_t> frame, std::size_t source_port_at) {
    verdict_.copies[number_].push_back({.port = port, .in_software = in_software_,
                                        .source_port_at = static_cast<std::uint32_t>(source_port_at),
                                        .bytes = {frame.begin(), frame.end()}});
    if (!in_software_) verdict_.arrivals[in_port_ << 16 | port].push_back(number_);
}

void Recorder::taken(std::uint32_t version, const ovs_judge_packet& packet) {
    Counts& counts = verdict_.counts[versions_[version].ufid];
    counts.software_packets += counts_ ? 1 : 0;
    counts.software_bytes += counts_ ? packet.size : 0;
    if (!in_software_) verdict_.lookups[number_].push_back({table_of(packet), static_cast<std::int32_t>(version)});
}

void Recorder::missed(const ovs_judge_packet& packet, const ovs_judge_seen&) {
    verdict_.copies[number_].push_back({.port = Copy::upcall, .table = table_of(packet),
                                        .in_software = in_software_,
                                        .bytes = {packet.bytes, packet.bytes + packet.size}});
    if (!in_software_) verdict_.lookups[number_].push_back({table_of(packet), -1});
}

}  // namespace ovsdr::differential
