// DC queue pairs: what mlx5dv_create_qp() takes and refuses, entries as they stand in the ring, numbers and streams.
#include "datapath/verbs/ah.hpp"
#include "datapath/verbs/qp/qp_dc.hpp"
#include "tests/unit/datapath/verbs/qp/qp_rdma_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

struct DcQpTest : RdmaQpTest {
    DcQpTest() {
        ibv_srq_init_attr attr{};
        attr.attr = {16, 1, 0};
        srq = ibv_create_srq(open.pd, &attr);
    }
    ~DcQpTest() override {
        for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
        qps.clear();
        EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }

    static mlx5dv_qp_init_attr dct(std::uint64_t access_key = 0xbadc0de) {
        mlx5dv_qp_init_attr attr{};
        attr.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        attr.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
        attr.dc_init_attr.dct_access_key = access_key;
        return attr;
    }
    static mlx5dv_qp_init_attr dci() {
        mlx5dv_qp_init_attr attr{};
        attr.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
        attr.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
        return attr;
    }
    static mlx5dv_qp_init_attr streams(std::uint8_t log_streams, std::uint8_t log_errored) {
        mlx5dv_qp_init_attr attr = dci();
        attr.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
        attr.dc_init_attr.dci_streams = {log_streams, log_errored};
        return attr;
    }
    [[nodiscard]] ibv_qp_init_attr_ex initiator_attr(std::uint64_t operations = IBV_QP_EX_WITH_SEND) const {
        ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_DRIVER);
        attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
        attr.send_ops_flags = operations;
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        return attr;
    }
    [[nodiscard]] ibv_qp_init_attr_ex target_attr() const {
        ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_DRIVER);
        attr.srq = srq;
        return attr;
    }
    ibv_qp* create(ibv_qp_init_attr_ex attr, mlx5dv_qp_init_attr mlx5) { return RdmaQpTest::create(attr, &mlx5); }
    int refusal(ibv_qp_init_attr_ex attr, mlx5dv_qp_init_attr mlx5) { return RdmaQpTest::refusal(attr, &mlx5); }

    ibv_srq* srq;
};

TEST_F(DcQpTest, ATargetNeedsAnSrqAndNothingOfASender) {
    EXPECT_EQ(refusal(target_attr(), dct()), 0);
    ibv_qp_init_attr_ex attr = target_attr();
    attr.srq = nullptr;
    EXPECT_EQ(refusal(attr, dct()), EINVAL);
    attr = target_attr();
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    EXPECT_EQ(refusal(attr, dct()), EINVAL);
    attr = target_attr();
    attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
    EXPECT_EQ(refusal(attr, dct()), EINVAL);
    attr = target_attr();
    attr.recv_cq = nullptr;
    EXPECT_EQ(refusal(attr, dct()), EINVAL);
    mlx5dv_qp_init_attr mlx5 = dct();
    mlx5.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    EXPECT_EQ(refusal(target_attr(), mlx5), EINVAL);
    mlx5 = dct();
    mlx5.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    EXPECT_EQ(refusal(target_attr(), mlx5), EINVAL);
    mlx5 = dct();
    mlx5.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    mlx5.create_flags = MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
    EXPECT_EQ(refusal(target_attr(), mlx5), EINVAL);
    mlx5.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
    EXPECT_EQ(refusal(target_attr(), mlx5), 0);
}

TEST_F(DcQpTest, AnInitiatorReceivesNothing) {
    EXPECT_EQ(refusal(initiator_attr(), dci()), 0);
    for (std::uint32_t ibv_qp_cap::*const field : {&ibv_qp_cap::max_recv_wr, &ibv_qp_cap::max_recv_sge}) {
        ibv_qp_init_attr_ex attr = initiator_attr();
        attr.cap.*field = 1;
        EXPECT_EQ(refusal(attr, dci()), EINVAL);
    }
    EXPECT_EQ(refusal(initiator_attr(IBV_QP_EX_WITH_TSO), dci()), EOPNOTSUPP);
    mlx5dv_qp_init_attr mlx5 = dci();
    mlx5.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
    EXPECT_EQ(refusal(initiator_attr(), mlx5), EOPNOTSUPP);
    mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE;
    EXPECT_EQ(refusal(initiator_attr(), mlx5), 0);
}

TEST_F(DcQpTest, EntriesHaveRoomForTheTargetsAddress) {
    const auto inline_data = [&](ibv_qp_init_attr_ex attr) {
        attr.cap = {1, 0, 1, 0, 0};
        mlx5dv_qp_init_attr mlx5 = dci();
        EXPECT_TRUE(RdmaQpTest::create(attr, &mlx5));
        return attr.cap.max_inline_data;
    };
    EXPECT_EQ(inline_data(initiator_attr()), 60u);  // 128 bytes but 16 control, 48 address, 4
    EXPECT_EQ(inline_data(attr_of(IBV_QPT_DRIVER)), 12u);  // 256, of which 192 are the largest operation's
}

TEST_F(DcQpTest, TheTypeAndTheAttributesGoTogether) {
    mlx5dv_qp_init_attr mlx5 = dci();
    EXPECT_EQ(refusal(attr_of(IBV_QPT_RC), mlx5), EINVAL);
    mlx5.dc_init_attr.dc_type = static_cast<mlx5dv_dc_type>(0);
    EXPECT_EQ(refusal(initiator_attr(), mlx5), EINVAL);
    mlx5 = dci();
    mlx5.comp_mask = 0;
    EXPECT_EQ(refusal(initiator_attr(), mlx5), EINVAL);
    EXPECT_EQ(RdmaQpTest::refusal(initiator_attr()), EINVAL);
}

TEST_F(DcQpTest, StreamsAreAsManyAsTheDeviceSays) {
    mlx5dv_context device{};
    device.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS | MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
    ASSERT_EQ(mlx5dv_query_device(open.context, &device), 0);
    const auto most = device.dci_streams_caps;
    ASSERT_GE(most.max_log_num_concurent, 3);
    const std::uint32_t paged = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_SRQ_RECV;
    EXPECT_EQ(device.dc_odp_caps & paged, paged);
    EXPECT_EQ(refusal(initiator_attr(), streams(most.max_log_num_concurent, most.max_log_num_errored)), 0);
    EXPECT_EQ(device.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS, MLX5DV_CONTEXT_MASK_DCI_STREAMS);
    const roce::DcSpec& made = *RdmaQpTest::device(qps.back()).spec().dc;
    EXPECT_EQ(made.log_streams, most.max_log_num_concurent);
    EXPECT_EQ(made.log_errored, most.max_log_num_errored);
    EXPECT_EQ(refusal(initiator_attr(), streams(static_cast<std::uint8_t>(most.max_log_num_concurent + 1), 0)), EINVAL);
    EXPECT_EQ(refusal(initiator_attr(), streams(0, static_cast<std::uint8_t>(most.max_log_num_errored + 1))), EINVAL);
    EXPECT_EQ(check_dc({}, initiator_attr(), &*std::make_unique<mlx5dv_qp_init_attr>(streams(0, 0))), EINVAL)
        << "a device without streams";
}

TEST_F(DcQpTest, ATargetHasItsNumberFromRtrOn) {
    ibv_qp* const qp = create(target_attr(), dct(7));
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(qp->qp_num, 0u);
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EINVAL);
    to(qp, {IBV_QPS_INIT});
    EXPECT_EQ(qp->qp_num, 0u);
    to(qp, {IBV_QPS_RTR});
    ASSERT_NE(qp->qp_num, 0u);
    EXPECT_EQ(device(qp).spec().dc->access_key, 7u);
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV, &init), 0);
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT, &init), EINVAL);
    ibv_recv_wr wr{};
    EXPECT_NE(ibv_post_recv(qp, &wr, &bad_receive), 0) << "its entries are the SRQ's";
}

TEST_F(DcQpTest, EntriesNameTheTargetAndTheStream) {
    ibv_qp* const qp = create(initiator_attr(IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE), streams(2, 0));
    ready(qp);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    mlx5dv_qp_ex* const dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
    Ah ah{};
    ah.vector.rlid = htobe16(0xc123);
    ah.vector.hop_limit = 9;
    ah.vector.grh_gid_fl = htobe32(0x40100000);
    ah.vector.rgid[15] = 5;
    const Bytes address = words({0x01020304, 0x05060708, 0x80abcdef, 0x0000c123, 0, 0, 9, 0x40100000, 0, 0, 0, 5});
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    mlx5dv_wr_set_dc_addr(dv, &ah, 0xabcdef, 0x0102030405060708);
    ibv_wr_set_sge(ex, 7, 0x1000, 100);
    ibv_wr_rdma_write(ex, 3, 0x2000);
    ibv_wr_set_sge(ex, 7, 0x1000, 100);  // in either order
    mlx5dv_wr_set_dc_addr_stream(dv, &ah, 0xabcdef, 0x0102030405060708, 0x1234);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    Bytes expected = words({0x0a, qp->qp_num << 8 | 5, 0, 0});
    expected.insert(expected.end(), address.begin(), address.end());
    for (const unsigned byte : words({100, 7, 0, 0x1000})) expected.push_back(byte);
    EXPECT_EQ(sent(qp, 0, 80), expected);
    expected = words({0x208, qp->qp_num << 8 | 6, 0x00123400, 0});  // the stream stands in bytes 9 and 10
    expected.insert(expected.end(), address.begin(), address.end());
    for (const unsigned byte : words({0, 0x2000, 3, 0, 100, 7, 0, 0x1000})) expected.push_back(byte);
    EXPECT_EQ(sent(qp, 2, 96), expected);
    EXPECT_EQ(device(qp).send_rings, 1u);
}

TEST_F(DcQpTest, AnEntryWithoutAnAddressIsNotPosted) {
    ibv_qp* const qp = create(initiator_attr(), dci());
    ready(qp);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, 7, 0x1000, 100);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
    Ah ah{};
    ibv_wr_start(ex);
    mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), &ah, 1, 2);
    EXPECT_EQ(ibv_wr_complete(ex), EINVAL) << "of what?";
    EXPECT_EQ(device(qp).send_rings, 0u);
}

TEST_F(DcQpTest, StreamsAreResetInRtsAlone) {
    ibv_qp* const qp = create(initiator_attr(), streams(2, 2));
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(qp, 3), EOPNOTSUPP);
    ready(qp);
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(qp, 3), 0);
    EXPECT_EQ(device(qp).stream_reset, 3);
    device(qp).refuses = EINVAL;
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(qp, 3), EINVAL);
    device(qp).refuses = 0;
    ibv_qp* const connected = RdmaQpTest::create(IBV_QPT_RC);
    ready(connected);
    EXPECT_EQ(mlx5dv_dci_stream_id_reset(connected, 3), EINVAL);
}

TEST_F(DcQpTest, AnAddressIsMappedToAQueuePairThatExists) {
    make_queue_pair = &roce::QueuePair::create;
    ibv_qp* const qp = create(initiator_attr(), dci());
    Ah ah{};
    ah.context = open.context;
    EXPECT_EQ(mlx5dv_map_ah_to_qp(&ah, qp->qp_num + 0x1000), EINVAL);
    EXPECT_EQ(mlx5dv_map_ah_to_qp(&ah, qp->qp_num), 0);
    EXPECT_EQ(mlx5dv_map_ah_to_qp(&ah, qp->qp_num + 0x1000), 0) << "a second mapping does nothing";
}

}  // namespace
}  // namespace ovsdr::soft::test
