// A rule takes the packets of its megaflow and no others: tags and fragments, of which OVS and the device have
// different ideas. Megaflows are drawn, and each packet of a small world is shown to a model of OVS and one of the
// device.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "offload/dr/compile/compile.hpp"
#include "tests/unit/offload/four_ports.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr::exact_match {
namespace {

using test::MegaflowBuilder;

constexpr std::uint16_t customer = 0x8100, service = 0x88a8, present = test::vlan_present, ipv4 = 0x0800;
constexpr std::uint32_t vxlan = 20;

struct Tag {
    std::uint16_t tpid, vid, prio;
};

struct Packet {
    std::vector<Tag> tags{};
    std::uint16_t type = ipv4;
    std::uint8_t frag = 0;   ///< as OVS has it: 1 the first, 3 a later one
};

std::vector<Packet> all_packets() {
    std::vector<Tag> some;
    for (const std::uint16_t tpid : {customer, service}) {
        for (const std::uint16_t vid : {5, 7}) {
            for (const std::uint16_t prio : {0, 5}) some.push_back({tpid, vid, prio});
        }
    }
    std::vector<std::vector<Tag>> tags{{}};
    for (const Tag& one : some) {
        tags.push_back({one});
        for (const Tag& two : some) tags.push_back({one, two});
        tags.push_back({one, some.front(), some.back()});
    }
    std::vector<Packet> packets;
    for (const auto& each : tags) {
        for (const std::uint8_t frag : {0, 1, 3}) packets.push_back({each, ipv4, frag});
        packets.push_back({each, 0x88b5, 0});
    }
    return packets;
}

/// What OVS makes of a packet: tags up to the limit, the next one is the ethertype.
struct OvsFlow {
    std::uint16_t tpid[2]{}, tci[2]{}, type = 0;
    std::uint8_t frag = 0;
};

OvsFlow flow_of(const Packet& packet, std::size_t limit) {
    OvsFlow flow;
    const std::size_t parsed = std::min(limit, packet.tags.size());
    for (std::size_t i = 0; i < parsed; ++i) {
        const Tag& tag = packet.tags[i];
        flow.tpid[i] = tag.tpid;
        flow.tci[i] = static_cast<std::uint16_t>(tag.prio << 13 | present | tag.vid);
    }
    flow.type = parsed < packet.tags.size() ? packet.tags[parsed].tpid : packet.type;
    if (flow.type == ipv4) flow.frag = packet.frag;
    return flow;
}

bool ovs_takes(const ovsdr_flow_fields& key, const ovsdr_flow_fields& mask, const Packet& packet) {
    const OvsFlow flow = flow_of(packet, key.vlan_limit);
    for (int i = 0; i < 2; ++i) {
        if (((be16toh(key.be_vlan_tci[i]) ^ flow.tci[i]) & be16toh(mask.be_vlan_tci[i])) != 0) return false;
        if (((be16toh(key.be_vlan_tpid[i]) ^ flow.tpid[i]) & be16toh(mask.be_vlan_tpid[i])) != 0) return false;
    }
    return ((be16toh(key.be_eth_type) ^ flow.type) & be16toh(mask.be_eth_type)) == 0 &&
           ((key.ip_frag ^ flow.frag) & mask.ip_frag) == 0;
}

/// The device's parser has two tags; what is behind them is the ethertype.
class Device {
public:
    explicit Device(const MatchPlan& plan) : plan_(plan) {}

    [[nodiscard]] bool takes(const Packet& packet) const {
        const auto& tags = packet.tags;
        const bool third = tags.size() > 2;
        return tag(tags.empty() ? nullptr : &tags[0], field::cvlan_tag, field::svlan_tag, field::first_vid,
                   field::first_prio) &&
               tag(tags.size() < 2 ? nullptr : &tags[1], field::outer_second_cvlan_tag, field::outer_second_svlan_tag,
                   field::outer_second_vid, field::outer_second_prio) &&
               has(field::ethertype, third ? tags[2].tpid : packet.type) &&
               has(field::frag, !third && packet.type == ipv4 && packet.frag != 0 ? 1 : 0) &&
               (asked(field::ip_version) == 0 || (!third && packet.type == ipv4));
    }

private:
    [[nodiscard]] std::uint32_t asked(prm::Field field) const { return plan_.mask.get(plan_.place_of(field)); }
    [[nodiscard]] bool has(prm::Field field, std::uint32_t value) const {
        return ((plan_.value.get(plan_.place_of(field)) ^ value) & asked(field)) == 0;
    }
    /// A qualifier that is asked to be 0 means no tag at all.
    [[nodiscard]] bool tag(const Tag* tag, prm::Field of_customer, prm::Field of_service, prm::Field vid,
                           prm::Field prio) const {
        if (tag == nullptr) return has(of_customer, 0) && has(of_service, 0) && asked(vid) == 0 && asked(prio) == 0;
        for (const auto& [qualifier, tpid] : {std::pair{of_customer, customer}, {of_service, service}}) {
            if (asked(qualifier) == 0) continue;
            if (plan_.value.get(plan_.place_of(qualifier)) == 0 || tag->tpid != tpid) return false;
        }
        return has(vid, tag->vid) && has(prio, tag->prio);
    }

    const MatchPlan& plan_;
};

class Draw {
public:
    explicit Draw(std::uint32_t in_port) : in_port_(in_port) {}

    /// A megaflow as OVS makes one of `packet`: it looks at the type, at presence of each tag that it parses, and at
    /// whatever bits of them rules ask for.
    MegaflowBuilder usual(const Packet& packet, std::uint8_t limit) {
        MegaflowBuilder builder(in_port_);
        ovsdr_flow_fields &key = builder.raw().key, &mask = builder.raw().mask;
        const OvsFlow flow = flow_of(packet, limit);
        key.vlan_limit = limit;
        builder.eth_type(flow.type);
        for (unsigned i = 0; i < 2; ++i) {
            key.be_vlan_tpid[i] = htobe16(flow.tpid[i]);
            key.be_vlan_tci[i] = htobe16(flow.tci[i]);
            mask.be_vlan_tci[i] = i < limit ? htobe16(one_of({present, 0x1FFF, 0xFFFF, 0xF002, 0x3001})) : 0;
        }
        key.ip_frag = flow.frag;
        mask.ip_frag = static_cast<std::uint8_t>(one_of({0, 3}));
        return builder;
    }

    /// And one that OVS has no reason to make.
    MegaflowBuilder odd(const Packet& packet, std::uint8_t limit) {
        MegaflowBuilder builder = usual(packet, limit);
        ovsdr_flow_fields &key = builder.raw().key, &mask = builder.raw().mask;
        const unsigned slot = random_() % 2;
        switch (random_() % 6) {
            case 0: mask.be_vlan_tci[slot] = htobe16(one_of({0, 1, 0xE000, present, 0xFFFF})); break;
            case 1: mask.be_vlan_tpid[slot] = htobe16(one_of({0x0001, 0xFF00, 0xFFFF})); break;
            case 2: key.be_vlan_tci[slot] = htobe16(one_of({0, 5, 7, present, present | 5})); break;
            case 3: key.be_vlan_tpid[slot] = htobe16(one_of({0, customer, service, 0x9100})); break;
            case 4: key.ip_frag = static_cast<std::uint8_t>(random_() % 4); break;
            default: mask.ip_frag = static_cast<std::uint8_t>(random_() % 4); break;
        }
        return builder;
    }

    [[nodiscard]] std::uint32_t number(std::size_t end) { return static_cast<std::uint32_t>(random_() % end); }

private:
    std::uint16_t one_of(std::initializer_list<std::uint16_t> values) {
        return values.begin()[random_() % values.size()];
    }

    std::uint32_t in_port_;
    std::mt19937 random_{20261123};
};

Compiled<MatchPlan> plan_of(const ovsdr_megaflow& flow) {
    PortMap ports = test::four_ports();
    ports.set_tunnel({OdpPort{vxlan}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
    Obstacles obstacles;
    const MatchPlan plan = compile_match(flow.key, flow.mask, ports, {}, obstacles);
    if (!obstacles.empty()) return tl::unexpected(obstacles.take());
    return plan;
}

/// To the device a fragment is a fragment: what OVS takes is all of them, or none.
bool device_has_word_for(const ovsdr_flow_fields& key, const ovsdr_flow_fields& mask) {
    const auto takes = [&](std::uint8_t frag) { return ((key.ip_frag ^ frag) & mask.ip_frag) == 0; };
    return takes(1) == takes(3) && (takes(0) || takes(1));
}

class ExactMatch : public ::testing::TestWithParam<std::uint32_t> {
protected:
    void expect_same(const MatchPlan& plan, const ovsdr_megaflow& flow) {
        const Device device(plan);
        for (const Packet& packet : packets_) {
            const bool by_ovs = ovs_takes(flow.key, flow.mask, packet), by_device = device.takes(packet);
            if (by_device) {
                ASSERT_TRUE(by_ovs) << text_of(plan.mask, plan.value) << " of " << packet.tags.size() << " tags";
                ASSERT_GE(packet.tags.size(), plan.vlan_tags) << text_of(plan.mask, plan.value);
                ASSERT_TRUE(plan.more_tags || packet.tags.size() == plan.vlan_tags) << text_of(plan.mask, plan.value);
            }
            // A rule is of one kind of tag, although OVS looks at no TPID: the others stay in software.
            const OvsFlow its = flow_of(packet, flow.key.vlan_limit);
            const bool same_kind = htobe16(its.tpid[0]) == flow.key.be_vlan_tpid[0] &&
                                   htobe16(its.tpid[1]) == flow.key.be_vlan_tpid[1];
            if (by_ovs && same_kind) {
                ASSERT_TRUE(by_device) << text_of(plan.mask, plan.value) << " of " << packet.tags.size() << " tags";
            }
        }
    }

    const std::vector<Packet> packets_ = all_packets();
};

TEST_P(ExactMatch, TakesWhatOvsMakesOfAPacket) {
    Draw draw(GetParam());
    for (unsigned i = 0; i < 1000; ++i) {
        const Packet& packet = packets_[draw.number(packets_.size())];
        const auto limit = static_cast<std::uint8_t>(1 + i % 2);
        const ovsdr_megaflow flow = draw.usual(packet, limit);
        const auto plan = plan_of(flow);
        const bool parsed = packet.tags.size() <= 2 && (packet.tags.size() <= limit || limit == 1);
        const bool fits = flow.key.be_eth_type != htobe16(ipv4) || device_has_word_for(flow.key, flow.mask);
        const bool named = flow.mask.ip_frag == 0 || flow.key.be_eth_type == htobe16(ipv4);
        if (packet.tags.size() <= 2) {
            ASSERT_EQ(bool(plan), parsed && fits && named) << packet.tags.size() << " tags, limit " << +limit;
        }
        if (plan) {
            ASSERT_NO_FATAL_FAILURE(expect_same(*plan, flow));
        }
    }
}

TEST_P(ExactMatch, IsExactOrRefused) {
    Draw draw(GetParam());
    unsigned taken = 0;
    for (unsigned i = 0; i < 6000; ++i) {
        const Packet& packet = packets_[draw.number(packets_.size())];
        const ovsdr_megaflow flow = draw.odd(packet, static_cast<std::uint8_t>(1 + i % 2));
        const auto plan = plan_of(flow);
        if (!plan) continue;
        ASSERT_NO_FATAL_FAILURE(expect_same(*plan, flow));
        ++taken;
    }
    EXPECT_GT(taken, 1500U);
}

/// Each way to look at fragments, of either IP version.
TEST_P(ExactMatch, TakesEachMaskOfFragmentsThatTheDeviceHasAWordFor) {
    for (std::uint8_t mask = 0; mask < 4; ++mask) {
        for (std::uint8_t value = 0; value < 4; ++value) {
            MegaflowBuilder flow(GetParam());
            flow.ipv4().raw().key.ip_frag = value;
            flow.raw().mask.ip_frag = mask;
            const auto plan = plan_of(flow);
            ASSERT_EQ(bool(plan), device_has_word_for(flow.raw().key, flow.raw().mask)) << +value << "/" << +mask;
            if (plan) {
                expect_same(*plan, flow);
                EXPECT_EQ(plan->fragment, mask != 0 && (value & mask) != 0);
            }
            flow.ipv6().raw().key.ip_frag = value;
            flow.raw().mask.ip_frag = mask;
            EXPECT_EQ(bool(plan_of(flow)), bool(plan)) << +value << "/" << +mask;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Packets, ExactMatch, ::testing::Values(1U, vxlan), [](const auto& port) {
    return port.param == vxlan ? std::string("InATunnel") : std::string("OfAPort");
});

}  // namespace
}  // namespace ovsdr::dr::exact_match
