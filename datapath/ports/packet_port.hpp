// net_af_packet: a port on a network interface that is there, by packet sockets: a veth's end, a bridge's port, a NIC.
//
// DPDK's driver of this name is not used: it cannot take what the host behind the interface leaves unfinished (it never
// sees virtio's header), so that TCP over a veth hung until its checksum offload was turned off, and large segments
// came cut off. Here they come whole: unfinished.hpp finishes them, and joined.hpp makes large ones of what goes out.
//
// Receiving and sending are several packets a call, by sockets of their own: packet_queues.hpp. `qpairs` sockets
// receive (1 to 16, for as many workers), and each worker has one to send by. A ring that the kernel fills
// (PACKET_RX_RING) is not used: a frame that virtio's header cannot describe (UDP to be cut, before Linux 6.2; SCTP to
// be cut) blocks it for good. Sending passes the interface's queueing discipline, so that tcpdump sees it, unless
// qdisc_bypass=1. What the host itself sends on its end of the interface did not come from the vport and is not
// received.
//
// Link state, MTU and speed are the interface's, and it is put up.
//
// Source: packet(7).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datapath/ports/interface.hpp"
#include "datapath/ports/packet_queues.hpp"
#include "datapath/ports/port.hpp"

namespace ovsdr::soft {

class PacketPort final : public Port {
public:
    [[nodiscard]] static std::unique_ptr<Port> open(const PortSpec& spec, const Driver& driver, std::string& error);

    [[nodiscard]] bool link_up() const noexcept override { return interface_.running(); }
    /// The kernel tells an interface's carrier under a lock (RTNL) that somebody else may hold for seconds.
    [[nodiscard]] bool link_seen_up() const noexcept override { return false; }
    [[nodiscard]] std::uint32_t speed() const noexcept override { return interface_.speed(); }
    [[nodiscard]] std::uint16_t mtu() const noexcept override;
    [[nodiscard]] int set_mtu(std::uint16_t mtu) noexcept override;
    [[nodiscard]] std::uint64_t overruns() noexcept override;
    [[nodiscard]] Refused refused() const noexcept override;

private:
    PacketPort(const PortSpec& spec, const Driver& driver);
    int open_receivers(const PortSpec& spec, std::string& step);
    int open_senders(const PortSpec& spec, std::string& step);

    NetworkInterface interface_;
    std::vector<std::unique_ptr<PacketReceiver>> receivers_;  ///< `qpairs` of them
    std::vector<std::unique_ptr<PacketSender>> senders_;      ///< one for each worker
};

}  // namespace ovsdr::soft
