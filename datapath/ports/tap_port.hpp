// net_tap: a port that makes a network interface, for whatever in this kernel is to be on the switch: the host itself,
// or a container, into whose network namespace the interface may be moved.
//
// DPDK's driver of this name is not used: it has a signal sent to the process for each packet that arrives, which
// interrupts the application that the soft NIC lives in, and it can carry no MTU above 1500. This one is the tap's
// descriptor, one read or write a packet, and the descriptor wakes a sleeping worker. With queues=N (up to 16) it has N
// of them, for as many workers. The kernel then sends a flow by the queue by which its answers were last written, and
// others by a hash of addresses and L4 ports.
//
// The kernel leaves checksums and large segments to the port (TUNSETOFFLOAD): unfinished.hpp finishes them, and
// joined.hpp makes large ones of what goes out. A frame that is larger than the MTU allows otherwise comes out cut, and
// larger than the MTU allows: the vport drops and counts it.
//
// The interface has the vport's MAC and goes with the port. One that was deleted by hand is made anew. Its link is that
// the owner has put it up, in whichever namespace; its MTU is read and set while it is in ours.
//
// Source: Linux, Documentation/networking/tuntap.rst.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datapath/ports/incoming.hpp"
#include "datapath/ports/interface.hpp"
#include "datapath/ports/joined.hpp"
#include "datapath/ports/port.hpp"
#include "datapath/ports/unfinished.hpp"

namespace ovsdr::soft {

class TapPort final : public Port {
public:
    [[nodiscard]] static std::unique_ptr<Port> open(const PortSpec& spec, const Driver& driver, std::string& error);
    ~TapPort() override;

    [[nodiscard]] bool link_up() const noexcept override;
    [[nodiscard]] bool lost() const noexcept override;
    [[nodiscard]] std::uint16_t mtu() const noexcept override;
    [[nodiscard]] int set_mtu(std::uint16_t mtu) noexcept override;
    [[nodiscard]] std::uint64_t overruns() noexcept override;

private:
    /// One of the interface's queues, as it is received from.
    struct Receiver {
        Receiver(int descriptor, rte_mempool* pool);
        ~Receiver();
        Receiver(const Receiver&) = delete;
        Receiver& operator=(const Receiver&) = delete;

        const int descriptor;
        rte_mempool* const pool;
        rte_mbuf* spare = nullptr;  ///< the buffer for the next packet
        Incoming incoming;
        Unfinished cut;                      ///< of incoming's frame
        std::atomic<std::uint64_t> lost{0};  ///< long frames for whose segments there was no buffer
    };
    /// One worker's way to send: by its queue, or one that others use too, which the kernel allows.
    struct Sender {
        Sender(int to, bool join) noexcept : descriptor(to), joins(join) {}

        const int descriptor;
        const bool joins;
        Message message;
    };

    TapPort(const PortSpec& spec, const Driver& driver);
    int make_interface(const PortSpec& spec, std::string& error);
    int open_queue(bool several, std::string& error);
    void make_queues(const PortSpec& spec);
    [[nodiscard]] short state() const noexcept;
    static std::uint16_t receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;
    static std::uint16_t send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept;

    NetworkInterface interface_;
    std::vector<int> descriptors_;  ///< of each queue
    std::vector<std::unique_ptr<Receiver>> receivers_;
    std::vector<std::unique_ptr<Sender>> senders_;
};

}  // namespace ovsdr::soft
