// A known megaflow: what it asks for, what the device holds of it, and where it is listed.
//
// Model. A FlowShard holds the megaflows whose ufid falls to it, and lists them under each datapath port that they mention, so
// that a port that changes finds its own without looking at the others.
//
// Threads: a shard's content is guarded by its mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "offload/dr/backlog.hpp"
#include "offload/dr/counter.hpp"
#include "offload/dr/megaflow_store.hpp"
#include "offload/dr/reason_table.hpp"
#include "offload/dr/rule.hpp"

namespace ovsdr::dr {

/// A rule in the device and the counter that it counts into. EswitchImpl::retire() is the only way out: whoever destroys one
/// that has a rule loses what it counted last.
struct Installation {
    Counter counter;   ///< outlives the rule
    Rule rule;
    std::uint8_t bytes_uncounted = 0;
};

struct Flow {
    StoredMegaflow megaflow;
    Installation now;
    std::unique_ptr<FlowStats> carried;   ///< counts of installations that this megaflow had before, if any
    ReasonTable::Mark mark;
    Backlog::Place place;                 ///< in line for the device
    std::unique_ptr<std::uint32_t[]> listed_at;   ///< position in each of its ports' lists
    bool was_installed = false;
};

struct UfidHash {
    std::size_t operator()(const Ufid& ufid) const noexcept { return ufid[0] ^ (ufid[1] * 0x9E3779B97F4A7C15ULL); }
};

using Flows = std::unordered_map<Ufid, Flow, UfidHash>;
using FlowEntry = Flows::value_type;

/// Which megaflows of a shard mention a datapath port. Adding, removing: a few steps for each port that the megaflow mentions.
class PortIndex {
public:
    /// `entry` stays where it is until it is removed, and its megaflow as it is.
    void add(FlowEntry& entry);
    void remove(FlowEntry& entry) noexcept;
    /// Each megaflow that mentions one of `ports`, once.
    [[nodiscard]] std::vector<FlowEntry*> find(std::span<const OdpPort> ports) const;

private:
    struct Mention {
        FlowEntry* entry;
        std::uint32_t number;   ///< which of the megaflow's ports this is
    };
    std::unordered_map<std::uint32_t, std::vector<Mention>> lists_;
};

struct FlowShard {
    mutable std::mutex mutex;
    Flows flows;
    PortIndex ports;
};

}  // namespace ovsdr::dr
