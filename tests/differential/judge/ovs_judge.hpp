// OVS's software datapath (ovs.h) with the megaflows of a scenario.
//
// Threads: one at a time in a process: OVS keeps the vlan-limit for all. Errors: std::runtime_error for a megaflow that
// OVS does not understand.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/ovs.h"

namespace ovsdr::differential {

class OvsJudge {
public:
    /// What becomes of a packet, in the order in which it does.
    class Listener {
    public:
        virtual ~Listener() = default;
        virtual void output(std::uint32_t port, std::span<const std::uint8_t> frame, std::size_t source_port_at) = 0;
        virtual void userspace(const ovs_judge_packet&, const ovs_judge_told&) {}
        virtual void taken(std::uint32_t version, const ovs_judge_packet& packet) = 0;
        virtual void missed(const ovs_judge_packet& packet, const ovs_judge_seen& seen) = 0;
    };

    OvsJudge();
    ~OvsJudge();
    OvsJudge(const OvsJudge&) = delete;
    OvsJudge& operator=(const OvsJudge&) = delete;

    /// Versions are numbered as they are added. No packet finds one before it is put.
    void add(const Megaflow& megaflow);
    [[nodiscard]] const ovsdr_megaflow& translated(std::uint32_t version) const { return translated_.at(version); }
    /// Takes the place of the version of the same ufid that is there.
    void put(std::uint32_t version);
    void remove(std::uint32_t version);

    /// It begins with full buckets and no counts, or is there no longer. `bytes_more`: see bytes_more_for_software().
    void set_meter(const MeterChange& change, std::uint32_t bytes_more);
    /// Exhausts those that are to be, behind their priming.
    void exhaust_meters();
    /// Adds what each counted, by number.
    void add_meter_counts(std::vector<MeterCounts>& to) const;

    /// False: OVS drops some of it, because it recirculates too often.
    bool forward(const ovs_judge_packet& packet, Listener& listener) const;

    /// Does a megaflow's actions to a copy (ovs.h).
    void execute(const ovs_judge_packet& copy, const ovsdr_tunnel_fields& tunnel,
                 std::span<const std::uint8_t> actions, Listener& listener) const;

private:
    ::ovs_judge* ovs_;
    std::deque<ovsdr_megaflow> translated_;
    std::vector<std::uint32_t> ufids_;                    ///< by version
    std::map<std::uint32_t, std::uint32_t> versions_;     ///< that are there, by ufid
    MeterSpecs meters_;
};

/// In which OVS looks it up.
[[nodiscard]] inline TableId table_of(const ovs_judge_packet& packet) {
    return {packet.recirc_id, is_tunnel_port(packet.in_port) ? packet.in_port : 0};
}

}  // namespace ovsdr::differential
