// What is short among the wanted matches and actions, and what trees must have with any seed.
#include "tests/differential/judge/shortage.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "tests/differential/judge/trees.hpp"
#include "tests/unit/paths.hpp"

namespace ovsdr::differential {

namespace {

using Kind = Action::Kind;

/// A file of wanted names that goes with the test.
class Wanted {
public:
    explicit Wanted(const std::string& rows) : path_(testing::TempDir() + "wanted.csv") {
        std::ofstream(path_) << "# comment, with commas\n" << rows;
    }
    ~Wanted() { std::remove(path_.c_str()); }
    Wanted(const Wanted&) = delete;
    Wanted& operator=(const Wanted&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

Megaflow having(std::vector<Action> actions) {
    return {.in_port = 1, .eth_type = 0x88b5, .actions = std::move(actions)};
}

const Action to_two{.kind = Kind::output, .port = 2}, to_three{.kind = Kind::output, .port = 3},
    tag_pushed{.kind = Kind::push, .tpid = customer_tag};

/// Behind the markers' versions, which do not count.
std::vector<Megaflow> versions(const Megaflow& megaflow, std::size_t length) {
    return std::vector<Megaflow>(port_length + length, megaflow);
}

TEST(Shortage, NameIsShortUntilSoManyInTheNicHaveIt) {
    const Wanted wanted("output,,\n");
    Shortage shortage(wanted.path(), false);
    const auto all = versions(having({to_two}), 3);
    std::vector<std::uint8_t> in_nic(all.size(), 1);
    in_nic.back() = 0;
    shortage.recount(all, in_nic, 3);
    EXPECT_TRUE(shortage.is_there_any());
    shortage.add(having({to_two}));
    EXPECT_FALSE(shortage.is_there_any());
    shortage.recount(all, in_nic, 2);
    EXPECT_FALSE(shortage.is_there_any());
}

TEST(Shortage, HasUseForMegaflowsWithAShortNameOnly) {
    const Wanted wanted("output,,\n\"output, change, output\",,\ndrop,,\n");
    Shortage shortage(wanted.path(), false);
    const auto all = versions(having({to_two}), 2);
    shortage.recount(all, std::vector<std::uint8_t>(all.size(), 1), 2);
    EXPECT_FALSE(shortage.has_use_for(having({to_three})));
    EXPECT_TRUE(shortage.has_use_for(having({})));
    EXPECT_TRUE(shortage.has_use_for(having({to_two, tag_pushed, to_three})));
    EXPECT_FALSE(shortage.has_use_for(having({tag_pushed, to_two, to_three})));
}

TEST(Shortage, DoesNotAskForWhatAConnectX5Cannot) {
    const Wanted wanted("match icmp tp_src,cx5,not in the device's parser profile\n");
    EXPECT_TRUE([&] {
        Shortage shortage(wanted.path(), false);
        shortage.recount({}, {}, 1);
        return shortage.is_there_any();
    }());
    Shortage shortage(wanted.path(), true);
    shortage.recount({}, {}, 1);
    EXPECT_FALSE(shortage.is_there_any());
}

TEST(Shortage, FileThatIsNotThereIsAnError) {
    EXPECT_THROW(Shortage("/nonexistent/wanted.csv", false), std::runtime_error);
}

/// No NIC tells first fragments from later ones: one that takes the former for any must meet some with any seed.
TEST(Trees, HaveFirstFragmentsApartWithAnySeed) {
    const DrawActions to_wire = [](const Megaflow&) { return std::vector<Action>{to_two}; };
    const GrowInstead none = [](const Megaflow&, std::size_t) { return std::vector<Megaflow>(); };
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        Chance chance(seed);
        Rarity rarity(chance, false);
        const auto grown = grow_trees(chance, rarity, 750, to_wire, none);
        for (const Fragments kind : {Fragments::first, Fragments::later}) {
            EXPECT_TRUE(std::ranges::any_of(grown, [&](const Megaflow& megaflow) {
                Megaflow like = megaflow;
                like.fragments = Fragments::any;
                return megaflow.fragments == kind && is_offloadable(like, 1) && !is_offloadable(megaflow, 1);
            })) << seed;
        }
    }
}

}  // namespace

}  // namespace ovsdr::differential
