// What the compiler makes of tnl_pop and of megaflows whose packets come through a tunnel, for each generation.
#include <gtest/gtest.h>

#include "offload/dr/compile/compile.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

using test::MegaflowBuilder;

constexpr std::uint32_t uplink = 9, vxlan = 20, geneve = 21, gre = 22, other_vxlan = 23;

PortMap ports() {
    PortMap map = test::four_ports();
    map.set_tunnel({OdpPort{vxlan}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
    map.set_tunnel({OdpPort{geneve}, TunnelKind::geneve, 6081, "genev_sys_6081"});
    map.set_tunnel({OdpPort{gre}, TunnelKind::gre, 0, "gre_sys"});
    map.set_tunnel({OdpPort{other_vxlan}, TunnelKind::vxlan, 8472, "vxlan_sys_8472"});
    return map;
}

DeviceCaps generation(std::uint8_t steering_format) {
    DeviceCaps caps;
    caps.steering_format = steering_format;
    caps.tells_geneve_option = steering_format >= 1;
    return caps;
}

Compiled<RulePlan> tunnel_plan(const ovsdr_megaflow& megaflow, const DeviceCaps& caps = generation(1),
                                const Choices& choices = {}) {
    return compile(megaflow, ports(), caps, choices);
}

/// Path, or reasons.
std::string outcome(const ovsdr_megaflow& megaflow, const DeviceCaps& caps = generation(1),
                    const Choices& choices = {}) {
    const auto plan = tunnel_plan(megaflow, caps, choices);
    return plan ? text_of(plan->path) : text_of(plan.error());
}

std::string match_of(const ovsdr_megaflow& megaflow, const DeviceCaps& caps = generation(1)) {
    const auto plan = tunnel_plan(megaflow, caps);
    return plan ? text_of(plan->match.mask, plan->match.value) : text_of(plan.error());
}

int uncounted(const ovsdr_megaflow& megaflow, std::uint8_t steering_format) {
    const auto plan = tunnel_plan(megaflow, generation(steering_format));
    EXPECT_TRUE(plan) << text_of(plan.error());
    return plan ? plan->bytes_uncounted : 999;
}

MegaflowBuilder parent(std::uint32_t tunnel, std::uint16_t udp_port, std::uint32_t in = uplink) {
    MegaflowBuilder flow(in);
    flow.ipv4().proto(17).ports(0, udp_port);
    flow.raw().mask.be_tp_src = 0;
    return flow.tunnel_pop(tunnel);
}

MegaflowBuilder child(std::uint32_t tunnel) { return MegaflowBuilder(tunnel).from_tunnel(5).ipv4(); }

TEST(TunnelFields, OfPacketsThroughNoneAreRefusedWhicheverBitIsAskedFor) {
    const auto with = [](std::size_t byte, std::uint8_t key, std::uint8_t mask) {
        MegaflowBuilder flow(1);
        flow.ipv4().output(2);
        reinterpret_cast<std::uint8_t*>(&flow.raw().tunnel_key)[byte] = key;
        reinterpret_cast<std::uint8_t*>(&flow.raw().tunnel_mask)[byte] = mask;
        return flow;
    };
    for (std::size_t byte = 0; byte < sizeof(ovsdr_tunnel_fields); ++byte) {
        for (const std::uint8_t bit : {0x01, 0x80}) {
            EXPECT_EQ(outcome(with(byte, bit, bit)), "unsupported match: tunnel of packets that come through none");
            EXPECT_EQ(outcome(with(byte, bit, 0)), "dest_vport 2") << "nothing is asked for";
            EXPECT_EQ(outcome(with(byte, 0, bit)), "dest_vport 2") << "0, as packets through none have it";
        }
    }
}

TEST(TunnelPop, LeadsIntoTheTunnelsTable) {
    EXPECT_EQ(outcome(parent(vxlan, 4789)), "dest_table tunnel port 20");
    EXPECT_EQ(outcome(parent(geneve, 6081)), "dest_table tunnel port 21");
    EXPECT_EQ(outcome(MegaflowBuilder(uplink).ipv4().proto(47).tunnel_pop(gre)), "dest_table tunnel port 22");
    MegaflowBuilder copied(uplink);
    copied.ipv4().proto(47).output(1).tunnel_pop(gre);
    EXPECT_EQ(outcome(copied), "dest_array [dest_vport 1, dest_table tunnel port 22]");
}

TEST(TunnelPop, IsRefusedByName) {
    EXPECT_EQ(outcome(parent(vxlan, 4789, 1)),
              "device limit: tnl_pop of packets from another vport than the uplink");
    EXPECT_EQ(outcome(parent(77, 4789)),
              "output not offloaded: tnl_pop to a port that is no known tunnel: datapath port 77");
    EXPECT_EQ(outcome(parent(other_vxlan, 8472)),
              "device limit: tnl_pop of VXLAN on UDP port 8472 (the device's parser has 4789)");
    EXPECT_EQ(outcome(parent(vxlan, 4790)), "unsupported match: tnl_pop of VXLAN: packets that may be none");
    EXPECT_EQ(outcome(MegaflowBuilder(uplink).ipv4().proto(17).tunnel_pop(vxlan)),
              "unsupported match: tnl_pop of VXLAN: packets that may be none");
    EXPECT_EQ(outcome(MegaflowBuilder(uplink).ipv4().proto(17).tunnel_pop(gre)),
              "unsupported match: tnl_pop of GRE: packets that may be none");
    EXPECT_EQ(outcome(child(vxlan).proto(17).ports(0, 4789).tunnel_pop(vxlan)),
              "unsupported order of actions: tnl_pop of packets from a tunnel");
    const test::HeaderBytes header = test::gre(test::outer_ipv4(47));
    MegaflowBuilder behind_push(uplink);
    behind_push.ipv4().proto(47).tunnel(header).tunnel_pop(gre);
    EXPECT_EQ(outcome(behind_push), "unsupported order of actions: tnl_pop behind tnl_push");
    DeviceCaps without = generation(0);
    without.geneve = false;
    EXPECT_EQ(outcome(parent(geneve, 6081), without),
              "device limit: tnl_pop of Geneve (not in the device's parser profile)");
    DeviceCaps root_only;
    root_only.recirculates = false;
    EXPECT_EQ(outcome(parent(vxlan, 4789), root_only), "device limit: tnl_pop (NIC_RX has no table but its root)");
}

/// What is no packet of the tunnel's, or of a tunnel that the device does not know, is looked at no further.
TEST(TunnelPop, OfFragmentsIsRefusedForOneReason) {
    const auto fragments = [](std::uint8_t protocol, std::uint32_t tunnel) {
        MegaflowBuilder flow(uplink);
        flow.ipv4().proto(protocol).tunnel_pop(tunnel).raw().key.ip_frag = 1;
        flow.raw().mask.ip_frag = 1;
        return flow;
    };
    EXPECT_EQ(outcome(fragments(47, gre)), "unsupported action: tnl_pop of a fragment");
    EXPECT_EQ(outcome(fragments(17, gre)), "unsupported match: tnl_pop of GRE: packets that may be none");
    EXPECT_EQ(outcome(fragments(17, other_vxlan)),
              "device limit: tnl_pop of VXLAN on UDP port 8472 (the device's parser has 4789)");
    EXPECT_EQ(outcome(fragments(47, gre), generation(0), {.exact_tunnel_flags = true}),
              "device limit: tnl_pop of GRE, whose reserved bits the device does not see "
              "(other_config:dr-tunnel-flags=exact)");
    DeviceCaps without = generation(1);
    without.geneve = false;
    EXPECT_EQ(outcome(fragments(17, geneve), without),
              "device limit: tnl_pop of Geneve (not in the device's parser profile)");
}

TEST(TunnelPop, AsksForAHeaderOutOfWhichOvsTakesAFrame) {
    const MegaflowBuilder into_gre = MegaflowBuilder(uplink).ipv4().proto(47).tunnel_pop(gre);
    const auto header = [](const std::string& match) {
        const auto at = match.find("tunnel_header");
        return at == std::string::npos ? "" : match.substr(at, match.size() - at - 1);
    };
    const std::string of_vxlan = "tunnel_header_0=0x8000000, tunnel_header_1=0x0/0xff";
    EXPECT_EQ(header(match_of(parent(vxlan, 4789))), of_vxlan);
    EXPECT_EQ(header(match_of(parent(geneve, 6081))), "tunnel_header_0=0x6558/0xc000ffff");
    EXPECT_EQ(header(match_of(into_gre)), "tunnel_header_0=0x6558/0xdfffffff");
    EXPECT_EQ(header(match_of(parent(vxlan, 4789), generation(0))), of_vxlan);
    EXPECT_EQ(header(match_of(parent(geneve, 6081), generation(0))), "");
    EXPECT_EQ(header(match_of(into_gre, generation(0))), "");
    DeviceCaps blind = generation(1);
    blind.tunnel_header = false;
    EXPECT_EQ(header(match_of(parent(vxlan, 4789), blind)), "");
}

TEST(TunnelPop, IsRefusedWhereAllBitsOfAHeaderShallBeExactAndTheDeviceDoesNotSeeThem) {
    const Choices exact{.exact_tunnel_flags = true};
    const MegaflowBuilder into_gre = MegaflowBuilder(uplink).ipv4().proto(47).tunnel_pop(gre);
    const std::string why = ", whose reserved bits the device does not see (other_config:dr-tunnel-flags=exact)";
    EXPECT_EQ(outcome(into_gre, generation(0), exact), "device limit: tnl_pop of GRE" + why);
    EXPECT_EQ(outcome(parent(geneve, 6081), generation(0), exact), "device limit: tnl_pop of Geneve" + why);
    EXPECT_EQ(outcome(parent(vxlan, 4789), generation(0), exact), "dest_table tunnel port 20");
    EXPECT_EQ(outcome(into_gre, generation(1), exact), "dest_table tunnel port 22");
    DeviceCaps blind = generation(1);
    blind.tunnel_header = false;
    EXPECT_EQ(outcome(parent(vxlan, 4789), blind, exact), "device limit: tnl_pop of VXLAN" + why);
}

/// OVS takes fourteen bytes of Ethernet off, tag or not.
TEST(TunnelPop, IsOfPacketsWithoutATag) {
    const auto tagged = [] {
        MegaflowBuilder flow(uplink);
        return flow.ipv4().vlan(7).proto(47);
    };
    EXPECT_EQ(outcome(tagged().tunnel_pop(gre)),
              "unsupported order of actions: tnl_pop of packets that may have a tag");
    EXPECT_EQ(outcome(tagged().pop().tunnel_pop(gre)), "pop_vlan, dest_table tunnel port 22");
    EXPECT_EQ(outcome(tagged().pop().push(8).tunnel_pop(gre)),
              "unsupported order of actions: tnl_pop of packets that may have a tag");
}

TEST(TunnelMatch, IsOfTheOuterHeadersTheTunnelsAndTheInnerOnes) {
    MegaflowBuilder flow = child(vxlan);
    flow.raw().tunnel_key.tos = 0xB9;
    flow.proto(6).ports(1, 2).vlan(7).output(2);
    EXPECT_EQ(match_of(flow),
              "{ip_dscp=0x2e, ip_ecn=0x1, ip_version=0x4, ipv4_ihl=0x5, src_ip_31_0=0xac100001, "
              "dst_ip_31_0=0xac100002, source_port=0xffff, inner_second_cvlan_tag=0x0, vxlan_vni=0x5, "
              "inner_ethertype=0x800, inner_first_vid=0x7, inner_ip_protocol=0x6, inner_cvlan_tag=0x1, "
              "inner_frag=0x0, inner_ip_version=0x4, inner_tcp_sport=0x1, inner_tcp_dport=0x2}");
    EXPECT_EQ(match_of(child(geneve).options_size(0).output(2)),
              "{ip_dscp=0x0, ip_ecn=0x0, ip_version=0x4, ipv4_ihl=0x5, src_ip_31_0=0xac100001, "
              "dst_ip_31_0=0xac100002, source_port=0xffff, geneve_vni=0x5, geneve_opt_len=0x0, "
              "geneve_protocol_type=0x6558, inner_ethertype=0x800, inner_cvlan_tag=0x0, inner_frag=0x0, "
              "inner_ip_version=0x4}");
    EXPECT_EQ(match_of(MegaflowBuilder(gre).from_tunnel(0x12345678).over_ipv6().eth_type(0x88b5).output(2)),
              "{ip_dscp=0x0, ip_ecn=0x0, ip_version=0x6, src_ip_127_96=0xfd000000, src_ip_95_64=0x0, "
              "src_ip_63_32=0x0, src_ip_31_0=0x1, dst_ip_127_96=0xfd000000, dst_ip_95_64=0x0, dst_ip_63_32=0x0, "
              "dst_ip_31_0=0x2, gre_c_present=0x0, gre_k_present=0x1, gre_s_present=0x0, source_port=0xffff, "
              "gre_protocol=0x6558, gre_key_h=0x123456, gre_key_l=0x78, inner_ethertype=0x88b5, "
              "inner_cvlan_tag=0x0}");
}

TEST(TunnelMatch, KeepsIpv6LabelsAndSecondTagsInside) {
    MegaflowBuilder flow(vxlan);
    flow.from_tunnel(5).ipv6().vlan(7, 0x88a8).second_vlan(8);
    flow.raw().key.be_ipv6_label = htobe32(0x54321), flow.raw().mask.be_ipv6_label = htobe32(0xFFFFF);
    const std::string text = match_of(flow.output(2));
    for (const char* part : {"inner_second_vid=0x8", "inner_second_cvlan_tag=0x1", "inner_svlan_tag=0x1",
                             "inner_ipv6_flow_label=0x54321", "inner_ip_version=0x6"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
    EXPECT_EQ(text.find("outer_"), std::string::npos) << text;
}

TEST(TunnelMatch, ReadsFlagsAsFarAsTheDeviceDoes) {
    const Choices exact{.exact_tunnel_flags = true};
    const std::string refused = "device limit: tun_flags (other_config:dr-tunnel-flags=exact)";
    for (const unsigned flags : {0, OVSDR_TUNNEL_CSUM + 0}) {
        EXPECT_EQ(outcome(child(vxlan).tunnel_flags(OVSDR_TUNNEL_KEY | flags).output(2)), "decapsulate, dest_vport 2");
        EXPECT_EQ(outcome(child(vxlan).tunnel_flags(OVSDR_TUNNEL_KEY | flags).output(2), generation(1), exact),
                  refused);
    }
    EXPECT_EQ(outcome(child(vxlan).tunnel_flags(0).output(2)), "unsupported match: tun_flags") << "no such packet";
    EXPECT_EQ(outcome(child(gre).tunnel_flags(OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_CSUM).output(2)),
              "unsupported match: tun_flags=csum (the device does not check a GRE checksum)");
    MegaflowBuilder seen = child(gre);
    seen.raw().tunnel_mask.flags = OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_CSUM;
    EXPECT_EQ(outcome(seen.output(2), generation(1), exact), "decapsulate, dest_vport 2") << "GRE's are in its header";
    MegaflowBuilder oam = child(geneve);
    oam.raw().tunnel_mask.flags |= OVSDR_TUNNEL_OAM;
    oam.tunnel_flags(OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_OAM);
    EXPECT_NE(match_of(oam.output(2)).find("geneve_oam=0x1"), std::string::npos);
    MegaflowBuilder none = child(vxlan);
    none.raw().tunnel_mask.flags |= OVSDR_TUNNEL_OAM;
    EXPECT_EQ(outcome(none.output(2)), "decapsulate, dest_vport 2") << "VXLAN has none";
    none.tunnel_flags(OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_OAM);
    EXPECT_EQ(outcome(none), "unsupported match: tun_flags");
}

TEST(TunnelMatch, TakesKeysUnderTheirMask) {
    MegaflowBuilder masked = child(gre);
    masked.raw().tunnel_key.be_id = htobe64(0xABCD);
    masked.raw().tunnel_mask.be_id = htobe64(0xFF0F);
    const std::string text = match_of(masked.output(2));
    EXPECT_NE(text.find("gre_key_h=0xab/0xff, gre_key_l=0xd/0xf"), std::string::npos) << text;
    MegaflowBuilder keyless = child(gre);
    keyless.tunnel_flags(0);
    keyless.raw().tunnel_key.be_id = 0;
    EXPECT_EQ(match_of(keyless.output(2)).find("gre_key"), std::string::npos) << "there is none to look at";
    keyless.raw().tunnel_key.be_id = htobe64(7);
    EXPECT_EQ(outcome(keyless), "unsupported match: tun_id") << "no such packet";
    MegaflowBuilder wide = child(vxlan);
    wide.raw().tunnel_key.be_id = htobe64(0x1000005);
    EXPECT_EQ(outcome(wide.output(2)), "unsupported match: tun_id");
}

TEST(TunnelMatch, TakesOneOptionOfOneWord) {
    const auto flow = [](std::uint32_t data, std::uint32_t mask) {
        return child(geneve).option(0x102, 0x80, data, mask).output(2);
    };
    const auto plan = tunnel_plan(flow(0x30001, 0x7FFFFFFF));
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->match.geneve_option, (GeneveOption{0x102, 0x80}));
    const std::string text = text_of(plan->match.mask, plan->match.value);
    for (const char* part : {"geneve_tlv_option_0_exist=0x1", "geneve_opt_len=0x2",
                             "geneve_tlv_option_0_data=0x30001/0x7fffffff"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
    EXPECT_EQ(match_of(flow(0x30001, 0x7FFFFFFF), generation(0)).find("exist"), std::string::npos);
    EXPECT_EQ(outcome(flow(0x80000000, 0x7FFFFFFF), generation(0)),
              "device limit: tun_metadata=0 (an option that is not there is 0, too)");
    DeviceCaps without = generation(1);
    without.geneve_option = false;
    EXPECT_EQ(outcome(flow(1, 1), without), "device limit: tun_metadata (not in the device's parser profile)");
    const std::string several = "unsupported match: tun_metadata (more than one option of one word)";
    EXPECT_EQ(outcome(MegaflowBuilder(flow(1, 1)).options_size(12)), several);
    MegaflowBuilder two_empty = flow(1, UINT32_MAX);
    two_empty.raw().tunnel_key.option[3] = 0;
    EXPECT_EQ(outcome(two_empty), several);
    MegaflowBuilder any_size = flow(1, UINT32_MAX);
    any_size.raw().tunnel_mask.options_size = 0;
    EXPECT_EQ(outcome(any_size), several);
    MegaflowBuilder partial = flow(1, UINT32_MAX);
    partial.raw().tunnel_mask.option[1] = 0xF0;
    EXPECT_EQ(outcome(partial), "unsupported mask: tun_metadata/0xfff0ff1f of an option's class, type and length");
    MegaflowBuilder size_only = child(geneve).options_size(12);
    EXPECT_NE(match_of(size_only.output(2)).find("geneve_opt_len=0x3"), std::string::npos);
    EXPECT_EQ(outcome(child(vxlan).options_size(8).output(2)), "unsupported match: tun_metadata");
}

TEST(TunnelMatch, OfPacketsThatCameThroughNoneIsRefused) {
    MegaflowBuilder flow(uplink);
    flow.from_tunnel(5).ipv4().output(2);
    EXPECT_EQ(outcome(flow), "unsupported match: tunnel of packets that come through none");
    flow.raw().tunnel_key = {};
    EXPECT_EQ(outcome(flow), "dest_vport 2") << "zero is what they have";
    EXPECT_EQ(outcome(MegaflowBuilder(77).from_tunnel(5).ipv4().output(2)),
              "in_port not offloaded: in_port is no dr port of this device: datapath port 77; "
              "unsupported match: tunnel of packets that come through none");
}

/// Whether a mask for this bit, of that value, may say nothing about which packets of a tunnel the rule takes.
bool says_nothing(std::uint32_t tunnel, std::size_t byte, std::uint8_t bit, bool value) {
    const bool udp = tunnel != gre;
    const auto in = [byte](std::size_t offset, std::size_t size) { return byte >= offset && byte < offset + size; };
    if (in(offsetof(ovsdr_tunnel_fields, flags), 1)) {
        switch (bit) {
            case OVSDR_TUNNEL_CSUM: return udp || !value;   // the named difference; no rule takes GRE with a checksum
            case OVSDR_TUNNEL_KEY: return value;            // all packets have it, or the rule asks for it anyway
            case OVSDR_TUNNEL_OAM: return tunnel != geneve && !value;
            default: return false;
        }
    }
    // What no packet has.
    if (in(offsetof(ovsdr_tunnel_fields, be_id), udp ? 5 : 4)) return !value;
    if (in(offsetof(ovsdr_tunnel_fields, be_tp_src), 4)) return !udp && !value;
    return false;
}

/// Every bit of a mask, asked to be 1 and to be 0, is in the rule's mask, or refused, or one of those that say nothing.
TEST(TunnelMatch, NoBitIsForgotten) {
    for (const std::uint32_t tunnel : {vxlan, geneve, gre}) {
        for (const std::uint8_t format : {0, 1}) {
            for (std::size_t bit = 0; bit < 2 * 8 * sizeof(ovsdr_tunnel_fields); ++bit) {
                const std::size_t byte = bit / 2 / 8;
                const auto one = static_cast<std::uint8_t>(1U << bit / 2 % 8);
                const bool value = bit % 2 != 0;
                if (byte == offsetof(ovsdr_tunnel_fields, ipv6)) continue;   // of the key only
                ovsdr_megaflow flow = MegaflowBuilder(tunnel).ipv4().output(2);
                flow.tunnel_key.flags = OVSDR_TUNNEL_KEY;
                auto& key = reinterpret_cast<std::uint8_t*>(&flow.tunnel_key)[byte];
                key = static_cast<std::uint8_t>(value ? key | one : key & ~one);
                const auto unasked = tunnel_plan(flow, generation(format));
                ASSERT_TRUE(unasked);
                reinterpret_cast<std::uint8_t*>(&flow.tunnel_mask)[byte] |= one;
                const auto asked = tunnel_plan(flow, generation(format));
                const bool same = asked && asked->match.mask == unasked->match.mask &&
                                  asked->match.value == unasked->match.value;
                EXPECT_EQ(same, says_nothing(tunnel, byte, one, value))
                    << "tunnel " << tunnel << ", byte " << byte << ", bit " << bit / 2 % 8 << " is " << value;
            }
        }
    }
}

/// A mask bit that is accepted decides: two megaflows that differ in that bit of the key have different rules, or one
/// of them is refused. Without it the key's bit says nothing.
TEST(TunnelMatch, EveryBitDecidesUnderItsMaskAndNeverWithout) {
    const auto bit_of = [](ovsdr_tunnel_fields& fields, std::size_t bit) -> std::uint8_t& {
        return reinterpret_cast<std::uint8_t*>(&fields)[bit / 8];
    };
    const auto same = [](const Compiled<RulePlan>& one, const Compiled<RulePlan>& other) {
        return one && other && one->match == other->match;
    };
    for (const MegaflowBuilder& base :
         {child(vxlan), child(geneve), child(gre), child(vxlan).over_ipv6(), child(gre).over_ipv6(),
          child(geneve).option(0x102, 0x80, 7), child(gre).tunnel_flags(0).from_tunnel(0).tunnel_flags(0)}) {
        const auto plain = tunnel_plan(MegaflowBuilder(base).output(2));
        ASSERT_TRUE(plain);
        for (std::size_t bit = 0; bit < 8 * offsetof(ovsdr_tunnel_fields, reserved); ++bit) {
            if (bit / 8 == offsetof(ovsdr_tunnel_fields, ipv6)) continue;   // of the key only
            const auto one = static_cast<std::uint8_t>(1U << bit % 8);
            ovsdr_megaflow asked = MegaflowBuilder(base).output(2), flipped = asked, unasked = asked;
            const bool in_base = (bit_of(asked.tunnel_mask, bit) & one) != 0;
            bit_of(asked.tunnel_mask, bit) |= one;
            flipped.tunnel_mask = asked.tunnel_mask;
            bit_of(flipped.tunnel_key, bit) ^= one;
            EXPECT_FALSE(same(tunnel_plan(asked), tunnel_plan(flipped))) << "bit " << bit << " is ignored";
            if (in_base) continue;
            // Flags that packets of the tunnel always have are looked at: a key without them is of no packet.
            bit_of(unasked.tunnel_key, bit) ^= one;
            EXPECT_TRUE(same(plain, tunnel_plan(unasked))) << "bit " << bit << " counts without its mask";
        }
    }
}

TEST(Decapsulation, ComesFirst) {
    EXPECT_EQ(outcome(child(vxlan).vlan(7).pop().set(OVSDR_HEADER_IP_TTL, {9}).output(2)),
              "decapsulate, pop_vlan, set ip_ttl=0x9, dest_vport 2");
    const test::HeaderBytes header = test::gre(test::outer_ipv4(47));
    EXPECT_TRUE(outcome(child(vxlan).tunnel(header).output(2)).starts_with("decapsulate, encapsulate 02"));
    EXPECT_EQ(outcome(child(vxlan).output(2).set(OVSDR_HEADER_IP_TTL, {9}).output(3)),
              "decapsulate, dest_array [dest_vport 2, dest_table (set ip_ttl=0x9, dest_vport 3)]");
}

/// libmlx5 puts the counter of such a rule behind its push.
TEST(Decapsulation, PushesInATableOfItsOwnWhereTheCounterWouldSeeTheTag) {
    EXPECT_EQ(outcome(child(vxlan).push(7).output(2)),
              "decapsulate, dest_table (push_vlan 0x8100 vid 7 pcp 0, dest_vport 2)");
    EXPECT_EQ(outcome(child(vxlan).set(OVSDR_HEADER_IP_TTL, {9}).push(7).output(2)),
              "decapsulate, set ip_ttl=0x9, push_vlan 0x8100 vid 7 pcp 0, dest_vport 2");
    EXPECT_EQ(outcome(child(vxlan).push(7).output(2), generation(0)),
              "device limit: push_vlan onto packets from the wire");
}

TEST(Decapsulation, OfDropsAndRecirculationsIsDoneWhereBytesAskForIt) {
    EXPECT_EQ(outcome(child(vxlan)), "decapsulate, dest_table (drop)");
    EXPECT_EQ(outcome(child(vxlan), generation(0)), "drop");
    EXPECT_EQ(outcome(child(vxlan).recirc(4)), "dest_table recirc_id 0x4 of tunnel port 20");
    EXPECT_EQ(outcome(child(vxlan).output(2).recirc(4)),
              "dest_array [dest_table recirc_id 0x4 of tunnel port 20, dest_table (decapsulate, dest_vport 2)]");
    EXPECT_EQ(outcome(child(vxlan).set(OVSDR_HEADER_IP_TTL, {9}).recirc(4)),
              "unsupported order of actions: recirc behind a change of packets from a tunnel");
    EXPECT_EQ(outcome(child(vxlan).output(9)),
              "output not offloaded: output to the uplink of packets from a tunnel: uplink");
}

TEST(Decapsulation, BytesAreThoseOfTheInnerFrame) {
    EXPECT_EQ(uncounted(child(vxlan).output(2), 1), 0);
    EXPECT_EQ(uncounted(child(vxlan).vlan(7).pop().output(2), 1), 4);
    EXPECT_EQ(uncounted(child(vxlan), 1), 0) << "a drop";
    EXPECT_EQ(uncounted(child(vxlan).recirc(4), 1), -50);
    EXPECT_EQ(uncounted(child(vxlan).output(2).recirc(4), 1), -50);
    for (const std::uint8_t format : {0, 1}) {
        const auto size = [&](MegaflowBuilder flow) { return uncounted(flow.recirc(4), format); };
        EXPECT_EQ(size(child(geneve).options_size(8)), -58);
        EXPECT_EQ(size(child(gre)), -42);
        EXPECT_EQ(size(child(gre).tunnel_flags(0).from_tunnel(0).tunnel_flags(0)), -38);
    }
    EXPECT_EQ(uncounted(child(vxlan).output(2), 0), -50);
    EXPECT_EQ(uncounted(child(vxlan).vlan(7).pop().output(2), 0), -50);
    EXPECT_EQ(uncounted(child(vxlan), 0), -50);
    const std::string unknown = "device limit: bytes of packets from a tunnel over IPv6 "
                                "(the device counts headers of unknown size with them)";
    EXPECT_EQ(outcome(child(vxlan).over_ipv6().recirc(4)), unknown);
    EXPECT_EQ(outcome(child(vxlan).over_ipv6().output(2), generation(0)), unknown);
    EXPECT_EQ(outcome(child(vxlan).over_ipv6().output(2)), "decapsulate, dest_vport 2");
    EXPECT_EQ(outcome(child(vxlan).over_ipv6()), "decapsulate, dest_table (drop)");
}

/// The rule is narrower then, so that it knows what to take off.
TEST(Decapsulation, AsksForTheSizeOfOptionsWhereItIsCounted) {
    EXPECT_EQ(match_of(child(geneve).output(2)).find("geneve_opt_len"), std::string::npos);
    EXPECT_NE(match_of(child(geneve).recirc(4)).find("geneve_opt_len=0x0"), std::string::npos);
    EXPECT_NE(match_of(child(geneve).output(2), generation(0)).find("geneve_opt_len=0x0"), std::string::npos);
}

TEST(Decapsulation, IcmpInsideIsRefusedWhereItIsLookedInto) {
    EXPECT_EQ(outcome(child(vxlan).proto(1).output(2)), "decapsulate, dest_vport 2");
    EXPECT_EQ(outcome(child(vxlan).proto(1).ports(8, 0).output(2)),
              "device limit: icmp_type inside of a tunnel (libmlx5 has the outer packet's only)");
    MegaflowBuilder v6 = MegaflowBuilder(vxlan).from_tunnel(5).ipv6().proto(58).ports(135, 0);
    EXPECT_EQ(outcome(v6.output(2)),
              "device limit: icmpv6_type inside of a tunnel (libmlx5 has the outer packet's only)");
}

}  // namespace
}  // namespace ovsdr::dr
