#include "datapath/ports/port.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "datapath/ports/dpdk_port.hpp"
#include "datapath/ports/memif_port.hpp"
#include "datapath/ports/packet_port.hpp"
#include "datapath/ports/pci_port.hpp"
#include "datapath/ports/tap_port.hpp"

namespace ovsdr::soft {

std::unique_ptr<Port> Port::open(const PortSpec& spec, std::string& error) {
    const Driver* driver = driver_of(spec.arguments);
    if (driver == nullptr) {
        error = dpdk_arguments_problem(spec.arguments);
        return nullptr;
    }
    if (spec.mtu && *spec.mtu > driver->largest_mtu) {
        error =
            fmt::format("mtu {} is more than the {} that {} can carry", *spec.mtu, driver->largest_mtu, driver->name);
        return nullptr;
    }
    switch (driver->kind) {
        case PortKind::packet:
            return PacketPort::open(spec, *driver, error);
        case PortKind::tap:
            return TapPort::open(spec, *driver, error);
        case PortKind::memif:
            return MemifPort::open(spec, *driver, error);
        case PortKind::pci:
            return PciPort::open(spec, *driver, error);
        case PortKind::dpdk:
            break;
    }
    return DpdkPort::open(spec, *driver, error);
}

void Port::set_queues(std::vector<PortReceiveQueue> receive, std::vector<PortSendQueue> send) noexcept {
    receive_queues_ = std::move(receive);
    send_queues_ = std::move(send);
    usable_send_queues_.store(static_cast<unsigned>(send_queues_.size()), std::memory_order_relaxed);
}

int Port::set_mtu(std::uint16_t mtu) noexcept {
    if (mtu > driver_->largest_mtu) return EINVAL;
    return fits(mtu) ? 0 : ERANGE;
}

rte_mempool* Port::choose_memory(const PacketMemory& memory, std::uint16_t mtu) noexcept {
    const bool small = mtu <= small_buffer_mtu;
    buffer_mtu_ = small ? small_buffer_mtu : driver_->largest_mtu;
    return small ? memory.small : memory.jumbo;
}

}  // namespace ovsdr::soft
