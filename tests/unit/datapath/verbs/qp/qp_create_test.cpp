// What RDMA queue pairs can be created, and what they are granted.
#include <fcntl.h>

#include "tests/unit/datapath/verbs/qp/qp_rdma_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

/// libmlx5's arithmetic, written apart: floating logarithms, sums of segment sizes by name.
struct Expected {
    unsigned send_wr, receive_wr, receive_sge, max_inline;
};
[[nodiscard]] Expected expected(ibv_qp_type type, const ibv_qp_cap& asked, bool lists_sends_only) {
    const auto power = [](double n) { return static_cast<unsigned>(std::exp2(std::ceil(std::log2(n)))); };
    const unsigned ctrl = 16, raddr = 16, atomic = 16, av = 48, xrc = 16, umr_ctrl = 48, mkey = 64, klm = 64, data = 16;
    unsigned head = ctrl;
    if (!lists_sends_only && type != IBV_QPT_UD) {
        head = std::max({ctrl + raddr, ctrl + raddr + atomic, ctrl + umr_ctrl + mkey + klm});
    }
    if (type == IBV_QPT_UD) head += av;
    if (type == IBV_QPT_XRC_SEND) head += xrc;
    const unsigned with_inline = asked.max_inline_data ? head + (4 + asked.max_inline_data + 15) / 16 * 16 : 0;
    const unsigned size = (std::max(head + asked.max_send_sge * data, with_inline) + 63) / 64 * 64;
    const unsigned ring = power(asked.max_send_wr * static_cast<double>(size));
    const unsigned stride = power(16.0 * std::max(asked.max_recv_sge, 1u));
    const unsigned receive_ring = std::max(64u, power(asked.max_recv_wr) * stride);
    return {ring / size, receive_ring / stride, stride / 16, size - head - 4};
}

TEST_F(RdmaQpTest, CapabilitiesAreGrantedAsLibmlx5ComputesThem) {
    std::mt19937 random(1);
    const auto below = [&](unsigned limit) { return std::uniform_int_distribution<unsigned>(0, limit - 1)(random); };
    for (int i = 0; i < 300; ++i) {
        const ibv_qp_type type = std::array{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND}[below(4)];
        const bool sends_only = below(2);
        ibv_qp_init_attr_ex attr = attr_of(type);
        attr.cap = {1 + below(500), 1 + below(500), below(30), below(33), below(2) ? below(700) : 0};
        if (sends_only) {
            attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
        }
        const ibv_qp_cap asked = attr.cap;
        const Expected granted = expected(type, asked, sends_only);
        ibv_qp* const qp = create(attr);
        ASSERT_TRUE(qp) << errno;
        EXPECT_EQ(attr.cap.max_send_wr, granted.send_wr);
        EXPECT_EQ(attr.cap.max_send_sge, asked.max_send_sge);
        EXPECT_EQ(attr.cap.max_inline_data, granted.max_inline);
        EXPECT_EQ(attr.cap.max_recv_wr, type == IBV_QPT_XRC_SEND ? 0 : granted.receive_wr);
        EXPECT_EQ(attr.cap.max_recv_sge, type == IBV_QPT_XRC_SEND ? 0 : granted.receive_sge);
        EXPECT_GE(attr.cap.max_send_wr, asked.max_send_wr);
        EXPECT_GE(attr.cap.max_inline_data, asked.max_inline_data);
        qps.pop_back();
        ASSERT_EQ(ibv_destroy_qp(qp), 0);
    }
}

TEST_F(RdmaQpTest, AWellKnownCaseIsGrantedToTheByte) {
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.cap = {1, 1, 1, 1, 0};
    ASSERT_TRUE(create(attr));
    // 16 control + 48 UMR control + 64 key + 64 layout = 192, and a piece: 4 blocks; 256 - 192 - 4.
    EXPECT_EQ(attr.cap.max_inline_data, 60u);
    EXPECT_EQ(attr.cap.max_send_wr, 1u);
    EXPECT_EQ(attr.cap.max_recv_wr, 4u);  // the smallest ring is a block of 64 bytes
    EXPECT_EQ(attr.cap.max_recv_sge, 1u);
}

TEST_F(RdmaQpTest, MoreThanTheDeviceHasIsRefused) {
    for (std::uint32_t ibv_qp_cap::*const field : {&ibv_qp_cap::max_send_wr, &ibv_qp_cap::max_recv_wr,
                                                   &ibv_qp_cap::max_send_sge, &ibv_qp_cap::max_recv_sge,
                                                   &ibv_qp_cap::max_inline_data}) {
        for (const std::uint32_t value : {0xffffu, 0xffffffffu, 0xfffffffcu}) {
            ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_UD);
            attr.cap.*field = value;
            EXPECT_EQ(refusal(attr), EINVAL) << value;
        }
    }
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.cap.max_recv_sge = 32;
    EXPECT_EQ(refusal(attr), 0);
    attr.cap.max_recv_sge = 33;
    EXPECT_EQ(refusal(attr), EINVAL);
    attr = attr_of(IBV_QPT_RC);
    attr.cap.max_send_sge = 52;  // (1024 - 192) / 16
    attr.cap.max_send_wr = 1;
    EXPECT_EQ(refusal(attr), 0);
    attr.cap.max_send_sge = 53;
    EXPECT_EQ(refusal(attr), EINVAL);
}

TEST_F(RdmaQpTest, EachTypeHasItsObjects) {
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
        EXPECT_EQ(refusal(attr_of(type)), 0);
        for (int missing = 0; missing < 4; ++missing) {
            ibv_qp_init_attr_ex attr = attr_of(type);
            if (missing == 0) attr.send_cq = nullptr;
            if (missing == 1) attr.recv_cq = nullptr;
            if (missing == 2) {
                attr.pd = nullptr;
                attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;  // without, the header reads the domain's context
            }
            if (missing == 3) attr.comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS;
            EXPECT_EQ(refusal(attr), EINVAL);
        }
    }
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_XRC_RECV);
    EXPECT_EQ(refusal(attr), EINVAL);  // no XRC domain
    attr = attr_of(static_cast<ibv_qp_type>(7));
    EXPECT_EQ(refusal(attr), EINVAL);
    attr = attr_of(IBV_QPT_RC);
    attr.comp_mask |= 1u << 20;
    EXPECT_EQ(refusal(attr), EINVAL);
    attr = attr_of(IBV_QPT_RC);
    attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
    EXPECT_EQ(refusal(attr), EINVAL);
}

TEST_F(RdmaQpTest, CreationFlagsAreThoseOfTheType) {
    struct Case {
        ibv_qp_type type;
        std::uint32_t flags;
        int error;
    };
    for (const Case& expected : {Case{IBV_QPT_UD, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, 0},
                                 {IBV_QPT_RC, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, EINVAL},
                                 {IBV_QPT_UC, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, EINVAL},
                                 {IBV_QPT_XRC_SEND, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, EINVAL},
                                 {IBV_QPT_RC, IBV_QP_CREATE_SCATTER_FCS, EINVAL},
                                 {IBV_QPT_RC, IBV_QP_CREATE_PCI_WRITE_END_PADDING, EINVAL},
                                 {IBV_QPT_UD, IBV_QP_CREATE_SCATTER_FCS, EINVAL},
                                 {IBV_QPT_UD, IBV_QP_CREATE_CVLAN_STRIPPING, EINVAL},
                                 {IBV_QPT_UD, IBV_QP_CREATE_PCI_WRITE_END_PADDING, EOPNOTSUPP},
                                 {IBV_QPT_UD, IBV_QP_CREATE_SOURCE_QPN, EOPNOTSUPP},
                                 {IBV_QPT_RC, IBV_QP_CREATE_SOURCE_QPN, EINVAL},
                                 {IBV_QPT_UD, 1u << 20, EINVAL}}) {
        ibv_qp_init_attr_ex attr = attr_of(expected.type);
        attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
        attr.create_flags = expected.flags;
        EXPECT_EQ(refusal(attr), expected.error) << expected.flags;
    }
    EXPECT_EQ(device(qps.back()).spec().create_flags, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB);
}

TEST_F(RdmaQpTest, OperationsAreThoseOfTheType) {
    const std::uint64_t all[] = {IBV_QP_EX_WITH_RDMA_WRITE,         IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM,
                                 IBV_QP_EX_WITH_SEND,               IBV_QP_EX_WITH_SEND_WITH_IMM,
                                 IBV_QP_EX_WITH_RDMA_READ,          IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
                                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_LOCAL_INV,
                                 IBV_QP_EX_WITH_BIND_MW,            IBV_QP_EX_WITH_SEND_WITH_INV,
                                 IBV_QP_EX_WITH_TSO,                std::uint64_t{1} << 40};
    const std::map<ibv_qp_type, std::string> has{{IBV_QPT_RC, "111111111100"},
                                                 {IBV_QPT_UC, "111100011100"},
                                                 {IBV_QPT_UD, "001100000000"},
                                                 {IBV_QPT_XRC_SEND, "111111111100"}};
    for (const auto& [type, supported] : has) {
        for (std::size_t i = 0; i < std::size(all); ++i) {
            ibv_qp_init_attr_ex attr = attr_of(type);
            attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            attr.send_ops_flags = all[i];
            EXPECT_EQ(refusal(attr), supported[i] == '1' ? 0 : EOPNOTSUPP) << type << " " << i;
        }
    }
}

TEST_F(RdmaQpTest, Mlx5AttributesAreRefusedAsLibmlx5AndTheKernelDo) {
    const auto with_flags = [](std::uint32_t flags) {
        mlx5dv_qp_init_attr attr{};
        attr.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
        attr.create_flags = flags;
        return attr;
    };
    const auto with_operations = [](std::uint64_t operations) {
        mlx5dv_qp_init_attr attr{};
        attr.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
        attr.send_ops_flags = operations;
        return attr;
    };
    const auto answer = [&](mlx5dv_qp_init_attr mlx5, ibv_qp_type type = IBV_QPT_RC) {
        return refusal(attr_of(type), &mlx5);
    };
    EXPECT_EQ(answer(with_flags(MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE)), 0);
    EXPECT_EQ(answer(with_flags(MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE)), 0);
    EXPECT_EQ(answer(with_flags(MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE | MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE)),
              EINVAL);
    EXPECT_EQ(answer(with_flags(MLX5DV_QP_CREATE_TUNNEL_OFFLOADS)), EINVAL);
    EXPECT_EQ(answer(with_flags(MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE)), EINVAL);
    EXPECT_EQ(answer(with_flags(1u << 30)), EINVAL);
    EXPECT_EQ(answer(with_operations(MLX5DV_QP_EX_WITH_RAW_WQE), IBV_QPT_UC), 0);
    EXPECT_EQ(answer(with_operations(MLX5DV_QP_EX_WITH_MKEY_CONFIGURE), IBV_QPT_UC), EOPNOTSUPP);
    EXPECT_EQ(answer(with_operations(MLX5DV_QP_EX_WITH_MEMCPY)), 0);
    EXPECT_EQ(answer(with_operations(MLX5DV_QP_EX_WITH_MEMCPY), IBV_QPT_UC), EOPNOTSUPP);
    mlx5dv_qp_init_attr unknown{};
    unknown.comp_mask = std::uint64_t{1} << 40;
    EXPECT_EQ(answer(unknown), EINVAL);
}

TEST(MemoryCopies, AreOfDevicesThatHaveTheEngine) {
    for (const Profile* profile : {&connectx_5, &connectx_7}) {
        OpenDevice open(*profile);
        ibv_cq* const cq = ibv_create_cq(open.context, 10, nullptr, nullptr, 0);
        ibv_qp_init_attr_ex attr{};
        attr.qp_type = IBV_QPT_RC;
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {1, 1, 1, 1, 0};
        attr.pd = open.pd;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD;
        mlx5dv_qp_init_attr mlx5{};
        mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
        mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MEMCPY;
        errno = 0;
        ibv_qp* const qp = mlx5dv_create_qp(open.context, &attr, &mlx5);
        mlx5dv_context caps{};
        caps.comp_mask = MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH;
        EXPECT_EQ(mlx5dv_query_device(open.context, &caps), 0);
        EXPECT_EQ(caps.comp_mask, std::uint64_t{MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH});
        if (profile == &connectx_7) {
            EXPECT_TRUE(qp);
            EXPECT_EQ(caps.max_wr_memcpy_length, 1U << 21);
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        } else {
            EXPECT_FALSE(qp);
            EXPECT_EQ(errno, EOPNOTSUPP);
            EXPECT_EQ(caps.max_wr_memcpy_length, 0U);
        }
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
    }
}

TEST_F(RdmaQpTest, WithoutASendQueueWhatWasAskedOfItsEntriesStays) {
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.cap = {0, 16, 2, 2, 64};
    ASSERT_TRUE(create(attr));
    EXPECT_EQ(attr.cap.max_send_wr, 0u);
    EXPECT_EQ(attr.cap.max_send_sge, 2u);
    EXPECT_EQ(attr.cap.max_inline_data, 64u);
    EXPECT_EQ(attr.cap.max_recv_wr, 16u);
    EXPECT_EQ(attr.cap.max_recv_sge, 2u);
}

TEST_F(RdmaQpTest, QueuesThatConfigureKeysHaveRoomForIt) {
    const auto inline_data = [&](std::uint64_t operations) {
        ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
        attr.cap = {1, 1, 1, 1, 0};
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
        mlx5dv_qp_init_attr mlx5{};
        mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
        mlx5.send_ops_flags = operations;
        EXPECT_EQ(refusal(attr, operations ? &mlx5 : nullptr), 0);
        attr.cap = {1, 1, 1, 1, 0};
        EXPECT_TRUE(create(attr, operations ? &mlx5 : nullptr));
        return attr.cap.max_inline_data;
    };
    EXPECT_EQ(inline_data(0), 44u);
    EXPECT_EQ(inline_data(MLX5DV_QP_EX_WITH_RAW_WQE), 44u);
    for (const auto operation :
         {MLX5DV_QP_EX_WITH_MR_LIST, MLX5DV_QP_EX_WITH_MR_INTERLEAVED, MLX5DV_QP_EX_WITH_MKEY_CONFIGURE}) {
        EXPECT_EQ(inline_data(operation), 60u) << operation;
    }
}

TEST_F(RdmaQpTest, AQueueThatSignalsAllSaysSoInEachEntry) {
    for (const int all : {0, 1}) {
        ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
        attr.sq_sig_all = all;
        ibv_qp* const qp = create(attr);
        ASSERT_TRUE(qp);
        ready(qp);
        ibv_send_wr work{}, *bad = nullptr;
        work.opcode = IBV_WR_SEND;
        ASSERT_EQ(ibv_post_send(qp, &work, &bad), 0);
        EXPECT_EQ(sent(qp, 0, 16)[11] & MLX5_WQE_CTRL_CQ_UPDATE, all ? MLX5_WQE_CTRL_CQ_UPDATE : 0);
    }
}

TEST_F(RdmaQpTest, BothCompletionQueuesAreBusy) {
    ibv_cq* const receives = ibv_create_cq(open.context, 10, nullptr, nullptr, 0);
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.recv_cq = receives;
    ibv_qp* const qp = create(attr);
    ASSERT_TRUE(qp);
    EXPECT_EQ(ibv_destroy_cq(receives), EBUSY);
    qps.pop_back();
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(receives), 0);
}

TEST_F(RdmaQpTest, WithASharedQueueReceivesAreNotLookedAt) {
    ibv_srq_init_attr shared{.srq_context = nullptr, .attr = {16, 1, 0}};
    ibv_srq* const srq = ibv_create_srq(open.pd, &shared);
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.srq = srq;
    attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0xffffffff;
    ibv_qp* const qp = create(attr);
    ASSERT_TRUE(qp);
    EXPECT_EQ(attr.cap.max_recv_wr, 0u);
    EXPECT_EQ(attr.cap.max_recv_sge, 0u);
    qps.pop_back();
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    attr = attr_of(IBV_QPT_XRC_SEND);
    attr.srq = srq;
    EXPECT_EQ(refusal(attr), EINVAL) << "it receives nothing";
    ibv_xrcd_init_attr open_domain{
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    ibv_xrcd* const xrcd = ibv_open_xrcd(open.context, &open_domain);
    attr = attr_of(IBV_QPT_XRC_RECV);
    attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd;
    attr.srq = srq;
    EXPECT_EQ(refusal(attr), EINVAL) << "no XRC SRQ";
    attr.srq = nullptr;
    EXPECT_EQ(refusal(attr), 0);
    while (!qps.empty()) {
        EXPECT_EQ(ibv_destroy_qp(qps.back()), 0);
        qps.pop_back();
    }
    EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

}  // namespace
}  // namespace ovsdr::soft::test
