// The compiler for a plain function: which packets may be marked, and why others may not.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "offload/dr/nic/nic_plan.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr::nic_plan {
namespace {

using test::MegaflowBuilder;

/// Empty: its packets are marked, or dropped.
std::string refusal(const ovsdr_megaflow& megaflow) {
    const auto plan = compile_for_function(megaflow, test::four_ports(), {});
    return plan ? "" : text_of(plan.error());
}

const std::string rehashed = "unsupported action: recirc behind a change of what OVS hashes: ";

TEST(NicPlan, MarksWhatIsHashedAsItCameWhenItRecirculates) {
    const auto ipv4 = [] { return MegaflowBuilder().ipv4(); };
    const auto perhaps_two_tags = [] { return MegaflowBuilder().ipv4().vlan(5).vlan_limit(2); };
    const std::vector<ovsdr_megaflow> marked{
        ipv4().recirc(4),
        ipv4().unsupported("ct").recirc(4),
        ipv4().unsupported("ct_clear").unsupported("set(skb_mark)").unsupported("set(skb_priority)").recirc(4),
        MegaflowBuilder().ipv6().unsupported("set(ipv6(label))").recirc(4),
        ipv4().set(OVSDR_HEADER_ETH_DST, {2, 0, 0, 0, 0, 1}).set(OVSDR_HEADER_ETH_SRC, {2, 0, 0, 0, 0, 2}).recirc(4),
        ipv4().set(OVSDR_HEADER_IP_TTL, {63}).set(OVSDR_HEADER_IP_TOS, {4}).recirc(4),
        ipv4().software("copied").recirc(4),
        // No hash is taken of what does not recirculate, or has done so before.
        ipv4().unsupported("ct(nat)").output(2),
        ipv4().set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).output(2),
        ipv4().recirc(4).set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).output(2),
        ipv4().copy().set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).output(2).end_copy().recirc(4),
        ipv4().copy().unsupported("ct(nat)").copy().output(3).end_copy().output(2).end_copy().recirc(4),
        // OVS sees the IP header before and after.
        ipv4().push(5).recirc(4),
        ipv4().vlan(5).pop().recirc(4),
        ipv4().vlan(5).pop().push(6).recirc(4),
        ipv4().push(5).push(6).pop().recirc(4),
        ipv4().pop().recirc(4),
        ipv4().pop().push(5).recirc(4),
        perhaps_two_tags().pop().recirc(4),
        perhaps_two_tags().pop().push(6).recirc(4),
        MegaflowBuilder().ipv4().vlan_limit(2).push(5).push(6).recirc(4),
        MegaflowBuilder().eth_type(0x8100).vlan(5, 0x88a8).recirc(4),
    };
    for (std::size_t i = 0; i < marked.size(); ++i) EXPECT_EQ(refusal(marked[i]), "") << i;
}

TEST(NicPlan, RefusesARecirculationBehindWhichTheHashWouldBeAnother) {
    const auto ipv4 = [] { return MegaflowBuilder().ipv4(); };
    const std::vector<std::pair<ovsdr_megaflow, std::string>> refused{
        {ipv4().set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).recirc(4), "set(ipv4)"},
        {ipv4().set(OVSDR_HEADER_IP_DST, {10, 0, 0, 1}).recirc(4), "set(ipv4)"},
        {MegaflowBuilder().ipv6().set(OVSDR_HEADER_IPV6_SRC, {0xfd, 1}).recirc(4), "set(ipv6)"},
        {MegaflowBuilder().ipv6().set(OVSDR_HEADER_IPV6_DST, {0xfd, 1}).recirc(4), "set(ipv6)"},
        {ipv4().proto(6).set(OVSDR_HEADER_TCP_SRC, {0, 7}).recirc(4), "set(tcp)"},
        {ipv4().proto(6).set(OVSDR_HEADER_TCP_DST, {0, 7}).recirc(4), "set(tcp)"},
        {ipv4().proto(17).set(OVSDR_HEADER_UDP_SRC, {0, 7}).recirc(4), "set(udp)"},
        {ipv4().proto(17).set(OVSDR_HEADER_UDP_DST, {0, 7}).recirc(4), "set(udp)"},
        {ipv4().unsupported("ct(nat)").recirc(4), "ct(nat)"},
        {ipv4().unsupported("ct(nat)").unsupported("ct").recirc(4), "ct(nat)"},
        {ipv4().unsupported("ct(nat)").unsupported("set(sctp)").recirc(4), "ct(nat)"},
        {ipv4().set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).set(OVSDR_HEADER_IP_TTL, {63}).recirc(4), "set(ipv4)"},
        {ipv4().unsupported("set(sctp)").recirc(4), "set(sctp)"},
        {ipv4().unsupported("set(icmp)").recirc(4), "set(icmp)"},
        {ipv4().unsupported("push_mpls").recirc(4), "push_mpls"},
        {ipv4().unsupported("set of bits outside the mask").recirc(4), "set of bits outside the mask"},
        {ipv4().unsupported(nullptr).recirc(4), "unknown"},
        {ipv4().output(2).set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).output(3).recirc(4), "set(ipv4)"},
        {ipv4().copy().set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).recirc(4).end_copy().output(2), "set(ipv4)"},
        {ipv4().set(OVSDR_HEADER_IP_SRC, {10, 0, 0, 1}).copy().recirc(4).end_copy().output(2), "set(ipv4)"},
        // OVS sees the IP header before or after, not both times.
        {ipv4().vlan(5).push(6).recirc(4), "push_vlan"},
        {ipv4().push(5).push(6).recirc(4), "push_vlan"},
        {ipv4().pop().push(5).push(6).recirc(4), "push_vlan"},
        {MegaflowBuilder().ipv4().vlan(5).vlan_limit(2).push(6).recirc(4), "push_vlan"},
        {MegaflowBuilder().eth_type(0x8100).vlan(5, 0x88a8).pop().recirc(4), "pop_vlan"},
        {MegaflowBuilder().eth_type(0x8100).vlan(5, 0x88a8).pop().pop().recirc(4), "pop_vlan"},
    };
    for (const auto& [megaflow, by] : refused) EXPECT_EQ(refusal(megaflow), rehashed + by);
}

TEST(NicPlan, MarksForSamplersAndControllersNotForTheSlowPath) {
    EXPECT_EQ(refusal(MegaflowBuilder().ipv4().software("copied").output(2)), "");
    EXPECT_EQ(refusal(MegaflowBuilder().ipv4().unsupported("userspace")),
              "unsupported action: userspace (OVS's slow path may do actions for which OVS needs a hash)");
    EXPECT_EQ(refusal(MegaflowBuilder().ipv4().unsupported("tnl_push of GTP-U").output(2)),
              "unsupported action: tnl_push of GTP-U (OVS has no hash of packets that the NIC marked)");
}

TEST(NicPlan, RefusesAMatchForATunnel) {
    const std::string refused = "unsupported match: tunnel of packets that come through none";
    EXPECT_EQ(refusal(MegaflowBuilder().from_tunnel(5).ipv4().output(2)), refused);
    EXPECT_EQ(refusal(MegaflowBuilder().from_tunnel(5).ipv4()), refused) << "a drop";
    MegaflowBuilder zero;
    zero.ipv4().output(2).raw().tunnel_mask.be_id = UINT64_MAX;
    EXPECT_EQ(refusal(zero), "") << "packets that came through none";
    zero.raw().tunnel_key.be_id = 1;
    EXPECT_EQ(refusal(zero), refused);
}

}  // namespace
}  // namespace ovsdr::dr::nic_plan
