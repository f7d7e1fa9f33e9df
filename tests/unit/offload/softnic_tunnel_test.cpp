// Tunnels taken apart by the soft NIC, with real packets; for each profile (OVSDR_TEST_PROFILE).
#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/offload/softnic_fixture.hpp"
#include "tests/unit/offload/tunnel_headers.hpp"

namespace ovsdr::dr {
namespace {

using namespace test::frames;
using namespace std::chrono_literals;
using test::HeaderBytes;
using test::MegaflowBuilder;

constexpr std::uint32_t uplink = 9, vxlan_port = 20, geneve_port = 21, gre_port = 22;
constexpr std::uint16_t option_class = 0x102;
constexpr std::uint8_t option_type = 0x80;

/// The header with the lengths and sums that an encapsulated frame of `inner` bytes has, and the frame behind it.
FrameBytes inside(HeaderBytes header, const FrameBytes& inner) {
    const auto put16 = [&](std::size_t at, std::size_t value) {
        header[at] = static_cast<std::uint8_t>(value >> 8);
        header[at + 1] = static_cast<std::uint8_t>(value);
    };
    const bool ipv6 = header[12] == 0x86;
    const std::size_t l4 = ipv6 ? 54 : 34, size = header.size() + inner.size();
    const std::uint8_t protocol = header[ipv6 ? 20 : 23];
    put16(ipv6 ? 18 : 16, ipv6 ? size - l4 : size - 14);
    if (protocol == 17) put16(l4 + 4, size - l4);
    if (protocol == 17) put16(l4, 50000);
    if (!ipv6) {
        put16(24, 0);
        std::uint32_t sum = 0;
        for (std::size_t i = 14; i < 34; i += 2) sum += static_cast<std::uint32_t>(header[i] << 8 | header[i + 1]);
        while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
        put16(24, ~sum & 0xFFFF);
    }
    // What the test's wire takes for its own frames has their addresses.
    const FrameBytes ours = frame(0);
    std::copy_n(ours.begin(), 12, header.begin());
    header.insert(header.end(), inner.begin(), inner.end());
    return header;
}

std::optional<TableKey> in_table(std::uint32_t recirc_id, std::uint32_t tunnel_port) {
    return TableKey{recirc_id, tunnel_port};
}

/// With one option of one word, or none.
HeaderBytes geneve(std::uint32_t vni, std::optional<std::uint32_t> option = std::nullopt,
                   HeaderBytes header = test::outer_ipv4(17), std::uint16_t class_of_it = option_class) {
    test::append_be16(header, {0, 6081, 0, 0});
    test::append(header, {option ? 2U : 0U, 0, 0x65, 0x58, vni >> 16, vni >> 8 & 0xFF, vni & 0xFF, 0});
    if (option) {
        test::append_be16(header, {class_of_it, option_type << 8 | 1U});
        test::append_be16(header, {*option >> 16, *option & 0xFFFF});
    }
    return header;
}

class SoftNicTunnels : public test::SoftNic {
protected:
    void SetUp() override {
        test::SoftNic::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        eswitch_->set_tunnel_port({OdpPort{vxlan_port}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
        eswitch_->set_tunnel_port({OdpPort{geneve_port}, TunnelKind::geneve, 6081, "genev_sys_6081"});
        eswitch_->set_tunnel_port({OdpPort{gre_port}, TunnelKind::gre, 0, "gre_sys"});
    }

    [[nodiscard]] static bool counts_outer() { return profile() == "connectx-5"; }

    /// What leads the tunnel's packets into it.
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

    static MegaflowBuilder child(std::uint32_t tunnel, std::uint64_t id) {
        return MegaflowBuilder(tunnel).from_tunnel(id);
    }

    /// Frames that come out of `target` when the uplink brings this one.
    static std::vector<FrameBytes> from_wire(const FrameBytes& bytes, std::uint32_t target = 2) {
        port(uplink).wire->send(bytes);
        return port(target).wire->collect(2, 200ms);
    }

    /// The tag of the frame that goes up, which is as it came.
    static std::optional<TableKey> misses(const FrameBytes& bytes) {
        port(uplink).wire->send(bytes);
        const auto up = went_up(port(uplink), 1);
        if (up.size() != 1) return std::nullopt;
        EXPECT_EQ(up[0].first, bytes);
        return eswitch_->table_of(up[0].second);
    }

    static void expect_counted(const Ufid& ufid, std::uint64_t packets, std::uint64_t bytes) {
        const auto last = eswitch_->del(ufid);
        ASSERT_TRUE(last);
        EXPECT_EQ(last->packets, packets);
        EXPECT_EQ(last->bytes, bytes);
    }

    static std::string why_not(const Ufid& ufid) { return eswitch_->explain(ufid)->text; }

    template <typename Condition>
    static bool becomes(Condition&& condition) {
        const auto end = std::chrono::steady_clock::now() + 3s;
        while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(5ms);
        return condition();
    }
};

struct Case {
    const char* name;
    std::uint32_t tunnel;
    std::uint64_t id;
    HeaderBytes header, other;   ///< the latter has another id
};

std::vector<Case> all_tunnels() {
    return {{"vxlan", vxlan_port, 5, test::vxlan(5), test::vxlan(6)},
            {"geneve", geneve_port, 5, geneve(5), geneve(6)},
            {"gre with a key", gre_port, 7, test::gre(test::outer_ipv4(47)), test::gre(test::outer_ipv4(47), 0)},
            {"gre without", gre_port, 0, test::gre(test::outer_ipv4(47), 0), test::gre(test::outer_ipv4(47))}};
}

TEST_F(SoftNicTunnels, TakesFramesOutAndCountsThemOnceOutsideAndOnceInside) {
    for (const Case& each : all_tunnels()) {
        SCOPED_TRACE(each.name);
        const Ufid outer{1, 1}, inner{1, 2};
        put(outer, parent(each.tunnel));
        MegaflowBuilder flow = child(each.tunnel, each.id);
        if (each.id == 0) flow.tunnel_flags(0);
        put(inner, flow.eth_type(experimental_type).output(2));
        const FrameBytes bytes = inside(each.header, frame(3));
        EXPECT_EQ(from_wire(bytes), std::vector<FrameBytes>{frame(3)});
        EXPECT_EQ(from_wire(bytes), std::vector<FrameBytes>{frame(3)});
        // Another id, another type inside: up from the tunnel's table, as they came.
        const TableKey table{0, each.tunnel};
        EXPECT_EQ(misses(inside(each.other, frame(3))), std::optional(table));
        EXPECT_EQ(misses(inside(each.header, frame(3, 0x88b6))), std::optional(table));
        expect_counted(inner, 2, 2 * frame_size);
        expect_counted(outer, 4, 2 * bytes.size() + each.other.size() + each.header.size() + 2 * frame_size);
    }
}

TEST_F(SoftNicTunnels, TakesThemOutOfIpv6WhereTheirBytesAreKnown) {
    const std::pair<std::uint32_t, HeaderBytes> cases[] = {
        {vxlan_port, test::vxlan_over(test::outer_ipv6(17))},
        {geneve_port, geneve(5, std::nullopt, test::outer_ipv6(17))},
        {gre_port, test::gre(test::outer_ipv6(47))}};
    for (const auto& [tunnel, header] : cases) {
        put({1, 1}, parent(tunnel, true));
        const ovsdr_megaflow flow =
            child(tunnel, tunnel == gre_port ? 7 : 5).over_ipv6().eth_type(experimental_type).output(2);
        if (counts_outer()) {
            EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 2}, flow)));
            EXPECT_EQ(why_not({1, 2}), "device limit: bytes of packets from a tunnel over IPv6 "
                                       "(the device counts headers of unknown size with them)");
        } else {
            put({1, 2}, flow);
            EXPECT_EQ(from_wire(inside(header, frame(3))), std::vector<FrameBytes>{frame(3)}) << tunnel;
            expect_counted({1, 2}, 1, frame_size);
        }
        eswitch_->flush(std::nullopt);
    }
}

/// A tunnel's header with another byte, and whether OVS takes the Ethernet frame out of that, too.
struct OddHeader {
    const char* name;
    HeaderBytes header;
    std::size_t at;
    std::uint8_t byte;
    bool taken;
};

TEST_F(SoftNicTunnels, TakesFramesOutOfThoseHeadersOnlyThatOvsReadsSo) {
    const HeaderBytes vxlan = test::vxlan(5), gre = test::gre(test::outer_ipv4(47));
    const OddHeader cases[] = {
        {"VXLAN without the I flag", vxlan, 42, 0x00, false},
        {"GPE, whatever is inside", vxlan, 42, 0x0C, false},
        {"a reserved flag of VXLAN", vxlan, 42, 0x18, false},
        {"GBP", vxlan, 42, 0x88, false},
        {"the second byte of VXLAN", vxlan, 43, 0x80, false},
        {"the third", vxlan, 44, 0x01, false},
        {"a next protocol without P", vxlan, 45, 0x03, false},
        {"the byte behind the VNI", vxlan, 49, 0x01, false},
        {"VXLAN", vxlan, 42, 0x08, true},
        {"another version of Geneve", geneve(5), 42, 0x40, false},
        {"IPv4 in Geneve", geneve(5), 44, 0x08, false},
        {"Geneve's C flag", geneve(5), 43, 0x40, true},
        {"its reserved bits", geneve(5), 43, 0x3F, true},
        {"the byte behind Geneve's VNI", geneve(5), 49, 0xFF, true},
        {"routing in GRE", gre, 34, 0x60, false},
        {"a reserved bit of GRE", gre, 34, 0x28, false},
        {"another version of GRE", gre, 35, 0x01, false},
        {"IPv4 in GRE", gre, 36, 0x08, false},
        {"GRE", gre, 34, 0x20, true},
    };
    for (const std::uint32_t tunnel : {vxlan_port, geneve_port, gre_port}) {
        put({tunnel, 1}, parent(tunnel));
        put({tunnel, 2}, child(tunnel, tunnel == gre_port ? 7 : 5).eth_type(experimental_type).output(2));
    }
    for (const OddHeader& each : cases) {
        SCOPED_TRACE(each.name);
        HeaderBytes header = each.header;
        header[each.at] = each.byte;
        const FrameBytes bytes = inside(header, frame(3));
        const bool seen = profile() != "connectx-5" || header[37] == (4789 & 0xFF);
        if (each.taken) {
            EXPECT_EQ(from_wire(bytes), std::vector<FrameBytes>{frame(3)});
        } else if (seen) {
            EXPECT_EQ(misses(bytes), in_table(0, 0)) << "where no megaflow has counted it";
        } else {
            EXPECT_NE(misses(bytes), in_table(0, 0)) << "the named difference (docs/tunnels.md)";
            port(2).wire->collect(1, 20ms);
        }
    }
}

TEST_F(SoftNicTunnels, LooksAtTheOuterAndTheInnerHeaders) {
    put({1, 1}, parent(vxlan_port));
    MegaflowBuilder flow = child(vxlan_port, 5);
    flow.raw().tunnel_key.tos = 0xB8;
    flow.raw().tunnel_key.ttl = 64, flow.raw().tunnel_mask.ttl = 0xFF;
    flow.raw().tunnel_key.be_tp_src = htobe16(50000), flow.raw().tunnel_mask.be_tp_src = 0xFFFF;
    flow.ipv4().proto(17).ports(1000, 2000);
    flow.raw().key.ip_ttl = 33, flow.raw().mask.ip_ttl = 0xFF;
    flow.raw().key.src[0] = 10, flow.raw().mask.src[0] = 0xFF;
    put({1, 2}, flow.output(2));
    const auto bytes = [](unsigned tos, unsigned ttl, unsigned source, const Ipv4& inner) {
        HeaderBytes header = test::vxlan(5);
        header[15] = static_cast<std::uint8_t>(tos);
        header[22] = static_cast<std::uint8_t>(ttl);
        header[29] = static_cast<std::uint8_t>(source);
        return inside(header, ipv4(inner));
    };
    const Ipv4 right{.ttl = 33};
    EXPECT_EQ(from_wire(bytes(0xB8, 64, 1, right)), std::vector<FrameBytes>{ipv4(right)});
    const auto table = in_table(0, vxlan_port);
    EXPECT_EQ(misses(bytes(0xB9, 64, 1, right)), table);
    EXPECT_EQ(misses(bytes(0xBC, 64, 1, right)), table);
    EXPECT_EQ(misses(bytes(0xB8, 63, 1, right)), table);
    EXPECT_EQ(misses(bytes(0xB8, 64, 3, right)), table);
    EXPECT_EQ(misses(bytes(0xB8, 64, 1, {.ttl = 64})), table);
    EXPECT_EQ(misses(bytes(0xB8, 64, 1, {.source_port = 1001, .ttl = 33})), table);
    EXPECT_EQ(misses(bytes(0xB8, 64, 1, {.fragment = 0x2000, .ttl = 33})), table);
    FrameBytes other_port = bytes(0xB8, 64, 1, right);
    other_port[35] ^= 1;   // UDP source
    EXPECT_EQ(misses(other_port), table);
}

/// OVS drops a packet whose outer header has options: none is taken out here.
TEST_F(SoftNicTunnels, LeavesOuterHeadersWithOptionsToOvs) {
    put({1, 1}, parent(vxlan_port));
    put({1, 2}, child(vxlan_port, 5).eth_type(experimental_type).output(2));
    FrameBytes bytes = inside(test::vxlan(5), frame(3));
    bytes.insert(bytes.begin() + 34, {1, 1, 1, 1});
    bytes[14] = 0x46;
    bytes[17] = static_cast<std::uint8_t>(bytes[17] + 4);
    EXPECT_EQ(misses(bytes), in_table(0, vxlan_port));
}

TEST_F(SoftNicTunnels, EndsOfConnectionsInsideGoUp) {
    put({1, 1}, parent(geneve_port));
    put({1, 2}, child(geneve_port, 5).ipv4().proto(6).output(2));
    const Ipv4 fin{.protocol = 6, .tcp_flags = 0x11}, data{.protocol = 6, .tcp_flags = 0x18};
    EXPECT_EQ(misses(inside(geneve(5), ipv4(fin))), in_table(0, geneve_port));
    EXPECT_EQ(from_wire(inside(geneve(5), ipv4(data))), std::vector<FrameBytes>{ipv4(data)});
}

TEST_F(SoftNicTunnels, MatchesAnOptionUnderItsMask) {
    put({1, 1}, parent(geneve_port));
    const Ufid first{1, 2}, second{1, 3};
    put(first, child(geneve_port, 5).option(option_class, option_type, 0x30001, 0x7FFFFFFF)
                   .eth_type(experimental_type).output(2));
    put(second, child(geneve_port, 5).option(option_class, option_type, 0x30002, 0x7FFFFFFF)
                    .eth_type(experimental_type).output(3));
    const FrameBytes one = inside(geneve(5, 0x80030001), frame(1)), two = inside(geneve(5, 0x30002), frame(2));
    EXPECT_EQ(from_wire(one), std::vector<FrameBytes>{frame(1)});
    EXPECT_EQ(from_wire(two, 3), std::vector<FrameBytes>{frame(2)});
    const auto table = in_table(0, geneve_port);
    EXPECT_EQ(misses(inside(geneve(5, 0x30003), frame(1))), table);
    EXPECT_EQ(misses(inside(geneve(5), frame(1))), table) << "no option";
    EXPECT_EQ(misses(inside(geneve(5, 0x30001, test::outer_ipv4(17), 0x103), frame(1))), table) << "another's";
    HeaderBytes longer = geneve(5, 0x30001);
    longer[42] = 3;
    test::append(longer, {9, 9, 9, 0});
    EXPECT_EQ(misses(inside(longer, frame(1))), table) << "one more";
    expect_counted(first, 1, frame_size);
    expect_counted(second, 1, frame_size);
}

/// A device has one option at a time.
TEST_F(SoftNicTunnels, AMegaflowWithAnotherOptionWaitsUntilTheFirstHasGone) {
    put({1, 1}, parent(geneve_port));
    put({1, 2}, child(geneve_port, 5).option(option_class, option_type, 1).eth_type(experimental_type).output(2));
    const ovsdr_megaflow other =
        child(geneve_port, 5).option(0x103, option_type, 1).eth_type(experimental_type).output(3);
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 3}, other)));
    EXPECT_EQ(why_not({1, 3}), "device limit: tun_metadata (the device looks for another Geneve option, and has one at "
                               "a time)");
    const FrameBytes bytes = inside(geneve(5, 1, test::outer_ipv4(17), 0x103), frame(1));
    EXPECT_EQ(misses(bytes), in_table(0, geneve_port));
    (void)eswitch_->del(Ufid{1, 2});
    EXPECT_TRUE(becomes([] { return eswitch_->explain({1, 3})->offloaded; }));
    EXPECT_EQ(from_wire(bytes, 3), std::vector<FrameBytes>{frame(1)});
}

/// An option that is not there is 0 to the device, too: where that does not tell the two apart, software does.
TEST_F(SoftNicTunnels, TellsAnOptionOfZeroFromNone) {
    put({1, 1}, parent(geneve_port));
    const ovsdr_megaflow flow =
        child(geneve_port, 5).option(option_class, option_type, 0).eth_type(experimental_type).output(2);
    if (profile() == "connectx-5") {
        EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 2}, flow)));
        EXPECT_EQ(why_not({1, 2}), "device limit: tun_metadata=0 (an option that is not there is 0, too)");
        return;
    }
    put({1, 2}, flow);
    EXPECT_EQ(from_wire(inside(geneve(5, 0), frame(1))), std::vector<FrameBytes>{frame(1)});
    EXPECT_EQ(misses(inside(geneve(5, 0, test::outer_ipv4(17), 0x103), frame(1))),
              in_table(0, geneve_port));
}

TEST_F(SoftNicTunnels, MatchesTagsInside) {
    put({1, 1}, parent(vxlan_port));
    put({1, 2}, child(vxlan_port, 5).eth_type(experimental_type).vlan(7, 0x88a8).second_vlan(8).output(2));
    FrameBytes twice = tagged(6, 8);
    const std::uint8_t outer_tag[] = {0x88, 0xa8, 0x00, 0x07};
    twice.insert(twice.begin() + 12, outer_tag, outer_tag + 4);
    EXPECT_EQ(from_wire(inside(test::vxlan(5), twice)), std::vector<FrameBytes>{twice});
    twice[19] = 9;
    EXPECT_EQ(misses(inside(test::vxlan(5), twice)), in_table(0, vxlan_port));
    EXPECT_EQ(misses(inside(test::vxlan(5), tagged(6, 7))), in_table(0, vxlan_port));
    expect_counted({1, 2}, 1, twice.size());
}

TEST_F(SoftNicTunnels, ChangesWhatItTookOut) {
    put({1, 1}, parent(vxlan_port));
    const Ufid popped{1, 2}, written{1, 3}, pushed{1, 4};
    put(popped, child(vxlan_port, 5).eth_type(experimental_type).vlan(7).pop().output(2));
    put(written, child(vxlan_port, 6).ipv4().proto(17).set(OVSDR_HEADER_IP_TTL, {9})
                     .set(OVSDR_HEADER_UDP_DST, {0x12, 0x34}).output(2));
    EXPECT_EQ(from_wire(inside(test::vxlan(5), tagged(4, 7))), std::vector<FrameBytes>{frame(4)});
    const auto changed = from_wire(inside(test::vxlan(6), ipv4({})));
    ASSERT_EQ(changed.size(), 1U);
    EXPECT_EQ(changed[0], ipv4({.destination_port = 0x1234, .ttl = 9}));
    expect_counted(popped, 1, frame_size + 4);
    expect_counted(written, 1, frame_size);
    const ovsdr_megaflow push = child(vxlan_port, 7).eth_type(experimental_type).push(8).output(2);
    if (profile() == "connectx-5") {
        EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put(pushed, push)));
        EXPECT_EQ(why_not(pushed), "device limit: push_vlan onto packets from the wire");
        return;
    }
    put(pushed, push);
    EXPECT_EQ(from_wire(inside(test::vxlan(7), frame(4))), std::vector<FrameBytes>{tagged(4, 8)});
    expect_counted(pushed, 1, frame_size);
}

TEST_F(SoftNicTunnels, CopiesWithAndWithoutChanges) {
    put({1, 1}, parent(vxlan_port));
    put({1, 2}, child(vxlan_port, 5).eth_type(experimental_type).output(2)
                    .set(OVSDR_HEADER_ETH_SRC, {2, 0, 0, 0, 0, 1}).output(3));
    EXPECT_EQ(from_wire(inside(test::vxlan(5), frame(4)), 3), std::vector<FrameBytes>{frame(4)});
    EXPECT_EQ(port(2).wire->collect(2, 200ms), std::vector<FrameBytes>{frame(4)});
    expect_counted({1, 2}, 1, frame_size);
}

TEST_F(SoftNicTunnels, DropsAndCountsWhatWasInside) {
    put({1, 1}, parent(vxlan_port));
    put({1, 2}, child(vxlan_port, 5).eth_type(experimental_type));
    EXPECT_TRUE(from_wire(inside(test::vxlan(5), frame(4))).empty());
    EXPECT_TRUE(port(uplink).queue->receive(0).empty());
    expect_counted({1, 2}, 1, frame_size);
}

TEST_F(SoftNicTunnels, RecirculatesWithinTheTunnelAndMissesThereAsItCame) {
    put({1, 1}, parent(geneve_port));
    put({1, 2}, child(geneve_port, 5).eth_type(experimental_type).output(3).recirc(4));
    const FrameBytes bytes = inside(geneve(5), frame(4));
    EXPECT_EQ(misses(bytes), in_table(4, geneve_port));
    EXPECT_EQ(port(3).wire->collect(2, 200ms), std::vector<FrameBytes>{frame(4)}) << "the copy";
    put({1, 3}, child(geneve_port, 5).behind(4).eth_type(experimental_type).output(2));
    // The same recirc_id of packets that come through no tunnel is another table.
    put({1, 4}, MegaflowBuilder(uplink).eth_type(experimental_type).recirc(4));
    port(uplink).wire->send(frame(9));
    const auto up = went_up(port(uplink), 1);
    ASSERT_EQ(up.size(), 1U);
    EXPECT_EQ(eswitch_->table_of(up[0].second), in_table(4, 0));
    EXPECT_EQ(from_wire(bytes), std::vector<FrameBytes>{frame(4)});
    expect_counted({1, 3}, 1, frame_size);
    expect_counted({1, 2}, 2, 2 * frame_size);
    expect_counted({1, 1}, 2, 2 * bytes.size());
}

TEST_F(SoftNicTunnels, AChildWaitsForAParentAndOutlivesIt) {
    const FrameBytes bytes = inside(test::vxlan(5), frame(4));
    const ovsdr_megaflow flow = child(vxlan_port, 5).eth_type(experimental_type).output(2);
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 2}, flow)));
    EXPECT_EQ(eswitch_->explain({1, 2}, {{OdpPort{vxlan_port}, "vxlan_sys_4789"}})->text,
              "recirculation: in_port is a tunnel port (no megaflow in the NIC leads there): vxlan_sys_4789");
    for (int round = 0; round < 3; ++round) {
        put({1, 1}, parent(vxlan_port));
        EXPECT_TRUE(becomes([] { return eswitch_->explain({1, 2})->offloaded; }));
        EXPECT_EQ(from_wire(bytes), std::vector<FrameBytes>{frame(4)});
        (void)eswitch_->del(Ufid{1, 1});
        EXPECT_TRUE(eswitch_->explain({1, 2})->offloaded) << "it lies in the table";
        EXPECT_EQ(misses(bytes), in_table(0, 0)) << "and nothing leads there";
    }
    expect_counted({1, 2}, 3, 3 * frame_size);
}

/// The device does not see the flags in which they differ.
TEST_F(SoftNicTunnels, OfTwoThatCoincideTheSecondComesInWhenTheFirstHasGone) {
    put({1, 1}, parent(vxlan_port));
    put({1, 2}, child(vxlan_port, 5).eth_type(experimental_type).output(2));
    const ovsdr_megaflow second = child(vxlan_port, 5).tunnel_flags(OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_CSUM)
                                      .eth_type(experimental_type).output(3);
    EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 3}, second)));
    EXPECT_EQ(why_not({1, 3}), "device limit: tun_flags (another megaflow differs in nothing that the device sees)");
    const FrameBytes bytes = inside(test::vxlan(5), frame(4));
    EXPECT_EQ(from_wire(bytes), std::vector<FrameBytes>{frame(4)});
    // Changed in place, it keeps its match.
    put({1, 2}, child(vxlan_port, 5).eth_type(experimental_type).output(1));
    EXPECT_EQ(from_wire(bytes, 1), std::vector<FrameBytes>{frame(4)});
    EXPECT_FALSE(eswitch_->explain({1, 3})->offloaded);
    (void)eswitch_->del(Ufid{1, 2});
    EXPECT_TRUE(becomes([] { return eswitch_->explain({1, 3})->offloaded; }));
    EXPECT_EQ(from_wire(bytes, 3), std::vector<FrameBytes>{frame(4)});
}

TEST_F(SoftNicTunnels, AUserMayAskForTheFlags) {
    put({1, 1}, parent(vxlan_port));
    put({1, 2}, child(vxlan_port, 5).eth_type(experimental_type).output(2));
    eswitch_->choose({.exact_tunnel_flags = true});
    EXPECT_EQ(why_not({1, 2}), "device limit: tun_flags (other_config:dr-tunnel-flags=exact)");
    EXPECT_EQ(misses(inside(test::vxlan(5), frame(4))), in_table(0, vxlan_port));
    const bool seen = profile() != "connectx-5";
    EXPECT_EQ(std::holds_alternative<std::monostate>(eswitch_->put({2, 1}, parent(gre_port))), seen);
    if (!seen) {
        EXPECT_EQ(why_not({2, 1}), "device limit: tnl_pop of GRE, whose reserved bits the device does not see "
                                   "(other_config:dr-tunnel-flags=exact)");
    }
    eswitch_->choose({});
    EXPECT_TRUE(eswitch_->explain({1, 2})->offloaded);
    EXPECT_TRUE(eswitch_->explain({2, 1})->offloaded);
}

TEST_F(SoftNicTunnels, ATunnelPortThatGoesTakesItsMegaflowsOut) {
    put({1, 1}, parent(vxlan_port));
    put({1, 2}, child(vxlan_port, 5).eth_type(experimental_type).output(2));
    const FrameBytes bytes = inside(test::vxlan(5), frame(4));
    EXPECT_EQ(from_wire(bytes), std::vector<FrameBytes>{frame(4)});
    eswitch_->remove_tunnel_port(OdpPort{vxlan_port});
    EXPECT_EQ(misses(bytes), in_table(0, 0));
    EXPECT_FALSE(eswitch_->explain({1, 2})->offloaded);
    eswitch_->set_tunnel_port({OdpPort{vxlan_port}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
    EXPECT_TRUE(becomes([] { return eswitch_->explain({1, 2})->offloaded; }));
    EXPECT_EQ(from_wire(bytes), std::vector<FrameBytes>{frame(4)});
}

TEST_F(SoftNicTunnels, PopsTheUnderlaysTagFirst) {
    const ovsdr_megaflow outer = [] {
        MegaflowBuilder flow(uplink);
        flow.ipv4().vlan(11).proto(17).ports(0, 4789);
        flow.raw().mask.be_tp_src = 0;
        return flow.pop().tunnel_pop(vxlan_port);
    }();
    put({1, 1}, outer);
    put({1, 2}, child(vxlan_port, 5).eth_type(experimental_type).output(2));
    FrameBytes bytes = inside(test::vxlan(5), frame(4));
    const FrameBytes untagged = bytes;
    bytes.insert(bytes.begin() + 12, {0x81, 0x00, 0x00, 0x0b});
    EXPECT_EQ(from_wire(bytes), std::vector<FrameBytes>{frame(4)});
    EXPECT_EQ(misses(untagged), in_table(0, 0));
    expect_counted({1, 2}, 1, frame_size);
    expect_counted({1, 1}, 1, bytes.size());
}

TEST_F(SoftNicTunnels, PutsWhatItTookOutIntoAnotherTunnel) {
    put({1, 1}, parent(vxlan_port));
    HeaderBytes header = test::gre(test::outer_ipv4(47));
    const FrameBytes ours = frame(0);
    std::copy_n(ours.begin(), 12, header.begin());
    const ovsdr_megaflow flow = child(vxlan_port, 5).eth_type(experimental_type).tunnel(header).output(2);
    if (profile() == "connectx-5") {
        EXPECT_TRUE(std::holds_alternative<Reject>(eswitch_->put({1, 2}, flow)));
        return;
    }
    put({1, 2}, flow);
    EXPECT_EQ(from_wire(inside(test::vxlan(5), frame(4))), std::vector<FrameBytes>{inside(header, frame(4))});
    expect_counted({1, 2}, 1, frame_size);
}

}  // namespace
}  // namespace ovsdr::dr
