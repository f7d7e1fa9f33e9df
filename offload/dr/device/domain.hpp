// A Direct Rules domain: one of the three pipelines of a device.
//
// Owns the provider's domain; shared by the Tables and Actions in it, and destroyed with the last of them.
// Threads: any. Errors: errno of mlx5dv_dr_domain_create(). Source: mlx5dv_dr_flow(3), "Domain".
#pragma once

#include <infiniband/mlx5dv.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "offload/dr/device/device.hpp"
#include "offload/dr/result.hpp"

namespace ovsdr::dr {

enum class DomainType { nic_rx, nic_tx, fdb };

/// "FDB", "NIC_RX", "NIC_TX".
[[nodiscard]] const char* name_of(DomainType type) noexcept;

class Domain {
public:
    [[nodiscard]] static Result<std::shared_ptr<Domain>> create(std::shared_ptr<Device> device,
                                                                DomainType type) noexcept;
    ~Domain();
    Domain(const Domain&) = delete;
    Domain& operator=(const Domain&) = delete;

    [[nodiscard]] mlx5dv_dr_domain* get() const noexcept { return domain_; }
    [[nodiscard]] DomainType type() const noexcept { return type_; }

    /// Waits until every rule change made so far is in the device's memory: what comes next happens after it.
    [[nodiscard]] Result<void> wait_written() noexcept;

    /// wait_written(), and no packet is still under way on rules that were gone before the call. Callers at the same
    /// time share one command to the device.
    [[nodiscard]] Result<void> drain() noexcept;

private:
    Domain(std::shared_ptr<Device> device, mlx5dv_dr_domain* domain, DomainType type) noexcept;
    [[nodiscard]] Result<void> sync(std::uint32_t flags) noexcept;

    std::shared_ptr<Device> device_;
    mlx5dv_dr_domain* domain_;
    DomainType type_;

    std::mutex drain_mutex_;
    std::condition_variable drained_;
    std::uint64_t drains_started_ = 0, drains_finished_ = 0;
    bool draining_ = false;
    Result<void> last_drain_;
};

}  // namespace ovsdr::dr
