// Rules that take whatever comes from one vport to another.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <memory>

#include "datapath/ports/soft_device.hpp"
#include "datapath/steering/dr_rule.hpp"

namespace ovsdr::soft {

class Forwarding {
public:
    Forwarding(SoftDevice& device, std::uint16_t from, std::uint16_t to)
        : fdb_(device.steering(), DomainType::fdb, nullptr) {
        EXPECT_EQ(Action::table(table_, jump_), 0);
        EXPECT_EQ(Action::vport(fdb_, to, to_), 0);
        Parameters source{};
        store_be16(&source[source_port_at], 0xffff);
        EXPECT_EQ(Matcher::create(root_, 0, criteria::misc, source, from_), 0);
        store_be16(&source[source_port_at], from);
        EXPECT_EQ(Rule::create(*from_, source, std::array{jump_.get()}, enter_), 0);
        EXPECT_EQ(Matcher::create(table_, 0, 0, {}, all_), 0);
        EXPECT_EQ(Rule::create(*all_, {}, std::array{to_.get()}, forward_), 0);
    }

private:
    static constexpr unsigned source_port_at = 70;
    using Parameters = std::array<std::uint8_t, match_param_size>;

    // Destroyed from the last one on: each leads to those before it.
    Domain fdb_;
    Table root_{fdb_, 0U}, table_{fdb_, 1U};
    Action::Created jump_, to_;
    std::unique_ptr<Matcher> from_, all_;
    std::unique_ptr<Rule> enter_, forward_;
};

}  // namespace ovsdr::soft
