// Tables of tunnel ports on the recording provider: what they hold, who waits for whom, and what is left behind.
#include <gtest/gtest.h>

#include "tests/unit/offload/dr/eswitch_fixture.hpp"

namespace ovsdr::dr {
namespace {

constexpr std::uint32_t uplink = 9, vxlan = 20, geneve = 21;

std::optional<TableKey> in_table(std::uint32_t recirc_id, std::uint32_t tunnel_port) {
    return TableKey{recirc_id, tunnel_port};
}

class TunnelTables : public EswitchTest {
protected:
    void SetUp() override {
        EswitchTest::SetUp();
        ASSERT_TRUE(eswitch_->attach_port({OdpPort{uplink}, VportId{0xFFFF}, "uplink", &queue_pair_, 0x109}));
        eswitch_->set_tunnel_port({OdpPort{vxlan}, TunnelKind::vxlan, 4789, "vxlan_sys_4789"});
        eswitch_->set_tunnel_port({OdpPort{geneve}, TunnelKind::geneve, 6081, "genev_sys_6081"});
    }
    void TearDown() override {
        eswitch_->flush(std::nullopt);
        eswitch_->detach_port(VportId{0xFFFF});
        EswitchTest::TearDown();
    }

    static MegaflowBuilder parent(std::uint32_t tunnel, std::uint16_t udp_port) {
        MegaflowBuilder flow(uplink);
        flow.ipv4().proto(17).ports(0, udp_port);
        flow.raw().mask.be_tp_src = 0;
        return flow.tunnel_pop(tunnel);
    }
    static MegaflowBuilder child(std::uint32_t tunnel, std::uint64_t id = 5) {
        return MegaflowBuilder(tunnel).from_tunnel(id).ipv4();
    }
    [[nodiscard]] bool offloaded(const Ufid& ufid) const { return eswitch_->explain(ufid)->offloaded; }

    static constexpr const char* decapsulation = "packet_reformat 0 of 0";
};

TEST_F(TunnelTables, LieBehindTheEntryAndSendMissesUp) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, child(vxlan).output(2))));
    EXPECT_EQ(rules_in("FDB level 1", "dest_table 9"), 1U);
    EXPECT_EQ(rules_in("FDB level 9", decapsulation), 1U);
    EXPECT_EQ(rules_in("FDB level 9", "dest_table 60"), 7U) << "misses, and ends of connections for each IP version";
    EXPECT_EQ(eswitch_->table_of(2), in_table(0, vxlan));
    const std::string text = eswitch_->show(false);
    EXPECT_NE(text.find("FDB level 9: megaflows of tunnel port 20 ("), std::string::npos) << text;
}

TEST_F(TunnelTables, AreOneForEachTunnelAndRecirculation) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, parent(geneve, 6081))));
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, child(vxlan).recirc(4))));
    ASSERT_TRUE(installed(eswitch_->put({1, 4}, child(geneve).recirc(4))));
    ASSERT_TRUE(installed(eswitch_->put({1, 5}, MegaflowBuilder().ipv4().recirc(4))));
    EXPECT_EQ(eswitch_->table_of(4), in_table(4, vxlan));
    EXPECT_EQ(eswitch_->table_of(5), in_table(4, geneve));
    EXPECT_EQ(eswitch_->table_of(6), in_table(4, 0));
    EXPECT_NE(eswitch_->show(false).find("megaflows behind recirc_id 0x4 of tunnel port 21"), std::string::npos);
}

TEST_F(TunnelTables, GoWithTheLastThatNeedsThem) {
    const unsigned tables = FakeProvider::alive("table");
    const std::size_t rules = FakeProvider::rules().size();
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, child(vxlan).output(2))));
    (void)eswitch_->del(Ufid{1, 1});
    EXPECT_EQ(FakeProvider::alive("table"), tables + 1) << "a megaflow lies there";
    (void)eswitch_->del(Ufid{1, 2});
    EXPECT_EQ(FakeProvider::alive("table"), tables);
    EXPECT_EQ(FakeProvider::rules().size(), rules);
}

TEST_F(TunnelTables, SaySoWhenNothingLeadsThere) {
    EXPECT_FALSE(installed(eswitch_->put({1, 2}, child(vxlan).output(2))));
    EXPECT_EQ(eswitch_->explain({1, 2})->text,
              "recirculation: in_port is a tunnel port (no megaflow in the NIC leads there): datapath port 20");
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    EXPECT_TRUE(becomes([&] { return offloaded({1, 2}); }));
}

/// The third waits for the first, too, and has its turn when the second has gone.
TEST_F(TunnelTables, MegaflowsThatCoincideComeInOneAfterAnother) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    const auto flow = [](unsigned flags) {
        return child(vxlan).tunnel_flags(OVSDR_TUNNEL_KEY | flags).output(2);
    };
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, flow(0))));
    EXPECT_FALSE(installed(eswitch_->put({1, 3}, flow(OVSDR_TUNNEL_CSUM))));
    MegaflowBuilder any = flow(OVSDR_TUNNEL_CSUM);
    any.raw().tunnel_mask.flags = OVSDR_TUNNEL_KEY;
    EXPECT_FALSE(installed(eswitch_->put({1, 4}, any)));
    EXPECT_TRUE(installed(eswitch_->put({1, 5}, child(vxlan, 6).output(2)))) << "does not coincide";
    EXPECT_TRUE(installed(eswitch_->put({1, 2}, child(vxlan).output(3)))) << "its own match again";
    EXPECT_EQ(rules_in("FDB level 9", decapsulation), 2U);
    (void)eswitch_->del(Ufid{1, 2});
    EXPECT_TRUE(becomes([&] { return offloaded({1, 3}) || offloaded({1, 4}); }));
    const bool third = offloaded({1, 3});
    EXPECT_NE(third, offloaded({1, 4}));
    (void)eswitch_->del(third ? Ufid{1, 3} : Ufid{1, 4});
    EXPECT_TRUE(becomes([&] { return offloaded(third ? Ufid{1, 4} : Ufid{1, 3}); }));
    EXPECT_EQ(rules_in("FDB level 9", decapsulation), 2U);
}

TEST_F(TunnelTables, OneMatchInTwoTablesIsTwo) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, child(vxlan, 6).recirc(4))));
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, child(vxlan, 7).recirc(6))));
    EXPECT_TRUE(installed(eswitch_->put({1, 4}, child(vxlan).output(1))));
    EXPECT_TRUE(installed(eswitch_->put({1, 5}, child(vxlan).behind(4).output(2))));
    EXPECT_TRUE(installed(eswitch_->put({1, 6}, child(vxlan).behind(6).output(3))));
}

TEST_F(TunnelTables, OneThatIsModifiedMakesRoomForItsOldMatch) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, child(vxlan).output(2))));
    EXPECT_FALSE(installed(eswitch_->put({1, 3}, child(vxlan).tunnel_flags(OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_CSUM)
                                                     .output(2))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, child(vxlan, 6).output(2))));
    EXPECT_TRUE(becomes([&] { return offloaded({1, 3}); }));
}

/// Of several PMD threads: the same megaflow under several ufids. Whichever rule a packet finds does the same to it.
TEST_F(TunnelTables, TwinsAreInTheNicTogether) {
    constexpr unsigned many = 8;
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    for (std::uint64_t thread = 0; thread < many; ++thread) {
        EXPECT_TRUE(installed(eswitch_->put({thread, 2}, child(vxlan).output(2)))) << thread;
    }
    EXPECT_EQ(rules_in("FDB level 9", decapsulation), many);
    const ovsdr_megaflow other = child(vxlan).tunnel_flags(OVSDR_TUNNEL_KEY | OVSDR_TUNNEL_CSUM).output(2);
    EXPECT_FALSE(installed(eswitch_->put({1, 3}, other))) << "no twin: OVS counts its packets apart";
    for (std::uint64_t thread = 0; thread + 1 < many; ++thread) {
        (void)eswitch_->del(Ufid{thread, 2});
        EXPECT_TRUE(offloaded({thread + 1, 2}));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_FALSE(offloaded({1, 3})) << "waits for the last of them";
    (void)eswitch_->del(Ufid{many - 1, 2});
    EXPECT_TRUE(becomes([&] { return offloaded({1, 3}); }));
}

/// OVS modifies one after another: in between they are no twins.
TEST_F(TunnelTables, ATwinThatIsModifiedWaitsForTheOther) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, child(vxlan).output(2))));
    ASSERT_TRUE(installed(eswitch_->put({2, 2}, child(vxlan).output(2))));
    EXPECT_FALSE(installed(eswitch_->put({1, 2}, child(vxlan).output(3))));
    EXPECT_EQ(rules_in("FDB level 9", decapsulation), 1U) << "the other's, as OVS still has it";
    EXPECT_TRUE(installed(eswitch_->put({2, 2}, child(vxlan).output(3))));
    EXPECT_TRUE(becomes([&] { return offloaded({1, 2}); }));
    EXPECT_EQ(rules_in("FDB level 9", decapsulation), 2U);
}

TEST_F(TunnelTables, AnOptionIsLookedForAsLongAsOneAsksForIt) {
    const unsigned before = FakeProvider::alive("devx");
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(geneve, 6081))));
    const unsigned counters = FakeProvider::alive("devx");
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, child(geneve).option(0x102, 0x80, 1).output(2))));
    ASSERT_TRUE(installed(eswitch_->put({1, 3}, child(geneve).option(0x102, 0x80, 2).output(2))));
    EXPECT_EQ(FakeProvider::alive("devx"), counters + 1) << "one object for both";
    EXPECT_FALSE(installed(eswitch_->put({1, 4}, child(geneve).option(0x102, 0x81, 1).output(2))));
    EXPECT_EQ(eswitch_->explain({1, 4})->text,
              "device limit: tun_metadata (the device looks for another Geneve option, and has one at a time)");
    (void)eswitch_->del(Ufid{1, 2});
    EXPECT_FALSE(offloaded({1, 4}));
    (void)eswitch_->del(Ufid{1, 3});
    EXPECT_TRUE(becomes([&] { return offloaded({1, 4}); }));
    EXPECT_EQ(FakeProvider::alive("devx"), counters + 1);
    (void)eswitch_->del(Ufid{1, 4});
    EXPECT_EQ(FakeProvider::alive("devx"), counters);
    EXPECT_GE(counters, before);
}

/// Somebody else's option in the device: those that need one are refused with a reason, and others go in as ever.
TEST_F(TunnelTables, ADeviceThatRefusesAnyOptionIsNotFull) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(geneve, 6081))));
    FakeProvider::refuse("mlx5dv_devx_obj_create", EINVAL);   // as firmware says it: BAD_PARAM
    for (std::uint32_t i = 0; i < 20; ++i) {
        EXPECT_FALSE(installed(eswitch_->put({2, i}, child(geneve).option(0x102, 0x80, 1 + i).output(2))));
    }
    FakeProvider::refuse("mlx5dv_devx_obj_create", 0);
    EXPECT_EQ(eswitch_->explain({2, 19})->text,
              "device limit: tun_metadata (the device refused to look for a Geneve option; another function may have "
              "one)");
    EXPECT_TRUE(installed(eswitch_->put({1, 3}, child(geneve).output(2))));
}

/// Nobody says when another function gives its option back, and no new megaflow may come: the device is asked again.
TEST_F(TunnelTables, AnOptionThatTheDeviceRefusedIsAskedForAgain) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(geneve, 6081))));
    FakeProvider::refuse("mlx5dv_devx_obj_create", ENOMEM);
    constexpr std::uint32_t many = 20;
    for (std::uint32_t i = 0; i < many; ++i) {
        (void)eswitch_->put({2, i}, child(geneve).option(0x102, 0x80, 1 + i).output(2));
    }
    const std::string waits = "device limit: tun_metadata (the device refused to look for a Geneve option; another "
                              "function may have one)";
    for (std::uint32_t i = 0; i < many; ++i) {
        EXPECT_TRUE(becomes([&] { return eswitch_->explain({2, i})->text == waits; })) << "not for room in the device";
    }
    FakeProvider::refuse("mlx5dv_devx_obj_create", 0);
    for (std::uint32_t i = 0; i < many; ++i) {
        EXPECT_TRUE(becomes([&] { return offloaded({2, i}); })) << i;
    }
}

/// The device looks for one option: not for one of which a megaflow only knows that it is there.
TEST_F(TunnelTables, AnOptionOfWhichNothingIsAskedDoesNotTakeTheDevices) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(geneve, 6081))));
    EXPECT_FALSE(installed(eswitch_->put({1, 2}, child(geneve).option(0x102, 0x80, 1, 0).output(2))));
    EXPECT_EQ(eswitch_->explain({1, 2})->text,
              "unsupported match: tun_metadata (an option, and nothing of what it says)");
}

TEST_F(TunnelTables, ChoicesReachMegaflowsThatAreThere) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(vxlan, 4789))));
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, child(vxlan).output(2))));
    eswitch_->choose({.exact_tunnel_flags = true});
    EXPECT_FALSE(offloaded({1, 2}));
    EXPECT_TRUE(offloaded({1, 1}));
    eswitch_->choose({.exact_tunnel_source_port = true});
    EXPECT_TRUE(offloaded({1, 2}));
}

/// Whatever call of the provider fails: nothing is left of a megaflow, and what waited gets in later.
TEST_F(TunnelTables, LeaveNothingBehindWhicheverCallFails) {
    ASSERT_TRUE(installed(eswitch_->put({1, 1}, parent(geneve, 6081))));
    const ovsdr_megaflow flow = child(geneve).option(0x102, 0x80, 1).push(7).output(2).output(3);
    ASSERT_TRUE(installed(eswitch_->put({1, 2}, flow)));   // counters keep their actions
    (void)eswitch_->del(Ufid{1, 2});
    const unsigned alive = FakeProvider::alive();
    for (unsigned call = 1;; ++call) {
        FakeProvider::fail_call(call, ENOMEM);
        (void)eswitch_->put({1, 2}, flow);
        const bool done = FakeProvider::calls() < call;
        FakeProvider::fail_call(0, 0);
        (void)eswitch_->del(Ufid{1, 2});
        EXPECT_EQ(FakeProvider::alive(), alive) << "call " << call;
        if (done) {
            EXPECT_GT(call, 8U);
            break;
        }
        ASSERT_LT(call, 100U);
    }
}

}  // namespace
}  // namespace ovsdr::dr
