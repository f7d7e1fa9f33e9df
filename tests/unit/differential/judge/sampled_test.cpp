// What the differential proof says of samplers, and of what it has them draw.
#include <gtest/gtest.h>

#include "tests/differential/judge/megaflows.hpp"
#include "tests/differential/judge/sampled.hpp"

namespace ovsdr::differential {
namespace {

/// One of `really` of the packets is taken, and one of `asked` should have been.
std::vector<std::string> faults_of(std::uint32_t asked, std::uint32_t really, std::uint32_t packets) {
    Samplers samplers;
    for (std::uint32_t i = 0; i < packets; ++i) samplers.add(asked, i % really == 0);
    return samplers.faults();
}

TEST(Samplers, TellTheirNFromTheNext) {
    EXPECT_TRUE(faults_of(2, 2, 1000).empty());
    EXPECT_TRUE(faults_of(64, 64, 4000).empty());
    EXPECT_EQ(faults_of(2, 3, 1000).size(), 1U);
    EXPECT_EQ(faults_of(3, 2, 1000).size(), 1U);
    EXPECT_EQ(faults_of(8, 9, 12000).size(), 1U);
    EXPECT_EQ(faults_of(64, 1, 1000).size(), 1U) << "all are taken";
}

TEST(Samplers, AreJudgedOneByOne) {
    Samplers samplers;
    for (int i = 0; i < 3000; ++i) {   // as many in all as there should be
        samplers.add(2, i % 3 == 0);
        samplers.add(3, i % 2 == 0);
    }
    EXPECT_EQ(samplers.faults().size(), 2U);
}

TEST(Samplers, FewPacketsSayNothing) {
    EXPECT_TRUE(faults_of(2, 10, 4).empty());
    EXPECT_TRUE(Samplers().faults().empty());
}

Megaflow with(std::vector<Action> actions) {
    Megaflow megaflow{.in_port = 1, .eth_type = type_ipv4};
    megaflow.actions = std::move(actions);
    return megaflow;
}

Action output(std::uint32_t port) { return {.kind = Action::Kind::output, .port = port}; }
Action software(SoftwarePart part) { return {.kind = Action::Kind::software, .software = part}; }

TEST(SoftwareParts, AreOffloadedBesideWhatTheDeviceDoes) {
    const SoftwarePart each{.cookie = 1}, sampled{.form = SoftwarePart::Form::sample, .one_of = 8, .cookie = 1};
    constexpr unsigned connectx_5 = 0, later = 1;
    for (const unsigned format : {connectx_5, later}) {
        EXPECT_TRUE(is_offloadable(with({software(each), output(2)}), format));
        EXPECT_TRUE(is_offloadable(with({output(host_port), output(tap_ports[0]), output(2)}), format));
        EXPECT_FALSE(is_offloadable(with({software(each)}), format)) << "goes nowhere else";
        EXPECT_FALSE(is_offloadable(with({output(host_port)}), format));
        EXPECT_FALSE(is_offloadable(with({software(each), software(each), output(2)}), format)) << "twice the same";
    }
    const Action push{.kind = Action::Kind::push, .tpid = customer_tag, .vid = 5};
    EXPECT_TRUE(is_offloadable(with({software(each), push, software(each), output(2)}), later)) << "another packet";
    EXPECT_TRUE(is_offloadable(with({software(sampled)}), later)) << "most packets are dropped in the device";
    EXPECT_FALSE(is_offloadable(with({software(sampled), output(2)}), connectx_5));
}

}  // namespace
}  // namespace ovsdr::differential
