// A megaflow kept in little room, so that it can be compiled again when a port changes.
//
// Model. Megaflows are many, their masks and lists of actions few: those are shared between the megaflows that have
// them.
//
// Threads: StoredMegaflow is a value; MegaflowParts may be used from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "offload/dr/ids.hpp"
#include "offload/dr/install/share_pool.hpp"
#include "offload/dr/megaflow.h"

namespace ovsdr::dr {

/// What megaflows have in common.
class MegaflowParts {
public:
    struct Tunnel {
        ovsdr_tunnel_fields key, mask;
    };
    /// All that a megaflow matches on, with what of it has no place in `fields`; and of which tunnel its packets come,
    /// which is the same for many.
    struct Wildcards {
        ovsdr_flow_fields fields;
        ovsdr_names unsupported;
        std::optional<Tunnel> tunnel{};
    };
    [[nodiscard]] static Wildcards wildcards_of(const ovsdr_megaflow& megaflow) noexcept;
    struct Actions {
        std::uint32_t length = 0;          ///< as given; no more than OVSDR_MAX_ACTIONS are kept
        std::vector<ovsdr_action> kept;    ///< they point nowhere
        std::vector<std::uint8_t> payloads{};  ///< tunnels' headers and software's actions, one behind the other
        bool tunnels = false;              ///< packets come out of one or go into one
    };
    [[nodiscard]] static Actions actions_of(const ovsdr_megaflow& megaflow);

    struct Hash {
        std::size_t operator()(const Wildcards& mask) const noexcept;
        /// Of the actions.
        std::size_t operator()(const ovsdr_megaflow& megaflow) const noexcept;
    };
    struct Equal {
        bool operator()(const Wildcards& left, const Wildcards& right) const noexcept;
        bool operator()(const Actions& left, const ovsdr_megaflow& right) const noexcept;
    };

private:
    friend class StoredMegaflow;
    using MaskPool = SharePool<Wildcards, Hash, Equal>;
    using ActionPool = SharePool<Actions, Hash, Equal>;

public:
    using Mask = MaskPool::Ref;
    using ActionList = ActionPool::Ref;

    [[nodiscard]] Mask share(const Wildcards& mask) { return masks_.share(mask); }
    [[nodiscard]] ActionList share_actions(const ovsdr_megaflow& megaflow) {
        return actions_.share(megaflow, actions_of);
    }

private:
    MaskPool masks_;
    ActionPool actions_;
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
    StoredMegaflow(const ovsdr_megaflow& megaflow, MegaflowParts& parts);
    /// Like another one but for its key.
    StoredMegaflow(const StoredMegaflow& like, const ovsdr_flow_fields& key) noexcept
        : mask_(like.mask_), actions_(like.actions_), key_(key) {}

    /// Points into this.
    [[nodiscard]] ovsdr_megaflow restore() const noexcept;
    /// With one that was given the same MegaflowParts.
    friend bool operator==(const StoredMegaflow& one, const StoredMegaflow& other) noexcept {
        return one.mask_ == other.mask_ && one.actions_ == other.actions_ &&
               std::memcmp(&one.key_, &other.key_, sizeof key_) == 0;
    }
    /// The port that it comes in by and those that it goes out to, or out of as packets from a tunnel, each once.
    [[nodiscard]] PortList ports() const noexcept;
    [[nodiscard]] bool mentions_any(std::span<const OdpPort> ports) const noexcept;
    [[nodiscard]] bool has_meter() const noexcept;
    /// This meter is among its actions, those of software's that begin with one included.
    [[nodiscard]] bool meets(std::uint32_t number) const noexcept;
    [[nodiscard]] std::set<std::uint32_t> meters() const;
    /// Software gets copies of its packets.
    [[nodiscard]] bool has_software() const noexcept;
    /// It encapsulates packets or takes them out of a tunnel, or they come from one.
    [[nodiscard]] bool has_tunnel() const noexcept;
    [[nodiscard]] bool recirculates() const noexcept;
    /// It has been given a megaflow.
    [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(mask_); }
    [[nodiscard]] OdpPort in_port() const noexcept { return OdpPort{key_.in_port}; }
    [[nodiscard]] const ovsdr_flow_fields& key() const noexcept { return key_; }

    // The megaflow but for values that are only matched: addresses, and ports of TCP and UDP (plan_cache.hpp).
    /// Those that have to do with a tunnel have none.
    [[nodiscard]] bool has_shape() const noexcept { return !mask_->tunnel && !actions_->tunnels; }
    /// Both have one, and were given the same MegaflowParts.
    [[nodiscard]] bool has_shape_of(const StoredMegaflow& other) const noexcept;
    [[nodiscard]] std::size_t shape_hash() const noexcept;
    /// The same for one that is not stored yet. This one has a shape.
    [[nodiscard]] bool has_shape_of(const ovsdr_megaflow& given) const noexcept;
    /// What shape_hash() says of it when it has been stored, if it has a shape then.
    [[nodiscard]] static std::size_t shape_hash(const ovsdr_megaflow& given) noexcept;

private:
    MegaflowParts::Mask mask_;
    MegaflowParts::ActionList actions_;
    ovsdr_flow_fields key_{};
};

}  // namespace ovsdr::dr
