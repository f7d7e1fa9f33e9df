// What ctrl/'s own files know of an open port; C sees port.h.
//
// All open ports are in one list, for reports. The list holds no reference: a port leaves it before it is destroyed,
// and whoever walks the list holds its lock.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "ctrl/port.h"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/vport.hpp"
#include "offload/slowpath/port_queue.hpp"

namespace ovsdr::ctrl {

/// A device that has ports: its eSwitch and the watcher that wakes the main loop. Shared by its ports.
struct OpenDevice {
    std::shared_ptr<dr::Eswitch> eswitch;
    std::unique_ptr<dr::VportWatcher> watcher;  ///< destroyed before the eSwitch
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

    /// The queue is replaced when the MTU outgrows its buffers: senders share the lock, the replacement owns it.
    mutable std::shared_mutex queue_lock;
    std::unique_ptr<ovsdr::slowpath::PortQueue> queue;
    unsigned frame_size = 0;                ///< bytes that the queue's buffers hold
    ovsdr::slowpath::QueueStats past{};     ///< of queues that were replaced

    mutable std::mutex state_lock;
    ovsdr::dr::VportState state{};
    std::uint32_t odp_port = OVSDR_NO_ODP_PORT;
    std::string problem;                    ///< what does not work although the port does, for people

    [[nodiscard]] ovsdr::dr::Eswitch& eswitch() const noexcept { return *device->eswitch; }
    [[nodiscard]] ovsdr::slowpath::QueueStats queue_stats() const;
};
