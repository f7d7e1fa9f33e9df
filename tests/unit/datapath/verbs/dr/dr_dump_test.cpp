// mlx5dv_dump_dr_*: what the text says of a domain's objects, addresses aside; and faults that are armed for each
// function.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "datapath/control/fault.hpp"
#include "datapath/steering/key.hpp"
#include "match_parameters.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

/// An FDB with tables of levels 0 to 2, and in level 1 a matcher of the ethertype.
class DrDump : public ::testing::Test {
protected:
    DrDump() {
        for (std::uint32_t level = 0; level < 3; ++level) tables.push_back(mlx5dv_dr_table_create(domain, level));
        matcher = mlx5dv_dr_matcher_create(tables[1], 3, 1, Match(64).byte(6, 0xff).byte(7, 0xff).get());
    }
    ~DrDump() override {
        for (mlx5dv_dr_rule* rule : rules) EXPECT_EQ(mlx5dv_dr_rule_destroy(rule), 0);
        while (!actions.empty()) {
            EXPECT_EQ(mlx5dv_dr_action_destroy(actions.back()), 0);
            actions.pop_back();
        }
        for (mlx5dv_devx_obj* object : objects) EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
        for (mlx5dv_dr_table* table : tables) EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
        EXPECT_EQ(mlx5dv_dr_domain_destroy(domain), 0);
    }
    mlx5dv_dr_action* keep(mlx5dv_dr_action* action) {
        EXPECT_NE(action, nullptr);
        actions.push_back(action);
        return action;
    }
    mlx5dv_devx_obj* object(std::uint8_t high, std::uint8_t low, std::uint8_t type) {
        std::array<std::uint8_t, 16> out{};
        std::vector<std::uint8_t> in(type != 0 ? 144 : 16);
        in[0] = high;
        in[1] = low;
        in[7] = type;
        objects.push_back(mlx5dv_devx_obj_create(open.context, in.data(), in.size(), out.data(), out.size()));
        EXPECT_NE(objects.back(), nullptr);
        return objects.back();
    }
    mlx5dv_dr_rule* rule(std::uint8_t low, std::vector<mlx5dv_dr_action*> list) {
        rules.push_back(
            mlx5dv_dr_rule_create(matcher, Match(64).byte(6, 8).byte(7, low).get(), list.size(), list.data()));
        EXPECT_NE(rules.back(), nullptr) << errno;
        return rules.back();
    }
    /// Addresses become `@`, and the room that a matcher has `#`.
    static std::string text_of(const std::function<int(FILE*)>& dump) {
        char* bytes = nullptr;
        std::size_t size = 0;
        FILE* const file = open_memstream(&bytes, &size);
        EXPECT_EQ(dump(file), 0);
        std::fclose(file);
        std::string text(bytes, size);
        std::free(bytes);
        text = std::regex_replace(text, std::regex(" room [0-9]+"), " room #");
        return std::regex_replace(text, std::regex("(domain|table|matcher|rule) 0x[0-9a-f]+"), "$1 @");
    }
    static std::string text_of(mlx5dv_dr_rule* one) {
        return text_of([=](FILE* file) { return mlx5dv_dump_dr_rule(file, one); });
    }
    /// The lines of the matcher's rules.
    std::multiset<std::string> listed() {
        std::istringstream text(text_of([this](FILE* file) { return mlx5dv_dump_dr_matcher(file, matcher); }));
        std::multiset<std::string> lines;
        std::string line;
        for (std::getline(text, line); std::getline(text, line);) lines.insert(line + "\n");
        return lines;
    }
    /// The key's one word that is not 0.
    static std::string ethertype(const std::string& value) {
        constexpr unsigned word = key_offset::ethertype / 8, in_word = key_offset::ethertype % 8;
        std::string digits(16, '0');
        return " w" + std::to_string(word) + "=" + digits.replace(in_word * 2, 4, value);
    }

    OpenDevice open{connectx_7};  // matchers have layouts
    mlx5dv_dr_domain* domain = mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_FDB);
    std::vector<mlx5dv_dr_table*> tables;
    mlx5dv_dr_matcher* matcher;
    std::vector<mlx5dv_dr_action*> actions;
    std::vector<mlx5dv_devx_obj*> objects;
    std::vector<mlx5dv_dr_rule*> rules;
};

TEST_F(DrDump, ObjectsContainEachOther) {
    rule(0x06, {keep(mlx5dv_dr_action_create_drop())});
    rule(0x00, {keep(mlx5dv_dr_action_create_dest_table(tables[2]))});
    const std::string first = "      rule @:" + ethertype("0806") + " -> drop\n";
    const std::string second = "      rule @:" + ethertype("0800") + " -> table(level 2)\n";
    const std::string head = "    matcher @: priority 3 criteria 0x1 rules 2 room #" + ethertype("ffff") + "\n";
    EXPECT_EQ(text_of(rules[0]), first);
    EXPECT_EQ(text_of(rules[1]), second);
    const std::string of_matcher = text_of([&](FILE* file) { return mlx5dv_dump_dr_matcher(file, matcher); });
    EXPECT_TRUE(of_matcher == head + first + second || of_matcher == head + second + first) << of_matcher;
    EXPECT_EQ(text_of([&](FILE* file) { return mlx5dv_dump_dr_table(file, tables[1]); }),
              "  table @: level 1\n" + of_matcher);
    const std::string all = text_of([&](FILE* file) { return mlx5dv_dump_dr_domain(file, domain); });
    EXPECT_EQ(all.find("domain @: fdb on connectx-7\n"), 0U) << all;
    for (const std::string& part : {std::string("  table @: level 0\n"), "  table @: level 1\n" + of_matcher,
                                    std::string("  table @: level 2\n")}) {
        EXPECT_NE(all.find(part), std::string::npos) << part;
    }
}

/// In no order; whichever goes, the others stay.
TEST_F(DrDump, RulesAreListedInAnyOrderOfTheirGoing) {
    mlx5dv_dr_action* const drop = keep(mlx5dv_dr_action_create_drop());
    const auto line = [](unsigned low) {
        return "      rule @:" + ethertype("080" + std::to_string(low)) + " -> drop\n";
    };
    for (const unsigned gone : {0U, 1U, 2U}) {
        for (const std::uint8_t low : {0, 1, 2}) rule(low, {drop});
        std::multiset<std::string> expected;
        for (unsigned low = 3; low-- > 0;) {
            if (low != gone) expected.insert(line(low));
        }
        EXPECT_EQ(mlx5dv_dr_rule_destroy(rules[gone]), 0);
        rules.erase(rules.begin() + gone);
        EXPECT_EQ(listed(), expected) << gone;
        rule(9, {drop});
        expected.insert(line(9));
        rule(9, {drop});  // which waits for the first
        expected.insert(line(9));
        EXPECT_EQ(listed(), expected) << gone;
        for (mlx5dv_dr_rule* one : rules) EXPECT_EQ(mlx5dv_dr_rule_destroy(one), 0);
        rules.clear();
    }
}

TEST_F(DrDump, DomainsSayTheirType) {
    for (const auto& [type, name] :
         {std::pair(MLX5DV_DR_DOMAIN_TYPE_NIC_RX, "nic_rx"), std::pair(MLX5DV_DR_DOMAIN_TYPE_NIC_TX, "nic_tx")}) {
        mlx5dv_dr_domain* const other = mlx5dv_dr_domain_create(open.context, type);
        EXPECT_EQ(text_of([=](FILE* file) { return mlx5dv_dump_dr_domain(file, other); }),
                  "domain @: " + std::string(name) + " on connectx-7\n");
        mlx5dv_dr_table* const table = mlx5dv_dr_table_create(other, 1);
        mlx5dv_dr_matcher* const all = mlx5dv_dr_matcher_create(table, 0, 0, Match(64).get());
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(all), 0);
        EXPECT_EQ(text_of([=](FILE* file) { return mlx5dv_dump_dr_table(file, table); }), "  table @: level 1\n")
            << "no matcher any more";
        EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
        EXPECT_EQ(text_of([=](FILE* file) { return mlx5dv_dump_dr_domain(file, other); }),
                  "domain @: " + std::string(name) + " on connectx-7\n") << "no table any more";
        EXPECT_EQ(mlx5dv_dr_domain_destroy(other), 0);
    }
}

TEST_F(DrDump, ActionsSayWhatTheyAreMadeOf) {
    const auto line = [](const std::string& list) { return "      rule @:" + ethertype("0800") + " ->" + list + "\n"; };
    const auto check = [&](std::vector<mlx5dv_dr_action*> list, const std::string& expected) {
        EXPECT_EQ(text_of(rule(0, std::move(list))), line(expected));
        EXPECT_EQ(mlx5dv_dr_rule_destroy(rules.back()), 0);
        rules.pop_back();
    };
    mlx5dv_dr_action* const vport = keep(mlx5dv_dr_action_create_dest_vport(domain, 1));
    mlx5dv_dr_action* const count = keep(mlx5dv_dr_action_create_flow_counter(object(9, 0x39, 0), 0));
    std::array<__be64, 2> commands{__builtin_bswap64(1ULL << 60 | 5ULL << 48 | 16ULL << 32 | 0x1234),
                                   __builtin_bswap64(1ULL << 60 | 2ULL << 48 | 16ULL << 32 | 0x77)};
    mlx5dv_dr_action* const edit = keep(mlx5dv_dr_action_create_modify_header(domain, 0, 16, commands.data()));
    mlx5dv_dr_action* const push = keep(mlx5dv_dr_action_create_push_vlan(domain, __builtin_bswap32(0x81000007)));
    check({vport}, " vport(1)");
    check({count, vport}, " counter(0: packets 0 bytes 0) vport(1)");
    check({edit, push, vport}, " modify_header(dmac_15_0 0x1234)(smac_15_0 0x77) push_vlan(0x81000007) vport(1)");
    check({keep(mlx5dv_dr_action_create_aso(domain, object(0x0a, 0, 0x25), 5, 1, 3)), vport},
          " aso_first_hit(5 -> reg_c_3) vport(1)");
    check({keep(mlx5dv_dr_action_create_aso(domain, object(0x0a, 0, 0x31), 0, 2, 5)), vport},
          " aso_ct(0 -> reg_c_5) vport(1)");
    check({keep(mlx5dv_dr_action_create_aso(domain, object(0x0a, 0, 0x24), 1, 4, 1)), vport},
          " aso_flow_meter(1 -> reg_c_1) vport(1)");
    std::array<std::uint8_t, 32> parameters{0x80};
    mlx5dv_dr_flow_meter_attr meter{tables[2], 1, 2, parameters.size(), parameters.data()};
    check({keep(mlx5dv_dr_action_create_flow_meter(&meter))}, " meter(level 2 reg_c_2)");
    mlx5dv_dr_action* branch = vport;
    mlx5dv_dr_flow_sampler_attr sampler{10, tables[2], 1, &branch, 0};
    check({keep(mlx5dv_dr_action_create_flow_sampler(&sampler))}, " sampler(1 in 10, level 2: vport(1) )");
    mlx5dv_dr_action_dest_attr to{};
    to.type = MLX5DV_DR_ACTION_DEST;
    to.dest = vport;
    std::array<mlx5dv_dr_action_dest_attr*, 2> both{&to, &to};
    check({keep(mlx5dv_dr_action_create_dest_array(domain, 2, both.data()))}, " dest_array( vport(1) vport(1) )");
    mlx5dv_dr_domain* const rx = mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
    mlx5dv_dr_table* const table = mlx5dv_dr_table_create(rx, 1);
    mlx5dv_dr_matcher* const all = mlx5dv_dr_matcher_create(table, 0, 0, Match(64).get());
    std::array<mlx5dv_dr_action*, 2> list{keep(mlx5dv_dr_action_create_tag(0x99)), actions[0]};
    list[1] = keep(mlx5dv_dr_action_create_pop_vlan());
    mlx5dv_dr_rule* const tagging = mlx5dv_dr_rule_create(all, Match(64).get(), 2, list.data());
    ASSERT_NE(tagging, nullptr);
    EXPECT_EQ(text_of(tagging), "      rule @: -> tag(0x99) pop_vlan\n");
    EXPECT_EQ(mlx5dv_dr_rule_destroy(tagging), 0);
    EXPECT_EQ(mlx5dv_dr_matcher_destroy(all), 0);
    EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(rx), 0);
}

/// `call` fails with the armed errno, and does what it is for when it is made again.
class DrFault : public DrDump {
protected:
    template <typename Call>
    auto made(const char* name, Call call) {
        errno = 0;
        arm_fault(name, EIO, 1);
        EXPECT_EQ(call(), nullptr) << name;
        EXPECT_EQ(errno, EIO) << name;
        auto* const object = call();
        EXPECT_NE(object, nullptr) << name;
        return object;
    }
    template <typename Call>
    void done(const char* name, Call call) {
        arm_fault(name, EIO, 1);
        EXPECT_EQ(call(), EIO) << name;
        EXPECT_EQ(call(), 0) << name;
    }
};

TEST_F(DrFault, FunctionsFailWhenTheyAreTold) {
    mlx5dv_dr_domain* const other = made("mlx5dv_dr_domain_create", [&] {
        return mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_FDB);
    });
    mlx5dv_dr_table* const table = made("mlx5dv_dr_table_create", [&] { return mlx5dv_dr_table_create(other, 1); });
    mlx5dv_dr_matcher* const all = made("mlx5dv_dr_matcher_create", [&] {
        return mlx5dv_dr_matcher_create(table, 0, 0, Match(64).get());
    });
    const auto action = [&](const char* name, const std::function<mlx5dv_dr_action*()>& call) {
        return keep(made(name, call));
    };
    mlx5dv_dr_action* drop = action("mlx5dv_dr_action_create_drop", [] { return mlx5dv_dr_action_create_drop(); });
    action("mlx5dv_dr_action_create_default_miss", [] { return mlx5dv_dr_action_create_default_miss(); });
    action("mlx5dv_dr_action_create_tag", [] { return mlx5dv_dr_action_create_tag(1); });
    action("mlx5dv_dr_action_create_pop_vlan", [] { return mlx5dv_dr_action_create_pop_vlan(); });
    action("mlx5dv_dr_action_create_push_vlan", [&] {
        return mlx5dv_dr_action_create_push_vlan(domain, __builtin_bswap32(0x81000007));
    });
    action("mlx5dv_dr_action_create_dest_table", [&] { return mlx5dv_dr_action_create_dest_table(tables[2]); });
    action("mlx5dv_dr_action_create_dest_root_table",
           [&] { return mlx5dv_dr_action_create_dest_root_table(tables[0], 1); });
    mlx5dv_dr_action* vport =
        action("mlx5dv_dr_action_create_dest_vport", [&] { return mlx5dv_dr_action_create_dest_vport(domain, 1); });
    action("mlx5dv_dr_action_create_packet_reformat", [&] {
        return mlx5dv_dr_action_create_packet_reformat(
            domain, 0, MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0, nullptr);
    });
    __be64 command = __builtin_bswap64(1ULL << 60 | 5ULL << 48 | 16ULL << 32 | 1);
    action("mlx5dv_dr_action_create_modify_header",
           [&] { return mlx5dv_dr_action_create_modify_header(domain, 0, 8, &command); });
    mlx5dv_devx_obj* const counters = object(9, 0x39, 0);
    action("mlx5dv_dr_action_create_flow_counter", [&] { return mlx5dv_dr_action_create_flow_counter(counters, 0); });
    mlx5dv_devx_obj* const hits = object(0x0a, 0, 0x25);
    mlx5dv_dr_action* hit =
        action("mlx5dv_dr_action_create_aso", [&] { return mlx5dv_dr_action_create_aso(domain, hits, 5, 1, 3); });
    done("mlx5dv_dr_action_modify_aso", [&] { return mlx5dv_dr_action_modify_aso(hit, 6, 1, 3); });
    std::array<std::uint8_t, 32> parameters{0x80};
    mlx5dv_dr_flow_meter_attr meter{tables[2], 1, 2, parameters.size(), parameters.data()};
    mlx5dv_dr_action* metering =
        action("mlx5dv_dr_action_create_flow_meter", [&] { return mlx5dv_dr_action_create_flow_meter(&meter); });
    done("mlx5dv_dr_action_modify_flow_meter", [&] {
        return mlx5dv_dr_action_modify_flow_meter(metering, &meter, __builtin_bswap64(1));
    });
    mlx5dv_dr_flow_sampler_attr sampler{10, tables[2], 1, &vport, 0};
    action("mlx5dv_dr_action_create_flow_sampler", [&] { return mlx5dv_dr_action_create_flow_sampler(&sampler); });
    mlx5dv_dr_action_dest_attr to{};
    to.type = MLX5DV_DR_ACTION_DEST;
    to.dest = vport;
    std::array<mlx5dv_dr_action_dest_attr*, 2> both{&to, &to};
    action("mlx5dv_dr_action_create_dest_array",
           [&] { return mlx5dv_dr_action_create_dest_array(domain, 2, both.data()); });
    mlx5dv_devx_obj* const connections = object(0x0a, 0, 0x31);
    done("mlx5dv_dr_aso_other_domain_link",
         [&] { return mlx5dv_dr_aso_other_domain_link(connections, domain, other, 1, 3); });
    done("mlx5dv_dr_aso_other_domain_unlink", [&] { return mlx5dv_dr_aso_other_domain_unlink(connections, other); });
    done("mlx5dv_dr_domain_sync", [&] { return mlx5dv_dr_domain_sync(other, MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW); });
    mlx5dv_dr_matcher_layout layout{MLX5DV_DR_MATCHER_LAYOUT_RESIZABLE, 0};
    done("mlx5dv_dr_matcher_set_layout", [&] { return mlx5dv_dr_matcher_set_layout(all, &layout); });
    mlx5dv_dr_rule* const dropping = made("mlx5dv_dr_rule_create", [&] {
        return mlx5dv_dr_rule_create(all, Match(64).get(), 1, &drop);
    });
    done("mlx5dv_dr_rule_destroy", [&] { return mlx5dv_dr_rule_destroy(dropping); });
    done("mlx5dv_dr_action_destroy", [&] { return mlx5dv_dr_action_destroy(actions.back()); });
    actions.pop_back();
    done("mlx5dv_dr_matcher_destroy", [&] { return mlx5dv_dr_matcher_destroy(all); });
    done("mlx5dv_dr_table_destroy", [&] { return mlx5dv_dr_table_destroy(table); });
    done("mlx5dv_dr_domain_destroy", [&] { return mlx5dv_dr_domain_destroy(other); });
    EXPECT_TRUE(armed_faults().empty());
}

}  // namespace
}  // namespace ovsdr::soft::test
