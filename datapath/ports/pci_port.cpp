#include "datapath/ports/pci_port.hpp"

#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_vfio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "datapath/ports/descriptors.hpp"
#include "datapath/ports/eal.hpp"

// device_removal.c
extern "C" int ovsdr_watch_removal(const char* device, rte_dev_event_cb_fn removed, void* told);
extern "C" void ovsdr_forget_removal(const char* device, rte_dev_event_cb_fn removed, void* told);

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t queue_length = 1024;

// Beside what the MTU counts a frame may have two VLAN tags, for which not every driver makes room.
constexpr unsigned room_for_tags = 2 * 4;

// The shortest frame that every device takes, and the shortest on a wire, without its checksum.
constexpr std::uint32_t least_taken = 17, least_on_wire = 60;

// Buffers of a port that has its own: those in the rings, and as many under way.
constexpr unsigned buffers_per_queue = 2 * queue_length;

constexpr std::uint64_t rss_fields = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP;

// The device is gone, or its host has reset it.
constexpr rte_eth_event_type port_events[] = {RTE_ETH_EVENT_INTR_RMV, RTE_ETH_EVENT_INTR_RESET};

void append_log(std::string& error) {
    if (const std::string log = take_dpdk_log(); !log.empty()) error += ": " + log;
}

// DPDK's number of a device's port; of one with several wires the first's.
std::optional<std::uint16_t> port_of(std::string_view address) noexcept {
    std::uint16_t id;
    RTE_ETH_FOREACH_DEV(id) {
        rte_eth_dev_info info{};
        if (rte_eth_dev_info_get(id, &info) != 0 || info.device == nullptr) continue;
        if (address == rte_dev_name(info.device)) return id;
    }
    return std::nullopt;
}

// One with several wires has several of DPDK's ports, which must not outlive it.
void let_go(const PciFunction& function, const rte_device* device) noexcept {
    std::uint16_t id;
    if (device != nullptr) {
        RTE_ETH_FOREACH_DEV_OF(id, device) (void)rte_eth_dev_close(id);
    }
    (void)rte_eal_hotplug_remove("pci", function.address.c_str());
}

bool has_several_nodes() noexcept { return rte_socket_count() > 1 && rte_eal_has_hugepages() != 0; }

}  // namespace

std::uint16_t PciPort::Receiver::receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    auto& queue = *static_cast<Receiver*>(self);
    std::uint16_t received, kept = 0;
    do {  // a batch of which nothing is kept must not look as if nothing had come
        received = queue.burst(queue.queue, packets, length);
        for (std::uint16_t i = 0; i < received; ++i) {
            packets[i]->ol_flags &= RTE_MBUF_F_EXTERNAL | RTE_MBUF_F_INDIRECT;
            packets[i]->packet_type = 0;
            if (packets[i]->nb_segs > 1 && rte_pktmbuf_linearize(packets[i]) != 0) [[unlikely]] {
                rte_pktmbuf_free(packets[i]);
                queue.lost.store(queue.lost.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            } else {
                packets[kept++] = packets[i];
            }
        }
    } while (kept == 0 && received > 0);
    return kept;
}

std::uint16_t PciPort::Sender::send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    const auto& queue = *static_cast<const Sender*>(self);
    std::uint16_t ready = 0;
    for (; ready < length && queue.make_ready(packets[ready]); ++ready) {}
    return ready > 0 ? queue.burst(queue.queue, packets, ready) : std::uint16_t{0};
}

bool PciPort::Sender::make_ready(rte_mbuf*& packet) const noexcept {
    if (packet->pool != memory.small && packet->pool != memory.jumbo && packet->pool != own_pool) [[unlikely]] {
        rte_mempool* const pool = packet->pkt_len <= small_room ? memory.small : memory.jumbo;
        rte_mbuf* const copy = rte_pktmbuf_copy(packet, pool, 0, UINT32_MAX);
        if (copy == nullptr) return false;
        rte_pktmbuf_free(std::exchange(packet, copy));
    }
    if (packet->pkt_len >= least_taken) [[likely]] return true;
    const auto missing = static_cast<std::uint16_t>(least_on_wire - packet->pkt_len);
    if (char* end = rte_pktmbuf_append(packet, missing)) std::memset(end, 0, missing);
    return true;
}

PciPort::PciPort(const PortSpec& spec, const Driver& driver)
    : Port(driver), changed_(spec.changed), memory_(spec.memory) {}

PciPort::~PciPort() {
    forget_device();
    if (started_) (void)rte_eth_dev_stop(id_);
    if (probed_) let_go(function_, info_.device);
    for (const int edge : edges_) close(edge);
}

std::unique_ptr<Port> PciPort::open(const PortSpec& spec, const Driver& driver, std::string& error) {
    std::unique_ptr<PciPort> port(new PciPort(spec, driver));
    const std::string address = spec.arguments.substr(0, spec.arguments.find(','));
    const auto function = read_pci_function(address);
    std::string problem = "there is no such device";
    if (function) problem = pci_problem(*function, rte_eal_iova_mode() == RTE_IOVA_PA);
    if (!problem.empty()) {
        error = fmt::format("{}: {}", address, problem);
        return nullptr;
    }
    port->function_ = *function;
    (void)take_dpdk_log();
    int result = port->probe(problem);
    if (result == 0) result = port->choose_mtu(spec, problem);
    if (result == 0) result = port->choose_queues(spec, problem);
    if (result == 0) result = port->make_memory(spec, problem);
    if (result == 0) result = port->start(problem);
    if (result == 0) return port;
    error = fmt::format("{}: {}", address, problem);
    return nullptr;
}

// The address goes onto the bus's list of allowed devices, and stays there until the device is let go of.
int PciPort::probe(std::string& error) {
    const CloseOnExec close_on_exec;
    // EAL found no vfio when it started, but it may be there now.
    if (function_.kernel_driver == "vfio-pci" && rte_vfio_is_enabled("vfio") == 0) (void)rte_vfio_enable("vfio");
    const char* const address = function_.address.c_str();
    // DPDK frees what it knows of a device that is probed a second time.
    if (port_of(address)) {
        error = "another port has it";
        return EEXIST;
    }
    if (const int result = -rte_eal_hotplug_add("pci", address, ""); result != 0) {
        if (result == ENOTSUP) {
            error = fmt::format("no driver of DPDK's that is built in takes {:04x}:{:04x}", function_.vendor,
                                function_.device);
        } else {
            error = fmt::format("DPDK's driver does not start: {}", rte_strerror(result));
            append_log(error);
        }
        return result;
    }
    const std::optional<std::uint16_t> id = port_of(address);
    if (!id || rte_eth_dev_info_get(*id, &info_) != 0) {
        let_go(function_, id ? info_.device : nullptr);
        error = "DPDK's driver makes no Ethernet port of it";
        return ENODEV;
    }
    id_ = *id;
    probed_ = true;
    rte_ether_addr own{};
    if (rte_eth_macaddr_get(id_, &own) == 0) {
        std::copy(std::begin(own.addr_bytes), std::end(own.addr_bytes), mac_.begin());
    }
    return 0;
}

int PciPort::choose_mtu(const PortSpec& spec, std::string& error) {
    mtu_ = spec.mtu.value_or(std::min<std::uint16_t>(mtu_, info_.max_mtu));
    if (mtu_ <= info_.max_mtu && mtu_ >= info_.min_mtu) return 0;
    error = fmt::format("mtu {}: the device has {} to {} ({})", mtu_, info_.min_mtu, info_.max_mtu, info_.driver_name);
    return EINVAL;
}

int PciPort::choose_queues(const PortSpec& spec, std::string& error) {
    const unsigned most = std::max<unsigned>(info_.max_rx_queues, 1);
    const unsigned wanted = number_argument(spec.arguments, "queues", std::min(spec.workers, most));
    receivers_ = static_cast<std::uint16_t>(wanted);
    senders_ = static_cast<std::uint16_t>(std::min<unsigned>(spec.workers, std::max<unsigned>(info_.max_tx_queues, 1)));
    // The host spreads over as many queues as the larger number says, also over those that nobody receives by.
    if (info_.driver_name == std::string_view("net_virtio")) senders_ = std::min(senders_, receivers_);
    chooses_queues_ = dpdk_argument(spec.arguments, "queues").empty();
    receive_length_ = send_length_ = queue_length;
    if (const int result = -rte_eth_dev_adjust_nb_rx_tx_desc(id_, &receive_length_, &send_length_); result != 0) {
        error = fmt::format("the lengths of its queues are not known: {}", rte_strerror(result));
        return result;
    }
    if (wanted <= most) return 0;
    error = fmt::format("queues={}: the device has {} ({})", wanted, most, info_.driver_name);
    return EINVAL;
}

int PciPort::make_memory(const PortSpec& spec, std::string& error) {
    pool_ = choose_memory(spec.memory, mtu_);
    const int node = rte_eth_dev_socket_id(id_);
    const bool is_small = pool_ == spec.memory.small;
    buffer_mtu_ = mtu_;  // what the device is told to take
    if (node < 0 || !has_several_nodes()) return check_memory(error);
    own_pool_ = make_mempool({.name = "pci-" + function_.address,
                              .length = buffers_per_queue * (receivers_ + senders_),
                              .room = is_small ? small_room : jumbo_room,
                              .node = node},
                             error);
    if (!own_pool_) {
        error = fmt::format("the device is on NUMA node {}: {}; there must be hugepages on that node "
                            "(/sys/devices/system/node/node{}/hugepages)",
                            node, error, node);
        return ENOMEM;
    }
    pool_ = own_pool_.get();
    return 0;
}

// Of the buffers that all ports share. A driver that finds none to receive into says little, or nothing.
int PciPort::check_memory(std::string& error) {
    const unsigned needed = receivers_ * receive_length_ + senders_ * send_length_;
    const unsigned left = rte_mempool_avail_count(pool_);
    if (needed <= left) return 0;
    error = fmt::format("its queues may hold {} buffers of {} KB, and {} are left: raise memory_mb, or lower mtu or "
                        "queues",
                        needed, rte_pktmbuf_data_room_size(pool_) / 1024, left);
    return ENOMEM;
}

// net_e1000_em tells of nothing by the interrupts of the one device that has MSI-X, the 82574.
bool PciPort::can_interrupt() const noexcept {
    return function_.has_msix && function_.kernel_driver == "vfio-pci" &&
           info_.driver_name != std::string_view("net_e1000_em");
}

int PciPort::start(std::string& error) {
    std::string step;
    // Not every driver that has interrupts has them with every device.
    receive_interrupt_ = can_interrupt();
    int result = configure(step);
    if (result != 0 && receive_interrupt_) {
        receive_interrupt_ = false;
        result = configure(step);
    }
    // Some devices spread over powers of two only.
    if (result != 0 && chooses_queues_ && !std::has_single_bit(receivers_)) {
        receivers_ = std::bit_floor(receivers_);
        receive_interrupt_ = can_interrupt();
        result = configure(step);
    }
    if (result != 0) {
        error = fmt::format("{}: {}", step, rte_strerror(result));
        append_log(error);
        return result;
    }
    (void)rte_eth_allmulticast_enable(id_);
    // Some devices of clouds cannot: they get what is for their own address.
    if (result = -rte_eth_promiscuous_enable(id_); result != 0 && result != ENOTSUP) {
        error = fmt::format("it may not receive what is for other addresses than its own (promiscuous mode): {}",
                            rte_strerror(result));
        append_log(error);
        return result;
    }
    connect();
    result = watch_device();
    if (result != 0) error = fmt::format("no events of the device: {}", rte_strerror(result));
    return result;
}

int PciPort::configure(std::string& step) {
    rte_eth_conf configuration{};
    const std::uint64_t fields = info_.flow_type_rss_offloads & rss_fields;
    if (receivers_ > 1 && fields != 0) {
        configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        configuration.rx_adv_conf.rss_conf.rss_hf = fields;
    }
    configuration.rxmode.mtu = std::min<unsigned>(mtu_ + room_for_tags, info_.max_mtu);
    configuration.intr_conf.rxq = receive_interrupt_ ? 1 : 0;
    step = "not configured";
    if (const int result = rte_eth_dev_configure(id_, receivers_, senders_, &configuration)) return -result;
    const int node = has_several_nodes() ? rte_eth_dev_socket_id(id_) : SOCKET_ID_ANY;
    step = "no receive queue";
    for (std::uint16_t queue = 0; queue < receivers_; ++queue) {
        const int result = rte_eth_rx_queue_setup(id_, queue, receive_length_, node, nullptr, pool_);
        if (result != 0) return -result;
    }
    step = "no transmit queue";
    for (std::uint16_t queue = 0; queue < senders_; ++queue) {
        if (const int result = rte_eth_tx_queue_setup(id_, queue, send_length_, node, nullptr)) return -result;
    }
    step = "not started";
    if (const int result = rte_eth_dev_start(id_)) return -result;
    started_ = true;
    if (!receive_interrupt_) return 0;
    step = "no wake-up by the receive queues";
    const int result = watch_receive_interrupts();
    if (result == 0) return 0;
    (void)rte_eth_dev_stop(id_);
    started_ = false;
    return result;
}

// As in dpdk_port.cpp: the interrupt stays visible in its descriptor until somebody reads it, which nobody does. As an
// edge of our own epoll descriptor each is seen once.
int PciPort::watch_receive_interrupts() {
    for (const int edge : std::exchange(edges_, {})) close(edge);  // of a try that failed
    for (std::uint16_t queue = 0; queue < receivers_; ++queue) {
        const int source = rte_eth_dev_rx_intr_ctl_q_get_fd(id_, queue);
        if (source < 0) return ENODEV;
        const int edge = epoll_create1(EPOLL_CLOEXEC);
        if (edge < 0) return errno;
        edges_.push_back(edge);
        epoll_event event{};
        event.events = EPOLLIN | EPOLLET;
        if (epoll_ctl(edge, EPOLL_CTL_ADD, source, &event) != 0) return errno;
        // A driver that cannot turn it on has none.
        if (const int result = rte_eth_dev_rx_intr_enable(id_, queue)) return -result;
        (void)rte_eth_dev_rx_intr_disable(id_, queue);
    }
    return 0;
}

int PciPort::on_port_event(std::uint16_t, rte_eth_event_type, void* self, void*) noexcept {
    auto& port = *static_cast<PciPort*>(self);
    port.lost_.store(true);
    port.changed_();
    return 0;
}

// The kernel asks again and again until the device has been let go of.
void PciPort::on_device_event(const char*, rte_dev_event_type type, void* self) noexcept {
    auto& port = *static_cast<PciPort*>(self);
    if (type != RTE_DEV_EVENT_REMOVE || port.lost_.exchange(true)) return;
    port.changed_();
}

int PciPort::watch_device() {
    for (const rte_eth_event_type type : port_events) {
        if (int result = rte_eth_dev_callback_register(id_, type, on_port_event, this)) return -result;
    }
    return -ovsdr_watch_removal(function_.address.c_str(), on_device_event, this);
}

void PciPort::forget_device() noexcept {
    if (!probed_) return;
    ovsdr_forget_removal(function_.address.c_str(), on_device_event, this);
    for (const rte_eth_event_type type : port_events) {
        while (rte_eth_dev_callback_unregister(id_, type, on_port_event, this) == -EAGAIN) std::this_thread::yield();
    }
}

// Packets pass through DPDK's own functions, as rte_eth_rx_burst() would call them, and through ours.
void PciPort::connect() {
    const struct rte_eth_fp_ops& functions = rte_eth_fp_ops[id_];
    receiving_ = std::make_unique<Receiver[]>(receivers_);
    sending_ = std::make_unique<Sender[]>(senders_);
    std::vector<PortReceiveQueue> from;
    for (std::uint16_t queue = 0; queue < receivers_; ++queue) {
        PortReceiveQueue& added = from.emplace_back();
        receiving_[queue].burst = functions.rx_pkt_burst;
        receiving_[queue].queue = functions.rxq.data[queue];
        added.receive = Receiver::receive;
        added.queue = &receiving_[queue];
        if (receive_interrupt_) added.wake_sources = {{.descriptor = edges_[queue], .is_epoll = true}};
    }
    std::vector<PortSendQueue> to;
    for (std::uint16_t queue = 0; queue < senders_; ++queue) {
        sending_[queue] = {.burst = functions.tx_pkt_burst,
                           .queue = functions.txq.data[queue],
                           .memory = memory_,
                           .own_pool = own_pool_.get()};
        to.push_back({.send = Sender::send, .queue = &sending_[queue]});
    }
    set_queues(std::move(from), std::move(to));
}

void PciPort::arm(unsigned queue) noexcept {
    if (receive_interrupt_) (void)rte_eth_dev_rx_intr_enable(id_, static_cast<std::uint16_t>(queue));
}

void PciPort::disarm(unsigned queue) noexcept {
    if (receive_interrupt_) (void)rte_eth_dev_rx_intr_disable(id_, static_cast<std::uint16_t>(queue));
}

// With interrupts for it DPDK would tell what the last one said, and with some devices none comes.
bool PciPort::link_up() const noexcept {
    rte_eth_link link{};
    return rte_eth_link_get_nowait(id_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

std::uint32_t PciPort::speed() const noexcept {
    rte_eth_link link{};
    const bool known = rte_eth_link_get_nowait(id_, &link) == 0 && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN;
    return known ? link.link_speed : 0;
}

// Frames up to the MTU that the device was started with come in; what is above a smaller one is dropped by the vport.
int PciPort::set_mtu(std::uint16_t mtu) noexcept {
    if (int result = Port::set_mtu(mtu)) return result;
    mtu_ = mtu;
    return 0;
}

std::uint64_t PciPort::overruns() noexcept {
    std::uint64_t lost = 0;
    for (std::uint16_t queue = 0; receiving_ && queue < receivers_; ++queue) {
        lost += receiving_[queue].lost.load(std::memory_order_relaxed);
    }
    rte_eth_stats told{};
    return rte_eth_stats_get(id_, &told) == 0 ? lost + told.imissed + told.rx_nombuf : lost;
}

}  // namespace ovsdr::soft
