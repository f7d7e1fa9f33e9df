// What all open devices have in common: the datapath's tunnel ports, the megaflows of those ports, bridges' own ports,
// which numbers of ports have gone, storage mirrors' ports, meters, and users' choices.
//
// A packet that comes out of a tunnel has come in by any device, and its megaflow does not say by which. So each device
// knows each tunnel port and has each megaflow of it: what was counted is the sum over the devices.
//
// A device that is opened later learns of the ports, the meters and the choices here; it gets the megaflows when they
// are put again (ctrl/shim/adopt.h). When the last port of a device goes, the megaflows of tunnel ports go first, in
// all devices, so that nothing of what it had counted is lost (ctrl/shim/port_del.h).
//
// Threads: any. Megaflows are put, asked for and deleted side by side, and go on while devices compile megaflows again
// because tunnel ports or choices changed, which takes long where there are many. Who only asks about tunnel ports, as
// threads that receive packets do, never waits for a device. No megaflow is put for a tunnel port that has gone, and
// nobody but its ports holds a device that goes.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string_view>
#include <vector>

#include "common/writer_first_mutex.hpp"
#include "ctrl/meter_share.hpp"
#include "offload/dr/eswitch.hpp"

namespace ovsdr::ctrl {

class AllDevices {
public:
    /// Ports of mirrors, and why a device does not steer to them as it was told.
    using Refused = std::vector<std::pair<dr::OdpPort, Error>>;
    /// The Eswitch stays until it is removed.
    Refused add(dr::Eswitch& eswitch);
    /// With its megaflows of tunnel ports: should others keep the Eswitch, it does not hear of their deletion.
    void remove(dr::Eswitch& eswitch) noexcept;
    /// Whether a device was added since the last call.
    [[nodiscard]] bool take_added() noexcept;

    void set_tunnel_port(const dr::TunnelPort& port);
    /// With its megaflows.
    void remove_tunnel_port(dr::OdpPort port) noexcept;
    [[nodiscard]] std::optional<dr::TunnelPort> tunnel_port(dr::OdpPort port) const;
    [[nodiscard]] std::optional<dr::TunnelPort> tunnel_port(std::string_view name) const;
    [[nodiscard]] std::vector<dr::TunnelPort> tunnel_ports() const;

    /// The datapath has a port of this number, a bridge's own or another one.
    void add_port(dr::OdpPort port, bool is_host) noexcept;
    /// It is about to have none.
    void remove_port(dr::OdpPort port) noexcept;

    /// A storage mirror's port, or another steering of it. A device that refuses does not know the port: what megaflows
    /// send there, software sends. The first refusal, if there is one.
    Result<void> set_mirror_port(dr::OdpPort port, dr::CopyKind kind, const dr::MirrorSteering& steering);
    void remove_mirror_port(dr::OdpPort port) noexcept;

    void choose(const dr::Eswitch::Choices& choices);

    void set_meter(std::uint32_t number, const meter::Spec& spec);
    /// What all devices have counted of it.
    dr::MeterStats remove_meter(std::uint32_t number) noexcept;
    [[nodiscard]] dr::MeterStats meter_stats(std::uint32_t number) const;
    [[nodiscard]] bool has_meters() const;
    /// Numbers of all meters, whether a device has them or not.
    [[nodiscard]] std::vector<std::uint32_t> meters() const;
    /// Of those that megaflows in devices use.
    [[nodiscard]] std::vector<std::uint32_t> meters_in_devices();
    /// `used` is called when a device gets the first megaflow of a meter; with locks held.
    void on_meter_use(std::function<void()> used);
    /// See ovsdr_meter_charge(). Devices that meters_in_devices() did not find are asked for nothing.
    void charge_meter(std::uint32_t number, const dr::FlowStats& in_software, std::int64_t elapsed_ms,
                      unsigned interval_ms);

    /// Into each device; nothing if its in_port is no tunnel port. Installed if any device has installed it, else what
    /// a device failed in, else why it was rejected.
    [[nodiscard]] std::optional<dr::PutOutcome> put(const dr::Ufid& ufid, const ovsdr_megaflow& megaflow,
                                                    std::uint16_t neighbourhood);
    [[nodiscard]] bool knows(const dr::Ufid& ufid) const;
    /// Of all devices.
    [[nodiscard]] std::optional<dr::Eswitch::Status> status(const dr::Ufid& ufid) const;
    /// Calls `visit` for each device; while it does, none comes or goes.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        const std::shared_lock guard(eswitches_lock_);
        std::ranges::for_each(eswitches_, [&](dr::Eswitch* eswitch) { visit(*eswitch); });
    }

private:
    // Locks in the order in which they are taken. Whoever changes devices, tunnel ports, meters or choices holds the
    // first one all the while, and may read all of these without the others.
    mutable std::mutex changes_;
    dr::Eswitch::Choices choices_;
    std::set<dr::OdpPort> host_ports_, gone_ports_;
    struct MirrorPort {
        dr::CopyKind kind;
        dr::MirrorSteering steering;
    };
    std::map<dr::OdpPort, MirrorPort> mirror_ports_;
    [[nodiscard]] static Result<void> tell(dr::Eswitch& eswitch, dr::OdpPort number, const MirrorPort& port);
    mutable WriterFirstMutex eswitches_lock_;   ///< shared by whoever calls devices that may go
    std::vector<dr::Eswitch*> eswitches_;
    mutable WriterFirstMutex ports_lock_;       ///< for moments
    std::map<dr::OdpPort, dr::TunnelPort> tunnel_ports_;
    struct KnownMeter {
        meter::Spec spec;
        std::map<dr::Eswitch*, MeterShare> shares{};   ///< of devices in which megaflows use it
        MeterSplit split{};                            ///< of several such devices
        /// As devices count, in units of the rate, when they were last asked.
        struct Counted {
            std::uint64_t passed = 0, dropped = 0;
            double carry = 0;   ///< MeterSplit's
        };
        std::map<dr::Eswitch*, Counted> counted_in{};
        dr::MeterStats carried{};                      ///< of devices, or objects of theirs, that have gone
    };
    std::map<std::uint32_t, KnownMeter> meters_;
    std::function<void()> meter_used_;
    std::atomic<bool> added_ = false;
};

/// Of this process. Never destroyed: the process may leave through exit().
[[nodiscard]] AllDevices& all_devices();

/// What one device counted on top of what others did.
void add_to(dr::FlowStats& sum, const dr::FlowStats& stats) noexcept;
void add_to(dr::MeterStats& sum, const dr::MeterStats& stats) noexcept;

}  // namespace ovsdr::ctrl
