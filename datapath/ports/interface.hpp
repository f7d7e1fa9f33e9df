// A network interface by its name, in the network namespace where the object was made.
//
// Threads: any; each function is one request to the kernel (bring_up() two).
#pragma once

#include <cstdint>
#include <optional>
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
    /// For a port on it: that it is there, and has the MTU if one is given. 0 or an errno, with the cause in `error`.
    [[nodiscard]] int prepare(std::optional<std::uint16_t> mtu, std::string& error);
    /// Mb/s; 0 where nobody knows.
    [[nodiscard]] std::uint32_t speed() const noexcept;

    /// Queues that it receives by now; 1 where nobody knows.
    [[nodiscard]] unsigned receive_queues() const noexcept;

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
