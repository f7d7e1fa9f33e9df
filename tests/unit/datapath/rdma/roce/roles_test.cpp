// What each kind of queue pair takes and tells: its rings, its doorbells, its completions, its events.
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {


struct RolesTest : TwoNodes {
    static Queue::Work write(Queue& from, Queue& to, std::size_t size = 8) {
        return {.opcode = a_write, .sges = {from.piece(0, size)}, .remote = to.address(), .rkey = to.region.key};
    }
    static std::vector<ibv_wc_status> statuses(const std::vector<Completion>& completions) {
        std::vector<ibv_wc_status> all;
        for (const Completion& completion : completions) all.push_back(completion.status);
        return all;
    }
    mlx5_wqe_av address_of(Queue& to) {
        ibv_ah_attr attr{};
        attr.is_global = attr.port_num = 1;
        attr.grh.sgid_index = 1;
        attr.grh.dgid = to.node.gid(1);
        mlx5_wqe_av vector{};
        EXPECT_EQ(resolve(left.state(), attr, vector), 0);
        vector.key.qkey.qkey = htobe32(Queue::usual().qkey);
        vector.dqp_dct = htobe32(to.number());
        return vector;
    }
};

TEST_F(RolesTest, WhoOnlySendsByXrcTakesNoRequests) {
    Queue one{left, {.type = IBV_QPT_XRC_SEND}}, other{right, {.type = IBV_QPT_XRC_SEND}};
    one.connect(other);
    other.connect(one);
    unsigned answers = 0;
    wire = [&](const Frame&, bool from_left) {
        answers += !from_left;
        return 1u;
    };
    one.post(write(one, other));
    run({}, 1'000'000);
    EXPECT_EQ(answers, 0U);
    EXPECT_EQ(other.pair->state(), IBV_QPS_RTS);
}

TEST_F(RolesTest, ADatagramEstablishesNoConnection) {
    Queue from{left, {.type = IBV_QPT_UD}}, to{right, {.type = IBV_QPT_UD}};
    from.connect(from);
    ibv_qp_attr attr = Queue::usual();
    attr.port_num = 1;
    ASSERT_EQ(to.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
    ASSERT_EQ(to.to(IBV_QPS_RTR), 0);
    to.post_receive(1, {to.piece(0, 100)});
    const mlx5_wqe_av address = address_of(to);
    from.post({.sges = {from.piece(0, 8)}, .address = &address});
    run();
    EXPECT_EQ(to.receives_done().size(), 1U);
    EXPECT_TRUE(to.events.empty());
}

TEST_F(RolesTest, ADatagramGoesToTheMemoryOfItsSharedQueue) {
    int domain = 0;
    SharedReceiveQueue srq({.state = right.state(), .domain = &domain, .number = 1, .max_requests = 4, .max_sges = 1});
    std::vector<std::byte> bytes(200);
    MemoryRegion region{reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(), bytes.data(),
                        IBV_ACCESS_LOCAL_WRITE, &domain};
    ASSERT_EQ(right.state().memory().add(region), 0);
    Queue from{left, {.type = IBV_QPT_UD}}, to{right, {.type = IBV_QPT_UD, .srq = &srq}};
    from.connect(to);
    to.connect(from);
    const mlx5_wqe_av address = address_of(to);
    from.post({.sges = {from.piece(0, 8)}, .address = &address});
    run();
    EXPECT_TRUE(to.receives_done().empty()) << "there is no buffer";
    ibv_sge piece{region.iova, 200, region.key};
    ibv_recv_wr work{5, nullptr, &piece, 1}, *bad = nullptr;
    ASSERT_EQ(srq.post(&work, &bad), 0);
    fill(from.memory, 1);
    from.post({.sges = {from.piece(0, 8)}, .address = &address});
    run();
    const auto got = to.receives_done();
    ASSERT_EQ(got.size(), 1U);
    EXPECT_EQ(got[0].wr_id, 5U);
    EXPECT_EQ(got[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(got[0].freed, nullptr) << "a shared queue's slots are its own";
    EXPECT_TRUE(std::equal(bytes.begin() + 40, bytes.begin() + 48, from.memory.begin()));
    right.state().memory().remove(region.key);
}

TEST_F(RolesTest, CompletionsSayWhichEntryTheyAreOf) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    for (std::uint64_t i = 0; i < 2; ++i) server.post_receive(40 + i, {server.piece(0, 100)});
    client.post({.opcode = MLX5_OPCODE_SEND, .inlined = Frame(60), .wr_id = 7});  // two blocks
    client.post({.opcode = a_read,
                 .sges = {client.piece(0, 9)},
                 .remote = server.address(),
                 .rkey = server.region.key,
                 .wr_id = 8});
    client.post({.opcode = MLX5_OPCODE_SEND, .sges = {client.piece(0, 9)}, .wr_id = 9});
    run();
    const auto done = client.sends();
    ASSERT_EQ(done.size(), 3U);
    const struct {
        std::uint64_t wr_id, freed_up_to;
        std::uint16_t counter;
        std::uint8_t opcode;
        std::uint32_t size;
    } sent[] = {{7, 2, 0, MLX5_OPCODE_SEND, 0}, {8, 3, 2, a_read, 9}, {9, 4, 3, MLX5_OPCODE_SEND, 0}};
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(done[i].wr_id, sent[i].wr_id);
        EXPECT_EQ(done[i].freed_up_to, sent[i].freed_up_to);
        EXPECT_EQ(done[i].wqe_counter, sent[i].counter);
        EXPECT_EQ(done[i].entry_opcode, sent[i].opcode);
        EXPECT_EQ(done[i].byte_len, sent[i].size);
        EXPECT_EQ(done[i].qp_num, client.number());
    }
    const auto got = server.receives_done();
    ASSERT_EQ(got.size(), 2U);
    for (std::uint16_t i = 0; i < 2; ++i) {
        EXPECT_EQ(got[i].wr_id, 40U + i);
        EXPECT_EQ(got[i].wqe_counter, i);
        EXPECT_EQ(got[i].freed_up_to, i + 1U);
        EXPECT_EQ(got[i].freed, &server.receive_freed);
        EXPECT_EQ(got[i].src_qp, 0U) << "a datagram's";
    }
}

TEST_F(RolesTest, TheLibraryMaySayWhatAnEntryCompletesAs) {
    std::array<std::uint32_t, Queue::ring_length> told{};
    Queue client{left, {.completes_as = told.data()}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    told[1] = IBV_WC_BIND_MW;
    told[2] = IBV_WC_DRIVER2;
    for (const std::uint8_t opcode : {a_write, a_write, std::uint8_t{MLX5_OPCODE_NOP}, std::uint8_t{MLX5_OPCODE_NOP}}) {
        Queue::Work work = write(client, server);
        work.opcode = opcode;
        client.post(work);
    }
    run();
    std::vector<ibv_wc_opcode> opcodes;
    for (const Completion& completion : client.sends()) opcodes.push_back(completion.opcode);
    EXPECT_EQ(opcodes, (std::vector{IBV_WC_RDMA_WRITE, IBV_WC_BIND_MW, IBV_WC_DRIVER2, IBV_WC_SEND}));
}

TEST_F(RolesTest, EntriesWithoutNumbersCompleteWithoutThem) {
    Queue client{left, {.anonymous = true}}, server{right, {.anonymous = true}};
    client.connect(server);
    server.connect(client);
    server.post_receive(5, {server.piece(0, 8)});
    client.post({.sges = {client.piece(0, 8)}, .wr_id = 6});
    run();
    EXPECT_EQ(client.sends().at(0).wr_id, 0U);
    EXPECT_EQ(server.receives_done().at(0).wr_id, 0U);
}

TEST_F(RolesTest, ATargetOfXrcHasNoRings) {
    CompletionQueue completions(64, false, {});
    const int domain = 0;
    SharedReceiveQueue srq({.state = right.state(), .domain = this, .number = 0x77, .max_requests = 4, .max_sges = 1,
                            .completions = &completions, .xrc_domain = &domain});
    Queue client{left, {.type = IBV_QPT_XRC_SEND}};
    Queue server{right, {.type = IBV_QPT_XRC_RECV, .xrc_domain = &domain, .silent = true, .bare = true}};
    client.connect(server);
    server.connect(client);
    client.post({.opcode = a_write, .xrc_srq = 0x77});
    run();
    EXPECT_EQ(statuses(client.sends()), std::vector{IBV_WC_SUCCESS});
    client.post({.opcode = a_write,
                 .sges = {client.piece(0, 8)},
                 .remote = server.address(),
                 .rkey = server.region.key,
                 .xrc_srq = 0x77});
    run();
    EXPECT_EQ(statuses(client.sends()), std::vector{IBV_WC_REM_ACCESS_ERR})
        << "of another domain than the shared queue";
    EXPECT_EQ(server.pair->state(), IBV_QPS_ERR) << "of which nobody wants to hear";
}

TEST_F(RolesTest, AWriteThatNamesNoQueueOfItsDomainIsARemoteAccessError) {
    CompletionQueue completions(64, false, {});
    const int domain = 0, other = 1;
    SharedReceiveQueue foreign({.state = right.state(), .domain = this, .number = 0x78, .max_requests = 4,
                                .max_sges = 1, .completions = &completions, .xrc_domain = &other});
    std::vector<std::byte> bytes(64);
    MemoryRegion region{reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(), bytes.data(),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, this};
    ASSERT_EQ(right.state().memory().add(region), 0);
    for (const std::uint32_t number : {0x77U, 0x78U}) {
        Queue client{left, {.type = IBV_QPT_XRC_SEND}};
        Queue server{right, {.type = IBV_QPT_XRC_RECV, .xrc_domain = &domain}};
        client.connect(server);
        server.connect(client);
        client.post({.opcode = a_write,
                     .sges = {client.piece(0, 8)},
                     .remote = region.iova,
                     .rkey = region.key,
                     .xrc_srq = number});
        run();
        EXPECT_EQ(statuses(client.sends()), std::vector{IBV_WC_REM_ACCESS_ERR}) << number;
    }
    right.state().memory().remove(region.key);
}

TEST_F(RolesTest, ADoorbellPastTheRingIsNoCountOfPosts) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    client.send_doorbell = htobe32(Queue::ring_length + 1);
    client.pair->ring_send();
    server.receive_doorbell = htobe32(Queue::ring_length + 1);
    run();
    EXPECT_TRUE(client.sends().empty());
    server.post({.sges = {server.piece(0, 8)}});
    client.send_doorbell = 0;
    run({}, 100'000);
    // A full ring is one.
    client.receive_doorbell = htobe32(Queue::ring_length + 1);
    run({}, 10'000'000);
    EXPECT_TRUE(client.receives_done().empty());
    const mlx5_wqe_data_seg none{0, htobe32(MLX5_INVALID_LKEY), 0};
    const mlx5_wqe_data_seg place{htobe32(8), htobe32(client.region.key), htobe64(client.address())};
    std::memcpy(client.receive_ring, &place, sizeof place);
    std::memcpy(client.receive_ring + 16, &none, sizeof none);
    client.receive_doorbell = htobe32(Queue::ring_length);
    run();
    EXPECT_EQ(client.receives_done().size(), 1U);
    for (unsigned i = 0; i < Queue::ring_length; ++i) {
        client.post({.opcode = MLX5_OPCODE_NOP, .sges = {client.piece(0, 8)}});
    }
    run();
    EXPECT_EQ(client.sends().size(), 64U);
}

TEST_F(RolesTest, APolledQueueIsLookedAtInTheStatesThatSend) {
    Queue client{left, {.type = IBV_QPT_UC, .polled = true}}, server{right, {.type = IBV_QPT_UC}};
    client.connect(server);
    server.connect(client);
    client.post(write(client, server));
    run({}, 10'000'000);
    EXPECT_EQ(statuses(client.sends()), std::vector{IBV_WC_SUCCESS});
    ASSERT_EQ(client.to(IBV_QPS_SQD), 0);
    client.post(write(client, server));
    run({}, 10'000'000);
    EXPECT_TRUE(client.sends().empty());
    ASSERT_EQ(client.to(IBV_QPS_RTS), 0);
    run({}, 10'000'000);
    EXPECT_EQ(statuses(client.sends()), std::vector{IBV_WC_SUCCESS});
    client.post({.sges = {{client.address(), 8, 0}}});
    run({}, 10'000'000);
    EXPECT_EQ(statuses(client.sends()), std::vector{IBV_WC_LOC_PROT_ERR});
    ASSERT_EQ(client.pair->state(), IBV_QPS_SQE);
    client.post(write(client, server));
    run({}, 10'000'000);
    EXPECT_EQ(statuses(client.sends()), std::vector{IBV_WC_WR_FLUSH_ERR});
    ASSERT_EQ(client.to(IBV_QPS_ERR), 0);
    client.post(write(client, server));
    run({}, 10'000'000);
    EXPECT_EQ(statuses(client.sends()), std::vector{IBV_WC_WR_FLUSH_ERR});
    client.post_receive(1, {});
    run({}, 10'000'000);
    EXPECT_EQ(statuses(client.receives_done()), std::vector{IBV_WC_WR_FLUSH_ERR});
}

TEST_F(RolesTest, AQueueMayBeLookedAtFromNowOn) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    client.pair->poll_doorbells();
    client.pair->poll_doorbells();
    client.rings = false;
    client.post(write(client, server));
    run({}, 10'000'000);
    EXPECT_EQ(client.sends().size(), 1U);
    EXPECT_NE(left.device().next_turn(now), Service::never);
}

TEST_F(RolesTest, TheLastEntryOfASharedQueueIsToldOnce) {
    SharedReceiveQueue srq({.state = right.state(), .domain = this, .number = 1, .max_requests = 4, .max_sges = 1});
    Queue client{left, {}}, server{right, {.srq = &srq}};
    client.connect(server);
    server.connect(client);
    ASSERT_EQ(server.to(IBV_QPS_ERR), 0);
    ASSERT_EQ(server.to(IBV_QPS_ERR), 0);
    EXPECT_EQ(server.events, std::vector{IBV_EVENT_QP_LAST_WQE_REACHED});
    ASSERT_EQ(server.to(IBV_QPS_RESET), 0);
    server.connect(client);
    ASSERT_EQ(server.to(IBV_QPS_ERR), 0);
    EXPECT_EQ(server.events.size(), 2U) << "and again after RESET";
}

TEST_F(RolesTest, DrainingIsToldOnceAndOnlyWhereItWasAskedFor) {
    Queue client{left, {}}, server{right, {}};
    client.connect(server);
    server.connect(client);
    ASSERT_EQ(client.to(IBV_QPS_SQD), 0);
    run();
    EXPECT_TRUE(client.events.empty());
    ASSERT_EQ(client.to(IBV_QPS_RTS), 0);
    wire = [](const Frame&, bool) { return 0u; };
    client.post(write(client, server));
    (void)left.turn(now += 1000);
    ibv_qp_attr attr{}, read{};
    attr.en_sqd_async_notify = 1;
    ASSERT_EQ(client.to(IBV_QPS_SQD, attr, IBV_QP_EN_SQD_ASYNC_NOTIFY), 0);
    client.pair->query(read);
    EXPECT_EQ(read.sq_draining, 1);
    EXPECT_EQ(read.en_sqd_async_notify, 1);
    EXPECT_FALSE(client.pair->drained_at());
    ASSERT_EQ(client.to(IBV_QPS_SQD, Queue::usual(), IBV_QP_TIMEOUT), 0);
    wire = [](const Frame&, bool) { return 1u; };
    run();
    EXPECT_EQ(client.events, std::vector{IBV_EVENT_SQ_DRAINED});
    client.pair->query(read);
    EXPECT_EQ(read.sq_draining, 0);
    EXPECT_EQ(client.pair->drained_at(), std::uint64_t{1});
    ASSERT_EQ(client.to(IBV_QPS_SQD, Queue::usual(), IBV_QP_TIMEOUT), 0);
    run();
    EXPECT_EQ(client.events.size(), 1U);
    ASSERT_EQ(client.to(IBV_QPS_RTS), 0);
    EXPECT_FALSE(client.pair->drained_at());
}

TEST_F(RolesTest, AQueuePairThatGoesIsHeardOfNoMore) {
    Queue server{right, {}};
    {
        Queue client{left, {}};
        client.connect(server);
        server.connect(client);
        client.post(write(client, server));  // it has rung
    }
    (void)left.turn(now += 1000);
    EXPECT_TRUE(left.sent.empty());
    // Among several that have something to send.
    std::vector<std::unique_ptr<Queue>> clients;
    for (int i = 0; i < 4; ++i) {
        clients.push_back(std::make_unique<Queue>(left, Queue::Options{}));
        clients.back()->connect(server);
    }
    for (const std::size_t gone : {1UL, 2UL, 0UL}) {
        for (const auto& client : clients) ASSERT_EQ(client->pair->schedule(nullptr, nullptr), 0);
        clients.erase(clients.begin() + static_cast<long>(gone));
        for (const auto& client : clients) client->post(write(*client, server));
        (void)left.turn(now += 1000);
        EXPECT_EQ(left.sent.size(), clients.size());
        left.sent.clear();
        for (const auto& client : clients) {
            ASSERT_EQ(client->to(IBV_QPS_RESET), 0);
            client->posted = 0;
            client->send_doorbell = 0;
            client->send_freed = 0;
            client->connect(server);
        }
    }
}

TEST_F(RolesTest, AnotherUdpSourcePortIsForRunningConnections) {
    Queue client{left, {}}, server{right, {}};
    EXPECT_EQ(client.pair->set_udp_source_port(0xc001), EINVAL);
    client.connect(server);
    server.connect(client);
    std::uint64_t label = std::uint64_t{client.number()} * server.number();  // as Linux has it, rdma_calc_flow_label()
    label ^= label >> 20;
    label ^= label >> 40;
    std::vector<unsigned> ports;
    wire = [&](const Frame& frame, bool from_left) {
        if (from_left) {
            ports.push_back(std::to_integer<unsigned>(frame[34]) << 8 | std::to_integer<unsigned>(frame[35]));
        }
        return 1u;
    };
    client.post(write(client, server));
    run();
    ASSERT_EQ(client.pair->set_udp_source_port(0xc001), 0);
    client.post(write(client, server));
    run();
    EXPECT_EQ(ports, (std::vector<unsigned>{ibv_flow_label_to_udp_sport(label & 0xfffff), 0xc001}));
}

TEST_F(RolesTest, WhatAQueuePairSendsGoesToTheUplinkAndSoDoOurQuestions) {
    Lane lane(left.device().steering(), 0);
    const auto goes_to_uplink = [&](std::uint32_t sqn) {
        const auto before = left.device().steering().drops().no_vport;  // nobody is attached there
        rte_mbuf* packet = rte_pktmbuf_alloc(soft::test::packet_pool());
        std::memset(rte_pktmbuf_append(packet, 64), 0, 64);
        lane.online();
        lane.from_queue(sqn, &packet, 1);
        lane.quiescent();
        lane.offline();
        return left.device().steering().drops().no_vport != before;
    };
    EXPECT_TRUE(goes_to_uplink(left.last_sqn));
    std::uint32_t sqn = 0;
    {
        const Queue queue{left, {}};
        sqn = queue.pair->spec().sqn;
        EXPECT_TRUE(goes_to_uplink(sqn));
    }
    EXPECT_FALSE(goes_to_uplink(sqn));
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
