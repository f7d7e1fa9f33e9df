// Meters of a device: slots of FLOW_METER_ASO objects, two in each, which are made in bulks.
//
// Model. A Meter is one slot, handed out with its parameters written; an action names it by its object and its offset
// in that. change() writes others while packets go on being coloured: each packet meets the old ones or the new ones.
//
// Life cycle. Rules that use a Meter go before it. The bulk stays with the pool, for the next.
//
// Threads: any. Errors: those of CREATE_GENERAL_OBJECT and of AsoQueue; after a failed change() the device has the old
// parameters or the new ones.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "offload/dr/device/device.hpp"
#include "offload/meter/aso_queue.hpp"
#include "offload/meter/parameters.hpp"

namespace ovsdr::meter {

class MeterPool;

/// Move-only; empty by default and after a move.
class Meter {
public:
    Meter() noexcept = default;
    ~Meter();
    Meter(Meter&& other) noexcept;
    Meter& operator=(Meter&& other) noexcept;

    [[nodiscard]] explicit operator bool() const noexcept { return pool_ != nullptr; }
    [[nodiscard]] mlx5dv_devx_obj* bulk() const noexcept;
    [[nodiscard]] std::uint32_t offset() const noexcept { return slot_; }
    /// Of the object that it is a half of.
    [[nodiscard]] std::uint32_t object_number() const noexcept;
    /// With full buckets.
    [[nodiscard]] Result<void> change(const Parameters& parameters) noexcept;
    /// The buckets go on as they are.
    [[nodiscard]] Result<void> change_rate(Float rate) noexcept;

private:
    friend class MeterPool;
    Meter(MeterPool* pool, std::size_t bulk, std::uint32_t slot) noexcept : pool_(pool), bulk_(bulk), slot_(slot) {}

    MeterPool* pool_ = nullptr;
    std::size_t bulk_ = 0;
    std::uint32_t slot_ = 0;
};

class MeterPool {
public:
    static constexpr unsigned meters_of_object = 2;
    static constexpr unsigned log_length = 5;   ///< of a bulk, objects

    /// Asks nothing of the device yet.
    explicit MeterPool(std::shared_ptr<dr::Device> device) noexcept : device_(std::move(device)) {}
    /// All Meters are gone by now.
    ~MeterPool();
    MeterPool(const MeterPool&) = delete;
    MeterPool& operator=(const MeterPool&) = delete;

    [[nodiscard]] Result<Meter> acquire(const Parameters& parameters) noexcept;

private:
    friend class Meter;
    struct Bulk {
        mlx5dv_devx_obj* object;
        std::uint32_t first;       ///< number of its first object
        std::vector<bool> taken;   ///< by slot
    };
    [[nodiscard]] Result<Meter> free_slot();
    // With the mutex.
    [[nodiscard]] Result<void> add_bulk();
    /// Bytes of the parameters; bit 31 stands for byte 0.
    [[nodiscard]] Result<void> write(const Meter& meter, const Parameters& parameters, std::uint32_t bytes);

    void give_back(const Meter& meter) noexcept;

    std::shared_ptr<dr::Device> device_;
    std::mutex mutex_;
    std::unique_ptr<AsoQueue> queue_;   ///< made for the first write, and anew when it is broken
    std::vector<Bulk> bulks_;
};

}  // namespace ovsdr::meter
