// A device of the soft NIC: an eSwitch (Steering), its vports with their DPDK ports, and its send queues.
//
// A vport is in one of three conditions: working; without a port, which `error` explains (what is sent to it is dropped
// and counted); or being changed. Ports are opened and closed under change_mutex_, so that questions (mutex_) never
// wait for DPDK. A port is closed in this order: its worker forgets it, its path is unbound, Steering::synchronize()
// waits for batches on their way, the port dies.
//
// An uplink in LAG has two ports, each with its path and a worker of its own; all else about it is one vport's: its
// link is up when one port's is, its MTU is what both ports have.
//
// A port whose network interface is missing, or was deleted and made anew, is opened when the interface is there; one
// that makes its interface or socket itself and could not, is tried again: check_links() does it.
#pragma once

#include <rte_mempool.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "datapath/capture/capture.hpp"
#include "datapath/ports/config.hpp"
#include "datapath/ports/lag.hpp"
#include "datapath/ports/listeners.hpp"
#include "datapath/ports/nic.hpp"
#include "datapath/ports/port.hpp"
#include "datapath/ports/vport_path.hpp"
#include "datapath/ports/worker.hpp"

namespace ovsdr::soft {

/// A receive queue of a port, and who polls it.
struct PlacedQueue {
    VportId vport;
    unsigned port;  ///< of the vport's ports, from 0
    unsigned queue;
    unsigned worker;
    std::shared_ptr<QueueLoad> load;
};

class SoftDevice final : public Device {
public:
    using Workers = std::vector<std::unique_ptr<Worker>>;

    /// `index`: the device's place in each worker's steerings; the vports come with add_vport().
    SoftDevice(const DeviceConfig& config, unsigned index, unsigned worker_count, std::function<void()> wake_control);
    ~SoftDevice() override;

    /// The workers and the packet memory, before any vport is added. Both outlive the device.
    void connect(Workers& workers, PacketMemory memory) noexcept;

    /// Adds a vport. With `must_work` false one whose port cannot be opened is added all the same, with its error.
    /// Returns 0, EEXIST, ENOSPC, EINVAL, or EIO when the port does not open; the cause in `error`.
    [[nodiscard]] int add_vport(const PortConfig& config, bool must_work, std::string& error);
    [[nodiscard]] int remove_vport(VportId vport);  ///< ENOENT

    /// Lets every port do what is due, looks at its link, reports changes, opens ports that can be opened now. Control
    /// thread.
    void check_links();
    /// Looks at the links of a port in LAG, reports changes. Control thread.
    void check_lag();

    /// Adds what ports wait for, for which check_links() is to be called. Control thread.
    void watch(std::vector<pollfd>& polled);

    /// Whether a port has asked for check_links() since the last call.
    [[nodiscard]] bool take_port_event() noexcept { return port_event_.exchange(false); }
    void dispatch_events() { listeners_.dispatch(); }

    /// Closes all ports, and tells of each. The workers have stopped.
    void close_ports(const std::function<void()>& closed) noexcept;

    /// Has `capture` look at a vport's packets, on each of its ports: they are the capture's interfaces 0 and 1.
    /// ENOENT; EOPNOTSUPP for the manager, which has no port. Ends when the vport is removed. Control thread.
    [[nodiscard]] int add_capture(VportId vport, Capture& capture);
    [[nodiscard]] bool has_capture(VportId vport, const Capture& capture);
    /// Returns when no worker uses `capture` any more. Nothing where has_capture() is false.
    void remove_capture(VportId vport, const Capture& capture);

    /// Of all ports, in an order that stays. Threads: any.
    [[nodiscard]] std::vector<PlacedQueue> placed_queues() const;
    /// Has another worker poll a queue. Nothing is lost, and each flow stays in its order. ENOENT.
    [[nodiscard]] int move_queue(VportId vport, unsigned port, unsigned queue, unsigned worker);

    /// Counts LACP frames that the uplink receives; before it is added.
    void watch_lacp() noexcept { watch_lacp_ = true; }
    [[nodiscard]] std::uint64_t lacp_frames() const;
    /// Of one port of an uplink in LAG; ENOENT.
    [[nodiscard]] int lag_counters(unsigned port, VportCounters& counters) const;
    [[nodiscard]] rte_mempool* mempool() const noexcept { return memory_.jumbo; }

    [[nodiscard]] std::string_view name() const noexcept override { return name_; }
    [[nodiscard]] const Profile& profile() const noexcept override { return steering_.profile(); }
    [[nodiscard]] std::uint64_t guid() const noexcept override { return guid_; }
    [[nodiscard]] Steering& steering() noexcept override { return steering_; }
    [[nodiscard]] std::vector<VportInfo> vports() const override;
    [[nodiscard]] int query(VportId vport, VportInfo& info) const override;
    [[nodiscard]] bool has(VportId vport) const override;
    [[nodiscard]] int counters(VportId vport, VportCounters& counters) const override;
    [[nodiscard]] int set_mac(VportId vport, const std::uint8_t (&mac)[6]) override;
    [[nodiscard]] int set_mtu(VportId vport, std::uint16_t mtu) override;
    [[nodiscard]] int set_admin_state(VportId vport, bool up) override;
    [[nodiscard]] bool has_lag() const override;
    [[nodiscard]] unsigned active_lag_port(unsigned port) const override;
    std::uint64_t add_listener(std::function<void(VportId, VportChange)> listener) override;
    void remove_listener(std::uint64_t id) noexcept override { listeners_.remove(id); }
    void add_send_source(const SendSource& source) override;
    void remove_send_source(std::uint32_t sqn) noexcept override;
    void ring_doorbell(std::uint32_t sqn) noexcept override;
    void woke(const std::shared_ptr<Lookout>& lookout) noexcept override;
    bool look_out() noexcept override;
    [[nodiscard]] unsigned workers() const noexcept override { return worker_count_; }
    void add_service(unsigned worker, const Service& service) override;
    void remove_service(unsigned worker, void* self) noexcept override;
    void ring_worker(unsigned worker) noexcept override;

private:
    /// Who polls a receive queue.
    struct Place {
        unsigned worker;
        std::shared_ptr<QueueLoad> load;
    };
    /// A port and the packets' way through it. The manager's has no port.
    struct Link {
        std::string dpdk;
        std::string error;
        bool up = false;
        unsigned interface_index = 0;  ///< of the interface or device that was last tried, 0: none, or neither
        std::chrono::steady_clock::time_point tried{};
        std::unique_ptr<CaptureList> captures;  ///< none: empty; outlives the path
        std::unique_ptr<VportPath> path;
        std::unique_ptr<Port> port;
        std::uint64_t past_overruns = 0;  ///< of ports before this one
        Port::Refused past_refused{};
        std::vector<Place> places;  ///< of its receive queues

        [[nodiscard]] VportCounters counters() const noexcept;  ///< mutex_ is held
    };
    struct Vport {
        VportInfo info;
        std::optional<std::uint16_t> wanted_mtu;  ///< what the operator or a command has asked for
        bool has_derived_mac = false;             ///< nobody has asked for one
        std::vector<Link> links;                  ///< one; an uplink in LAG has two
        std::unique_ptr<Lag> lag;
    };

    void add_link(Vport& vport, const std::string& dpdk);
    [[nodiscard]] int attach(Vport& vport);
    int open_port(Vport& vport, Link& link);
    int open_ports(Vport& vport);
    void place_queues(Link& link);
    void remove_queues(Link& link) noexcept;
    void close_port(Vport& vport, Link& link) noexcept;
    void close_ports(Vport& vport) noexcept;
    void check_links(VportId id, Vport& vport, void (SoftDevice::*check)(Vport&, Link&));
    void check_link(Vport& vport, Link& link);
    void see_whether_up(Vport& vport, Link& link);
    int change_mtu(Vport& vport, Link& link, std::uint16_t mtu);
    void tell_links(Vport& vport);
    void replace_captures(Link& link, std::vector<CaptureList::Item> items);
    [[nodiscard]] bool can_be_opened(const Link& link) const;
    void port_changed() noexcept;
    /// A plain function is what is behind its port.
    [[nodiscard]] VportId itself(VportId id) const noexcept {
        return is_function_ && id == manager_vport ? uplink_vport : id;
    }
    Vport* find(VportId vport) noexcept;
    [[nodiscard]] const Vport* find(VportId vport) const noexcept;
    Worker& worker_of(std::uint32_t sqn) noexcept { return *(*workers_)[sqn % workers_->size()]; }

    const std::string name_;
    const unsigned index_;
    const unsigned worker_count_;
    const std::uint64_t guid_;
    const bool is_function_;
    bool watch_lacp_ = false;
    const Profile profile_;
    Steering steering_;
    Listeners listeners_;
    const std::function<void()> wake_control_;
    std::atomic<bool> port_event_{false};
    Workers* workers_ = nullptr;
    PacketMemory memory_;

    std::mutex change_mutex_;   ///< whoever opens or closes ports, or adds or removes vports; taken before mutex_
    mutable std::mutex mutex_;  ///< the map and each VportInfo
    std::map<VportId, Vport> vports_;
    VportPath* manager_path_ = nullptr;  ///< counts what the manager's queues send
};

}  // namespace ovsdr::soft
