#include "datapath/ports/pci_function.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

namespace ovsdr::soft {
namespace {

namespace fs = std::filesystem;

constexpr std::uint16_t vendor_mellanox = 0x15b3;

// PCI Local Bus Specification 3.0, sections 6.1, 6.7 and 6.8.2.
constexpr std::size_t status_offset = 0x06, first_capability_offset = 0x34;
constexpr std::uint8_t has_capabilities = 0x10, capability_msix = 0x11;
constexpr std::size_t first_capability_possible = 0x40;

// Of a text: this many hexadecimal digits, in lower case.
bool take_digits(std::string_view& text, std::size_t least, std::size_t most) noexcept {
    const std::size_t found = std::min(text.find_first_not_of("0123456789abcdef"), text.size());
    if (found < least || found > most) return false;
    text.remove_prefix(found);
    return true;
}

bool take(std::string_view& text, char c) noexcept {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
}

std::string first_line(const fs::path& file) {
    std::ifstream stream(file);
    std::string line;
    std::getline(stream, line);
    return line;
}

// "0x8086\n".
std::uint32_t hexadecimal(const fs::path& file) {
    const std::string line = first_line(file);
    std::uint32_t value = 0;
    if (line.starts_with("0x")) (void)std::from_chars(line.data() + 2, line.data() + line.size(), value, 16);
    return value;
}

// The last part of where a link leads; empty where there is none.
std::string link_name(const fs::path& link) {
    std::error_code none;
    return fs::read_symlink(link, none).filename().string();
}

// virtio's is below a device of its own.
std::string interface_below(const fs::path& folder) {
    std::error_code none;
    for (const auto& interface : fs::directory_iterator(folder / "net", none)) return interface.path().filename();
    for (const auto& item : fs::directory_iterator(folder, none)) {
        if (!item.path().filename().string().starts_with("virtio")) continue;
        for (const auto& interface : fs::directory_iterator(item.path() / "net", none)) {
            return interface.path().filename();
        }
    }
    return {};
}

bool lists_msix(const fs::path& config) {
    std::ifstream stream(config, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
    const auto at = [&](std::size_t offset) {
        return offset < bytes.size() ? static_cast<std::uint8_t>(bytes[offset]) : std::uint8_t{0};
    };
    if ((at(status_offset) & has_capabilities) == 0) return false;
    std::size_t capability = at(first_capability_offset) & ~3U;
    // A broken list may run in a circle.
    for (unsigned seen = 0; capability >= first_capability_possible && seen < 48; ++seen) {
        if (at(capability) == capability_msix) return true;
        capability = at(capability + 1) & ~3U;
    }
    return false;
}

std::string how_to_bind(const PciFunction& function) {
    return fmt::format("bind it to vfio-pci: modprobe vfio-pci; dpdk-devbind.py -b vfio-pci {}", function.address);
}

}  // namespace

bool is_pci_address(std::string_view text) noexcept {
    if (!take_digits(text, 4, 8) || !take(text, ':') || !take_digits(text, 2, 2) || !take(text, ':')) return false;
    if (text.empty() || text[0] > '1' || !take_digits(text, 2, 2) || !take(text, '.')) return false;
    return text.size() == 1 && text[0] >= '0' && text[0] <= '7';
}

bool looks_like_pci_address(std::string_view text) noexcept {
    return text.find(':') != std::string_view::npos;
}

bool PciFunction::sees_physical_addresses() const noexcept {
    return kernel_driver == "uio_pci_generic" || kernel_driver == "igb_uio" ||
           (kernel_driver == "vfio-pci" && !has_iommu);
}

std::optional<PciFunction> read_pci_function(std::string_view address, const std::string& sysfs) {
    const fs::path folder = fs::path(sysfs) / "bus/pci/devices" / address;
    std::error_code none;
    if (!is_pci_address(address) || !fs::exists(folder / "vendor", none)) return std::nullopt;
    PciFunction function;
    function.address = address;
    function.vendor = static_cast<std::uint16_t>(hexadecimal(folder / "vendor"));
    function.device = static_cast<std::uint16_t>(hexadecimal(folder / "device"));
    function.kernel_driver = link_name(folder / "driver");
    function.has_network = hexadecimal(folder / "class") >> 16 == 0x02;
    function.has_msix = lists_msix(folder / "config");
    function.interface = interface_below(folder);
    // With this setting DPDK takes every device that vfio has for one that sees physical addresses.
    const bool unsafe = first_line(fs::path(sysfs) / "module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y";
    function.has_iommu = !unsafe && fs::exists(folder / "iommu_group", none) &&
                         first_line(folder / "iommu_group/name") != "vfio-noiommu";
    return function;
}

unsigned pci_state(std::string_view address, const std::string& sysfs) {
    const auto function = read_pci_function(address, sysfs);
    if (!function) return 0;
    const std::size_t hash = std::hash<std::string>{}(function->kernel_driver);
    return static_cast<unsigned>(hash) | 1U;
}

std::string pci_problem(const PciFunction& function, bool physical) {
    static constexpr std::array lent{"vfio-pci", "uio_pci_generic", "igb_uio"};
    if (function.vendor == vendor_mellanox) {
        return fmt::format("{:04x}:{:04x} is a device for mlx5 or mlx4: DPDK's drivers for it call libibverbs, which "
                           "in this process is the soft NIC itself. Let OVS use the card as it is (OVSDR_HARDWARE=1), "
                           "or give the soft NIC its network interface: net_af_xdp,iface=NAME",
                           function.vendor, function.device);
    }
    if (!function.has_network) {
        return fmt::format("{:04x}:{:04x} is no network controller", function.vendor, function.device);
    }
    if (function.kernel_driver.empty()) return "it is bound to no driver; " + how_to_bind(function);
    if (std::find(lent.begin(), lent.end(), function.kernel_driver) == lent.end()) {
        const std::string interface = function.interface.empty() ? "" : ", network interface " + function.interface;
        return fmt::format("the kernel's driver {} has it{}; {}", function.kernel_driver, interface,
                           how_to_bind(function));
    }
    if (!function.sees_physical_addresses() || physical) return {};
    return fmt::format("it is bound to {} without an IOMMU, and so needs \"hugepages\": true, and a soft NIC that "
                       "finds it bound so when it starts: have the port in its file, and restart it",
                       function.kernel_driver);
}

}  // namespace ovsdr::soft
