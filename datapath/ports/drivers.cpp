#include "datapath/ports/drivers.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "datapath/ports/config.hpp"

namespace ovsdr::soft {
namespace {

// Of AF_XDP's page, the mbuf (128), its head room (128), the kernel's XDP head room (256) and the mempool's header go
// to others, and veth keeps a skb_shared_info there: 3000 is a round figure below what is left.
constexpr std::array driver_table{
    Driver{"net_af_packet", true, AF_PACKET, false, max_mtu, true},
    Driver{"net_af_xdp", true, AF_XDP, true, 3000, false},
    Driver{"net_pcap", false, 0, false, max_mtu, false},
    Driver{"net_null", false, 0, false, max_mtu, false},
    Driver{"net_ring", false, 0, false, max_mtu, false},
};

std::string_view driver_name(std::string_view arguments) noexcept {
    return arguments.substr(0, arguments.find(','));
}

std::string driver_list() {
    std::string list;
    for (const Driver& driver : driver_table)
        fmt::format_to(std::back_inserter(list), "{}{}", list.empty() ? "" : ", ", driver.name);
    return list;
}

}  // namespace

std::span<const Driver> drivers() noexcept {
    return driver_table;
}

const Driver* driver_of(std::string_view arguments) noexcept {
    const std::string_view name = driver_name(arguments);
    const auto found = std::find_if(driver_table.begin(), driver_table.end(),
                                    [name](const Driver& driver) { return driver.name == name; });
    return found == driver_table.end() ? nullptr : &*found;
}

std::string_view dpdk_argument(std::string_view arguments, std::string_view key) noexcept {
    for (std::size_t at = arguments.find(','); at != std::string_view::npos; at = arguments.find(',', at)) {
        ++at;
        std::string_view item = arguments.substr(at, arguments.find(',', at) - at);
        if (item.starts_with(key) && item.size() > key.size() && item[key.size()] == '=') {
            return item.substr(key.size() + 1);
        }
    }
    return {};
}

std::string dpdk_arguments_problem(std::string_view arguments) {
    const std::string_view name = driver_name(arguments);
    const Driver* driver = driver_of(arguments);
    if (driver == nullptr) {
        const std::string_view plain = name.substr(0, name.find_last_not_of("0123456789") + 1);
        if (plain != name && driver_of(plain) != nullptr) {
            return fmt::format("give the driver without a number, {}: the soft NIC chooses one", plain);
        }
        return fmt::format("there is no driver \"{}\"; there are {}", name, driver_list());
    }
    if (driver->has_interface) {
        const std::string_view interface = dpdk_argument(arguments, "iface");
        if (interface.empty()) return fmt::format("{} needs iface=NAME, a network interface", name);
        if (interface.size() >= 16)
            return fmt::format("iface={} is longer than the 15 bytes of an interface name", interface);
    }
    return {};
}

}  // namespace ovsdr::soft
