// What a function's owner may read and set of an eSwitch vport: MAC, MTU, state, counters; by DEVX commands.
//
// Linux lets a process read a vport and keeps to itself the commands that change one (mlx5_ib's devx_is_general_cmd()):
// on a card under Linux the kernel's own tools set MAC, MTU and state, and what is set here is EOPNOTSUPP.
//
// Of a plain function there is vport 0, itself. Its administrative state is its rules': down, they drop what comes in
// and what is sent (nic/plain_function.hpp).
//
// Threads: any. Errors: the command's errno; EREMOTEIO when the device refused, `what` says why; ENOENT of a query when
// the device has no such vport; EOPNOTSUPP of a change that the kernel does not pass on, `what` says what to do
// instead.
// Source: PRM QUERY/MODIFY_NIC_VPORT_CONTEXT, QUERY/MODIFY_VPORT_STATE, QUERY_VPORT_COUNTER; mlx5dv_query_port(3).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

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

/// Says when it is time to query vports: after an event of the device, and now and then without one. For devices need
/// not tell of every change: Linux may refuse a type of event, and it has the firmware tell of addresses only, not of a
/// state that a representor sets.
///
/// The callback runs on a private thread that sleeps in between; it ends when the watcher is destroyed, which the
/// Eswitch outlives. One call may stand for several changes, or for none.
class VportWatcher {
public:
    /// Time without an event after which the callback is called all the same.
    struct Patience {
        std::chrono::milliseconds with_events = std::chrono::seconds(10);
        std::chrono::milliseconds without = std::chrono::seconds(1);   ///< the device gives not all events
    };
    /// Events that the device does not give are no error. Errors: errno of eventfd(2).
    [[nodiscard]] static Result<std::unique_ptr<VportWatcher>> start(Eswitch& eswitch, std::function<void()> changed,
                                                                     Patience patience);
    [[nodiscard]] static Result<std::unique_ptr<VportWatcher>> start(Eswitch& eswitch, std::function<void()> changed) {
        return start(eswitch, std::move(changed), Patience{});
    }
    virtual ~VportWatcher() = default;

    /// Which events the device does not give, why, and what follows, for people; empty: it gives all.
    [[nodiscard]] virtual const std::string& missing_events() const noexcept = 0;
    /// The device was taken out, or is being reset: this context of it answers nothing any more. The callback is called
    /// once behind that, and never again. Any thread.
    [[nodiscard]] virtual bool device_has_gone() const noexcept = 0;
};

}  // namespace ovsdr::dr
