#include "datapath/ports/tap_port.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <rte_mbuf.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

namespace ovsdr::soft {
namespace {

constexpr const char* tun_device = "/dev/net/tun";
constexpr std::uint16_t usual_mtu = 1500;

constexpr unsigned offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
constexpr unsigned udp_offloads = 0x20 | 0x40;  // TUN_F_USO4 and 6, since Linux 6.2

int failed(std::string& error, std::string_view what, int cause) {
    error = fmt::format("net_tap: {}: {}", what, std::strerror(cause));
    return cause;
}

}  // namespace

TapPort::TapPort(const PortSpec& spec, const Driver& driver)
    : Port(driver), interface_(dpdk_argument(spec.arguments, "iface")) {}

TapPort::Receiver::Receiver(int from, rte_mempool* buffers)
    : descriptor(from),
      pool(buffers),
      incoming(static_cast<std::uint16_t>(rte_pktmbuf_data_room_size(buffers) - RTE_PKTMBUF_HEADROOM)) {}

TapPort::Receiver::~Receiver() {
    rte_pktmbuf_free(spare);
}

TapPort::~TapPort() {
    for (const int descriptor : descriptors_) close(descriptor);
}

std::unique_ptr<Port> TapPort::open(const PortSpec& spec, const Driver& driver, std::string& error) {
    std::unique_ptr<TapPort> port(new TapPort(spec, driver));
    if (port->make_interface(spec, error) != 0) return nullptr;
    port->make_queues(spec);
    return port;
}

// The first one makes the interface.
int TapPort::open_queue(bool several, std::string& error) {
    const std::string& name = interface_.name();
    const int descriptor = ::open(tun_device, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) return failed(error, tun_device, errno);
    descriptors_.push_back(descriptor);
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    // Somebody else's with several queues would take ours for further ones.
    const int exclusive = descriptors_.size() == 1 ? IFF_MULTI_QUEUE | IFF_TUN_EXCL : IFF_MULTI_QUEUE;
    request.ifr_flags = static_cast<short>(IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | (several ? exclusive : 0));
    if (ioctl(descriptor, TUNSETIFF, &request) != 0) {
        const int cause = errno;
        // EINVAL: it is there and is no tap, or one of the other kind. EBUSY: somebody else has it, or it is there.
        return failed(error,
                      fmt::format("iface={} cannot be made{}", name,
                                  cause == EINVAL || cause == EBUSY ? "; an interface of this name is there" : ""),
                      cause);
    }
    if (ioctl(descriptor, TUNSETOFFLOAD, offloads | udp_offloads) != 0 &&
        ioctl(descriptor, TUNSETOFFLOAD, offloads) != 0) {
        return failed(error, "no offload of checksums and segmentation", errno);
    }
    return 0;
}

int TapPort::make_interface(const PortSpec& spec, std::string& error) {
    const std::string& name = interface_.name();
    const unsigned queues = number_argument(spec.arguments, "queues", 1);
    for (unsigned queue = 0; queue < queues; ++queue) {
        if (int cause = open_queue(queues > 1, error)) return cause;
    }
    if (int cause = interface_.set_mac(spec.mac)) return failed(error, fmt::format("MAC of {}", name), cause);
    if (spec.mtu) {
        if (int cause = interface_.set_mtu(*spec.mtu))
            return failed(error, fmt::format("mtu {} of {}", *spec.mtu, name), cause);
    }
    interface_.bring_up();
    return 0;
}

void TapPort::make_queues(const PortSpec& spec) {
    rte_mempool* const pool = choose_memory(spec.memory, spec.mtu.value_or(usual_mtu));
    const bool joins = number_argument(spec.arguments, "gro", 1) != 0;
    std::vector<PortReceiveQueue> receive_queues;
    std::vector<PortSendQueue> send_queues;
    for (const int descriptor : descriptors_) {
        receivers_.push_back(std::make_unique<Receiver>(descriptor, pool));
        receive_queues.push_back({.receive = receive,
                                  .queue = receivers_.back().get(),
                                  .wake_sources = {{.descriptor = descriptor, .is_epoll = false}},
                                  .most = batch_length});
    }
    for (unsigned worker = 0; worker < spec.workers; ++worker) {
        const int descriptor = descriptors_[worker % descriptors_.size()];
        senders_.push_back(std::make_unique<Sender>(descriptor, joins));
        send_queues.push_back({.send = send, .queue = senders_.back().get()});
    }
    set_queues(std::move(receive_queues), std::move(send_queues));
}

std::uint64_t TapPort::overruns() noexcept {
    std::uint64_t sum = 0;
    for (const auto& receiver : receivers_) sum += receiver->lost.load(std::memory_order_relaxed);
    return sum;
}

// tun says POLLERR when its interface is gone, and POLLOUT while it is up.
short TapPort::state() const noexcept {
    pollfd polled{.fd = descriptors_.front(), .events = POLLOUT, .revents = 0};
    return poll(&polled, 1, 0) > 0 ? polled.revents : 0;
}

bool TapPort::link_up() const noexcept {
    return (state() & (POLLOUT | POLLERR)) == POLLOUT;
}

bool TapPort::lost() const noexcept {
    return (state() & POLLERR) != 0;
}

std::uint16_t TapPort::mtu() const noexcept {
    int mtu = usual_mtu;
    (void)interface_.mtu(mtu);  // one that was moved to another namespace: the usual
    return static_cast<std::uint16_t>(std::clamp<int>(mtu, min_mtu, driver_->largest_mtu));
}

int TapPort::set_mtu(std::uint16_t mtu) noexcept {
    if (int result = Port::set_mtu(mtu)) return result;
    return interface_.set_mtu(mtu);
}

std::uint16_t TapPort::receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    auto& from = *static_cast<Receiver*>(self);
    std::uint16_t received = 0;
    while (received < length) {
        if (received >= poll_length && !from.cut.more()) break;
        if (from.spare == nullptr) from.spare = rte_pktmbuf_alloc(from.pool);
        if (from.spare == nullptr) {
            if (from.cut.more()) from.lost.fetch_add(1, std::memory_order_relaxed);
            from.cut.give_up();  // as a NIC without a buffer
            break;
        }
        if (from.cut.more()) {
            from.cut.next(from.spare);
        } else {
            const std::span<iovec> pieces = from.incoming.read_into(from.spare);
            const ssize_t size = readv(from.descriptor, pieces.data(), static_cast<int>(pieces.size()));
            if (size <= 0) break;
            if (!from.incoming.finish(static_cast<std::size_t>(size), {}, from.spare, from.cut)) continue;
        }
        packets[received++] = std::exchange(from.spare, nullptr);
    }
    return received;
}

std::uint16_t TapPort::send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    auto& to = *static_cast<Sender*>(self);
    unsigned sent = 0;
    while (sent < length) {
        unsigned number = 1;
        if (to.joins) {
            number = to.message.join({packets + sent, length - sent});
        } else {
            to.message.set(packets[sent]);
        }
        const std::span<iovec> pieces = to.message.pieces();
        if (writev(to.descriptor, pieces.data(), static_cast<int>(pieces.size())) < 0) break;  // down, or gone
        rte_pktmbuf_free_bulk(packets + sent, number);
        sent += number;
    }
    return static_cast<std::uint16_t>(sent);
}

}  // namespace ovsdr::soft
