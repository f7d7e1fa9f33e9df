// Shared receive queues that match tags: what is created, what is refused and with which errno.
#include "tests/unit/datapath/verbs/qp/qp_rdma_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

struct TagQueueTest : RdmaQpTest {
    TagQueueTest() {
        ibv_cq_init_attr_ex attr{};
        attr.cqe = 16;
        attr.wc_flags = IBV_WC_EX_WITH_TM_INFO;
        extended = ibv_create_cq_ex(open.context, &attr);
    }
    ~TagQueueTest() override {
        if (srq) {
            EXPECT_EQ(ibv_destroy_srq(srq), 0);
        }
        EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(extended)), 0);
    }
    [[nodiscard]] ibv_srq_init_attr_ex tagged() const {
        ibv_srq_init_attr_ex attr{};
        attr.attr = {10, 1, 0};
        attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
        attr.srq_type = IBV_SRQT_TM;
        attr.pd = open.pd;
        attr.cq = ibv_cq_ex_to_cq(extended);
        attr.tm_cap = {127, 10};
        return attr;
    }
    int refused(ibv_srq_init_attr_ex attr) {
        errno = 0;
        return ibv_create_srq_ex(open.context, &attr) ? 0 : errno;
    }
    ibv_cq_ex* extended;
    ibv_srq* srq = nullptr;
};

TEST_F(TagQueueTest, NeedsAnExtendedCompletionQueueAndFittingNumbers) {
    ibv_srq_init_attr_ex attr = tagged();
    attr.cq = cq;
    EXPECT_EQ(refused(attr), EINVAL);
    for (const unsigned missing : {IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_TM, IBV_SRQ_INIT_ATTR_PD}) {
        attr = tagged();
        attr.comp_mask &= ~missing;
        EXPECT_EQ(refused(attr), EINVAL) << missing;
    }
    for (const unsigned tags : {0U, 128U}) {
        attr = tagged();
        attr.tm_cap.max_num_tags = tags;
        EXPECT_EQ(refused(attr), EINVAL) << tags;
    }
    attr = tagged();
    attr.tm_cap.max_ops = 32769;
    EXPECT_EQ(refused(attr), EINVAL);
    ibv_device_attr_ex device{};
    ASSERT_EQ(ibv_query_device_ex(open.context, nullptr, &device), 0);
    EXPECT_EQ(device.tm_caps.max_num_tags, 127U);
    EXPECT_EQ(device.tm_caps.max_ops, 32768U);
    EXPECT_EQ(device.tm_caps.max_rndv_hdr_size, 64U);
    EXPECT_EQ(device.tm_caps.max_sge, 1U);
    EXPECT_EQ(device.tm_caps.flags, unsigned{IBV_TM_CAP_RC});
}

TEST_F(TagQueueTest, TakesTheSendQueueOfAReliableConnection) {
    ibv_srq_init_attr_ex attr = tagged();
    srq = ibv_create_srq_ex(open.context, &attr);
    ASSERT_TRUE(srq);
    ibv_qp_init_attr_ex of_pair = attr_of(IBV_QPT_RC);
    of_pair.srq = srq;
    EXPECT_EQ(refusal(of_pair), EINVAL);
    of_pair.cap.max_send_wr = 0;
    of_pair.qp_type = IBV_QPT_UC;
    EXPECT_EQ(refusal(of_pair), EINVAL);
    of_pair.qp_type = IBV_QPT_RC;
    ASSERT_TRUE(create(of_pair));
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(qps.back()), 0);
    qps.pop_back();
}

TEST_F(TagQueueTest, OperationsCompleteInItsCompletionQueue) {
    ibv_srq_init_attr_ex attr = tagged();
    srq = ibv_create_srq_ex(open.context, &attr);
    ASSERT_TRUE(srq);
    ibv_ops_wr request{};
    request.wr_id = 5;
    request.opcode = IBV_WR_TAG_SYNC;
    request.flags = IBV_OPS_SIGNALED;
    ibv_ops_wr* bad_request = nullptr;
    ASSERT_EQ(ibv_post_srq_ops(srq, &request, &bad_request), 0);
    ibv_poll_cq_attr poll{};
    ASSERT_EQ(ibv_start_poll(extended, &poll), 0);
    EXPECT_EQ(extended->wr_id, 5U);
    EXPECT_EQ(ibv_wc_read_opcode(extended), IBV_WC_TM_SYNC);
    ibv_wc_tm_info info{1, 1};
    ibv_wc_read_tm_info(extended, &info);
    EXPECT_EQ(info.tag, 0U);
    ibv_end_poll(extended);
    request.opcode = static_cast<ibv_ops_wr_opcode>(9);
    EXPECT_EQ(ibv_post_srq_ops(srq, &request, &bad_request), EINVAL);
    EXPECT_EQ(bad_request, &request);
    // A queue of another type has no tags.
    ibv_srq_init_attr basic{nullptr, {4, 1, 0}};
    ibv_srq* const other = ibv_create_srq(open.pd, &basic);
    request.opcode = IBV_WR_TAG_SYNC;
    EXPECT_EQ(ibv_post_srq_ops(other, &request, &bad_request), EINVAL);
    EXPECT_EQ(ibv_destroy_srq(other), 0);
}

}  // namespace
}  // namespace ovsdr::soft::test
