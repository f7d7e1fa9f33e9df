// RoCE of the manager function on the recording provider: which packets from the uplink are its own, and devices that
// refuse a part of that.
#include <gtest/gtest.h>

#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/offload/dr/eswitch_fixture.hpp"

namespace ovsdr::dr {
namespace {

constexpr std::array<std::uint8_t, 6> mac{2, 0, 0, 0, 0x79, 1};
constexpr RoceAddress ipv4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1}, mac};
constexpr RoceAddress also_ipv4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7}, mac};
constexpr RoceAddress ipv6{{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xab, 0xcd, 0xef}, mac};

using Strings = std::vector<std::string>;

const std::string to_manager = ": dest_table 60";
const std::string to_both = ": dest_array [dest_table 60, dest_table 1]";
const std::string root = "FDB level 0 priority 0 ";
const std::string own_mac = "dmac_47_16=0x2000000, dmac_15_0=0x7901, ";
const std::string roce_v4 = root + "{" + own_mac + "ip_protocol=0x11, cvlan_tag=0x0, ip_version=0x4, udp_dport=0x12b7, "
                                   "dst_ip_31_0=0xc0000201, source_port=0xffff}" + to_manager;
const std::string arp_own = root + "{ethertype=0x806, " + own_mac + "cvlan_tag=0x0, source_port=0xffff}" + to_both;
const std::string arp_all =
    root + "{ethertype=0x806, dmac_47_16=0xffffffff, dmac_15_0=0xffff, cvlan_tag=0x0, source_port=0xffff}" + to_both;

/// Of ICMPv6; `fields` of the header, `type` perhaps none.
std::string discovery(const std::string& to_mac, const std::string& fields, const std::string& type) {
    return root + "{" + to_mac + "ip_protocol=0x3a, cvlan_tag=0x0, ip_version=0x6, " + fields + "source_port=0xffff" +
           type + "}" + to_both;
}
const std::string to_node_mac = "dmac_47_16=0x3333ffab, dmac_15_0=0xcdef, ";
const std::string to_node =
    "dst_ip_127_96=0xff020000, dst_ip_95_64=0x0, dst_ip_63_32=0x1, dst_ip_31_0=0xffabcdef, ";

class Roce : public EswitchTest {
protected:
    void SetUp() override {
        EswitchTest::SetUp();
        ASSERT_TRUE(attach_uplink());
        before_ = rule_texts();
    }
    void TearDown() override {
        FakeProvider::fail_call(0, 0);
        eswitch_->detach_port(uplink_vport);
        EswitchTest::TearDown();
    }
    Result<void> attach_uplink() {
        return eswitch_->attach_port({OdpPort{9}, uplink_vport, "uplink", &queue_pair_, 0x109});
    }
    /// In FDB root.
    Strings added() const {
        Strings texts = rules_since(before_);
        std::erase_if(texts, [](const std::string& text) { return !text.starts_with("FDB level 0 "); });
        return texts;
    }
    /// One of RoCE, and three of discovery.
    static std::ptrdiff_t roce_rules() {
        return std::ranges::count_if(rule_texts(), [](const std::string& text) {
            return text.starts_with("FDB level 0 priority 0 {dmac");
        });
    }
    std::multiset<std::string> before_;
};

TEST_F(Roce, ItIsTheManagersAndOfArpTheSwitchGetsItsCopy) {
    ASSERT_TRUE(eswitch_->let_roce_in(ipv4));
    EXPECT_EQ(added(), (Strings{roce_v4, arp_own, arp_all}));
    EXPECT_EQ(rules_in("FDB level 60", "default_miss"), 2U) << "misses are counted apart";
    EXPECT_EQ(FakeProvider::unwritten(), Strings{});
    eswitch_->forget_roce(ipv4);
    EXPECT_EQ(added(), Strings{});
}

/// Who let it in sends at once, and the answers are the manager's.
TEST_F(Roce, AnAddressIsInTheDeviceWhenItIsToldSo) {
    for (const RoceAddress& address : {ipv4, also_ipv4, ipv6}) {
        (void)FakeProvider::take_events();
        ASSERT_TRUE(eswitch_->let_roce_in(address));
        std::string last;
        for (const std::string& event : FakeProvider::take_events()) {
            if (event.starts_with("create FDB") || event.starts_with("write FDB")) last = event;
        }
        EXPECT_EQ(last, "write FDB");
    }
    FakeProvider::refuse("mlx5dv_dr_domain_sync", EIO);
    RoceAddress another = ipv4;
    another.gid[15] = 9;
    const Strings before = added();
    const auto refused = eswitch_->let_roce_in(another);
    FakeProvider::refuse("mlx5dv_dr_domain_sync", 0);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EIO);
    EXPECT_EQ(added(), before);
}

TEST_F(Roce, AnAddressOfIpv6HasNeighbourDiscovery) {
    ASSERT_TRUE(eswitch_->let_roce_in(ipv6));
    const std::multiset<std::string> expected{
        root + "{" + own_mac + "ip_protocol=0x11, cvlan_tag=0x0, ip_version=0x6, udp_dport=0x12b7, "
               "dst_ip_127_96=0x20010db8, dst_ip_95_64=0x0, dst_ip_63_32=0x0, dst_ip_31_0=0xabcdef, "
               "source_port=0xffff}" + to_manager,
        discovery(own_mac, "", ", icmpv6_type=0x87"), discovery(own_mac, "", ", icmpv6_type=0x88"),
        discovery(to_node_mac, to_node, ", icmpv6_type=0x87")};
    const Strings now = added();
    EXPECT_EQ(std::multiset<std::string>(now.begin(), now.end()), expected);
}

/// A ConnectX-5 as it is shipped.
TEST_F(Roce, WithoutAParserOfIcmpv6AllOfItIsCopied) {
    eswitch_->detach_port(uplink_vport);
    close();
    FakeProvider::set_steering_format(0);
    open();
    ASSERT_TRUE(attach_uplink());
    before_ = rule_texts();
    ASSERT_TRUE(eswitch_->let_roce_in(ipv6));
    const Strings now = added();
    EXPECT_EQ(now.size(), 3U);
    EXPECT_EQ(std::ranges::count(now, discovery(own_mac, "", "")), 1);
    EXPECT_EQ(std::ranges::count(now, discovery(to_node_mac, to_node, "")), 1);
}

TEST_F(Roce, AnAddressInAVlanIsThatVlansOnly) {
    RoceAddress tagged = ipv4;
    tagged.vlan = 5;
    ASSERT_TRUE(eswitch_->let_roce_in(tagged));
    EXPECT_EQ(added().size(), 3U);
    for (const std::string& text : added()) {
        EXPECT_NE(text.find("cvlan_tag=0x1"), text.npos) << text;
        EXPECT_NE(text.find("first_vid=0x5,"), text.npos) << text;
    }
    ASSERT_TRUE(eswitch_->let_roce_in(ipv4));
    EXPECT_EQ(added().size(), 6U) << "another address";
}

/// The firmware reads them: a mask of 4 would take IPv6 for IPv4.
TEST_F(Roce, MasksOfRootRulesAreBits) {
    ASSERT_TRUE(eswitch_->let_roce_in(ipv4));
    ASSERT_TRUE(eswitch_->let_roce_in(ipv6));
    unsigned versions = 0;
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table != "FDB level 0") continue;
        MatchParam mask;
        std::copy_n(rule.mask.begin(), std::min(rule.mask.size(), mask.bytes.size()), mask.bytes.begin());
        if (mask.get(field::ip_version) == 0) continue;
        EXPECT_EQ(mask.get(field::ip_version), 0xFU);
        ++versions;
    }
    EXPECT_EQ(versions, 5U);
}

TEST_F(Roce, ADeviceThatMakesNoCopiesToTablesIsRefused) {
    eswitch_->detach_port(uplink_vport);
    close();
    FakeProvider::refuse("dest_array", EOPNOTSUPP);
    open();
    FakeProvider::refuse("dest_array", 0);
    EXPECT_TRUE(eswitch_->let_roce_in(ipv4)) << "nothing is in the way while the uplink is no port";
    ASSERT_TRUE(attach_uplink());
    const auto refused = eswitch_->retry_roce(ipv4);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, EOPNOTSUPP);
    EXPECT_NE(refused.error().what.find("makes no copies to tables"), std::string::npos) << refused.error().what;
    EXPECT_FALSE(eswitch_->let_roce_in(also_ipv4));
    EXPECT_EQ(eswitch_->retry_roce(also_ipv4).error().code, ENOENT) << "it was not let in";
}

TEST_F(Roce, AddressesShareWhatTheyHaveInCommon) {
    ASSERT_TRUE(eswitch_->let_roce_in(ipv4));
    const auto tables = FakeProvider::tables(60);
    ASSERT_TRUE(eswitch_->let_roce_in(also_ipv4));
    EXPECT_EQ(added().size(), 4U) << "two of RoCE, two of ARP";
    EXPECT_EQ(FakeProvider::tables(60), tables) << "one table for all";
    ASSERT_TRUE(eswitch_->let_roce_in(also_ipv4));
    eswitch_->forget_roce(ipv4);
    eswitch_->forget_roce(also_ipv4);
    EXPECT_EQ(added().size(), 3U) << "let in twice";
    eswitch_->forget_roce(also_ipv4);
    EXPECT_EQ(added(), Strings{});
    eswitch_->forget_roce(also_ipv4);
}

/// Without an entrance nothing of the uplink's is led to the switch.
TEST_F(Roce, RulesComeAndGoWithTheUplinksEntrance) {
    eswitch_->detach_port(uplink_vport);
    const auto without = rule_texts();
    ASSERT_TRUE(eswitch_->let_roce_in(ipv4));
    EXPECT_EQ(rule_texts(), without);
    (void)FakeProvider::take_events();
    ASSERT_TRUE(attach_uplink());
    EXPECT_EQ(added().size(), 3U);
    bool open = false;
    for (const std::string& event : FakeProvider::take_events()) {
        if (!event.starts_with("create FDB level 0")) continue;
        open = open || event.starts_with("create FDB level 0 priority 1");
        EXPECT_FALSE(open && event.find("dest_table 60") != std::string::npos) << "the entrance comes last";
    }
    EXPECT_TRUE(open);
    eswitch_->close_entrance(uplink_vport);
    for (const std::string& text : rule_texts()) {
        EXPECT_EQ(text.find("source_port=0xffff}: dest"), std::string::npos) << text;
    }
    ASSERT_TRUE(eswitch_->set_odp_port(uplink_vport, OdpPort{9}));
    EXPECT_EQ(added().size(), 3U);
    eswitch_->detach_port(uplink_vport);
    std::set<std::string> left;
    for (const std::string& text : rules_since(without)) left.insert(text);
    EXPECT_EQ(left, std::set<std::string>{"FDB level 60 priority 0 {}: count default_miss"});
    ASSERT_TRUE(attach_uplink());
}

TEST_F(Roce, OtherPortsComeAndGoWithoutIt) {
    ASSERT_TRUE(eswitch_->let_roce_in(ipv4));
    const auto now = rule_texts();
    eswitch_->detach_port(VportId{2});
    EXPECT_EQ(added().size(), 3U);
    ASSERT_TRUE(attach(2));
    EXPECT_EQ(rule_texts(), now);
    eswitch_->detach_port(uplink_vport);
    for (const std::string& text : rule_texts()) EXPECT_EQ(text.find("udp_dport"), std::string::npos) << text;
}

TEST_F(Roce, EachCallFailsAndNothingIsLeft) {
    ASSERT_TRUE(eswitch_->let_roce_in(ipv6));
    const auto whole = rule_texts();
    for (const bool by_attaching : {false, true}) {
        std::set<std::string> failed;
        unsigned without = 0;
        for (unsigned n = 1;; ++n) {
            eswitch_->detach_port(uplink_vport);
            close();
            open();
            ASSERT_TRUE(by_attaching ? eswitch_->let_roce_in(ipv6) : attach_uplink());
            auto rules = rule_texts();
            FakeProvider::fail_call(n, ENOMEM);
            const auto done = by_attaching ? attach_uplink() : eswitch_->let_roce_in(ipv6);
            const std::string call = FakeProvider::failed_call();
            FakeProvider::fail_call(0, 0);
            SCOPED_TRACE("call " + std::to_string(n) + ", " + call);
            if (call.empty()) {
                EXPECT_TRUE(done);
                break;
            }
            failed.insert(call);
            auto left = rules_since(rules);
            if (done) {   // the port may be there without the address, which comes later: none of it, or all
                if (by_attaching && roce_rules() == 0) {
                    ++without;
                    ASSERT_TRUE(eswitch_->retry_roce(ipv6));
                }
                EXPECT_EQ(rule_texts(), whole);
                continue;
            }
            std::erase(left, "FDB level 60 priority 0 {}: count default_miss");
            EXPECT_EQ(left, Strings{});
            ASSERT_TRUE(by_attaching ? attach_uplink() : eswitch_->let_roce_in(ipv6));
            EXPECT_EQ(roce_rules(), 4);
        }
        EXPECT_EQ(without != 0, by_attaching) << "the device refuses the address, and the port comes";
        for (const char* call : {"mlx5dv_dr_table_create", "mlx5dv_dr_rule_create", "dest_array", "dest_table"}) {
            EXPECT_TRUE(failed.contains(call)) << call << " is no part of it";
        }
    }
}

TEST_F(Roce, PeopleReadWhatIsTheManagers) {
    ASSERT_TRUE(eswitch_->let_roce_in(ipv4));
    EXPECT_NE(eswitch_->show(false).find("FDB level 60: the manager function's own RoCE (1 matchers)"),
              std::string::npos) << eswitch_->show(false);
    const Graph graph = eswitch_->graph();
    std::multiset<std::pair<std::string, std::string>> edges;
    for (const auto& [edge, traffic] : graph.edges) edges.emplace(edge.from, edge.to);
    EXPECT_EQ(edges.count({"root", "manager"}), 2U) << "a matcher of RoCE, one of ARP";
    EXPECT_EQ(edges.count({"root", "recirc_id 0x0"}), 2U) << "ARP, and ports";
    EXPECT_EQ(edges.count({"root", "send"}), 1U);
    EXPECT_EQ(edges.count({"manager", "its RoCE"}), 1U);
    std::set<std::string> counters;
    for (const auto& rule : FakeProvider::rules()) {
        if (rule.table == "FDB level 60" && rule.actions[0].starts_with("count ")) counters.insert(rule.actions[0]);
    }
    ASSERT_EQ(counters.size(), 2U) << "of misses, and of RoCE";
    for (const std::string& counter : counters) {
        FakeProvider::count(static_cast<std::uint32_t>(std::stoul(counter.substr(6))), 7, 0);
    }
    EXPECT_NE(eswitch_->show(false).find("the manager function's own RoCE: 7 packets\n"), std::string::npos);
    const Graph counted = eswitch_->graph();
    for (const auto& [edge, traffic] : counted.edges) {
        if (edge.to == "its RoCE") {
            EXPECT_EQ(traffic.packets, 7U);
        }
    }
}

}  // namespace
}  // namespace ovsdr::dr
