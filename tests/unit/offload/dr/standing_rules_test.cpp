// Rules that stand around the megaflows', whole: which packets lead in, out, up and on, and in which order they are
// asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/offload/dr/eswitch_fixture.hpp"
#include "tests/unit/offload/dr/queue_switches.hpp"

namespace ovsdr::dr {
namespace {

using Texts = std::vector<std::string>;

class StandingRules : public EswitchTest {
protected:
    void SetUp() override {
        EswitchTest::SetUp();
        eswitch_->detach_port(VportId{2});
        eswitch_->detach_port(VportId{3});
        ASSERT_TRUE(eswitch_->attach_port({OdpPort{9}, uplink_vport, "uplink", &queue_pair_, 0x109}));
        before_ = rule_texts();
    }
    void TearDown() override {
        eswitch_->flush(std::nullopt);
        eswitch_->detach_port(uplink_vport);
        EswitchTest::TearDown();
    }
    /// Of the newest rule in this table.
    static std::uint32_t newest_counter(const std::string& table) {
        std::string counter;
        for (const auto& rule : FakeProvider::rules()) {
            if (rule.table == table && rule.actions.at(0).starts_with("count ")) counter = rule.actions[0].substr(6);
        }
        return static_cast<std::uint32_t>(std::stoul(counter));
    }
    /// Since the ports came.
    [[nodiscard]] Texts added() const { return rules_since(before_); }
    /// Of them those in this table.
    [[nodiscard]] Texts added(const std::string& table) const {
        Texts texts = added();
        std::erase_if(texts, [&](const std::string& text) { return !text.starts_with(table + " "); });
        return texts;
    }

    std::multiset<std::string> before_;
};

/// As of a table in which packets are inside of a tunnel: `prefix` is "inner_", and they come from the uplink.
Texts ends_of_connections(const std::string& table, const std::string& prefix = "") {
    Texts texts;
    const std::string source = prefix.empty() ? "" : "source_port=0xffff, ";
    for (const char* version : {"0x4", "0x6"}) {
        for (const char* flags : {"0x1/0x5", "0x4/0x5", "0x5/0x5"}) {
            texts.push_back(table + " priority 0 {" + source + prefix + "ip_protocol=0x6, " + prefix +
                            "ip_version=" + version + ", " + prefix + "tcp_flags=" + flags +
                            "}: modify_header dest_table 60");
        }
    }
    return texts;
}

TEST_F(StandingRules, APortsPacketsComeInAndItsQueueSendsAndReceives) {
    Texts expected{
        // The manager's queues and the vports' packets into the first table of megaflows; nobody else's.
        "FDB level 0 priority 0 {source_sqn=0x101, source_port=0x0}: dest_table 1",
        "FDB level 0 priority 0 {source_sqn=0x109, source_port=0x0}: dest_table 1",
        "FDB level 0 priority 1 {source_port=0x1}: dest_table 1",
        "FDB level 0 priority 1 {source_port=0xffff}: dest_table 1",
        "FDB level 1 priority 0 {source_sqn=0x101}: dest_vport 1",
        "FDB level 1 priority 0 {source_sqn=0x109}: dest_vport 65535",
        "FDB level 1 priority 2 {}: modify_header dest_table 60",
        "FDB level 60 priority 0 {}: count default_miss",
        "NIC_RX level 0 priority 0 {metadata_reg_c_1=0xd5000000/0xff000000, metadata_reg_c_0=0x20000/0xffff0000}: "
        "dest_table 1",
        "NIC_RX level 0 priority 0 {metadata_reg_c_1=0xd5000000/0xff000000, metadata_reg_c_0=0x60000/0xffff0000}: "
        "dest_table 1",
        "NIC_RX level 1 priority 0 {metadata_reg_c_1=0xd5000001}: tag 1 dest_table 2",
        "NIC_RX level 2 priority 0 {metadata_reg_c_0=0x20000/0xffff0000}: count dest_qp 0",
        "NIC_RX level 2 priority 0 {metadata_reg_c_0=0x60000/0xffff0000}: count dest_qp 0"};
    std::ranges::move(ends_of_connections("FDB level 1"), std::back_inserter(expected));
    std::ranges::sort(expected);
    EXPECT_EQ(rules_since({}), expected);
}

/// What came up to the old queue is read when nothing comes there any more, and once more where the device fails then.
TEST_F(StandingRules, WhatAnOldQueueGotIsToldThoughOneCallFails) {
    ASSERT_TRUE(eswitch_->switch_queue(VportId{1}, &queue_pair_, 0x200, {}).made);   // its rule is the newest then
    eswitch_->forget_old_queue(VportId{1});
    std::set<std::string> failed;
    std::uint64_t came = 0;
    for (unsigned call = 1; call < 100; ++call) {
        FakeProvider::count(newest_counter("NIC_RX level 2"), 7, 700);
        came += 7;
        FakeProvider::fail_call(call, EIO);
        const auto led = eswitch_->switch_queue(VportId{1}, &queue_pair_, 0x200 + call, {});
        const std::string which = FakeProvider::failed_call();
        FakeProvider::fail_call(0, 0);
        failed.insert(which);
        if (!led.made) continue;   // the old queue is the port's still
        EXPECT_EQ(led.led_up, came) << which << " failed";
        came = 0;
        eswitch_->forget_old_queue(VportId{1});
        if (which.empty()) break;
    }
    EXPECT_TRUE(failed.contains("mlx5dv_devx_obj_query"));
    EXPECT_TRUE(failed.contains("")) << "the last time nothing failed";
}

TEST_F(StandingRules, WhatANewQueueGotIsToldWhenTheDeviceFailsWithIt) {
    const QueuePairFor kinds[] = {{&queue_pair_, 4, 6}, {&queue_pair_, 6, 0}};
    test::expect_all_told_when_switches_fail(*eswitch_, VportId{1}, &queue_pair_, {}, "NIC_RX level 2");
    test::expect_all_told_when_switches_fail(*eswitch_, VportId{1}, &queue_pair_, kinds, "NIC_RX level 2");
}

/// Who attached the port sends from its queue at once, and its packets come down to it.
TEST_F(StandingRules, WhatAPortOrItsQueueNeedsIsInTheDeviceWhenItIsToldSo) {
    EXPECT_EQ(FakeProvider::unwritten(), Texts{});
    const QueuePairFor kinds[] = {{&queue_pair_, 4, 6}, {&queue_pair_, 6, 0}};
    ASSERT_TRUE(eswitch_->attach_port({.odp_port = OdpPort{4}, .vport = VportId{4}, .name = "vf4",
                                       .slow_path_qp = &queue_pair_, .slow_path_sqn = 0x104, .by_kind = kinds}));
    EXPECT_EQ(FakeProvider::unwritten(), Texts{});
    ASSERT_TRUE(eswitch_->switch_queue(VportId{4}, &queue_pair_, 0x204, {}).made);
    EXPECT_EQ(FakeProvider::unwritten(), Texts{});
    for (const std::uint32_t sqn : {0x304U, 0x404U, 0x504U}) {
        eswitch_->forget_old_queue(VportId{4});
        ASSERT_TRUE(eswitch_->switch_queue(VportId{4}, &queue_pair_, sqn, kinds).made);
        EXPECT_EQ(FakeProvider::unwritten(), Texts{});
    }
    const std::size_t misses = rules_in("FDB level 60", "default_miss");
    std::set<const void*> tables;
    for (const CopyKind kind : {CopyKind::other, CopyKind::host, CopyKind::other, CopyKind::other}) {
        ASSERT_TRUE(eswitch_->lead_copies(kind, &queue_pair_));
        EXPECT_EQ(FakeProvider::unwritten(), Texts{});
        EXPECT_EQ(rules_in("FDB level 60", "default_miss"), misses + 1) << "one table for copies of all kinds";
        const auto now = FakeProvider::tables(60);
        if (tables.empty()) tables = now;
        EXPECT_EQ(now, tables) << "copies may be on their way through it";
    }
    EXPECT_EQ(rule_texts().count("NIC_RX level 2 priority 0 {}: count dest_qp 0"), 2U) << "each second has the first's";
    eswitch_->stop_copies(CopyKind::other);
    eswitch_->stop_copies(CopyKind::host);
    // Nobody waits for a megaflow's rule: until it is there its packets go up.
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder(1).ipv4().output(9))));
    EXPECT_EQ(FakeProvider::unwritten().size(), 1U);
    (void)eswitch_->del(ufid_);
    eswitch_->detach_port(VportId{4});
}

TEST_F(StandingRules, WhatThePortsQueuesSendComesFromTheManagersVport) {
    eswitch_->detach_port(uplink_vport);
    close();
    FakeProvider::manager_vport = 0xFFFE;
    open();
    EXPECT_EQ(rule_texts().count("FDB level 0 priority 0 {source_sqn=0x101, source_port=0xfffe}: dest_table 1"), 1U);
    EXPECT_FALSE(eswitch_->attach_port({OdpPort{5}, VportId{0xFFFE}, "manager", &queue_pair_, 0x105}));
}

/// First the FDB and then NIC_RX, as packets go.
TEST_F(StandingRules, AQueueForCopiesLosesItsRuleBetweenTwoDrains) {
    (void)FakeProvider::take_events();
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    Texts events = FakeProvider::take_events();
    EXPECT_EQ(std::ranges::count(events, "drain NIC_RX"), 0) << "there was no queue before";
    eswitch_->stop_copies(CopyKind::other);
    events = FakeProvider::take_events();
    for (std::string& event : events) event = event.substr(0, event.find(':'));
    EXPECT_EQ(events, (Texts{"drain FDB", "drain NIC_RX", "destroy NIC_RX level 2 priority 0", "drain NIC_RX"}));
    eswitch_->stop_copies(CopyKind::other);
    EXPECT_EQ(FakeProvider::take_events(), Texts{}) << "there is none any more";
}

/// No packet meets half of it, however the device orders what it writes.
TEST_F(StandingRules, ATableIsWholeInTheDeviceBeforeARuleLeadsThere) {
    const auto expect_whole = [](const std::string& table, const std::string& lead) {
        SCOPED_TRACE(table);
        std::string last;
        bool led = false;
        for (const std::string& event : FakeProvider::take_events()) {
            if (event.starts_with("create " + table + " ") || event.starts_with("write FDB")) last = event;
            if (!event.starts_with("create FDB") || event.find(lead) == std::string::npos) continue;
            led = true;
            EXPECT_EQ(last, "write FDB");
        }
        EXPECT_TRUE(led || lead == "none");
        EXPECT_EQ(last, "write FDB");
    };
    eswitch_->detach_port(uplink_vport);
    close();
    (void)FakeProvider::take_events();
    open();
    eswitch_->detach_port(VportId{2});
    expect_whole("FDB level 1", "none");
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder(1).ipv4().recirc(7))));
    expect_whole("FDB level 9", "dest_table 9");
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder(1).ipv4().output(3).output(77))));
    expect_whole("FDB level 60", "dest_array");
    (void)eswitch_->del(Ufid{1, 1});
    eswitch_->stop_copies(CopyKind::other);
}

TEST_F(StandingRules, WhereNothingComesUpButByTheRootThereIsOneQueueAPortAndNoCopies) {
    eswitch_->detach_port(uplink_vport);
    close();
    FakeProvider::has_nic_rx_tables = false;
    open();
    eswitch_->detach_port(VportId{2});
    eswitch_->detach_port(VportId{3});
    Texts up = rules_since({});
    std::erase_if(up, [](const std::string& text) { return !text.starts_with("NIC_RX"); });
    EXPECT_EQ(up, Texts{"NIC_RX level 0 priority 0 {metadata_reg_c_1=0xd5000001, metadata_reg_c_0=0x20000/0xffff0000}: "
                        "count tag 1 dest_qp 0"});
    const auto before = rule_texts();
    const QueuePairFor kinds[] = {{&queue_pair_, 4, 6}};
    const auto attached = eswitch_->attach_port({.odp_port = OdpPort{4}, .vport = VportId{4}, .name = "vf4",
                                                 .slow_path_qp = &queue_pair_, .slow_path_sqn = 0x104,
                                                 .by_kind = kinds});
    ASSERT_FALSE(attached);
    EXPECT_EQ(attached.error().code, EOPNOTSUPP);
    EXPECT_NE(attached.error().what.find("several receive queues of a port"), std::string::npos);
    for (const CopyKind kind : copy_kinds) {
        const auto led = eswitch_->lead_copies(kind, &queue_pair_);
        ASSERT_FALSE(led);
        EXPECT_EQ(led.error().code, EOPNOTSUPP);
        EXPECT_NE(led.error().what.find("copies for software"), std::string::npos);
    }
    Texts left = rules_since(before);
    std::erase(left, "FDB level 60 priority 0 {}: default_miss");   // the table of copies stays
    EXPECT_EQ(left, Texts{});
}

TEST_F(StandingRules, KindsOfPacketsHaveTheirQueuesTheNarrowestFirst) {
    const QueuePairFor kinds[] = {{&queue_pair_, 4, 6}, {&queue_pair_, 6, 0}};
    ASSERT_TRUE(eswitch_->attach_port({.odp_port = OdpPort{4}, .vport = VportId{4}, .name = "vf4",
                                       .slow_path_qp = &queue_pair_, .slow_path_sqn = 0x104, .by_kind = kinds}));
    const std::string of_port = "metadata_reg_c_0=0x50000/0xffff0000}: count dest_qp 0";
    EXPECT_EQ(added("NIC_RX level 2"),
              (Texts{"NIC_RX level 2 priority 0 {ip_protocol=0x6, ip_version=0x4, " + of_port,
                     "NIC_RX level 2 priority 1 {ip_version=0x6, " + of_port,
                     "NIC_RX level 2 priority 2 {" + of_port}));
    ASSERT_TRUE(eswitch_->switch_queue(VportId{4}, &queue_pair_, 0x204, kinds).made);
    EXPECT_EQ(added("NIC_RX level 2"),
              (Texts{"NIC_RX level 2 priority 3 {ip_protocol=0x6, ip_version=0x4, " + of_port,
                     "NIC_RX level 2 priority 4 {ip_version=0x6, " + of_port, "NIC_RX level 2 priority 5 {" + of_port}))
        << "behind those that were there, until these go";
    eswitch_->detach_port(VportId{4});
    EXPECT_EQ(added(), Texts{});
}

TEST_F(StandingRules, ATableBehindARecirculationNamesWhatMissesInIt) {
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder().ipv4().recirc(7))));
    EXPECT_EQ(added(), (Texts{"FDB level 1 priority 1 {ethertype=0x800, cvlan_tag=0x0, frag=0x0, ip_version=0x4, "
                              "source_port=0x1}: count dest_table 9",
                              "FDB level 9 priority 2 {}: modify_header dest_table 60",
                              "NIC_RX level 1 priority 0 {metadata_reg_c_1=0xd5000002}: tag 2 dest_table 2"}));
}

TEST_F(StandingRules, ATunnelsTableLooksInsideForEndsOfConnections) {
    constexpr std::uint32_t tunnel = 20;
    eswitch_->set_tunnel_port({OdpPort{tunnel}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
    MegaflowBuilder into(9);
    into.ipv4().proto(17).ports(0, 4789).tunnel_pop(tunnel).raw().mask.be_tp_src = 0;
    ASSERT_TRUE(installed(eswitch_->put(ufid_, into)));
    Texts expected = ends_of_connections("FDB level 9", "inner_");
    expected.push_back("FDB level 9 priority 2 {}: modify_header dest_table 60");
    EXPECT_EQ(added("FDB level 9"), expected);
    ASSERT_TRUE(installed(eswitch_->put({2, 2}, MegaflowBuilder(tunnel).from_tunnel(5).ipv4().recirc(7))));
    EXPECT_EQ(added("FDB level 17"), Texts{"FDB level 17 priority 2 {}: modify_header dest_table 60"})
        << "behind a recirculation software has seen them";
}

/// A table is a place of the device, and both sides' packets may come there.
TEST_F(StandingRules, ABranchTakesPacketsOfItsVportOnly) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, MegaflowBuilder(1).ipv4().output(9).push(5).recirc(7))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, MegaflowBuilder(9).ipv4().set(OVSDR_HEADER_IP_TTL, {63}).output(1)
                                                    .set(OVSDR_HEADER_IP_TTL, {62}).recirc(7))));
    EXPECT_EQ(added("FDB level 2"),
              (Texts{"FDB level 2 priority 0 {source_port=0x1}: push_vlan 2164260869 dest_table 9",
                     "FDB level 2 priority 0 {source_port=0xffff}: modify_header dest_table 9",
                     "FDB level 2 priority 0 {source_port=0xffff}: modify_header dest_vport 1"}));
}

TEST_F(StandingRules, CopiesForSoftwareGoUpByTheirWork) {
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder(1).ipv4().output(9).software("x"))));
    EXPECT_EQ(added(), (Texts{"FDB level 1 priority 1 {ethertype=0x800, cvlan_tag=0x0, frag=0x0, ip_version=0x4, "
                              "source_port=0x1}: count dest_array [dest_vport 65535, dest_table 2]",
                              "FDB level 2 priority 0 {source_port=0x1}: modify_header dest_table 60",
                              "FDB level 60 priority 0 {}: default_miss",
                              "NIC_RX level 1 priority 0 {metadata_reg_c_1=0xd5000002}: count tag 2 dest_table 2",
                              "NIC_RX level 2 priority 0 {}: count dest_qp 0"}));
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    EXPECT_EQ(added("NIC_RX level 2"), Texts{"NIC_RX level 2 priority 1 {}: count dest_qp 0"})
        << "the new queue is there before the old one goes";
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    EXPECT_EQ(added("NIC_RX level 2"), Texts{"NIC_RX level 2 priority 0 {}: count dest_qp 0"});
}

TEST_F(StandingRules, ASamplerIsInFrontOfThePacketsOfItsVport) {
    ASSERT_TRUE(eswitch_->lead_copies(CopyKind::other, &queue_pair_));
    ASSERT_TRUE(installed(eswitch_->put(ufid_, MegaflowBuilder(1).ipv4().software("x", 64).output(9))));
    EXPECT_EQ(added("FDB level 2"), Texts{"FDB level 2 priority 0 {source_port=0x1}: dest_vport 65535"});
}

}  // namespace
}  // namespace ovsdr::dr
