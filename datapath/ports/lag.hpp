// LAG: an uplink of two ports, as a device has it whose ports the kernel has bonded.
//
// What a queue sends that has chosen a port leaves by that one; everything else by the one that a hash of the packet's
// outer addresses, VLAN, protocol and L4 ports names, so that the packets of a flow stay in their order. What would
// leave by a port whose link is down leaves by the other one, if that is up; as soon as the link is back, everything is
// as before. Choices are counted from 1: the PRM's tx_port_affinity, in the mode that it calls queue affinity.
//
// Threads: any; sinks as Sink::deliver says.
// Source: PRM, LAG context (tx_remap_affinity); mlx5_core's lag.c on which port stands in for which.
#pragma once

#include <array>

#include "datapath/packet.hpp"
#include "datapath/ports/vport_path.hpp"
#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class Lag {
public:
    /// The paths outlive the LAG, which stays where it is.
    Lag(VportPath& first, VportPath& second) noexcept : ways_{Way{*this, first, 1}, Way{*this, second, 2}} {}
    Lag(const Lag&) = delete;
    Lag& operator=(const Lag&) = delete;

    /// For packets without a port of their own: each by its hash.
    [[nodiscard]] Sink by_hash() noexcept;
    /// For packets whose queue has chosen `port`.
    [[nodiscard]] Sink by_port(unsigned port) noexcept;
    /// The same without the other one's help.
    [[nodiscard]] Sink strictly_by_port(unsigned port) noexcept { return ways_[port - 1].path.sink(); }

    /// By which port that leaves now which is to leave by `port`.
    [[nodiscard]] unsigned active_port(unsigned port) const noexcept;

private:
    struct Way {
        Lag& lag;
        VportPath& path;
        unsigned port;
    };

    void send_by(unsigned port, unsigned worker, rte_mbuf** packets, unsigned length) noexcept;

    std::array<Way, lag_ports> ways_;
};

}  // namespace ovsdr::soft
