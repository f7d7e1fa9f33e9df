#include "offload/dr/device/counter_bulk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <ctime>
#include <memory>
#include <type_traits>

#include "offload/dr/device/leak.hpp"
#include "offload/dr/device/prm.hpp"

namespace ovsdr::dr {

namespace {

constexpr std::uint16_t alloc_flow_counter = 0x939, query_flow_counter = 0x93b;
constexpr prm::Field opcode{0, 16};
constexpr prm::Field flow_counter_bulk{120, 8};                       // in alloc_flow_counter_in
constexpr prm::Field allocated_id{64, 32};                            // in alloc_flow_counter_out
constexpr prm::Field num_of_counters{208, 16}, flow_counter_id{224, 32};   // in query_flow_counter_in
constexpr std::uint32_t counters_per_unit = 128;
constexpr std::size_t answer_header = 16, answer_per_counter = 16;    // bytes: packets, then octets
constexpr std::uint32_t query_multiple = 4;                           // of a bulk's counters at a time

std::int64_t now_ms() noexcept {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

}  // namespace

/// On the stack, where it has room: reading must not need memory, since it cannot be put off.
class CounterBulk::Answer {
public:
    explicit Answer(std::span<std::uint8_t> instead) noexcept
        : bytes_(instead.empty() ? std::span<std::uint8_t>(here_) : instead) {
        std::ranges::fill(bytes_.first(answer_header), 0);   // who refuses may leave it as it is
    }

    static constexpr std::uint32_t counters_here = 512;   ///< what a bulk usually has

    [[nodiscard]] std::span<std::uint8_t> bytes(std::uint32_t counters) noexcept {
        return bytes_.first(answer_header + counters * answer_per_counter);
    }
    [[nodiscard]] std::uint64_t packets(std::uint32_t slot) const noexcept {
        return prm::get64(bytes_.data(), at(slot));
    }
    [[nodiscard]] std::uint64_t octets(std::uint32_t slot) const noexcept {
        return prm::get64(bytes_.data(), at(slot) + 8);
    }

private:
    static unsigned at(std::uint32_t slot) noexcept {
        return static_cast<unsigned>(answer_header + slot * answer_per_counter);
    }
    std::array<std::uint8_t, answer_header + counters_here * answer_per_counter> here_;
    std::span<std::uint8_t> bytes_;
};

Result<std::unique_ptr<CounterBulk>> CounterBulk::create(std::shared_ptr<Device> device, unsigned bulk_log) {
    std::array<std::uint8_t, 16> in{}, out{};
    const bool single = bulk_log == single_counter;
    prm::set(in.data(), opcode, alloc_flow_counter);
    if (!single) prm::set(in.data(), flow_counter_bulk, 1U << bulk_log);
    const std::uint32_t length = single ? 1 : counters_per_unit << bulk_log;
    std::unique_ptr<CounterBulk> bulk(new (length) CounterBulk(device, length));
    bulk->object_ = mlx5dv_devx_obj_create(device->context(), in.data(), in.size(), out.data(), out.size());
    if (bulk->object_ == nullptr) return tl::unexpected(devx_failure(errno, "ALLOC_FLOW_COUNTER", out));
    bulk->first_id_ = prm::get(out.data(), allocated_id);
    return bulk;
}

CounterBulk::CounterBulk(std::shared_ptr<Device> device, std::uint32_t length)
    : device_(std::move(device)), length_(length), free_((length + 63) / 64) {
    static_assert(std::is_trivially_destructible_v<Slot>);
    std::uninitialized_value_construct_n(slots(), length);
    for (std::uint32_t slot = 0; slot < length; ++slot) free_[slot / 64] |= std::uint64_t{1} << slot % 64;
    if (length > Answer::counters_here) long_answer_.resize(answer_header + length * answer_per_counter);
}

CounterBulk::~CounterBulk() {
    for (const Slot& slot : std::span(slots(), length_)) {
        if (slot.action != nullptr) destroyed([&] { return mlx5dv_dr_action_destroy(slot.action); });
    }
    if (object_ != nullptr) destroyed([this] { return mlx5dv_devx_obj_destroy(object_); });
}

/// `length_` when there is none.
std::uint32_t CounterBulk::first_free() noexcept {
    for (; search_from_ < free_.size(); ++search_from_) {
        if (const std::uint64_t word = free_[search_from_]; word != 0) {
            return search_from_ * 64 + static_cast<std::uint32_t>(std::countr_zero(word));
        }
    }
    return length_;
}

void CounterBulk::set_free(std::uint32_t slot) noexcept {
    free_[slot / 64] |= std::uint64_t{1} << slot % 64;
    search_from_ = std::min(search_from_, slot / 64);
    taken_.fetch_sub(1, std::memory_order_relaxed);
}

Result<std::uint32_t> CounterBulk::take(std::int16_t bytes_uncounted, bool in_total) {
    std::lock_guard lock(mutex_);
    const std::uint32_t index = first_free();
    if (index == length_) return length_;
    Slot& slot = slots()[index];
    if (slot.action == nullptr) {
        slot.action = mlx5dv_dr_action_create_flow_counter(object_, index);
        if (slot.action == nullptr) return tl::unexpected(failure(errno, "mlx5dv_dr_action_create_flow_counter"));
    }
    if (slot.unsettled) {
        if (auto read = refresh_locked(index + 1); !read) return tl::unexpected(std::move(read.error()));
    }
    slot.first_packets = slot.packets;
    slot.first_bytes = slot.bytes;
    slot.used_ms = 0;
    slot.unsettled = true;
    slot.bytes_uncounted = bytes_uncounted;
    slot.in_total = in_total;
    free_[index / 64] &= ~(std::uint64_t{1} << index % 64);
    taken_.fetch_add(1, std::memory_order_relaxed);
    return index;
}

Result<void> CounterBulk::give_back(std::span<const Leaving> leaving) noexcept {
    std::lock_guard lock(mutex_);
    for (const Leaving& one : leaving) __builtin_prefetch(&slots()[one.slot], 1);
    Answer answer(long_answer_);
    // Twice: this is the last chance to read them.
    auto read = query_locked(leaving.back().slot + 1, answer);
    if (!read) read = query_locked(leaving.back().slot + 1, answer);
    const std::int64_t now = now_ms();
    for (const Leaving& one : leaving) {
        if (read) {
            take_answer(one.slot, answer, now);
            slots()[one.slot].unsettled = false;
        }
        *one.counted = free_locked(one.slot);
    }
    return read;
}

FlowStats CounterBulk::give_back(std::uint32_t index) noexcept {
    std::lock_guard lock(mutex_);
    return free_locked(index);
}

void CounterBulk::withhold(std::uint32_t slot) noexcept {
    std::lock_guard lock(mutex_);
    slots()[slot].withheld = true;
}

FlowStats CounterBulk::free_locked(std::uint32_t index) noexcept {
    Slot& slot = slots()[index];
    const FlowStats final = stats_of(slot);
    if (slot.in_total) {
        gone_.packets += final.packets;
        gone_.bytes += final.bytes;
    }
    slot.first_packets = slot.packets;
    slot.first_bytes = slot.bytes;
    if (!slot.withheld) set_free(index);
    return final;
}

FlowStats CounterBulk::stats_of(const Slot& slot) const noexcept {
    const std::uint64_t packets = slot.packets - slot.first_packets;
    const auto uncounted = static_cast<std::uint64_t>(slot.bytes_uncounted);   // less than 0: modulo 2^64
    return {packets, slot.bytes - slot.first_bytes + packets * uncounted, slot.used_ms};
}

FlowStats CounterBulk::read(std::uint32_t slot) const noexcept {
    std::lock_guard lock(mutex_);
    return stats_of(slots()[slot]);
}

FlowStats CounterBulk::total() const noexcept {
    std::lock_guard lock(mutex_);
    FlowStats sum = gone_;
    for (std::uint32_t slot = 0; slot < length_; ++slot) {
        if (!is_taken(slot) || !slots()[slot].in_total) continue;
        const FlowStats stats = stats_of(slots()[slot]);
        sum.packets += stats.packets;
        sum.bytes += stats.bytes;
    }
    return sum;
}

Result<void> CounterBulk::read_now(std::uint32_t slot) noexcept {
    std::lock_guard lock(mutex_);
    return refresh_locked(slot + 1);
}

Result<void> CounterBulk::refresh() noexcept {
    std::lock_guard lock(mutex_);
    return refresh_used_locked();
}

Result<void> CounterBulk::refresh_if_older(std::chrono::milliseconds age) noexcept {
    std::lock_guard lock(mutex_);
    if (now_ms() - refreshed_ms_ < age.count()) return {};
    return refresh_used_locked();
}

Result<void> CounterBulk::refresh_used_locked() noexcept {
    if (taken_.load(std::memory_order_relaxed) == 0) return {};
    std::uint32_t count = length_;
    while (!is_taken(count - 1)) --count;
    refreshed_ms_ = now_ms();
    return refresh_locked(count);
}

Result<void> CounterBulk::refresh_locked(std::uint32_t count) noexcept {
    Answer answer(long_answer_);
    auto read = query_locked(count, answer);
    if (!read) return read;
    const std::int64_t now = now_ms();
    for (std::uint32_t slot = 0; slot < count; ++slot) take_answer(slot, answer, now);
    return {};
}

Result<void> CounterBulk::query_locked(std::uint32_t count, Answer& answer) noexcept {
    // DEVX lets a query name the object's own id only: what is asked for always begins at slot 0.
    std::array<std::uint8_t, 32> in{};
    prm::set(in.data(), opcode, query_flow_counter);
    prm::set(in.data(), flow_counter_id, first_id_);
    if (length_ > 1) {
        count = std::min(length_, (count + query_multiple - 1) / query_multiple * query_multiple);
        prm::set(in.data(), num_of_counters, count);
    }
    const std::span<std::uint8_t> out = answer.bytes(count);
    const int code = mlx5dv_devx_obj_query(object_, in.data(), in.size(), out.data(), out.size());
    if (code != 0) return tl::unexpected(devx_failure(code < 0 ? errno : code, "QUERY_FLOW_COUNTER", out));
    return {};
}

void CounterBulk::take_answer(std::uint32_t index, const Answer& answer, std::int64_t now) noexcept {
    Slot& slot = slots()[index];
    const std::uint64_t packets = answer.packets(index);
    if (packets != slot.packets) slot.used_ms = now;
    slot.packets = packets;
    slot.bytes = answer.octets(index);
}

}  // namespace ovsdr::dr
