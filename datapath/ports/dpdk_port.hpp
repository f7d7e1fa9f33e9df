// A port by one of DPDK's poll-mode drivers: made while the NIC runs, removed when the object dies.
//
// One receive and one transmit queue. Behind net_af_packet and net_af_xdp stands a network interface: its link state,
// MTU and MAC are the port's, and it is put up. Their sockets also wake a sleeping worker: DPDK does not hand them out,
// so they are found among this process's file descriptors, by family (and, where the kernel tells, by interface).
//
// Behind net_vhost stands a guest that connects to a socket (or whose socket is connected to, client=1, and again and
// again when it is not there). The link is up while the guest's driver runs. Nothing that leaves packets unfinished is
// negotiated, see vhost_features.c. The guest's kicks wake a sleeping worker, who must have asked for them. The socket
// file goes with the port; one that a killed process left is replaced.
//
// Threads: as port.hpp says. DPDK's vhost thread calls back when a guest comes or goes; it frees what the guest had
// afterwards, so the callback waits until no worker is arming.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datapath/ports/interface.hpp"
#include "datapath/ports/port.hpp"
#include "datapath/ports/socket_path.hpp"

namespace ovsdr::soft {

class DpdkPort final : public Port {
public:
    [[nodiscard]] static std::unique_ptr<Port> open(const PortSpec& spec, const Driver& driver, std::string& error);
    ~DpdkPort() override;

    void arm() noexcept override;
    void disarm() noexcept override;
    [[nodiscard]] bool link_up() const noexcept override;
    /// The kernel tells an interface's carrier under a lock (RTNL) that somebody else may hold for seconds.
    [[nodiscard]] bool link_seen_up() const noexcept override { return !interface_ && link_up(); }
    [[nodiscard]] std::uint32_t speed() const noexcept override;
    [[nodiscard]] std::uint16_t mtu() const noexcept override;
    [[nodiscard]] int set_mtu(std::uint16_t mtu) noexcept override;
    [[nodiscard]] std::uint64_t overruns() noexcept override;

private:
    DpdkPort(const PortSpec& spec, const Driver& driver);
    int prepare_interface(const PortSpec& spec, std::string& error);
    int probe(const PortSpec& spec);
    int start(const PortSpec& spec, std::string& error);
    int start_device(rte_mempool* pool, std::string& step);
    void find_wake_sockets(const std::vector<int>& before);
    int watch_queue_interrupt();
    void guest_changed() noexcept;

    std::optional<NetworkInterface> interface_;
    const std::function<void()> changed_;
    std::string name_;  ///< DPDK's, empty until the device is there
    std::uint16_t id_ = 0;
    bool started_ = false;
    Mempool own_pool_;
    std::uint64_t overruns_ = 0;       ///< of what the kernel has forgotten since it told us
    int kicks_ = -1;                   ///< epoll descriptor that collects a guest's kicks
    std::atomic<bool> arming_{false};  ///< a worker is in DPDK's interrupt functions
};

}  // namespace ovsdr::soft
