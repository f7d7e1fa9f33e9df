// net_tap: a port that makes a network interface, for whatever in this kernel is to be on the switch: the host itself,
// or a container, into whose network namespace the interface may be moved.
//
// DPDK's driver of this name is not used: it has a signal sent to the process for each packet that arrives, which
// interrupts the application that the soft NIC lives in, and it can carry no MTU above 1500. This one is the tap's
// descriptor, one read or write a packet, and the descriptor wakes a sleeping worker.
//
// The kernel completes checksums and cuts large segments before a packet comes out of the tap (TUNSETOFFLOAD 0), so no
// unfinished packet enters the eSwitch. A frame that is larger than the MTU allows comes out cut, and larger than the
// MTU allows: the vport drops and counts it.
//
// The interface has the vport's MAC and goes with the port. One that was deleted by hand is made anew. Its link is that
// the owner has put it up, in whichever namespace; its MTU is read and set while it is in ours.
//
// Source: Linux, Documentation/networking/tuntap.rst.
#pragma once

#include "datapath/ports/interface.hpp"
#include "datapath/ports/port.hpp"

namespace ovsdr::soft {

class TapPort final : public Port {
public:
    [[nodiscard]] static std::unique_ptr<Port> open(const PortSpec& spec, const Driver& driver, std::string& error);
    ~TapPort() override;

    [[nodiscard]] bool link_up() const noexcept override;
    [[nodiscard]] bool lost() const noexcept override;
    [[nodiscard]] std::uint16_t mtu() const noexcept override;
    [[nodiscard]] int set_mtu(std::uint16_t mtu) noexcept override;

private:
    TapPort(const PortSpec& spec, const Driver& driver);
    int make_interface(const PortSpec& spec, std::string& error);
    [[nodiscard]] short state() const noexcept;
    static std::uint16_t receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;
    static std::uint16_t send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;

    NetworkInterface interface_;
    int descriptor_ = -1;
    rte_mempool* pool_ = nullptr;
    rte_mbuf* spare_ = nullptr;  ///< the buffer for the next packet
    std::uint16_t room_ = 0;     ///< of a buffer, behind the head room
};

}  // namespace ovsdr::soft
