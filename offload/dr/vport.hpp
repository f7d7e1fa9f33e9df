// What a function's owner may read and set of an eSwitch vport: MAC, MTU, state, counters; by DEVX commands.
//
// Threads: any. Errors: the command's errno; EREMOTEIO when the device refused, `what` says why; ENOENT of a query when
// the device has no such vport.
// Source: PRM QUERY/MODIFY_NIC_VPORT_CONTEXT, QUERY/MODIFY_VPORT_STATE, QUERY_VPORT_COUNTER; mlx5dv_query_port(3).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>

#include "offload/dr/eswitch.hpp"

namespace ovsdr::dr {

struct VportState {
    std::array<std::uint8_t, 6> mac;
    std::uint16_t mtu;   ///< payload bytes
    bool admin_up;
    bool link_up;
};

/// The vport owner's view: received is what the eSwitch delivered to it.
struct VportStats {
    std::uint64_t received_packets, received_bytes, sent_packets, sent_bytes;
    std::uint64_t receive_errors, send_errors;
};

[[nodiscard]] Result<VportState> query_vport(Eswitch& eswitch, VportId vport) noexcept;
[[nodiscard]] Result<VportStats> query_vport_stats(Eswitch& eswitch, VportId vport) noexcept;
[[nodiscard]] Result<void> set_vport_mac(Eswitch& eswitch, VportId vport,
                                         const std::array<std::uint8_t, 6>& mac) noexcept;
[[nodiscard]] Result<void> set_vport_mtu(Eswitch& eswitch, VportId vport, std::uint16_t mtu) noexcept;
[[nodiscard]] Result<void> set_vport_admin_state(Eswitch& eswitch, VportId vport, bool up) noexcept;

/// Watches for vport changes (asynchronous events of the device). The callback runs on a private thread that sleeps in
/// between; it ends when the watcher is destroyed, which the Eswitch outlives. One event may stand for several changes:
/// query again.
class VportWatcher {
public:
    [[nodiscard]] static Result<std::unique_ptr<VportWatcher>> start(Eswitch& eswitch, std::function<void()> changed);
    virtual ~VportWatcher() = default;
};

}  // namespace ovsdr::dr
