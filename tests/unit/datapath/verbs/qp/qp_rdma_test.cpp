// What stands in the rings of RDMA queue pairs, what is refused and with which errno.
#include "tests/unit/datapath/verbs/qp/qp_rdma_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

TEST_F(RdmaQpTest, ASendIsAControlSegmentAndItsPieces) {
    ibv_qp* const qp = create(IBV_QPT_RC);
    ready(qp);
    ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM, 2);
    wr.imm_data = htobe32(0x01020304);
    wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_FENCE;
    ASSERT_EQ(post(qp, wr), 0);
    // The piece without bytes is left out.
    EXPECT_EQ(sent(qp, 0, 32), words({0x0b, qp->qp_num << 8 | 2, 0x8a, 0x01020304, 100, 7, 0, 0x1000}));
    EXPECT_EQ(device(qp).send_rings, 1u);
    EXPECT_EQ(device(qp).spec().send.wr_ids[0], 42u);
    EXPECT_EQ(be32toh(device(qp).spec().send.doorbell->load()), 1u);
}

TEST_F(RdmaQpTest, RemoteOperationsSayWhereAndAtomicsWhat) {
    ibv_qp* const qp = create(IBV_QPT_RC);
    ready(qp);
    ibv_send_wr wr = request(IBV_WR_RDMA_WRITE_WITH_IMM);
    wr.imm_data = htobe32(9);
    wr.wr.rdma = {0x1122334455667788, 0xabcdef};
    ASSERT_EQ(post(qp, wr), 0);
    EXPECT_EQ(sent(qp, 0, 48),
              words({0x09, qp->qp_num << 8 | 3, 0, 9, 0x11223344, 0x55667788, 0xabcdef, 0, 100, 7, 0, 0x1000}));
    wr = request(IBV_WR_RDMA_READ);
    wr.wr.rdma = {1, 2};
    ASSERT_EQ(post(qp, wr), 0);
    EXPECT_EQ(sent(qp, 1, 32), words({0x110, qp->qp_num << 8 | 3, 0, 0, 0, 1, 2, 0}));
    wr = request(IBV_WR_ATOMIC_CMP_AND_SWP);
    wr.wr.atomic = {0x10, 0xc0c1c2c3c4c5c6c7, 0x5051525354555657, 3};
    ASSERT_EQ(post(qp, wr), 0);
    EXPECT_EQ(sent(qp, 2, 64), words({0x211, qp->qp_num << 8 | 4, 0, 0, 0, 0x10, 3, 0, 0x50515253, 0x54555657,
                                      0xc0c1c2c3, 0xc4c5c6c7, 8, 7, 0, 0x1000}));
    wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    ASSERT_EQ(post(qp, wr), 0);
    EXPECT_EQ(sent(qp, 3, 48),
              words({0x312, qp->qp_num << 8 | 4, 0, 0, 0, 0x10, 3, 0, 0xc0c1c2c3, 0xc4c5c6c7, 0, 0}));
}

TEST_F(RdmaQpTest, InlineBytesStandInTheEntry) {
    ibv_qp* const qp = create(IBV_QPT_UC);
    ready(qp);
    const char text[] = "hello, world, this is inline";
    pieces[0] = {reinterpret_cast<std::uintptr_t>(text), 5, 0};
    pieces[1] = {reinterpret_cast<std::uintptr_t>(text) + 5, 0, 0};
    pieces[2] = {reinterpret_cast<std::uintptr_t>(text) + 5, 8, 0};
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_UC);
    attr.cap.max_send_sge = 3;
    ibv_qp* const other = create(attr);
    ready(other);
    ibv_send_wr wr = request(IBV_WR_SEND, 3);
    wr.send_flags = IBV_SEND_INLINE;
    ASSERT_EQ(post(other, wr), 0);
    Bytes expected = words({0x0a, other->qp_num << 8 | 3, 0, 0, 0x8000000d});
    for (int i = 0; i < 13; ++i) expected.push_back(static_cast<unsigned>(text[i]));
    EXPECT_EQ(sent(other, 0, 33), expected);
    // One byte more than granted.
    std::vector<char> much(attr.cap.max_inline_data + 1);
    pieces[0] = {reinterpret_cast<std::uintptr_t>(much.data()), attr.cap.max_inline_data, 0};
    wr.num_sge = 1;
    EXPECT_EQ(post(other, wr), 0);
    pieces[0].length++;
    EXPECT_EQ(post(other, wr), ENOMEM);
    EXPECT_EQ(bad, &wr);
}

TEST_F(RdmaQpTest, ADatagramHasItsAddress) {
    ibv_qp* const qp = create(IBV_QPT_UD);
    ready(qp);
    Ah ah{};
    ah.vector.rmac[0] = 0xaa;
    ah.vector.tclass = 0x11;
    ah.vector.rlid = htobe16(0xc123);
    ah.vector.rgid[15] = 0x99;
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.wr.ud = {&ah, 0x1234, 0x55667788};
    ASSERT_EQ(post(qp, wr), 0);
    EXPECT_EQ(sent(qp, 0, 80),
              words({0x0a, qp->qp_num << 8 | 5, 0, 0, 0x55667788, 0, 0x80001234, 0x0000c123, 0, 0xaa000000, 0x00001100,
                     0, 0, 0, 0, 0x99, 100, 7, 0, 0x1000}));
}

TEST_F(RdmaQpTest, WindowsAreBoundAndKeysInvalidatedByUmrEntries) {
    ibv_qp* const qp = create(IBV_QPT_RC);
    ready(qp);
    ibv_mw mw{};
    mw.rkey = 0x4501;
    mw.type = IBV_MW_TYPE_2;
    ibv_send_wr wr = request(IBV_WR_BIND_MW, 0);
    wr.bind_mw.mw = &mw;
    wr.bind_mw.rkey = 0x4502;
    wr.bind_mw.bind_info = {mr, 0x7000, 0x600, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
    ASSERT_EQ(post(qp, wr), 0);
    Bytes expected = words({0x25, qp->qp_num << 8 | 12, 0, 0x4501});
    be(expected, 1, 0xb0);  // inline, translation offset, check that it is free
    be(expected, 3, 0);
    be(expected, 2, 4);
    be(expected, 2, 0);
    be(expected, 8, 1 << 29 | 1 << 13 | 1 << 14 | 1 | 1 << 6 | 1 << 18 | 1 << 19 | 1 << 20 | 1 << 21);
    expected.insert(expected.end(), 32, 0);
    be(expected, 4, 0x3000);  // remote write and read
    be(expected, 4, qp->qp_num << 8 | 2);
    be(expected, 8, 0);
    be(expected, 8, 0x7000);
    be(expected, 8, 0x600);
    expected.insert(expected.end(), 32, 0);
    be(expected, 4, 0x600);
    be(expected, 4, mr->lkey);
    be(expected, 8, 0x7000);
    expected.insert(expected.end(), 48, 0);
    EXPECT_EQ(sent(qp, 0, 192), expected);
    EXPECT_EQ(device(qp).spec().send.completes_as[0], static_cast<unsigned>(IBV_WC_BIND_MW));

    wr = request(IBV_WR_LOCAL_INV, 0);
    wr.invalidate_rkey = 0x4502;
    ASSERT_EQ(post(qp, wr), 0);
    expected = words({0x325, qp->qp_num << 8 | 8, 0x20, 0x4502});  // after the window, fenced
    be(expected, 1, 0x98);                                         // check the owner
    be(expected, 7, 0);
    be(expected, 8, 1 << 29 | 1 << 13 | 1 << 14);
    expected.insert(expected.end(), 32, 0);
    be(expected, 4, 0x40000000);  // free
    be(expected, 4, 0xffffff00);
    EXPECT_EQ(sent(qp, 3, 72), expected);
    EXPECT_EQ(device(qp).spec().send.completes_as[3], static_cast<unsigned>(IBV_WC_LOCAL_INV));
    wr = request(IBV_WR_BIND_MW, 0);
    wr.bind_mw.mw = &mw;
    wr.bind_mw.bind_info = {mr, 0, (std::uint64_t{1} << 31) + 1, 0};
    EXPECT_EQ(post(qp, wr), EOPNOTSUPP);
}

TEST_F(RdmaQpTest, AListIsPostedUpToItsFirstBadRequest) {
    ibv_qp* const qp = create(IBV_QPT_RC);
    ready(qp);
    ibv_send_wr first = request(IBV_WR_SEND), second = request(IBV_WR_SEND, 3), third = request(IBV_WR_SEND);
    first.next = &second;
    second.next = &third;
    EXPECT_EQ(post(qp, first), ENOMEM);
    EXPECT_EQ(bad, &second);
    EXPECT_EQ(be32toh(device(qp).spec().send.doorbell->load()), 1u);
    EXPECT_EQ(device(qp).send_rings, 1u);
    for (const ibv_wr_opcode opcode : {IBV_WR_DRIVER1, static_cast<ibv_wr_opcode>(99)}) {
        ibv_send_wr wr = request(opcode);
        EXPECT_EQ(post(qp, wr), EINVAL);
    }
    EXPECT_EQ(device(qp).send_rings, 1u);
}

TEST_F(RdmaQpTest, AFullQueueRefusesUntilCompletionsAreTaken) {
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.cap = {3, 3, 1, 1, 0};
    ibv_qp* const qp = create(attr);
    ready(qp);
    ibv_send_wr wr = request(IBV_WR_SEND);
    for (unsigned i = 0; i < attr.cap.max_send_wr; ++i) ASSERT_EQ(post(qp, wr), 0);
    EXPECT_EQ(post(qp, wr), ENOMEM);
    device(qp).complete(true, 2);
    EXPECT_EQ(post(qp, wr), ENOMEM);
    ibv_wc wc;
    ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 1);
    EXPECT_EQ(post(qp, wr), 0);
    EXPECT_EQ(post(qp, wr), 0);
    EXPECT_EQ(post(qp, wr), ENOMEM);
}

TEST_F(RdmaQpTest, PostingWaitsForItsState) {
    ibv_qp* const qp = create(IBV_QPT_RC);
    ibv_send_wr wr = request(IBV_WR_SEND);
    ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = pieces, .num_sge = 1};
    EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
    EXPECT_EQ(bad_receive, &receive);
    to(qp, {IBV_QPS_INIT});
    EXPECT_EQ(ibv_post_recv(qp, &receive, &bad_receive), 0);
    EXPECT_EQ(post(qp, wr), ENOMEM);
    to(qp, {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_ERR});
    EXPECT_EQ(post(qp, wr), 0);  // it will be flushed
    device(qp).complete(true, 1);
    to(qp, {IBV_QPS_RESET});
    ibv_wc wc;
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    EXPECT_EQ(be32toh(device(qp).spec().send.doorbell->load()), 0u);
    EXPECT_EQ(be32toh(device(qp).spec().receive.doorbell->load()), 0u);
    EXPECT_EQ(post(qp, wr), ENOMEM);
}

TEST_F(RdmaQpTest, ReceivesAreListsEndedByTheInvalidKey) {
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.cap.max_recv_sge = 3;  // granted 4
    attr.cap.max_recv_wr = 4;
    ibv_qp* const qp = create(attr);
    to(qp, {IBV_QPS_INIT});
    ibv_recv_wr second{.wr_id = 2, .next = nullptr, .sg_list = pieces, .num_sge = 0};
    ibv_recv_wr first{.wr_id = 1, .next = &second, .sg_list = pieces, .num_sge = 3};
    ASSERT_EQ(ibv_post_recv(qp, &first, &bad_receive), 0);
    EXPECT_EQ(received(qp, 0, 48), words({100, 7, 0, 0x1000, 200, 9, 0, 0x3000, 0, 0x100, 0, 0}));
    EXPECT_EQ(received(qp, 1, 16), words({0, 0x100, 0, 0}));
    EXPECT_EQ(device(qp).spec().receive.wr_ids[1], 2u);
    EXPECT_EQ(be32toh(device(qp).spec().receive.doorbell->load()), 2u);
    first.num_sge = 5;
    EXPECT_EQ(ibv_post_recv(qp, &first, &bad_receive), EINVAL);
    EXPECT_EQ(bad_receive, &first);
    first.num_sge = 1;
    ASSERT_EQ(ibv_post_recv(qp, &first, &bad_receive), 0);
    EXPECT_EQ(ibv_post_recv(qp, &first, &bad_receive), ENOMEM);
    device(qp).complete(false, 1);
    ibv_wc wc;
    ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 1);
    EXPECT_EQ(ibv_post_recv(qp, &first, &bad_receive), ENOMEM);
    EXPECT_EQ(bad_receive, &second);
}

TEST_F(RdmaQpTest, ABatchHasTheBytesOfPostedRequests) {
    ibv_qp* const plain = create(IBV_QPT_RC);
    ibv_qp* const qp = create(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_BIND_MW |
                                              IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP);
    ready(plain);
    ready(qp);
    ibv_mw mw{};
    mw.rkey = 0x4501;
    mw.type = IBV_MW_TYPE_2;
    std::vector<ibv_send_wr> requests;
    for (const ibv_wr_opcode opcode :
         {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ,
          IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW,
          IBV_WR_SEND_WITH_INV}) {
        ibv_send_wr wr = request(opcode);
        wr.imm_data = htobe32(0x0a0b0c0d);
        if (opcode == IBV_WR_SEND_WITH_INV || opcode == IBV_WR_LOCAL_INV) wr.invalidate_rkey = 0x778;
        wr.wr.rdma = {0x1234, 0x56};
        if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) wr.wr.atomic = {0x1234, 11, 22, 0x56};
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) wr.wr.atomic = {0x1234, 11, 0, 0x56};
        if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) pieces[0].length = 8;
        if (opcode == IBV_WR_BIND_MW) {
            wr.num_sge = 0;
            wr.bind_mw.mw = &mw;
            wr.bind_mw.rkey = 0x4502;
            wr.bind_mw.bind_info = {mr, 0x7000, 0x600, IBV_ACCESS_REMOTE_READ};
        }
        if (opcode == IBV_WR_LOCAL_INV) wr.num_sge = 0;
        requests.push_back(wr);
    }
    pieces[0].length = 8;
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    ASSERT_TRUE(ex);
    EXPECT_EQ(ibv_qp_to_qp_ex(plain), nullptr);
    std::size_t block = 0;
    for (ibv_send_wr& wr : requests) {
        ASSERT_EQ(post(plain, wr), 0);
        ibv_wr_start(ex);
        ex->wr_id = 42;
        ex->wr_flags = 0;
        switch (wr.opcode) {
            case IBV_WR_RDMA_WRITE: ibv_wr_rdma_write(ex, 0x56, 0x1234); break;
            case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write_imm(ex, 0x56, 0x1234, wr.imm_data); break;
            case IBV_WR_SEND: ibv_wr_send(ex); break;
            case IBV_WR_SEND_WITH_IMM: ibv_wr_send_imm(ex, wr.imm_data); break;
            case IBV_WR_RDMA_READ: ibv_wr_rdma_read(ex, 0x56, 0x1234); break;
            case IBV_WR_ATOMIC_CMP_AND_SWP: ibv_wr_atomic_cmp_swp(ex, 0x56, 0x1234, 11, 22); break;
            case IBV_WR_ATOMIC_FETCH_AND_ADD: ibv_wr_atomic_fetch_add(ex, 0x56, 0x1234, 11); break;
            case IBV_WR_LOCAL_INV: ibv_wr_local_inv(ex, 0x778); break;
            case IBV_WR_BIND_MW: ibv_wr_bind_mw(ex, &mw, 0x4502, &wr.bind_mw.bind_info); break;
            default: ibv_wr_send_inv(ex, 0x778); break;
        }
        if (wr.num_sge) ibv_wr_set_sge(ex, pieces[0].lkey, pieces[0].addr, pieces[0].length);
        ASSERT_EQ(ibv_wr_complete(ex), 0) << wr.opcode;
        const std::size_t next = be32toh(device(qp).spec().send.doorbell->load());
        ASSERT_EQ(next, be32toh(device(plain).spec().send.doorbell->load()));
        Bytes expected = sent(plain, block, 64), got = sent(qp, block, 64);
        const std::size_t units = expected[7];
        expected = sent(plain, block, units * 16);
        got = sent(qp, block, units * 16);
        // The queue's number stands in the control segment, and for a window in its key.
        for (Bytes* bytes : {&expected, &got}) std::fill_n(bytes->begin() + 4, 3, 0);
        if (wr.opcode == IBV_WR_BIND_MW) {
            for (Bytes* bytes : {&expected, &got}) std::fill_n(bytes->begin() + 68, 3, 0);
        }
        EXPECT_EQ(got, expected) << wr.opcode;
        block = next;
    }
}

TEST_F(RdmaQpTest, DatagramsAndXrcTakeTheirTwoSettersInEitherOrder) {
    Ah ah{};
    ah.vector.rgid[0] = 0x42;
    ibv_qp* const ud = create(IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
    ibv_qp* const xrc = create(IBV_QPT_XRC_SEND, IBV_QP_EX_WITH_RDMA_WRITE);
    ready(ud);
    ready(xrc);
    for (const bool address_first : {true, false}) {
        ibv_qp_ex* ex = ibv_qp_to_qp_ex(ud);
        ibv_wr_start(ex);
        ex->wr_flags = 0;
        ibv_wr_send(ex);
        if (address_first) ibv_wr_set_ud_addr(ex, &ah, 0x77, 0x88);
        ibv_wr_set_sge(ex, 3, 0x500, 9);
        if (!address_first) ibv_wr_set_ud_addr(ex, &ah, 0x77, 0x88);
        ASSERT_EQ(ibv_wr_complete(ex), 0);
        ex = ibv_qp_to_qp_ex(xrc);
        ibv_wr_start(ex);
        ex->wr_flags = 0;
        ibv_wr_rdma_write(ex, 5, 6);
        if (address_first) ibv_wr_set_xrc_srqn(ex, 0x99);
        ibv_wr_set_sge(ex, 3, 0x500, 9);
        if (!address_first) ibv_wr_set_xrc_srqn(ex, 0x99);
        ASSERT_EQ(ibv_wr_complete(ex), 0);
        const unsigned index = address_first ? 0 : 1;
        EXPECT_EQ(sent(ud, 2 * index, 80), words({2 * index << 8 | 0x0a, ud->qp_num << 8 | 5, 0, 0, 0x88, 0, 0x80000077,
                                                  0, 0, 0, 0, 0, 0x42000000, 0, 0, 0, 9, 3, 0, 0x500}));
        EXPECT_EQ(sent(xrc, index, 64), words({index << 8 | 0x08, xrc->qp_num << 8 | 4, 0, 0, 0x99, 0, 0, 0, 0, 6, 5, 0,
                                               9, 3, 0, 0x500}));
    }
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(ud);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, 3, 0x500, 9);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);  // no address
    EXPECT_EQ(device(ud).send_rings, 2u);
}

TEST_F(RdmaQpTest, ABatchWithAnErrorIsNotPosted) {
    ibv_qp* const qp = create(IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    ready(qp);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    const auto begin = [&] {
        ibv_wr_start(ex);
        ex->wr_flags = 0;
        ibv_wr_send(ex);
        ibv_wr_set_sge(ex, 3, 0x500, 9);
        ibv_wr_send(ex);
    };
    begin();
    std::vector<char> much(5000);
    ibv_wr_set_inline_data(ex, much.data(), much.size());
    EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
    begin();
    ibv_wr_set_sge_list(ex, 3, pieces);
    EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
    begin();
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    begin();
    ibv_wr_abort(ex);
    EXPECT_EQ(device(qp).send_rings, 0u);
    begin();
    ibv_wr_set_inline_data(ex, much.data(), 3);
    EXPECT_EQ(ibv_wr_complete(ex), 0);
    EXPECT_EQ(device(qp).send_rings, 1u);
    EXPECT_EQ(be32toh(device(qp).spec().send.doorbell->load()), 2u);
}

TEST_F(RdmaQpTest, ARawEntryIsPostedAsItIs) {
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    mlx5dv_qp_init_attr mlx5{};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
    ibv_qp* const qp = create(attr, &mlx5);
    ready(qp);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    __be32 raw[8] = {htobe32(0xa), htobe32(qp->qp_num << 8 | 2), htobe32(8), 0, htobe32(5), htobe32(6), 0, htobe32(7)};
    ibv_wr_start(ex);
    mlx5dv_wr_raw_wqe(mlx5dv_qp_ex_from_ibv_qp_ex(ex), raw);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    EXPECT_EQ(sent(qp, 0, 32), words({0xa, qp->qp_num << 8 | 2, 8, 0, 5, 6, 0, 7}));
    EXPECT_EQ(device(qp).spec().send.completes_as[0], static_cast<unsigned>(IBV_WC_DRIVER2));
}

TEST_F(RdmaQpTest, ABatchWaitsForItsState) {
    ibv_qp* const qp = create(IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    const auto send = [&] {
        ibv_wr_start(ex);
        ibv_wr_send(ex);
        ibv_wr_set_sge(ex, 3, 0x500, 9);
        return ibv_wr_complete(ex);
    };
    EXPECT_EQ(send(), EINVAL);
    to(qp, {IBV_QPS_INIT, IBV_QPS_RTR});
    EXPECT_EQ(send(), EINVAL);
    to(qp, {IBV_QPS_RTS});
    EXPECT_EQ(send(), 0);
    to(qp, {IBV_QPS_RESET});
    EXPECT_EQ(send(), EINVAL);
}

TEST_F(RdmaQpTest, WhatIsNotBegunCanBeCancelledOnceTheQueueIsDrained) {
    ibv_qp* const qp = create(IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    ready(qp);
    ibv_send_wr wr = request(IBV_WR_SEND);
    ASSERT_EQ(post(qp, wr), 0);
    ASSERT_EQ(post(qp, wr), 0);
    mlx5dv_qp_ex* const mlx5 = mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp));
    EXPECT_EQ(mlx5dv_qp_cancel_posted_send_wrs(mlx5, 42), -EINVAL);
    device(qp).drained = 1;
    EXPECT_EQ(mlx5dv_qp_cancel_posted_send_wrs(mlx5, 43), 0);
    EXPECT_EQ(mlx5dv_qp_cancel_posted_send_wrs(mlx5, 42), 1);
    EXPECT_EQ(sent(qp, 0, 4), words({0x0a}));
    EXPECT_EQ(sent(qp, 1, 4), words({0x100}));
}

/// As in libmlx5, where mlx5's own operations make the functions but not the handle to them: applications ask for both.
TEST_F(RdmaQpTest, VerbsOperationsMakeTheExtendedQueueAndMlx5OperationsItsOwnFunctions) {
    mlx5dv_qp_init_attr mlx5{};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    ibv_qp* const without = create(attr, &mlx5);
    ASSERT_TRUE(without);
    EXPECT_EQ(ibv_qp_to_qp_ex(without), nullptr);
    attr = attr_of(IBV_QPT_RC);
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = 0;
    ibv_qp* const with = create(attr, &mlx5);
    ASSERT_TRUE(with);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(with);
    ASSERT_TRUE(ex);
    EXPECT_TRUE(ex->wr_rdma_write) << "an extended queue has every operation of its type";
    EXPECT_TRUE(mlx5dv_qp_ex_from_ibv_qp_ex(ex)->wr_mkey_configure);
    attr = attr_of(IBV_QPT_RC);
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    ibv_qp* const verbs_only = create(attr, nullptr);
    ASSERT_TRUE(verbs_only);
    EXPECT_EQ(mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(verbs_only))->wr_mkey_configure, nullptr);
}

TEST_F(RdmaQpTest, TheCryptoSetterFailsOnAnMkeyThatWasMadeWithoutCrypto) {
    mlx5dv_qp_init_attr mlx5{};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    ibv_qp* const qp = create(attr, &mlx5);
    ASSERT_TRUE(qp);
    ready(qp);
    mlx5dv_mkey_init_attr mkey_attr{open.pd, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, 4};
    mlx5dv_mkey* const mkey = mlx5dv_create_mkey(&mkey_attr);
    ASSERT_TRUE(mkey);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    mlx5dv_qp_ex* const dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
    mlx5dv_mkey_conf_attr conf{};
    mlx5dv_crypto_attr crypto{};
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_INLINE;
    mlx5dv_wr_mkey_configure(dv, mkey, 1, &conf);
    mlx5dv_wr_set_mkey_crypto(dv, &crypto);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    EXPECT_EQ(device(qp).spec().send.doorbell->load(), 0u) << "nothing is posted";
    EXPECT_EQ(mlx5dv_destroy_mkey(mkey), 0);
}

TEST_F(RdmaQpTest, ACopyIsMetadataSourceAndDestination) {
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    mlx5dv_qp_init_attr mlx5{};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MEMCPY;
    ibv_qp* const qp = create(attr, &mlx5);
    ASSERT_TRUE(qp);
    ready(qp);
    ibv_qp_ex* const builder = ibv_qp_to_qp_ex(qp);
    mlx5dv_qp_ex* const dv = mlx5dv_qp_ex_from_ibv_qp_ex(builder);
    const auto copy = [&](std::size_t size) {
        ibv_wr_start(builder);
        builder->wr_id = 9;
        builder->wr_flags = IBV_SEND_SIGNALED;
        mlx5dv_wr_memcpy(dv, 0xd, 0xd000, 0x5, 0x5000, size);
        return ibv_wr_complete(builder);
    };
    ASSERT_EQ(copy(100), 0);
    Bytes entry = sent(qp, 0, 64);
    const auto word_at = [&](std::size_t at) {
        return entry[at] << 24 | entry[at + 1] << 16 | entry[at + 2] << 8 | entry[at + 3];
    };
    const std::uint64_t metadata = std::uint64_t{word_at(24)} << 32 | word_at(28);
    EXPECT_TRUE(
        open.state.memory().lookup(word_at(20), metadata, 64, IBV_ACCESS_LOCAL_WRITE, Pd::of(open.pd).domain()));
    std::fill_n(entry.begin() + 20, 12, 0U);
    EXPECT_EQ(entry,
              words({0x0100002f, qp->qp_num << 8 | 4, 8, 0, 0, 0, 0, 0, 100, 5, 0, 0x5000, 100, 0xd, 0, 0xd000}));
    EXPECT_EQ(device(qp).spec().send.completes_as[0], static_cast<std::uint32_t>(MLX5DV_WC_MEMCPY));
    EXPECT_EQ(copy(1U << 21), 0);
    EXPECT_EQ(copy((1U << 21) + 1), EINVAL);
    EXPECT_EQ(copy(0), EINVAL);
}

}  // namespace
}  // namespace ovsdr::soft::test
