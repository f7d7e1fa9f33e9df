// A known megaflow: what it asks for, what the device holds of it, and its place in line.
//
// Model. A FlowShard holds the megaflows whose ufid falls to it, and knows which datapath ports they mention, so that a
// port that changes finds its own without looking at all others.
//
// Threads: a shard's content is guarded by its mutex.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "offload/dr/backlog.hpp"
#include "offload/dr/install/counter.hpp"
#include "offload/dr/megaflow_store.hpp"
#include "offload/dr/reason_table.hpp"
#include "offload/dr/device/rule.hpp"

namespace ovsdr::dr {

/// A rule in the device and the counter that it counts into. EswitchImpl::retire() is the only way out: whoever
/// destroys one that has a rule loses what it counted last.
struct Installation {
    Counter counter;   ///< outlives the rule
    Rule rule;
    std::int16_t bytes_uncounted = 0;
};

/// What a deletion touches lies together; the megaflow's key comes last.
struct Flow {
    Installation now;
    std::unique_ptr<FlowStats> carried;   ///< counts of installations that this megaflow had before, if any
    ReasonTable::Mark mark;
    std::unique_ptr<std::string> failure;   ///< what the device said, when it did not take the megaflow last
    Backlog::Place place;                 ///< in line for the device
    std::uint16_t neighbourhood = 0;      ///< its counters lie with those of the same
    bool was_installed = false;
    StoredMegaflow megaflow;
};

/// Not noexcept: the standard library's table then keeps the hash in each node, and a look-up passes over the other
/// nodes of a bucket without computing theirs.
struct UfidHash {
    std::size_t operator()(const Ufid& ufid) const { return ufid[0] ^ (ufid[1] * 0x9E3779B97F4A7C15ULL); }
};

using Flows = std::unordered_map<Ufid, Flow, UfidHash>;
using FlowEntry = Flows::value_type;

/// How many megaflows of a shard mention each datapath port. A port that changes looks only into shards that have some:
/// with few megaflows it finds them among a few shards' worth, however many there are in all. Finer lists would cost
/// each deletion several cache misses and each megaflow some fifty bytes.
class PortIndex {
public:
    void add(const StoredMegaflow& megaflow);
    void remove(const StoredMegaflow& megaflow) noexcept;
    [[nodiscard]] bool mentions_any(std::span<const OdpPort> ports) const noexcept;

private:
    struct Count {
        std::uint32_t port, megaflows;
    };
    [[nodiscard]] std::vector<Count>::iterator place_of(std::uint32_t port) noexcept;

    std::vector<Count> counts_;   ///< by port, none of 0 megaflows: a shard has few ports, and they lie side by side
};

struct FlowShard {
    mutable std::mutex mutex;
    Flows flows;
    PortIndex ports;

    [[nodiscard]] std::vector<FlowEntry*> mentioning(std::span<const OdpPort> ports_that_change);
};

}  // namespace ovsdr::dr
