// How many tables in a row a device needs: what offload/'s compiler is known to say of the same lists.
#include "tests/differential/judge/tables_in_a_row.hpp"

#include <gtest/gtest.h>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

namespace {

using Kind = Action::Kind;

constexpr unsigned format_of_rows = 1;
constexpr PushedTag first_pushed{customer_tag, 3, 0}, second_pushed{customer_tag, 4, 0};

Leg going_out(PacketShape shape = {}) { return {.shape = std::move(shape), .goes_out = true}; }

unsigned from_wire(const std::vector<Leg>& legs) { return tables_in_a_row(legs, true, false); }
unsigned from_vport(const std::vector<Leg>& legs) { return tables_in_a_row(legs, false, false); }

TEST(TablesInARow, OneRuleChangesAndLeadsOut) {
    EXPECT_EQ(from_vport({}), 0U);
    EXPECT_EQ(from_vport({going_out()}), 0U);
    EXPECT_EQ(from_vport({going_out({.popped = 1, .pushed = {first_pushed}})}), 0U);
    EXPECT_EQ(from_wire({going_out({.popped = 1, .pushed = {first_pushed}})}), 1U) << "no push right behind a pop";
    const Leg twice = going_out({.pushed = {first_pushed, second_pushed}});
    EXPECT_EQ(from_wire({twice}), 1U) << "the counter would count the first";
    EXPECT_EQ(tables_in_a_row({twice}, true, true), 0U) << "not a ConnectX-5's";
    EXPECT_EQ(from_wire({{.decapsulates = true}}), 1U) << "nothing is dropped behind a change";
}

TEST(TablesInARow, AnotherShapeIsAnotherTable) {
    EXPECT_EQ(from_vport({going_out(), going_out({.pushed = {first_pushed}})}), 1U);
    const Leg once = going_out({.pushed = {first_pushed}});
    EXPECT_EQ(from_vport({once, going_out({.pushed = {first_pushed, second_pushed}})}), 1U);
    EXPECT_EQ(from_wire({going_out(), going_out({.popped = 1, .pushed = {first_pushed}})}), 2U);
}

TEST(TablesInARow, CopiesStandBehindAndSamplersInFront) {
    Leg leg = going_out();
    leg.copies["a"] = false;
    EXPECT_EQ(from_vport({leg}), 1U);
    leg.copies["b"] = true;
    EXPECT_EQ(from_vport({leg}), 2U) << "a meter, and the copy behind it";
    leg.samplers = 1;
    EXPECT_EQ(from_vport({leg}), 3U);
    leg.shape.popped = 1;
    EXPECT_EQ(from_vport({leg}), 4U) << "what is done before is done in front of the sampler";
    leg = {.samplers = 1};
    EXPECT_EQ(from_vport({leg}), 1U);
    leg.copies["a"] = false;
    EXPECT_EQ(from_vport({leg}), 1U) << "the copy is what is behind the sampler";
}

/// As in tests/unit/offload/dr/compile_software_test.cpp: a path has room for six behind the megaflow's rule.
TEST(TablesInARow, MetersAndATunnelsEndCountAmongThem) {
    const struct {
        bool in_tunnel;
        std::uint32_t meters;
        std::uint8_t samplers;
    } most[] = {{false, 0, 6}, {false, 1, 5}, {false, 2, 4}, {false, 3, 3}, {true, 1, 3}, {true, 2, 2}};
    for (const auto& [in_tunnel, meters, samplers] : most) {
        Megaflow megaflow{.in_port = in_tunnel ? tunnel_port_of(TunnelKind::vxlan) : 1, .eth_type = type_arp};
        if (in_tunnel) megaflow.tunnel = TunnelHeaders{.kind = TunnelKind::vxlan};
        const auto add = [&](Action action) { megaflow.actions.push_back(std::move(action)); };
        for (std::uint32_t number = 1; number <= meters; ++number) add({.kind = Kind::meter, .port = number});
        for (std::uint8_t i = 0; i < samplers; ++i) {
            add({.kind = Kind::software,
                 .software = {.form = SoftwarePart::Form::sample, .one_of = 8, .cookie = i}});
        }
        add({.kind = Kind::output, .port = 2});
        EXPECT_TRUE(is_offloadable(megaflow, format_of_rows)) << meters << " meters";
        add({.kind = Kind::software, .software = {.form = SoftwarePart::Form::sample, .one_of = 8, .cookie = 99}});
        EXPECT_FALSE(is_offloadable(megaflow, format_of_rows)) << meters << " meters";
    }
}

}  // namespace

}  // namespace ovsdr::differential
