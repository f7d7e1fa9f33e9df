// An open device: its verbs context with DEVX, a protection domain, and the vports that its IB ports stand for.
//
// Life cycle. open() finds the device by name; the last owner closes it. Everything else in offload/ that touches the
// device holds a reference, so that the context goes last.
//
// Threads: any. Errors: ENODEV (naming the devices there are), the errno of the call that failed, EREMOTEIO with status
// and syndrome when the device refused a command. Source: mlx5dv_open_device(3), mlx5dv_query_port(3),
// mlx5dv_devx_obj_create(3).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "offload/dr/ids.hpp"
#include "offload/dr/result.hpp"

namespace ovsdr::dr {

inline constexpr VportId uplink_vport{0xFFFF};

/// An Error out of errno (or a positive return), the call's name and what it was called on; a call that failed without
/// an errno is EIO.
[[nodiscard]] Error failure(int code, StaticName call, std::string_view object = {});

class Device {
public:
    [[nodiscard]] static Result<std::shared_ptr<Device>> open(std::string_view name) noexcept;
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] ibv_context* context() const noexcept { return context_; }
    [[nodiscard]] ibv_pd* pd() const noexcept { return pd_; }

    /// What the device writes into the vport bits of reg_c_0 for packets from a vport.
    struct VportRegister {
        std::uint32_t value;
        std::uint32_t mask;
    };
    /// Asked of the device each time, since vports come and go. ENOENT: the device has no such vport.
    [[nodiscard]] Result<VportRegister> vport_register(VportId vport) const;   ///< may throw std::bad_alloc

    /// A DEVX command. `call` names it for errors. Shapes: device structures, big endian.
    [[nodiscard]] Result<void> command(StaticName call, std::span<const std::uint8_t> in,
                                       std::span<std::uint8_t> out) const noexcept;

private:
    Device(std::string name, ibv_context* context) noexcept;

    std::string name_;
    ibv_context* context_;
    ibv_pd* pd_ = nullptr;
};

/// The Error of a DEVX call: errno, and the status and syndrome in `out` when the device refused.
[[nodiscard]] Error devx_failure(int code, StaticName call, std::span<const std::uint8_t> out,
                                 std::string_view object = {});

}  // namespace ovsdr::dr
