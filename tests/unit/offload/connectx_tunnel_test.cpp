// Tunnels that offload/ takes apart on the system's own libmlx5: the entries that it writes are executed on packets.
// Runs under tests/connectx/run, for each profile.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "offload/dr/device/ib_port.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/connectx/entries/forwarder.hpp"
#include "tests/unit/connectx/tunnel_frames.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {
namespace {

using connectx::entries::Delivery;
using connectx::entries::test::frame_of;
using connectx::test::encapsulated;
using connectx::test::geneve_with;
using connectx::test::readdressed;
using connectx::test::tagged;
using slowpath::PortQueue;
using test::MegaflowBuilder;
using Bytes = connectx::test::Bytes;

constexpr std::uint16_t wire = 0xFFFF;
constexpr std::uint32_t uplink = 9, vxlan_port = 20, geneve_port = 21, gre_port = 22;

class TunnelsOnConnectX : public ::testing::Test {
protected:
    void SetUp() override {
        ASSERT_NE(device(), nullptr) << "not under tests/connectx/run";
        auto opened = Eswitch::open("mlx5_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
        for (const auto& [vport, odp] : {std::pair{1, 1}, {2, 2}, {0xFFFF, 9}}) {
            const VportId number{static_cast<std::uint16_t>(vport)};
            const auto ib_port = find_ib_port(eswitch_->context(), number);
            ASSERT_TRUE(ib_port);
            auto queue = PortQueue::create({.context = eswitch_->context(), .pd = eswitch_->pd(),
                                            .ib_port = ib_port->number});
            ASSERT_TRUE(queue);
            queues_.push_back(std::move(*queue));
            ASSERT_TRUE(eswitch_->attach_port({OdpPort{static_cast<std::uint32_t>(odp)}, number, "p",
                                               queues_.back()->qp(), queues_.back()->sqn()}));
            attached_.push_back(number);
        }
        eswitch_->set_tunnel_port({OdpPort{vxlan_port}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
        eswitch_->set_tunnel_port({OdpPort{geneve_port}, TunnelKind::geneve, 6081, "genev_sys_6081"});
        eswitch_->set_tunnel_port({OdpPort{gre_port}, TunnelKind::gre, 0, "gre_sys"});
    }
    void TearDown() override {
        if (eswitch_ == nullptr) return;
        eswitch_->flush(std::nullopt);
        for (const VportId vport : attached_) eswitch_->detach_port(vport);
        queues_.clear();
        eswitch_.reset();
        EXPECT_EQ(device()->not_emulated(), std::vector<std::string>{});
    }
    static connectx::Device* device() { return connectx::device(); }
    [[nodiscard]] static bool is_connectx5() { return device()->steering_format() == 0; }

    static MegaflowBuilder parent(std::uint32_t tunnel, bool ipv6 = false) {
        MegaflowBuilder flow(uplink);
        ipv6 ? flow.ipv6() : flow.ipv4();
        if (tunnel == gre_port) {
            flow.proto(47);
        } else {
            flow.proto(17).ports(0, tunnel == vxlan_port ? 4789 : 6081);
            flow.raw().mask.be_tp_src = 0;
        }
        return flow.tunnel_pop(tunnel);
    }
    static MegaflowBuilder child(std::uint32_t tunnel, std::uint64_t id = 5) {
        return MegaflowBuilder(tunnel).from_tunnel(id);
    }
    bool put(const Ufid& ufid, const ovsdr_megaflow& flow) {
        (void)eswitch_->put(ufid, flow);
        return eswitch_->explain(ufid)->offloaded;
    }
    std::vector<Delivery> from_wire(const Bytes& frame) {
        return connectx::entries::Forwarder(*device()).from_port(wire, frame);
    }
    void expect_out(const Bytes& frame, const Bytes& expected, std::uint32_t vport = 2) {
        const auto out = from_wire(frame);
        ASSERT_EQ(out.size(), 1U);
        EXPECT_EQ(out[0].kind, Delivery::Kind::vport);
        EXPECT_EQ(out[0].number, vport);
        EXPECT_EQ(out[0].packet.bytes, expected);
    }
    /// Goes up as it came.
    void expect_miss(const Bytes& frame, TableKey table) {
        const auto out = from_wire(frame);
        ASSERT_EQ(out.size(), 1U);
        EXPECT_EQ(out[0].kind, Delivery::Kind::queue_pair);
        EXPECT_EQ(out[0].packet.bytes, frame);
        EXPECT_EQ(eswitch_->table_of(out[0].packet.flow_tag), std::optional(table));
    }
    void expect_counted(const Ufid& ufid, std::uint64_t packets, std::uint64_t bytes) {
        const auto last = eswitch_->del(ufid);
        ASSERT_TRUE(last);
        EXPECT_EQ(last->packets, packets);
        EXPECT_EQ(last->bytes, bytes);
    }

    std::shared_ptr<Eswitch> eswitch_;
    std::vector<std::unique_ptr<PortQueue>> queues_;
    std::vector<VportId> attached_;
};

struct Case {
    const char* name;
    std::uint32_t tunnel;
    std::uint64_t id;
    Bytes header, other;   ///< the latter has another id
    bool ipv6 = false;
};

namespace tunnel = ovsdr::dr::test;

Bytes geneve_of(std::uint8_t vni) {
    Bytes header = tunnel::geneve(0);
    header[48] = vni;
    return header;
}

std::vector<Case> all_tunnels() {
    const Bytes with_key = tunnel::gre(tunnel::outer_ipv4(47)), without_key = tunnel::gre(tunnel::outer_ipv4(47), 0);
    return {{"vxlan", vxlan_port, 5, tunnel::vxlan(5), tunnel::vxlan(6)},
            {"geneve", geneve_port, 5, geneve_of(5), geneve_of(6)},
            {"gre with a key", gre_port, 7, with_key, without_key},
            {"gre without", gre_port, 0, without_key, with_key},
            {"vxlan over IPv6", vxlan_port, 5, tunnel::vxlan_over(tunnel::outer_ipv6(17)),
             tunnel::vxlan_over(tunnel::outer_ipv6(17), 6), true},
            {"gre over IPv6", gre_port, 7, tunnel::gre(tunnel::outer_ipv6(47)), tunnel::gre(tunnel::outer_ipv6(47), 0),
             true}};
}

TEST_F(TunnelsOnConnectX, TakesFramesOutAndCountsThem) {
    for (const Case& each : all_tunnels()) {
        SCOPED_TRACE(each.name);
        for (const bool v6 : {false, true}) {
            const Bytes inside = readdressed(frame_of({.ipv6 = v6}));
            ASSERT_TRUE(put({1, 1}, parent(each.tunnel, each.ipv6)));
            MegaflowBuilder flow = child(each.tunnel, each.id);
            if (each.id == 0) flow.tunnel_flags(0);
            if (each.ipv6) flow.over_ipv6();
            v6 ? flow.ipv6() : flow.ipv4();
            const bool in = put({1, 2}, flow.proto(6).ports(1000, 2000).output(2));
            EXPECT_EQ(in, !(each.ipv6 && is_connectx5()));
            if (!in) {
                eswitch_->flush(std::nullopt);
                continue;
            }
            const Bytes frame = encapsulated(each.header, inside);
            expect_out(frame, inside);
            const TableKey table{0, each.tunnel};
            expect_miss(encapsulated(each.other, inside), table);
            expect_miss(encapsulated(each.header, readdressed(frame_of({.ipv6 = !v6}))), table);
            expect_miss(encapsulated(each.header, readdressed(frame_of({.ipv6 = v6, .protocol = 17}))), table);
            expect_counted({1, 2}, 1, inside.size());
            eswitch_->flush(std::nullopt);
        }
    }
}

struct Change {
    const char* name;
    std::function<MegaflowBuilder(MegaflowBuilder)> act;
    Bytes inside, expected;
    bool pushes = false;
};

Bytes with_ttl(Bytes frame, std::uint8_t ttl, std::size_t l3 = 14) {
    frame[l3 + 8] = ttl;
    connectx::test::put(frame, l3 + 10, 0);
    connectx::entries::test::put_sum(frame, l3 + 10, connectx::entries::test::sum_of(frame, l3, l3 + 20));
    return frame;
}

TEST_F(TunnelsOnConnectX, ChangesWhatItTookOutAndCountsWhatCameIn) {
    const Bytes plain = readdressed(frame_of({.protocol = 17})), tag = tagged(plain);
    const Bytes far = tagged(plain, 0x81, 8);
    const auto ttl = [](MegaflowBuilder flow) { return flow.set(OVSDR_HEADER_IP_TTL, {9}); };
    const Change changes[] = {
        {"nothing", [](MegaflowBuilder flow) { return flow; }, plain, plain},
        {"pop", [](MegaflowBuilder flow) { return flow.vlan(7).pop(); }, tag, plain},
        {"write", ttl, plain, with_ttl(plain, 9)},
        {"pop, write", [&](MegaflowBuilder flow) { return ttl(flow.vlan(7).pop()); }, tag, with_ttl(plain, 9)},
        {"push", [](MegaflowBuilder flow) { return flow.push(8); }, plain, far, true},
        {"write, push", [&](MegaflowBuilder flow) { return ttl(flow).push(8); }, plain,
         tagged(with_ttl(plain, 9), 0x81, 8), true},
        {"push, push", [](MegaflowBuilder flow) { return flow.vlan_limit(2).no_second_vlan().push(8).push(9); }, plain,
         tagged(far, 0x81, 9), true},
        {"write, push, push",
         [&](MegaflowBuilder flow) { return ttl(flow.vlan_limit(2).no_second_vlan()).push(8).push(9); }, plain,
         tagged(tagged(with_ttl(plain, 9), 0x81, 8), 0x81, 9), true},
        {"pop, push", [](MegaflowBuilder flow) { return flow.vlan(7).pop().push(8); }, tag, far, true},
        {"pop, write, push", [&](MegaflowBuilder flow) { return ttl(flow.vlan(7).pop()).push(8); }, tag,
         tagged(with_ttl(plain, 9), 0x81, 8), true},
    };
    for (const Case& each : all_tunnels()) {
        for (const Change& change : changes) {
            SCOPED_TRACE(std::string(each.name) + ": " + change.name);
            ASSERT_TRUE(put({1, 1}, parent(each.tunnel, each.ipv6)));
            MegaflowBuilder flow = child(each.tunnel, each.id);
            if (each.id == 0) flow.tunnel_flags(0);
            if (each.ipv6) flow.over_ipv6();
            const bool in = put({1, 2}, change.act(flow.ipv4().proto(17)).output(2));
            EXPECT_EQ(in, !(is_connectx5() && (each.ipv6 || change.pushes))) << eswitch_->explain({1, 2})->text;
            if (!in) {
                eswitch_->flush(std::nullopt);
                continue;
            }
            expect_out(encapsulated(each.header, change.inside), change.expected);
            expect_counted({1, 2}, 1, change.inside.size());
            eswitch_->flush(std::nullopt);
        }
    }
}

/// A checksum of GRE's, a sequence, Geneve's OAM and options, IPv4's: what OVS looks at, or counts otherwise.
TEST_F(TunnelsOnConnectX, LeavesToSoftwareWhatOvsMustSee) {
    const Bytes inside = readdressed(frame_of({.protocol = 17}));
    for (const std::uint32_t tunnel : {vxlan_port, geneve_port, gre_port}) {
        ASSERT_TRUE(put({tunnel, 1}, parent(tunnel)));
        MegaflowBuilder flow = child(tunnel, tunnel == gre_port ? 7 : 5);
        if (tunnel == geneve_port) flow.options_size(0).raw().tunnel_mask.flags |= OVSDR_TUNNEL_OAM;
        ASSERT_TRUE(put({tunnel, 2}, flow.ipv4().proto(17).output(2)));
    }
    const TableKey in_gre{0, gre_port}, in_geneve{0, geneve_port}, in_vxlan{0, vxlan_port};
    for (const unsigned flags : {0xA000U, 0x3000U}) {
        expect_miss(encapsulated(tunnel::gre(tunnel::outer_ipv4(47), flags), inside),
                    is_connectx5() ? in_gre : TableKey{});
    }
    Bytes geneve = geneve_of(5);
    geneve[43] = 0;
    expect_out(encapsulated(geneve, inside), inside);
    geneve[43] = 0x80;
    expect_miss(encapsulated(geneve, inside), in_geneve);
    geneve = geneve_with({9, 9, 9, 0});
    geneve[43] = 0, geneve[48] = 5;
    expect_miss(encapsulated(geneve, inside), in_geneve);
    Bytes options = encapsulated(tunnel::vxlan(), inside);
    options.insert(options.begin() + 34, {1, 1, 1, 1});
    options[14] = 0x46;
    options[17] = static_cast<std::uint8_t>(options[17] + 4);
    expect_miss(options, in_vxlan);
}

/// Versions, flags and reserved bits that OVS drops packets for, or reads another thing inside by. ConnectX-5 shows the
/// bits of VXLAN only.
TEST_F(TunnelsOnConnectX, LeavesToSoftwareHeadersThatOvsReadsOtherwise) {
    const Bytes inside = readdressed(frame_of({.protocol = 17}));
    const auto with = [&](Bytes header, std::size_t at, unsigned byte) {
        header[at] = static_cast<std::uint8_t>(byte);
        return encapsulated(header, inside);
    };
    ASSERT_TRUE(put({1, 1}, parent(vxlan_port)));
    ASSERT_TRUE(put({1, 2}, child(vxlan_port).ipv4().proto(17).output(2)));
    for (const auto& [at, byte] : {std::pair{42, 0x00}, {42, 0x0C}, {42, 0x88}, {43, 1}, {44, 1}, {45, 3}, {49, 1}}) {
        expect_miss(with(tunnel::vxlan(), static_cast<std::size_t>(at), static_cast<unsigned>(byte)), {});
    }
    expect_out(with(tunnel::vxlan(), 42, 0x08), inside);
    if (is_connectx5()) return;
    ASSERT_TRUE(put({2, 1}, parent(geneve_port)));
    ASSERT_TRUE(put({2, 2}, child(geneve_port).ipv4().proto(17).output(2)));
    for (const auto& [at, byte] : {std::pair{42, 0x40}, {42, 0x80}, {44, 0x08}, {45, 0x59}}) {
        expect_miss(with(geneve_of(5), static_cast<std::size_t>(at), static_cast<unsigned>(byte)), {});
    }
    for (const auto& [at, byte] : {std::pair{43, 0x40}, {43, 0x3F}, {49, 0xFF}}) {
        expect_out(with(geneve_of(5), static_cast<std::size_t>(at), static_cast<unsigned>(byte)), inside);
    }
    ASSERT_TRUE(put({3, 1}, parent(gre_port)));
    ASSERT_TRUE(put({3, 2}, child(gre_port, 7).ipv4().proto(17).output(2)));
    const Bytes gre = tunnel::gre(tunnel::outer_ipv4(47));
    for (const auto& [at, byte] : {std::pair{34, 0x60}, {34, 0x28}, {34, 0x21}, {35, 0x80}, {35, 0x01}, {36, 0x08}}) {
        expect_miss(with(gre, static_cast<std::size_t>(at), static_cast<unsigned>(byte)), {});
    }
    expect_out(with(gre, 34, 0x20), inside);
}

TEST_F(TunnelsOnConnectX, CopiesDropsAndRecirculates) {
    const Bytes inside = readdressed(frame_of({.protocol = 17})), frame = encapsulated(tunnel::vxlan(), inside);
    ASSERT_TRUE(put({1, 1}, parent(vxlan_port)));
    ASSERT_TRUE(put({1, 2}, child(vxlan_port).ipv4().proto(17).output(2)
                                .set(OVSDR_HEADER_ETH_SRC, {2, 0, 0, 0, 0, 1}).output(1)));
    auto out = from_wire(frame);
    ASSERT_EQ(out.size(), 2U);
    for (const Delivery& each : out) {
        Bytes expected = inside;
        if (each.number == 1) {
            const Bytes source{2, 0, 0, 0, 0, 1};
            std::copy(source.begin(), source.end(), expected.begin() + 6);
        }
        EXPECT_EQ(each.packet.bytes, expected);
    }
    expect_counted({1, 2}, 1, inside.size());
    ASSERT_TRUE(put({1, 2}, child(vxlan_port).ipv4().proto(17)));
    out = from_wire(frame);
    ASSERT_EQ(out.size(), 1U);
    EXPECT_EQ(out[0].kind, Delivery::Kind::dropped);
    expect_counted({1, 2}, 1, inside.size());
    ASSERT_TRUE(put({1, 2}, child(vxlan_port).ipv4().proto(17).output(1).recirc(4)));
    out = from_wire(frame);
    ASSERT_EQ(out.size(), 2U);
    ASSERT_TRUE(put({1, 3}, child(vxlan_port).behind(4).ipv4().proto(17).output(2)));
    out = from_wire(frame);
    ASSERT_EQ(out.size(), 2U);
    for (const Delivery& each : out) EXPECT_EQ(each.packet.bytes, inside);
    expect_counted({1, 3}, 1, inside.size());
    expect_counted({1, 2}, 2, 2 * inside.size());
    expect_counted({1, 1}, 4, 4 * frame.size());
}

TEST_F(TunnelsOnConnectX, LooksAtOneOption) {
    const Bytes inside = readdressed(frame_of({.protocol = 17}));
    ASSERT_TRUE(put({1, 1}, parent(geneve_port)));
    ASSERT_TRUE(put({1, 2}, child(geneve_port, 1).option(0x0102, 0x80, 0xA1A2A3A4).ipv4().proto(17).output(2)));
    const auto with = [&](const Bytes& options) { return encapsulated(geneve_with(options), inside); };
    expect_out(with({1, 2, 0x80, 1, 0xA1, 0xA2, 0xA3, 0xA4}), inside);
    const TableKey table{0, geneve_port};
    expect_miss(with({1, 2, 0x80, 1, 0xA1, 0xA2, 0xA3, 0xA5}), table);
    expect_miss(with({1, 2, 0x81, 1, 0xA1, 0xA2, 0xA3, 0xA4}), table);
    expect_miss(with({}), table);
    expect_miss(with({1, 2, 0x80, 1, 0xA1, 0xA2, 0xA3, 0xA4, 9, 9, 9, 0}), table);
    expect_counted({1, 2}, 1, inside.size());
}

TEST_F(TunnelsOnConnectX, PutsWhatItTookOutIntoAnotherTunnel) {
    const Bytes inside = readdressed(frame_of({.protocol = 17}));
    const Bytes header = tunnel::gre(tunnel::outer_ipv4(47));
    ASSERT_TRUE(put({1, 1}, parent(vxlan_port)));
    const bool in = put({1, 2}, child(vxlan_port).ipv4().proto(17).tunnel(header).output(2));
    EXPECT_EQ(in, !is_connectx5());
    if (!in) return;
    expect_out(encapsulated(tunnel::vxlan(), inside), encapsulated(header, inside));
    expect_counted({1, 2}, 1, inside.size());
}

TEST_F(TunnelsOnConnectX, ReadsTheUnderlaysTag) {
    const Bytes inside = readdressed(frame_of({.protocol = 17})), frame = encapsulated(tunnel::vxlan(), inside);
    MegaflowBuilder outer(uplink);
    outer.ipv4().vlan(11).proto(17).ports(0, 4789);
    outer.raw().mask.be_tp_src = 0;
    ASSERT_TRUE(put({1, 1}, outer.pop().tunnel_pop(vxlan_port)));
    ASSERT_TRUE(put({1, 2}, child(vxlan_port).ipv4().proto(17).output(2)));
    expect_out(tagged(frame, 0x81, 11), inside);
    expect_counted({1, 2}, 1, inside.size());
    expect_counted({1, 1}, 1, frame.size() + 4);
}

}  // namespace
}  // namespace ovsdr::dr
