#include "offload/dr/device/counter_bulk.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

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

struct CounterBulk::Object {
    explicit Object(std::shared_ptr<Device> owner) noexcept : device(std::move(owner)) {}
    ~Object() {
        if (object != nullptr) destroyed([this] { return mlx5dv_devx_obj_destroy(object); });
    }
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;

    std::shared_ptr<Device> device;
    mlx5dv_devx_obj* object = nullptr;
};

Result<std::unique_ptr<CounterBulk>> CounterBulk::create(std::shared_ptr<Device> device, unsigned bulk_log,
                                                         std::size_t number) {
    std::array<std::uint8_t, 16> in{}, out{};
    const bool single = bulk_log == single_counter;
    prm::set(in.data(), opcode, alloc_flow_counter);
    if (!single) prm::set(in.data(), flow_counter_bulk, 1U << bulk_log);
    const std::uint32_t length = single ? 1 : counters_per_unit << bulk_log;
    std::unique_ptr<CounterBulk> bulk(new CounterBulk(std::make_shared<Object>(device), length, number));
    mlx5dv_devx_obj* made = mlx5dv_devx_obj_create(device->context(), in.data(), in.size(), out.data(), out.size());
    if (made == nullptr) return tl::unexpected(devx_failure(errno, "ALLOC_FLOW_COUNTER", out));
    bulk->object_->object = made;
    bulk->first_id_ = prm::get(out.data(), allocated_id);
    return bulk;
}

// Reading must not need memory, since it cannot be put off: the answer has its room from the start.
CounterBulk::CounterBulk(std::shared_ptr<Object> object, std::uint32_t length, std::size_t number)
    : object_(std::move(object)), length_(length), number_(number), slots_(length),
      answer_(answer_header + length * answer_per_counter) {}

Result<std::uint32_t> CounterBulk::take(std::int16_t bytes_uncounted) {
    std::lock_guard lock(mutex_);
    while (search_from_ < length_ && slots_[search_from_].taken) ++search_from_;
    if (search_from_ == length_) return length_;
    Slot& slot = slots_[search_from_];
    if (slot.action == nullptr) {
        auto action = Action::count(object_->object, search_from_, object_);
        if (!action) return tl::unexpected(std::move(action.error()));
        slot.action = std::move(*action);
    }
    if (slot.unsettled) {
        if (auto read = refresh_locked(search_from_ + 1); !read) return tl::unexpected(std::move(read.error()));
    }
    slot.first_packets = slot.packets;
    slot.first_bytes = slot.bytes;
    slot.used_ms = 0;
    slot.unsettled = true;
    slot.bytes_uncounted = bytes_uncounted;
    slot.taken = true;
    ++taken_;
    return search_from_;
}

Result<void> CounterBulk::give_back(std::span<const Leaving> leaving) noexcept {
    std::lock_guard lock(mutex_);
    for (const Leaving& one : leaving) __builtin_prefetch(&slots_[one.slot], 1);
    // Twice: this is the last chance to read them.
    auto read = query_locked(leaving.back().slot + 1);
    if (!read) read = query_locked(leaving.back().slot + 1);
    const std::int64_t now = now_ms();
    for (const Leaving& one : leaving) {
        Slot& slot = slots_[one.slot];
        if (read) {
            take_answer(one.slot, now);
            slot.unsettled = false;
        }
        *one.counted = free_locked(slot);
    }
    search_from_ = std::min(search_from_, leaving.front().slot);
    return read;
}

FlowStats CounterBulk::give_back(std::uint32_t index) noexcept {
    std::lock_guard lock(mutex_);
    search_from_ = std::min(search_from_, index);
    return free_locked(slots_[index]);
}

void CounterBulk::withhold(std::uint32_t slot) noexcept {
    std::lock_guard lock(mutex_);
    slots_[slot].withheld = true;
}

FlowStats CounterBulk::free_locked(Slot& slot) noexcept {
    const FlowStats final = stats_of(slot);
    gone_.packets += final.packets;
    gone_.bytes += final.bytes;
    slot.first_packets = slot.packets;
    slot.first_bytes = slot.bytes;
    if (slot.withheld) return final;
    slot.taken = false;
    --taken_;
    return final;
}

FlowStats CounterBulk::stats_of(const Slot& slot) const noexcept {
    const std::uint64_t packets = slot.packets - slot.first_packets;
    const auto uncounted = static_cast<std::uint64_t>(slot.bytes_uncounted);   // less than 0: modulo 2^64
    return {packets, slot.bytes - slot.first_bytes + packets * uncounted, slot.used_ms};
}

ActionRef CounterBulk::action(std::uint32_t slot) const noexcept {
    std::lock_guard lock(mutex_);
    return slots_[slot].action;
}

FlowStats CounterBulk::read(std::uint32_t slot) const noexcept {
    std::lock_guard lock(mutex_);
    return stats_of(slots_[slot]);
}

bool CounterBulk::has_room() const noexcept {
    std::lock_guard lock(mutex_);
    return taken_ < length_;
}

FlowStats CounterBulk::total() const noexcept {
    std::lock_guard lock(mutex_);
    FlowStats sum = gone_;
    for (const Slot& slot : slots_) {
        if (!slot.taken) continue;
        const FlowStats stats = stats_of(slot);
        sum.packets += stats.packets;
        sum.bytes += stats.bytes;
    }
    return sum;
}

Result<void> CounterBulk::settle(std::uint32_t slot) noexcept {
    std::lock_guard lock(mutex_);
    auto read = query_locked(slot + 1);
    if (!read) return read;
    take_answer(slot, now_ms());
    slots_[slot].unsettled = false;
    return {};
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
    if (taken_ == 0) return {};
    std::uint32_t count = length_;
    while (count > 0 && !slots_[count - 1].taken) --count;
    refreshed_ms_ = now_ms();
    return refresh_locked(count);
}

Result<void> CounterBulk::refresh_locked(std::uint32_t count) noexcept {
    auto read = query_locked(count);
    if (!read) return read;
    const std::int64_t now = now_ms();
    for (std::uint32_t slot = 0; slot < count; ++slot) take_answer(slot, now);
    return {};
}

Result<void> CounterBulk::query_locked(std::uint32_t count) noexcept {
    // DEVX lets a query name the object's own id only: what is asked for always begins at slot 0.
    std::array<std::uint8_t, 32> in{};
    prm::set(in.data(), opcode, query_flow_counter);
    prm::set(in.data(), flow_counter_id, first_id_);
    if (length_ > 1) {
        count = std::min(length_, (count + query_multiple - 1) / query_multiple * query_multiple);
        prm::set(in.data(), num_of_counters, count);
    }
    const std::size_t size = answer_header + count * answer_per_counter;
    const int code = mlx5dv_devx_obj_query(object_->object, in.data(), in.size(), answer_.data(), size);
    if (code != 0) return tl::unexpected(devx_failure(code < 0 ? errno : code, "QUERY_FLOW_COUNTER", answer_));
    return {};
}

void CounterBulk::take_answer(std::uint32_t index, std::int64_t now) noexcept {
    Slot& slot = slots_[index];
    const auto position = static_cast<unsigned>(answer_header + index * answer_per_counter);
    const std::uint64_t packets = prm::get64(answer_.data(), position);
    if (packets != slot.packets) slot.used_ms = now;
    slot.packets = packets;
    slot.bytes = prm::get64(answer_.data(), position + 8);
}

}  // namespace ovsdr::dr
