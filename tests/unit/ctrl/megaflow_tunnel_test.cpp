// A tnl_push's header, as it reaches offload/, against the packets that OVS makes with it.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "netlink_attribute.hpp"
#include "ovs_probe.h"

namespace megaflow_tunnel {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t ethernet = 14, ipv4 = 20, ipv6 = 40;
constexpr std::uint8_t udp = 17;

const std::string ethernet_4 = "eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x0800),";
const std::string ethernet_6 = "eth(dst=f8:bc:12:44:34:b6,src=f8:bc:12:46:58:e0,dl_type=0x86dd),";

std::string outer_4(int proto, const std::string& more = "tos=0,ttl=64,frag=0x4000") {
    return ethernet_4 + "ipv4(src=1.1.2.88,dst=1.1.2.92,proto=" + std::to_string(proto) + "," + more + "),";
}

std::string outer_6(int proto) {
    return ethernet_6 + "ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto=" + std::to_string(proto) +
           ",tclass=0x2,hlimit=64),";
}

std::string tunnel_push(int size, int type, const std::string& headers) {
    return "tnl_push(tnl_port(4),header(size=" + std::to_string(size) + ",type=" + std::to_string(type) + "," +
           headers + "),out_port(1))";
}

struct Case {
    const char* name;
    std::string text;
    std::size_t size;
};

std::vector<Case> cases() {
    return {
        {"vxlan",
         tunnel_push(50, 4, outer_4(17) + "udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x1c7)"), 50},
        {"vxlan with tos and ttl",
         tunnel_push(50, 4, outer_4(17, "tos=0xb9,ttl=3,frag=0x0") +
                                "udp(src=0,dst=8472,csum=0x0),vxlan(flags=0x8000000,vni=0x1)"), 50},
        {"geneve", tunnel_push(50, 5, outer_4(17) + "udp(src=0,dst=6081,csum=0x0),geneve(oam,vni=0x1c7)"), 50},
        {"geneve with an option",
         tunnel_push(58, 5, outer_4(17) + "udp(src=0,dst=6081,csum=0x0),geneve(crit,vni=0x1c7,"
                                          "options({class=0xffff,type=0x80,len=4,0xa}))"), 58},
        {"gre", tunnel_push(42, 3, outer_4(47) + "gre((flags=0x2000,proto=0x6558),key=0x1e241)"), 42},
        {"gre without a key", tunnel_push(38, 3, outer_4(47) + "gre((flags=0x0,proto=0x6558))"), 38},
        {"gre over IPv6", tunnel_push(62, 109, outer_6(47) + "gre((flags=0x2000,proto=0x6558),key=0x1e241)"), 62},
        {"vxlan over IPv6",
         tunnel_push(70, 4, outer_6(17) + "udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x1c7)"), 70},
    };
}

ovsdr_megaflow from_bytes(const Bytes& actions) {
    ovsdr_megaflow megaflow{};
    probe_actions(actions.data(), actions.size(), &megaflow);
    return megaflow;
}

Bytes bytes_of(const std::string& text) {
    Bytes actions(4096);
    actions.resize(probe_actions_bytes(text.c_str(), actions.data(), actions.size()));
    return actions;
}

void put(Bytes& bytes, std::size_t at, std::size_t value) {
    bytes[at] = static_cast<std::uint8_t>(value >> 8);
    bytes[at + 1] = static_cast<std::uint8_t>(value);
}

/// What the device sends with this header, but for the UDP source port (0).
Bytes reformatted(const Bytes& header, const Bytes& inner) {
    Bytes frame = header;
    frame.insert(frame.end(), inner.begin(), inner.end());
    const bool v6 = frame[12] == 0x86;
    const std::size_t l4 = ethernet + (v6 ? ipv6 : ipv4);
    if (v6) {
        put(frame, ethernet + 4, frame.size() - l4);
    } else {
        put(frame, ethernet + 2, frame.size() - ethernet);
        put(frame, ethernet + 10, 0);
        std::uint32_t sum = 0;
        for (std::size_t i = ethernet; i < l4; i += 2) sum += static_cast<std::uint32_t>(frame[i] << 8 | frame[i + 1]);
        while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
        put(frame, ethernet + 10, ~sum & 0xFFFF);
    }
    if (frame[v6 ? ethernet + 6 : ethernet + 9] == udp) {
        put(frame, l4, 0);
        put(frame, l4 + 4, frame.size() - l4);
        put(frame, l4 + 6, 0);
    }
    return frame;
}

TEST(MegaflowTunnel, TheHeaderMakesThePacketThatOvsMakes) {
    std::mt19937 random(1);
    for (const Case& each : cases()) {
        const Bytes actions = bytes_of(each.text);
        const ovsdr_megaflow megaflow = from_bytes(actions);
        ASSERT_EQ(megaflow.n_actions, 1u) << each.name;
        ASSERT_EQ(megaflow.actions[0].type, OVSDR_ACTION_TUNNEL_PUSH) << each.name;
        const ovsdr_tunnel_push& push = megaflow.actions[0].tunnel_push;
        ASSERT_EQ(push.header_size, each.size) << each.name;
        const Bytes header(push.header, push.header + push.header_size);
        for (int round = 0; round < 200; ++round) {
            Bytes inner(14 + random() % 1500);
            for (std::uint8_t& byte : inner) byte = static_cast<std::uint8_t>(random());
            Bytes expected(4096);
            expected.resize(probe_tunnel_push(each.text.c_str(), inner.data(), inner.size(), expected.data(),
                                              expected.size()));
            ASSERT_EQ(expected.size(), header.size() + inner.size()) << each.name;
            const bool v6 = expected[12] == 0x86;
            if (expected[v6 ? 20 : 23] == udp) {
                const std::size_t port = v6 ? 54 : 34;
                EXPECT_NE(expected[port], 0) << "a source port of OVS's";
                put(expected, port, 0);
            }
            ASSERT_EQ(reformatted(header, inner), expected) << each.name;
        }
    }
}

TEST(MegaflowTunnel, KnowsTheSourcePortsThatOvsTakes) {
    const Bytes actions = bytes_of(cases()[0].text);
    EXPECT_EQ(from_bytes(actions).actions[0].tunnel_push.udp_source_first, 32768);
    EXPECT_EQ(from_bytes(actions).actions[0].tunnel_push.udp_source_end, 61000);
    probe_tunnel_source_ports(40000, 40100);
    EXPECT_EQ(from_bytes(actions).actions[0].tunnel_push.udp_source_first, 40000);
    EXPECT_EQ(from_bytes(actions).actions[0].tunnel_push.udp_source_end, 40100);
    probe_tunnel_source_ports(32768, 61000);
}

TEST(MegaflowTunnel, CarriesThePortOfTheUnderlay) {
    for (const std::uint32_t port : {1U, 70'000U}) {
        std::string text = cases()[0].text;
        text.replace(text.rfind("out_port("), std::string::npos, "out_port(" + std::to_string(port) + "))");
        const Bytes actions = bytes_of(text);
        EXPECT_EQ(from_bytes(actions).actions[0].tunnel_push.out_port, port);
    }
}

TEST(MegaflowTunnel, NamesThoseWhoseHeadersOvsWritesAnewForEachPacket) {
    constexpr std::size_t type_at = 4 + 12;   // behind netlink's header and three numbers
    const std::pair<std::uint32_t, const char*> types[] = {
        {107, "tnl_push of ERSPAN"}, {108, "tnl_push of ERSPAN"}, {110, "tnl_push of GTP-U"},
        {0, "tnl_push of another tunnel"}, {0xFFFFFFFF, "tnl_push of another tunnel"}};
    for (const auto& [type, name] : types) {
        Bytes actions = bytes_of(cases()[0].text);
        std::memcpy(&actions[type_at], &type, sizeof type);
        const ovsdr_megaflow megaflow = from_bytes(actions);
        ASSERT_EQ(megaflow.actions[0].type, OVSDR_ACTION_UNSUPPORTED) << type;
        EXPECT_STREQ(megaflow.actions[0].unsupported, name);
    }
}

TEST(MegaflowTunnel, AHeaderThatIsNotThereIsMalformed) {
    const Bytes whole = bytes_of(cases()[0].text);
    constexpr std::size_t length_at = 4 + 8, before = 16;
    const auto is_malformed = [](const Bytes& actions) {
        const ovsdr_megaflow megaflow = from_bytes(actions);
        return megaflow.n_actions == 1 && megaflow.actions[0].type == OVSDR_ACTION_UNSUPPORTED &&
               std::string(megaflow.actions[0].unsupported) == "malformed";
    };
    for (const std::uint32_t length : {51u, 52u, 53u, 512u, 513u, 0x10000u, 0xFFFFFFFFu}) {
        Bytes actions = whole;
        std::memcpy(&actions[length_at], &length, sizeof length);
        EXPECT_TRUE(is_malformed(actions)) << length;
    }
    for (std::size_t size = 0; size < before; ++size) {
        const std::string cut = attribute(probe_tunnel_push_attribute, std::string(size, '\0'));
        EXPECT_TRUE(is_malformed({cut.begin(), cut.end()})) << size;
    }
    // More than OVS ever makes, and all there.
    std::string payload(before + 600, '\0');
    const std::uint32_t type = 4, length = 600;
    std::memcpy(&payload[8], &length, sizeof length);
    std::memcpy(&payload[12], &type, sizeof type);
    const std::string many = attribute(probe_tunnel_push_attribute, payload);
    EXPECT_TRUE(is_malformed({many.begin(), many.end()}));
}

}  // namespace
}  // namespace megaflow_tunnel
