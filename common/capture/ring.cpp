#include "common/capture/ring.hpp"

#include <cstring>
#include <stdexcept>

namespace ovsdr::capture {
namespace {

/// In the place of a record's size: the next record is at the start of the ring.
constexpr std::uint32_t go_to_start = ~std::uint32_t{0};

void add(std::atomic<std::uint64_t>& counter, std::uint64_t value) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
}

}  // namespace

bool Producer::stage(const RecordHeader& header, const void* bytes) noexcept {
    const std::uint64_t size = record_size(header.size);
    const std::uint64_t offset = staged_ & (data_.size() - 1);
    const std::uint64_t until_end = data_.size() - offset;
    const std::uint64_t begin = size <= until_end ? staged_ : staged_ + until_end;
    const std::uint64_t taken = begin + size - control_->read.load(std::memory_order_acquire);
    if (taken > data_.size()) return false;  // also where the consumer claims to have read what is not written yet
    if (begin != staged_) std::memcpy(data_.data() + offset, &go_to_start, sizeof go_to_start);
    std::byte* at = data_.data() + (begin & (data_.size() - 1));
    std::memcpy(at, &header, sizeof header);
    std::memcpy(at + sizeof header, bytes, header.size);
    staged_ = begin + size;
    return true;
}

void Producer::publish(std::uint64_t position) noexcept {
    staged_ = position;
    control_->written.store(position, std::memory_order_release);
}

void Producer::count(unsigned interface, const Counts& more) noexcept {
    SharedCounts& counts = control_->counts[interface];
    add(counts.seen, more.seen);
    add(counts.accepted, more.accepted);
    add(counts.dropped, more.dropped);
}

std::optional<Consumer::Record> Consumer::front() {
    const std::uint64_t written = control_->written.load(std::memory_order_acquire);
    while (read_ != written) {
        const std::uint64_t there = written - read_;
        const std::uint64_t offset = read_ & (data_.size() - 1);
        const std::uint64_t until_end = data_.size() - offset;
        RecordHeader header{};
        if (there > data_.size()) break;
        std::memcpy(&header.size, data_.data() + offset, sizeof header.size);
        if (header.size == go_to_start) {
            if (until_end > there) break;
            read_ += until_end;
            continue;
        }
        const std::uint64_t size = record_size(header.size);
        if (size > there || size > until_end) break;
        std::memcpy(&header, data_.data() + offset, sizeof header);
        if (header.interface >= most_interfaces || record_size(header.size) != size) break;
        next_ = read_ + size;
        return Record{header, data_.subspan(offset + sizeof header, header.size)};
    }
    if (read_ == written) return std::nullopt;
    throw std::runtime_error("the capture's ring holds what is no record");
}

void Consumer::pop() noexcept {
    read_ = next_;
    control_->read.store(read_, std::memory_order_release);
}

Counts Consumer::counts(unsigned interface) const noexcept {
    const SharedCounts& counts = control_->counts[interface];
    return {.seen = counts.seen.load(std::memory_order_relaxed),
            .accepted = counts.accepted.load(std::memory_order_relaxed),
            .dropped = counts.dropped.load(std::memory_order_relaxed)};
}

}  // namespace ovsdr::capture
