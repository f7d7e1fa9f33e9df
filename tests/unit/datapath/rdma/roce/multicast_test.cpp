// Datagrams to multicast groups: who gets a copy, from the wire and from here.
#include "datapath/rdma/roce/multicast.hpp"

#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

ibv_gid ipv4_group(std::uint8_t last) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 200, 0, last}};
}
ibv_gid ipv6_group(std::uint8_t last) {
    return {{0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xa1, 0xb2, 0, last}};
}

struct MulticastTest : TwoNodes {
    Queue sender{left, {.type = IBV_QPT_UD}};
    Queue near{left, {.type = IBV_QPT_UD}};
    Queue blocked{left, {.type = IBV_QPT_UD, .create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}};
    Queue far{right, {.type = IBV_QPT_UD}}, far_too{right, {.type = IBV_QPT_UD}}, outside{right, {.type = IBV_QPT_UD}};
    std::vector<Queue*> all{&sender, &near, &blocked, &far, &far_too, &outside};
    mlx5_wqe_av address{};

    void SetUp() override {
        for (Queue* queue : all) queue->connect(*queue);
    }
    void join(Queue& queue, const ibv_gid& group) {
        ASSERT_EQ(queue.node.transport().multicast().attach(group, queue.number()), 0);
    }
    /// Sends to `group`, to its queue pair or `qpn`; how many datagrams each of `all` got.
    std::vector<std::size_t> send(Queue& from, const ibv_gid& group, std::uint32_t qpn = multicast_qpn,
                                  unsigned gid_index = 1) {
        ibv_ah_attr attr{};
        attr.is_global = 1;
        attr.port_num = 1;
        attr.grh.dgid = group;
        attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
        EXPECT_EQ(resolve(from.node.state(), attr, address), 0);
        address.key.qkey.qkey = htobe32(Queue::usual().qkey);
        address.dqp_dct = htobe32(qpn);
        for (Queue* queue : all) queue->post_receive(1, {queue->piece(0, 200)});
        from.post({.sges = {from.piece(1000, 100)}, .address = &address});
        run();
        EXPECT_EQ(from.sends().size(), 1U);
        std::vector<std::size_t> got;
        for (Queue* queue : all) got.push_back(queue->receives_done().size());
        return got;
    }
};

using Counts = std::vector<std::size_t>;

TEST_F(MulticastTest, EachMemberGetsACopyHereAndThere) {
    for (const ibv_gid& group : {ipv4_group(1), ipv6_group(1)}) {
        for (Queue* queue : {&near, &far, &far_too}) join(*queue, group);
        EXPECT_EQ(send(sender, group, multicast_qpn, is_ipv4(group) ? 1 : 2), (Counts{0, 1, 0, 1, 1, 0}));
    }
}

TEST_F(MulticastTest, TheCopyHasTheGroupsAddressInItsGrhAndTheSendersNumber) {
    join(far, ipv4_group(1));
    fill(sender.memory, 3);
    far.post_receive(7, {far.piece(0, 200)});
    wire = [](const Frame& frame, bool) {
        EXPECT_EQ(frame[0], std::byte{0x01});
        EXPECT_EQ(frame[3], std::byte{200 & 0x7f});
        EXPECT_EQ(frame[5], std::byte{1});
        return 1u;
    };
    ibv_ah_attr attr{};
    attr.is_global = attr.port_num = 1;
    attr.grh.dgid = ipv4_group(1);
    attr.grh.sgid_index = 1;
    ASSERT_EQ(resolve(left.state(), attr, address), 0);
    address.key.qkey.qkey = htobe32(Queue::usual().qkey);
    address.dqp_dct = htobe32(multicast_qpn);
    sender.post({.sges = {sender.piece(1000, 100)}, .address = &address});
    run();
    const auto got = far.receives_done();
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].src_qp, sender.number());
    EXPECT_EQ(got[0].byte_len, 140U);
    const std::byte destination[] = {std::byte{239}, std::byte{200}, std::byte{0}, std::byte{1}};
    EXPECT_TRUE(std::equal(std::begin(destination), std::end(destination), far.memory.begin() + 36));
    EXPECT_TRUE(std::equal(far.memory.begin() + 40, far.memory.begin() + 140, sender.memory.begin() + 1000));
}

TEST_F(MulticastTest, ASenderHearsItselfUnlessItWasMadeNotTo) {
    for (Queue* queue : {&sender, &near, &blocked}) join(*queue, ipv4_group(1));
    EXPECT_EQ(send(sender, ipv4_group(1)), (Counts{1, 1, 1, 0, 0, 0}));
    EXPECT_EQ(send(blocked, ipv4_group(1)), (Counts{1, 1, 0, 0, 0, 0}));
}

TEST_F(MulticastTest, OtherGroupsAndWhoeverLeftGetNothing) {
    join(far, ipv4_group(1));
    join(far, ipv4_group(1));
    join(far_too, ipv4_group(2));
    EXPECT_EQ(send(sender, ipv4_group(1)), (Counts{0, 0, 0, 1, 0, 0})) << "one copy, however often it was attached";
    right.transport().multicast().detach(ipv4_group(1), far.number());
    EXPECT_EQ(send(sender, ipv4_group(1)), (Counts{0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(send(sender, ipv4_group(2)), (Counts{0, 0, 0, 0, 1, 0}));
}

TEST_F(MulticastTest, OnlyPacketsToTheMulticastQueuePairAreCopied) {
    join(far, ipv4_group(1));
    EXPECT_EQ(send(sender, ipv4_group(1), far.number()), (Counts{0, 0, 0, 0, 0, 0}));
}

TEST_F(MulticastTest, AFrameToAnotherMacOrWithAWrongChecksumIsNotTheGroups) {
    join(far, ipv4_group(1));
    for (const std::size_t at : {std::size_t{5}, std::size_t{70}}) {
        Frame kept;
        wire = [&kept](const Frame& frame, bool) {
            kept = frame;
            return 0u;
        };
        EXPECT_EQ(send(sender, ipv4_group(1)), (Counts{0, 0, 0, 0, 0, 0}));
        ASSERT_GT(kept.size(), at);
        Frame bad = kept;
        bad[at] ^= std::byte{1};
        right.receive(bad);
        run();
        EXPECT_TRUE(far.receives_done().empty()) << at;
        right.receive(kept);
        run();
        EXPECT_EQ(far.receives_done().size(), 1U);
    }
}

TEST(MulticastMac, IsMadeOfTheAddress) {
    const std::array<std::uint8_t, 6> of_ipv4{1, 0, 0x5e, 200 & 0x7f, 0, 1}, of_ipv6{0x33, 0x33, 0xa1, 0xb2, 0, 1};
    EXPECT_EQ(multicast_mac(ipv4_group(1)), of_ipv4);
    EXPECT_EQ(multicast_mac(ipv6_group(1)), of_ipv6);
    ibv_gid gid = ipv4_group(1);
    for (unsigned first = 0; first < 256; ++first) {
        gid.raw[12] = static_cast<std::uint8_t>(first);
        EXPECT_EQ(is_multicast(gid), first >= 224 && first < 240) << first;
    }
    gid = ipv6_group(1);
    gid.raw[0] = 0xfe;
    EXPECT_FALSE(is_multicast(gid));
}

TEST_F(MulticastTest, AGroupHasAsManyMembersAsTheDeviceSays) {
    MulticastGroups& groups = left.transport().multicast();
    for (std::uint32_t qpn = 1; qpn <= MulticastGroups::most_members; ++qpn) {
        ASSERT_EQ(groups.attach(ipv4_group(9), qpn), 0);
    }
    EXPECT_EQ(groups.attach(ipv4_group(9), 5), 0) << "it is one";
    EXPECT_EQ(groups.attach(ipv4_group(9), 1000), ENOMEM);
    EXPECT_EQ(groups.attach(ipv4_group(8), 1000), 0);
    groups.detach(ipv4_group(9), 7);
    groups.detach(ipv4_group(7), 7);
    EXPECT_EQ(groups.members(ipv4_group(9)).size(), MulticastGroups::most_members - 1);
    EXPECT_EQ(groups.members(ipv4_group(8)).size(), 1U);
    EXPECT_TRUE(groups.members(ipv4_group(7)).empty());
    EXPECT_EQ(groups.attach(ipv4_group(9), 1000), 0) << "there is room again";
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
