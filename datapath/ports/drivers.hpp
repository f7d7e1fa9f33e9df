// The drivers that a vport's port may use, and what the soft NIC must know about each.
//
// They have the names and options of DPDK's drivers; the address of a PCI device stands for whichever of DPDK's drivers
// takes the device (pci_port.hpp). Beyond receiving and sending, this matters: what stands behind the
// port (a network interface, whose link, MTU and MAC are then the port's; one that the port makes; a socket where a
// guest or another process connects), what wakes a sleeping worker, which packet memory it receives into, and which of
// DPDK's options the soft NIC leaves to the operator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ovsdr::soft {

/// Who moves the packets.
enum class PortKind : std::uint8_t { dpdk, packet, tap, memif, pci };

enum class Backing : std::uint8_t {
    nothing,
    interface,       ///< takes "iface=NAME", a network interface that is there
    made_interface,  ///< takes "iface=NAME", a network interface that the port makes
    socket,          ///< takes the path of a Unix socket
    device           ///< a PCI device, by its address
};

/// An option of a driver whose options are checked here. What stands in none of them is DPDK's to check.
struct DriverOption {
    enum class Kind : std::uint8_t { interface, path, flag, number, word, text, refused };
    std::string_view key;
    Kind kind;
    bool required = false;
    unsigned low = 0, high = 0;  ///< number: the range; text: of its length
    std::string_view words{};    ///< word: "this|that"; refused: why
};

struct Driver {
    std::string_view name;
    PortKind kind;
    Backing backing;
    int wake_family;          ///< address family of the sockets that become readable with a packet; 0: none
    bool queue_interrupt;     ///< DPDK hands out a descriptor that becomes readable, for those who armed it
    bool page_sized_buffers;  ///< AF_XDP: a buffer must fit into a memory page
    std::uint16_t largest_mtu;
    bool may_exceed_mtu;  ///< hands over frames larger than the MTU, some of them cut short or in several buffers
    std::span<const DriverOption> options;  ///< empty: DPDK checks them
};

/// The drivers that are there, but for the one that stands for all PCI devices.
[[nodiscard]] std::span<const Driver> drivers() noexcept;

/// nullptr when `arguments` begins with no driver's name and no PCI address.
[[nodiscard]] const Driver* driver_of(std::string_view arguments) noexcept;

/// What is wrong with device arguments, in words; empty when nothing is.
[[nodiscard]] std::string dpdk_arguments_problem(std::string_view arguments);

/// The value of `key` in "driver,key=value,…"; empty when it is not there.
[[nodiscard]] std::string_view dpdk_argument(std::string_view arguments, std::string_view key) noexcept;

/// The same as a number; `otherwise` when it is not there. The arguments have been checked.
[[nodiscard]] unsigned number_argument(std::string_view arguments, std::string_view key, unsigned otherwise) noexcept;

}  // namespace ovsdr::soft
