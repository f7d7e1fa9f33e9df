// What the public Direct Rules functions refuse, each with libmlx5's errno: domains, layouts, busy objects, duplicates,
// attributes, dumps. (Masks, values, action lists and modify-header commands: the engine's own tests.)
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "datapath/verbs/dr/dr_handle.hpp"
#include "match_parameters.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"
#include "tests/unit/datapath/steering/allocations.hpp"

namespace ovsdr::soft::test {
namespace {

class DrRefusal : public ::testing::Test {
protected:
    explicit DrRefusal(const Profile& profile = connectx_6dx) : open(profile) {}

    mlx5dv_dr_domain* domain(mlx5dv_dr_domain_type type = MLX5DV_DR_DOMAIN_TYPE_FDB) {
        return mlx5dv_dr_domain_create(open.context, type);
    }
    mlx5dv_dr_matcher* match_all(mlx5dv_dr_table* table) {
        Match none(64);
        return mlx5dv_dr_matcher_create(table, 0, 0, none.get());
    }
    mlx5dv_dr_rule* rule(mlx5dv_dr_matcher* matcher, std::vector<mlx5dv_dr_action*> actions, Match value = Match(64)) {
        errno = 0;
        return mlx5dv_dr_rule_create(matcher, value.get(), actions.size(), actions.data());
    }

    OpenDevice open;
};

class OldDrRefusal : public DrRefusal {
protected:
    OldDrRefusal() : DrRefusal(connectx_5) {}
};

class NewDrRefusal : public DrRefusal {
protected:
    NewDrRefusal() : DrRefusal(connectx_7) {}
};

TEST_F(DrRefusal, UnknownDomainTypes) {
    EXPECT_EQ(domain(static_cast<mlx5dv_dr_domain_type>(3)), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(DrRefusal, UnknownSyncFlags) {
    mlx5dv_dr_domain* fdb = domain();
    for (std::uint32_t flags = 0; flags < 8; ++flags) EXPECT_EQ(mlx5dv_dr_domain_sync(fdb, flags), 0) << flags;
    errno = 0;
    EXPECT_EQ(mlx5dv_dr_domain_sync(fdb, 8), EOPNOTSUPP);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, SyncWaitsForWorkersUnlessItIsOfSoftware) {
    mlx5dv_dr_domain* fdb = domain();
    Lane lane(open.device.steering(), 0);
    lane.online();
    for (const auto flag : {MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW, MLX5DV_DR_DOMAIN_SYNC_FLAGS_MEM}) {
        std::atomic<bool> done{false};
        std::thread caller([&] {
            EXPECT_EQ(mlx5dv_dr_domain_sync(fdb, flag), 0);
            done = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_FALSE(done) << flag;
        while (!done) {
            lane.quiescent();
            std::this_thread::yield();
        }
        caller.join();
    }
    EXPECT_EQ(mlx5dv_dr_domain_sync(fdb, MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW), 0);
    lane.offline();
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, ADomainIsBusyWhileAnActionIsBoundToIt) {
    mlx5dv_dr_domain* fdb = domain();
    std::array<__be64, 1> command{htobe64(std::uint64_t{0x1} << 60 | std::uint64_t{0x01} << 48 | 16ull << 32 | 1)};
    mlx5dv_dr_action* const port = mlx5dv_dr_action_create_dest_vport(fdb, 0xffff);
    mlx5dv_dr_action* const others[] = {
        port, mlx5dv_dr_action_create_modify_header(fdb, 0, sizeof command, command.data()),
        mlx5dv_dr_action_create_packet_reformat(fdb, 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0,
                                                nullptr)};
    for (std::size_t left = std::size(others); left-- != 0;) {
        ASSERT_NE(others[left], nullptr) << left;
        EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), EBUSY) << left;
        EXPECT_EQ(mlx5dv_dr_action_destroy(others[left]), 0);
    }
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, ObjectsThatOthersReferToAreBusy) {
    mlx5dv_dr_domain* fdb = domain();
    mlx5dv_dr_table* table = mlx5dv_dr_table_create(fdb, 1);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), EBUSY);
    mlx5dv_dr_matcher* matcher = match_all(table);
    EXPECT_EQ(mlx5dv_dr_table_destroy(table), EBUSY);
    mlx5dv_dr_table* next = mlx5dv_dr_table_create(fdb, 2);
    mlx5dv_dr_action* jump = mlx5dv_dr_action_create_dest_table(next);
    EXPECT_EQ(mlx5dv_dr_table_destroy(next), EBUSY);
    mlx5dv_dr_rule* made = rule(matcher, {jump});
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), EBUSY);
    EXPECT_EQ(mlx5dv_dr_action_destroy(jump), EBUSY);
    EXPECT_EQ(mlx5dv_dr_rule_destroy(made), 0);
    EXPECT_EQ(mlx5dv_dr_action_destroy(jump), 0);
    EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(next), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, DuplicatesWhereTheyAreNotAllowed) {
    mlx5dv_dr_domain* fdb = domain();
    mlx5dv_dr_table* table = mlx5dv_dr_table_create(fdb, 1);
    mlx5dv_dr_matcher* matcher = match_all(table);
    mlx5dv_dr_action* drop = mlx5dv_dr_action_create_drop();
    std::vector<mlx5dv_dr_rule*> rules{rule(matcher, {drop}), rule(matcher, {drop})};
    EXPECT_NE(rules[1], nullptr) << "allowed by default";
    mlx5dv_dr_domain_allow_duplicate_rules(fdb, false);
    EXPECT_EQ(rule(matcher, {drop}), nullptr);
    EXPECT_EQ(errno, EEXIST);
    errno = 0;
    EXPECT_EQ(mlx5dv_dr_rule_create(matcher, nullptr, 0, nullptr), nullptr) << "no value is one of zeros";
    EXPECT_EQ(errno, EEXIST);
    mlx5dv_dr_domain_allow_duplicate_rules(fdb, true);
    rules.push_back(rule(matcher, {drop}));
    for (mlx5dv_dr_rule* each : rules) {
        ASSERT_NE(each, nullptr);
        EXPECT_EQ(mlx5dv_dr_rule_destroy(each), 0);
    }
    EXPECT_EQ(mlx5dv_dr_action_destroy(drop), 0);
    EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

/// The layout's errno on a matcher of a table of that level.
int layout_error(OpenDevice& open, std::uint32_t level, mlx5dv_dr_matcher_layout layout) {
    mlx5dv_dr_domain* fdb = mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_FDB);
    mlx5dv_dr_table* table = mlx5dv_dr_table_create(fdb, level);
    Match none(64);
    mlx5dv_dr_matcher* matcher = mlx5dv_dr_matcher_create(table, 0, 0, none.get());
    const int error = mlx5dv_dr_matcher_set_layout(matcher, &layout);
    EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
    return error;
}

TEST_F(NewDrRefusal, MatcherLayouts) {
    constexpr std::uint32_t resizable = MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE, hint = MLX5DV_DR_MATCHER_LAYOUT_NUM_RULE;
    EXPECT_EQ(layout_error(open, 1, {resizable, 0}), 0);
    EXPECT_EQ(layout_error(open, 1, {hint, 10}), 0);
    EXPECT_EQ(layout_error(open, 1, {hint | resizable, 10}), 0);
    EXPECT_EQ(layout_error(open, 0, {resizable, 0}), ENOTSUP) << "root";
    EXPECT_EQ(layout_error(open, 1, {4, 0}), ENOTSUP) << "unknown flag";
    EXPECT_EQ(layout_error(open, 0, {hint, 0}), ENOTSUP) << "root";
    EXPECT_EQ(layout_error(open, 1, {hint, 40}), ENOTSUP) << "more than the device's memory holds";
    EXPECT_EQ(layout_error(open, 1, {resizable, 40}), 0) << "a hint that is not given";
    EXPECT_EQ(layout_error(open, 1, {hint, 24}), ENOTSUP);
    EXPECT_EQ(layout_error(open, 1, {hint, 23}), 0);
    {
        mlx5dv_dr_domain* fdb = domain();
        mlx5dv_dr_table* table = mlx5dv_dr_table_create(fdb, 1);
        mlx5dv_dr_matcher* matcher = match_all(table);
        mlx5dv_dr_matcher_layout layout{hint, 10};
        {
            const NoMemory none;
            errno = 0;
            EXPECT_EQ(mlx5dv_dr_matcher_set_layout(matcher, &layout), ENOTSUP);
            EXPECT_EQ(errno, ENOTSUP);
        }
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
        EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
        EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
    }
}

TEST(DrRefusalByProfile, OnlyDevicesWithDefinersHaveMatcherLayouts) {
    for (const Profile& profile : {connectx_5, connectx_6dx, connectx_7}) {
        OpenDevice open(profile);
        const int expected = profile.definers != 0 ? 0 : ENOTSUP;
        EXPECT_EQ(layout_error(open, 1, {MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE, 0}), expected) << profile.name;
    }
}

TEST_F(NewDrRefusal, OnlyMatchersWithADefinerHaveALayout) {
    mlx5dv_dr_domain* fdb = domain();
    mlx5dv_dr_table* table = mlx5dv_dr_table_create(fdb, 1);
    const auto error = [&](std::size_t byte, std::uint8_t criteria) {
        Match mask(448);
        reinterpret_cast<std::uint8_t*>(mask.get()->match_buf)[byte] = 0xff;
        mlx5dv_dr_matcher* matcher = mlx5dv_dr_matcher_create(table, 0, criteria, mask.get());
        mlx5dv_dr_matcher_layout layout{MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE, 0};
        const int answer = mlx5dv_dr_matcher_set_layout(matcher, &layout);
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
        return answer;
    };
    constexpr std::size_t smac = 0, vxlan_vni = 64 + 20, inner_smac = 128;
    EXPECT_EQ(error(smac, 1), 0);
    EXPECT_EQ(error(vxlan_vni, 2), ENOTSUP);
    EXPECT_EQ(error(inner_smac, 4), ENOTSUP);
    EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, ARuleOfASourceThatTheDeviceLacksIsRefusedAsFirmwareDoes) {
    mlx5dv_dr_action* drop = mlx5dv_dr_action_create_drop();
    for (const mlx5dv_dr_domain_type type : {MLX5DV_DR_DOMAIN_TYPE_FDB, MLX5DV_DR_DOMAIN_TYPE_NIC_RX}) {
        mlx5dv_dr_domain* one = domain(type);
        mlx5dv_dr_table* table = mlx5dv_dr_table_create(one, 1);
        mlx5dv_dr_table* root = mlx5dv_dr_table_create(one, 0);
        const auto source = [](std::uint16_t port) {
            Match match(72);
            auto* bytes = reinterpret_cast<std::uint8_t*>(match.get()->match_buf);
            bytes[70] = static_cast<std::uint8_t>(port >> 8);
            bytes[71] = static_cast<std::uint8_t>(port);
            return match;
        };
        Match mask = source(0xffff);
        mlx5dv_dr_matcher* matcher = mlx5dv_dr_matcher_create(table, 0, 2, mask.get());
        mlx5dv_dr_matcher* in_root = mlx5dv_dr_matcher_create(root, 0, 2, mask.get());
        for (const std::uint16_t port : {std::uint16_t{0}, std::uint16_t{1}, uplink_vport.value}) {
            mlx5dv_dr_rule* made = rule(matcher, {drop}, source(port));
            ASSERT_NE(made, nullptr) << port;
            EXPECT_EQ(mlx5dv_dr_rule_destroy(made), 0);
        }
        EXPECT_EQ(rule(matcher, {drop}, source(77)), nullptr);
        EXPECT_EQ(errno, EREMOTEIO);
        Match outside = source(77);
        reinterpret_cast<std::uint8_t*>(outside.get()->match_buf)[69] = 1;
        EXPECT_EQ(rule(matcher, {drop}, outside), nullptr);
        EXPECT_EQ(errno, EINVAL) << "what is wrong in itself comes first";
        mlx5dv_dr_rule* in_kernel = rule(in_root, {drop}, source(77));
        ASSERT_NE(in_kernel, nullptr) << "root rules are the kernel's";
        EXPECT_EQ(mlx5dv_dr_rule_destroy(in_kernel), 0);
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(in_root), 0);
        EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
        EXPECT_EQ(mlx5dv_dr_table_destroy(root), 0);
        EXPECT_EQ(mlx5dv_dr_domain_destroy(one), 0);
    }
    EXPECT_EQ(mlx5dv_dr_action_destroy(drop), 0);
}

TEST_F(DrRefusal, SizesAndFlagsOfModifyHeader) {
    mlx5dv_dr_domain* fdb = domain();
    std::array<__be64, 2> commands{__builtin_bswap64(1ULL << 60 | 5ULL << 48 | 16ULL << 32 | 1)};
    const auto error = [&](std::uint32_t flags, std::size_t size) {
        errno = 0;
        mlx5dv_dr_action* action = mlx5dv_dr_action_create_modify_header(fdb, flags, size, commands.data());
        if (action != nullptr) mlx5dv_dr_action_destroy(action);
        return errno;
    };
    EXPECT_EQ(error(0, 8), 0);
    EXPECT_EQ(error(MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL, 8), 0);
    EXPECT_EQ(error(0, 0), EINVAL);
    EXPECT_EQ(error(0, 12), EINVAL);
    EXPECT_EQ(error(2, 8), EINVAL);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, DestinationsThatDoNotFitTheDomain) {
    mlx5dv_dr_domain* rx = domain(MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
    mlx5dv_dr_domain* fdb = domain();
    mlx5dv_dr_table* root = mlx5dv_dr_table_create(fdb, 0);
    mlx5dv_dr_table* table = mlx5dv_dr_table_create(fdb, 1);
    const auto refused = [](mlx5dv_dr_action* action) { return action == nullptr ? errno : 0; };
    EXPECT_EQ(refused(mlx5dv_dr_action_create_dest_vport(rx, 1)), EOPNOTSUPP);
    EXPECT_EQ(refused(mlx5dv_dr_action_create_dest_ib_port(rx, 1)), EOPNOTSUPP);
    EXPECT_EQ(refused(mlx5dv_dr_action_create_dest_vport(fdb, 0x10000)), EINVAL);
    EXPECT_EQ(refused(mlx5dv_dr_action_create_dest_vport(fdb, 77)), EREMOTEIO) << "no such vport";
    EXPECT_EQ(refused(mlx5dv_dr_action_create_dest_ib_port(fdb, 77)), EINVAL) << "no such port";
    EXPECT_EQ(refused(mlx5dv_dr_action_create_dest_table(root)), EINVAL);
    EXPECT_EQ(refused(mlx5dv_dr_action_create_dest_root_table(table, 0)), EINVAL);
    EXPECT_EQ(refused(mlx5dv_dr_action_create_push_vlan(fdb, __builtin_bswap32(0x91000001))), EINVAL);
    EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(root), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(rx), 0);
}

TEST_F(DrRefusal, IbPortsAreTheirVports) {
    mlx5dv_dr_domain* fdb = domain();
    mlx5dv_dr_table* table = mlx5dv_dr_table_create(fdb, 1);
    mlx5dv_dr_matcher* matcher = match_all(table);
    const std::array<const char*, 3> expected{"vport(0)", "vport(1)", "vport(65535)"};
    for (std::uint32_t port = 1; port <= expected.size(); ++port) {
        mlx5dv_dr_action* to_port = mlx5dv_dr_action_create_dest_ib_port(fdb, port);
        mlx5dv_dr_rule* made = rule(matcher, {to_port});
        ASSERT_NE(made, nullptr);
        char* text = nullptr;
        std::size_t size = 0;
        FILE* const file = open_memstream(&text, &size);
        EXPECT_EQ(mlx5dv_dump_dr_rule(file, made), 0);
        std::fclose(file);
        EXPECT_NE(std::string(text).find(expected[port - 1]), std::string::npos) << text;
        std::free(text);
        EXPECT_EQ(mlx5dv_dr_rule_destroy(made), 0);
        EXPECT_EQ(mlx5dv_dr_action_destroy(to_port), 0);
    }
    EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, Arrays) {
    mlx5dv_dr_domain* fdb = domain();
    mlx5dv_dr_domain* tx = domain(MLX5DV_DR_DOMAIN_TYPE_NIC_TX);
    mlx5dv_dr_action* vport = mlx5dv_dr_action_create_dest_vport(fdb, 1);
    mlx5dv_dr_action* drop = mlx5dv_dr_action_create_drop();
    const auto error = [&](mlx5dv_dr_domain* of, mlx5dv_dr_action* to, std::size_t count, unsigned type) {
        mlx5dv_dr_action_dest_attr attr{};
        attr.type = static_cast<mlx5dv_dr_action_dest_type>(type);
        attr.dest = to;
        std::vector<mlx5dv_dr_action_dest_attr*> all(count, &attr);
        errno = 0;
        mlx5dv_dr_action* action = mlx5dv_dr_action_create_dest_array(of, count, all.data());
        if (action != nullptr) mlx5dv_dr_action_destroy(action);
        return errno;
    };
    EXPECT_EQ(error(fdb, vport, 1, MLX5DV_DR_ACTION_DEST), EINVAL);
    EXPECT_EQ(error(fdb, vport, 2, MLX5DV_DR_ACTION_DEST), 0);
    EXPECT_EQ(error(fdb, vport, 32, MLX5DV_DR_ACTION_DEST), 0);
    EXPECT_EQ(error(fdb, vport, 33, MLX5DV_DR_ACTION_DEST), EINVAL) << "log_max_destination is 5";
    EXPECT_EQ(error(fdb, vport, 2, 9), EINVAL) << "unknown type";
    EXPECT_EQ(error(fdb, drop, 2, MLX5DV_DR_ACTION_DEST), EOPNOTSUPP);
    std::array<std::uint8_t, 32> data{};
    mlx5dv_dr_action* encap = mlx5dv_dr_action_create_packet_reformat(
        fdb, 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL, data.size(), data.data());
    mlx5dv_dr_action_dest_reformat with{encap, vport};
    mlx5dv_dr_action_dest_attr plain{}, encapsulated{};
    plain.type = MLX5DV_DR_ACTION_DEST;
    plain.dest = vport;
    encapsulated.type = MLX5DV_DR_ACTION_DEST_REFORMAT;
    encapsulated.dest_reformat = &with;
    std::array<mlx5dv_dr_action_dest_attr*, 2> both{&plain, &encapsulated};
    mlx5dv_dr_action* array = mlx5dv_dr_action_create_dest_array(fdb, 2, both.data());
    ASSERT_NE(array, nullptr);
    EXPECT_EQ(mlx5dv_dr_action_destroy(encap), EBUSY);
    EXPECT_EQ(mlx5dv_dr_action_destroy(array), 0);
    with.reformat = drop;
    EXPECT_EQ(mlx5dv_dr_action_create_dest_array(fdb, 2, both.data()), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_dr_action_destroy(encap), 0);
    EXPECT_EQ(error(tx, vport, 2, MLX5DV_DR_ACTION_DEST), EOPNOTSUPP);
    EXPECT_EQ(error(tx, vport, 2, 9), EOPNOTSUPP) << "the domain has none, of whatever type";
    EXPECT_EQ(mlx5dv_dr_action_destroy(drop), 0);
    EXPECT_EQ(mlx5dv_dr_action_destroy(vport), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(tx), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, EveryDeviceHasAnUplinkAndOnlyTheVportsThatItHas) {
    mlx5dv_dr_domain* fdb = domain();
    open.device.remove(uplink_vport);
    open.device.remove(VportId{1});
    mlx5dv_dr_action* uplink = mlx5dv_dr_action_create_dest_vport(fdb, 0xffff);
    ASSERT_NE(uplink, nullptr) << "without a cable";
    errno = 0;
    EXPECT_EQ(mlx5dv_dr_action_create_dest_vport(fdb, 1), nullptr);
    EXPECT_EQ(errno, EREMOTEIO);
    EXPECT_EQ(mlx5dv_dr_action_destroy(uplink), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0) << "what was refused refers to nothing";
}

TEST_F(DrRefusal, MetersAreActiveByTheLowestBit) {
    mlx5dv_dr_domain* fdb = domain();
    mlx5dv_dr_table* next = mlx5dv_dr_table_create(fdb, 2);
    for (const std::uint8_t active : {0, 1, 2, 3}) {
        mlx5dv_dr_flow_meter_attr meter{next, active, 3, 0, nullptr};
        mlx5dv_dr_action* made = mlx5dv_dr_action_create_flow_meter(&meter);
        ASSERT_NE(made, nullptr);
        const FlowMeter& metering = *from(made)->more().metering;
        EXPECT_EQ(metering.active, (active & 1) != 0);
        EXPECT_EQ(metering.reg_c, 3);
        meter.active = active ^ 1;
        EXPECT_EQ(mlx5dv_dr_action_modify_flow_meter(made, &meter, __builtin_bswap64(1)), 0);
        EXPECT_EQ(metering.active, (active & 1) == 0);
        EXPECT_EQ(mlx5dv_dr_action_destroy(made), 0);
    }
    EXPECT_EQ(mlx5dv_dr_table_destroy(next), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, MetersAndSamplers) {
    mlx5dv_dr_domain* fdb = domain();
    mlx5dv_dr_table* root = mlx5dv_dr_table_create(fdb, 0);
    mlx5dv_dr_table* next = mlx5dv_dr_table_create(fdb, 2);
    std::array<std::uint8_t, 33> parameters{0x80};
    const auto refused = [](mlx5dv_dr_action* action) { return action == nullptr ? errno : 0; };
    mlx5dv_dr_flow_meter_attr meter{root, 1, 2, 32, parameters.data()};
    EXPECT_EQ(refused(mlx5dv_dr_action_create_flow_meter(&meter)), EOPNOTSUPP);
    meter = {next, 1, 2, 33, parameters.data()};
    EXPECT_EQ(refused(mlx5dv_dr_action_create_flow_meter(&meter)), EINVAL);
    meter = {next, 1, 2, 32, parameters.data()};
    mlx5dv_dr_action* made = mlx5dv_dr_action_create_flow_meter(&meter);
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(mlx5dv_dr_action_modify_flow_meter(made, &meter, __builtin_bswap64(0x1f)), 0);
    EXPECT_EQ(mlx5dv_dr_action_modify_flow_meter(made, &meter, __builtin_bswap64(0x20)), EINVAL);
    mlx5dv_dr_action* vport = mlx5dv_dr_action_create_dest_vport(fdb, 1);
    EXPECT_EQ(mlx5dv_dr_action_modify_flow_meter(vport, &meter, __builtin_bswap64(1)), EINVAL);
    mlx5dv_dr_flow_sampler_attr sampler{10, next, 0, nullptr, 0};
    EXPECT_EQ(refused(mlx5dv_dr_action_create_flow_sampler(&sampler)), EINVAL);
    sampler = {10, next, 1, nullptr, 0};
    EXPECT_EQ(refused(mlx5dv_dr_action_create_flow_sampler(&sampler)), EINVAL) << "no actions, whatever their number";
    sampler = {10, nullptr, 1, &vport, 0};
    EXPECT_EQ(refused(mlx5dv_dr_action_create_flow_sampler(&sampler)), EINVAL);
    sampler = {0, next, 1, &vport, 0};
    EXPECT_EQ(refused(mlx5dv_dr_action_create_flow_sampler(&sampler)), EINVAL);
    sampler = {10, next, 1, &made, 0};
    EXPECT_EQ(refused(mlx5dv_dr_action_create_flow_sampler(&sampler)), EOPNOTSUPP);
    sampler = {10, next, 1, &vport, 0};
    mlx5dv_dr_action* sample = mlx5dv_dr_action_create_flow_sampler(&sampler);
    ASSERT_NE(sample, nullptr);
    EXPECT_EQ(mlx5dv_dr_action_destroy(vport), EBUSY);
    for (mlx5dv_dr_action* each : {sample, vport, made}) EXPECT_EQ(mlx5dv_dr_action_destroy(each), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(next), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(root), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, WithoutMemoryNothingIsMade) {
    mlx5dv_dr_domain* fdb = domain();
    for (const unsigned left : {0U, 1U}) {
        errno = 0;
        const NoMemory none(left);
        EXPECT_EQ(mlx5dv_dr_table_create(fdb, 1), nullptr);
        EXPECT_EQ(errno, ENOMEM) << left;
    }
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0) << "nobody refers to it";
}

TEST_F(DrRefusal, Reformats) {
    mlx5dv_dr_domain* fdb = domain();
    std::array<std::uint8_t, 32> data{};
    const auto error = [&](std::uint32_t flags, unsigned type, std::size_t size, void* bytes) {
        errno = 0;
        mlx5dv_dr_action* action = mlx5dv_dr_action_create_packet_reformat(
            fdb, flags, static_cast<mlx5dv_flow_action_packet_reformat_type>(type), size, bytes);
        if (action != nullptr) mlx5dv_dr_action_destroy(action);
        return errno;
    };
    constexpr std::uint32_t root_level = MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL;
    constexpr unsigned encaps[] = {MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL,
                                   MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL};
    for (const unsigned type : encaps) {
        EXPECT_EQ(error(0, type, 32, data.data()), 0);
        EXPECT_EQ(error(root_level, type, 32, data.data()), EOPNOTSUPP) << "in NIC domains only";
        EXPECT_EQ(error(root_level | 2, type, 32, data.data()), EINVAL);
        EXPECT_EQ(error(0, type, 32, nullptr), EINVAL);
        EXPECT_EQ(error(0, type, 0, data.data()), EINVAL);
        EXPECT_EQ(error(0, type, 0, nullptr), EINVAL);
    }
    EXPECT_EQ(error(0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0, nullptr), 0);
    EXPECT_EQ(error(0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0, data.data()), EINVAL);
    EXPECT_EQ(error(0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2, 14, data.data()), 0);
    EXPECT_EQ(error(0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2, 15, data.data()), EINVAL);
    EXPECT_EQ(error(0, 9, 14, data.data()), EINVAL) << "unknown type";
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, LinksOfConnectionsOnly) {
    mlx5dv_dr_domain* fdb = domain();
    mlx5dv_dr_domain* other = domain();
    std::array<std::uint8_t, 16> out{};
    const auto object = [&](std::uint8_t type) {
        std::vector<std::uint8_t> in(144);
        in[0] = 0x0a;
        in[7] = type;
        return mlx5dv_devx_obj_create(open.context, in.data(), in.size(), out.data(), out.size());
    };
    std::vector<std::uint8_t> counter(16);
    counter[0] = 0x09;
    counter[1] = 0x39;
    mlx5dv_devx_obj* const count =
        mlx5dv_devx_obj_create(open.context, counter.data(), counter.size(), out.data(), out.size());
    mlx5dv_devx_obj* const hits = object(0x25);
    mlx5dv_devx_obj* const connections = object(0x31);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_link(count, fdb, other, 1, 3), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_link(hits, fdb, other, 1, 3), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_link(connections, fdb, other, 1, 2), EINVAL);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(count, other), EINVAL);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(hits, other), EINVAL);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(connections, other), EINVAL);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_link(connections, fdb, other, 1, 3), 0);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(connections, other), 0);
    errno = 0;
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(connections, other), EINVAL);
    EXPECT_EQ(errno, EINVAL);
    for (mlx5dv_devx_obj* one : {count, hits, connections}) EXPECT_EQ(mlx5dv_devx_obj_destroy(one), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(other), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(OldDrRefusal, ConnectX5HasNoAso) {
    mlx5dv_dr_domain* fdb = domain();
    std::array<std::uint8_t, 16> out{};
    std::vector<std::uint8_t> counter(16);
    counter[0] = 0x09;
    counter[1] = 0x39;
    mlx5dv_devx_obj* const count =
        mlx5dv_devx_obj_create(open.context, counter.data(), counter.size(), out.data(), out.size());
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_link(count, fdb, fdb, 1, 3), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_dr_aso_other_domain_unlink(count, fdb), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(count), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrRefusal, CountersTagsAndQueuesOfTheWrongKind) {
    std::array<std::uint8_t, 16> out{};
    std::vector<std::uint8_t> in(144);
    in[0] = 0x0a;
    in[7] = 0x25;
    mlx5dv_devx_obj* hits = mlx5dv_devx_obj_create(open.context, in.data(), in.size(), out.data(), out.size());
    ASSERT_NE(hits, nullptr);
    EXPECT_EQ(mlx5dv_dr_action_create_flow_counter(hits, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
    EXPECT_EQ(mlx5dv_dr_action_create_dest_devx_tir(hits), nullptr);
    EXPECT_EQ(errno, EINVAL);
    std::vector<std::uint8_t> counter(16);
    counter[0] = 0x09;
    counter[1] = 0x39;
    mlx5dv_devx_obj* one = mlx5dv_devx_obj_create(open.context, counter.data(), counter.size(), out.data(), out.size());
    ASSERT_NE(one, nullptr);
    errno = 0;
    EXPECT_EQ(mlx5dv_dr_action_create_flow_counter(one, 1), nullptr) << "past the bulk";
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(one), 0);
    ibv_cq* cq = ibv_create_cq(open.context, 1, nullptr, nullptr, 0);
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_UD;
    ibv_qp* datagrams = ibv_create_qp(open.pd, &attr);
    ASSERT_NE(datagrams, nullptr);
    errno = 0;
    EXPECT_EQ(mlx5dv_dr_action_create_dest_ibv_qp(datagrams), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_destroy_qp(datagrams), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(hits), 0);
}

TEST_F(DrRefusal, DumpsOfNothing) {
    EXPECT_EQ(mlx5dv_dump_dr_domain(stdout, nullptr), -EINVAL);
    EXPECT_EQ(mlx5dv_dump_dr_table(stdout, nullptr), -EINVAL);
    EXPECT_EQ(mlx5dv_dump_dr_matcher(stdout, nullptr), -EINVAL);
    EXPECT_EQ(mlx5dv_dump_dr_rule(stdout, nullptr), -EINVAL);
    mlx5dv_dr_domain* fdb = domain();
    EXPECT_EQ(mlx5dv_dump_dr_domain(nullptr, fdb), -EINVAL);
    mlx5dv_dr_table* table = mlx5dv_dr_table_create(fdb, 1);
    EXPECT_EQ(mlx5dv_dump_dr_table(nullptr, table), -EINVAL);
    mlx5dv_dr_matcher* matcher = match_all(table);
    EXPECT_EQ(mlx5dv_dump_dr_matcher(nullptr, matcher), -EINVAL);
    mlx5dv_dr_rule* made = rule(matcher, {});
    ASSERT_NE(made, nullptr);
    EXPECT_EQ(mlx5dv_dump_dr_rule(nullptr, made), -EINVAL);
    FILE* const read_only = std::fopen("/dev/null", "r");
    EXPECT_EQ(mlx5dv_dump_dr_rule(read_only, made), EBADF);
    std::fclose(read_only);
    {
        const NoMemory none;
        EXPECT_EQ(mlx5dv_dump_dr_rule(stdout, made), ENOMEM);
    }
    EXPECT_EQ(mlx5dv_dr_rule_destroy(made), 0);
    EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

}  // namespace
}  // namespace ovsdr::soft::test
