// What a device has room for: each kind of object is refused past its limit, and whoever goes makes room.
#include <cerrno>
#include <functional>
#include <new>

#include "lane_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

class RoomTest : public LaneTest {
protected:
    /// `make` returns an errno and leaves the object to `unmake`.
    void expect_limit(Resource resource, const std::function<int()>& make, const std::function<void()>& unmake) {
        Room& room = room_of(steering);
        const auto there = static_cast<std::uint32_t>(room.taken(resource));
        room.limit(resource, there);
        EXPECT_EQ(make(), ENOMEM);
        EXPECT_EQ(room.taken(resource), there) << "what was refused takes nothing";
        room.limit(resource, there + 1);
        ASSERT_EQ(make(), 0);
        EXPECT_EQ(room.taken(resource), there + 1);
        unmake();
        EXPECT_EQ(room.taken(resource), there);
        ASSERT_EQ(make(), 0) << "there is room again";
        unmake();
        room.limit(resource, std::nullopt);
        ASSERT_EQ(make(), 0);
        unmake();
    }
    Action::Created action_;
};

TEST_F(RoomTest, Tables) {
    std::unique_ptr<Table> table;
    const auto make = [&](std::uint32_t level) {
        try {
            table = std::make_unique<Table>(fdb, level);
        } catch (const std::bad_alloc&) {
            return ENOMEM;
        }
        return 0;
    };
    expect_limit(Resource::tables, [&] { return make(7); }, [&] { table.reset(); });
    room_of(steering).limit(Resource::tables, 0);
    EXPECT_EQ(make(0), 0) << "a root table is there anyway";
}

TEST_F(RoomTest, Matchers) {
    MadeMatcher made;
    expect_limit(Resource::matchers, [&] { return (made = match_all(first, 3)).error; }, [&] { made.matcher.reset(); });
}

TEST_F(RoomTest, Rules) {
    MadeRule made;
    const auto make = [&] { return (made = make_rule(*all_first, {}, {&to_3})).error; };
    expect_limit(Resource::rules, make, [&] { made.rule.reset(); });
    fdb.allow_duplicates(false);
    const std::uint64_t there = room_of(steering).taken(Resource::rules);
    EXPECT_EQ(make(), EEXIST);
    EXPECT_EQ(room_of(steering).taken(Resource::rules), there) << "a duplicate takes nothing";
}

TEST_F(RoomTest, ModifyHeaders) {
    expect_limit(Resource::modify_headers, [&] { return try_modify(fdb, {add_command(id::ip_ttl, 0xff)}, action_); },
                 [&] { action_.reset(); });
}

TEST_F(RoomTest, Reformats) {
    const std::vector<std::uint8_t> header(50, 1);
    const auto make = [&] {
        return Action::packet_reformat(fdb, false, Reformat::Kind::encap_l2, header, action_);
    };
    expect_limit(Resource::reformats, make, [&] { action_.reset(); });
}

TEST_F(RoomTest, DestinationArrays) {
    const std::vector<Action*> branches{to_2.get(), to_3.get()};
    expect_limit(Resource::dest_arrays, [&] { return Action::dest_array(fdb, branches, action_); },
                 [&] { action_.reset(); });
}

TEST_F(RoomTest, Samplers) {
    Action* const branches[] = {to_2.get()};
    const SamplerSpec spec{.ratio = 2, .next = &first, .actions = branches, .restore = 0};
    expect_limit(Resource::samplers, [&] { return Action::sampler(spec, action_); }, [&] { action_.reset(); });
}

TEST_F(RoomTest, LegacyMeters) {
    const FlowMeterSpec spec{.active = true, .reg_c = 5, .parameters = {}};
    expect_limit(Resource::meters, [&] { return Action::flow_meter(first, spec, action_); }, [&] { action_.reset(); });
}

TEST_F(RoomTest, ALimitBelowWhatIsThereTakesNothingAway) {
    room_of(steering).limit(Resource::rules, 0);
    send(1, frame);
    EXPECT_EQ(vports[2].taken.size(), 1U);
    EXPECT_EQ(make_rule(*all_first, {}, {&to_3}).error, ENOMEM);
    EXPECT_EQ(room_of(steering).most(Resource::rules), 0U);
}

}  // namespace
}  // namespace ovsdr::soft::test
