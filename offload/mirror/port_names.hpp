// The datapath's ports by number, for mirrors: a frame's interface in the collector's file has the name of the port
// that it came in by.
//
// Threads: any; a lock for moments. version() changes with the names and costs nothing to ask for.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "offload/dr/ids.hpp"

namespace ovsdr::mirror {

class PortNames {
public:
    void set(dr::OdpPort port, std::string name) {
        const std::lock_guard guard(mutex_);
        names_.insert_or_assign(port, std::move(name));
        version_.fetch_add(1, std::memory_order_release);
    }
    void remove(dr::OdpPort port) noexcept {
        const std::lock_guard guard(mutex_);
        names_.erase(port);
        version_.fetch_add(1, std::memory_order_release);
    }
    [[nodiscard]] dr::PortNames all() const {
        const std::lock_guard guard(mutex_);
        return names_;
    }
    [[nodiscard]] std::uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }

private:
    mutable std::mutex mutex_;
    dr::PortNames names_;
    std::atomic<std::uint64_t> version_{1};
};

}  // namespace ovsdr::mirror
