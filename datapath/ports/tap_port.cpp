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

namespace ovsdr::soft {
namespace {

constexpr const char* tun_device = "/dev/net/tun";
constexpr std::uint16_t usual_mtu = 1500;
constexpr unsigned most_segments = 16;

}  // namespace

TapPort::TapPort(const PortSpec& spec, const Driver& driver)
    : Port(driver), interface_(dpdk_argument(spec.arguments, "iface")) {
    pool_ = choose_memory(spec.memory, spec.mtu.value_or(usual_mtu));
    room_ = static_cast<std::uint16_t>(rte_pktmbuf_data_room_size(pool_) - RTE_PKTMBUF_HEADROOM);
    io_ = {.receive = receive, .send = send, .receive_queue = this, .send_queue = this};
}

TapPort::~TapPort() {
    if (descriptor_ >= 0) close(descriptor_);
    rte_pktmbuf_free(spare_);
}

std::unique_ptr<Port> TapPort::open(const PortSpec& spec, const Driver& driver, std::string& error) {
    std::unique_ptr<TapPort> port(new TapPort(spec, driver));
    if (port->make_interface(spec, error) != 0) return nullptr;
    return port;
}

int TapPort::make_interface(const PortSpec& spec, std::string& error) {
    const std::string& name = interface_.name();
    const auto failed = [&](std::string_view what, int cause) {
        error = fmt::format("net_tap: {}: {}", what, std::strerror(cause));
        return cause;
    };
    descriptor_ = ::open(tun_device, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (descriptor_ < 0) return failed(tun_device, errno);
    ifreq request{};
    name.copy(request.ifr_name, IFNAMSIZ - 1);
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (ioctl(descriptor_, TUNSETIFF, &request) != 0) {
        const int cause = errno;
        // EINVAL: it is there and is no tap, or one with several queues. EBUSY: somebody else has it.
        return failed(fmt::format("iface={} cannot be made{}", name,
                                  cause == EINVAL || cause == EBUSY ? "; an interface of this name is there" : ""),
                      cause);
    }
    if (ioctl(descriptor_, TUNSETOFFLOAD, 0) != 0) return failed("checksum offload cannot be turned off", errno);
    if (int cause = interface_.set_mac(spec.mac)) return failed(fmt::format("MAC of {}", name), cause);
    if (spec.mtu) {
        if (int cause = interface_.set_mtu(*spec.mtu))
            return failed(fmt::format("mtu {} of {}", *spec.mtu, name), cause);
    }
    interface_.bring_up();
    wake_sources_ = {{.descriptor = descriptor_, .is_epoll = false}};
    return 0;
}

// tun says POLLERR when its interface is gone, and POLLOUT while it is up.
short TapPort::state() const noexcept {
    pollfd polled{.fd = descriptor_, .events = POLLOUT, .revents = 0};
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
    auto& port = *static_cast<TapPort*>(self);
    std::uint16_t received = 0;
    while (received < length) {
        if (port.spare_ == nullptr) port.spare_ = rte_pktmbuf_alloc(port.pool_);
        rte_mbuf* packet = port.spare_;
        if (packet == nullptr) break;
        const ssize_t size = read(port.descriptor_, rte_pktmbuf_mtod(packet, void*), port.room_);
        if (size <= 0) break;
        packet->data_len = static_cast<std::uint16_t>(size);
        packet->pkt_len = static_cast<std::uint32_t>(size);
        packets[received++] = packet;
        port.spare_ = nullptr;
    }
    return received;
}

std::uint16_t TapPort::send(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
    const auto& port = *static_cast<TapPort*>(self);
    std::uint16_t sent = 0;
    for (; sent < length; ++sent) {
        iovec pieces[most_segments];
        int count = 0;
        for (rte_mbuf* segment = packets[sent]; segment != nullptr && count < int{most_segments};
             segment = segment->next) {
            pieces[count++] = {.iov_base = rte_pktmbuf_mtod(segment, void*), .iov_len = segment->data_len};
        }
        if (writev(port.descriptor_, pieces, count) < 0) break;  // down, or gone
        rte_pktmbuf_free(packets[sent]);
    }
    return sent;
}

}  // namespace ovsdr::soft
