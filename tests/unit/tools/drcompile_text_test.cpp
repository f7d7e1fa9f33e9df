// Whether drcompile understands what OVS prints, and says what it does not understand.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>

#include "tests/unit/paths.hpp"
#include "tests/unit/tools/dump_probe.h"
#include "tools/drcompile/dump_line.hpp"
#include "tools/drcompile/input.hpp"

namespace ovsdr::drcompile {
namespace {

std::vector<std::string> real_lines() {
    std::ifstream file(test::source_folder + "/tests/unit/tools/data/ovn_megaflows.txt");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with('#')) lines.push_back(line);
    }
    EXPECT_GT(lines.size(), 40U);
    return lines;
}

TEST(DumpLine, IsTakenApart) {
    const auto line = take_apart(
        "ufid:2c3a9c2e-5d0a-4f3e-9f3c-0a1b2c3d4e5f, recirc_id(0x7),in_port(vm1),eth(src=02:00:00:00:00:01), "
        "packets:12, bytes:98, used:0.4s, flags:SFP., offloaded:yes, dp:dr, "
        "actions:set(eth(src=1)),vm2, dp-extra-info:bits(4,1)");
    ASSERT_TRUE(line);
    EXPECT_EQ(line->ufid, "2c3a9c2e-5d0a-4f3e-9f3c-0a1b2c3d4e5f");
    EXPECT_EQ(line->match, "recirc_id(0x7),in_port(vm1),eth(src=02:00:00:00:00:01)");
    EXPECT_EQ(line->packets, 12U);
    EXPECT_EQ(line->actions, "set(eth(src=1)),vm2");
}

TEST(DumpLine, MayHaveNoStatistics) {
    const auto line = take_apart("  in_port(1),eth(), actions:drop\r");
    ASSERT_TRUE(line);
    EXPECT_EQ(line->ufid, "");
    EXPECT_EQ(line->match, "in_port(1),eth()");
    EXPECT_EQ(line->packets, std::nullopt);
    EXPECT_EQ(line->actions, "drop");
}

TEST(DumpLine, MayHoldNoMegaflow) {
    for (const char* text : {"", "  \t\r", "# scenario", "flow-dump from the main thread:",
                             "flow-dump from pmd on cpu core: 3"}) {
        EXPECT_FALSE(take_apart(text)) << text;
    }
}

TEST(DumpLine, SaysWhatIsWrong) {
    const std::pair<const char*, const char*> cases[] = {
        {"in_port(1),eth()", "no \"actions:\""},
        {"actions:1", "no match"},
        {"in_port(1,eth(), actions:1", "a parenthesis that nothing closes: \"in_port(1,eth(), \""},
        {"in_port(1)),eth(), actions:1", "a parenthesis too many: \"in_port(1))\""},
        {"in_port(1), packets:x, actions:1", "not a number: \"x\""},
        {"in_port(1), colour:red, actions:1", "unknown: \"colour:red\""},
        {"in_port(1), eth, actions:1", "neither a match nor a value: \"eth\""},
    };
    for (const auto& [text, what] : cases) {
        try {
            (void)take_apart(text);
            FAIL() << text;
        } catch (const BadLine& bad) {
            EXPECT_STREQ(bad.what(), what);
        }
    }
}

/// Ports that are called by their numbers, or vm1, vm2, ...
bool read_number(void*, const char* text, std::size_t length, ovsdr_port_role, std::uint32_t* number) {
    std::string name(text, length);
    if (name.starts_with("vm")) name.erase(0, 2);
    char* end = nullptr;
    *number = static_cast<std::uint32_t>(std::strtoul(name.c_str(), &end, 10));
    return !name.empty() && *end == '\0';
}
const ovsdr_dump_reader by_number{read_number, nullptr, 1};

struct Printed {
    std::string text, error;
};

Printed printed(const std::string& actions) {
    char* error = nullptr;
    const std::unique_ptr<char, decltype(&std::free)> text(probe_print_actions(actions.c_str(), &by_number, &error),
                                                           std::free);
    const std::unique_ptr<char, decltype(&std::free)> owner(error, std::free);
    return {text ? text.get() : "", error != nullptr ? error : ""};
}

TEST(DumpText, ActionsAreThoseThatOvsPrinted) {
    const char* const cases[] = {
        "drop", "1", "1,2,3", "recirc(0x7)", "1,recirc(0xffffffff)", "hash(l4(0)),recirc(0x1)", "hash(sym_l4(5)),1",
        "push_vlan(vid=5,pcp=3),1", "push_vlan(tpid=0x88a8,vid=5,pcp=0),pop_vlan,1", "push_vlan(vid=5,pcp=0,cfi=0),1",
        "set(eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02)),set(ipv4(ttl=63)),1", "set(ipv4(tos=0xb8/0xfc)),1",
        "set(ipv6(hlimit=63)),set(ipv6(src=fe80::1,dst=fe80::2)),1", "set(tcp(src=80)),set(udp(dst=53)),1",
        "clone(1),2", "clone(push_vlan(vid=5,pcp=0),1,clone(2,recirc(0x3))),4", "clone(drop),1", "1,drop",
        "check_pkt_len(size=1500,gt(drop),le(1))", "check_pkt_len(size=40000,gt(1,recirc(0x2)),le(clone(3),drop)),4",
        "sample(sample=25.0%,actions(userspace(pid=0,userdata(0102030405060708)),2)),3",
        "sample(sample=100.0%,actions(drop)),3",
        "sample(sample=0.0%,actions(1))", "meter(0),1", "trunc(64),1", "lb_output(3)", "tnl_pop(6)",
        "push_mpls(label=16,tc=1,ttl=64,bos=1,eth_type=0x8847),1", "pop_mpls(eth_type=0x800),1",
        "push_eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),1", "pop_eth,1", "ct_clear,1", "ct", "ct,1",
        "ct(commit,zone=4,mark=0/0x1,nat(src=10.0.0.1)),recirc(0x2)", "clone(ct(commit),2),1",
        "userspace(pid=0,slow_path(action))", "userspace(pid=0,ipfix(output_port=3),tunnel_out_port=6)",
        "userspace(pid=7,flow_sample(probability=1,collector_set_id=2,obs_domain_id=3,obs_point_id=4,output_port=5))",
    };
    for (const std::string actions : cases) {
        const Printed found = printed(actions);
        EXPECT_EQ(found.text, actions) << found.error;
    }
}

TEST(DumpText, RealActionsAreThoseThatOvsPrinted) {
    for (const std::string& line : real_lines()) {
        std::string actions = take_apart(line)->actions;
        for (const auto& [name, number] : {std::pair{"genev_sys_6081", "100"}, {"vxlan_sys_4789", "101"},
                                           {"br-ex", "102"}, {"uplink", "103"}, {"vm1", "1"}, {"vm2", "2"},
                                           {"vm3", "3"}, {"vm4", "4"}}) {
            for (std::size_t at = 0; (at = actions.find(name)) != std::string::npos;) {
                actions.replace(at, std::string(name).size(), number);
            }
        }
        const Printed found = printed(actions);
        EXPECT_EQ(found.text, actions) << found.error;
    }
}

TEST(DumpText, PortsHaveNamesInListsToo) {
    const std::string tunnel = "),header(size=50,type=4,eth(dst=02:00:00:00:00:01,src=02:00:00:00:00:02,"
                               "dl_type=0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,"
                               "frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x3)),out_port(";
    const std::pair<std::string, std::string> cases[] = {
        {"vm1,vm2", "1,2"},
        {"clone(vm1,clone(vm2),vm3),vm4", "clone(1,clone(2),3),4"},
        {"sample(sample=1.0%,actions(vm1)),vm2", "sample(sample=1.0%,actions(1)),2"},
        {"check_pkt_len(size=9,gt(vm1),le(vm2))", "check_pkt_len(size=9,gt(1),le(2))"},
        {"tnl_pop(vm6)", "tnl_pop(6)"},
        {"clone(tnl_push(tnl_port(vm6" + tunnel + "vm2)),vm3),vm4",
         "clone(tnl_push(tnl_port(6" + tunnel + "2)),3),4"},
        {"userspace(pid=0,slow_path(action),tunnel_out_port=vm6)",
         "userspace(pid=0,slow_path(action),tunnel_out_port=6)"},
    };
    for (const auto& [names, numbers] : cases) {
        const Printed with_names = printed(names), with_numbers = printed(numbers);
        EXPECT_NE(with_names.text, "") << with_names.error;
        EXPECT_EQ(with_names.text, with_numbers.text);
    }
}

TEST(DumpText, AnEmptyListIsPrintedAsADrop) {
    for (const bool with_drop : {false, true}) {
        const std::unique_ptr<char, decltype(&std::free)> text(probe_print_empty_clone(with_drop), std::free);
        EXPECT_STREQ(text.get(), "clone(drop)");
    }
}

TEST(DumpText, SaysWhichActionItDoesNotUnderstand) {
    const std::pair<std::string, std::string> cases[] = {
        {"", "not an action: \"\""},
        {"1,,2", "not an action: \"\""},
        {"1,eth9,2", "neither a port nor an action: \"eth9\""},
        {"1,ct(zone=x),2", "not an action: \"ct(zone=x)\""},
        {"recirc(0x7", "not an action: \"recirc(0x7\""},
        {"recirc(0x7x)", "not an action: \"recirc(0x7x)\""},
        {"hash(l5(0)),1", "not an action: \"hash(l5(0))\""},
        {"1)", "a parenthesis too many: \")\""},
        {"clone(1", "a list that ends in another way than it should: \"\""},
        {"clone(1))", "a parenthesis too many: \")\""},
        {"clone()", "not an action: \"\""},
        {"tnl_pop(eth9)", "not a port: \"eth9\""},
        {"sample(sample=101.0%,actions(1))", "not an action: \"sample(sample=101.0%,actions(1))\""},
        {"sample(sample=1.0%,actions(1)", "a list that ends in another way than it should: \")\""},
        {"check_pkt_len(size=70000,gt(1),le(2))", "not a packet's length: \"check_pkt_len(size=70000\""},
        {"check_pkt_len(size=7,gt(1),lt(2))", "a list that ends in another way than it should: \"),lt(2))\""},
        {"set(eth(src=1)),1", "not an action: \"set(eth(src=1))\""},
        {"bogus(1)", "not an action: \"bogus(1)\""},
        {"recirc(0x100000001)", "not an action: \"recirc(0x100000001)\""},
        {"pop_mpls(eth_type=0x10800)", "not an action: \"pop_mpls(eth_type=0x10800)\""},
        {"push_mpls(label=1048576,tc=0,ttl=64,bos=1,eth_type=0x8847)",
         "not an action: \"push_mpls(label=1048576,tc=0,ttl=64,bos=1,eth_type=0x8847)\""},
    };
    for (const auto& [actions, error] : cases) {
        const Printed found = printed(actions);
        EXPECT_EQ(found.text, "") << actions;
        EXPECT_EQ(found.error, error);
    }
}

TEST(DumpText, ListsAreNestedOnlySoDeep) {
    const auto nested = [](std::size_t depth) {
        std::string text;
        for (std::size_t i = 0; i < depth; ++i) text += "clone(";
        return text + "1" + std::string(depth, ')');
    };
    EXPECT_EQ(printed(nested(32)).text, nested(32));
    EXPECT_EQ(printed(nested(33)).error, "nested too deep: \"1" + std::string(33, ')') + "\"");
    EXPECT_NE(printed(nested(100'000)).error, "");
}

TEST(DumpText, AListMayBeTooLongForItsAttribute) {
    std::string many = "1";
    for (int i = 0; i < 10'000; ++i) many += ",1";
    EXPECT_EQ(printed(many).text, many);
    EXPECT_NE(printed("clone(" + many + ")").error, "");
    EXPECT_NE(printed("sample(sample=1.0%,actions(" + many + "))").error, "");
    EXPECT_NE(printed("check_pkt_len(size=1,gt(" + many + "),le(1))").error, "");
}

struct MatchCase {
    const char *match, *error;
};

TEST(DumpText, SaysWhatIsWrongWithAMatch) {
    const MatchCase cases[] = {
        {"in_port(eth9),eth()", "not a port: \"eth9\""},
        {"in_port(1),eth(src=1)", "syntax error at eth(src=1)"},
        {"in_port(1),bogus(1)", "syntax error at bogus(1)"},
        // OVS passes over what such packets do not have, and matches more than was asked for.
        {"in_port(1),eth(),eth_type(0x0800),ipv6(proto=6)", "a match on fields that such packets do not have"},
        {"in_port(1),eth(),eth_type(0x0800),ipv4(proto=17,frag=no),tcp(src=5)",
         "a match on fields that such packets do not have"},
    };
    for (const MatchCase& one : cases) {
        ovsdr_megaflow megaflow;
        char* error = nullptr;
        void* storage = nullptr;
        EXPECT_FALSE(megaflow_from_text(one.match, "drop", &by_number, &megaflow, &storage, &error)) << one.match;
        EXPECT_EQ(storage, nullptr);
        const std::unique_ptr<char, decltype(&std::free)> owner(error, std::free);
        EXPECT_STREQ(error, one.error);
    }
}

TEST(DumpText, TagsAreParsedUpToTheLimitOfTheSwitch) {
    const char* const match = "in_port(1),eth(),eth_type(0x88a8),vlan(vid=5,pcp=0),encap(eth_type(0x8100),"
                              "vlan(vid=6,pcp=0),encap(eth_type(0x1234)))";
    for (const int limit : {0, 1, 2}) {
        const ovsdr_dump_reader reader{read_number, nullptr, limit};
        ovsdr_megaflow megaflow;
        void* storage = nullptr;
        char* error = nullptr;
        EXPECT_EQ(megaflow_from_text(match, "drop", &reader, &megaflow, &storage, &error), limit != 1);
        if (limit != 1) {
            EXPECT_EQ(megaflow.key.vlan_limit, 2);
            EXPECT_EQ(megaflow.key.be_vlan_tci[1], 0x0610);   // VID 6 and OVS's mark of presence
        }
        std::free(storage);
        std::free(error);
    }
}

ovsdr_megaflow read(const std::string& match) {
    ovsdr_megaflow megaflow;
    char* error = nullptr;
    void* storage = nullptr;
    const bool done = megaflow_from_text(match.c_str(), "drop", &by_number, &megaflow, &storage, &error);
    EXPECT_TRUE(done) << match << ": " << error;
    std::free(storage);
    std::free(error);
    return megaflow;
}

TEST(DumpText, AMatchIsThatOfTheFlow) {
    const auto megaflow = read("recirc_id(0x7),in_port(vm5),packet_type(ns=0,id=0),eth(dst=02:00:00:00:00:02),"
                               "eth_type(0x0800),ipv4(dst=10.0.0.0/255.0.0.0,proto=6,frag=no),tcp(dst=80)");
    EXPECT_EQ(megaflow.key.in_port, 5U);
    EXPECT_EQ(megaflow.mask.in_port, UINT32_MAX);
    EXPECT_EQ(megaflow.key.recirc_id, 7U);
    EXPECT_EQ(megaflow.mask.dst[0], 0xFF);
    EXPECT_EQ(megaflow.mask.dst[1], 0);
    EXPECT_EQ(megaflow.mask.eth_src[0], 0);
    EXPECT_EQ(megaflow.unsupported_match.bits, 0U);
}

TEST(DumpText, AMatchWithoutTagsAsksForNone) {
    EXPECT_NE(read("in_port(1),eth(),eth_type(0x1234)").mask.be_vlan_tci[0], 0);
    const auto tagged = read("in_port(1),eth(),eth_type(0x8100),vlan(vid=5,pcp=0/0x0),encap(eth_type(0x1234))");
    EXPECT_EQ(tagged.mask.be_vlan_tci[0], 0xFF1F);   // VID and presence, not the PCP
}

// Errors or megaflows: never the end of the program.
TEST(DumpText, BrokenLinesBreakNothing) {
    const auto lines = real_lines();
    std::mt19937 random(1);
    const auto below = [&](std::size_t limit) {
        return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
    };
    const std::string symbols = "(),:=/x%{}- \t0123456789abcdef";
    Input input({});
    for (int i = 0; i < 20'000; ++i) {
        std::string line = lines[below(lines.size())];
        for (std::size_t changes = 1 + below(3); changes-- > 0;) {
            const std::size_t at = below(line.size());
            switch (below(4)) {
                case 0: line[at] = symbols[below(symbols.size())]; break;
                case 1: line.erase(at, 1 + below(8)); break;
                case 2: line.insert(at, line.substr(below(line.size()), 1 + below(30))); break;
                default: line[at] = static_cast<char>(1 + below(255));
            }
        }
        std::istringstream stream(line);
        input.read(stream, "broken");
    }
    EXPECT_GT(input.faults().size(), 10'000U);
    EXPECT_GT(input.megaflows().size(), 300U);
}

}  // namespace
}  // namespace ovsdr::drcompile
