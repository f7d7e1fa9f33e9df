// A network interface by its name, in the network namespace where the object was made.
//
// Threads: any; each function is one request to the kernel (bring_up() two).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "datapath/ports/config.hpp"

struct ifreq;

namespace ovsdr::soft {

class NetworkInterface {
public:
    /// Whether there is such an interface shows when it is asked something.
    explicit NetworkInterface(std::string_view name);
    ~NetworkInterface();
    NetworkInterface(const NetworkInterface&) = delete;
    NetworkInterface& operator=(const NetworkInterface&) = delete;

    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    /// Up, and with a link.
    [[nodiscard]] bool running() const noexcept;
    void bring_up() noexcept;

    /// 0 or an errno. `mtu` is any that the kernel has, beyond what a port can do too.
    [[nodiscard]] int mtu(int& mtu) const noexcept;
    [[nodiscard]] int set_mtu(std::uint16_t mtu) noexcept;
    [[nodiscard]] int set_mac(const MacAddress& mac) noexcept;

private:
    int request(unsigned long code, ifreq& value) const noexcept;

    std::string name_;
    int socket_;
};

}  // namespace ovsdr::soft
