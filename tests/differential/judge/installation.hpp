// A scenario's ports, tunnel ports and megaflows in the process's NIC, through offload/.
//
// Ports leave and come while megaflows change, so do tunnel ports and queues for copies, ports get other queues, one or
// several by kind of packet, megaflows are put that no device takes, and all are flushed once: when a phase's packets
// come nothing shows of it. What shows is what the phase says: whom software polices, and what a mirror wants.
//
// Life cycle. apply() one phase after another: when it returns, megaflows that wait for tables are in the NIC, too.
//
// Threads: one. Errors: std::runtime_error.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/differential/judge/expectation.hpp"
#include "tests/differential/judge/port_queues.hpp"
#include "tests/differential/judge/verdict.hpp"

namespace ovsdr::differential {

/// A storage mirror's.
inline constexpr dr::CopyKind mirror_copies = dr::mirror_kind(0);
/// That there are queues for.
inline constexpr std::array judged_copies{dr::CopyKind::host, dr::CopyKind::other, mirror_copies};

class Installation {
public:
    /// What is to go wrong with the Nth try, from 1, to set one thing up. 0: nothing more; tells whether the last did.
    using Trouble = std::function<bool(unsigned nth)>;
    static bool no_trouble(unsigned /*nth*/) noexcept { return false; }

    /// Attaches all ports, and leads copies to their queues. `ovs` has the translations of all versions.
    /// `fail_next_read`: the next query of counters is to fail.
    Installation(const Scenario& scenario, const OvsJudge& ovs, unsigned format, Verdict& verdict,
                 const Trouble& trouble = no_trouble, std::function<void()> fail_next_read = [] {});
    ~Installation();
    Installation(const Installation&) = delete;
    Installation& operator=(const Installation&) = delete;

    /// For megaflows that are no scenario's: who puts them takes them out again.
    [[nodiscard]] dr::Eswitch& eswitch() const { return *eswitch_; }
    /// Adds to Verdict::installed, and what megaflows counted that go.
    void apply(const Phase& phase);
    /// When exhausted meters have had their first packet, which fills the bucket of a device: from now on nothing comes
    /// back.
    void stop_meters();
    /// Adds what they counted in the NIC, by number.
    void add_meter_counts(std::vector<MeterCounts>& to) const;
    /// Deletes them all, and takes their counts if the last phase counts. So do meters go.
    void end();

    /// The odp port at one of whose queues this packet has come up. It must be the queue for its kind, and the device
    /// must say that it has led as many there as have come. `is_true`: its headers are.
    std::uint32_t came_up(std::uint32_t queue_pair, const std::vector<std::uint8_t>& frame, bool is_true);
    [[nodiscard]] const PortQueues& queues(std::size_t port) const { return queues_[port]; }
    /// Throws if anything has come to queues that have been replaced.
    void check_old_queues() const;
    /// Its megaflows are in software, and so are all its packets.
    [[nodiscard]] bool is_policed(std::size_t port) const { return ports[port].odp == policed_; }
    /// Where a packet missed that came up with this tag.
    [[nodiscard]] TableId table_of(std::uint32_t tag) const;

    [[nodiscard]] slowpath::PortQueue& copy_queue(dr::CopyKind kind) { return *copy_queues_[index_of(kind)]; }
    /// Nothing: the queue pair is for no copies.
    [[nodiscard]] std::optional<dr::CopyKind> copies_of_queue(std::uint32_t queue_pair) const;
    /// What is to be done to a copy that came up with this tag.
    [[nodiscard]] std::shared_ptr<const dr::InstalledWork> work_of(std::uint32_t tag) const;
    /// Of copies for the mirror, since the call before: those of none of its services.
    [[nodiscard]] std::uint64_t take_filtered();
    /// That the device says it has led to each queue is what came there.
    void check_copies(const dr::PerCopyKind<std::uint64_t>& came) const;

private:
    void check_queues();
    void check_failing_switch(std::size_t port);
    [[nodiscard]] dr::PortSpec spec_of(std::size_t port) const;
    void attach(std::size_t port, const Trouble& trouble = no_trouble);
    void add_tunnel_port(TunnelKind kind);
    void make_copy_queue(dr::CopyKind kind);
    void lead_copies(dr::CopyKind kind, const Trouble& trouble = no_trouble);
    void replace_copy_queue(dr::CopyKind kind);
    void switch_queues(std::size_t port);
    void switch_queues(std::size_t port, bool has_kinds);
    void forget_old_queues();
    void police(std::uint32_t odp);
    void flush(std::uint32_t odp);
    void check_no_tunnels() const;
    void check_live_counts() const;
    void mirror(const std::vector<Service>& services);
    void disturb(std::size_t change, const Phase& phase);
    void set_meter(const MeterChange& change);
    void put(std::uint32_t version);
    void remove(const std::vector<std::uint32_t>& ufids);
    [[nodiscard]] std::vector<std::uint8_t> installed() const;
    void wait_until_settled();
    void tell_missing(const std::vector<Expectation>& expected, const std::vector<std::uint8_t>& installed) const;

    const Scenario& scenario_;
    const bool connectx_5_;
    const OvsJudge& ovs_;
    Verdict& verdict_;
    Expectations expectations_;
    std::function<void()> fail_next_read_;
    bool counts_ = true;
    std::vector<std::int64_t> version_of_;                       ///< by ufid; -1: not there
    std::shared_ptr<dr::Eswitch> eswitch_;
    std::vector<PortQueues> queues_;        ///< as ports
    std::vector<std::uint64_t> came_up_;    ///< to each port's since they are its own
    struct Old {
        std::size_t port;
        PortQueues queues;
    };
    std::optional<Old> old_;                ///< nothing comes up there any more
    std::uint32_t policed_ = 0;             ///< odp port; 0: none
    dr::PerCopyKind<std::unique_ptr<slowpath::PortQueue>> copy_queues_;
    std::unique_ptr<slowpath::PortQueue> old_copies_;   ///< nothing comes up there any more
    std::uint64_t led_before_ = 0;   ///< to the mirror's queue, before it left last
    std::uint64_t filtered_ = 0;     ///< in front of it since it came last, as far as it was taken
    MeterSpecs meters_;
};

}  // namespace ovsdr::differential
