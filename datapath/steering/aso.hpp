// ASO objects (advanced steering operations): state that rules update packet by packet, in bulks.
//
// A bulk is 2^n objects of 64 bytes: two meters each (flow meter), 512 bits each (first hit: bit i is bit i % 8 of byte
// 63 - i / 8), or a TCP connection each (connection tracking). Actions name a meter, a bit or a connection by its
// offset in the bulk; ACCESS_ASO work requests read and write objects whole.
//
// What a rule gets goes into the low byte of a register: the colour of a meter, the bit as it was before the packet,
// the verdict on a segment.
//
// Links. Rules of another domain than its action's use a connection by a link of the whole bulk to that domain, one
// rule per connection at a time; direction and register are then the link's.
//
// Threads: meter(), hit() and connection() from any worker; the others from any thread.
// Source: flow_meter_aso, flow_hit_aso, conn_track_aso (PRM, as DPDK and Linux have them), dr_action.c and dr_ste_v1.c
// of rdma-core.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>

#include "datapath/steering/conn_track.hpp"
#include "datapath/steering/meter.hpp"

namespace ovsdr::soft {

class Domain;

/// What an action asks of an ASO object.
struct AsoUse {
    std::uint32_t offset = 0;         ///< meter, bit or connection
    std::uint8_t reg_c = 0;           ///< 1, 3 or 5
    bool set = false;                 ///< first hit: set the bit
    Colour colour = Colour::undefined;  ///< flow meter: what packets come in with; undefined: what the meter says
    ConnTrack::Direction direction = ConnTrack::Direction::initiator;
};

enum class AsoKind : std::uint8_t { first_hit, flow_meter, connection };

class AsoBulk {
public:
    static constexpr unsigned object_size = 64;  ///< bytes
    static constexpr unsigned meters_per_object = 2;
    static constexpr unsigned hits_per_object = 512;
    using Image = std::array<std::uint8_t, object_size>;

    /// 2^`log_length` objects, all 0. `owner`: whom rules must belong to as well (the verbs front's ibv_context).
    /// Throws std::bad_alloc.
    AsoBulk(AsoKind kind, unsigned log_length, const void* owner);

    [[nodiscard]] AsoKind kind() const noexcept { return kind_; }
    [[nodiscard]] const void* owner() const noexcept { return owner_; }
    [[nodiscard]] unsigned length() const noexcept { return length_; }  ///< objects

    /// `offset` below length() * meters_per_object.
    [[nodiscard]] Meter& meter(unsigned offset) noexcept { return meters_[offset]; }

    /// The bit as it was; sets it if `set`. `offset` below length() * hits_per_object.
    [[nodiscard]] bool hit(unsigned offset, bool set) noexcept {
        std::atomic<std::uint64_t>& word = hits_[offset / 64];
        const std::uint64_t bit = 1ULL << offset % 64;
        const bool was = (word.load(std::memory_order_relaxed) & bit) != 0;
        if (was || !set) return was;
        return (word.fetch_or(bit, std::memory_order_relaxed) & bit) != 0;
    }

    /// `offset` below length().
    [[nodiscard]] ConnTrack& connection(unsigned offset) noexcept { return connections_[offset]; }

    /// Direction and register of rules of `domain`, by the flags of actions. EINVAL: no such direction or register. A
    /// link replaces the one before it.
    [[nodiscard]] int link(const Domain& domain, std::uint32_t flags, std::uint8_t reg_c) noexcept;
    /// EINVAL: there is no link. EBUSY: a rule uses it.
    [[nodiscard]] int unlink() noexcept;
    [[nodiscard]] bool linked() noexcept;

    /// A rule's hold on a linked connection. `use` becomes the link's. EINVAL: not linked to `domain`. EBUSY: another
    /// rule has it.
    [[nodiscard]] int take_link(const Domain& domain, AsoUse& use);
    void leave_link(std::uint32_t offset) noexcept;

    /// Returns object `index` as it is and replaces the bytes that `bytes` selects: bit 63 stands for byte 0.
    Image exchange(unsigned index, const Image& image, std::uint64_t bytes) noexcept;
    [[nodiscard]] Image read(unsigned index) noexcept { return exchange(index, {}, 0); }

private:
    [[nodiscard]] Image exchange_hits(unsigned index, const Image& image, std::uint64_t bytes) noexcept;
    [[nodiscard]] Image exchange_meters(unsigned index, const Image& image, std::uint64_t bytes) noexcept;

    AsoKind kind_;
    unsigned length_;
    const void* owner_;
    std::mutex mutex_;
    std::unique_ptr<Meter[]> meters_;
    std::unique_ptr<std::atomic<std::uint64_t>[]> hits_;
    std::unique_ptr<ConnTrack[]> connections_;
    const Domain* linked_to_ = nullptr;
    AsoUse link_{};
    std::set<std::uint32_t> link_users_;  // offsets
};

/// Checks and translates an action's arguments. `flags` are MLX5DV_DR_ACTION_FLAGS_ASO_*. EINVAL: a flag that the kind
/// lacks, an offset past the bulk, a register other than 1, 3, 5.
[[nodiscard]] int make_aso_use(const AsoBulk& bulk, std::uint32_t offset, std::uint32_t flags, std::uint8_t reg_c,
                               AsoUse& use) noexcept;

}  // namespace ovsdr::soft
