// Megaflows behind recirculations and of tunnel ports, and packets that get there.
//
// The model. They are made as OVS makes them: a packet that no megaflow of its table takes gives values, and the class
// of packets that it is of gives masks. A class is a table, a port, a tunnel's flags and options, an ethertype, tags, a
// protocol: it has the same masks for all its megaflows, so that no packet belongs to two. The packet stays a pattern
// for others: what no megaflow on its way looks at may vary. Some classes have the masks and actions of OVN's (a
// tunnel's among them). A tunnel port's table is in the first layer.
//
// Threads: one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "tests/differential/judge/names.hpp"
#include "tests/differential/judge/ovn_shapes.hpp"
#include "tests/differential/judge/ovs_judge.hpp"
#include "tests/differential/judge/recipe.hpp"
#include "tests/differential/judge/scenario.hpp"

namespace ovsdr::differential {

class Chains {
public:
    /// Megaflows are added to the scenario's versions and put into `ovs`.
    Chains(Chance& chance, Rarity& rarity, const std::vector<Shape>& shapes, Scenario& scenario, OvsJudge& ovs)
        : chance_(chance), rarity_(rarity), shapes_(shapes), scenario_(scenario), ovs_(ovs) {}

    /// Where a megaflow of this table may lead.
    [[nodiscard]] std::optional<std::uint32_t> next_table(TableId from);
    [[nodiscard]] unsigned layer_of(TableId table) const;

    /// Makes about `length` megaflows of tunnel ports.
    void grow_tunnels(std::size_t length);
    /// Makes about `length` megaflows behind recirculations of those that are there.
    void grow(std::size_t length);

    /// A packet that this version took when it was made, varied.
    [[nodiscard]] Recipe aimed_at_version(std::uint32_t version, Chance& chance) const;
    /// `version` has replaced `old`: packets of the one are aimed at the other.
    void replace(std::uint32_t old, std::uint32_t version);

private:
    struct Seed {
        Recipe recipe;
        MasksOfFrame masks{};   ///< what megaflows on the way look at
    };
    using Class = std::tuple<std::uint32_t, std::uint32_t, std::optional<TunnelHeaders>, std::uint16_t, Tag, Tag,
                             std::uint8_t, Fragments>;
    struct ClassOfPackets {
        Masks masks{};
        const Shape* shape = nullptr;   ///< whose masks and actions it has
        std::size_t megaflows = 0;
    };
    struct Missed;   ///< a packet that no megaflow took behind a recirculation
    class Watcher;

    void grow_tunnel(TunnelKind kind, std::uint16_t eth_type, std::size_t length);
    /// About `length` where packets of the `parents` miss and `is_wanted` says so.
    template <typename IsWanted>
    void grow_behind(const std::vector<std::uint32_t>& parents, std::size_t length, IsWanted is_wanted);
    /// Versions with an action that leads there.
    template <typename Leads>
    [[nodiscard]] std::vector<std::uint32_t> versions_that(Leads leads) const;
    [[nodiscard]] MasksOfFrame masks_on_the_way(const Missed& missed) const;
    /// False: not of this packet.
    bool make_megaflow(const Missed& missed, const Recipe& recipe);
    void give_masks(const Megaflow& megaflow, ClassOfPackets& of_class);
    [[nodiscard]] Masks masks_for(const Megaflow& megaflow);
    [[nodiscard]] std::vector<Action> actions_for(Megaflow megaflow, const Shape* shape);
    void add_tunnel_masks(const Megaflow& megaflow, Masks& masks);
    [[nodiscard]] PatternBytes mask_for(const Megaflow& megaflow, Feature feature);

    Chance& chance_;
    Rarity& rarity_;
    const std::vector<Shape>& shapes_;
    Scenario& scenario_;
    OvsJudge& ovs_;
    std::map<unsigned, std::vector<std::uint32_t>> layers_;   ///< recirc_ids
    std::map<Class, ClassOfPackets> classes_;
    std::map<std::uint32_t, Seed> seeds_;   ///< by version
};

}  // namespace ovsdr::differential
