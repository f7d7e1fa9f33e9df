// The judges of NICs: the soft NIC, and the steering entries that the real libmlx5 wrote.
//
// The two are asked through offload/, unchanged; which of them a process can ask depends on the libibverbs that it
// loads. What comes up goes on in OVS's software, behind the recirculation or in the tunnel that its tag says.
//
// Threads: one judge, one thread. Errors: std::runtime_error, connectx::entries::Stopped.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/differential/judge/installation.hpp"

namespace ovsdr::differential {

/// What a phase changes in OVS's software: meters and megaflows.
void apply(const Phase& phase, OvsJudge& ovs, bool connectx_5);

/// What a NIC's deliveries become in a verdict.
class NicRecord {
public:
    NicRecord(const Scenario& scenario, OvsJudge& ovs, Installation& installation, Verdict& verdict)
        : scenario_(scenario), ovs_(ovs), installation_(installation), verdict_(verdict),
          software_(verdict, scenario.versions, Recorder::Of::slow_path),
          copies_(verdict, scenario.versions, Recorder::Of::copies) {}

    /// The software datapath gets the same meters and megaflows. Of this phase are the packets that follow. What came
    /// up before it may be read only now, and has the meaning that it had.
    void apply(const Phase& phase, bool connectx_5);
    /// When the priming is over.
    void exhaust_meters() { ovs_.exhaust_meters(); }
    /// When the packets have come out: adds to Verdict::meters and Verdict::filtered.
    void count(const Phase& phase);
    void out(std::uint32_t port, std::vector<std::uint8_t> frame);
    /// At the queue with this number.
    void up(std::uint32_t queue_pair, std::uint32_t tag, std::vector<std::uint8_t> frame);
    /// At a queue for copies: software does what the tag says.
    void copy(dr::CopyKind kind, std::uint32_t tag, std::vector<std::uint8_t> frame);
    /// How many have come, by CopyKind.
    [[nodiscard]] const dr::PerCopyKind<std::uint64_t>& copies() const { return came_; }

private:
    [[nodiscard]] std::uint32_t checked_number(const std::vector<std::uint8_t>& frame) const;
    void check_tags() const;

    const Scenario& scenario_;
    OvsJudge& ovs_;
    Installation& installation_;
    Verdict& verdict_;
    Recorder software_, copies_;
    dr::PerCopyKind<std::uint64_t> came_{};
    bool counts_ = true;
    std::vector<Service> services_;   ///< the phase's
    std::map<std::uint32_t, TableId> tables_;                                  ///< by tags of the phase
    std::map<std::uint32_t, std::weak_ptr<const dr::InstalledWork>> works_;   ///< by tags of the phase
};

/// `sockets`: of the vports, in the order of `ports`. `ovs` knows all versions, and has put none.
[[nodiscard]] Verdict judge_by_soft_nic(const Scenario& scenario, OvsJudge& ovs, unsigned format,
                                        const std::vector<std::string>& sockets);
/// `explain`: numbers of packets whose way through the entries is printed.
[[nodiscard]] Verdict judge_by_entries(const Scenario& scenario, OvsJudge& ovs, unsigned format,
                                       std::span<const std::uint32_t> explain);

}  // namespace ovsdr::differential
