// A PCI device by its address, as Linux's sysfs shows it, and whether the soft NIC can have it.
//
// DPDK's drivers work a device from this process. So the device must be lent to processes: bound to vfio-pci, behind an
// IOMMU (then the device sees our memory at our own addresses), or, where there is no IOMMU, to vfio-pci without one,
// to uio_pci_generic or to igb_uio. Those see physical addresses: they need hugepages, and an EAL that was started for
// it.
//
// Reading is all that is done here: nothing is bound, opened or probed.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ovsdr::soft {

/// "0000:03:00.0": domain (4 to 8 hexadecimal digits), bus, device and function, in lower case as sysfs has them.
[[nodiscard]] bool is_pci_address(std::string_view text) noexcept;

/// Something with a colon in it, as no driver's name has: meant as a PCI address.
[[nodiscard]] bool looks_like_pci_address(std::string_view text) noexcept;

struct PciFunction {
    std::string address;
    std::uint16_t vendor = 0, device = 0;
    std::string kernel_driver;  ///< empty: none
    std::string interface;      ///< the kernel's network interface on it; empty: none
    bool has_iommu = false;     ///< in an IOMMU group that keeps it to the memory that it is given
    bool has_msix = false;      ///< MSI-X: an interrupt of its own for each queue
    bool has_network = false;   ///< of the class of network controllers

    /// Bound to a driver by which it sees physical addresses.
    [[nodiscard]] bool sees_physical_addresses() const noexcept;
};

/// nullopt when no such device is there. `sysfs` is where sysfs is mounted.
[[nodiscard]] std::optional<PciFunction> read_pci_function(std::string_view address,
                                                           const std::string& sysfs = "/sys");

/// A number that changes when the device comes, goes, or is bound to another driver; 0 when it is not there.
[[nodiscard]] unsigned pci_state(std::string_view address, const std::string& sysfs = "/sys");

/// Why the soft NIC cannot have it, and what to do about that; empty when it can. `physical`: EAL was started with
/// physical addresses.
[[nodiscard]] std::string pci_problem(const PciFunction& function, bool physical);

}  // namespace ovsdr::soft
