// A DPDK port by its device arguments: made while the NIC runs, removed when the object dies.
//
// One receive and one transmit queue. Behind net_af_packet and net_af_xdp stands a network interface: its link state,
// MTU and MAC are the port's, and it is put up. Their sockets also wake a sleeping worker: DPDK does not hand them out,
// so they are found among this process's file descriptors, by family (and, where the kernel tells, by interface).
//
// Threads: open(), the destructor and the interface functions from one thread at a time; wake_sockets() is constant.
#pragma once

#include <rte_mempool.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/ports/config.hpp"
#include "datapath/ports/drivers.hpp"
#include "datapath/ports/eal.hpp"

namespace ovsdr::soft {

struct DpdkPortSpec {
    std::string arguments;             ///< checked by check_dpdk_arguments()
    std::optional<std::uint16_t> mtu;  ///< set on the interface when given
    PacketMemory memory;               ///< to receive into, where the driver needs no pool of its own
};

class DpdkPort {
public:
    /// nullptr with the cause in `error`.
    [[nodiscard]] static std::unique_ptr<DpdkPort> open(const DpdkPortSpec& spec, std::string& error);

    /// No worker may be using the port.
    ~DpdkPort();
    DpdkPort(const DpdkPort&) = delete;
    DpdkPort& operator=(const DpdkPort&) = delete;

    [[nodiscard]] std::uint16_t id() const noexcept { return id_; }
    [[nodiscard]] const Driver& driver() const noexcept { return *driver_; }

    /// Sockets that are readable when a packet waits. Empty: the port must be polled.
    [[nodiscard]] std::span<const int> wake_sockets() const noexcept { return wake_sockets_; }

    [[nodiscard]] bool link_up() const noexcept;

    /// The MTU that the interface has now; 1500 where there is no interface.
    [[nodiscard]] std::uint16_t mtu() const noexcept;

    /// Frames of this MTU fit into the port's buffers.
    [[nodiscard]] bool fits(std::uint16_t mtu) const noexcept { return mtu <= ring_mtu_; }

    /// 0 or an errno; the interface's MTU is changed too. ERANGE when the port must be opened anew for it.
    [[nodiscard]] int set_mtu(std::uint16_t mtu) noexcept;

private:
    DpdkPort(const DpdkPortSpec& spec, const Driver& driver);
    int probe(const DpdkPortSpec& spec);
    int start(const DpdkPortSpec& spec, std::string& error);
    void find_wake_sockets(const std::vector<int>& before);

    const Driver* driver_;
    std::string interface_;
    std::string name_;  ///< DPDK's, empty until the device is there
    std::uint16_t id_ = 0;
    bool started_ = false;
    int control_socket_ = -1;  ///< for interface requests, in the network namespace where the port was opened
    std::uint16_t ring_mtu_ = max_mtu;
    Mempool own_pool_;
    std::vector<int> wake_sockets_;
};

}  // namespace ovsdr::soft
