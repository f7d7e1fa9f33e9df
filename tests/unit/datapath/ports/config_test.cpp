#include "datapath/ports/config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/paths.hpp"

namespace ovsdr::soft {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The text of the ConfigError that `content` causes, "" if it causes none.
std::string problem(const std::string& content) {
    try {
        (void)parse_config(content);
        return "";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

std::string with_port(const std::string& port) {
    return R"({"devices": [{"name": "mlx5_0", "ports": [)" + port + "]}]}";
}

std::string with_uplink(const std::string& roce_address) {
    return with_port(R"({"vport": 65535, "dpdk": "net_null", "roce_address": )" + roce_address + "}");
}

TEST(Config, ReadsRoceAddresses) {
    const auto addresses = [](const std::string& text) {
        return parse_config(with_uplink(text)).devices[0].ports[0].roce_addresses;
    };
    EXPECT_TRUE(addresses("null").empty());
    const auto one = addresses(R"("192.0.2.7/24")");
    ASSERT_EQ(one.size(), 1U);
    const std::uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7};
    EXPECT_TRUE(std::equal(std::begin(mapped), std::end(mapped), one[0].address));
    EXPECT_EQ(one[0].prefix, 120);
    const auto two = addresses(R"(["192.0.2.7/32", "2001:db8::9/64"])");
    ASSERT_EQ(two.size(), 2U);
    EXPECT_EQ(two[0].prefix, 128);
    EXPECT_EQ(two[1].prefix, 64);
    EXPECT_EQ(two[1].address[0], 0x20);
    EXPECT_EQ(two[1].address[15], 9);
    EXPECT_EQ(two[1].vlan, 0);
    const auto tagged =
        addresses(R"(["192.0.2.7/32", {"address": "192.0.2.8/24", "vlan": 4094}, {"address": "192.0.2.9/24"}])");
    ASSERT_EQ(tagged.size(), 3U);
    EXPECT_EQ(tagged[0].vlan, 0);
    EXPECT_EQ(tagged[1].vlan, 4094);
    EXPECT_EQ(tagged[1].address[15], 8);
    EXPECT_EQ(tagged[2].vlan, 0);
    EXPECT_EQ(addresses(R"({"address": "192.0.2.8/24", "vlan": 1})").at(0).vlan, 1);
}

TEST(Config, ReadsAnUplinkInLag) {
    const auto port = [](const std::string& dpdk) {
        return parse_config(with_port(R"({"vport": 65535, "dpdk": )" + dpdk + "}")).devices[0].ports[0];
    };
    EXPECT_EQ(port(R"("net_null")").lag_dpdk, "");
    EXPECT_EQ(port(R"(["net_af_packet,iface=p0", "net_af_packet,iface=p1"])").dpdk, "net_af_packet,iface=p0");
    EXPECT_EQ(port(R"(["net_af_packet,iface=p0", "net_af_packet,iface=p1"])").lag_dpdk, "net_af_packet,iface=p1");
    EXPECT_EQ(port(R"(["net_null", "net_null"])").lag_dpdk, "net_null") << "two that lead nowhere";
}

TEST(Config, ReadsTheManagersMac) {
    EXPECT_FALSE(parse_config(R"({"devices": [{"name": "a"}]})").devices[0].mac);
    EXPECT_EQ(parse_config(R"({"devices": [{"name": "a", "mac": "02:00:00:00:00:05"}]})").devices[0].mac,
              (MacAddress{2, 0, 0, 0, 0, 5}));
}

TEST(Config, APlainFunctionIsWhatIsBehindItsPort) {
    const auto device = [](const std::string& options, const std::string& port) {
        const std::string start = R"({"devices": [{"name": "a", "eswitch": false)";
        return parse_config(start + options + R"(, "ports": [)" + port + "]}]}").devices[0];
    };
    const std::string wire = R"({"vport": 65535, "dpdk": "net_null"})", vf = R"({"vport": 1, "dpdk": "net_null"})";
    EXPECT_TRUE(parse_config(R"({"devices": [{"name": "a"}]})").devices[0].eswitch);
    EXPECT_FALSE(device("", wire).eswitch);
    EXPECT_EQ(device(R"(, "mac": "02:00:00:00:00:05")", wire).ports[0].mac, (MacAddress{2, 0, 0, 0, 0, 5}));
    EXPECT_THROW((void)device("", ""), ConfigError);
    EXPECT_THROW((void)device("", vf), ConfigError);
    EXPECT_THROW((void)device("", wire + ", " + vf), ConfigError);
    EXPECT_THROW((void)device("", R"({"vport": 65535, "dpdk": ["net_null", "net_null"]})"), ConfigError);
    EXPECT_THROW((void)device(R"(, "cotenant": {"lacp": true})", wire), ConfigError);
    const std::string of_port = R"({"vport": 65535, "dpdk": "net_null", "mac": "02:00:00:00:00:06"})";
    EXPECT_THROW((void)device(R"(, "mac": "02:00:00:00:00:05")", of_port), ConfigError);
}

TEST(Config, ReadsTheExample) {
    const NicConfig config = read_config(ovsdr::test::source_folder + "/datapath/ports/softnic.example.json");
    EXPECT_EQ(config.workers, 1U);
    EXPECT_EQ(config.cpus, std::vector<unsigned>{1});
    ASSERT_EQ(config.devices.size(), 1U);
    const DeviceConfig& device = config.devices[0];
    EXPECT_EQ(device.profile, &connectx_6dx);
    ASSERT_EQ(device.ports.size(), 4U);
    EXPECT_EQ(device.ports[0].vport, uplink_vport);
    EXPECT_EQ(device.ports[0].lag_dpdk, "net_af_packet,iface=p1");
    EXPECT_EQ(device.ports[1].mac, (MacAddress{2, 0, 0, 0, 1, 1}));
    EXPECT_EQ(device.ports[2].mtu, 9000);
    ASSERT_TRUE(device.cotenant);
    EXPECT_EQ(device.cotenant->vports, std::vector<VportId>{VportId{3}});
    EXPECT_TRUE(device.cotenant->lacp);
}

TEST(Config, ReadsLimits) {
    const NicConfig config = parse_config(R"({"devices": [
        {"name": "a", "limits": {"rules": 1000, "tables": 0, "matchers": null}}, {"name": "b"}]})");
    Limits expected{};
    expected[static_cast<std::size_t>(Resource::rules)] = 1000;
    expected[static_cast<std::size_t>(Resource::tables)] = 0;
    EXPECT_EQ(config.devices[0].limits, expected);
    EXPECT_EQ(config.devices[1].limits, Limits{});
}

TEST(Config, FillsInDefaults) {
    const NicConfig config = parse_config(with_port(R"({"vport": 7, "dpdk": "net_null"})"));
    EXPECT_EQ(config.workers, 1U);
    EXPECT_EQ(config.memory_mb, 512U);
    EXPECT_FALSE(config.hugepages);
    EXPECT_EQ(config.control_socket, "/run/ovs-dr/softnic.sock");
    EXPECT_EQ(config.devices[0].ports[0].name, "vport 7");
    EXPECT_FALSE(config.devices[0].ports[0].mtu);
}

TEST(Config, NamesOptionValueAndRemedy) {
    const struct {
        std::string content;
        std::vector<std::string> parts;
    } cases[] = {
        {"{", {"not JSON"}},
        {"[]", {"the file", "object"}},
        {"{}", {"devices", "missing"}},
        {R"({"devices": []})", {"devices", "at least one"}},
        {R"({"devices": [{"name": "a"}], "worker": 1})", {"worker", "no such option", "workers"}},
        {R"({"devices": [{"name": "a"}], "workers": 0})", {"workers", "0", "1 to 16"}},
        {R"({"devices": [{"name": "a"}], "workers": "2"})", {"workers", "\"2\"", "1 to 16"}},
        {R"({"devices": [{"name": "a"}], "workers": {"cpus": [-1]}})", {"workers.cpus", "-1", "0 to 1023"}},
        {R"({"devices": [{"name": "a"}], "memory_mb": 5})", {"memory_mb", "5", "128"}},
        {R"({"devices": [{"name": "a"}], "memory_mb": 256, "memory_mb": 512})", {"memory_mb", "twice"}},
        {R"({"devices": [{"name": "a"}], "hugepages": 1})", {"hugepages", "1", "true or false"}},
        {R"({"devices": [{"name": "a", "mac": "01:00:00:00:00:05"}]})", {"devices[0].mac", "unicast"}},
        {R"({"devices": [{"name": "a b"}]})", {"devices[0].name", "a b", "letters"}},
        {R"({"devices": [{"name": "a"}, {"name": "a"}]})", {"devices", "\"a\"", "twice"}},
        {R"({"devices": [{"name": "a", "profile": "cx5"}]})", {"devices[0].profile", "cx5", "connectx-5"}},
        {R"({"devices": [{"name": "a", "flex_parser_profile": 4}]})",
         {"devices[0].flex_parser_profile", "from 0 to 3"}},
        {R"({"devices": [{"name": "a", "limits": {"rule": 1}}]})", {"limits.rule", "no such option", "dest_arrays"}},
        {R"({"devices": [{"name": "a", "limits": {"rules": -1}}]})", {"devices[0].limits.rules", "-1", "4294967295"}},
        {R"({"devices": [{"name": "a", "limits": 7}]})", {"devices[0].limits", "7", "an object"}},
        {with_port(R"({"dpdk": "net_null"})"), {"devices[0].ports[0].vport", "missing"}},
        {with_port(R"({"vport": 0, "dpdk": "net_null"})"), {"ports[0].vport", "0", "65535 for the uplink"}},
        {with_port(R"({"vport": 65280, "dpdk": "net_null"})"), {"ports[0].vport", "65280", "1 to 65279"}},
        {with_port(R"({"vport": 1, "dpdk": "net_null"}, {"vport": 1, "dpdk": "net_null"})"), {"vport 1", "twice"}},
        {with_port(R"({"vport": 1, "dpdk": "net_null", "mac": "02:00:00:00:00"})"),
         {"mac", "02:00:00:00:00", "unicast"}},
        {with_port(R"({"vport": 1, "dpdk": "net_null", "mac": "03:00:00:00:00:01"})"), {"mac", "unicast"}},
        {with_port(R"({"vport": 1, "dpdk": "net_null", "mtu": 10000})"), {"mtu", "10000", "68 to 9978"}},
        {with_port(R"({"vport": 1, "dpdk": "net_null", "roce_address": "10.0.0.1/24"})"),
         {"roce_address", "10.0.0.1/24", "uplink"}},
        {with_uplink(R"("10.0.0.1")"), {"roce_address", "10.0.0.1", "with its prefix"}},
        {with_uplink(R"("10.0.0.1/33")"), {"roce_address", "/33", "with its prefix"}},
        {with_uplink(R"("10.0.0.1/")"), {"roce_address", "with its prefix"}},
        {with_uplink(R"("10.0.0/24")"), {"roce_address", "with its prefix"}},
        {with_uplink(R"("2001:db8::1/129")"), {"roce_address", "/129", "with its prefix"}},
        {with_uplink(R"(["10.0.0.1/24", 7])"), {"roce_address", "7", "a string"}},
        {with_uplink(R"({"vlan": 5})"), {"roce_address", "\"address\""}},
        {with_uplink(R"({"address": "10.0.0.1/24", "vlan": 4095})"), {"roce_address.vlan", "4095"}},
        {with_uplink(R"({"address": "10.0.0.1/24", "vlan": 0})"), {"roce_address.vlan", "0"}},
        {with_uplink(R"({"address": "10.0.0.1/24", "tag": 5})"), {"tag"}},
        {with_uplink(R"("224.0.0.1/24")"), {"roce_address", "224.0.0.1", "of a host"}},
        {with_uplink(R"("ff02::1/64")"), {"roce_address", "ff02::1", "of a host"}},
        {with_uplink(R"("::/64")"), {"roce_address", "of a host"}},
        {with_uplink(R"("fe80::1/64")"), {"roce_address", "fe80::1", "after the MAC"}},
        {with_port(R"({"vport": 1, "dpdk": ["net_null", "net_null"]})"), {"ports[0].dpdk", "one port's", "65535"}},
        {with_port(R"({"vport": 65535, "dpdk": ["net_null"]})"), {"ports[0].dpdk", "a list of 2"}},
        {with_port(R"({"vport": 65535, "dpdk": ["net_null", "net_null", "net_ring"]})"),
         {"ports[0].dpdk", "a list of 2"}},
        {with_port(R"({"vport": 65535, "dpdk": ["net_null", 5]})"), {"ports[0].dpdk[1]", "5", "a string"}},
        {with_port(R"({"vport": 65535, "dpdk": ["net_tap", "net_null"]})"),
         {"ports[0].dpdk[0]", "net_tap", "iface=NAME"}},
        {with_port(R"({"vport": 65535, "dpdk": ["net_tap,iface=a", "net_tap,iface=a"]})"),
         {"ports[0].dpdk[1]", "net_tap,iface=a", "another port than the first"}},
        {with_port(R"({"vport": 1, "dpdk": "net_bond,iface=t0"})"), {"dpdk", "net_bond", "net_af_packet, net_af_xdp"}},
        {with_port(R"({"vport": 1, "dpdk": "net_tap"})"), {"dpdk", "net_tap", "iface=NAME", "it makes"}},
        {with_port(R"({"vport": 1, "dpdk": "net_tap,iface=0123456789abcdef"})"), {"dpdk", "15 bytes"}},
        {with_port(R"({"vport": 1, "dpdk": "net_tap,iface=t0,persist"})"), {"dpdk", "persist", "goes with its port"}},
        {with_port(R"({"vport": 1, "dpdk": "net_tap,iface=t0,remote=eth0"})"), {"remote", "net_af_packet"}},
        {with_port(R"({"vport": 1, "dpdk": "net_vhost,client=1"})"), {"dpdk", "net_vhost", "iface=PATH"}},
        {with_port(R"({"vport": 1, "dpdk": "net_vhost,iface=vm.sock"})"), {"iface=vm.sock", "107 bytes"}},
        {with_port(R"({"vport": 1, "dpdk": "net_vhost,iface=/v,client=yes"})"), {"client=yes", "0 or 1"}},
        {with_port(R"({"vport": 1, "dpdk": "net_vhost,iface=/v,queues=17"})"), {"queues=17", "1 to 16"}},
        {with_port(R"({"vport": 1, "dpdk": "net_vhost,iface=/v,gro=off"})"), {"gro=off", "0 or 1"}},
        {with_port(R"({"vport": 1, "dpdk": "net_af_packet,iface=a,qpairs=0"})"), {"qpairs=0", "1 to 16"}},
        {with_port(R"({"vport": 1, "dpdk": "net_tap,iface=a,queues=two"})"), {"queues=two", "1 to 16"}},
        {with_port(R"({"vport": 1, "dpdk": "net_af_xdp,iface=a,queue_count=0"})"), {"queue_count=0", "1 to 1024"}},
        {with_port(R"({"vport": 1, "dpdk": "net_af_xdp,iface=a,start_queue=-1"})"), {"start_queue=-1", "0 to 1023"}},
        {with_port(R"({"vport": 1, "dpdk": "net_af_xdp,iface=a,shared_umem=1"})"), {"shared_umem", "of its own"}},
        {with_port(R"({"vport": 1, "dpdk": "net_af_xdp,iface=a,queues=2"})"), {"\"queues\"", "queue_count"}},
        {R"({"workers": {"count": 2, "rebalance": 1}, "devices": [{"name": "a"}]})",
         {"workers.rebalance", "1", "true or false"}},
        {with_port(R"({"vport": 1, "dpdk": "net_vhost,iface=/v,tso=1"})"), {"tso", "leave checksums"}},
        {with_port(R"({"vport": 1, "dpdk": "net_vhost,iface=/v,server=1"})"), {"\"server\"", "iface, client, gro, qu"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif"})"), {"net_memif", "socket=PATH"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,role=slave"})"), {"role=slave", "server or client"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,rsize=15"})"), {"rsize=15", "1 to 14"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,rsize=10"})"), {"rsize=10", "role=client"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,role=server,bsize=512"})"),
         {"bsize=512", "role=client"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,id=x"})"), {"id=x", "whole number"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,id=1,id=2"})"), {"id", "twice"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,zero-copy=yes"})"), {"zero-copy", "all packet memory"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,queues=0"})"), {"queues=0", "1 to 16"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,queues=17"})"), {"queues=17", "1 to 16"}},
        {with_port(R"({"vport": 1, "dpdk": "net_memif,socket=/m,role=client,queues=9,rsize=14,bsize=16384"})"),
         {"queues=9", "rsize=14", "bsize=16384", "4612 MB", "4096", "fewer queues"}},
        {with_port(R"({"vport": 1, "dpdk": "net_null3"})"), {"dpdk", "net_null3", "without a number"}},
        {with_port(R"({"vport": 1, "dpdk": "net_af_packet"})"), {"dpdk", "iface=NAME"}},
        {with_port(R"({"vport": 1, "dpdk": "net_af_xdp,iface=0123456789abcdef"})"), {"dpdk", "15 bytes"}},
        {R"({"devices": [{"name": "a", "cotenant": {"vports": [4]}}]})",
         {"cotenant.vports", "4", "among this device's"}},
        {R"({"devices": [{"name": "a", "cotenant": {"lacp": true}}]})", {"cotenant.lacp", "uplink"}},
    };
    for (const auto& [content, parts] : cases) {
        const std::string text = problem(content);
        for (const std::string& part : parts) EXPECT_THAT(text, HasSubstr(part)) << content;
    }
}

TEST(Config, TakesWhatFitsIntoAMemifClientsMemory) {
    for (const char* options : {"role=client,queues=7,rsize=14,bsize=16384", "role=client,queues=16",
                                "role=server,queues=16", "queues=16"}) {
        const std::string port = R"({"vport": 1, "dpdk": "net_memif,socket=/m,)" + std::string(options) + "\"}";
        EXPECT_EQ(problem(with_port(port)), "") << options;
    }
}

TEST(Config, NamesTheFile) {
    try {
        (void)read_config("/nonexistent/softnic.json");
        FAIL();
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("/nonexistent/softnic.json"), HasSubstr("No such file")));
        EXPECT_EQ(error.code(), ENOENT);
    }
}

}  // namespace
}  // namespace ovsdr::soft
