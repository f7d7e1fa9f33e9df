// One device's eSwitch, as ctrl/ uses it: its ports, the megaflows installed in it, and what a user may read of both.
//
// Model. All `dr` ports of a device share one Eswitch. It owns the FDB, NIC_RX and NIC_TX domains and the tables of
// docs/architecture.md; attach_port() puts in the rules that lead a vport's packets to the megaflow tables and its
// misses to the port's slow-path QP; put() compiles a megaflow and installs it.
//
// The Eswitch keeps each megaflow that it was given, installed or rejected, with the reason. A port that comes or
// goes, or moves to another vport, recompiles the megaflows that name its datapath port number: rules of a dead port
// are gone when detach_port() returns, and megaflows that waited for a port are installed when it comes. One that the
// device failed to take waits in a line (backlog.hpp) and is tried again by itself.
//
// Statistics. A megaflow's counter lives as long as its ufid is known: a modify keeps it, and it moves over to the
// new rule. One poller reads counters in bulk; stats() reads memory, and while megaflows are few asks for what is not
// recent. del() stops the rule, waits until the device has let go of it, and reads the counter once more: what it
// returns is final and exact.
//
// Threads: any function from any thread; put/del of different ufids run in parallel. Nothing throws. No OVS.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "offload/dr/choices.hpp"
#include "offload/dr/megaflow.h"
#include "offload/dr/graph.hpp"
#include "offload/dr/ids.hpp"
#include "offload/dr/reject.hpp"
#include "offload/dr/result.hpp"
#include "offload/dr/roce_address.hpp"
#include "offload/dr/software.hpp"
#include "offload/meter/parameters.hpp"

struct ibv_context;
struct ibv_pd;
struct ibv_qp;

namespace ovsdr::dr {

/// Not offloaded (a Reject, normal) or failed (an Error of the device). std::monostate: installed.
using PutOutcome = std::variant<std::monostate, Reject, Error>;

/// A queue pair for packets of one kind that come up.
struct QueuePairFor {
    ibv_qp* qp;
    std::uint8_t ip_version;    ///< 4 or 6
    std::uint8_t ip_protocol;   ///< 0: any
};

struct PortSpec {
    OdpPort odp_port;         ///< may be unknown (UINT32_MAX) until set_odp_port()
    VportId vport;
    std::string name;         ///< the interface's, for messages
    ibv_qp* slow_path_qp;     ///< a raw packet QP on pd(); outlives the attachment
    std::uint32_t slow_path_sqn;
    std::span<const QueuePairFor> by_kind{};   ///< others than slow_path_qp, as that; the list is read at once
    bool policed = false;     ///< as set_policed() says
    std::uint16_t vlan = 0;   ///< 1 to 4094, of a plain function: the tag that its packets have outside; 0: none
};

/// What came of Eswitch::switch_queue().
struct QueueSwitch {
    Result<void> made;
    /// Packets in all that were led to the queue which gets no more: the one before, after an error the new one.
    std::uint64_t led_up = 0;
};

struct FlowReport {
    Ufid ufid;
    bool offloaded;
    /// The rule that its packets meet (domain, table, matcher, value, counter, actions), or all reasons why there is
    /// none, in one line.
    std::string text;
    std::vector<std::string> reasons;   ///< the same one by one; empty if it is offloaded
    /// Line by line, by domain: every table, matcher and rule that its packets meet, and where they go from there.
    /// From explain() only.
    std::vector<std::string> program;
    FlowStats stats;
};

class PlainFunction;

class Eswitch {
public:
    /// Opens `device` ("mlx5_0") or shares the Eswitch that is already open. ENODEV names the devices there are. A
    /// function that has no rights on an eSwitch is opened as a PlainFunction.
    [[nodiscard]] static Result<std::shared_ptr<Eswitch>> open(std::string_view device);

    virtual ~Eswitch() = default;

    [[nodiscard]] virtual std::string_view device() const noexcept = 0;
    [[nodiscard]] virtual ibv_context* context() const noexcept = 0;
    [[nodiscard]] virtual ibv_pd* pd() const noexcept = 0;
    /// NULL: it manages an eSwitch.
    [[nodiscard]] virtual PlainFunction* plain_function() noexcept { return nullptr; }

    /// EBUSY: the vport is taken (`what` says by which port). ENOENT: the device has no such vport. EINVAL: it is the
    /// manager's own.
    [[nodiscard]] virtual Result<void> attach_port(const PortSpec& spec) noexcept = 0;
    /// Misses that had come in from the vport are in its queue when this returns, and what the queue has sent is at the
    /// vport.
    virtual void detach_port(VportId vport) noexcept = 0;
    /// Leads what misses from the vport to another queue while traffic goes on: each packet reaches one of the two, and
    /// megaflows stay as they are. When this returns the old queue gets nothing more. What either queue sends reaches
    /// the vport, until forget_old_queue(). An error: the old queue stays, and the new one gets nothing more.
    [[nodiscard]] virtual QueueSwitch switch_queue(VportId vport, ibv_qp* qp, std::uint32_t sqn,
                                                   std::span<const QueuePairFor> by_kind) noexcept = 0;
    [[nodiscard]] QueueSwitch switch_queue(VportId vport, ibv_qp* qp, std::uint32_t sqn) noexcept {
        return switch_queue(vport, qp, sqn, {});
    }
    /// What the queue of before switch_queue() sends goes nowhere; its QP may be destroyed when this returns.
    virtual void forget_old_queue(VportId vport) noexcept = 0;
    /// Tells or changes the datapath port number of an attached vport. Opens its entrance again, which is all that can
    /// fail: nothing comes in then.
    virtual Result<void> set_odp_port(VportId vport, OdpPort odp_port) noexcept = 0;
    /// Whether the slow path polices what comes in from an attached vport. If so, all of it goes there: when this
    /// returns no megaflow from this port is in the device, and no packet is under way in one; but for rules that the
    /// device would not destroy (Totals::kept_rules).
    virtual void set_policed(VportId vport, bool policed) noexcept = 0;
    /// Lets nothing in from the vport any more. What came in has been counted when this returns: statistics of the
    /// megaflows from this port grow no more. For the last words of a port that is about to go.
    virtual void close_entrance(VportId vport) noexcept = 0;

    /// Adds or changes a tunnel port, which is no vport. Megaflows that name it are compiled again.
    virtual void set_tunnel_port(const TunnelPort& port) noexcept = 0;
    virtual void remove_tunnel_port(OdpPort odp_port) noexcept = 0;

    using Choices = dr::Choices;
    /// Megaflows that it is about are compiled again.
    virtual void choose(const Choices& choices) noexcept = 0;

    /// Adds or changes an OpenFlow meter; its statistics begin anew. Packets of megaflows in the device are metered all
    /// the time, and each by the old meter or by the new one. What the device cannot do takes its megaflows out.
    virtual void set_meter(std::uint32_t number, const meter::Spec& spec) noexcept = 0;
    /// When this returns, no megaflow that it meters is in the device. Its last statistics.
    virtual MeterStats remove_meter(std::uint32_t number) noexcept = 0;
    /// Whether a rule in the device uses the meter now.
    [[nodiscard]] virtual bool has_meter(std::uint32_t number) noexcept = 0;
    /// `used` is called when the first rule is about to use a meter, with locks held.
    virtual void on_meter_use(std::function<void()> used) noexcept = 0;
    /// Until the next call the device lets no more pass than `rate`, which is at most that of set_meter(). Nothing else
    /// changes. An error: the device has the old rate or the new one.
    virtual Result<void> lower_meter(std::uint32_t number, std::uint32_t rate) noexcept = 0;
    /// Asks the device. Of a meter that is not known, or of no use yet: nothing counted.
    [[nodiscard]] virtual MeterStats meter_stats(std::uint32_t number) noexcept = 0;

    [[nodiscard]] virtual bool knows(const Ufid& ufid) const noexcept = 0;
    /// Adds, or modifies when the ufid is known (statistics go on). A Reject or Error leaves no rule of this ufid
    /// behind. Megaflows of one `neighbourhood`, a number that the caller chooses, are cheaper to delete in one call.
    [[nodiscard]] virtual PutOutcome put(const Ufid& ufid, const ovsdr_megaflow& megaflow,
                                         std::uint16_t neighbourhood) noexcept = 0;
    [[nodiscard]] PutOutcome put(const Ufid& ufid, const ovsdr_megaflow& megaflow) noexcept {
        return put(ufid, megaflow, 0);
    }
    /// With the number by which the caller knows the megaflow's packets, for PlainFunction::mark_of(); 0: none.
    [[nodiscard]] virtual PutOutcome put_marked(const Ufid& ufid, const ovsdr_megaflow& megaflow,
                                                std::uint16_t neighbourhood, std::uint32_t /*mark*/) noexcept {
        return put(ufid, megaflow, neighbourhood);
    }

    struct Deletion {
        Ufid ufid;
        std::optional<FlowStats> last{};   ///< out: final statistics, nothing if it was unknown or never installed
    };
    /// Forgets the ufids. The device is waited for once, and each counter bulk read once, however many they are: delete
    /// in batches.
    virtual void del(std::span<Deletion> deletions) noexcept = 0;
    /// One of them; its final statistics.
    std::optional<FlowStats> del(const Ufid& ufid) noexcept {
        Deletion one{ufid};
        del(std::span(&one, 1));
        return one.last;
    }

    struct Status {
        FlowStats stats;
        bool offloaded;   ///< a rule is in the device now
        bool partly = false;   ///< which only says whose the packets are (PlainFunction)
    };
    /// Of a megaflow that is or was installed: a modify that the device could not take leaves its statistics. Nothing
    /// if the ufid is unknown or never was installed.
    [[nodiscard]] virtual std::optional<Status> status(const Ufid& ufid) noexcept = 0;

    /// In which table a packet missed that came up with this flow tag: behind that recirculation it goes on, as it is.
    /// With a tunnel port it still has its outer headers; the megaflow whose tnl_pop led it there has counted it, and
    /// what goes on is inside of them. Nothing: the tag is not ours, or its table went too long ago.
    [[nodiscard]] virtual std::optional<TableKey> table_of(std::uint32_t tag) const noexcept = 0;

    // Copies for software (software.hpp), of all ports.
    /// Whether a port that is no vport is a bridge's own: outputs to it are copies for the host. Megaflows that name it
    /// are compiled again when it becomes one. When it goes, OVS deletes them a moment later.
    virtual void set_host_port(OdpPort /*odp_port*/, bool /*is_host*/) noexcept {}
    /// Whether the datapath has no port of this number any more: an output there drops the packet, as in dpif-netdev,
    /// and is no copy for software. It concerns those that are compiled from now on, since OVS deletes such megaflows a
    /// moment later; but all that name the number when it is a port's again.
    virtual void set_gone_port(OdpPort /*odp_port*/, bool /*gone*/) noexcept {}
    /// Adds or changes a port of type drmirror, which is no vport: outputs to it are copies of this kind, one of
    /// mirror_kind(). EBUSY: another port has it. What the port was before, it is no more. Megaflows that name it are
    /// compiled again. Before or after lead_copies(); whoever has copies of this kind already gets those of services
    /// that are asked for from now on. An error: all stays as it was.
    [[nodiscard]] virtual Result<void> set_mirror_port(OdpPort /*odp_port*/, CopyKind /*kind*/,
                                                       const MirrorSteering& /*steering*/) noexcept {
        return {};
    }
    /// When this returns, no rule in the device copies to the mirror; a copy that is on its way up may still come,
    /// which stop_copies() waits for. The port is any other one now: until OVS has done away with the megaflows that
    /// name it, each copy goes to the queue for others, which finds no such port and drops it. Services stay the
    /// kind's until another port has it.
    virtual void remove_mirror_port(OdpPort /*odp_port*/) noexcept {}
    /// Copies of this kind that the device has dropped because they are of none of the steering's services. They are in
    /// WorkReport::copies, but not in copies().
    [[nodiscard]] virtual std::uint64_t filtered_copies(CopyKind /*kind*/) const noexcept { return 0; }
    /// Leads such copies to this raw packet QP on pd(), or from the queue before to this one: each copy reaches one of
    /// the two, and the old one gets nothing more when this returns. Until there is a queue, megaflows that need such
    /// copies are rejected. An error: all stays as it was, but the new queue may have got some copies, and the old one
    /// not those.
    [[nodiscard]] virtual Result<void> lead_copies(CopyKind kind, ibv_qp* qp) noexcept = 0;
    /// No megaflow in the device needs such copies, and none is under way to the queue, when this returns.
    virtual void stop_copies(CopyKind kind) noexcept = 0;
    /// What is to be done to a copy that came up with this flow tag. Nothing: the tag is not ours, or all megaflows
    /// that had such work went too long ago.
    [[nodiscard]] virtual std::shared_ptr<const InstalledWork> work_of(std::uint32_t tag) const noexcept = 0;
    /// That the device led to queues of this kind; what a queue had no room for, too. Those of a mirror, and
    /// filtered_copies(), begin at 0 with the first lead_copies(), and with that which follows stop_copies().
    [[nodiscard]] virtual std::uint64_t copies(CopyKind /*kind*/) const noexcept { return 0; }
    struct WorkReport {
        std::uint32_t id;                            ///< the copies' flow tag
        std::shared_ptr<const InstalledWork> work;
        std::uint64_t copies;                        ///< led to the queue, or to a mirror's filter
    };
    /// Of all work that megaflows in the device need now, by id.
    [[nodiscard]] virtual std::vector<WorkReport> works() const { return {}; }
    /// What came up for each sampler and rate that megaflows have had, since the device is open.
    [[nodiscard]] virtual std::vector<std::shared_ptr<const SamplerCount>> samplers() const { return {}; }

    // The manager function's own RoCE.
    /// From now on what the uplink gets for this address is the manager's, whether the uplink is a port, becomes one or
    /// is none: RoCE, and ARP or neighbour discovery for it, of which the switch gets its copy (roce_entrance.hpp). As
    /// often as forget_roce() is to be called. An error: all stays as it was. EOPNOTSUPP, while the uplink is a port:
    /// the device makes no copies to tables. What comes in another VLAN or to another MAC stays the switch's.
    [[nodiscard]] virtual Result<void> let_roce_in(const RoceAddress& /*address*/) noexcept { return {}; }
    /// Whether an address that has been let in is so in the device, too. An uplink becomes a port although the device
    /// refuses the address, and then RoCE to it is the switch's: this asks the device again. An error: its, and all
    /// stays as it was. ENOENT: nobody has let the address in.
    [[nodiscard]] virtual Result<void> retry_roce(const RoceAddress& /*address*/) noexcept { return {}; }
    virtual void forget_roce(const RoceAddress& /*address*/) noexcept {}

    /// Removes every megaflow whose in_port is `port`, or all.
    virtual void flush(std::optional<OdpPort> port) noexcept = 0;

    /// For `dr/show`: domains, tables, matchers (mask, rules, priority), rules, hits. `verbose` lists the rules. Ports
    /// have names for those who give them.
    [[nodiscard]] virtual std::string show(bool verbose, const PortNames& names = {}) const = 0;
    /// For `dr/graph`: what is in the device now, and what it has counted.
    [[nodiscard]] virtual Graph graph() const = 0;
    [[nodiscard]] virtual std::optional<FlowReport> explain(const Ufid& ufid, const PortNames& names = {}) const = 0;

    /// A megaflow is counted under each of its obstacles: the sum over all reasons is more than Totals has megaflows.
    struct ReasonCount {
        std::string reason;       ///< an obstacle's, or "offloaded", or "device error"
        std::string detail;       ///< the field or action at fault, or the call and its errno; empty for "offloaded"
        std::uint64_t megaflows;  ///< known now
        std::uint64_t total;      ///< since start
        std::uint64_t packets = 0;   ///< of those that reasons() was given
    };
    /// What software did with a megaflow that is in no device.
    struct InSoftware {
        Ufid ufid;
        std::uint64_t packets;
    };
    /// Packets count under each of their megaflow's obstacles. Megaflows that are not known do not.
    [[nodiscard]] virtual std::vector<ReasonCount> reasons(std::span<const InSoftware> in_software) const = 0;
    [[nodiscard]] std::vector<ReasonCount> reasons() const { return reasons({}); }

    struct Totals {
        std::uint64_t offloaded, rejected, failed;  ///< megaflows now, each once
        std::uint64_t packets, bytes;               ///< by offloaded rules since start, those gone included
        std::uint64_t misses;                       ///< packets that the FDB sent up
        std::uint64_t kept_rules;   ///< of megaflows that are gone: the device would not destroy them, they go on
        /// That the device led to the queues for them, but for mirrors'; what a queue had no room for, too.
        std::uint64_t copies = 0;
    };
    [[nodiscard]] virtual Totals totals() const noexcept = 0;

    /// What the tables of one level hold, without the private ones of branches.
    struct TableUse {
        std::string domain;   ///< "FDB", "NIC_RX"
        std::uint32_t level;
        std::uint64_t tables = 0, matchers = 0, rules = 0;
    };
    /// Of each level that has a table; nothing of a device that does not tell. Looks at matchers, not at megaflows.
    [[nodiscard]] virtual std::vector<TableUse> table_use() const { return {}; }
};

/// Whether any Eswitch has ever had a table behind a recirculation or of a tunnel port. True before a packet can come
/// up from there.
[[nodiscard]] bool any_recirculation() noexcept;

/// All Eswitches that are open, for unixctl.
[[nodiscard]] std::vector<std::shared_ptr<Eswitch>> open_eswitches();

}  // namespace ovsdr::dr
