#include "datapath/ports/drivers.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "datapath/ports/config.hpp"
#include "datapath/ports/memif_layout.hpp"
#include "datapath/ports/pci_function.hpp"
#include "datapath/ports/socket_path.hpp"

namespace ovsdr::soft {
namespace {

using Kind = DriverOption::Kind;

// Of a port. More than there can be workers would have nothing to do.
constexpr unsigned most_queues = max_workers;

constexpr std::array packet_options{
    DriverOption{.key = "iface", .kind = Kind::interface, .required = true},
    DriverOption{.key = "qdisc_bypass", .kind = Kind::flag},
    DriverOption{.key = "gro", .kind = Kind::flag},
    DriverOption{.key = "qpairs", .kind = Kind::number, .low = 1, .high = most_queues},
    DriverOption{.key = "framesz", .kind = Kind::refused, .words = "there is no ring"},
    DriverOption{.key = "framecnt", .kind = Kind::refused, .words = "there is no ring"},
    DriverOption{.key = "blocksz", .kind = Kind::refused, .words = "there is no ring"},
};

constexpr std::array xdp_options{
    DriverOption{.key = "iface", .kind = Kind::interface, .required = true},
    DriverOption{.key = "start_queue", .kind = Kind::number, .low = 0, .high = 1023},
    DriverOption{.key = "queue_count", .kind = Kind::number, .low = 1, .high = 1024},
    DriverOption{.key = "force_copy", .kind = Kind::flag},
    DriverOption{.key = "busy_budget", .kind = Kind::number, .low = 0, .high = 65535},
    DriverOption{.key = "shared_umem", .kind = Kind::refused, .words = "each queue has packet memory of its own"},
    DriverOption{.key = "xdp_prog", .kind = Kind::refused, .words = "the port loads the program that it needs"},
};

constexpr std::array tap_options{
    DriverOption{.key = "iface", .kind = Kind::interface, .required = true},
    DriverOption{.key = "gro", .kind = Kind::flag},
    DriverOption{.key = "queues", .kind = Kind::number, .low = 1, .high = most_queues},
    DriverOption{.key = "mac", .kind = Kind::refused, .words = "the interface gets the vport's MAC, option mac"},
    DriverOption{.key = "remote", .kind = Kind::refused, .words = "for a network interface take net_af_packet"},
    DriverOption{.key = "persist", .kind = Kind::refused, .words = "the interface goes with its port"},
};

constexpr std::string_view offload = "guests may leave checksums and segments to the port already";
constexpr std::array vhost_options{
    DriverOption{.key = "iface", .kind = Kind::path, .required = true},
    DriverOption{.key = "client", .kind = Kind::flag},
    DriverOption{.key = "gro", .kind = Kind::flag},
    DriverOption{.key = "queues", .kind = Kind::number, .low = 1, .high = most_queues},
    DriverOption{.key = "iommu-support", .kind = Kind::flag},
    DriverOption{.key = "postcopy-support", .kind = Kind::flag},
    DriverOption{.key = "tso", .kind = Kind::refused, .words = offload},
    DriverOption{.key = "legacy-ol-flags", .kind = Kind::refused, .words = offload},
    DriverOption{.key = "linear-buffer", .kind = Kind::refused, .words = "the soft NIC chooses"},
    DriverOption{.key = "ext-buffer", .kind = Kind::refused, .words = "the soft NIC chooses"},
};

constexpr std::array memif_options{
    DriverOption{.key = "socket", .kind = Kind::path, .required = true},
    DriverOption{.key = "role", .kind = Kind::word, .words = "server|client"},
    DriverOption{.key = "id", .kind = Kind::number, .low = 0, .high = 0xFFFFFFFF},
    DriverOption{.key = "queues", .kind = Kind::number, .low = 1, .high = most_queues},
    DriverOption{.key = "rsize", .kind = Kind::number, .low = 1, .high = memif::largest_log2_ring},
    DriverOption{.key = "bsize", .kind = Kind::number, .low = 64, .high = 16384},
    DriverOption{.key = "secret", .kind = Kind::text, .low = 1, .high = 24},
    DriverOption{.key = "mac", .kind = Kind::refused, .words = "a MAC is the vport's option mac"},
    DriverOption{.key = "zero-copy", .kind = Kind::refused, .words = "it would show all packet memory to the peer"},
    DriverOption{.key = "socket-abstract", .kind = Kind::refused, .words = "the socket is a file"},
    DriverOption{.key = "owner-uid", .kind = Kind::refused, .words = "the folder's rights say who may connect"},
    DriverOption{.key = "owner-gid", .kind = Kind::refused, .words = "the folder's rights say who may connect"},
};

// Of AF_XDP's page, the mbuf (128), its head room (128), the kernel's XDP head room (256) and the mempool's header go
// to others, and veth keeps a skb_shared_info there: 3000 is a round figure below what is left.
constexpr std::array driver_table{
    Driver{"net_af_packet", PortKind::packet, Backing::interface, 0, false, false, max_mtu, true, packet_options},
    Driver{"net_af_xdp", PortKind::dpdk, Backing::interface, AF_XDP, false, true, 3000, false, xdp_options},
    Driver{"net_tap", PortKind::tap, Backing::made_interface, 0, false, false, max_mtu, true, tap_options},
    Driver{"net_vhost", PortKind::dpdk, Backing::socket, 0, true, false, max_mtu, true, vhost_options},
    Driver{"net_memif", PortKind::memif, Backing::socket, 0, false, false, max_mtu, true, memif_options},
    Driver{"net_pcap", PortKind::dpdk, Backing::nothing, 0, false, false, max_mtu, false, {}},
    Driver{"net_null", PortKind::dpdk, Backing::nothing, 0, false, false, max_mtu, false, {}},
    Driver{"net_ring", PortKind::dpdk, Backing::nothing, 0, false, false, max_mtu, false, {}},
};

constexpr std::array pci_options{
    DriverOption{.key = "queues", .kind = Kind::number, .low = 1, .high = max_workers},
};

constexpr Driver pci_driver{"a PCI device", PortKind::pci, Backing::device, 0, false, false, max_mtu, true,
                            pci_options};

std::string_view driver_name(std::string_view arguments) noexcept {
    return arguments.substr(0, arguments.find(','));
}

std::string driver_list() {
    std::string list;
    for (const Driver& driver : driver_table)
        fmt::format_to(std::back_inserter(list), "{}{}", list.empty() ? "" : ", ", driver.name);
    return list;
}

bool read_number(std::string_view text, unsigned& number) noexcept {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
}

// "this|that" holds this.
bool has_word(std::string_view words, std::string_view word) noexcept {
    for (std::size_t at = 0; at <= words.size();) {
        const std::size_t end = std::min(words.find('|', at), words.size());
        if (words.substr(at, end - at) == word) return true;
        at = end + 1;
    }
    return false;
}

std::string interface_problem(std::string_view interface) {
    if (interface.size() < 16) return {};
    return fmt::format("iface={} is longer than the 15 bytes of an interface name", interface);
}

std::string value_problem(const DriverOption& option, std::string_view value) {
    const auto wrong = [&](std::string_view right) {
        return fmt::format("{}={}: it must be {}", option.key, value, right);
    };
    unsigned number = 0;
    switch (option.kind) {
        case Kind::interface:
            return value.empty() ? wrong("a name for the network interface") : interface_problem(value);
        case Kind::path:
            if (value.starts_with('/') && value.size() <= longest_socket_path) return {};
            return wrong(fmt::format("the path of a socket, from / on, of at most {} bytes", longest_socket_path));
        case Kind::flag:
            return value == "0" || value == "1" ? "" : wrong("0 or 1");
        case Kind::number:
            if (read_number(value, number) && number >= option.low && number <= option.high) return {};
            if (option.low == option.high) return wrong(std::to_string(option.low));
            return wrong(fmt::format("a whole number from {} to {}", option.low, option.high));
        case Kind::word: {
            std::string words(option.words);
            if (const auto bar = words.find('|'); bar != std::string::npos) words.replace(bar, 1, " or ");
            return has_word(option.words, value) ? "" : wrong(words);
        }
        case Kind::text:
            if (value.size() >= option.low && value.size() <= option.high) return {};
            return wrong(fmt::format("{} to {} bytes long", option.low, option.high));
        case Kind::refused:
            break;
    }
    return fmt::format("leave {} out: {}", option.key, option.words);
}

std::string known_options(const Driver& driver) {
    std::string list;
    for (const DriverOption& option : driver.options) {
        if (option.kind == Kind::refused) continue;
        fmt::format_to(std::back_inserter(list), "{}{}", list.empty() ? "" : ", ", option.key);
    }
    return list;
}

std::string options_problem(const Driver& driver, std::string_view arguments) {
    std::vector<std::string_view> seen;
    for (std::size_t at = arguments.find(','); at != std::string_view::npos; at = arguments.find(',', at)) {
        ++at;
        const std::string_view item = arguments.substr(at, arguments.find(',', at) - at);
        const std::string_view key = item.substr(0, item.find('='));
        const auto option = std::find_if(driver.options.begin(), driver.options.end(),
                                         [key](const DriverOption& other) { return other.key == key; });
        if (option == driver.options.end()) {
            return fmt::format("{} has no option \"{}\"; there are {}", driver.name, key, known_options(driver));
        }
        if (std::find(seen.begin(), seen.end(), key) != seen.end()) return fmt::format("{} is there twice", key);
        seen.push_back(key);
        const std::string problem = value_problem(*option, item.substr(std::min(item.size(), key.size() + 1)));
        if (!problem.empty()) return problem;
    }
    for (const DriverOption& option : driver.options) {
        if (!option.required || !dpdk_argument(arguments, option.key).empty()) continue;
        const std::string_view wanted = option.kind == Kind::path              ? "PATH, a socket"
                                        : driver.backing == Backing::interface ? "NAME, a network interface"
                                                                               : "NAME, for the one that it makes";
        return fmt::format("{} needs {}={}", driver.name, option.key, wanted);
    }
    return {};
}

// Rings and buffers are the client's, and must fit into what one region of shared memory can be.
std::string memif_memory_problem(std::string_view arguments) {
    if (dpdk_argument(arguments, "role") != "client") {
        for (const std::string_view key : {"rsize", "bsize"}) {
            const std::string_view value = dpdk_argument(arguments, key);
            if (value.empty()) continue;
            return fmt::format("{}={} is for role=client: a server takes rings and buffers as the client makes them",
                               key, value);
        }
        return {};
    }
    const unsigned queues = number_argument(arguments, "queues", 1);
    const memif::Layout layout{.to_server = queues,
                               .to_client = queues,
                               .log2_ring = number_argument(arguments, "rsize", memif::usual_log2_ring),
                               .buffer_size = number_argument(arguments, "bsize", memif::usual_buffer_size)};
    if (layout.size() <= memif::largest_layout) return {};
    return fmt::format(
        "queues={}, rsize={} and bsize={} make {} MB of shared memory, and there can be {}; give fewer queues, or "
        "smaller rings or buffers",
        queues, layout.log2_ring, layout.buffer_size, layout.size() >> 20, memif::largest_layout >> 20);
}

}  // namespace

std::span<const Driver> drivers() noexcept {
    return driver_table;
}

const Driver* driver_of(std::string_view arguments) noexcept {
    const std::string_view name = driver_name(arguments);
    if (is_pci_address(name)) return &pci_driver;
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

unsigned number_argument(std::string_view arguments, std::string_view key, unsigned otherwise) noexcept {
    unsigned number = 0;
    return read_number(dpdk_argument(arguments, key), number) ? number : otherwise;
}

std::string dpdk_arguments_problem(std::string_view arguments) {
    const std::string_view name = driver_name(arguments);
    const Driver* driver = driver_of(arguments);
    if (driver == nullptr) {
        if (looks_like_pci_address(name)) {
            return fmt::format("\"{}\" is not the whole address of a PCI device, in lower case, as 0000:03:00.0", name);
        }
        const std::string_view plain = name.substr(0, name.find_last_not_of("0123456789") + 1);
        if (plain != name && driver_of(plain) != nullptr) {
            return fmt::format("give the driver without a number, {}: the soft NIC chooses one", plain);
        }
        return fmt::format("there is no driver \"{}\"; there are {}, and the addresses of PCI devices, as 0000:03:00.0",
                           name, driver_list());
    }
    if (!driver->options.empty()) {
        const std::string problem = options_problem(*driver, arguments);
        if (!problem.empty() || driver->kind != PortKind::memif) return problem;
        return memif_memory_problem(arguments);
    }
    if (driver->backing != Backing::interface) return {};
    const std::string_view interface = dpdk_argument(arguments, "iface");
    if (interface.empty()) return fmt::format("{} needs iface=NAME, a network interface", name);
    return interface_problem(interface);
}

}  // namespace ovsdr::soft
