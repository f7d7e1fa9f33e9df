// Tracked connections in the tables: where verdicts lead, links to other domains, what actions and objects take.
#include <cerrno>

#include "objects.hpp"
#include "packet_pool.hpp"
#include "tracked.hpp"

namespace ovsdr::soft::test {
namespace {

using namespace tracked;

/// Vport 1 is the client's, 2 the server's; table 1 tracks into reg_c_3, table 2 sorts by it.
class TrackingRules : public SteeringTest {
protected:
    TrackingRules() {
        attach({1, 2, 3, 0xffff});
        bulk->exchange(1, after_syn_ack().image, ~0ULL);
    }
    MadeRule sorting(std::uint64_t verdict, const Action::Created& action) {
        return make_rule(*sorter, Parameters{}.set(reg_c_3, verdict), {&action});
    }
    Action::Created tracking(std::uint32_t flags, Domain& domain) {
        Action::Created action;
        EXPECT_EQ(Action::aso(domain, bulk, 1, flags, 3, action), 0);
        return action;
    }

    static constexpr Field reg_c_3{1536 + 352 - 96, 32};
    std::shared_ptr<AsoBulk> bulk = std::make_shared<AsoBulk>(AsoKind::connection, 2, nullptr);
    Domain fdb{steering, DomainType::fdb, nullptr}, other{steering, DomainType::fdb, nullptr},
        fdb_two{steering, DomainType::fdb, nullptr};
    Table root{fdb, 0}, first{fdb, 1}, second{fdb, 2}, foreign{other, 1}, foreign_next{other, 2};
    Action::Created to_first = to_table(first), to_second = to_table(second), drop = Action::drop();
    Action::Created to_foreign = to_table(foreign_next);
    Action::Created to_2 = to_vport(fdb, 2), to_3 = to_vport(fdb, 3);
    MadeMatcher all_root = match_all(root);
    MadeMatcher sorter = make_matcher(second, 0, criteria::misc2, Parameters{}.set(reg_c_3, 0xff));
    MadeMatcher by_source = make_matcher(first, 0, criteria::misc, Parameters{}.set(field::source_port, 0xffff));
    MadeMatcher in_foreign = match_all(foreign);
    MadeRule enter = make_rule(*all_root, {}, {&to_first});
};

TEST_F(TrackingRules, VerdictsDecideWherePacketsGo) {
    const auto opens = tracking(1, fdb);
    const auto rule = make_rule(*by_source, Parameters{}.set(field::source_port, 1), {&opens, &to_second});
    ASSERT_EQ(rule.error, 0);
    const auto good = sorting(valid, to_2), news = sorting(changed, to_2), wrong = sorting(invalid, to_3);
    const auto trapped = sorting(trap, drop);
    send(1, segment({1001, 5001}), 1);
    send(1, segment({1001, 5001, ack, 1000, 100}), 5);
    EXPECT_EQ(vports[2].taken.size(), 6U);
    send(1, segment({9000, 5001}), 1);
    EXPECT_EQ(vports[3].taken.size(), 1U);
    send(1, segment({1101, 5001}), 2);
    EXPECT_EQ(vports[2].taken.size() + vports[3].taken.size(), 7U);
    EXPECT_EQ(steering.drops().by_rule, 2U);
}

TEST_F(TrackingRules, LinksAreForOneRuleAConnection) {
    const auto client = tracking(1, fdb);
    EXPECT_EQ(make_rule(*in_foreign, {}, {&client, &to_foreign}).error, EINVAL) << "another domain's";
    EXPECT_EQ(bulk->unlink(), EINVAL);
    EXPECT_EQ(bulk->link(other, 0, 3), EINVAL);
    EXPECT_EQ(bulk->link(other, 3, 3), EINVAL);
    ASSERT_EQ(bulk->link(other, 2, 5), 0);
    {
        const auto linked = make_rule(*in_foreign, {}, {&client, &to_foreign});
        ASSERT_EQ(linked.error, 0);
        EXPECT_EQ(make_rule(*in_foreign, {}, {&client, &to_foreign}).error, EBUSY);
        EXPECT_EQ(bulk->unlink(), EBUSY);
        EXPECT_EQ(make_rule(*by_source, Parameters{}.set(field::source_port, 1), {&client, &to_second}).error, 0)
            << "its own";
        EXPECT_EQ(client->modify_aso(2, 1, 5), EOPNOTSUPP) << "another register";
        EXPECT_EQ(client->modify_aso(2, 2, 3), EOPNOTSUPP) << "another direction";
        EXPECT_EQ(client->modify_aso(2, 4, 3), EOPNOTSUPP);
        EXPECT_EQ(client->modify_aso(4, 1, 3), EINVAL) << "past the bulk";
        EXPECT_EQ(client->modify_aso(2, 3, 3), EOPNOTSUPP) << "both directions";
        EXPECT_EQ(client->modify_aso(3, 0, 3), 0) << "the direction that it has";
        EXPECT_EQ(client->more().aso_use.offset, 3U);
        EXPECT_EQ(client->more().aso_use.direction, initiator);
        const auto server = tracking(2, fdb);
        EXPECT_EQ(server->modify_aso(2, 1, 3), EOPNOTSUPP);
        EXPECT_EQ(server->modify_aso(2, 2, 3), 0);
        EXPECT_EQ(server->modify_aso(3, 0, 3), 0);
        EXPECT_EQ(server->more().aso_use.direction, responder);
        Table third(fdb_two, 1);
        EXPECT_EQ(make_rule(*match_all(third), {}, {&client}).error, EINVAL) << "linked to another domain";
        EXPECT_EQ(client->modify_aso(2, 1, 3), 0);
        EXPECT_EQ(make_rule(*in_foreign, {}, {&client, &to_foreign}).error, 0) << "another connection";
    }
    EXPECT_EQ(bulk->unlink(), 0);
    EXPECT_EQ(make_rule(*in_foreign, {}, {&client, &to_foreign}).error, EINVAL);
    EXPECT_EQ(client->modify_aso(0, 2, 5), 0);
}

/// A linked rule asks by the link: its direction, its register.
TEST_F(TrackingRules, LinksSayDirectionAndRegister) {
    const auto client = tracking(1, fdb);
    ASSERT_EQ(bulk->link(other, 2, 5), 0);
    const auto rule = make_rule(*in_foreign, {}, {&client, &to_foreign});
    ASSERT_EQ(rule.error, 0);
    const std::span<const Op> ops = rule.rule->node().ops();
    ASSERT_EQ(ops.size(), 2U);
    for (const Op& op : ops) {
        EXPECT_EQ(op.code, OpCode::connection) << "before or after the rest, by the packet's side";
        EXPECT_EQ(op.argument, 5 << 8 | 1) << "responder";
        EXPECT_EQ(op.object, &bulk->connection(1));
    }
    EXPECT_EQ(ops[0].sides, side_vports);
    EXPECT_EQ(ops[1].sides, side_wire);
}

TEST_F(TrackingRules, ActionsNeedADirectionAnObjectAndARegister) {
    Action::Created action;
    for (const std::uint32_t flags : {0U, 3U, 4U}) {
        EXPECT_EQ(Action::aso(fdb, bulk, 0, flags, 3, action), EINVAL) << flags;
    }
    EXPECT_EQ(Action::aso(fdb, bulk, 4, 1, 3, action), EINVAL);
    for (const std::uint8_t reg : {0, 2, 7}) EXPECT_EQ(Action::aso(fdb, bulk, 0, 1, reg, action), EINVAL);
    for (const std::uint8_t reg : {1, 3, 5}) EXPECT_EQ(Action::aso(fdb, bulk, 3, 2, reg, action), 0);
    EXPECT_EQ(Action::aso(fdb, bulk, 0, 1, 6, action), EINVAL);
}

}  // namespace
}  // namespace ovsdr::soft::test
