// What the device's transport takes from the wire, and the addresses that it has.
#include "datapath/rdma/roce/transport.hpp"

#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct TransportTest : TwoNodes {
    Queue client{left, {}}, server{right, {}};
    Frame request;  ///< of the client's, which never came
    void SetUp() override {
        client.connect(server);
        server.connect(client);
        wire = [this](const Frame& frame, bool) {
            request = frame;
            return 0u;
        };
        client.post({.opcode = MLX5_OPCODE_RDMA_WRITE,
                     .sges = {client.piece(0, 8)},
                     .remote = server.address(),
                     .rkey = server.region.key});
        (void)left.turn(now += 1000);
        carry(left, right);
        ASSERT_FALSE(request.empty());
    }
    /// Whether the right node takes a frame, and whether it answers.
    std::pair<bool, bool> outcome(const Frame& frame) {
        const auto missed = [&] { return right.device().steering().drops().nic_rx_miss; };
        const auto before = missed();
        right.receive(frame);
        const bool taken = missed() == before;
        (void)right.turn(now += 1000);
        const bool answered = !right.sent.empty();
        right.sent.clear();
        return {taken, answered};
    }
    static Frame changed(Frame frame, std::size_t at, std::byte by, bool sealed = true) {
        frame[at] ^= by;
        const std::uint32_t crc = icrc(frame.data() + 14, true, frame.size() - 18);
        if (sealed) std::memcpy(frame.data() + frame.size() - 4, &crc, 4);
        return frame;
    }
};

using Outcome = std::pair<bool, bool>;

TEST_F(TransportTest, TakesWhatIsForItsMacAndItsAddresses) {
    const Transport::Counters& counters = right.transport().counters();
    EXPECT_EQ(outcome(changed(request, 5, std::byte{4})), Outcome(false, false)) << "another MAC";
    EXPECT_EQ(outcome(changed(request, 0, std::byte{1})), Outcome(false, false)) << "a group's MAC";
    EXPECT_EQ(outcome(changed(request, 14 + 19, std::byte{8})), Outcome(false, false)) << "another address";
    EXPECT_EQ(outcome(changed(request, 42 + 12, std::byte{1}, false)), Outcome(true, false)) << "a wrong ICRC";
    EXPECT_EQ(counters.bad_icrc, 1U);
    EXPECT_EQ(counters.malformed, 0U);
    EXPECT_EQ(outcome(changed(request, 43, std::byte{1})), Outcome(true, false)) << "another version";
    EXPECT_EQ(counters.malformed, 1U);
    EXPECT_EQ(counters.bad_icrc, 1U);
    EXPECT_EQ(outcome(request), Outcome(true, true));
    EXPECT_EQ(counters.malformed + counters.bad_icrc + counters.inbox_full, 2U);
    EXPECT_TRUE(right.transport().has_queue_pair(server.number()));
    EXPECT_FALSE(right.transport().has_queue_pair(0xfffffe));
}

TEST_F(TransportTest, GroupsMacsAreOfGroups) {
    Frame to_group = request;
    const std::uint8_t mac[] = {1, 0, 0x5e, 0, 2, 2};
    std::memcpy(to_group.data(), mac, 6);
    EXPECT_EQ(outcome(to_group), Outcome(false, false)) << "an address that is no group's";
    to_group[0] = to_group[1] = std::byte{0x33};
    EXPECT_EQ(outcome(to_group), Outcome(false, false));
}

TEST_F(TransportTest, WhatComesWhenTheInboxIsFullIsCounted) {
    Engine& engine = right.transport().engine_of(server.number());
    rte_mbuf* const nothing = rte_pktmbuf_alloc(soft::test::packet_pool());
    ASSERT_NE(nothing, nullptr);
    while (engine.post(nothing)) rte_mbuf_refcnt_update(nothing, 1);  // each entry holds it
    rte_pktmbuf_free(nothing);
    const unsigned buffers = rte_mempool_avail_count(soft::test::packet_pool());
    right.receive(request);
    EXPECT_EQ(rte_mempool_avail_count(soft::test::packet_pool()), buffers);
    EXPECT_EQ(right.transport().counters().inbox_full, 1U);
    while (right.turn(now += 1000) != 0) {
    }
    EXPECT_EQ(outcome(request), Outcome(true, true));
}

TEST_F(TransportTest, TheMacMayChange) {
    const std::uint8_t mac[6] = {2, 0, 0, 0, 7, 0x77};
    ASSERT_EQ(right.device().set_mac(manager_vport, mac), 0);
    right.device().tell(uplink_vport, VportChange::mac);
    right.device().tell(manager_vport, VportChange::mtu);
    EXPECT_EQ(outcome(request), Outcome(true, true)) << "nobody has said so";
    right.device().tell(manager_vport, VportChange::mac);
    EXPECT_EQ(outcome(request), Outcome(false, false));
    EXPECT_TRUE(std::equal(std::begin(mac), std::end(mac), right.transport().addresses().mac.begin()));
    const std::uint8_t link_local[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 7, 0x77};
    EXPECT_EQ(std::memcmp(right.gid(0).raw, link_local, 16), 0);
    Frame to_it = request;
    std::memcpy(to_it.data(), mac, 6);
    EXPECT_EQ(outcome(to_it), Outcome(true, true));
}

TEST_F(TransportTest, TheUplinksMtuBoundsDatagrams) {
    // 40 of IPv6, 8 of UDP, 12 of the BTH, 32 of what may come behind it, 4 of the ICRC.
    const std::pair<std::uint16_t, unsigned> known[] = {{9000, 4096}, {4192, 4096}, {4191, 2048}, {1500, 1024},
                                                        {1120, 1024}, {1119, 512},  {600, 256},   {68, 256}};
    for (const auto& [mtu, payload] : known) {
        ASSERT_EQ(left.device().set_mtu(uplink_vport, mtu), 0);
        EXPECT_EQ(left.transport().largest_mtu(), payload) << mtu;
    }
    left.device().remove(uplink_vport);
    EXPECT_EQ(left.transport().largest_mtu(), 256U);
}

TEST_F(TransportTest, TheGidTableIsTheManagersAtPortOne) {
    const auto entries = gid_entries(left.state());
    ASSERT_EQ(entries.size(), 5U);
    const std::uint8_t link_local[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 7, 1};
    EXPECT_EQ(std::memcmp(entries[0].gid.raw, link_local, 16), 0);
    EXPECT_EQ(entries[0].prefix, 64U);
    EXPECT_EQ(entries[0].vlan, 0);
    EXPECT_EQ(entries[1].prefix, 96U + 24);
    EXPECT_EQ(entries[1].vlan, 0);
    EXPECT_EQ(entries[2].prefix, 64U);
    EXPECT_EQ(entries[4].vlan, Node::vlan);
    EXPECT_EQ(std::memcmp(entries[1].gid.raw, ipv4(1).address, 16), 0);
    EXPECT_FALSE(gid_entry(left.state(), 0, 0));
    EXPECT_FALSE(gid_entry(left.state(), 2, 0));
    ASSERT_TRUE(gid_entry(left.state(), 1, 4));
    EXPECT_EQ(gid_entry(left.state(), 1, 4)->vlan, Node::vlan);
    EXPECT_FALSE(gid_entry(left.state(), 1, 5));
    left.device().remove(uplink_vport);
    EXPECT_EQ(gid_entries(left.state()).size(), 1U);
    left.device().remove(manager_vport);
    EXPECT_TRUE(gid_entries(left.state()).empty());
}

TEST_F(TransportTest, AnAddressHandleIsWhatWasAskedFor) {
    ibv_ah_attr attr{};
    attr.is_global = attr.port_num = 1;
    attr.static_rate = 5;
    attr.sl = 14;
    attr.grh.dgid = right.gid(1);
    attr.grh.sgid_index = 1;
    attr.grh.flow_label = 0xfff12345;
    attr.grh.traffic_class = 7;
    mlx5_wqe_av vector{};
    const auto error = [&] { return resolve(left.state(), attr, vector); };
    ASSERT_EQ(error(), 0);
    EXPECT_EQ(vector.stat_rate_sl, 5 << 4 | 6 << 1);
    EXPECT_EQ(priority_of(vector), 6);
    EXPECT_EQ(vector.grh_gid_fl, htobe32(1u << 30 | 1u << 20 | 0x12345));
    EXPECT_EQ(be16toh(vector.rlid), ibv_flow_label_to_udp_sport(0x12345));
    EXPECT_EQ(vector.tclass, 7);
    EXPECT_EQ(vector.hop_limit, 64) << "where none is said";
    EXPECT_EQ(std::memcmp(vector.rgid, right.gid(1).raw, 16), 0);
    attr.grh.hop_limit = 1;
    ASSERT_EQ(error(), 0);
    EXPECT_EQ(vector.hop_limit, 1);
    for (const std::uint8_t port : {0, 2}) {
        attr.port_num = port;
        EXPECT_EQ(error(), EINVAL);
    }
    attr.port_num = 1;
    attr.grh.dgid = {};
    EXPECT_EQ(error(), EINVAL) << "no address";
    attr.grh.sgid_index = 2;
    EXPECT_EQ(error(), EINVAL) << "of any family";
    // A link-local address carries its MAC; only fe80::/10 is one.
    attr.grh.dgid = right.gid(0);
    attr.grh.dgid.raw[1] = 0xbf;
    attr.grh.dgid.raw[13] = 0x55;
    ASSERT_EQ(error(), 0);
    const std::uint8_t mac[6] = {2, 0, 0, 0x55, 7, 2};
    EXPECT_EQ(std::memcmp(vector.rmac, mac, 6), 0);
    attr.grh.dgid.raw[1] = 0xc0;
    EXPECT_EQ(error(), EHOSTUNREACH);
    attr.grh.dgid.raw[0] = 0xfd;
    attr.grh.dgid.raw[1] = 0x80;
    EXPECT_EQ(error(), EHOSTUNREACH);
    // Each bit of the prefix counts, and none behind it.
    for (unsigned bit = 0; bit < 64; ++bit) {
        attr.grh.dgid = right.gid(2);
        attr.grh.dgid.raw[bit / 8] ^= static_cast<std::uint8_t>(0x80 >> bit % 8);
        EXPECT_EQ(error(), EHOSTUNREACH) << bit;
    }
    attr.grh.dgid = left.gid(2);
    ASSERT_EQ(error(), 0);
    EXPECT_EQ(std::memcmp(vector.rmac, left.transport().addresses().mac.data(), 6), 0) << "our own";
}

TEST_F(TransportTest, WithoutABufferNobodyIsAskedForAnAddress) {
    std::vector<rte_mbuf*> taken;
    for (rte_mbuf* one = nullptr; (one = rte_pktmbuf_alloc(soft::test::packet_pool())) != nullptr;) {
        taken.push_back(one);
    }
    ibv_gid nobody = right.gid(1);
    nobody.raw[15] = 99;
    Mac mac{};
    EXPECT_EQ(left.transport().neighbours().resolve(nobody, left.transport().addresses().gids.at(1), mac), ENOMEM);
    for (rte_mbuf* one : taken) rte_pktmbuf_free(one);
}

TEST_F(TransportTest, FramesOfItsOwnThatFindNoRoomAreDropped) {
    const unsigned buffers = rte_mempool_avail_count(soft::test::packet_pool());
    for (int i = 0; i < 70; ++i) {
        rte_mbuf* const frame = rte_pktmbuf_alloc(soft::test::packet_pool());
        (void)rte_pktmbuf_append(frame, 60);
        left.transport().send_frame(frame);
    }
    EXPECT_EQ(rte_mempool_avail_count(soft::test::packet_pool()), buffers - 63);
    std::size_t sent = 0;
    for (int i = 0; i < 4; ++i) {
        (void)left.turn(now += 1000);
        sent += left.sent.size();
        left.sent.clear();
    }
    EXPECT_EQ(sent, 63U);
    EXPECT_EQ(rte_mempool_avail_count(soft::test::packet_pool()), buffers);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
