// Megaflows behind recirculations, and packets that get there.
//
// The model. They are made as OVS makes them: a packet that no megaflow of its table takes gives values, and the class
// of packets that it is of gives masks. A class is a table, a port, an ethertype, tags, a protocol: it has the same
// masks for all its megaflows, so that no packet belongs to two. The packet stays a pattern for others: what no
// megaflow on its way looks at may vary.
//
// Threads: one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "tests/differential/judge/ovs_judge.hpp"
#include "tests/differential/judge/recipe.hpp"
#include "tests/differential/judge/scenario.hpp"

namespace ovsdr::differential {

class Chains {
public:
    /// Megaflows are added to the scenario's versions and put into `ovs`.
    Chains(Chance& chance, Scenario& scenario, OvsJudge& ovs) : chance_(chance), scenario_(scenario), ovs_(ovs) {}

    /// Where a megaflow of this table may lead.
    [[nodiscard]] std::optional<std::uint32_t> next_table(std::uint32_t recirc_id);
    [[nodiscard]] unsigned layer_of(std::uint32_t recirc_id) const;

    /// Makes about `length` megaflows behind those that are there.
    void grow(std::size_t length);

    /// A packet that this version took when it was made, varied.
    [[nodiscard]] Recipe aimed_at_version(std::uint32_t version);
    /// `version` has replaced `old`: packets of the one are aimed at the other.
    void replace(std::uint32_t old, std::uint32_t version);

private:
    using Masks = std::array<PatternBytes, feature_length>;
    struct Seed {
        Recipe recipe;
        Masks masks{};   ///< what megaflows on the way look at
    };
    using Class = std::tuple<std::uint32_t, std::uint32_t, std::uint16_t, Tag, Tag, std::uint8_t, bool>;
    struct Missed;   ///< a packet that no megaflow took behind a recirculation
    class Watcher;

    void grow_layer(unsigned layer, std::size_t length);
    [[nodiscard]] std::vector<std::uint32_t> leading_to(unsigned layer) const;
    void make_megaflow(const Missed& missed, const Recipe& recipe, const Masks& masks);
    [[nodiscard]] Masks masks_for(const Megaflow& megaflow);
    /// How many classes look at the feature, of those with the ethertype and, if it is the protocol's, the protocol.
    [[nodiscard]] std::size_t& drawn(const Megaflow& megaflow, Feature feature);

    Chance& chance_;
    Scenario& scenario_;
    OvsJudge& ovs_;
    std::map<unsigned, std::vector<std::uint32_t>> layers_;   ///< recirc_ids
    struct ClassOfPackets {
        Masks masks;
        std::size_t megaflows = 0;
    };
    std::map<Class, ClassOfPackets> classes_;
    std::map<std::tuple<std::uint16_t, std::uint8_t, Feature>, std::size_t> drawn_;
    std::map<std::uint32_t, Seed> seeds_;   ///< by version
};

}  // namespace ovsdr::differential
