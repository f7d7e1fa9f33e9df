// What the tests of the emulated ConnectX share: an open device that is left clean, a table with rules, a queue.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/connectx/open_device.hpp"

namespace ovsdr::connectx::test {

inline constexpr std::uint8_t outer = 1;

class EmulatedDevice : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_NE(device(), nullptr) << "not under tests/connectx/run";
        context_ = open_device();
        ASSERT_NE(context_, nullptr) << strerror(errno);
    }
    void TearDown() override {
        EXPECT_EQ(alive_beside_context(), (std::map<std::string, std::uint64_t>{}));
        EXPECT_EQ(device()->icm_bytes_alive(), 0U);
        context_.reset();
        EXPECT_EQ(device()->clear_faults(), 0U);
        EXPECT_EQ(device()->left_behind(), (std::map<std::string, std::uint64_t>{}));
        EXPECT_EQ(device()->alive(), (std::map<std::string, std::uint64_t>{}));
    }

    Context context_;
};

/// A table with one matcher on the source MAC address and rules on it.
struct Rules {
    Domain domain;
    DrTable table;
    Matcher matcher;
    std::vector<DrTable> next;   // actions lead to them
    std::vector<Action> actions;
    std::vector<Rule> rules;

    Rules(ibv_context* context, mlx5dv_dr_domain_type type, std::uint32_t level = 1)
        : domain(mlx5dv_dr_domain_create(context, type)), table(mlx5dv_dr_table_create(domain.get(), level)) {
        MatchParam mask;
        mask.number(smac_at, 0xFFFF'FFFF'FFFF, 6);
        matcher.reset(mlx5dv_dr_matcher_create(table.get(), 0, outer, mask.get()));
    }
    mlx5dv_dr_action* to_table(std::uint32_t level) {
        next.emplace_back(mlx5dv_dr_table_create(domain.get(), level));
        return add(mlx5dv_dr_action_create_dest_table(next.back().get()));
    }
    mlx5dv_dr_action* add(mlx5dv_dr_action* action) {
        actions.emplace_back(action);
        return action;
    }
    Rule rule(std::uint64_t smac, std::vector<mlx5dv_dr_action*> list) {
        MatchParam value;
        value.number(smac_at, smac, 6);
        return Rule(mlx5dv_dr_rule_create(matcher.get(), value.get(), list.size(), list.data()));
    }
};

/// A raw packet queue pair, as the slow path has them.
struct RawPacketQueue {
    Pd pd;
    Channel own_channel;
    ibv_comp_channel* channel;
    Cq completions;
    Qp queue_pair;
    std::array<std::uint8_t, 256> frame{};
    Mr region;

    explicit RawPacketQueue(ibv_context* context, ibv_comp_channel* shared = nullptr)
        : pd(ibv_alloc_pd(context)),
          own_channel(shared == nullptr ? ibv_create_comp_channel(context) : nullptr),
          channel(shared == nullptr ? own_channel.get() : shared),
          completions(ibv_create_cq(context, 64, nullptr, channel, 0)),
          region(ibv_reg_mr(pd.get(), frame.data(), frame.size(), 0)) {
        ibv_qp_init_attr attributes{};
        attributes.send_cq = attributes.recv_cq = completions.get();
        attributes.cap = {64, 64, 1, 1, 0};
        attributes.qp_type = IBV_QPT_RAW_PACKET;
        queue_pair.reset(ibv_create_qp(pd.get(), &attributes));
    }
    [[nodiscard]] int start() const {
        ibv_qp_attr attributes{};
        attributes.port_num = 1;
        for (const auto state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
            attributes.qp_state = state;
            const int mask = IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0);
            if (const int error = ibv_modify_qp(queue_pair.get(), &attributes, mask)) return error;
        }
        return 0;
    }
    [[nodiscard]] int send(std::uint64_t id, std::uint32_t key) {
        ibv_sge piece{reinterpret_cast<std::uintptr_t>(frame.data()), 60, key};
        ibv_send_wr request{}, *refused = nullptr;
        request.wr_id = id;
        request.sg_list = &piece;
        request.num_sge = 1;
        request.opcode = IBV_WR_SEND;
        request.send_flags = IBV_SEND_SIGNALED;
        return ibv_post_send(queue_pair.get(), &request, &refused);
    }
};

}   // namespace ovsdr::connectx::test
