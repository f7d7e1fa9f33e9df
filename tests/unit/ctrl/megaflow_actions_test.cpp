// What of a datapath flow's actions reaches offload/.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "netlink_attribute.hpp"
#include "ovs_probe.h"

namespace {

ovsdr_megaflow from_actions(const std::string& text) {
    ovsdr_megaflow megaflow{};
    EXPECT_TRUE(probe_actions_text(text.c_str(), &megaflow)) << text;
    return megaflow;
}

std::string number(std::uint32_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
std::string output(std::uint32_t port) { return attribute(probe_output, number(port)); }
std::string drop() { return attribute(probe_drop, number(0)); }

ovsdr_megaflow from_bytes(const std::string& bytes) {
    const std::vector<char> aligned(bytes.begin(), bytes.end());
    ovsdr_megaflow megaflow{};
    probe_actions(aligned.data(), aligned.size(), &megaflow);
    return megaflow;
}

const char* field_names[] = {"eth_dst", "eth_src", "ip_src",  "ip_dst",  "ipv6_src", "ipv6_dst",
                             "ip_tos",  "ip_ttl",  "tcp_src", "tcp_dst", "udp_src",  "udp_dst"};
constexpr int field_sizes[] = {6, 6, 4, 4, 16, 16, 1, 1, 2, 2, 2, 2};

std::string hex(const std::uint8_t* bytes, int size) {
    std::string text;
    for (int i = 0; i < size; ++i) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", bytes[i]);
        text += digits;
    }
    return text;
}

std::string text_of(const ovsdr_set& set) {
    const int size = field_sizes[set.field];
    for (int i = size; i < 16; ++i) EXPECT_EQ(set.value[i] | set.mask[i], 0) << "behind the field";
    const std::string mask = hex(set.mask, size);
    std::string text = std::string(field_names[set.field]) + "=" + hex(set.value, size);
    if (mask.find_first_not_of('f') != std::string::npos) text += "/" + mask;
    return text;
}

std::string text_of(const ovsdr_action& action) {
    switch (action.type) {
        case OVSDR_ACTION_OUTPUT: return std::to_string(action.output);
        case OVSDR_ACTION_PUSH_VLAN: return "push";
        case OVSDR_ACTION_POP_VLAN: return "pop";
        case OVSDR_ACTION_SET: return text_of(action.set);
        case OVSDR_ACTION_TUNNEL_PUSH: return "tunnel of " + std::to_string(action.tunnel_push.header_size);
        case OVSDR_ACTION_TUNNEL_POP: return "pop into " + std::to_string(action.tunnel_port);
        case OVSDR_ACTION_RECIRC: return "recirc " + std::to_string(action.recirc_id);
        case OVSDR_ACTION_COPY_BEGIN: return "{";
        case OVSDR_ACTION_COPY_END: return "}";
        case OVSDR_ACTION_METER: return "meter " + std::to_string(action.meter);
        case OVSDR_ACTION_SOFTWARE: return "software " + std::to_string(action.software.actions_size);
        case OVSDR_ACTION_UNSUPPORTED: return std::string("no ") + action.unsupported;
    }
    return "?";
}

/// All actions, in a row.
std::string text_of(const ovsdr_megaflow& megaflow) {
    std::string text;
    for (std::uint32_t i = 0; i < megaflow.n_actions && i < OVSDR_MAX_ACTIONS; ++i) {
        if (i != 0) text += " ";
        text += text_of(megaflow.actions[i]);
    }
    return text;
}

TEST(MegaflowActions, CarriesOutputsAndTagsInOrder) {
    const auto megaflow = from_actions("1,push_vlan(vid=12,pcp=3),2,pop_vlan,push_vlan(tpid=0x88a8,vid=5,pcp=0),3");
    ASSERT_EQ(megaflow.n_actions, 6u);
    EXPECT_EQ(megaflow.actions[0].type, OVSDR_ACTION_OUTPUT);
    EXPECT_EQ(megaflow.actions[0].output, 1u);
    EXPECT_EQ(megaflow.actions[1].type, OVSDR_ACTION_PUSH_VLAN);
    EXPECT_EQ(megaflow.actions[1].push_vlan.be_tpid, htons(0x8100));
    EXPECT_EQ(megaflow.actions[1].push_vlan.be_tci, htons(3 << 13 | 1 << 12 | 12));
    EXPECT_EQ(megaflow.actions[2].output, 2u);
    EXPECT_EQ(megaflow.actions[3].type, OVSDR_ACTION_POP_VLAN);
    EXPECT_EQ(megaflow.actions[4].push_vlan.be_tpid, htons(0x88a8));
    EXPECT_EQ(megaflow.actions[5].output, 3u);
}

TEST(MegaflowActions, NoActionsAndAnExplicitDropAreDrops) {
    EXPECT_EQ(from_actions("drop").n_actions, 0u);
    ovsdr_megaflow megaflow{};
    probe_action(probe_drop, 0, &megaflow);
    EXPECT_EQ(megaflow.n_actions, 0u);
}

TEST(MegaflowActions, EveryOtherActionIsNamedEachByItsOwnName) {
    const std::set<int> known = {probe_output, probe_push_vlan, probe_pop_vlan,   probe_drop,         probe_recirc,
                                 probe_clone,  probe_set,       probe_set_masked, probe_check_pkt_len,
                                 probe_tunnel_pop_attribute, probe_meter, probe_sample};
    std::set<std::string> names;
    int unsupported = 0;
    for (int attribute = 0; attribute <= probe_action_attribute_max; ++attribute) {
        if (known.contains(attribute)) continue;
        ovsdr_megaflow megaflow{};
        probe_action(attribute, 0, &megaflow);
        ASSERT_EQ(megaflow.n_actions, 1u);
        ASSERT_EQ(megaflow.actions[0].type, OVSDR_ACTION_UNSUPPORTED) << "OVS_ACTION_ATTR " << attribute;
        EXPECT_STRNE(megaflow.actions[0].unsupported, "unknown") << "OVS_ACTION_ATTR " << attribute;
        EXPECT_STRNE(megaflow.actions[0].unsupported, "malformed") << "OVS_ACTION_ATTR " << attribute;
        names.insert(megaflow.actions[0].unsupported);
        ++unsupported;
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(unsupported));
}

TEST(MegaflowActions, ConntrackThatMayRewriteHasItsOwnName) {
    EXPECT_EQ(text_of(from_actions("ct,ct(commit,zone=4,mark=1/1),1")), "no ct no ct 1");
    EXPECT_EQ(text_of(from_actions("ct(nat),1")), "no ct(nat) 1") << "of a connection that has been translated before";
    EXPECT_EQ(text_of(from_actions("ct(commit,zone=4,nat(src=10.0.0.1)),recirc(2)").actions[0]), "no ct(nat)");
}

TEST(MegaflowActions, AMeterIsItsNumber) {
    EXPECT_EQ(text_of(from_actions("meter(0),1,meter(262143),2")), "meter 0 1 meter 262143 2");
}

struct ActionCase {
    const char* actions;  // in dpctl's words
    const char* expected;
};

const ActionCase set_cases[] = {
    {"set(eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15))", "eth_src=000102030405 eth_dst=101112131415"},
    {"set(eth(dst=10:11:12:13:14:15))", "eth_dst=101112131415"},
    {"set(eth(src=01:00:00:00:00:00/01:00:00:00:00:00))", "eth_src=010000000000/010000000000"},
    {"set(ipv4(src=1.2.3.4,dst=5.6.7.8,proto=6,tos=0x10,ttl=63,frag=no))",
     "ip_src=01020304 ip_dst=05060708 ip_tos=10 ip_ttl=3f"},
    {"set(ipv4(ttl=63))", "ip_ttl=3f"},
    {"set(ipv4(src=1.2.0.0/255.255.0.0,tos=0x8/0xfc))", "ip_src=01020000/ffff0000 ip_tos=08/fc"},
    {"set(ipv6(src=2001:db8::1,dst=::2/::ffff,tclass=0x20,hlimit=9))",
     "ipv6_src=20010db8000000000000000000000001 "
     "ipv6_dst=00000000000000000000000000000002/0000000000000000000000000000ffff ip_tos=20 ip_ttl=09"},
    {"set(ipv6(hlimit=9)),3", "ip_ttl=09 3"},
    {"set(tcp(src=80,dst=8080))", "tcp_src=0050 tcp_dst=1f90"},
    {"set(tcp(dst=0x10/0xff))", "tcp_dst=0010/00ff"},
    {"set(udp(src=80,dst=8080))", "udp_src=0050 udp_dst=1f90"},
    {"set(udp(src=53)),4", "udp_src=0035 4"},
    // Nothing to be written.
    {"set(ipv4(proto=17,frag=no)),1", "1"},
    {"set(eth(src=00:00:00:00:00:00/00:00:00:00:00:00)),1", "1"},
    {"set(tcp(src=0/0,dst=0/0)),1", "1"},
    // What OVS would write and no header field stands for.
    {"set(ipv6(label=0x12345,hlimit=9))", "no set(ipv6(label)) ip_ttl=09"},
    {"set(ipv6(label=0/0,hlimit=9))", "ip_ttl=09"},
    {"set(ipv6(src=::1,dst=::2,label=0,proto=6,tclass=0,hlimit=9,frag=no))",
     "ipv6_src=00000000000000000000000000000001 ipv6_dst=00000000000000000000000000000002 no set(ipv6(label)) "
     "ip_tos=00 ip_ttl=09"},
    {"set(sctp(src=1,dst=2))", "no set(sctp)"},
    {"set(arp(sip=1.2.3.4))", "no set(arp)"},
    {"set(nd(target=::1)),1", "no set(nd) 1"},
    {"set(skb_mark(1))", "no set(skb_mark)"},
    {"set(skb_priority(1))", "no set(skb_priority)"},
    {"set(mpls(label=1,tc=0,ttl=1,bos=1))", "no set(mpls)"},
    {"set(tunnel(tun_id=0x1,dst=1.1.1.1,ttl=64,flags(key)))", "no set(tunnel)"},
    {"add_mpls(label=16,tc=1,ttl=64,bos=1,eth_type=0x8847),1", "no add_mpls 1"},
};

TEST(MegaflowActions, ASetIsOneActionForEachHeaderFieldThatIsWritten) {
    for (const auto& [actions, expected] : set_cases) EXPECT_EQ(text_of(from_actions(actions)), expected) << actions;
}

TEST(MegaflowActions, ASetOfBitsOutsideItsMaskIsNamed) {
    // OVS would not replace 0x30 of the TTL, but set it.
    EXPECT_EQ(text_of(from_actions("set(ipv4(ttl=0x3f/0x0f))")), "no set of bits outside the mask");
    EXPECT_EQ(text_of(from_actions("set(ipv6(label=0x1/0))")), "no set(ipv6(label))");
}

TEST(MegaflowActions, ASetOfAnythingElseIsNamedWithWhatItSets) {
    const std::set<int> known = {probe_key_ethernet, probe_key_ipv4, probe_key_ipv6, probe_key_tcp, probe_key_udp};
    std::set<std::string> names;
    for (int key = 0; key <= probe_key_attribute_max; ++key) {
        if (known.contains(key)) continue;
        for (const int attribute : {probe_set, probe_set_masked}) {
            ovsdr_megaflow megaflow{};
            probe_action(attribute, key, &megaflow);
            ASSERT_EQ(megaflow.n_actions, 1u);
            ASSERT_EQ(megaflow.actions[0].type, OVSDR_ACTION_UNSUPPORTED);
            EXPECT_STRNE(megaflow.actions[0].unsupported, "set(unknown)") << "OVS_KEY_ATTR " << key;
            names.insert(megaflow.actions[0].unsupported);
        }
    }
    EXPECT_EQ(names.size(), static_cast<std::size_t>(probe_key_attribute_max) + 1 - known.size());
    ovsdr_megaflow later{};
    probe_action(probe_set, static_cast<std::uint16_t>(probe_key_attribute_max + 20), &later);
    EXPECT_EQ(text_of(later), "no set(unknown)");
}

const ActionCase copy_cases[] = {
    {"1,recirc(7)", "1 recirc 7"},
    {"recirc(7),2", "recirc 7 2"},
    {"pop_vlan,tnl_pop(4)", "pop pop into 4"},
    {"clone(tnl_pop(4294967294)),2", "{ pop into 4294967294 } 2"},
    {"clone(1,pop_vlan,2),3", "{ 1 pop 2 } 3"},
    {"clone(set(ipv4(ttl=1)),clone(1),2),3", "{ ip_ttl=01 { 1 } 2 } 3"},
    {"1,clone(2)", "1 { 2 }"},
    {"clone(ct(zone=1),recirc(4)),1", "{ no ct recirc 4 } 1"},
    {"check_pkt_len(size=1500,gt(2,recirc(3)),le(2,recirc(3))),4", "{ 2 recirc 3 } 4"},
    {"check_pkt_len(size=1500,gt(drop),le(drop)),4", "{ } 4"},
    {"check_pkt_len(size=1500,gt(2),le(3)),4", "no check_pkt_len (branches differ) 4"},
    {"check_pkt_len(size=1500,gt(2),le(2,3)),4", "no check_pkt_len (branches differ) 4"},
    {"check_pkt_len(size=1500,gt(2,3),le(2)),4", "no check_pkt_len (branches differ) 4"},
    {"check_pkt_len(size=1500,gt(drop),le(2)),4", "no check_pkt_len (branches differ) 4"},
    {"clone(check_pkt_len(size=9,gt(clone(1)),le(clone(1)))),2", "{ { { 1 } } } 2"},
    {"sample(sample=100.0%,actions(2,pop_vlan)),3", "{ 2 pop } 3"},
};

TEST(MegaflowActions, NestedListsAreCopiesWhereOvsMakesOne) {
    for (const auto& [actions, expected] : copy_cases) EXPECT_EQ(text_of(from_actions(actions)), expected) << actions;
}

// Actions of OVS's, and how many bytes they are.
const std::string to_sflow = "userspace(pid=0,sFlow(vid=0,pcp=0,output=1),actions)";
const std::string to_controller =
    "userspace(pid=0,controller(reason=1,dont_send=0,continuation=0,recirc_id=1,rule_cookie=0,controller_id=0,"
    "max_len=65535))";
const std::string to_slow_path = "userspace(pid=0,slow_path(cfm))";
std::string bytes_of(const std::string& actions) {
    std::string bytes(4096, '\0');
    bytes.resize(probe_actions_bytes(actions.c_str(), reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()));
    EXPECT_FALSE(bytes.empty()) << actions;
    return bytes;
}
std::string sample(std::uint32_t probability, const std::string& list) {
    return attribute(probe_sample,
                     attribute(probe_sample_probability, number(probability)) + attribute(probe_sample_actions, list));
}

/// What software is to do, each work as its bytes, and everything else as text_of() says.
std::vector<std::string> works_of(const std::string& bytes) {
    const std::vector<char> aligned(bytes.begin(), bytes.end());
    ovsdr_megaflow megaflow{};
    probe_actions(aligned.data(), aligned.size(), &megaflow);
    std::vector<std::string> works;
    const std::size_t length = std::min<std::size_t>(megaflow.n_actions, OVSDR_MAX_ACTIONS);
    for (const ovsdr_action& action : std::span(megaflow.actions, length)) {
        if (action.type == OVSDR_ACTION_SOFTWARE) {
            EXPECT_EQ(action.software.one_of, 1u);
            works.emplace_back(reinterpret_cast<const char*>(action.software.actions), action.software.actions_size);
        } else {
            works.push_back(text_of(action));
        }
    }
    return works;
}

TEST(MegaflowActions, UserspaceBesideForwardingIsSoftwaresWork) {
    for (const std::string& userspace : {to_sflow, to_controller}) {
        const std::string work = bytes_of(userspace);
        EXPECT_EQ(works_of(work + output(2)), (std::vector<std::string>{work, "2"})) << userspace;
        EXPECT_EQ(works_of(output(2) + work), (std::vector<std::string>{"2", work})) << userspace;
        EXPECT_EQ(works_of(attribute(probe_clone, work) + output(2)),
                  (std::vector<std::string>{"{", work, "}", "2"}));
    }
}

TEST(MegaflowActions, SoftwareKeepsItsOwnSlowPath) {
    EXPECT_EQ(text_of(from_actions(to_slow_path + ",1")), "no userspace 1");
    EXPECT_EQ(text_of(from_actions("userspace(pid=0),1")), "no userspace 1");
    EXPECT_EQ(text_of(from_actions("userspace(pid=0,userdata(0102030405060708)),1")), "no userspace 1");
}

TEST(MegaflowActions, SoftwaresWorkIsCalledWhatItIs) {
    const std::string userspace = bytes_of(to_controller);
    const std::pair<std::string, const char*> names[] = {{userspace, "userspace"},
                                                         {bytes_of("meter(7)") + userspace, "userspace"},
                                                         {bytes_of("trunc(100)") + userspace, "trunc"},
                                                         {sample(UINT32_MAX / 4, userspace), "sample"}};
    for (const auto& [bytes, name] : names) {
        const std::vector<char> aligned(bytes.begin(), bytes.end());
        ovsdr_megaflow megaflow{};
        probe_actions(aligned.data(), aligned.size(), &megaflow);
        ASSERT_EQ(megaflow.n_actions, 1U) << name;
        ASSERT_EQ(megaflow.actions[0].type, OVSDR_ACTION_SOFTWARE) << name;
        EXPECT_STREQ(megaflow.actions[0].software.name, name);
    }
}

TEST(MegaflowActions, WorkTellsWhomItIsFor) {
    const std::string samplers[][2] = {
        {to_sflow, "sflow"},
        {to_controller, "controller"},
        {"userspace(pid=0,ipfix(output_port=4294967295),actions)", "ipfix"},
        {"userspace(pid=0,flow_sample(probability=65535,collector_set_id=1,obs_domain_id=2,obs_point_id=3,"
         "output_port=4294967295),actions)", "flow_sample"}};
    for (const auto& [actions, sampler] : samplers) {
        const std::string userspace = bytes_of(actions);
        for (const std::string& list : {userspace, bytes_of("meter(7)") + userspace, bytes_of("trunc(100)") + userspace,
                                        sample(UINT32_MAX / 4, userspace)}) {
            const std::vector<char> aligned(list.begin(), list.end());
            ovsdr_megaflow megaflow{};
            probe_actions(aligned.data(), aligned.size(), &megaflow);
            ASSERT_EQ(megaflow.actions[0].type, OVSDR_ACTION_SOFTWARE) << actions;
            EXPECT_STREQ(megaflow.actions[0].software.sampler, sampler.c_str()) << list.size();
        }
    }
    const std::string cut = bytes_of("trunc(100)") + output(1);
    const std::vector<char> aligned(cut.begin(), cut.end());
    ovsdr_megaflow megaflow{};
    probe_actions(aligned.data(), aligned.size(), &megaflow);
    EXPECT_EQ(megaflow.actions[0].software.sampler, nullptr);
}

TEST(MegaflowActions, ATruncatedPacketIsTakenWhereItIsCutAndGoesOnWhole) {
    const std::string cut = bytes_of("trunc(100)"), pushed = bytes_of("push_vlan(vid=5,pcp=0)");
    const std::string sampled = bytes_of(to_sflow);
    EXPECT_EQ(works_of(cut + output(1) + output(2)), (std::vector<std::string>{cut + output(1), "2"}));
    EXPECT_EQ(works_of(output(2) + cut + output(1)), (std::vector<std::string>{"2", cut + output(1)}));
    EXPECT_EQ(works_of(cut + sampled + output(2)), (std::vector<std::string>{cut + sampled, "2"}));
    // It is cut before it gets its tag, and so is the copy; the packet itself gets the tag, too.
    EXPECT_EQ(works_of(cut + pushed + output(1) + output(2)),
              (std::vector<std::string>{cut + pushed + output(1), "push", "2"}));
    EXPECT_EQ(text_of(from_bytes(cut + output(1) + output(2))), "software 16 2");
    // What is cut and then goes on in another way.
    EXPECT_EQ(text_of(from_actions("trunc(100),clone(1),2")), "no trunc { 1 } 2");
    EXPECT_EQ(text_of(from_actions("2,trunc(100),recirc(3)")), "2 no trunc recirc 3");
    EXPECT_EQ(text_of(from_actions("2,trunc(100)")), "2 no trunc");
    EXPECT_EQ(text_of(from_bytes(attribute(probe_trunc, "12") + output(1))), "no trunc 1");
}

TEST(MegaflowActions, ASampleOfOneOfNIsACopyOfSoMany) {
    const std::string sampled = bytes_of(to_sflow);
    for (const std::uint32_t n : {1u, 2u, 3u, 64u, 400u, 1000u, 65535u, 65536u, 1u << 31}) {
        const auto bytes = sample(UINT32_MAX / n, sampled) + output(2);
        const std::vector<char> aligned(bytes.begin(), bytes.end());
        ovsdr_megaflow megaflow{};
        probe_actions(aligned.data(), aligned.size(), &megaflow);
        ASSERT_EQ(text_of(megaflow), "software " + std::to_string(sampled.size()) + " 2") << n;
        EXPECT_EQ(UINT32_MAX / megaflow.actions[0].software.one_of, UINT32_MAX / n);
        EXPECT_EQ(std::memcmp(megaflow.actions[0].software.actions, sampled.data(), sampled.size()), 0);
    }
    for (const std::uint32_t probability : {0u, UINT32_MAX - 1, UINT32_MAX / 2 + 1, UINT32_MAX / 2 - 1, 0x80008000u}) {
        EXPECT_EQ(text_of(from_bytes(sample(probability, sampled) + output(2))),
                  "no sample (its probability is no 1/N) 2");
    }
    EXPECT_EQ(text_of(from_bytes(sample(UINT32_MAX / 2, sampled + output(1)) + output(2))),
              "no sample (of more than userspace) 2");
    EXPECT_EQ(text_of(from_bytes(sample(UINT32_MAX / 2, output(1)) + output(2))),
              "no sample (of more than userspace) 2");
    EXPECT_EQ(text_of(from_bytes(sample(UINT32_MAX, sampled + output(1)) + output(2))),
              "{ software " + std::to_string(sampled.size()) + " 1 } 2");
    EXPECT_EQ(text_of(from_bytes(attribute(probe_sample, "") + output(2))), "no malformed 2");
}

TEST(MegaflowActions, AMeterOfNothingButUserspaceIsSoftwares) {
    const std::string metered = bytes_of("meter(7)") + bytes_of(to_controller);
    EXPECT_EQ(works_of(sample(UINT32_MAX, metered) + output(2)), (std::vector<std::string>{metered, "2"}));
    EXPECT_EQ(works_of(output(2) + metered), (std::vector<std::string>{"2", metered}));
    EXPECT_EQ(works_of(metered + output(2)),
              (std::vector<std::string>{"meter 7", bytes_of(to_controller), "2"})) << "it drops the packet, too";
    EXPECT_EQ(text_of(from_bytes(sample(UINT32_MAX / 9, metered) + output(2))),
              "software " + std::to_string(metered.size()) + " 2");
}

/// What the meter that a work begins with lets pass is the rest of it.
TEST(MegaflowActions, WorkThatBeginsWithAMeterSaysWhatIsBehindIt) {
    const std::string meter = bytes_of("meter(7)"), userspace = bytes_of(to_controller);
    const auto software_of = [](const std::string& bytes) {
        const std::vector<char> aligned(bytes.begin(), bytes.end());
        ovsdr_megaflow megaflow{};
        probe_actions(aligned.data(), aligned.size(), &megaflow);
        EXPECT_EQ(megaflow.actions[0].type, OVSDR_ACTION_SOFTWARE) << text_of(megaflow);
        return megaflow.actions[0].software;
    };
    for (const std::string& list : {sample(UINT32_MAX, meter + userspace) + output(2), meter + userspace}) {
        const ovsdr_software metered = software_of(list);
        EXPECT_EQ(metered.metered_from, meter.size());
        EXPECT_EQ(metered.meter, 7U);
        EXPECT_EQ(metered.actions_size, meter.size() + userspace.size());
    }
    const ovsdr_software two = software_of(sample(UINT32_MAX, bytes_of("meter(8)") + meter + userspace) + output(2));
    EXPECT_EQ(two.metered_from, meter.size());
    EXPECT_EQ(two.meter, 8U);
    EXPECT_EQ(software_of(sample(UINT32_MAX, userspace + meter + userspace) + output(2)).metered_from, 0U);
    const std::string again = meter + userspace + meter + userspace;
    EXPECT_EQ(software_of(sample(UINT32_MAX, again) + output(2)).metered_from, 0U) << "one rate for both";
    EXPECT_EQ(software_of(userspace + output(2)).metered_from, 0U);
    EXPECT_EQ(software_of(bytes_of("trunc(100)") + userspace).metered_from, 0U);
}

/// A storage mirror does without software what is nothing but that.
TEST(MegaflowActions, ATruncatedOutputSaysWhereToAndHowMuch) {
    const auto cut_of = [](const std::string& bytes) {
        const ovsdr_megaflow megaflow = from_bytes(bytes);
        EXPECT_EQ(megaflow.actions[0].type, OVSDR_ACTION_SOFTWARE) << text_of(megaflow);
        return std::pair(megaflow.actions[0].software.cut_at, megaflow.actions[0].software.output);
    };
    const std::pair nothing(0U, 0U);
    EXPECT_EQ(cut_of(bytes_of("trunc(100)") + output(7) + output(2)), std::pair(100U, 7U));
    EXPECT_EQ(cut_of(attribute(probe_trunc, number(3)) + output(7)), std::pair(14U, 7U)) << "OVS leaves a header";
    EXPECT_EQ(cut_of(bytes_of("trunc(100)") + bytes_of("pop_vlan") + output(7)), nothing);
    EXPECT_EQ(cut_of(bytes_of("trunc(100)") + bytes_of(to_controller)), nothing);
    EXPECT_EQ(cut_of(bytes_of(to_controller) + output(7)), nothing);
}

TEST(MegaflowActions, WorkThatIsTooLongStaysInSoftwareByName) {
    std::string cut = bytes_of("trunc(100)"), tags;
    while (cut.size() + tags.size() <= OVSDR_MAX_SOFTWARE_ACTIONS - 8) tags += bytes_of("pop_vlan");
    EXPECT_EQ(works_of(cut + tags + output(1) + output(2)).front(), "no trunc");
    tags.resize(tags.size() - 4);
    EXPECT_EQ(works_of(cut + tags + output(1) + output(2)).front(), cut + tags + output(1));
}

TEST(MegaflowActions, ADropEndsTheListThatItIsIn) {
    EXPECT_EQ(text_of(from_bytes(output(1) + drop() + output(2))), "1");
    EXPECT_EQ(text_of(from_bytes(attribute(probe_clone, output(1) + drop() + output(2)) + output(3))), "{ 1 } 3");
    EXPECT_EQ(text_of(from_bytes(attribute(probe_clone, drop()) + output(3) + drop() + output(4))), "{ } 3");
    EXPECT_EQ(text_of(from_bytes(attribute(probe_clone, "") + output(3))), "{ } 3");
}

TEST(MegaflowActions, AnActionOfALaterReleaseIsUnknownNotACrash) {
    ovsdr_megaflow megaflow{};
    probe_action(probe_action_attribute_max + 20, 0, &megaflow);
    EXPECT_STREQ(megaflow.actions[0].unsupported, "unknown");
}

TEST(MegaflowActions, CountsThoseThatDoNotFit) {
    std::string text = "1";
    for (int i = 1; i < OVSDR_MAX_ACTIONS + 8; ++i) text += ",1";
    const auto megaflow = from_actions(text);
    EXPECT_EQ(megaflow.n_actions, static_cast<std::uint32_t>(OVSDR_MAX_ACTIONS + 8));
    for (const ovsdr_action& action : megaflow.actions) EXPECT_EQ(text_of(action), "1");
}

TEST(MegaflowActions, CountsNestedOnesToo) {
    std::string nested = output(1);
    std::uint32_t count = 1;
    while (count < OVSDR_MAX_ACTIONS + 1u) {
        nested = attribute(probe_clone, nested + output(2));
        count += 3;
        EXPECT_EQ(from_bytes(nested).n_actions, count);
    }
    const auto many = from_bytes(nested);
    EXPECT_EQ(many.actions[0].type, OVSDR_ACTION_COPY_BEGIN);
    // As many as can be there, a header has 16 bits for the length: it does not follow them down.
    std::string deep;
    while (deep.size() < 65500) deep = attribute(probe_clone, deep);
    EXPECT_GT(from_bytes(deep).n_actions, static_cast<std::uint32_t>(OVSDR_MAX_ACTIONS));
    EXPECT_LT(from_bytes(deep).n_actions, 2u * OVSDR_MAX_ACTIONS);
    std::string wide;
    for (int i = 0; i < 16000; ++i) wide += attribute(probe_pop_vlan, "");
    EXPECT_EQ(from_bytes(attribute(probe_clone, wide)).n_actions, 16002u);
}

TEST(MegaflowActions, AttributesOfAWrongSizeAreMalformed) {
    for (const int type : {probe_output, probe_push_vlan, probe_recirc, probe_tunnel_pop_attribute, probe_meter}) {
        for (const std::size_t size : {0, 1, 2, 3, 5, 8, 200}) {
            EXPECT_EQ(text_of(from_bytes(attribute(type, std::string(size, 'x')) + output(1))), "no malformed 1");
        }
    }
    const std::pair<int, std::size_t> keys[] = {
        {probe_key_ethernet, 12}, {probe_key_ipv4, 12}, {probe_key_ipv6, 40}, {probe_key_tcp, 4}, {probe_key_udp, 4}};
    for (const auto& [key, right] : keys) {
        for (std::size_t size = 0; size < 2 * right + 9; ++size) {
            const std::string nested = attribute(key, std::string(size, '\xff'));
            for (const auto& [type, whole] : {std::pair{probe_set, right}, {probe_set_masked, 2 * right}}) {
                const auto megaflow = from_bytes(attribute(type, nested));
                EXPECT_EQ(text_of(megaflow) == "no malformed", size != whole) << "key " << key << ", size " << size;
            }
        }
    }
    EXPECT_EQ(text_of(from_bytes(attribute(probe_set, ""))), "no malformed");
    EXPECT_EQ(text_of(from_bytes(attribute(probe_set_masked, std::string(3, '\0')))), "no malformed");
    EXPECT_EQ(text_of(from_bytes(attribute(probe_set, std::string("\xff\xff\4\0", 4)))), "no malformed");
    EXPECT_EQ(text_of(from_bytes(attribute(probe_check_pkt_len, ""))), "no malformed");
}

TEST(MegaflowActions, WhatFollowsTheLastWholeAttributeIsMalformed) {
    EXPECT_EQ(text_of(from_bytes(output(1) + std::string(3, '\0'))), "1 no malformed");
    EXPECT_EQ(text_of(from_bytes(output(1) + std::string("\xff\xff\1\0", 4))), "1 no malformed");
    EXPECT_EQ(text_of(from_bytes(output(1) + std::string("\3\0\1\0", 4))), "1 no malformed");
    EXPECT_EQ(text_of(from_bytes(attribute(probe_clone, output(1) + std::string("\x9\0\1\0", 4)) + output(2))),
              "{ 1 no malformed } 2");
}

/// Memory that ends where an address space's hole begins.
class Edge {
public:
    Edge() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
        start_ = static_cast<std::uint8_t*>(
            mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        EXPECT_NE(start_, MAP_FAILED);
        EXPECT_EQ(mprotect(start_ + page_, page_, PROT_NONE), 0);
    }
    Edge(const Edge&) = delete;
    Edge& operator=(const Edge&) = delete;
    ~Edge() { munmap(start_, 2 * page_); }

    /// Reads the actions from the hole's edge, or as near as their alignment allows.
    ovsdr_megaflow read(const std::uint8_t* bytes, std::size_t size) const {
        std::uint8_t* const place = start_ + page_ - (size + 3) / 4 * 4;
        std::memcpy(place, bytes, size);
        ovsdr_megaflow megaflow{};
        probe_actions(place, size, &megaflow);
        return megaflow;
    }

private:
    std::size_t page_;
    std::uint8_t* start_;
};

/// All bytes that the megaflow says are there.
void read_headers(const ovsdr_megaflow& megaflow) {
    volatile std::uint8_t sink = 0;
    for (std::uint32_t i = 0; i < megaflow.n_actions && i < OVSDR_MAX_ACTIONS; ++i) {
        if (megaflow.actions[i].type != OVSDR_ACTION_TUNNEL_PUSH) continue;
        const ovsdr_tunnel_push& push = megaflow.actions[i].tunnel_push;
        for (int byte = 0; byte < push.header_size; ++byte) sink = push.header[byte];
    }
    (void)sink;
}

TEST(MegaflowActions, ReadsNothingBehindTheEnd) {
    const Edge edge;
    std::uint8_t whole[1024];
    const std::size_t size = probe_actions_bytes(
        "1,set(eth(src=00:01:02:03:04:05,dst=10:11:12:13:14:15)),set(ipv4(ttl=3)),push_vlan(vid=1,pcp=0),recirc(3),"
        "tnl_push(tnl_port(4),header(size=42,type=3,eth(dst=00:00:00:00:00:02,src=00:00:00:00:00:01,dl_type=0x0800),"
        "ipv4(src=1.1.2.88,dst=1.1.2.92,proto=47,tos=0,ttl=64,frag=0x4000),gre((flags=0x2000,proto=0x6558),key=0x1)),"
        "out_port(1)),"
        "clone(set(udp(src=1,dst=2)),clone(set(ipv6(hlimit=1)),7)),check_pkt_len(size=9,gt(2,set(tcp(src=1))),"
        "le(2,set(tcp(src=1)))),set(tcp(dst=3))",
        whole, sizeof whole);
    ASSERT_GT(size, 100u);
    ASSERT_EQ(text_of(edge.read(whole, size)).find("no "), std::string::npos);
    for (std::size_t length = 0; length < size; ++length) {
        read_headers(edge.read(whole, length));
        // And with each byte, of which some are lengths, as large and as small as can be.
        for (const std::uint8_t value : {0x00, 0x03, 0x05, 0x10, 0xff}) {
            std::uint8_t damaged[sizeof whole];
            std::memcpy(damaged, whole, size);
            damaged[length] = value;
            read_headers(edge.read(damaged, size));
            for (std::size_t shorter = length + 1; shorter < size; shorter += 13) edge.read(damaged, shorter);
        }
    }
}

}  // namespace
