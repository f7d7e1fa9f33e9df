#include "datapath/ports/dpdk_port.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <rte_errno.h>
#include <rte_eth_vhost.h>
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
#include <initializer_list>
#include <iterator>
#include <thread>

#include "datapath/ports/descriptors.hpp"
#include "datapath/ports/eal.hpp"
#include "datapath/ports/xdp_umem.h"

namespace ovsdr::soft {
namespace {

// A worker is in DPDK's interrupt functions for less than a microsecond; this bounds a wait that ought to be none.
constexpr auto longest_arming = std::chrono::milliseconds(100);

// VIRTIO_NET_F_GUEST_CSUM, GUEST_TSO4 and 6: the guest takes packets without checksum, and joined ones. virtio 1.2,
// 5.1.3; Linux's header is none for C++.
constexpr std::uint64_t guest_csum = 1ULL << 1, guest_tso4 = 1ULL << 7, guest_tso6 = 1ULL << 8;

// AF_XDP: the buffers of one queue, in one piece of memory that the kernel pins: 2048 in the fill ring, 1024 in either
// direction's, the others under way.
constexpr unsigned xdp_buffers = 5119;
constexpr std::uint16_t xdp_room = 3456;

// The kernel lets go of a queue some time after its socket is closed (EBUSY, which the driver calls EINVAL): a port
// that is opened anew waits for that, for a fifth of a second at most.
constexpr unsigned xdp_tries = 20;
constexpr auto between_xdp_tries = std::chrono::milliseconds(10);

// AF_XDP sockets do not say what they are bound to.
bool has_family(int descriptor, int family) {
    int domain = 0;
    socklen_t size = sizeof domain;
    return getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == family;
}

// Without the driver's name.
std::string_view options_of(std::string_view arguments) noexcept {
    const auto comma = arguments.find(',');
    return comma == std::string_view::npos ? std::string_view() : arguments.substr(comma + 1);
}

// The driver's arguments without those that are ours: "key=".
std::string arguments_without(std::string_view arguments, std::initializer_list<std::string_view> ours) {
    std::string result;
    for (std::string_view rest = options_of(arguments); !rest.empty();) {
        const std::string_view item = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), item.size() + 1));
        if (std::ranges::any_of(ours, [item](std::string_view key) { return item.starts_with(key); })) continue;
        fmt::format_to(std::back_inserter(result), "{}{}", result.empty() ? "" : ",", item);
    }
    return result;
}

// For one queue of the interface, with what the operator left to us.
std::string xdp_arguments(std::string_view arguments, unsigned queue) {
    std::string result = fmt::format("start_queue={},queue_count=1,{}", queue,
                                     arguments_without(arguments, {"start_queue=", "queue_count="}));
    // Preferred busy polling would make a system call of every empty poll, and cannot sleep.
    if (dpdk_argument(arguments, "busy_budget").empty()) result += ",busy_budget=0";
    return result;
}

// The sockets of a family that were not there `before`.
std::vector<WakeSource> new_sockets(int family, const std::vector<int>& before) {
    std::vector<WakeSource> sources;
    for (const int descriptor : open_descriptors()) {
        if (std::binary_search(before.begin(), before.end(), descriptor)) continue;
        if (!has_family(descriptor, family)) continue;
        sources.push_back({.descriptor = descriptor, .is_epoll = false});
        // The driver leaves its sockets to child processes, which would hold on to the interface.
        (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    }
    return sources;
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

// The XDP program of an interface, where it is neither libxdp's nor what libxdp puts in front of several: net_af_xdp
// would take it away.
std::string foreign_program(const std::string& interface) {
    std::uint32_t id = 0;
    if (bpf_xdp_query_id(static_cast<int>(if_nametoindex(interface.c_str())), 0, &id) != 0 || id == 0) return {};
    bpf_prog_info info{};
    std::uint32_t size = sizeof info;
    const int descriptor = bpf_prog_get_fd_by_id(id);
    const bool known = descriptor >= 0 && bpf_obj_get_info_by_fd(descriptor, &info, &size) == 0;
    if (descriptor >= 0) close(descriptor);
    const std::string_view name = known ? info.name : "?";
    return name == "xsk_def_prog" || name == "xdp_dispatcher" ? std::string() : std::string(name);
}

bool has_link(std::uint16_t id) noexcept {
    rte_eth_link link{};
    return rte_eth_link_get_nowait(id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
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
    drop_devices();
    for (const int descriptor : kicks_) close(descriptor);
}

void DpdkPort::drop_devices() noexcept {
    devices_.clear();
    for (xsk_umem* umem : umems_) ovsdr_delete_xdp_umem(umem);
    umems_.clear();
    own_pools_.clear();
}

std::unique_ptr<Port> DpdkPort::open(const PortSpec& spec, const Driver& driver, std::string& error) {
    std::unique_ptr<DpdkPort> port(new DpdkPort(spec, driver));
    if (port->interface_ && port->interface_->prepare(spec.mtu, error) != 0) return nullptr;
    (void)take_dpdk_log();
    const QuietBpf quiet;
    if (port->start(spec, error) != 0) return nullptr;
    return port;
}

int DpdkPort::start(const PortSpec& spec, std::string& error) {
    if (is_xdp()) {
        if (int result = check_xdp(spec, error)) return result;
    }
    rte_mempool* const pool = choose_memory(spec.memory, spec.mtu.value_or(mtu()));
    if (interface_) interface_->bring_up();
    if (driver_->backing == Backing::socket && dpdk_argument(spec.arguments, "client") != "1") {
        if (int result = take_socket(spec, std::string(dpdk_argument(spec.arguments, "iface")), error)) return result;
    }
    std::string step;
    const int result = is_xdp()     ? start_xdp(spec, step)
                       : is_vhost() ? start_vhost(spec, pool, step)
                                    : start_one(spec, pool, step);
    if (result == 0) return 0;
    const std::string log = take_dpdk_log();
    error = fmt::format("{}: {}: {}{}{}", spec.arguments, step, rte_strerror(result), log.empty() ? "" : ": ", log);
    return result;
}

// Of net_pcap one queue for each file to read, and as many to send by as there are workers, if the driver has as many.
// Of net_ring one: what is sent by a queue comes back by the one of the same number.
int DpdkPort::start_one(const PortSpec& spec, rte_mempool* pool, std::string& step) {
    step = "no DPDK device";
    EthDevice& device = add_device();
    if (int result = device.probe(*driver_, std::string(options_of(spec.arguments)))) return result;
    const EthDevice::Most most = device.most();
    const auto workers = static_cast<std::uint16_t>(driver_->name == "net_ring" ? 1 : spec.workers);
    const EthDevice::Setup setup{.receive_queues = driver_->name == "net_pcap" ? most.receive_queues : std::uint16_t{1},
                                 .send_queues = std::min(most.send_queues, workers),
                                 .pool = pool};
    if (int result = device.start(setup, step)) return result;
    std::vector<PortReceiveQueue> receive;
    std::vector<PortSendQueue> send;
    for (unsigned i = 0; i < setup.receive_queues; ++i) receive.push_back(device.receive_queue(i));
    for (unsigned i = 0; i < setup.send_queues; ++i) send.push_back(device.send_queue(i));
    set_queues(std::move(receive), std::move(send));
    return 0;
}

int DpdkPort::start_vhost(const PortSpec& spec, rte_mempool* pool, std::string& step) {
    const unsigned queues = number_argument(spec.arguments, "queues", 1);
    arming_ = std::make_unique<Arming[]>(queues);
    guest_listens_.resize(queues);
    step = "no DPDK device";
    EthDevice& device = add_device();
    if (int result = device.probe(*driver_, arguments_without(spec.arguments, {"gro="}))) return result;
    // The offloads: or the driver would make checksums itself, of the outermost headers only.
    if (int result = device.start({.receive_queues = static_cast<std::uint16_t>(queues),
                                   .send_queues = static_cast<std::uint16_t>(queues),
                                   .pool = pool,
                                   .interrupts = true,
                                   .receive_offloads = RTE_ETH_RX_OFFLOAD_TCP_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM},
                                  step)) {
        return result;
    }
    std::vector<PortReceiveQueue> receive;
    std::vector<PortSendQueue> send;
    for (unsigned queue = 0; queue < queues; ++queue) {
        if (int result = watch_kicks(queue, step)) return result;
        receivers_.push_back(std::make_unique<VhostReceiver>(device.receive_queue(queue), pool));
        receive.push_back({.receive = VhostReceiver::receive,
                           .queue = receivers_.back().get(),
                           .wake_sources = {{.descriptor = kicks_.back(), .is_epoll = true}},
                           .most = batch_length});
        send.push_back(device.send_queue(queue));
        if (number_argument(spec.arguments, "gro", 1) == 0) continue;
        senders_.push_back(std::make_unique<VhostSender>(send.back(), pool));
        send.back() = {.send = VhostSender::send, .queue = senders_.back().get()};
    }
    set_queues(std::move(receive), std::move(send));
    send_queues_vary_ = queues > 1;
    return watch_guest(step);
}

// DPDK's descriptor is an epoll one, in which a kick stays visible until somebody reads it, which nobody does: as an
// edge of our own epoll descriptor each kick is seen once.
int DpdkPort::watch_kicks(unsigned queue, std::string& step) {
    step = "no wake-up by the receive queue";
    const int source = rte_eth_dev_rx_intr_ctl_q_get_fd(device_id(), static_cast<std::uint16_t>(queue));
    if (source < 0) return ENODEV;
    const int kicks = epoll_create1(EPOLL_CLOEXEC);
    if (kicks < 0) return errno;
    kicks_.push_back(kicks);
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    return epoll_ctl(kicks, EPOLL_CTL_ADD, source, &event) == 0 ? 0 : errno;
}

// The callbacks go with the device. A guest may have been there before them.
int DpdkPort::watch_guest(std::string& step) {
    step = "no news of the guest";
    const auto callback = [](std::uint16_t id, rte_eth_event_type type, void* self, void*) noexcept {
        static_cast<DpdkPort*>(self)->guest_changed(id, type == RTE_ETH_EVENT_INTR_LSC && !has_link(id));
        return 0;
    };
    for (const rte_eth_event_type type : {RTE_ETH_EVENT_INTR_LSC, RTE_ETH_EVENT_QUEUE_STATE}) {
        if (int result = rte_eth_dev_callback_register(device_id(), type, callback, this)) return -result;
    }
    count_guest_queues(device_id(), false);
    learn_what_guest_takes(device_id(), false);
    return 0;
}

// A guest has come, gone, or turned a queue on or off. Workers must arm anew.
void DpdkPort::guest_changed(std::uint16_t id, bool gone) noexcept {
    count_guest_queues(id, gone);
    learn_what_guest_takes(id, gone);
    // Only what has gone is freed. Of other news DPDK tells while it holds what arm() waits for.
    const auto end = std::chrono::steady_clock::now() + longest_arming;
    for (unsigned queue = 0; gone && queue < guest_listens_.size(); ++queue) {
        while (arming_[queue].now.load() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    }
    changed_();
}

// The driver tells each change of a queue once, but not that a guest that has gone left them all. A guest may turn
// queues on before its link is up.
void DpdkPort::count_guest_queues(std::uint16_t id, bool gone) noexcept {
    const std::lock_guard lock(guest_mutex_);
    if (gone) std::fill(guest_listens_.begin(), guest_listens_.end(), false);
    rte_eth_vhost_queue_event event{};
    while (rte_eth_vhost_get_queue_event(id, &event) == 0) {
        if (!event.rx && event.queue_id < guest_listens_.size()) guest_listens_[event.queue_id] = event.enable;
    }
    const auto none = std::find(guest_listens_.begin(), guest_listens_.end(), false);
    const auto usable = static_cast<unsigned>(none - guest_listens_.begin());
    usable_send_queues_.store(std::max(usable, 1U), std::memory_order_relaxed);
}

void DpdkPort::learn_what_guest_takes(std::uint16_t id, bool gone) noexcept {
    std::uint64_t features = 0;
    const int guest = gone ? -1 : rte_eth_vhost_get_vid_from_port_id(id);
    if (guest < 0 || rte_vhost_get_negotiated_features(guest, &features) != 0) features = 0;
    // Joined packets have no checksum. DPDK lets a guest ask for them alone.
    if ((features & guest_csum) == 0) features = 0;
    const unsigned families = ((features & guest_tso4) != 0 ? VhostSender::joins_ipv4 : 0) |
                              ((features & guest_tso6) != 0 ? VhostSender::joins_ipv6 : 0);
    for (const auto& sender : senders_) sender->set_joins(families);
}

void DpdkPort::arm(unsigned queue) noexcept {
    if (!arming_) return;
    arming_[queue].now.store(true);
    (void)rte_eth_dev_rx_intr_enable(device_id(), static_cast<std::uint16_t>(queue));
    arming_[queue].now.store(false);
}

void DpdkPort::disarm(unsigned queue) noexcept {
    if (!arming_) return;
    arming_[queue].now.store(true);
    (void)rte_eth_dev_rx_intr_disable(device_id(), static_cast<std::uint16_t>(queue));
    arming_[queue].now.store(false);
}

// What a port on an interface by AF_XDP cannot do is said before anything is touched.
int DpdkPort::check_xdp(const PortSpec& spec, std::string& error) {
    int mtu = 0;
    const std::string& name = interface_->name();
    if (interface_->mtu(mtu) == 0 && mtu > driver_->largest_mtu) {
        error = fmt::format(
            "iface={} has an MTU of {}, and net_af_xdp carries at most {}: a packet has to fit into a page of memory; "
            "set the interface's MTU, or option mtu, or take net_af_packet",
            name, mtu, driver_->largest_mtu);
        return EINVAL;
    }
    if (const std::string program = foreign_program(name); !program.empty()) {
        error = fmt::format(
            "iface={} has an XDP program, {}, and net_af_xdp needs its place: ip link set dev {} xdp off", name,
            program, name);
        return EBUSY;
    }
    interface_queues_ = interface_->receive_queues();
    const unsigned first = number_argument(spec.arguments, "start_queue", 0);
    const unsigned count =
        number_argument(spec.arguments, "queue_count", interface_queues_ - std::min(first, interface_queues_));
    if (first == 0 && count == interface_queues_) return 0;
    const bool beyond = first + count > interface_queues_ || count == 0;
    error = fmt::format(
        "start_queue={},queue_count={} {}; leave both options out, or give {} the number of queues "
        "that is wanted: ethtool -L",
        first, count,
        beyond
            ? fmt::format("is more than {} has, {} queue{}", name, interface_queues_, interface_queues_ == 1 ? "" : "s")
            : fmt::format("leaves out some of the {} queues that {} has, and what comes by those "
                          "would go past the switch",
                          interface_queues_, name),
        name);
    return EINVAL;
}

// The driver takes the XDP program away when a queue fails, from all of the interface: so all are tried again.
int DpdkPort::start_xdp(const PortSpec& spec, std::string& step) {
    buffer_mtu_ = driver_->largest_mtu;
    int result = start_xdp_queues(spec, step);
    for (unsigned tries = 1; result == EINVAL && tries < xdp_tries; ++tries) {
        drop_devices();
        std::this_thread::sleep_for(between_xdp_tries);
        result = start_xdp_queues(spec, step);
    }
    return result;
}

int DpdkPort::start_xdp_queues(const PortSpec& spec, std::string& step) {
    std::vector<PortReceiveQueue> receive;
    std::vector<PortSendQueue> send;
    for (unsigned queue = 0; queue < interface_queues_; ++queue) {
        const std::vector<int> before = open_descriptors();
        if (int result = start_xdp_queue(spec, queue, step)) return result;
        receive.push_back(devices_.back()->receive_queue(0));
        receive.back().wake_sources = new_sockets(driver_->wake_family, before);
        send.push_back(devices_.back()->send_queue(0));
    }
    set_queues(std::move(receive), std::move(send));
    return 0;
}

int DpdkPort::start_xdp_queue(const PortSpec& spec, unsigned queue, std::string& step) {
    EthDevice& device = add_device();
    step = "no DPDK device";
    if (int result = device.probe(*driver_, xdp_arguments(spec.arguments, queue))) return result;
    std::string cause;
    own_pools_.push_back(make_mempool(
        {.name = device.name(), .length = xdp_buffers, .room = xdp_room, .packing = Packing::within_pages}, cause));
    if (own_pools_.back()) {
        const xsk_umem* const before = ovsdr_last_xdp_umem();
        const int result = device.start({.pool = own_pools_.back().get()}, step);
        if (xsk_umem* const made = ovsdr_last_xdp_umem(); made != before) umems_.push_back(made);
        return result;
    }
    step = fmt::format("no packet memory for queue {} of {}, 21 MB (give memory_mb more, or the interface fewer "
                       "queues, ethtool -L): {}",
                       queue, interface_queues_, cause);
    return ENOMEM;
}

bool DpdkPort::lost() const noexcept {
    return is_xdp() && interface_->receive_queues() != interface_queues_;
}

std::uint64_t DpdkPort::overruns() noexcept {
    std::uint64_t lost = 0;
    for (const auto& receiver : receivers_) lost += receiver->lost();
    if (!is_xdp()) return lost;
    for (const PortReceiveQueue& queue : receive_queues()) {
        for (const WakeSource& source : queue.wake_sources) {
            xdp_statistics told{};
            socklen_t size = sizeof told;
            (void)getsockopt(source.descriptor, SOL_XDP, XDP_STATISTICS, &told, &size);
            lost += told.rx_dropped + told.rx_ring_full;
        }
    }
    return lost;
}

bool DpdkPort::link_up() const noexcept {
    return interface_ ? interface_->running() : has_link(device_id());
}

std::uint32_t DpdkPort::speed() const noexcept {
    rte_eth_link link{};
    const bool known = rte_eth_link_get_nowait(device_id(), &link) == 0 && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN;
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
