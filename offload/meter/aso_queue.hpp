// Writes ASO objects of a device: a send queue of our own that takes ACCESS_ASO work requests and nothing else.
//
// The queue and its completion queue are DEVX objects over one page of our memory. One request at a time: write()
// returns when the device has done it. A queue of which a request failed takes none any more (broken()); the owner
// makes another one.
//
// Threads: the caller serialises. Errors: those of the DEVX commands; EIO with the device's syndrome for a request that
// failed, ETIMEDOUT for one that was not answered. Source: PRM CREATE_CQ, CREATE_SQ, ACCESS_ASO; mlx5_wqe_aso_ctrl_seg
// (the kernel's lib/aso.h), mlx5dv_devx_alloc_uar(3), mlx5dv_devx_umem_reg(3).
#pragma once

#include <infiniband/mlx5dv.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "offload/dr/device/device.hpp"

namespace ovsdr::meter {

/// As commands name it.
[[nodiscard]] Result<std::uint32_t> number_of(ibv_pd* pd) noexcept;

class AsoQueue {
public:
    static constexpr std::size_t object_size = 64;   ///< bytes
    using Image = std::array<std::uint8_t, object_size>;

    [[nodiscard]] static Result<std::unique_ptr<AsoQueue>> create(std::shared_ptr<dr::Device> device);
    ~AsoQueue();
    AsoQueue(const AsoQueue&) = delete;
    AsoQueue& operator=(const AsoQueue&) = delete;

    /// Replaces those bytes of flow meter object `number` that `bytes` selects; bit 63 stands for byte 0.
    [[nodiscard]] Result<void> write(std::uint32_t number, const Image& image, std::uint64_t bytes) noexcept;
    [[nodiscard]] bool broken() const noexcept { return broken_; }

private:
    explicit AsoQueue(std::shared_ptr<dr::Device> device) noexcept : device_(std::move(device)) {}
    struct Page;
    [[nodiscard]] Result<void> make_memory();
    [[nodiscard]] Result<void> make_completion_queue();
    [[nodiscard]] Result<void> make_send_queue();
    [[nodiscard]] Result<void> wait() noexcept;

    std::shared_ptr<dr::Device> device_;
    Page* page_ = nullptr;
    mlx5dv_devx_umem* umem_ = nullptr;
    mlx5dv_devx_uar* doorbell_ = nullptr;
    mlx5dv_devx_obj *completions_ = nullptr, *queue_ = nullptr;
    std::uint32_t completions_number_ = 0, queue_number_ = 0;
    std::uint16_t posted_ = 0;      ///< blocks
    std::uint32_t completed_ = 0;   ///< requests
    bool broken_ = false;
};

}  // namespace ovsdr::meter
