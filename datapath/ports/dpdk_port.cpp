#include "datapath/ports/dpdk_port.hpp"

#include <bpf/libbpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xdp/libxdp.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t queue_length = 1024;

// Above this MTU a port has jumbo buffers, and net_af_packet a ring of jumbo frames: of a small one's 2048 bytes, 1982
// are left for the packet.
constexpr std::uint16_t small_ring_mtu = 1900;

// AF_XDP: the buffers of one port, in one piece of memory that the kernel pins: 2048 in the fill ring, 1024 in either
// queue, the others under way.
constexpr unsigned xdp_buffers = 5119;
constexpr std::uint16_t xdp_room = 3456;

std::vector<int> open_descriptors() {
    std::vector<int> descriptors;
    DIR* folder = opendir("/proc/self/fd");
    if (folder == nullptr) return descriptors;
    while (const dirent* item = readdir(folder)) {
        if (item->d_name[0] == '.') continue;
        const int descriptor = std::atoi(item->d_name);
        if (descriptor != dirfd(folder)) descriptors.push_back(descriptor);
    }
    closedir(folder);
    std::sort(descriptors.begin(), descriptors.end());
    return descriptors;
}

// An AF_PACKET socket must be bound to the port's interface and have the driver's kind of ring: the process may have
// others. AF_XDP sockets do not say what they are bound to.
bool wakes_for(int descriptor, int family, unsigned interface_index) {
    int domain = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != family) return false;
    if (family != AF_PACKET) return true;
    sockaddr_ll address{};
    size = sizeof address;
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
    int version = 0;
    size = sizeof version;
    if (getsockopt(descriptor, SOL_PACKET, PACKET_VERSION, &version, &size) != 0) return false;
    return static_cast<unsigned>(address.sll_ifindex) == interface_index && version == TPACKET_V2;
}

// What the host itself sends on its end of the interface (neighbour discovery, say) did not come from the vport.
// A filter does it for sockets of any kind; PACKET_IGNORE_OUTGOING has no effect on one in a fanout group.
void ignore_outgoing(int descriptor) noexcept {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, static_cast<unsigned>(SKF_AD_OFF + SKF_AD_PKTTYPE)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
    };
    const sock_fprog filter{.len = std::size(program), .filter = program};
    (void)setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

void add_argument(std::string& arguments, std::string_view key, unsigned value) {
    if (dpdk_argument(arguments, key).empty()) fmt::format_to(std::back_inserter(arguments), ",{}={}", key, value);
}

// The driver's arguments with what the operator left to us.
std::string complete_arguments(const std::string& given, std::uint16_t mtu) {
    std::string arguments = given;
    if (given.starts_with("net_af_packet")) {
        // Frames must not straddle blocks, and blocks are whole pages: 20480 is two jumbo frames and five pages.
        const bool jumbo = mtu > small_ring_mtu;
        add_argument(arguments, "framesz", jumbo ? 10240 : 2048);
        add_argument(arguments, "blocksz", jumbo ? 20480 : 4096);
        add_argument(arguments, "framecnt", jumbo ? 1024 : 2048);
    } else if (given.starts_with("net_af_xdp")) {
        // Preferred busy polling would make a system call of every empty poll, and cannot sleep.
        add_argument(arguments, "busy_budget", 0);
    }
    const auto comma = arguments.find(',');
    return comma == std::string::npos ? std::string() : arguments.substr(comma + 1);
}

// Keeps libbpf and libxdp, which net_af_xdp uses, from writing to stderr while a port is opened. Both belong to the
// whole process, so its own settings are put back.
class QuietBpf {
public:
    QuietBpf() : bpf_(libbpf_set_print(keep<libbpf_print_level>)), xdp_(libxdp_set_print(keep<libxdp_print_level>)) {}
    ~QuietBpf() {
        libbpf_set_print(bpf_);
        libxdp_set_print(xdp_);
    }
    QuietBpf(const QuietBpf&) = delete;
    QuietBpf& operator=(const QuietBpf&) = delete;

private:
    template <typename Level>
    static int keep(Level level, const char* format, va_list arguments) {
        if (static_cast<int>(level) > 0) return 0;  // 0 is a warning in both
        char line[256];
        const int length = std::vsnprintf(line, sizeof line, format, arguments);
        if (length > 0) add_to_dpdk_log({line, std::min<std::size_t>(length, sizeof line - 1)});
        return length;
    }

    libbpf_print_fn_t bpf_;
    libxdp_print_fn_t xdp_;
};

int interface_request(int socket, unsigned long request, const std::string& interface, ifreq& value) noexcept {
    interface.copy(value.ifr_name, IFNAMSIZ - 1);
    return ioctl(socket, request, &value) == 0 ? 0 : errno;
}

}  // namespace

DpdkPort::DpdkPort(const DpdkPortSpec& spec, const Driver& driver)
    : driver_(&driver), interface_(driver.has_interface ? dpdk_argument(spec.arguments, "iface") : "") {
    if (!interface_.empty()) control_socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

DpdkPort::~DpdkPort() {
    const QuietBpf quiet;
    if (started_) (void)rte_eth_dev_stop(id_);
    if (!name_.empty()) {
        (void)rte_eth_dev_close(id_);
        (void)rte_eal_hotplug_remove("vdev", name_.c_str());
    }
    if (control_socket_ >= 0) close(control_socket_);
}

std::unique_ptr<DpdkPort> DpdkPort::open(const DpdkPortSpec& spec, std::string& error) {
    const Driver* driver = driver_of(spec.arguments);
    if (driver == nullptr) {
        error = dpdk_arguments_problem(spec.arguments);
        return nullptr;
    }
    std::unique_ptr<DpdkPort> port(new DpdkPort(spec, *driver));
    if (!port->interface_.empty() && if_nametoindex(port->interface_.c_str()) == 0) {
        error = fmt::format("there is no network interface \"{}\"", port->interface_);
        return nullptr;
    }
    if (spec.mtu && *spec.mtu > driver->largest_mtu) {
        error =
            fmt::format("mtu {} is more than the {} that {} can carry", *spec.mtu, driver->largest_mtu, driver->name);
        return nullptr;
    }
    if (spec.mtu && !port->interface_.empty()) {
        ifreq request{};
        request.ifr_mtu = *spec.mtu;
        if (int result = interface_request(port->control_socket_, SIOCSIFMTU, port->interface_, request)) {
            error = fmt::format("mtu {} cannot be set on {}: {}", *spec.mtu, port->interface_, std::strerror(result));
            return nullptr;
        }
    }
    (void)take_dpdk_log();
    const QuietBpf quiet;
    if (port->start(spec, error) != 0) return nullptr;
    return port;
}

int DpdkPort::probe(const DpdkPortSpec& spec) {
    static std::atomic<unsigned> next{0};
    const std::uint16_t wanted = spec.mtu.value_or(mtu());
    const std::string name = fmt::format("{}{}", driver_->name, next++);
    if (int result = rte_eal_hotplug_add("vdev", name.c_str(), complete_arguments(spec.arguments, wanted).c_str())) {
        return -result;
    }
    if (rte_eth_dev_get_port_by_name(name.c_str(), &id_) != 0) {
        (void)rte_eal_hotplug_remove("vdev", name.c_str());
        return ENODEV;
    }
    name_ = name;
    ring_mtu_ = driver_->largest_mtu;
    if (!driver_->page_sized_buffers && wanted <= small_ring_mtu) ring_mtu_ = small_ring_mtu;
    return 0;
}

int DpdkPort::start(const DpdkPortSpec& spec, std::string& error) {
    const std::vector<int> before = open_descriptors();
    const auto failed = [&](std::string_view step, int result) {
        const std::string log = take_dpdk_log();
        error = fmt::format("{}: {}: {}{}{}", spec.arguments, step, rte_strerror(result), log.empty() ? "" : ": ", log);
        return result;
    };
    if (!interface_.empty()) {
        ifreq request{};
        if (interface_request(control_socket_, SIOCGIFFLAGS, interface_, request) == 0 &&
            (request.ifr_flags & IFF_UP) == 0) {
            request.ifr_flags |= IFF_UP;
            (void)interface_request(control_socket_, SIOCSIFFLAGS, interface_, request);
        }
    }
    if (int result = probe(spec)) return failed("no DPDK device", result);
    rte_mempool* pool = ring_mtu_ > small_ring_mtu ? spec.memory.jumbo : spec.memory.small;
    if (driver_->page_sized_buffers) {
        own_pool_ = make_mempool(
            {.name = name_, .length = xdp_buffers, .room = xdp_room, .packing = Packing::within_pages}, error);
        if (!own_pool_) return ENOMEM;
        pool = own_pool_.get();
    }
    rte_eth_conf configuration{};
    if (int result = rte_eth_dev_configure(id_, 1, 1, &configuration)) return failed("not configured", -result);
    if (int result = rte_eth_rx_queue_setup(id_, 0, queue_length, SOCKET_ID_ANY, nullptr, pool)) {
        return failed("no receive queue", -result);
    }
    if (int result = rte_eth_tx_queue_setup(id_, 0, queue_length, SOCKET_ID_ANY, nullptr)) {
        return failed("no transmit queue", -result);
    }
    if (int result = rte_eth_dev_start(id_)) return failed("not started", -result);
    started_ = true;
    (void)rte_eth_promiscuous_enable(id_);  // drivers without it receive everything
    find_wake_sockets(before);
    return 0;
}

void DpdkPort::find_wake_sockets(const std::vector<int>& before) {
    if (driver_->wake_family == 0) return;
    const unsigned index = if_nametoindex(interface_.c_str());
    for (const int descriptor : open_descriptors()) {
        if (std::binary_search(before.begin(), before.end(), descriptor)) continue;
        if (!wakes_for(descriptor, driver_->wake_family, index)) continue;
        wake_sockets_.push_back(descriptor);
        // The driver leaves its sockets to child processes, which would hold on to the interface.
        (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
        if (driver_->wake_family == AF_PACKET) ignore_outgoing(descriptor);
    }
}

bool DpdkPort::link_up() const noexcept {
    if (!interface_.empty()) {
        ifreq request{};
        return interface_request(control_socket_, SIOCGIFFLAGS, interface_, request) == 0 &&
               (request.ifr_flags & IFF_RUNNING) != 0 && (request.ifr_flags & IFF_UP) != 0;
    }
    rte_eth_link link{};
    return rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

std::uint16_t DpdkPort::mtu() const noexcept {
    ifreq request{};
    if (interface_.empty() || interface_request(control_socket_, SIOCGIFMTU, interface_, request) != 0) return 1500;
    return static_cast<std::uint16_t>(std::clamp<int>(request.ifr_mtu, min_mtu, driver_->largest_mtu));
}

int DpdkPort::set_mtu(std::uint16_t mtu) noexcept {
    if (mtu > driver_->largest_mtu) return EINVAL;
    if (!fits(mtu)) return ERANGE;
    if (interface_.empty()) return 0;
    ifreq request{};
    request.ifr_mtu = mtu;
    return interface_request(control_socket_, SIOCSIFMTU, interface_, request);
}

}  // namespace ovsdr::soft
