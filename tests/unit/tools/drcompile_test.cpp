// Which vports drcompile takes ports for, which megaflows a NIC would have, and how they are counted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "offload/dr/device/device.hpp"
#include "tools/drcompile/profiles.hpp"
#include "tools/drcompile/report.hpp"

namespace ovsdr::drcompile {
namespace {

constexpr dr::DeviceCaps usual = profiles[1].caps;

/// "vm1=1 uplink=65535 br-int=none", as the ports come in the input.
std::string ports_of(const std::string& dump, PortWishes wishes = {}) {
    Input input(std::move(wishes));
    std::istringstream stream(dump);
    input.read(stream, "dump");
    EXPECT_TRUE(input.faults().empty()) << text_of(input.faults().front());
    input.ports().assign();
    std::string text;
    for (const Ports::Port& port : input.ports().all()) {
        text += (text.empty() ? "" : " ") + port.text + "=" + (port.vport ? std::to_string(port.vport->value) : "none");
        const dr::PortMap::Port* mapped = input.ports().map().find(port.odp_port);
        EXPECT_EQ(mapped != nullptr, port.vport.has_value()) << port.text;
        if (mapped != nullptr) {
            EXPECT_EQ(mapped->vport, port.vport);
        }
    }
    return text;
}

std::string flow(const std::string& in_port, const std::string& actions, const std::string& recirc_id = "0") {
    return fmt::format("recirc_id({}),in_port({}),eth(),eth_type(0x1234), actions:{}\n", recirc_id, in_port, actions);
}

TEST(Ports, AreVportsInTheOrderOfTheInput) {
    EXPECT_EQ(ports_of(flow("vm7", "vm3,9") + flow("9", "vm3,uplink")), "vm7=1 vm3=2 9=3 uplink=65535");
}

TEST(Ports, OfTunnelsAndBridgesAreNoVports) {
    EXPECT_EQ(ports_of(flow("genev_sys_6081", "vm1") + flow("gre_sys", "vm1") + flow("br-int", "br0,ovs-netdev,0,vm2")),
              "genev_sys_6081=none vm1=1 gre_sys=none br-int=none br0=none ovs-netdev=none 0=none vm2=2");
    EXPECT_EQ(ports_of(flow("1", "tnl_pop(6)") + flow("6", "2")), "1=1 6=none 2=2");
    EXPECT_EQ(ports_of(flow("1", "tnl_push(tnl_port(6),header(size=50,type=4,eth(dst=02:00:00:00:00:01,"
                                 "src=02:00:00:00:00:02,dl_type=0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,"
                                 "ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),vxlan(flags=0x8000000,vni=0x3)),"
                                 "out_port(5)),2") + flow("5", "2")),
              "1=1 6=none 5=none 2=2");
}

TEST(Ports, AreWhatIsSaidOfThem) {
    PortWishes wishes{{{"br-int", {2}}, {"vm2", dr::uplink_vport}, {"3", {1}}}, {"tap*", "vm1"}};
    EXPECT_EQ(ports_of(flow("vm1", "vm2,vm3,tap7") + flow("br-int", "3,uplink"), wishes),
              "vm1=none vm2=65535 vm3=3 tap7=none br-int=2 3=1 uplink=4");
    EXPECT_EQ(ports_of(flow("tap1", "vm2"), {{{"tap1", {1}}}, {"tap*"}}), "tap1=1 vm2=2");
}

TEST(Ports, HaveNumbersThatPortsCanHave) {
    Ports ports({});
    EXPECT_EQ(ports.number_of("7", OVSDR_PORT_ANY), dr::OdpPort{7});
    EXPECT_EQ(ports.number_of("7", OVSDR_PORT_ANY), dr::OdpPort{7});
    EXPECT_EQ(ports.number_of("4294967295", OVSDR_PORT_ANY), dr::OdpPort{UINT32_MAX});
    EXPECT_EQ(ports.number_of("4294967294", OVSDR_PORT_ANY), std::nullopt);
    EXPECT_EQ(ports.number_of("99999999999", OVSDR_PORT_ANY), std::nullopt);
    EXPECT_EQ(ports.number_of("", OVSDR_PORT_ANY), std::nullopt);
    const auto named = ports.number_of("7up", OVSDR_PORT_ANY);
    EXPECT_EQ(ports.number_of("7up", OVSDR_PORT_ANY), named);
    EXPECT_NE(ports.number_of("8up", OVSDR_PORT_ANY), named);
    EXPECT_EQ(ports.all().size(), 3U);
    EXPECT_EQ(ports.names().at(*named), "7up");
}

TEST(Ports, MayNotBeMoreThanVports) {
    Ports ports({});
    for (int i = 0; i < 65'280; ++i) (void)ports.number_of("vm" + std::to_string(i), OVSDR_PORT_ANY);
    EXPECT_THROW(ports.assign(), std::runtime_error);
}

TEST(Ports, AreSaidAsNameAndVport) {
    EXPECT_EQ(parse_wish("vm1=3"), (std::pair<std::string, dr::VportId>("vm1", {3})));
    EXPECT_EQ(parse_wish("a=b=65279"), (std::pair<std::string, dr::VportId>("a=b", {65279})));
    EXPECT_EQ(parse_wish("p0=uplink"), (std::pair<std::string, dr::VportId>("p0", dr::uplink_vport)));
    EXPECT_EQ(parse_wish("p0=65535"), (std::pair<std::string, dr::VportId>("p0", dr::uplink_vport)));
    for (const char* text : {"vm1", "=3", "vm1=", "vm1=0", "vm1=65280", "vm1=x", "vm1=3x", "vm1=-1"}) {
        EXPECT_THROW((void)parse_wish(text), std::invalid_argument) << text;
    }
}

/// Each megaflow's level, or what is in its way.
std::vector<std::string> verdicts_of(const std::string& dump, const dr::DeviceCaps& caps = usual) {
    Input input({});
    std::istringstream stream(dump);
    input.read(stream, "dump");
    EXPECT_TRUE(input.faults().empty());
    input.ports().assign();
    std::vector<std::string> texts;
    for (const Verdict& verdict : offload_all(input.values(), input.ports().map(), caps)) {
        EXPECT_NE(verdict.plan.has_value(), !verdict.obstacles.empty());
        texts.push_back(verdict.plan ? fmt::format("level {}", verdict.level)
                                     : dr::text_of({verdict.obstacles}, input.ports().names()));
    }
    return texts;
}

using Texts = std::vector<std::string>;

TEST(Recirculations, LeadToTables) {
    EXPECT_EQ(verdicts_of(flow("vm1", "vm2,recirc(0x7)") + flow("vm1", "recirc(0x8)", "0x7") +
                          flow("vm1", "vm3", "0x8")),
              (Texts{"level 1", "level 9", "level 17"}));
}

TEST(Recirculations, MayComeBeforeWhatLeadsThere) {
    EXPECT_EQ(verdicts_of(flow("vm1", "vm3", "0x8") + flow("vm1", "recirc(0x8)", "0x7") + flow("vm1", "recirc(0x7)")),
              (Texts{"level 17", "level 9", "level 1"}));
}

TEST(Recirculations, NeedAMegaflowInTheNicThatLeadsThere) {
    EXPECT_EQ(verdicts_of(flow("vm1", "vm2", "0x7") + flow("vm1", "ct_clear,recirc(0x7)")),
              (Texts{"recirculation: recirc_id=0x7 (no megaflow in the NIC leads there)",
                     "unsupported action: ct_clear"}));
    EXPECT_EQ(verdicts_of(flow("vm1", "recirc(0x8)", "0x7") + flow("vm1", "recirc(0x7)", "0x8")),
              (Texts{"recirculation: recirc_id=0x7 (no megaflow in the NIC leads there)",
                     "recirculation: recirc_id=0x8 (no megaflow in the NIC leads there)"}));
}

TEST(Recirculations, DoNotGoBack) {
    EXPECT_EQ(verdicts_of(flow("vm1", "recirc(0x7)") + flow("vm1", "recirc(0x8)", "0x7") +
                          flow("vm1", "recirc(0x7)", "0x8")),
              (Texts{"level 1", "level 9", "recirculation: recirc=0x7 (its table lies before this one)"}));
}

TEST(Recirculations, DoNotGoAside) {
    EXPECT_EQ(verdicts_of(flow("vm1", "recirc(0x7)") + flow("vm2", "recirc(0x8)") +
                          flow("vm1", "recirc(0x8)", "0x7") + flow("vm1", "vm2", "0x8")),
              (Texts{"level 1", "level 1", "recirculation: recirc=0x8 (its table lies before this one)", "level 9"}));
}

TEST(Recirculations, AreNotTooManyInARow) {
    std::string dump;
    for (int i = 0; i < 8; ++i) dump += flow("vm1", fmt::format("recirc({:#x})", i + 1), fmt::format("{:#x}", i));
    const Texts found = verdicts_of(dump);
    EXPECT_EQ(found[5], "level 41");
    EXPECT_EQ(found[6], "recirculation: recirc=0x7 (too many of them in a row)");
    EXPECT_EQ(found[7], "recirculation: recirc_id=0x7 (no megaflow in the NIC leads there)");
}

TEST(Profiles, DifferInWhatTheyTake) {
    const std::string dump = "in_port(vm1),eth(),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x1234)), "
                             "actions:pop_vlan,vm2\n";
    EXPECT_EQ(verdicts_of(dump, profiles[0].caps), Texts{"device limit: pop_vlan of packets from a vport"});
    EXPECT_EQ(verdicts_of(dump, profiles[1].caps), Texts{"level 1"});
    EXPECT_EQ(verdicts_of(dump, profiles[2].caps), Texts{"level 1"});
}

struct Compiled {
    explicit Compiled(const std::string& dump) : input({{}, {"other"}}) {
        std::istringstream stream(dump);
        input.read(stream, "dump");
        input.ports().assign();
        verdicts = offload_all(input.values(), input.ports().map(), usual);
    }
    [[nodiscard]] Report report() const { return {"cx6dx", input, verdicts}; }

    Input input;
    std::vector<Verdict> verdicts;
};

std::string with_packets(std::string line, int packets) {
    return line.insert(line.find(" actions:"), fmt::format(" packets:{}, bytes:0, used:never,", packets));
}

TEST(Summaries, CountEachMegaflowUnderEachOfItsReasons) {
    const Compiled compiled(with_packets(flow("vm1", "vm2"), 70) + with_packets(flow("vm2", "vm1"), 5) +
                            with_packets(flow("vm1", "ct,meter(0),ct,vm2"), 10) + with_packets(flow("vm1", "ct"), 5) +
                            with_packets(flow("other", "other"), 10));
    EXPECT_EQ(ports_text(compiled.report()),
              "profile: cx6dx\n"
              "dr ports: vm1 = vport 1, vm2 = vport 2\n"
              "other ports: other\n");
    EXPECT_EQ(summary_text(summary_of(compiled.report())),
              "megaflows: 5, offloaded: 2 (40.0 %)\n"
              "packets: 100, of offloaded megaflows: 75 (75.0 %)\n"
              "one that is not offloaded is counted under each of its reasons; \"only\": it has no other\n"
              "       all       only    packets  megaflows\n"
              "         2          1         15  unsupported action: ct\n"
              "         1          0         10  in_port not offloaded: in_port is no dr port of this device\n"
              "         1          0         10  output not offloaded: "
              "output to a port that is no dr port of this device\n"
              "         1          0         10  unsupported action: meter\n");
}

TEST(Summaries, ReasonsWithOtherValuesAreOne) {
    const Compiled compiled(flow("vm1", "vm1") + flow("vm2", "vm2"));
    const Summary summary = summary_of(compiled.report());
    ASSERT_EQ(summary.rows.size(), 1U);
    EXPECT_EQ(summary.rows[0].detail, "output to the in_port");
    EXPECT_EQ(summary.rows[0].all.megaflows, 2U);
    EXPECT_EQ(summary.rows[0].only, 2U);
    const Summary twice = summary_of(Compiled(flow("vm1", "br-int,br-ex")).report());
    ASSERT_EQ(twice.rows.size(), 1U);
    EXPECT_EQ(twice.rows[0].all.megaflows, 1U);
    EXPECT_EQ(twice.rows[0].only, 1U);
}

TEST(Summaries, MayHaveNothingToCount) {
    EXPECT_EQ(summary_text(summary_of(Compiled("").report())), "megaflows: 0, offloaded: 0 (none)\n");
}

TEST(Reports, SayWhatDoesNotFit) {
    const Compiled compiled("\n" + flow("vm1", "vm1,ct,9") + flow("9", "nonsense(1)"));
    EXPECT_EQ(megaflows_text(compiled.report()),
              "dump:2: not offloaded\n"
              "  output not offloaded: output to the in_port: vm1\n"
              "  unsupported action: ct\n");
    ASSERT_EQ(compiled.input.faults().size(), 1U);
    EXPECT_EQ(text_of(compiled.input.faults()[0]), "dump:3: not an action: \"nonsense(1)\"");
}

TEST(Reports, HoldTheHeadersOfTunnels) {
    const Compiled compiled(flow("vm1", "tnl_push(tnl_port(6),header(size=50,type=4,eth(dst=02:00:00:00:00:01,"
                                        "src=02:00:00:00:00:02,dl_type=0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,"
                                        "tos=0,ttl=64,frag=0x4000),udp(src=0,dst=4789,csum=0x0),"
                                        "vxlan(flags=0x8000000,vni=0x3)),out_port(5)),vm2"));
    const std::string text = megaflows_text(compiled.report());
    EXPECT_NE(text.find("encapsulate 0200000000010200000000020800"), std::string::npos) << text;
    EXPECT_NE(text.find("0800000000000300, dest_vport 2\n"), std::string::npos) << text;
}

TEST(Reports, HoldTheProgram) {
    const Compiled compiled("ufid:00000000-0000-0000-0000-000000000001, " + flow("vm1", "vm2,recirc(0x7)"));
    const std::string match = "{ethertype=0x1234, cvlan_tag=0x0, source_port=0x1}",
                      actions = "count, dest_array [dest_vport 2, dest_table recirc_id 0x7]";
    EXPECT_EQ(megaflows_text(compiled.report()),
              "dump:1: ufid:00000000-0000-0000-0000-000000000001 offloaded\n"
              "  FDB table of recirc_id 0x0, level 1: " + match + "\n  actions: " + actions + "\n");
    const auto json = json_of(compiled.report(), true);
    EXPECT_EQ(json["megaflows"],
              (nlohmann::json{{{"file", "dump"}, {"line", 1}, {"ufid", "00000000-0000-0000-0000-000000000001"},
                               {"offloaded", true}, {"table", {{"recirc_id", 0}, {"level", 1}}}, {"match", match},
                               {"actions", actions}}}));
    EXPECT_FALSE(json_of(compiled.report(), false).contains("megaflows"));
}

}  // namespace
}  // namespace ovsdr::drcompile
