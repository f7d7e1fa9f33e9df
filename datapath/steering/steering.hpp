// The steering engine of one device: the eSwitch (FDB) and the manager function's NIC_RX and NIC_TX pipelines.
//
// Model. Control calls (domains, tables, matchers, rules, actions: the dr_*.hpp headers beside this one) build
// an immutable-to-readers structure; workers read it through a Lane each and never wait. A packet goes
//     vport's port  -> FDB root -> ... -> vport's port | manager's NIC_RX root -> ... -> QP
//     manager's SQ  -> NIC_TX root -> ... -> FDB root -> ...
// Kernel stand-ins: where the FDB root has no rule for a packet it goes where a switchdev kernel would send it: a
// co-tenant's send queue to that queue's vport (cotenant_send_rule), everything else to the manager's NIC_RX. What
// NIC_RX root does not take goes to the RoCE transport where it is the transport's, otherwise to the co-tenant's sink,
// or is dropped and counted when there is none.
//
// Life cycle. A Lane is created by the worker that uses it, with an index below max_workers. A worker calls
// online() before it touches packets, quiescent() once per loop, offline() before it sleeps. What a writer removed
// is freed after each online lane was quiescent once; synchronize() waits for that.
//
// Threads: every Steering function may be called from any thread; every Lane function only from the Lane's worker.
#pragma once

#include <cstdint>
#include <memory>

#include "datapath/packet.hpp"
#include "datapath/profile.hpp"
#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class Lane;
struct GeneveOption;

class Steering {
public:
    explicit Steering(const Profile& profile);
    ~Steering();
    Steering(const Steering&) = delete;
    Steering& operator=(const Steering&) = delete;

    /// From now on packets for `vport` go to `sink`. EEXIST when the vport is attached, ENOSPC past max_vports.
    [[nodiscard]] int attach(VportId vport, Sink sink);

    /// LAG: in place of the uplink's sink, what queues send that have chosen `port` (1, 2) goes to `sink`, or to
    /// `strict` where they were strict. detach(uplink_vport) ends it. ENOSPC.
    [[nodiscard]] int attach_lag_port(unsigned port, Sink sink, Sink strict);

    /// Packets for `vport` are dropped and counted from now on. Returns once no worker can call its sink any more.
    void detach(VportId vport) noexcept;

    /// The kernel's own rule "what this queue of the manager sends goes to that vport". Before the queue sends, and
    /// gone after it has sent its last.
    void cotenant_send_rule(std::uint32_t sqn, VportId vport);
    void remove_cotenant_send_rule(std::uint32_t sqn) noexcept;

    /// By which port of an uplink in LAG the manager's queue sends, whatever leads its packets there; 0: by none. A
    /// strict one stays with its port though the port's link is down.
    void set_lag_port(std::uint32_t sqn, unsigned port, bool strict = false);

    /// Takes what no NIC_RX root rule took; an empty Sink drops and counts. Waits like detach().
    void set_cotenant_sink(Sink sink) noexcept;

    /// Shown what no NIC_RX root rule took, before the co-tenant; an empty Filter for none. Waits like detach().
    void set_transport(Filter transport);

    /// What the flexible parser looks for in Geneve headers from now on; a GeneveOption of length 0: nothing. The
    /// device has room for one: EBUSY while another is there.
    [[nodiscard]] int set_geneve_option(const GeneveOption& option);

    /// Lanes walk the tables again instead of doing what they have cached.
    void forget_cached() noexcept;
    /// The same for the packets of one source vport.
    void forget_cached(VportId source) noexcept;

    /// Waits until every online lane has passed a quiescent state. Never call it from a worker.
    void synchronize() noexcept;

    /// Packets dropped by reason since creation, summed over lanes.
    struct Drops {
        std::uint64_t by_rule;       ///< drop actions
        std::uint64_t no_vport;      ///< destination vport not attached
        std::uint64_t nic_rx_miss;   ///< NIC_RX miss: non-root, or root without co-tenant
        std::uint64_t malformed;     ///< shorter than an Ethernet header, more than one segment
        std::uint64_t no_buffer;     ///< a copy was needed and the pool was empty
        std::uint64_t loop;          ///< more table hops than there are levels
    };
    [[nodiscard]] Drops drops() const noexcept;

    /// Packets by whether a flow cache knew what to do with them, summed over lanes, since creation.
    struct CacheUse {
        std::uint64_t hits;
        std::uint64_t misses;   ///< walked the tables
    };
    [[nodiscard]] CacheUse cache_use() const noexcept;

    [[nodiscard]] const Profile& profile() const noexcept;

    class Impl;
    [[nodiscard]] Impl& impl() noexcept { return *impl_; }

private:
    std::unique_ptr<Impl> impl_;
};

/// One worker's view of one device's steering: its flow cache, counters and transmit batches.
class Lane {
public:
    Lane(Steering& steering, unsigned worker);
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    void online() noexcept;
    void offline() noexcept;
    void quiescent() noexcept;

    /// Steers packets that `vport`'s port received. Takes ownership. Calls set_source() itself.
    void from_vport(VportId vport, rte_mbuf** packets, unsigned length) noexcept;

    /// Steers packets that the manager function's queue `sqn` sends: NIC_TX, then FDB with source vport 0.
    void from_queue(std::uint32_t sqn, rte_mbuf** packets, unsigned length) noexcept;

    /// Hands every partly filled batch to its sink. Call it once per worker loop.
    void flush() noexcept;

    class Impl;

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace ovsdr::soft
