// Vports that interfaces ask for and a device does not have: who tells OVS when they are there.
//
// OVS gives an interface up whose vport is missing, with the error that `ovs-vsctl show` shows, and opens it again
// only when it reconfigures its bridges. So each missing vport is remembered here, its device kept open for the sake
// of its events, and after an event or a minute somebody has OVS reconfigure. An interface that is still wanted then
// asks for its vport again; what nobody asks for again is forgotten, and its device is closed.
//
// Threads: any; one lock. A look at a vport is a command to the device.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ctrl/port.hpp"

namespace ovsdr::ctrl {

class MissingVports {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds asked_anew{60};    ///< devices need not tell of every vport
    static constexpr std::chrono::seconds time_to_answer{10};  ///< for OVS to reconfigure

    /// An interface asked for it, and it is not there.
    void add(std::shared_ptr<OpenDevice> device, dr::VportId vport, Clock::time_point now);
    /// It has been opened.
    void remove(const OpenDevice& device, dr::VportId vport) noexcept;

    /// The process ends: nobody will ask again.
    void forget_all() noexcept;

    /// Whether OVS is to reconfigure: one of them is there (`changed`: a device told of a change), or it is time to
    /// ask who still wants them. Forgets those that nobody has asked for since the last time.
    [[nodiscard]] bool check(bool changed, Clock::time_point now);
    /// When to check() again although nothing changes.
    [[nodiscard]] std::optional<Clock::time_point> next_check() const;

private:
    struct Missing {
        std::shared_ptr<OpenDevice> device;
        dr::VportId vport;
        Clock::time_point deadline;
        bool doubted = false;  ///< OVS was asked whether somebody still wants it
    };

    mutable std::mutex lock_;
    std::vector<Missing> list_;
};

/// Of this process. Never destroyed: the process may leave through exit().
[[nodiscard]] MissingVports& missing_vports();

}  // namespace ovsdr::ctrl
