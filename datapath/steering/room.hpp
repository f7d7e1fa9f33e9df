// How many objects of each kind a device has room for, and how many there are.
//
// Model. A card's firmware has numbers for so many tables, counters, meters, reformats and arrays, and its memory
// holds so many rules, matchers and lists of header changes. The soft NIC's memory is the process's: it has no bounds
// of its own, so they are given to it (`limits` in the configuration, `drnic limits`). What does not fit is refused
// with the errno that libmlx5 has for it: ENOMEM, for a firmware that says "limits exceeded" and for device memory
// that is used up.
//
// A limit below what there is takes nothing away; nothing new fits then.
//
// Threads: any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace ovsdr::soft {

class Steering;

enum class Resource : std::uint8_t {
    flow_counters,    ///< counters, not bulks
    tables,           ///< but for root tables, which are there anyway
    matchers,
    rules,
    modify_headers,
    reformats,
    dest_arrays,      ///< what a flow of verbs leads to is one, too
    samplers,
    meters,           ///< ASO meters, of which an object has two, not objects; and legacy meters
};
inline constexpr std::array<std::string_view, 9> resource_names{
    "flow_counters", "tables",      "matchers", "rules", "modify_headers",
    "reformats",     "dest_arrays", "samplers", "meters"};

/// By Resource.
using Limits = std::array<std::optional<std::uint32_t>, resource_names.size()>;

class Room {
public:
    /// Room for objects of one kind, given back when destroyed. Move-only, empty by default. The Room outlives it.
    class Share {
    public:
        Share() noexcept = default;
        ~Share() {
            if (room_ != nullptr) room_->give_back(resource_, length_);
        }
        Share(Share&& other) noexcept
            : room_(std::exchange(other.room_, nullptr)), length_(other.length_), resource_(other.resource_) {}
        Share& operator=(Share&& other) noexcept {
            std::swap(room_, other.room_);
            std::swap(length_, other.length_);
            std::swap(resource_, other.resource_);
            return *this;
        }
        [[nodiscard]] explicit operator bool() const noexcept { return room_ != nullptr; }
        /// Whoever calls this gives it back by Room::give_back().
        void keep() noexcept { room_ = nullptr; }

    private:
        friend class Room;
        Share(Room* room, Resource resource, std::uint32_t length) noexcept
            : room_(room), length_(length), resource_(resource) {}
        Room* room_ = nullptr;
        std::uint32_t length_ = 0;
        Resource resource_{};
    };

    /// Empty where there is no room.
    [[nodiscard]] Share take(Resource resource, std::uint32_t length = 1) noexcept {
        Kind& kind = of(resource);
        if (kind.taken.fetch_add(length, std::memory_order_relaxed) + length <=
            kind.most.load(std::memory_order_relaxed)) {
            return {this, resource, length};
        }
        give_back(resource, length);
        return {};
    }
    void give_back(Resource resource, std::uint32_t length = 1) noexcept {
        of(resource).taken.fetch_sub(length, std::memory_order_relaxed);
    }

    /// Nothing: as many as memory holds.
    void limit(Resource resource, std::optional<std::uint32_t> most) noexcept {
        of(resource).most.store(most ? *most : unlimited, std::memory_order_relaxed);
    }
    void limit(const Limits& limits) noexcept {
        for (std::size_t i = 0; i < limits.size(); ++i) limit(static_cast<Resource>(i), limits[i]);
    }
    [[nodiscard]] std::optional<std::uint32_t> most(Resource resource) const noexcept {
        const std::uint64_t most = of(resource).most.load(std::memory_order_relaxed);
        return most == unlimited ? std::nullopt : std::optional(static_cast<std::uint32_t>(most));
    }
    [[nodiscard]] std::uint64_t taken(Resource resource) const noexcept {
        return of(resource).taken.load(std::memory_order_relaxed);
    }

private:
    static constexpr std::uint64_t unlimited = UINT64_MAX;
    struct Kind {
        std::atomic<std::uint64_t> taken{0}, most{unlimited};
    };
    [[nodiscard]] Kind& of(Resource resource) noexcept { return kinds_[static_cast<std::size_t>(resource)]; }
    [[nodiscard]] const Kind& of(Resource resource) const noexcept {
        return kinds_[static_cast<std::size_t>(resource)];
    }
    std::array<Kind, resource_names.size()> kinds_;
};

/// The device's; without limits at first.
[[nodiscard]] Room& room_of(Steering& steering) noexcept;

}  // namespace ovsdr::soft
