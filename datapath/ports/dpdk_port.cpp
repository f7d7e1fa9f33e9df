#include "datapath/ports/dpdk_port.hpp"

#include <bpf/libbpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xdp/libxdp.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <thread>

#include "datapath/ports/eal.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t queue_length = 1024;

// A worker is in DPDK's interrupt functions for less than a microsecond; this bounds a wait that ought to be none.
constexpr auto longest_arming = std::chrono::milliseconds(100);

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

// The driver hands its ring to the kernel once per batch. What the kernel does not take then, because the packets
// before are still on their way and fill the socket's share of memory, would wait for the next batch: room for all of
// the ring.
void make_room_to_send(int descriptor) noexcept {
    constexpr int room = 64 << 20;
    (void)setsockopt(descriptor, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
}

void add_argument(std::string& arguments, std::string_view key, unsigned value) {
    if (dpdk_argument(arguments, key).empty()) fmt::format_to(std::back_inserter(arguments), ",{}={}", key, value);
}

// Packets that either ring of an AF_PACKET port holds. A worker that waits for its turn on a busy host is away for some
// ten milliseconds; what comes then must fit, and of RoCE most: its unreliable services send nothing again. The kernel
// has the rings in memory from the start.
unsigned packet_ring_length(bool jumbo, bool roce) { return (jumbo ? 1024 : 2048) * (roce ? 4 : 1); }

// The driver's arguments with what the operator left to us.
std::string complete_arguments(const PortSpec& spec, bool jumbo) {
    const std::string& given = spec.arguments;
    std::string arguments = given;
    if (given.starts_with("net_af_packet")) {
        // Frames must not straddle blocks, and blocks are whole pages: 20480 is two jumbo frames and five pages.
        add_argument(arguments, "framesz", jumbo ? 10240 : 2048);
        add_argument(arguments, "blocksz", jumbo ? 20480 : 4096);
        add_argument(arguments, "framecnt", packet_ring_length(jumbo, spec.roce));
        // The driver's own default goes past the interface's queueing discipline, and past tcpdump on the interface,
        // which is where operators look. What that would save: docs/performance.md.
        add_argument(arguments, "qdisc_bypass", 0);
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

// Packets pass through DPDK's own functions, as rte_eth_rx_burst() would call them.
PacketIo packet_io(std::uint16_t id) noexcept {
    const struct rte_eth_fp_ops& functions = rte_eth_fp_ops[id];
    return {.receive = functions.rx_pkt_burst,
            .send = functions.tx_pkt_burst,
            .receive_queue = functions.rxq.data[0],
            .send_queue = functions.txq.data[0]};
}

// A server's socket: nobody else may serve it, and one that was left behind is in the way.
int take_socket(const PortSpec& spec, const std::string& path, std::string& error) {
    const SocketLock lock(path);
    const int result = lock.error() != 0 ? lock.error() : free_socket_path(path, SOCK_STREAM);
    if (result != 0) error = fmt::format("{}: iface={}", spec.arguments, socket_problem(path, result));
    return result;
}

}  // namespace

DpdkPort::DpdkPort(const PortSpec& spec, const Driver& driver) : Port(driver), changed_(spec.changed) {
    if (driver.backing == Backing::interface) interface_.emplace(dpdk_argument(spec.arguments, "iface"));
}

DpdkPort::~DpdkPort() {
    const QuietBpf quiet;
    if (started_) (void)rte_eth_dev_stop(id_);
    if (!name_.empty()) {
        (void)rte_eth_dev_close(id_);
        (void)rte_eal_hotplug_remove("vdev", name_.c_str());
    }
    if (kicks_ >= 0) close(kicks_);
}

std::unique_ptr<Port> DpdkPort::open(const PortSpec& spec, const Driver& driver, std::string& error) {
    std::unique_ptr<DpdkPort> port(new DpdkPort(spec, driver));
    if (port->prepare_interface(spec, error) != 0) return nullptr;
    (void)take_dpdk_log();
    const QuietBpf quiet;
    if (port->start(spec, error) != 0) return nullptr;
    return port;
}

int DpdkPort::prepare_interface(const PortSpec& spec, std::string& error) {
    if (!interface_) return 0;
    if (if_nametoindex(interface_->name().c_str()) == 0) {
        error = fmt::format("there is no network interface \"{}\"", interface_->name());
        return ENODEV;
    }
    if (!spec.mtu) return 0;
    const int result = interface_->set_mtu(*spec.mtu);
    if (result != 0) {
        error = fmt::format("mtu {} cannot be set on {}: {}", *spec.mtu, interface_->name(), std::strerror(result));
    }
    return result;
}

int DpdkPort::probe(const PortSpec& spec) {
    static std::atomic<unsigned> next{0};
    const std::string name = fmt::format("{}{}", driver_->name, next++);
    const std::string arguments = complete_arguments(spec, buffer_mtu_ > small_buffer_mtu);
    if (int result = rte_eal_hotplug_add("vdev", name.c_str(), arguments.c_str())) return -result;
    if (rte_eth_dev_get_port_by_name(name.c_str(), &id_) != 0) {
        (void)rte_eal_hotplug_remove("vdev", name.c_str());
        return ENODEV;
    }
    name_ = name;
    return 0;
}

int DpdkPort::start(const PortSpec& spec, std::string& error) {
    const std::vector<int> before = open_descriptors();
    const auto failed = [&](std::string_view step, int result) {
        const std::string log = take_dpdk_log();
        error = fmt::format("{}: {}: {}{}{}", spec.arguments, step, rte_strerror(result), log.empty() ? "" : ": ", log);
        return result;
    };
    rte_mempool* pool = choose_memory(spec.memory, spec.mtu.value_or(mtu()));
    if (driver_->page_sized_buffers) buffer_mtu_ = driver_->largest_mtu;
    if (interface_) interface_->bring_up();
    const std::string path(dpdk_argument(spec.arguments, "iface"));
    if (driver_->backing == Backing::socket && dpdk_argument(spec.arguments, "client") != "1") {
        if (int result = take_socket(spec, path, error)) return result;
    }
    if (int result = probe(spec)) return failed("no DPDK device", result);
    if (driver_->page_sized_buffers) {
        own_pool_ = make_mempool(
            {.name = name_, .length = xdp_buffers, .room = xdp_room, .packing = Packing::within_pages}, error);
        if (!own_pool_) return ENOMEM;
        pool = own_pool_.get();
    }
    std::string step;
    if (int result = start_device(pool, step)) return failed(step, result);
    io_ = packet_io(id_);
    find_wake_sockets(before);
    return 0;
}

int DpdkPort::start_device(rte_mempool* pool, std::string& step) {
    rte_eth_conf configuration{};
    configuration.intr_conf.rxq = driver_->queue_interrupt ? 1 : 0;
    step = "not configured";
    if (int result = rte_eth_dev_configure(id_, 1, 1, &configuration)) return -result;
    step = "no receive queue";
    if (int result = rte_eth_rx_queue_setup(id_, 0, queue_length, SOCKET_ID_ANY, nullptr, pool)) return -result;
    step = "no transmit queue";
    if (int result = rte_eth_tx_queue_setup(id_, 0, queue_length, SOCKET_ID_ANY, nullptr)) return -result;
    step = "not started";
    if (int result = rte_eth_dev_start(id_)) return -result;
    started_ = true;
    (void)rte_eth_promiscuous_enable(id_);  // drivers without it receive everything
    step = "no wake-up by the receive queue";
    return driver_->queue_interrupt ? watch_queue_interrupt() : 0;
}

// DPDK's descriptor is an epoll one, in which a kick stays visible until somebody reads it, which nobody does: as an
// edge of our own epoll descriptor each kick is seen once.
int DpdkPort::watch_queue_interrupt() {
    const int source = rte_eth_dev_rx_intr_ctl_q_get_fd(id_, 0);
    if (source < 0) return ENODEV;
    kicks_ = epoll_create1(EPOLL_CLOEXEC);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    if (kicks_ < 0 || epoll_ctl(kicks_, EPOLL_CTL_ADD, source, &event) != 0) return errno;
    wake_sources_.push_back({.descriptor = kicks_, .is_epoll = true});
    // The callbacks go with the device.
    const auto callback = [](std::uint16_t, rte_eth_event_type, void* self, void*) noexcept {
        static_cast<DpdkPort*>(self)->guest_changed();
        return 0;
    };
    for (const rte_eth_event_type type : {RTE_ETH_EVENT_INTR_LSC, RTE_ETH_EVENT_QUEUE_STATE}) {
        if (int result = rte_eth_dev_callback_register(id_, type, callback, this)) return -result;
    }
    return 0;
}

// A guest has come, gone, or turned a queue on. The worker must arm anew.
void DpdkPort::guest_changed() noexcept {
    const auto end = std::chrono::steady_clock::now() + longest_arming;
    while (arming_.load() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    changed_();
}

void DpdkPort::arm() noexcept {
    arming_.store(true);
    (void)rte_eth_dev_rx_intr_enable(id_, 0);
    arming_.store(false);
}

void DpdkPort::disarm() noexcept {
    arming_.store(true);
    (void)rte_eth_dev_rx_intr_disable(id_, 0);
    arming_.store(false);
}

std::uint64_t DpdkPort::overruns() noexcept {
    if (driver_->wake_family == 0 || wake_sources_.empty()) return 0;
    const int descriptor = wake_sources_.front().descriptor;
    if (driver_->wake_family == AF_XDP) {
        xdp_statistics told{};
        socklen_t size = sizeof told;
        (void)getsockopt(descriptor, SOL_XDP, XDP_STATISTICS, &told, &size);
        return told.rx_dropped + told.rx_ring_full;
    }
    tpacket_stats told{};  // since they were last asked for
    socklen_t size = sizeof told;
    (void)getsockopt(descriptor, SOL_PACKET, PACKET_STATISTICS, &told, &size);
    return overruns_ += told.tp_drops;
}

void DpdkPort::find_wake_sockets(const std::vector<int>& before) {
    if (driver_->wake_family == 0) return;
    const unsigned index = if_nametoindex(interface_->name().c_str());
    for (const int descriptor : open_descriptors()) {
        if (std::binary_search(before.begin(), before.end(), descriptor)) continue;
        if (!wakes_for(descriptor, driver_->wake_family, index)) continue;
        wake_sources_.push_back({.descriptor = descriptor, .is_epoll = false});
        // The driver leaves its sockets to child processes, which would hold on to the interface.
        (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
        if (driver_->wake_family != AF_PACKET) continue;
        ignore_outgoing(descriptor);
        make_room_to_send(descriptor);
    }
}

bool DpdkPort::link_up() const noexcept {
    if (interface_) return interface_->running();
    rte_eth_link link{};
    return rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

std::uint32_t DpdkPort::speed() const noexcept {
    rte_eth_link link{};
    const bool known = rte_eth_link_get_nowait(id_, &link) == 0 && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN;
    return known ? link.link_speed : 0;
}

std::uint16_t DpdkPort::mtu() const noexcept {
    int mtu = 0;
    if (!interface_ || interface_->mtu(mtu) != 0) return Port::mtu();
    return static_cast<std::uint16_t>(std::clamp<int>(mtu, min_mtu, driver_->largest_mtu));
}

int DpdkPort::set_mtu(std::uint16_t mtu) noexcept {
    if (int result = Port::set_mtu(mtu)) return result;
    return interface_ ? interface_->set_mtu(mtu) : 0;
}

}  // namespace ovsdr::soft
