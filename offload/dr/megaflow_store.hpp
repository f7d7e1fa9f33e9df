// A megaflow kept in little room, so that it can be compiled again when a port changes.
//
// Model. Megaflows are many and their masks few: the mask is shared between the megaflows that have it, and actions
// take the room they need.
//
// Threads: StoredMegaflow is a value; MaskPool may be used from any thread.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>

#include "offload/dr/eswitch.hpp"

namespace ovsdr::dr {

class MaskPool {
public:
    /// All that a megaflow matches on, with what of it has no place in `fields`.
    struct Wildcards {
        ovsdr_flow_fields fields;
        ovsdr_names unsupported;
    };
    using Mask = std::shared_ptr<const Wildcards>;
    [[nodiscard]] Mask share(const Wildcards& mask);

private:
    struct Hash {
        std::size_t operator()(const Wildcards& mask) const noexcept;
    };
    struct Equal {
        bool operator()(const Wildcards& left, const Wildcards& right) const noexcept;
    };
    std::mutex mutex_;
    std::unordered_map<Wildcards, std::weak_ptr<const Wildcards>, Hash, Equal> masks_;
    std::size_t prune_at_ = 1024;
};

/// A few ports by value.
class PortList {
public:
    void add(OdpPort port) noexcept;
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
    [[nodiscard]] OdpPort operator[](std::uint32_t index) const noexcept { return ports_[index]; }

private:
    std::array<OdpPort, OVSDR_MAX_ACTIONS + 1> ports_;
    std::uint32_t size_ = 0;
};

class StoredMegaflow {
public:
    StoredMegaflow() noexcept = default;
    StoredMegaflow(const ovsdr_megaflow& megaflow, MaskPool& masks);

    [[nodiscard]] ovsdr_megaflow restore() const noexcept;
    [[nodiscard]] bool is(const ovsdr_megaflow& megaflow) const noexcept;
    /// The port that it comes in by and those that it goes out to, each once.
    [[nodiscard]] PortList ports() const noexcept;
    [[nodiscard]] bool mentions_any(std::span<const OdpPort> ports) const noexcept;
    /// It has been given a megaflow.
    [[nodiscard]] explicit operator bool() const noexcept { return mask_ != nullptr; }
    [[nodiscard]] OdpPort in_port() const noexcept { return OdpPort{key_.in_port}; }

private:
    ovsdr_flow_fields key_{};
    MaskPool::Mask mask_;
    std::uint32_t n_actions_ = 0;   ///< as given; no more than OVSDR_MAX_ACTIONS are kept
    std::unique_ptr<ovsdr_action[]> actions_;
};

}  // namespace ovsdr::dr
