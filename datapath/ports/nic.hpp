// The NIC of this process: its configuration, EAL, packet memory, devices, vports, worker threads, co-tenants, and
// the control socket. There is one, made on first use and kept until the process ends.
//
// Life cycle. Nic::start() reads the file that OVSDR_SOFTNIC names (default /etc/ovs-dr/softnic.json), starts EAL on a
// private thread, creates devices and vports, starts the workers and the control socket. It does so once, on the first
// ibv_open_device() or when a caller asks for the device list, never from a library constructor: a daemon forks first.
// A vport whose DPDK port cannot be made is listed with its error and does not stop the others.
//
// Threads: every function may be called from any thread unless it says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "datapath/packet.hpp"
#include "datapath/profile.hpp"
#include "datapath/steering/steering.hpp"
#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class Lookout;

/// A send queue of the manager function, drained by the worker it is assigned to.
struct SendSource {
    /// Fills `packets` with at most `length` (<= batch_length) packets that the application has posted; returns how
    /// many. Called by one thread at a time: the worker, or who has posted while it sleeps.
    unsigned (*poll)(void* self, rte_mbuf** packets, unsigned length) noexcept = nullptr;
    void* self = nullptr;
    std::uint32_t sqn = 0;
};

/// Where work that a worker does for the device puts its packets.
struct Outlet {
    /// Takes ownership of `length` packets (at most batch_length), as sent by the manager function's queue `sqn`.
    void (*send)(void* self, std::uint32_t sqn, rte_mbuf** packets, unsigned length) noexcept = nullptr;
    void* self = nullptr;
};

/// Work of the device that a worker does beside ports and send queues: its share of the RoCE transport.
struct Service {
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    /// One turn; returns how much it did, 0 when there is nothing to do for now. `now` is in nanoseconds of the steady
    /// clock.
    unsigned (*run)(void* self, const Outlet& outlet, std::uint64_t now) noexcept = nullptr;
    /// When it wants its next turn though nobody rings; asked before the worker sleeps.
    std::uint64_t (*deadline)(void* self, std::uint64_t now) noexcept = nullptr;
    void* self = nullptr;
};

/// An address of the RoCE transport with the length of its prefix, of 128 bits; IPv4 as ::ffff:a.b.c.d.
struct RoceAddress {
    std::uint8_t address[16];
    std::uint8_t prefix;
    std::uint16_t vlan = 0;  ///< its packets carry this VLAN's tag; 0: none
};

/// Cumulative since the vport was created. "Received" and "sent" are the vport's owner's view, as hardware's
/// QUERY_VPORT_COUNTER has it: received = what the eSwitch delivered to it; sent = what came from it.
struct VportCounters {
    std::uint64_t received_packets, received_bytes;
    std::uint64_t sent_packets, sent_bytes;
    std::uint64_t receive_drops;  ///< towards the vport: port full, or no port
    std::uint64_t send_drops;     ///< from the vport: cut short or malformed
    std::uint64_t oversize;       ///< towards the vport: larger than its MTU allows
    std::uint64_t down;           ///< either way, while administratively down
    std::uint64_t overruns;       ///< from the vport: lost before the NIC saw them, the port's buffer being full
};

/// One of the two ports of an uplink in LAG.
struct LagPortInfo {
    std::string dpdk;
    bool link_up = false;
};

struct VportInfo {
    VportId id;
    std::string name;           ///< as configured, "vport N" otherwise
    std::string dpdk;           ///< DPDK device arguments; empty for the manager and in LAG
    std::uint8_t mac[6];
    std::uint16_t mtu;          ///< bytes of an Ethernet payload (no header, no FCS)
    bool admin_up;
    bool link_up;               ///< the DPDK port's link; in LAG either's
    std::string error;          ///< why there is no working port; empty when all is well
    std::vector<RoceAddress> roce_addresses;  ///< the uplink's only, as configured
    std::uint32_t speed = 0;                  ///< of the DPDK port's link, Mb/s, in LAG of one that is up; 0: unknown
    std::vector<LagPortInfo> lag;             ///< an uplink's in LAG: by port
};

/// What MODIFY_* commands may change.
enum class VportChange { link, mac, mtu, added, removed };

class Device {
public:
    virtual ~Device() = default;

    [[nodiscard]] virtual std::string_view name() const noexcept = 0;  ///< "mlx5_0"
    [[nodiscard]] virtual const Profile& profile() const noexcept = 0;
    [[nodiscard]] virtual std::uint64_t guid() const noexcept = 0;     ///< host order, stable across restarts
    [[nodiscard]] virtual Steering& steering() noexcept = 0;

    /// Ascending by id; the manager is always there.
    [[nodiscard]] virtual std::vector<VportInfo> vports() const = 0;
    [[nodiscard]] virtual int query(VportId, VportInfo&) const = 0;            ///< ENOENT
    [[nodiscard]] virtual bool has(VportId) const = 0;
    [[nodiscard]] virtual int counters(VportId, VportCounters&) const = 0;     ///< ENOENT
    [[nodiscard]] virtual int set_mac(VportId, const std::uint8_t (&mac)[6]) = 0;
    [[nodiscard]] virtual int set_mtu(VportId, std::uint16_t mtu) = 0;         ///< EINVAL outside 68..9978
    [[nodiscard]] virtual int set_admin_state(VportId, bool up) = 0;

    /// Calls `listener` after each change of a vport, on a control thread, until the returned id is removed.
    /// remove_listener() returns once no call is under way.
    virtual std::uint64_t add_listener(std::function<void(VportId, VportChange)> listener) = 0;
    virtual void remove_listener(std::uint64_t id) noexcept = 0;

    /// Whether the uplink is two ports in LAG.
    [[nodiscard]] virtual bool has_lag() const { return false; }
    /// In LAG: by which port that leaves now which is to leave by `port`; see lag.hpp.
    [[nodiscard]] virtual unsigned active_lag_port(unsigned port) const { return port; }

    /// The queue is polled from now on. sqn must be unique on the device.
    virtual void add_send_source(const SendSource& source) = 0;
    /// Returns once no worker can be polling the queue.
    virtual void remove_send_source(std::uint32_t sqn) noexcept = 0;
    /// Called after each post: where the worker that polls `sqn` sleeps, sends in its place or wakes it; cheap when it
    /// does not. The caller may hold what it needs to post, and nothing that SendSource::poll() or a sink takes.
    virtual void ring_doorbell(std::uint32_t sqn) noexcept = 0;

    /// Told by who steers a packet: the completion that it became has woken whoever waits behind `lookout`.
    virtual void woke(const std::shared_ptr<Lookout>& /*lookout*/) noexcept {}
    /// Asked by whoever found no completion: where the thread is the sleeping worker's deputy, it receives in its
    /// place. True when there were packets. Cheap where it is not. The caller holds nothing that a sink takes.
    virtual bool look_out() noexcept { return false; }

    /// Worker threads, numbered from 0.
    [[nodiscard]] virtual unsigned workers() const noexcept = 0;
    /// The worker gives the service its turn in each loop from now on.
    virtual void add_service(unsigned worker, const Service& service) = 0;
    /// Returns once the worker does so no more; `self` names the service.
    virtual void remove_service(unsigned worker, void* self) noexcept = 0;
    /// Wakes the worker if it sleeps; cheap when it does not.
    virtual void ring_worker(unsigned worker) noexcept = 0;
};

class Nic {
public:
    /// Starts the NIC on first use. On failure (unreadable configuration, EAL) returns the errno and reports the cause
    /// once on stderr; a later call tries again.
    [[nodiscard]] static int start(Nic*& nic) noexcept;

    virtual ~Nic() = default;
    [[nodiscard]] virtual std::span<Device* const> devices() noexcept = 0;

    /// Packet memory for copies and for what queues send. Data room: jumbo frames in one segment.
    [[nodiscard]] virtual rte_mempool* mempool() noexcept = 0;
};

}  // namespace ovsdr::soft
