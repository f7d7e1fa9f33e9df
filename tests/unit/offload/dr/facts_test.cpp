// Our tables of the device against the facts read out of rdma-core's sources.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "offload/dr/device/action_order.hpp"
#include "offload/dr/device/match_param.hpp"
#include "tests/unit/paths.hpp"

namespace ovsdr::dr {
namespace {

std::vector<std::vector<std::string>> rows_of(const char* file) {
    std::ifstream stream(ovsdr::test::source_folder + "/tests/unit/offload/data/" + file);
    std::vector<std::vector<std::string>> rows;
    std::string line;
    while (std::getline(stream, line)) {
        if (line.empty() || line[0] == '#') continue;
        std::vector<std::string> cells;
        std::istringstream text(line);
        for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
        rows.push_back(cells);
    }
    if (!rows.empty()) rows.erase(rows.begin());
    return rows;
}

TEST(Facts, MatchFieldsLieWhereTheDeviceHasThem) {
    const std::map<std::string, unsigned> blocks{
        {"dr_match_spec", 0}, {"dr_match_set_misc", 512}, {"dr_match_set_misc2", 1536}, {"dr_match_set_misc3", 2048},
        {"dr_match_set_misc5", 3072}};
    std::map<std::string, prm::Field> facts;
    for (const auto& row : rows_of("match_param.csv")) {
        facts[row[3]] = {static_cast<std::uint16_t>(blocks.at(row[0]) + std::stoul(row[2])),
                         static_cast<std::uint8_t>(std::stoul(row[4]))};
    }
    ASSERT_GT(facts.size(), 100U);
    for (const NamedField& named : match_fields) {
        ASSERT_TRUE(facts.count(std::string(named.name))) << named.name;
        EXPECT_EQ(facts[std::string(named.name)], named.field) << named.name;
        if (named.name.starts_with("outer_")) {
            const std::string inner = "inner_" + std::string(named.name.substr(6));
            EXPECT_EQ(facts[inner], field::inner_of(named.field)) << inner;
        } else if (field::is_outer(named.field)) {
            EXPECT_EQ(field::inner_of(named.field).bit_offset, named.field.bit_offset + 1024) << named.name;
        }
    }
}

TEST(Facts, ActionsFollowEachOtherAsTheDeviceAllows) {
    const std::map<std::string, OrderState> states{
        {"NO_ACTION", OrderState::none},   {"NON_TERM", OrderState::counted},    {"POP_VLAN", OrderState::popped},
        {"PUSH_VLAN", OrderState::pushed}, {"MODIFY_HDR", OrderState::modified}, {"TERM", OrderState::done},
        {"ENCAP", OrderState::encapsulated}, {"DECAP", OrderState::decapsulated}, {"ASO", OrderState::metered}};
    const std::map<std::string, OrderAction> actions{
        {"CTR", OrderAction::count},                {"POP_VLAN", OrderAction::pop_vlan},
        {"PUSH_VLAN", OrderAction::push_vlan},      {"VPORT", OrderAction::vport},
        {"MODIFY_HDR", OrderAction::modify_header}, {"FT", OrderAction::table},
        {"DROP", OrderAction::drop},                {"DEST_ARRAY", OrderAction::array},
        {"MISS", OrderAction::miss},                {"L2_TO_TNL_L2", OrderAction::encapsulate},
        {"TNL_L2_TO_L2", OrderAction::decapsulate}, {"ASO_FLOW_METER", OrderAction::meter}};
    std::map<std::tuple<Side, OrderState, OrderAction>, OrderState> facts;
    for (const auto& row : rows_of("fdb_action_order.csv")) {
        const Side side = row[0] == "FDB_INGRESS" ? Side::wire : Side::vports;
        if (!states.count(row[1]) || !actions.count(row[2]) || !states.count(row[3])) continue;
        facts[{side, states.at(row[1]), actions.at(row[2])}] = states.at(row[3]);
    }
    ASSERT_GT(facts.size(), 60U);
    for (const Side side : {Side::wire, Side::vports}) {
        for (const auto& [state_name, state] : states) {
            for (const auto& [action_name, action] : actions) {
                const auto fact = facts.find({side, state, action});
                const auto ours = next_state(side, state, action);
                const std::string where = (side == Side::wire ? "wire " : "vports ") + state_name + " " + action_name;
                ASSERT_EQ(ours.has_value(), fact != facts.end()) << where;
                if (ours) {
                    EXPECT_EQ(*ours, fact->second) << where;
                }
            }
        }
    }
}

/// arrange() asks for all writes before it pushes the first tag, and then asks about the tag only.
TEST(Facts, WhereATagMayBePushedAHeaderMayBeWrittenBeforeIt) {
    for (const OrderRow& row : action_order) {
        if (row.action != OrderAction::push_vlan || row.state == OrderState::pushed) continue;
        if (row.state == OrderState::modified) continue;   // one action writes all of them
        for (const Side side : {Side::wire, Side::vports}) {
            if (!next_state(side, row.state, OrderAction::push_vlan)) continue;
            EXPECT_TRUE(next_state(side, row.state, OrderAction::modify_header)) << static_cast<int>(row.state);
        }
    }
}

}  // namespace
}  // namespace ovsdr::dr
