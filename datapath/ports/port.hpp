// What stands behind a vport: a packet interface to a network device, a guest, or another process.
//
// Port::open() makes one by its device arguments, "net_vhost,iface=/run/vm1.sock"; the object's death undoes it.
// Packets pass through its queues, plain functions with what they work on, so that a worker's path to a DPDK driver is
// the same indirect call that DPDK itself makes. A receive queue is one worker's at a time; a port with several spreads
// flows over them, so that a flow's packets come by the same one (but see docs/ports.md). Send queues are for workers
// that send at the same time: which one is taken says nothing about a packet. There are five kinds: DpdkPort (a DPDK
// poll-mode driver without a device), PciPort (one with), PacketPort, TapPort and MemifPort (ours: see there why).
//
// Sleep. A receive queue gives descriptors that become readable when a packet waits; one without any is polled. Some
// peers notify only those who asked: arm() asks, disarm() takes it back. A worker arms its queues, looks at them once
// more, and sleeps.
//
// Threads: open(), the destructor and all that is not said otherwise from one thread at a time, the control thread as a
// rule. arm(), disarm() and a PortReceiveQueue from the worker that owns the queue; a PortSendQueue from any, one at a
// time. Before a port dies no worker may be using it.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/ports/config.hpp"
#include "datapath/ports/drivers.hpp"
#include "datapath/ports/packet_pool.hpp"

struct rte_mbuf;

namespace ovsdr::soft {

/// DPDK's burst functions, both ways.
using Burst = std::uint16_t (*)(void* queue, rte_mbuf** packets, std::uint16_t length);

/// A descriptor that wakes a sleeping worker.
struct WakeSource {
    int descriptor;
    bool is_epoll;  ///< an epoll descriptor with edges to collect; else it is readable for as long as a packet waits
};

struct PortReceiveQueue {
    Burst receive = nullptr;
    void* queue = nullptr;                  ///< the function's first argument
    std::vector<WakeSource> wake_sources;  ///< empty: it must be polled
    std::uint16_t most = poll_length;      ///< packets at a time; batch_length where it cuts some
};

struct PortSendQueue {
    Burst send = nullptr;  ///< keeps as many as it returns; the rest stays the caller's
    void* queue = nullptr;
};

struct PortSpec {
    std::string arguments;             ///< checked by check_dpdk_arguments()
    MacAddress mac{};                  ///< for a network interface that the port makes
    std::optional<std::uint16_t> mtu;  ///< set on the interface when given
    PacketMemory memory;               ///< to receive into, where the driver needs no pool of its own
    bool roce = false;                 ///< RoCE has addresses behind it: it has to buffer more
    unsigned workers = 1;              ///< that may send at the same time
    /// Called when a link or a queue has changed, from any thread; it must not wait.
    std::function<void()> changed = [] {};
    /// Returns when no worker is within a queue or arm() any more that was there when it was called. Control thread.
    std::function<void()> synchronize = [] {};
};

class Port {
public:
    /// nullptr with the cause in `error`.
    [[nodiscard]] static std::unique_ptr<Port> open(const PortSpec& spec, std::string& error);
    virtual ~Port() = default;
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    [[nodiscard]] const Driver& driver() const noexcept { return *driver_; }

    /// At least one of each; they stay where and what they are while the port lives.
    [[nodiscard]] std::span<const PortReceiveQueue> receive_queues() const noexcept { return receive_queues_; }
    [[nodiscard]] std::span<const PortSendQueue> send_queues() const noexcept { return send_queues_; }

    /// How many send queues, from the first on, lead anywhere now: one at least. Threads: any.
    [[nodiscard]] unsigned usable_send_queues() const noexcept {
        return usable_send_queues_.load(std::memory_order_relaxed);
    }
    /// Whether that number can change: a guest says how many queues it listens to.
    [[nodiscard]] bool send_queues_vary() const noexcept { return send_queues_vary_; }

    /// `queue`: which receive queue.
    virtual void arm(unsigned /*queue*/) noexcept {}
    virtual void disarm(unsigned /*queue*/) noexcept {}

    /// May wait for the kernel.
    [[nodiscard]] virtual bool link_up() const noexcept = 0;
    /// For workers: true when it can be told without waiting that the link is up.
    [[nodiscard]] virtual bool link_seen_up() const noexcept { return link_up(); }
    /// Of the link, Mb/s; 0 where nobody knows.
    [[nodiscard]] virtual std::uint32_t speed() const noexcept { return 0; }

    /// The MTU that the interface has now; 1500 where there is no interface.
    [[nodiscard]] virtual std::uint16_t mtu() const noexcept { return 1500; }

    /// The address that the device behind the port was made with, where it is one.
    [[nodiscard]] virtual std::optional<MacAddress> mac() const noexcept { return std::nullopt; }

    /// The most that set_mtu() can do, the port opened anew if need be.
    [[nodiscard]] virtual std::uint16_t largest_mtu() const noexcept { return driver_->largest_mtu; }

    /// Frames of this MTU fit into the port's buffers.
    [[nodiscard]] bool fits(std::uint16_t mtu) const noexcept { return mtu <= buffer_mtu_; }

    /// 0 or an errno; the interface's MTU is changed too. ERANGE when the port must be opened anew for it.
    [[nodiscard]] virtual int set_mtu(std::uint16_t mtu) noexcept;

    /// What stood behind the port is gone for good: open it anew.
    [[nodiscard]] virtual bool lost() const noexcept { return false; }

    /// Packets that came and found no room, because no worker took those before them, since the port was opened;
    /// net_af_xdp's are also those larger than a buffer. 0 where the peer waits instead (net_memif) and where
    /// only the interface counts them (net_af_xdp where the driver copies nothing). net_vhost's and net_tap's are those
    /// long frames for whose segments there was no buffer: else the peer waits, or the interface counts (tx_dropped).
    [[nodiscard]] virtual std::uint64_t overruns() noexcept { return 0; }

    /// Packets that send() has kept and the interface behind the port did not take.
    struct Refused {
        std::uint64_t packets = 0, bytes = 0;
    };
    [[nodiscard]] virtual Refused refused() const noexcept { return {}; }

    /// Adds the descriptors on which serve() has something to do.
    virtual void watch(std::vector<pollfd>&) const {}
    /// Does what is due: connections that come and go. Called often, never waits for a peer.
    virtual void serve() noexcept {}

protected:
    /// Above this MTU a port has jumbo buffers: of a small one's 2048 bytes some are what a tunnel needs.
    static constexpr std::uint16_t small_buffer_mtu = 1900;

    explicit Port(const Driver& driver) : driver_(&driver) {}

    /// Decides for small or jumbo buffers, by the MTU that is wanted.
    [[nodiscard]] rte_mempool* choose_memory(const PacketMemory& memory, std::uint16_t mtu) noexcept;

    void set_queues(std::vector<PortReceiveQueue> receive, std::vector<PortSendQueue> send) noexcept;

    const Driver* driver_;
    std::vector<PortReceiveQueue> receive_queues_;
    std::vector<PortSendQueue> send_queues_;
    std::atomic<unsigned> usable_send_queues_{1};
    bool send_queues_vary_ = false;
    std::uint16_t buffer_mtu_ = max_mtu;
};

}  // namespace ovsdr::soft
