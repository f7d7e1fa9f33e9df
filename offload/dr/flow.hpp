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
#include <vector>

#include "common/block_pool.hpp"
#include "offload/dr/backlog.hpp"
#include "offload/dr/flow_map.hpp"
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
};

/// What few megaflows have, kept apart: memory is what a million of them are short of.
struct FlowTroubles {
    FlowStats carried;      ///< counts of installations that this megaflow had before
    std::string failure;    ///< what the device said, when it did not take the megaflow last; else empty
    Backlog::Place place;   ///< in line for the device
};

/// What a look at its statistics touches lies together, then what a deletion touches; the megaflow's key comes last.
struct Flow {
    explicit Flow(const Ufid& its_ufid) noexcept : ufid(its_ufid) {}

    // There are a million of them: their memory lies together, apart from everything else.
    [[nodiscard]] static void* operator new(std::size_t size) { return memory().take(size); }
    static void operator delete(void* flow) noexcept {
        if (flow != nullptr) BlockPool::give_back(flow);
    }
    /// Of all e-switches.
    [[nodiscard]] static BlockPool& memory() noexcept;

    const Ufid ufid;
    std::uint16_t neighbourhood = 0;      ///< its counters lie with those of the same
    bool was_installed = false;
    std::unique_ptr<FlowTroubles> troubles;
    Installation now;
    ReasonTable::Mark mark;
    StoredMegaflow megaflow;

    [[nodiscard]] FlowTroubles& in_trouble() {
        if (troubles == nullptr) troubles = std::make_unique<FlowTroubles>();
        return *troubles;
    }
    [[nodiscard]] bool is_in_line() const noexcept { return troubles != nullptr && troubles->place; }
    /// It waits for the device no more.
    void leave_line() noexcept {
        if (troubles != nullptr) troubles->place.leave();
    }
};

static_assert(sizeof(Flow) <= BlockPool::largest && alignof(Flow) <= BlockPool::alignment);

using Flows = FlowMap<Flow>;

/// How many megaflows of a shard mention each datapath port, and how many have a meter. What changes looks only into
/// shards that have some: with few megaflows it finds them among a few shards' worth, however many there are in all.
/// Finer lists would cost each deletion several cache misses and each megaflow some fifty bytes.
class PortIndex {
public:
    void add(const StoredMegaflow& megaflow);
    void remove(const StoredMegaflow& megaflow) noexcept;
    [[nodiscard]] bool mentions_any(std::span<const OdpPort> ports) const noexcept;
    [[nodiscard]] bool has_meters() const noexcept { return metered_ != 0; }

private:
    struct Count {
        std::uint32_t port, megaflows;
    };
    [[nodiscard]] std::vector<Count>::iterator place_of(std::uint32_t port) noexcept;

    std::size_t metered_ = 0;
    std::vector<Count> counts_;   ///< by port, none of 0 megaflows: a shard has few ports, and they lie side by side
};

/// On lines of its own: threads are in different shards.
struct alignas(64) FlowShard {
    mutable std::mutex mutex;
    Flows flows;
    PortIndex ports;

    [[nodiscard]] std::vector<Flow*> mentioning(std::span<const OdpPort> ports_that_change);
    [[nodiscard]] std::vector<Flow*> metered_by(std::uint32_t number);
};

}  // namespace ovsdr::dr
