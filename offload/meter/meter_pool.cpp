#include "offload/meter/meter_pool.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "offload/dr/device/leak.hpp"
#include "offload/dr/device/prm.hpp"

namespace ovsdr::meter {

namespace {

namespace prm = dr::prm;

constexpr std::uint32_t create_general_object = 0xa00, flow_meter_aso = 0x24;
constexpr prm::Field opcode{0, 16}, object_type{48, 16}, log_range{99, 5}, access_pd{128 + 136, 24};
constexpr prm::Field object_number{64, 32};   // in the answer
constexpr std::size_t command_size = 144, answer_size = 16;   // bytes

}  // namespace

Meter::~Meter() {
    if (pool_ != nullptr) pool_->give_back(*this);
}

Meter::Meter(Meter&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), bulk_(other.bulk_), slot_(other.slot_) {}

Meter& Meter::operator=(Meter&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(bulk_, other.bulk_);
    std::swap(slot_, other.slot_);
    return *this;
}

mlx5dv_devx_obj* Meter::bulk() const noexcept {
    std::lock_guard lock(pool_->mutex_);
    return pool_->bulks_[bulk_].object;
}

std::uint32_t Meter::object_number() const noexcept {
    std::lock_guard lock(pool_->mutex_);
    return pool_->bulks_[bulk_].first + slot_ / MeterPool::meters_of_object;
}

Result<void> Meter::change(const Parameters& parameters) noexcept {
    std::lock_guard lock(pool_->mutex_);
    return pool_->write(*this, parameters, ~0U);
}

Result<void> Meter::change_rate(Float rate) noexcept {
    Parameters parameters{};
    const std::uint32_t bytes = put_rate(parameters, rate);
    std::lock_guard lock(pool_->mutex_);
    return pool_->write(*this, parameters, bytes);
}

MeterPool::~MeterPool() {
    for (const Bulk& bulk : bulks_) {
        dr::destroyed([&] { return mlx5dv_devx_obj_destroy(bulk.object); });
    }
}

Result<Meter> MeterPool::acquire(const Parameters& parameters) noexcept {
    auto meter = free_slot();
    if (!meter) return meter;
    if (auto written = meter->change(parameters); !written) return tl::unexpected(std::move(written.error()));
    return meter;
}

Result<Meter> MeterPool::free_slot() {
    std::lock_guard lock(mutex_);
    for (int attempt = 0; attempt < 2; ++attempt) {
        for (std::size_t i = 0; i < bulks_.size(); ++i) {
            auto& taken = bulks_[i].taken;
            const auto free = std::ranges::find(taken, false);
            if (free == taken.end()) continue;
            *free = true;
            return Meter(this, i, static_cast<std::uint32_t>(free - taken.begin()));
        }
        if (auto added = add_bulk(); !added) return tl::unexpected(std::move(added.error()));
    }
    return tl::unexpected(Error{ENOSPC, "no meter", "CREATE_GENERAL_OBJECT(FLOW_METER_ASO)"});
}

Result<void> MeterPool::add_bulk() {
    auto pd = number_of(device_->pd());
    if (!pd) return tl::unexpected(std::move(pd.error()));
    std::array<std::uint8_t, command_size> in{};
    std::array<std::uint8_t, answer_size> out{};
    prm::set(in.data(), opcode, create_general_object);
    prm::set(in.data(), object_type, flow_meter_aso);
    prm::set(in.data(), log_range, log_length);
    prm::set(in.data(), access_pd, *pd);
    mlx5dv_devx_obj* const object =
        mlx5dv_devx_obj_create(device_->context(), in.data(), in.size(), out.data(), out.size());
    if (object == nullptr) {
        return tl::unexpected(dr::devx_failure(errno, "CREATE_GENERAL_OBJECT(FLOW_METER_ASO)", out));
    }
    bulks_.push_back({object, prm::get(out.data(), object_number),
                      std::vector<bool>(std::size_t{meters_of_object} << log_length)});
    return {};
}

Result<void> MeterPool::write(const Meter& meter, const Parameters& parameters, std::uint32_t bytes) {
    if (queue_ == nullptr || queue_->broken()) {
        queue_.reset();
        auto made = AsoQueue::create(device_);
        if (!made) return tl::unexpected(std::move(made.error()));
        queue_ = std::move(*made);
    }
    const bool second = meter.slot_ % meters_of_object != 0;
    AsoQueue::Image image{};
    std::ranges::copy(parameters, image.begin() + (second ? parameters.size() : 0));
    return queue_->write(bulks_[meter.bulk_].first + meter.slot_ / meters_of_object, image,
                         second ? bytes : std::uint64_t{bytes} << 32);
}

void MeterPool::give_back(const Meter& meter) noexcept {
    std::lock_guard lock(mutex_);
    bulks_[meter.bulk_].taken[meter.slot_] = false;
}

}  // namespace ovsdr::meter
