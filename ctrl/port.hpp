// What ctrl/'s own files know of an open port; C sees port.h.
//
// All open ports are in one list, for reports. The list holds no reference: a port leaves it before it is destroyed,
// and whoever walks the list holds its lock.
#pragma once

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "ctrl/port.h"
#include "ctrl/copies.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/vport.hpp"
#include "offload/slowpath/attached_port.hpp"

namespace ovsdr::ctrl {

/// The name of a device, taken from before it is opened until it is closed whole. Destroyed without the registry's
/// lock.
class DeviceName {
public:
    explicit DeviceName(std::string taken) noexcept : name_(std::move(taken)) {}
    DeviceName(DeviceName&& other) noexcept : name_(std::exchange(other.name_, {})) {}
    DeviceName& operator=(DeviceName&&) = delete;
    ~DeviceName();

private:
    std::string name_;   ///< empty after a move
};

/// A device that has ports: its eSwitch and the watcher that wakes the main loop. Shared by its ports.
class OpenDevice {
public:
    /// From now on it is one of all_devices().
    OpenDevice(DeviceName name, std::shared_ptr<dr::Eswitch> eswitch, std::unique_ptr<dr::VportWatcher> watcher);
    ~OpenDevice();
    OpenDevice(const OpenDevice&) = delete;
    OpenDevice& operator=(const OpenDevice&) = delete;

    /// Its ports are closed then, and it is not opened before the last of them is.
    [[nodiscard]] bool has_gone() const noexcept { return watcher->device_has_gone(); }

    /// Copies for software of frames of this size can come up from now on. What has gone wrong and has not been told
    /// yet, for people: megaflows that need copies stay in software then. By whoever opens and tends ports.
    std::string fit_copies(unsigned frame_size);

    const DeviceName name;                            ///< destroyed last
    const std::shared_ptr<dr::Eswitch> eswitch;
    const std::unique_ptr<dr::VportWatcher> watcher;  ///< destroyed before the eSwitch
    std::string notice;                               ///< for people, until a port has taken it

private:
    std::string fit_copies(dr::CopyKind kind, unsigned frame_size);

    dr::PerCopyKind<std::shared_ptr<DeviceCopies>> copies_;   ///< from the first port on
    std::string copies_failure_;                      ///< that was told
    bool never_copies_ = false;                       ///< the device cannot have them
};

/// Calls `visit` for every open port, in the order they were opened.
void for_each_port(const std::function<void(const ovsdr_port&)>& visit);

/// A copy on the C heap; nullptr when memory is out.
inline char* c_string(std::string_view text) noexcept {
    auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
    if (copy == nullptr) return nullptr;
    std::memcpy(copy, text.data(), text.size());
    copy[text.size()] = '\0';
    return copy;
}

}  // namespace ovsdr::ctrl

struct ovsdr_port {
    std::string interface;
    std::shared_ptr<ovsdr::ctrl::OpenDevice> device;
    ovsdr::dr::VportId vport;
    unsigned frame_overhead;                ///< bytes that a frame may have beside its payload

    std::unique_ptr<ovsdr::slowpath::AttachedPort> slow_path;   ///< the vport is attached as long as there is one

    mutable std::mutex state_lock;
    ovsdr::dr::VportState state{};
    bool gone = false;                      ///< the device has the vport no more, or has gone itself
    std::uint32_t odp_port = OVSDR_NO_ODP_PORT;
    // What does not work although the port does, for people; empty when it works.
    std::string device_gone, too_small, stopped, passes_policer;
    std::string told_problem;               ///< of these, what ovsdr_port_refresh() has told of
    std::string notice;                     ///< what has happened and nobody has been told yet
    std::string refused_mac, refused_mtu, refused_state;   ///< what was told of changes, lest it be told again
    std::chrono::steady_clock::time_point next_restart{};

    /// With state_lock held.
    [[nodiscard]] std::string problem() const {
        std::string all;
        for (const std::string* one : {&device_gone, &stopped, &too_small, &passes_policer}) {
            if (!one->empty()) all += all.empty() ? *one : "; " + *one;
        }
        return all;
    }
    void tell(const std::string& what) {
        if (!what.empty()) notice += notice.empty() ? what : "; " + what;
    }
    [[nodiscard]] ovsdr::dr::Eswitch& eswitch() const noexcept { return *device->eswitch; }
};
