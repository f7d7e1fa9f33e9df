#include "datapath/ports/interface.hpp"

#include <fmt/format.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace ovsdr::soft {

NetworkInterface::NetworkInterface(std::string_view name)
    : name_(name), socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}

NetworkInterface::~NetworkInterface() {
    if (socket_ >= 0) close(socket_);
}

int NetworkInterface::request(unsigned long code, ifreq& value) const noexcept {
    name_.copy(value.ifr_name, IFNAMSIZ - 1);
    return ioctl(socket_, code, &value) == 0 ? 0 : errno;
}

// The kernel sets IFF_RUNNING some time after the carrier came, when its link watch gets to it; the carrier itself is
// known at once.
bool NetworkInterface::running() const noexcept {
    ifreq value{};
    if (request(SIOCGIFFLAGS, value) != 0 || (value.ifr_flags & IFF_UP) == 0) return false;
    const bool operational = (value.ifr_flags & IFF_RUNNING) != 0;
    ethtool_value carrier{.cmd = ETHTOOL_GLINK, .data = 0};
    value = {};
    value.ifr_data = reinterpret_cast<char*>(&carrier);
    return request(SIOCETHTOOL, value) == 0 ? carrier.data != 0 : operational;
}

void NetworkInterface::bring_up() noexcept {
    ifreq value{};
    if (request(SIOCGIFFLAGS, value) != 0 || (value.ifr_flags & IFF_UP) != 0) return;
    value.ifr_flags |= IFF_UP;
    (void)request(SIOCSIFFLAGS, value);
}

int NetworkInterface::prepare(std::optional<std::uint16_t> mtu, std::string& error) {
    if (if_nametoindex(name_.c_str()) == 0) {
        error = fmt::format("there is no network interface \"{}\"", name_);
        return ENODEV;
    }
    const int result = mtu ? set_mtu(*mtu) : 0;
    if (result != 0) error = fmt::format("mtu {} cannot be set on {}: {}", *mtu, name_, std::strerror(result));
    return result;
}

std::uint32_t NetworkInterface::speed() const noexcept {
    ethtool_cmd settings{};
    settings.cmd = ETHTOOL_GSET;
    ifreq value{};
    value.ifr_data = reinterpret_cast<char*>(&settings);
    if (request(SIOCETHTOOL, value) != 0) return 0;
    const std::uint32_t speed = ethtool_cmd_speed(&settings);
    return speed == static_cast<std::uint32_t>(SPEED_UNKNOWN) ? 0 : speed;
}

unsigned NetworkInterface::receive_queues() const noexcept {
    ethtool_channels channels{};
    channels.cmd = ETHTOOL_GCHANNELS;
    ifreq value{};
    value.ifr_data = reinterpret_cast<char*>(&channels);
    if (request(SIOCETHTOOL, value) == 0) return std::max(1U, channels.rx_count + channels.combined_count);
    std::error_code none;
    const std::filesystem::directory_iterator queues("/sys/class/net/" + name_ + "/queues", none);
    const auto receives = [](const auto& queue) { return queue.path().filename().native().starts_with("rx-"); };
    const auto count = none ? 0 : std::count_if(begin(queues), end(queues), receives);
    return std::max(1U, static_cast<unsigned>(count));
}

int NetworkInterface::mtu(int& mtu) const noexcept {
    ifreq value{};
    const int result = request(SIOCGIFMTU, value);
    if (result == 0) mtu = value.ifr_mtu;
    return result;
}

int NetworkInterface::set_mtu(std::uint16_t mtu) noexcept {
    ifreq value{};
    value.ifr_mtu = mtu;
    return request(SIOCSIFMTU, value);
}

int NetworkInterface::set_mac(const MacAddress& mac) noexcept {
    ifreq value{};
    value.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    std::copy(mac.begin(), mac.end(), value.ifr_hwaddr.sa_data);
    return request(SIOCSIFHWADDR, value);
}

}  // namespace ovsdr::soft
