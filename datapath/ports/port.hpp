// What stands behind a vport: a packet interface to a network device, a guest, or another process.
//
// Port::open() makes one by its device arguments, "net_vhost,iface=/run/vm1.sock"; the object's death undoes it.
// Packets pass through a PacketIo, two plain functions with their queues, so that a worker's path to a DPDK driver is
// the same indirect call that DPDK itself makes. There are three kinds: DpdkPort (a DPDK poll-mode driver), TapPort and
// MemifPort (ours: see there why).
//
// Sleep. A port gives descriptors that become readable when a packet waits; a port without any is polled. Some peers
// notify only those who asked: arm() asks, disarm() takes it back. A worker arms its ports, looks at them once more,
// and sleeps.
//
// Threads: open(), the destructor and all that is not said otherwise from one thread at a time, the control thread as a
// rule. arm(), disarm() and the PacketIo from the worker that owns the port (sending: from any, one at a time). Before
// a port dies no worker may be using it.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "datapath/ports/config.hpp"
#include "datapath/ports/drivers.hpp"
#include "datapath/ports/packet_pool.hpp"

struct rte_mbuf;

namespace ovsdr::soft {

/// How packets are received and sent: DPDK's burst functions.
struct PacketIo {
    using Burst = std::uint16_t (*)(void* queue, rte_mbuf** packets, std::uint16_t length);
    Burst receive = nullptr, send = nullptr;  ///< `send` keeps what it returns; the rest stays the caller's
    void* receive_queue = nullptr;
    void* send_queue = nullptr;
};

/// A descriptor that wakes a sleeping worker.
struct WakeSource {
    int descriptor;
    bool is_epoll;  ///< an epoll descriptor with edges to collect; else it is readable for as long as a packet waits
};

struct PortSpec {
    std::string arguments;             ///< checked by check_dpdk_arguments()
    MacAddress mac{};                  ///< for a network interface that the port makes
    std::optional<std::uint16_t> mtu;  ///< set on the interface when given
    PacketMemory memory;               ///< to receive into, where the driver needs no pool of its own
    bool roce = false;                 ///< RoCE has addresses behind it: it has to buffer more
    /// Called when a link or a queue has changed, from any thread; it must not wait.
    std::function<void()> changed = [] {};
    /// Returns when no worker is within PacketIo or arm() any more that was there when it was called. Control thread.
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
    [[nodiscard]] const PacketIo& io() const noexcept { return io_; }

    /// Empty: the port must be polled. Constant while the port lives.
    [[nodiscard]] std::span<const WakeSource> wake_sources() const noexcept { return wake_sources_; }
    virtual void arm() noexcept {}
    virtual void disarm() noexcept {}

    /// May wait for the kernel.
    [[nodiscard]] virtual bool link_up() const noexcept = 0;
    /// For workers: true when it can be told without waiting that the link is up.
    [[nodiscard]] virtual bool link_seen_up() const noexcept { return link_up(); }
    /// Of the link, Mb/s; 0 where nobody knows.
    [[nodiscard]] virtual std::uint32_t speed() const noexcept { return 0; }

    /// The MTU that the interface has now; 1500 where there is no interface.
    [[nodiscard]] virtual std::uint16_t mtu() const noexcept { return 1500; }

    /// Frames of this MTU fit into the port's buffers.
    [[nodiscard]] bool fits(std::uint16_t mtu) const noexcept { return mtu <= buffer_mtu_; }

    /// 0 or an errno; the interface's MTU is changed too. ERANGE when the port must be opened anew for it.
    [[nodiscard]] virtual int set_mtu(std::uint16_t mtu) noexcept;

    /// What stood behind the port is gone for good: open it anew.
    [[nodiscard]] virtual bool lost() const noexcept { return false; }

    /// Packets that came and found no room, because no worker took those before them, since the port was opened;
    /// net_af_xdp's are also those larger than a buffer. 0 where the peer waits instead (net_vhost, net_memif) and
    /// where only the interface counts them (net_tap: its tx_dropped; net_af_xdp where the driver copies nothing).
    [[nodiscard]] virtual std::uint64_t overruns() noexcept { return 0; }

    /// Adds the descriptors on which serve() has something to do.
    virtual void watch(std::vector<pollfd>&) const {}
    /// Does what is due: connections that come and go. Called often, never waits for a peer.
    virtual void serve() noexcept {}

protected:
    /// Above this MTU a port has jumbo buffers: of a small one's 2048 bytes, 1982 are left for the packet in
    /// net_af_packet's ring.
    static constexpr std::uint16_t small_buffer_mtu = 1900;

    explicit Port(const Driver& driver) : driver_(&driver) {}

    /// Decides for small or jumbo buffers, by the MTU that is wanted.
    [[nodiscard]] rte_mempool* choose_memory(const PacketMemory& memory, std::uint16_t mtu) noexcept;

    const Driver* driver_;
    PacketIo io_;
    std::vector<WakeSource> wake_sources_;
    std::uint16_t buffer_mtu_ = max_mtu;
};

}  // namespace ovsdr::soft
