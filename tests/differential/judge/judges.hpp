// The three judges: OVS's software datapath, the soft NIC, and the steering entries that the real libmlx5 wrote.
//
// The two NICs are asked through offload/, unchanged; which of them a process can ask depends on the libibverbs that it
// loads.
//
// Threads: one judge, one thread. Errors: std::runtime_error, connectx::entries::Stopped.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/packets.hpp"
#include "tests/differential/judge/verdict.hpp"

struct ovs_judge;

namespace ovsdr::differential {

struct Scenario {
    std::vector<Megaflow> megaflows;
    std::vector<TestPacket> packets;
};

/// OVS's, and each megaflow as ctrl/ would hand it to offload/.
class OvsJudge {
public:
    explicit OvsJudge(const std::vector<Megaflow>& megaflows);
    ~OvsJudge();
    [[nodiscard]] const std::vector<ovsdr_megaflow>& translated() const noexcept { return translated_; }
    [[nodiscard]] Verdict judge(const Scenario& scenario) const;

private:
    ::ovs_judge* ovs_;
    std::vector<ovsdr_megaflow> translated_;
};

/// The ports and megaflows of a scenario in the process's NIC.
class Installation {
public:
    /// Attaches all ports.
    Installation();
    ~Installation();
    /// Verdict::megaflows, without counts.
    void put(const std::vector<ovsdr_megaflow>& megaflows, Verdict& verdict);
    /// Deletes them all and takes their final counts.
    void remove(Verdict& verdict);

    /// The odp port whose queue has this number; 0 when none has.
    [[nodiscard]] std::uint32_t port_of_queue(std::uint32_t queue_pair) const;
    [[nodiscard]] slowpath::PortQueue& queue(std::size_t port) { return *queues_[port]; }

private:
    std::shared_ptr<dr::Eswitch> eswitch_;
    std::vector<std::unique_ptr<slowpath::PortQueue>> queues_;   ///< as ports
};

/// `sockets`: of the vports, in the order of `ports`.
[[nodiscard]] Verdict judge_by_soft_nic(const Scenario& scenario, const std::vector<ovsdr_megaflow>& megaflows,
                                        const std::vector<std::string>& sockets);
/// `explain`: numbers of packets whose way through the entries is printed.
[[nodiscard]] Verdict judge_by_entries(const Scenario& scenario, const std::vector<ovsdr_megaflow>& megaflows,
                                       std::span<const std::uint32_t> explain);

}  // namespace ovsdr::differential
