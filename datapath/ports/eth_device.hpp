// A device of one of DPDK's poll-mode drivers: made while the NIC runs, removed when the object dies.
//
// Its queues are numbered from 0; workers pass packets through DPDK's own functions, as rte_eth_rx_burst() would
// call them.
//
// Threads: the control thread; queues as port.hpp says.
#pragma once

#include <cstdint>
#include <string>

#include "datapath/ports/drivers.hpp"
#include "datapath/ports/port.hpp"

struct rte_mempool;

namespace ovsdr::soft {

class EthDevice {
public:
    struct Setup {
        std::uint16_t receive_queues = 1, send_queues = 1;
        rte_mempool* pool = nullptr;
        bool interrupts = false;  ///< the receive queues' descriptors are wanted
        std::uint64_t receive_offloads = 0;
    };

    EthDevice() = default;
    ~EthDevice();
    EthDevice(const EthDevice&) = delete;
    EthDevice& operator=(const EthDevice&) = delete;

    /// `arguments`: without the driver's name. 0 or an errno.
    [[nodiscard]] int probe(const Driver& driver, const std::string& arguments);
    /// The same, with what failed in `step`.
    [[nodiscard]] int start(const Setup& setup, std::string& step);

    /// As many as the driver has for the device's arguments.
    struct Most {
        std::uint16_t receive_queues = 1, send_queues = 1;
    };
    [[nodiscard]] Most most() const noexcept;

    [[nodiscard]] const std::string& name() const noexcept { return name_; }  ///< DPDK's
    [[nodiscard]] std::uint16_t id() const noexcept { return id_; }

    [[nodiscard]] PortReceiveQueue receive_queue(unsigned number) const;
    [[nodiscard]] PortSendQueue send_queue(unsigned number) const noexcept;

private:
    std::string name_;  ///< empty until the device is there
    std::uint16_t id_ = 0;
    bool started_ = false;
};

}  // namespace ovsdr::soft
