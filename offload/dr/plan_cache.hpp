// What the compiler made of the megaflows before, for those that are like them.
//
// Model. Most megaflows differ from another one only in fields that the compiler copies into the match and looks at for
// nothing else: Ethernet and IP addresses, ports of TCP and UDP. All else of a megaflow (its mask, its actions, the
// other fields of its key) is its shape, and megaflows of one shape have one plan, but for those values. What has to do
// with tunnels has no shape: there the compiler looks at everything.
//
// A plan is of the ports and choices that it was compiled for: whoever changes those calls forget().
//
// Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>

#include "offload/dr/compile/compile.hpp"
#include "offload/dr/megaflow_store.hpp"

namespace ovsdr::dr {

class PlanCache {
public:
    struct Planned {
        std::shared_ptr<const RulePlan> plan;   ///< perhaps of another megaflow: its match.value is not ours
        MatchParam value;
    };

    struct Stored {
        StoredMegaflow megaflow;
        std::shared_ptr<const RulePlan> plan;   ///< of one like it; NULL: none is known
    };
    /// Stores `given`. Where one like it is known, that says it all: whoever puts megaflows pays for one look-up.
    [[nodiscard]] Stored store(const ovsdr_megaflow& given, MegaflowParts& parts);

    /// What `compile` returns for the megaflow. `known`: as store() found it.
    [[nodiscard]] Compiled<Planned> plan_for(const StoredMegaflow& megaflow, std::shared_ptr<const RulePlan> known,
                                             auto&& compile) {
        const bool has_shape = megaflow.has_shape();
        if (known == nullptr && has_shape) known = find(megaflow);
        if (known != nullptr) {
            const MatchParam value = value_of(megaflow.key(), known->match);
            return Planned{std::move(known), value};
        }
        Compiled<RulePlan> compiled = compile();
        if (!compiled) return tl::unexpected(std::move(compiled.error()));
        const MatchParam value = compiled->match.value;
        auto plan = std::make_shared<const RulePlan>(std::move(*compiled));
        if (has_shape && !plan->match.in_tunnel()) remember(megaflow, plan);
        return Planned{std::move(plan), value};
    }

    void forget() noexcept;

private:
    struct Place {
        std::mutex mutex;
        StoredMegaflow shape;
        std::shared_ptr<const RulePlan> plan;
    };

    [[nodiscard]] std::shared_ptr<const RulePlan> find(const StoredMegaflow& megaflow) noexcept;
    void remember(const StoredMegaflow& megaflow, std::shared_ptr<const RulePlan> plan) noexcept;
    [[nodiscard]] Place& place_of(std::size_t shape_hash) noexcept { return places_[shape_hash % places_.size()]; }
    /// Of a megaflow with this key, when `match` is of one of its shape.
    [[nodiscard]] static MatchParam value_of(const ovsdr_flow_fields& key, const MatchPlan& match) noexcept;

    std::array<Place, 256> places_;   ///< whoever comes last has it
};

}  // namespace ovsdr::dr
