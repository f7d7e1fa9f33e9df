// A port by one of DPDK's poll-mode drivers.
//
// Behind net_af_xdp stands a network interface: its link state, MTU and MAC are the port's, and it is put up. What
// comes by a receive queue of the interface that nobody polls goes to the host's own stack, past the switch: the port
// polls all of them, or is not opened. Each is a device of DPDK's with packet memory of its own: the driver itself has
// several queues only where the interface calls them combined, which a veth's are not. A queue's socket also wakes a
// sleeping worker: DPDK does not hand it out, so it is found among this process's file descriptors, as the one of its
// family that was not there before.
//
// Behind net_vhost stands a guest that connects to a socket (or whose socket is connected to, client=1, and again and
// again when it is not there). The link is up while the guest's driver runs. Of the port's queues it uses as many as it
// likes, and only those are sent to. It may leave packets unfinished (vhost_receiver.hpp), and gets them joined if it
// takes such (vhost_sender.hpp); gro=0 turns that off. The guest's kicks wake a sleeping worker, who must have asked
// for them. The socket file goes with the port; one that a killed process left is replaced.
//
// Threads: as port.hpp says. DPDK's vhost thread calls back when a guest or a queue comes or goes; it frees what the
// guest had afterwards, so the callback waits until no worker is arming.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "datapath/ports/eth_device.hpp"
#include "datapath/ports/interface.hpp"
#include "datapath/ports/port.hpp"
#include "datapath/ports/socket_path.hpp"
#include "datapath/ports/vhost_receiver.hpp"
#include "datapath/ports/vhost_sender.hpp"

struct xsk_umem;

namespace ovsdr::soft {

class DpdkPort final : public Port {
public:
    [[nodiscard]] static std::unique_ptr<Port> open(const PortSpec& spec, const Driver& driver, std::string& error);
    ~DpdkPort() override;

    void arm(unsigned queue) noexcept override;
    void disarm(unsigned queue) noexcept override;
    [[nodiscard]] bool link_up() const noexcept override;
    /// The kernel tells an interface's carrier under a lock (RTNL) that somebody else may hold for seconds.
    [[nodiscard]] bool link_seen_up() const noexcept override { return !interface_ && link_up(); }
    [[nodiscard]] std::uint32_t speed() const noexcept override;
    [[nodiscard]] std::uint16_t mtu() const noexcept override;
    [[nodiscard]] int set_mtu(std::uint16_t mtu) noexcept override;
    /// The interface has another number of queues than when the port was opened.
    [[nodiscard]] bool lost() const noexcept override;
    [[nodiscard]] std::uint64_t overruns() noexcept override;

private:
    struct alignas(64) Arming {
        std::atomic<bool> now{false};  ///< a worker is in DPDK's interrupt functions
    };

    DpdkPort(const PortSpec& spec, const Driver& driver);
    [[nodiscard]] bool is_vhost() const noexcept { return driver_->name == "net_vhost"; }
    [[nodiscard]] bool is_xdp() const noexcept { return driver_->name == "net_af_xdp"; }
    [[nodiscard]] std::uint16_t device_id() const noexcept { return devices_.front()->id(); }
    EthDevice& add_device() { return *devices_.emplace_back(std::make_unique<EthDevice>()); }
    int start(const PortSpec& spec, std::string& error);
    int start_one(const PortSpec& spec, rte_mempool* pool, std::string& step);
    int start_vhost(const PortSpec& spec, rte_mempool* pool, std::string& step);
    int check_xdp(const PortSpec& spec, std::string& error);
    int start_xdp(const PortSpec& spec, std::string& step);
    int start_xdp_queues(const PortSpec& spec, std::string& step);
    int start_xdp_queue(const PortSpec& spec, unsigned queue, std::string& step);
    int watch_kicks(unsigned queue, std::string& step);
    int watch_guest(std::string& step);
    void guest_changed(std::uint16_t id, bool gone) noexcept;
    void drop_devices() noexcept;
    void count_guest_queues(std::uint16_t id, bool gone) noexcept;
    void learn_what_guest_takes(std::uint16_t id, bool gone) noexcept;

    std::optional<NetworkInterface> interface_;
    unsigned interface_queues_ = 1;
    const std::function<void()> changed_;
    std::vector<Mempool> own_pools_;                         ///< of AF_XDP queues; outlive the devices
    std::vector<std::unique_ptr<EthDevice>> devices_;        ///< one; of net_af_xdp one for each queue
    std::vector<xsk_umem*> umems_;                           ///< of AF_XDP queues, which the driver forgets
    std::vector<std::unique_ptr<VhostReceiver>> receivers_;  ///< of net_vhost's queues, as what follows
    std::vector<std::unique_ptr<VhostSender>> senders_;
    std::vector<int> kicks_;                                 ///< epoll descriptors that collect the guest's kicks
    std::mutex guest_mutex_;
    std::vector<bool> guest_listens_;  ///< to a queue of ours; under guest_mutex_
    std::unique_ptr<Arming[]> arming_;
};

}  // namespace ovsdr::soft
