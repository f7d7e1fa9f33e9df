// Two tables of a ConnectX's FDB through the system's own libmlx5: what comes from a VF or the wire is led from the
// root to a table whose rules the tests make, and the entries that libmlx5 wrote are executed on packets.
#pragma once

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/connectx/entries/forwarder.hpp"
#include "tests/unit/connectx/entries/frames.hpp"
#include "tests/unit/connectx/open_device.hpp"

namespace ovsdr::connectx::test {

constexpr std::uint16_t wire = 0xFFFF, from_vf = 1, to_vf = 2;
constexpr std::uint8_t outer_and_misc = 3, misc = 2;
constexpr std::size_t source_port_at = 64 + 6;

class Forwarding : public ::testing::Test {
protected:
    using Bytes = entries::test::Bytes;

    /// `mask` and `criteria`: of the table's matcher.
    void make_tables(MatchParam& mask, std::uint8_t criteria) {
        ASSERT_NE(device(), nullptr) << "not under tests/connectx/run";
        not_emulated_ = device()->not_emulated().size();
        context_ = open_device();
        ASSERT_NE(context_, nullptr) << strerror(errno);
        domain_.reset(mlx5dv_dr_domain_create(context_.get(), MLX5DV_DR_DOMAIN_TYPE_FDB));
        root_.reset(mlx5dv_dr_table_create(domain_.get(), 0));
        table_.reset(mlx5dv_dr_table_create(domain_.get(), 1));
        MatchParam ports;
        ports.number(source_port_at, 0xFFFF, 2);
        root_matcher_.reset(mlx5dv_dr_matcher_create(root_.get(), 0, misc, ports.get()));
        matcher_.reset(mlx5dv_dr_matcher_create(table_.get(), 0, criteria, mask.get()));
        ASSERT_NE(matcher_, nullptr) << strerror(errno);
        enter_.reset(mlx5dv_dr_action_create_dest_table(table_.get()));
        out_.reset(mlx5dv_dr_action_create_dest_vport(domain_.get(), to_vf));
        for (const std::uint16_t source : {from_vf, wire}) {
            MatchParam value;
            value.number(source_port_at, source, 2);
            mlx5dv_dr_action* actions[] = {enter_.get()};
            root_rules_.emplace_back(mlx5dv_dr_rule_create(root_matcher_.get(), value.get(), 1, actions));
            ASSERT_NE(root_rules_.back(), nullptr) << strerror(errno);
        }
    }
    void TearDown() override { EXPECT_EQ(device()->not_emulated().size(), not_emulated_); }

    /// Does the actions and then sends out to to_vf.
    Rule rule_for(MatchParam& value, std::vector<mlx5dv_dr_action*> actions) {
        actions.push_back(out_.get());
        return Rule(mlx5dv_dr_rule_create(matcher_.get(), value.get(), actions.size(), actions.data()));
    }
    static entries::Packet forwarded(std::uint16_t source, const Bytes& frame) {
        std::vector<entries::Delivery> out = entries::Forwarder(*device()).from_port(source, frame);
        if (out.size() != 1 || out[0].kind != entries::Delivery::Kind::vport || out[0].number != to_vf) {
            ADD_FAILURE() << "came out elsewhere";
            return {};
        }
        return std::move(out[0].packet);
    }

    std::size_t not_emulated_ = 0;   // by what ran before
    Context context_;
    Domain domain_;
    DrTable root_, table_;
    Matcher root_matcher_, matcher_;
    Action enter_, out_;
    std::vector<Rule> root_rules_;
};

}  // namespace ovsdr::connectx::test
