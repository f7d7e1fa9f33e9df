#include "offload/dr/device/domain.hpp"

#include <cerrno>

#include "offload/dr/device/leak.hpp"

namespace ovsdr::dr {

namespace {

mlx5dv_dr_domain_type provider_type(DomainType type) noexcept {
    switch (type) {
        case DomainType::nic_rx: return MLX5DV_DR_DOMAIN_TYPE_NIC_RX;
        case DomainType::nic_tx: return MLX5DV_DR_DOMAIN_TYPE_NIC_TX;
        case DomainType::fdb: break;
    }
    return MLX5DV_DR_DOMAIN_TYPE_FDB;
}

}  // namespace

const char* name_of(DomainType type) noexcept {
    switch (type) {
        case DomainType::nic_rx: return "NIC_RX";
        case DomainType::nic_tx: return "NIC_TX";
        case DomainType::fdb: break;
    }
    return "FDB";
}

Result<std::shared_ptr<Domain>> Domain::create(std::shared_ptr<Device> device, DomainType type) noexcept {
    mlx5dv_dr_domain* domain = mlx5dv_dr_domain_create(device->context(), provider_type(type));
    if (domain == nullptr) {
        return tl::unexpected(failure(errno, "mlx5dv_dr_domain_create", name_of(type)));
    }
    return std::shared_ptr<Domain>(new Domain(std::move(device), domain, type));
}

Domain::Domain(std::shared_ptr<Device> device, mlx5dv_dr_domain* domain, DomainType type) noexcept
    : device_(std::move(device)), domain_(domain), type_(type) {}

Domain::~Domain() { destroyed([this] { return mlx5dv_dr_domain_destroy(domain_); }); }

/// Asked a second time when it fails: counters are exact only after it.
Result<void> Domain::sync(std::uint32_t flags) noexcept {
    int code = mlx5dv_dr_domain_sync(domain_, flags);
    if (code != 0) code = mlx5dv_dr_domain_sync(domain_, flags);
    if (code != 0) return tl::unexpected(failure(code, "mlx5dv_dr_domain_sync", name_of(type_)));
    return {};
}

Result<void> Domain::wait_written() noexcept { return sync(MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW); }

Result<void> Domain::drain() noexcept {
    std::unique_lock lock(drain_mutex_);
    // A command that is under way may have begun before our rule went: only the next one will do.
    const std::uint64_t mine = drains_started_ + 1;
    while (drains_finished_ < mine) {
        if (draining_) {
            drained_.wait(lock);
            continue;
        }
        draining_ = true;
        const std::uint64_t started = ++drains_started_;
        lock.unlock();
        Result<void> result = sync(MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW | MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW);
        lock.lock();
        last_drain_ = std::move(result);
        drains_finished_ = started;
        draining_ = false;
        drained_.notify_all();
    }
    return last_drain_;
}

}  // namespace ovsdr::dr
