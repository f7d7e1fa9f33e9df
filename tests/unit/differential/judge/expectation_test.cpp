// Which megaflows must be in a NIC: of chains, of what is refused, of knots.
#include "tests/differential/judge/expectation.hpp"

#include <gtest/gtest.h>

namespace ovsdr::differential {

namespace {

using enum Expectation;
using Kind = Action::Kind;

constexpr unsigned connectx_5 = 0, connectx_6dx = 1;

Megaflow megaflow(std::uint32_t ufid, std::uint32_t recirc_id, std::vector<Action> actions) {
    return {.ufid = ufid, .recirc_id = recirc_id, .in_port = 1, .eth_type = 0x88b5, .actions = std::move(actions)};
}

/// 0 leads to 7, where 1 lies.
Scenario chain() {
    Scenario scenario;
    scenario.versions = {megaflow(0, 0, {{.kind = Kind::recirc, .port = 7}}),
                         megaflow(1, 7, {{.kind = Kind::output, .port = 2}})};
    scenario.ufids = 2;
    scenario.tables[7] = {.layer = 1};
    return scenario;
}

std::vector<Expectation> after(const Scenario& scenario, const std::vector<Change>& changes,
                               unsigned format = connectx_6dx) {
    Expectations expectations(scenario, format);
    expectations.apply({.changes = changes});
    return expectations.all();
}

TEST(Expectations, ChildIsInstalledWithItsParentInAnyOrder) {
    const Scenario scenario = chain();
    EXPECT_EQ(after(scenario, {{1, true}, {0, true}}), (std::vector{installed, installed}));
    EXPECT_EQ(after(scenario, {{0, true}, {1, true}}), (std::vector{installed, installed}));
}

TEST(Expectations, ChildWithoutParentMayHaveATableLeft) {
    EXPECT_EQ(after(chain(), {{1, true}}), (std::vector{not_there, either}));
    EXPECT_EQ(after(chain(), {{0, true}, {1, true}, {0, false}}), (std::vector{not_there, either}));
}

TEST(Expectations, RefusedParentLeadsNowhere) {
    Scenario scenario = chain();
    scenario.versions[0].actions.push_back({.kind = Kind::refused, .text = "meter(0)"});
    EXPECT_EQ(after(scenario, {{0, true}, {1, true}}), (std::vector{refused, either}));
}

TEST(Expectations, KnottedTableDependsOnWhatCameFirst) {
    Scenario scenario = chain();
    scenario.tables[7].knotted = true;
    EXPECT_EQ(after(scenario, {{0, true}, {1, true}}), (std::vector{either, either}));
}

TEST(Expectations, ModifiedMegaflowIsTheLatestVersion) {
    Scenario scenario = chain();
    scenario.versions.push_back(megaflow(0, 0, {}));
    EXPECT_EQ(after(scenario, {{0, true}, {1, true}, {2, true}}), (std::vector{not_there, either, installed}));
}

TEST(IsOffloadable, CopiesEndAndTunnelsDoNot) {
    const Action push{.kind = Kind::push, .tpid = customer_tag}, out{.kind = Kind::output, .port = 2};
    const Action begin{.kind = Kind::copy_begin}, end{.kind = Kind::copy_end};
    EXPECT_TRUE(is_offloadable(megaflow(0, 0, {begin, push, out, end, out}), connectx_6dx));
    EXPECT_FALSE(is_offloadable(megaflow(0, 0, {begin, out, end, out}), connectx_6dx)) << "the same copy twice";
    const Action tunnel{.kind = Kind::tunnel_push}, recirc{.kind = Kind::recirc, .port = 7};
    EXPECT_FALSE(is_offloadable(megaflow(0, 0, {tunnel, recirc}), connectx_6dx));
    EXPECT_TRUE(is_offloadable(megaflow(0, 0, {begin, tunnel, out, end, recirc}), connectx_6dx));
}

TEST(IsOffloadable, ConnectX5EncapsulatesFromVportsOnly) {
    const Action tunnel{.kind = Kind::tunnel_push}, out{.kind = Kind::output, .port = 2};
    Megaflow one = megaflow(0, 0, {tunnel, out});
    EXPECT_TRUE(is_offloadable(one, connectx_5));
    one.in_port = 9;
    EXPECT_FALSE(is_offloadable(one, connectx_5));
    EXPECT_TRUE(is_offloadable(one, connectx_6dx));
}

}  // namespace

}  // namespace ovsdr::differential
