// What the datapath's numbers stand for, as the compiler sees it: which vport or tunnel a port is, and which meter;
// which ports are the host's own, a storage mirror's or have gone, and whether software takes copies. A plain value.
//
// Threads: a value; whoever shares one locks.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "offload/dr/ids.hpp"
#include "offload/dr/software.hpp"
#include "offload/meter/parameters.hpp"

namespace ovsdr::dr {

class PortMap {
public:
    struct Port {
        VportId vport;
        std::string name;       ///< the interface's, for messages
        bool policed = false;   ///< what comes in from it has to go through the slow path, which polices it
    };

    void set(OdpPort odp_port, Port port) { ports_[odp_port] = std::move(port); }
    void erase(OdpPort odp_port) { ports_.erase(odp_port); }

    /// nullptr: not a vport of this device.
    [[nodiscard]] const Port* find(OdpPort odp_port) const noexcept {
        const auto found = ports_.find(odp_port);
        return found == ports_.end() ? nullptr : &found->second;
    }

    void set_tunnel(TunnelPort port) { tunnels_[port.odp_port] = std::move(port); }
    void erase_tunnel(OdpPort odp_port) { tunnels_.erase(odp_port); }

    /// nullptr: no tunnel port.
    [[nodiscard]] const TunnelPort* find_tunnel(OdpPort odp_port) const noexcept {
        const auto found = tunnels_.find(odp_port);
        return found == tunnels_.end() ? nullptr : &found->second;
    }

    struct Meter {
        std::uint32_t serial;                      ///< of those that have had its number
        std::optional<meter::Refusal> refusal{};   ///< why it stays in software
    };
    void set_meter(std::uint32_t number, Meter meter) { meters_[number] = std::move(meter); }
    void erase_meter(std::uint32_t number) { meters_.erase(number); }

    /// nullptr: nobody has set it.
    [[nodiscard]] const std::map<std::uint32_t, Meter>& meters() const noexcept { return meters_; }
    [[nodiscard]] const Meter* find_meter(std::uint32_t number) const noexcept {
        const auto found = meters_.find(number);
        return found == meters_.end() ? nullptr : &found->second;
    }

    /// A bridge's own port (LOCAL).
    void set_host(OdpPort odp_port) { hosts_.insert(odp_port); }
    void erase_host(OdpPort odp_port) { hosts_.erase(odp_port); }
    [[nodiscard]] bool is_host(OdpPort odp_port) const noexcept { return hosts_.contains(odp_port); }

    /// The datapath has no port of this number any more.
    void set_gone(OdpPort odp_port) { gone_.insert(odp_port); }
    void erase_gone(OdpPort odp_port) { gone_.erase(odp_port); }
    [[nodiscard]] bool is_gone(OdpPort odp_port) const noexcept { return gone_.contains(odp_port); }

    /// A storage mirror's port.
    struct Mirror {
        CopyKind kind;
        std::uint32_t one_of = 1;   ///< packets of which one is copied
        friend bool operator==(const Mirror&, const Mirror&) = default;
    };
    /// Room for one, which set_mirror() then needs none for.
    using MirrorNode = std::map<OdpPort, Mirror>::node_type;
    [[nodiscard]] static MirrorNode mirror_node(OdpPort odp_port, Mirror mirror) {
        std::map<OdpPort, Mirror> one{{odp_port, mirror}};
        return one.extract(one.begin());
    }
    /// It is nothing else any more. A vport that had the number, and has not yet been told of the loss, comes second.
    void set_mirror(MirrorNode node) noexcept {
        const OdpPort odp_port = node.key();
        hosts_.erase(odp_port);
        tunnels_.erase(odp_port);
        if (const auto known = mirrors_.find(odp_port); known != mirrors_.end()) {
            known->second = node.mapped();
        } else {
            mirrors_.insert(std::move(node));
        }
    }
    void set_mirror(OdpPort odp_port, Mirror mirror) { set_mirror(mirror_node(odp_port, mirror)); }
    void erase_mirror(OdpPort odp_port) { mirrors_.erase(odp_port); }
    /// nullptr: no mirror's.
    [[nodiscard]] const Mirror* find_mirror(OdpPort odp_port) const noexcept {
        const auto found = mirrors_.find(odp_port);
        return found == mirrors_.end() ? nullptr : &found->second;
    }

    [[nodiscard]] std::optional<OdpPort> port_of_mirror(CopyKind kind) const noexcept {
        for (const auto& [odp_port, mirror] : mirrors_) {
            if (mirror.kind == kind) return odp_port;
        }
        return std::nullopt;
    }

    /// Whether such copies for software have a queue to go to.
    void lead_copies(CopyKind kind, bool lead) noexcept { leads_copies_[index_of(kind)] = lead; }
    [[nodiscard]] bool leads_copies(CopyKind kind) const noexcept { return leads_copies_[index_of(kind)]; }

private:
    std::map<OdpPort, Port> ports_;
    std::map<OdpPort, TunnelPort> tunnels_;
    std::map<std::uint32_t, Meter> meters_;
    std::set<OdpPort> hosts_, gone_;
    std::map<OdpPort, Mirror> mirrors_;
    PerCopyKind<bool> leads_copies_{};
};

}  // namespace ovsdr::dr
