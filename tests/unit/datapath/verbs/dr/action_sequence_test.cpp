// Every list of up to four actions, in every domain, on every side, for every profile: accepted or refused, and with
// which errno, by the public functions on real action objects, against the state machine of rdma-core 44 as a table.
//
// The table says what may follow what. Around it libmlx5 looks, action by action and in this order: whether the
// generation can do it on this side (EINVAL), whether there are too many of its kind (EINVAL; a third push_vlan
// ENOTSUP), the state machine (EOPNOTSUPP). An FDB rule is looked at for packets from the wire and then for those from
// vports, unless its source settles one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "datapath/steering/action_order.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"
#include "tests/unit/paths.hpp"

namespace ovsdr::soft::test {
namespace {

/// (side, state, action) -> next state, by the names of the table.
using Order = std::map<std::array<std::string, 3>, std::string>;

const Order& order() {
    static const Order read = [] {
        Order rows;
        std::ifstream file(ovsdr::test::source_folder + "/tests/unit/datapath/verbs/dr/data/dr_action_order.csv");
        std::string line;
        while (std::getline(file, line)) {
            if (line.empty() || line[0] == '#' || line.starts_with("domain_side")) continue;
            std::array<std::string, 4> cells;
            std::istringstream cut(line);
            for (std::string& cell : cells) std::getline(cut, cell, ',');
            rows[{cells[0], cells[1], cells[2]}] = cells[3];
        }
        return rows;
    }();
    return read;
}

const std::map<std::string, ActionType> types{
    {"DROP", ActionType::drop}, {"QP", ActionType::qp}, {"FT", ActionType::table}, {"ROOT_FT", ActionType::root_table},
    {"VPORT", ActionType::vport}, {"DEST_ARRAY", ActionType::dest_array}, {"MISS", ActionType::default_miss},
    {"TAG", ActionType::tag}, {"CTR", ActionType::counter}, {"MODIFY_HDR", ActionType::modify_header},
    {"POP_VLAN", ActionType::pop_vlan}, {"PUSH_VLAN", ActionType::push_vlan}, {"TNL_L2_TO_L2", ActionType::decap_l2},
    {"TNL_L3_TO_L2", ActionType::decap_l3}, {"L2_TO_TNL_L2", ActionType::encap_l2},
    {"L2_TO_TNL_L3", ActionType::encap_l3}, {"METER", ActionType::meter}, {"SAMPLER", ActionType::sampler},
    {"ASO_FIRST_HIT", ActionType::aso_first_hit}, {"ASO_FLOW_METER", ActionType::aso_flow_meter},
    {"ASO_CT", ActionType::aso_ct}};

TEST(ActionOrder, IsTheTable) {
    const std::map<std::string, ActionSide> sides{{"NIC_INGRESS", ActionSide::nic_ingress},
                                                  {"NIC_EGRESS", ActionSide::nic_egress},
                                                  {"FDB_INGRESS", ActionSide::fdb_ingress},
                                                  {"FDB_EGRESS", ActionSide::fdb_egress}};
    const std::map<std::string, ActionState> states{
        {"NO_ACTION", ActionState::no_action}, {"DECAP", ActionState::decap}, {"ENCAP", ActionState::encap},
        {"MODIFY_HDR", ActionState::modify}, {"POP_VLAN", ActionState::pop}, {"PUSH_VLAN", ActionState::push},
        {"ASO", ActionState::aso}, {"NON_TERM", ActionState::non_term}, {"TERM", ActionState::term}};
    ASSERT_EQ(order().size(), 389U);
    unsigned taken = 0;
    for (const auto& [side_name, side] : sides) {
        for (const auto& [state_name, state] : states) {
            for (const auto& [action_name, action] : types) {
                const auto row = order().find({side_name, state_name, action_name});
                const ActionState expected = row == order().end() ? ActionState::refused : states.at(row->second);
                EXPECT_EQ(next_state(side, state, action), expected)
                    << side_name << ' ' << state_name << ' ' << action_name;
                taken += row != order().end();
            }
        }
    }
    EXPECT_EQ(taken, order().size()) << "a row of the table names something else";
}

/// One kind of action and an object of it.
struct Kind {
    std::string name;
    mlx5dv_dr_action* action;
};

/// What a generation can do, said once more: libmlx5's actions_caps of dr_ste_v0.c, _v1.c and _v2.c.
[[nodiscard]] int refused_by_generation(const Profile& profile, const std::string& side, const std::string& action) {
    if (profile.name != "connectx-5") return 0;
    const bool receives = side.ends_with("INGRESS");
    if (action == "POP_VLAN" && !receives) return EINVAL;
    return (action == "PUSH_VLAN" || action.starts_with("L2_TO_TNL")) && receives ? EINVAL : 0;
}

/// States and kinds as numbers, so that a million lists are a matter of seconds.
class SideModel {
public:
    SideModel(const Profile& profile, const std::string& side, const std::vector<Kind>& kinds) {
        std::map<std::string, unsigned> states{{"NO_ACTION", 0}};
        for (const auto& [key, next] : order()) {
            if (key[0] == side) states.try_emplace(next, states.size());
        }
        next_.assign(states.size(), std::vector<int>(kinds.size(), -1));
        for (unsigned kind = 0; kind < kinds.size(); ++kind) {
            const std::string& name = kinds[kind].name;
            generation_.push_back(refused_by_generation(profile, side, name));
            limit_.push_back(name == "POP_VLAN" || name == "PUSH_VLAN" ? 2 : 1);
            excess_.push_back(name == "PUSH_VLAN" ? ENOTSUP : EINVAL);
            for (const auto& [state, number] : states) {
                const auto row = order().find({side, state, name});
                if (row != order().end()) next_[number][kind] = static_cast<int>(states.at(row->second));
            }
        }
    }

    [[nodiscard]] int verdict(const std::vector<unsigned>& list) const {
        int state = 0;
        std::vector<unsigned> times(limit_.size());
        for (const unsigned kind : list) {
            if (generation_[kind] != 0) return generation_[kind];
            if (++times[kind] > limit_[kind]) return excess_[kind];
            state = next_[static_cast<unsigned>(state)][kind];
            if (state < 0) return EOPNOTSUPP;
        }
        return 0;
    }

private:
    std::vector<std::vector<int>> next_;
    std::vector<int> generation_, excess_;
    std::vector<unsigned> limit_;
};

/// match_sz bytes of parameters.
struct Parameters {
    explicit Parameters(std::size_t size) : memory(sizeof(mlx5dv_flow_match_parameters) + size) {
        get()->match_sz = size;
    }
    mlx5dv_flow_match_parameters* get() { return reinterpret_cast<mlx5dv_flow_match_parameters*>(memory.data()); }
    void source_port(std::uint16_t port) {
        auto* bytes = reinterpret_cast<std::uint8_t*>(get()->match_buf);
        bytes[70] = static_cast<std::uint8_t>(port >> 8);
        bytes[71] = static_cast<std::uint8_t>(port);
    }
    std::vector<std::uint8_t> memory;
};

struct Case {
    const Profile* profile;
    mlx5dv_dr_domain_type domain;
};

class ActionSequence : public ::testing::TestWithParam<Case> {
protected:
    ActionSequence() : open(*GetParam().profile) {}

    void SetUp() override {
        domain = mlx5dv_dr_domain_create(open.context, GetParam().domain);
        root = mlx5dv_dr_table_create(domain, 0);
        table = mlx5dv_dr_table_create(domain, 1);
        next = mlx5dv_dr_table_create(domain, 2);
        ibv_cq* cq = ibv_create_cq(open.context, 8, nullptr, nullptr, 0);
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.cap = {1, 1, 1, 1, 0};
        attr.pd = open.pd;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD;
        qp = ibv_create_qp_ex(open.context, &attr);
        ASSERT_NE(qp, nullptr);
        make_actions();
    }
    void TearDown() override {
        std::reverse(kinds.begin(), kinds.end());
        for (const Kind& kind : kinds) EXPECT_EQ(mlx5dv_dr_action_destroy(kind.action), 0) << kind.name;
        for (mlx5dv_devx_obj* object : objects) EXPECT_EQ(mlx5dv_devx_obj_destroy(object), 0);
        for (mlx5dv_dr_table* each : {next, table, root}) EXPECT_EQ(mlx5dv_dr_table_destroy(each), 0);
        EXPECT_EQ(mlx5dv_dr_domain_destroy(domain), 0);
        ibv_cq* cq = qp->recv_cq;
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
    }

    mlx5dv_devx_obj* object(std::vector<std::uint8_t> in) {
        std::array<std::uint8_t, 16> out{};
        mlx5dv_devx_obj* made = mlx5dv_devx_obj_create(open.context, in.data(), in.size(), out.data(), out.size());
        if (made != nullptr) objects.push_back(made);
        return made;
    }
    mlx5dv_devx_obj* aso(std::uint8_t type) {
        std::vector<std::uint8_t> in(144);
        in[0] = 0x0a;
        in[7] = type;
        return object(in);
    }
    void keep(const std::string& name, mlx5dv_dr_action* action, bool expected = true) {
        ASSERT_EQ(action != nullptr, expected) << name << " " << GetParam().profile->name << " errno " << errno;
        if (action != nullptr) kinds.push_back({name, action});
    }
    mlx5dv_dr_action* of(const std::string& name) const {
        const auto found =
            std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) { return kind.name == name; });
        return found == kinds.end() ? nullptr : found->action;
    }

    void make_actions();
    void make_reformats(bool receives, bool sends);
    [[nodiscard]] mlx5dv_dr_action* make_array();
    [[nodiscard]] mlx5dv_dr_action* make_sampler();

    /// Tries every list on rules of `value`; returns how many there were. `models`: the sides in the order they are
    /// asked.
    std::size_t try_all(mlx5dv_dr_matcher* matcher, Parameters& value, const std::vector<SideModel>& models);

    OpenDevice open;
    mlx5dv_dr_domain* domain = nullptr;
    mlx5dv_dr_table *root = nullptr, *table = nullptr, *next = nullptr;
    ibv_qp* qp = nullptr;
    std::vector<mlx5dv_devx_obj*> objects;
    std::vector<Kind> kinds;
};

void ActionSequence::make_actions() {
    const bool fdb = GetParam().domain == MLX5DV_DR_DOMAIN_TYPE_FDB;
    const bool sends = GetParam().domain == MLX5DV_DR_DOMAIN_TYPE_NIC_TX;
    const bool has_aso = GetParam().profile->name != "connectx-5";
    keep("DROP", mlx5dv_dr_action_create_drop());
    keep("MISS", mlx5dv_dr_action_create_default_miss());
    keep("TAG", mlx5dv_dr_action_create_tag(7));
    keep("QP", mlx5dv_dr_action_create_dest_ibv_qp(qp));
    keep("FT", mlx5dv_dr_action_create_dest_table(next));
    keep("ROOT_FT", mlx5dv_dr_action_create_dest_root_table(root, 1));
    keep("VPORT", mlx5dv_dr_action_create_dest_vport(domain, 1), fdb);
    keep("POP_VLAN", mlx5dv_dr_action_create_pop_vlan());
    keep("PUSH_VLAN", mlx5dv_dr_action_create_push_vlan(domain, __builtin_bswap32(0x81000007)));
    std::vector<std::uint8_t> counters(16);
    counters[0] = 0x09;
    counters[1] = 0x39;
    keep("CTR", mlx5dv_dr_action_create_flow_counter(object(counters), 0));
    std::uint64_t set_dmac = __builtin_bswap64(1ULL << 60 | 5ULL << 48 | 16ULL << 32 | 1);
    keep("MODIFY_HDR", mlx5dv_dr_action_create_modify_header(domain, 0, 8, reinterpret_cast<__be64*>(&set_dmac)));
    std::array<std::uint8_t, 32> parameters{0x80};
    mlx5dv_dr_flow_meter_attr meter{next, 1, 2, parameters.size(), parameters.data()};
    keep("METER", mlx5dv_dr_action_create_flow_meter(&meter));
    if (has_aso) {
        keep("ASO_FIRST_HIT", mlx5dv_dr_action_create_aso(domain, aso(0x25), 0, 1, 3));
        keep("ASO_FLOW_METER", mlx5dv_dr_action_create_aso(domain, aso(0x24), 0, 4, 5));
        keep("ASO_CT", mlx5dv_dr_action_create_aso(domain, aso(0x31), 0, 1, 5));
    }
    keep("DEST_ARRAY", make_array(), !sends);
    keep("SAMPLER", make_sampler(), !sends);
    make_reformats(!sends, fdb || sends);
}

mlx5dv_dr_action* ActionSequence::make_array() {
    mlx5dv_dr_action* branch = of(GetParam().domain == MLX5DV_DR_DOMAIN_TYPE_FDB ? "VPORT" : "QP");
    mlx5dv_dr_action_dest_attr to{};
    to.type = MLX5DV_DR_ACTION_DEST;
    to.dest = branch;
    std::array<mlx5dv_dr_action_dest_attr*, 2> both{&to, &to};
    return mlx5dv_dr_action_create_dest_array(domain, both.size(), both.data());
}

mlx5dv_dr_action* ActionSequence::make_sampler() {
    std::array<mlx5dv_dr_action*, 1> sample{of(GetParam().domain == MLX5DV_DR_DOMAIN_TYPE_FDB ? "VPORT" : "QP")};
    mlx5dv_dr_flow_sampler_attr attr{};
    attr.sample_ratio = 2;
    attr.default_next_table = next;
    attr.num_sample_actions = 1;
    attr.sample_actions = sample.data();
    attr.action = __builtin_bswap64(1ULL << 60 | 0x51ULL << 48 | 16ULL << 32 | 1);
    return mlx5dv_dr_action_create_flow_sampler(&attr);
}

void ActionSequence::make_reformats(bool receives, bool sends) {
    std::array<std::uint8_t, 64> header{};
    header[12] = 0x08;
    header[14] = 0x45;
    struct Reformat {
        const char* name;
        mlx5dv_flow_action_packet_reformat_type type;
        std::size_t size;
        bool expected;
    };
    for (const Reformat& now :
         {Reformat{"TNL_L2_TO_L2", MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0, receives},
          Reformat{"L2_TO_TNL_L2", MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL, 50, sends},
          Reformat{"TNL_L3_TO_L2", MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2, 14, receives},
          Reformat{"L2_TO_TNL_L3", MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL, 42, sends}}) {
        mlx5dv_dr_action* action = mlx5dv_dr_action_create_packet_reformat(domain, 0, now.type, now.size,
                                                                           now.size == 0 ? nullptr : header.data());
        keep(now.name, action, now.expected);
    }
}

std::size_t ActionSequence::try_all(mlx5dv_dr_matcher* matcher, Parameters& value,
                                    const std::vector<SideModel>& models) {
    std::size_t tried = 0;
    unsigned wrong = 0;
    std::vector<unsigned> list;
    std::array<mlx5dv_dr_action*, 4> actions{};
    const std::function<void()> extend = [&] {
        for (unsigned kind = 0; kind < kinds.size() && wrong < 10; ++kind) {
            actions[list.size()] = kinds[kind].action;
            list.push_back(kind);
            int expected = 0;
            for (const SideModel& model : models) {
                if (expected == 0) expected = model.verdict(list);
            }
            errno = 0;
            mlx5dv_dr_rule* rule = mlx5dv_dr_rule_create(matcher, value.get(), list.size(), actions.data());
            const int got = rule == nullptr ? errno : 0;
            if (rule != nullptr) mlx5dv_dr_rule_destroy(rule);
            ++tried;
            if (got != expected) {
                ++wrong;
                std::string text;
                for (const unsigned each : list) text += " " + kinds[each].name;
                ADD_FAILURE() << text << ": " << got << ", not " << expected;
            }
            if (list.size() < actions.size()) extend();
            list.pop_back();
        }
    };
    extend();
    return tried;
}

TEST_P(ActionSequence, UpToFourActionsAreTakenOrRefusedAsByLibmlx5) {
    const Profile& profile = *GetParam().profile;
    Parameters none(72), mask(72);
    mlx5dv_dr_matcher* all = mlx5dv_dr_matcher_create(table, 0, 0, none.get());
    ASSERT_NE(all, nullptr);
    std::size_t tried = 0;
    if (GetParam().domain != MLX5DV_DR_DOMAIN_TYPE_FDB) {
        const bool receives = GetParam().domain == MLX5DV_DR_DOMAIN_TYPE_NIC_RX;
        tried = try_all(all, none, {SideModel(profile, receives ? "NIC_INGRESS" : "NIC_EGRESS", kinds)});
    } else {
        const SideModel wire(profile, "FDB_INGRESS", kinds), vports(profile, "FDB_EGRESS", kinds);
        tried = try_all(all, none, {wire, vports});
        mask.source_port(0xffff);
        mlx5dv_dr_matcher* by_source = mlx5dv_dr_matcher_create(table, 1, 2, mask.get());
        ASSERT_NE(by_source, nullptr);
        Parameters from(72);
        from.source_port(0xffff);
        tried += try_all(by_source, from, {wire});
        from.source_port(1);
        tried += try_all(by_source, from, {vports});
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(by_source), 0);
    }
    EXPECT_EQ(mlx5dv_dr_matcher_destroy(all), 0);
    std::size_t expected = 0;
    for (std::size_t length = 1, lists = kinds.size(); length <= 4; ++length, lists *= kinds.size()) expected += lists;
    EXPECT_EQ(tried, expected * (GetParam().domain == MLX5DV_DR_DOMAIN_TYPE_FDB ? 3 : 1));
    RecordProperty("lists", static_cast<int>(tried));
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const Profile* profile : {&connectx_5, &connectx_6dx, &connectx_7}) {
        for (const auto domain :
             {MLX5DV_DR_DOMAIN_TYPE_NIC_RX, MLX5DV_DR_DOMAIN_TYPE_NIC_TX, MLX5DV_DR_DOMAIN_TYPE_FDB}) {
            all.push_back({profile, domain});
        }
    }
    return all;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
    constexpr std::array domains{"NicRx", "NicTx", "Fdb"};
    std::string name = std::string(info.param.profile->name) + domains[info.param.domain];
    std::erase(name, '-');
    return name;
}

INSTANTIATE_TEST_SUITE_P(All, ActionSequence, ::testing::ValuesIn(cases()), name_of_case);

}  // namespace
}  // namespace ovsdr::soft::test
