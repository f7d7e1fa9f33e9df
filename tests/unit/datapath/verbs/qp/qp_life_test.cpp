// Lives of RDMA queue pairs, shared receive queues, XRC domains and address handles.
#include "datapath/rdma/roce/transport.hpp"
#include "tests/unit/datapath/verbs/qp/qp_rdma_fixture.hpp"

namespace ovsdr::soft::test {
namespace {

TEST_F(RdmaQpTest, AttributesAreWhatWasAskedAndGranted) {
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    int mine = 0;
    attr.qp_context = &mine;
    attr.sq_sig_all = 1;
    ibv_qp* const qp = create(attr);
    EXPECT_EQ(qp->qp_context, &mine);
    EXPECT_EQ(qp->state, IBV_QPS_RESET);
    EXPECT_EQ(qp->qp_type, IBV_QPT_RC);
    ready(qp);
    EXPECT_EQ(qp->state, IBV_QPS_RTS);
    ibv_qp_attr now{};
    ibv_qp_init_attr initially{};
    ASSERT_EQ(ibv_query_qp(qp, &now, IBV_QP_CAP, &initially), 0);
    EXPECT_EQ(now.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(now.sq_psn, 77u);
    EXPECT_EQ(now.cap.max_inline_data, attr.cap.max_inline_data);
    EXPECT_EQ(initially.cap.max_send_wr, attr.cap.max_send_wr);
    EXPECT_EQ(initially.sq_sig_all, 1);
    EXPECT_EQ(initially.qp_context, &mine);
    device(qp).refuses = ETIMEDOUT;
    now.qp_state = IBV_QPS_ERR;
    EXPECT_EQ(ibv_modify_qp(qp, &now, IBV_QP_STATE), ETIMEDOUT);
    EXPECT_EQ(qp->state, IBV_QPS_RTS);
}

TEST_F(RdmaQpTest, UdpSourcePortsAreForConnectionsThatRun) {
    ibv_qp* const qp = create(IBV_QPT_RC);
    EXPECT_EQ(mlx5dv_modify_qp_udp_sport(qp, 55555), EOPNOTSUPP);
    ready(qp);
    EXPECT_EQ(mlx5dv_modify_qp_udp_sport(qp, 55555), 0);
    EXPECT_EQ(device(qp).udp_source_port, 55555);
    ibv_qp* const ud = create(IBV_QPT_UD);
    ready(ud);
    EXPECT_EQ(mlx5dv_modify_qp_udp_sport(ud, 55555), EOPNOTSUPP);
}

TEST_F(RdmaQpTest, WhatAQueuePairUsesIsBusy) {
    ibv_srq_init_attr srq_attr{.srq_context = nullptr, .attr = {8, 1, 0}};
    ibv_srq* const srq = ibv_create_srq(open.pd, &srq_attr);
    ibv_qp_init_attr_ex attr = attr_of(IBV_QPT_RC);
    attr.srq = srq;
    ibv_qp* const qp = create(attr);
    ASSERT_TRUE(qp);
    EXPECT_EQ(attr.cap.max_recv_wr, 0u);
    EXPECT_EQ(device(qp).spec().srq, Srq::of(srq).queue.get());
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
    EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
    EXPECT_EQ(ibv_dealloc_pd(open.pd), EBUSY);
    qps.clear();
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(RdmaQpTest, WhatTheDeviceLacksSaysSo) {
    ibv_modify_cq_attr moderation{};
    EXPECT_EQ(ibv_modify_cq(cq, &moderation), EOPNOTSUPP);
}

TEST_F(RdmaQpTest, PacingIsForRawPackets) {
    ibv_qp_rate_limit_attr limit{};
    limit.rate_limit = 1000;
    ibv_qp* const qp = create(IBV_QPT_RC);
    ready(qp);
    EXPECT_EQ(ibv_modify_qp_rate_limit(qp, &limit), EINVAL);
}

TEST_F(RdmaQpTest, WhichQueuePairsHangOnLeaves) {
    mlx5dv_sched_attr attr{};
    mlx5dv_sched_node* const root = mlx5dv_sched_node_create(open.context, &attr);
    attr.parent = root;
    mlx5dv_sched_leaf* const requests = mlx5dv_sched_leaf_create(open.context, &attr);
    mlx5dv_sched_leaf* const answers = mlx5dv_sched_leaf_create(open.context, &attr);
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
        ibv_qp* const qp = create(type);
        EXPECT_EQ(mlx5dv_modify_qp_sched_elem(qp, requests, nullptr), EOPNOTSUPP) << "RESET";
        to(qp, {IBV_QPS_INIT});
        EXPECT_EQ(mlx5dv_modify_qp_sched_elem(qp, requests, nullptr), 0);
        EXPECT_TRUE(device(qp).scheduled.first);
        EXPECT_FALSE(device(qp).scheduled.second);
        to(qp, {IBV_QPS_RTR});
        EXPECT_EQ(mlx5dv_modify_qp_sched_elem(qp, requests, nullptr), EOPNOTSUPP) << "RTR";
        to(qp, {IBV_QPS_RTS});
        EXPECT_EQ(mlx5dv_modify_qp_sched_elem(qp, requests, answers), type == IBV_QPT_RC ? 0 : EINVAL);
        EXPECT_EQ(device(qp).scheduled.second != nullptr, type == IBV_QPT_RC);
        EXPECT_EQ(mlx5dv_modify_qp_sched_elem(qp, nullptr, nullptr), 0);
        EXPECT_FALSE(device(qp).scheduled.first);
    }
    ibv_qp* const xrc = create(IBV_QPT_XRC_SEND);
    ready(xrc);
    EXPECT_EQ(mlx5dv_modify_qp_sched_elem(xrc, requests, nullptr), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_sched_leaf_destroy(requests), 0);
    EXPECT_EQ(mlx5dv_sched_leaf_destroy(answers), 0);
    EXPECT_EQ(mlx5dv_sched_node_destroy(root), 0);
}

TEST_F(RdmaQpTest, DatagramQueuesJoinMulticastGroups) {
    ibv_qp* const qp = create(IBV_QPT_UD);
    const ibv_gid group{{0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}};
    const ibv_gid mapped{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 224, 1, 2, 3}};
    const ibv_gid unicast{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 3}};
    roce::MulticastGroups& groups = open.state.transport().multicast();
    EXPECT_EQ(ibv_attach_mcast(qp, &unicast, 0), EINVAL);
    EXPECT_EQ(ibv_attach_mcast(create(IBV_QPT_RC), &group, 0), EINVAL);
    EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), EINVAL) << "not attached";
    for (const ibv_gid& gid : {group, mapped}) {
        EXPECT_EQ(ibv_attach_mcast(qp, &gid, 0), 0);
        EXPECT_EQ(ibv_attach_mcast(qp, &gid, 0), 0) << "again";
        ASSERT_EQ(groups.members(gid).size(), 1u);
        EXPECT_EQ(groups.members(gid)[0], qp->qp_num);
    }
    EXPECT_EQ(ibv_destroy_qp(qp), EBUSY);
    EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), 0);
    EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(qp), EBUSY);
    EXPECT_EQ(ibv_detach_mcast(qp, &mapped, 0), 0);
    EXPECT_TRUE(groups.members(mapped).empty());
}

TEST_F(RdmaQpTest, WindowsAreBoundToRegionsThatLibmlx5Takes) {
    ibv_qp* const qp = create(IBV_QPT_RC);
    ready(qp);
    ibv_mw* const first = ibv_alloc_mw(open.pd, IBV_MW_TYPE_1);
    ibv_mw* const second = ibv_alloc_mw(open.pd, IBV_MW_TYPE_2);
    ibv_mr* const zero_based = ibv_reg_mr(open.pd, memory.data(), 64, IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED);
    ibv_mr* const null = ibv_alloc_null_mr(open.pd);
    const auto bind = [&](ibv_mw* window, ibv_mr* region, unsigned access, std::uint64_t length = 64) {
        ibv_mw_bind request{
            7, IBV_SEND_SIGNALED, {region, reinterpret_cast<std::uintptr_t>(memory.data()), length, access}};
        return ibv_bind_mw(qp, window, &request);
    };
    const std::uint32_t before = first->rkey;
    EXPECT_EQ(bind(second, mr, 0), EINVAL);
    EXPECT_EQ(bind(first, mr, IBV_ACCESS_ZERO_BASED), EINVAL);
    EXPECT_EQ(bind(first, zero_based, 0), EINVAL);
    EXPECT_EQ(bind(first, null, 0), ENOTSUP);
    EXPECT_EQ(bind(first, nullptr, 0), EINVAL) << "bytes without a region";
    EXPECT_EQ(bind(first, mr, 0, (std::uint64_t{1} << 31) + 1), EOPNOTSUPP);
    EXPECT_EQ(first->rkey, before);
    EXPECT_EQ(bind(first, mr, IBV_ACCESS_REMOTE_READ), 0);
    EXPECT_EQ(first->rkey, ibv_inc_rkey(before));
    EXPECT_EQ(ibv_dereg_mr(null), 0);
    EXPECT_EQ(ibv_dereg_mr(zero_based), 0);
    EXPECT_EQ(ibv_dealloc_mw(first), 0);
    EXPECT_EQ(ibv_dealloc_mw(second), 0);
}

TEST_F(RdmaQpTest, EventsOfAQueuePairNameItAndGoWithIt) {
    fcntl(open.context->async_fd, F_SETFL, O_NONBLOCK);
    ibv_qp* const qp = create(IBV_QPT_RC);
    device(qp).spec().event(IBV_EVENT_QP_FATAL);
    device(qp).spec().event(IBV_EVENT_COMM_EST);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(open.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
    EXPECT_EQ(event.element.qp, qp);
    ibv_ack_async_event(&event);
    qps.clear();
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_get_async_event(open.context, &event), -1);
}

TEST_F(RdmaQpTest, SharedReceiveQueuesAreGrantedAsLibmlx5ComputesThem) {
    struct Case {
        std::uint32_t wr, sge, granted_wr, granted_sge;
    };
    for (const Case& asked :
         {Case{1, 1, 1, 1}, {100, 1, 127, 1}, {127, 2, 127, 3}, {128, 4, 255, 7}, {10, 31, 15, 31}}) {
        ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {asked.wr, asked.sge, 0}};
        ibv_srq* const srq = ibv_create_srq(open.pd, &attr);
        ASSERT_TRUE(srq);
        EXPECT_EQ(attr.attr.max_wr, asked.granted_wr);
        EXPECT_EQ(attr.attr.max_sge, asked.granted_sge);
        ibv_srq_attr now{};
        ASSERT_EQ(ibv_query_srq(srq, &now), 0);
        EXPECT_EQ(now.max_wr, asked.granted_wr);
        EXPECT_EQ(now.max_sge, asked.granted_sge);
        EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
    for (const ibv_srq_attr& much : {ibv_srq_attr{32768, 1, 0}, ibv_srq_attr{1, 32, 0}}) {
        ibv_srq_init_attr attr{.srq_context = nullptr, .attr = much};
        EXPECT_EQ(ibv_create_srq(open.pd, &attr), nullptr);
        EXPECT_EQ(errno, EINVAL);
    }
}

TEST_F(RdmaQpTest, TheLimitOfASharedReceiveQueueIsAnEvent) {
    fcntl(open.context->async_fd, F_SETFL, O_NONBLOCK);
    ibv_srq_init_attr attr{.srq_context = nullptr, .attr = {8, 1, 0}};
    ibv_srq* const srq = ibv_create_srq(open.pd, &attr);
    ibv_recv_wr receive{.wr_id = 1, .next = nullptr, .sg_list = pieces, .num_sge = 1};
    ASSERT_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
    ASSERT_EQ(ibv_post_srq_recv(srq, &receive, &bad_receive), 0);
    ibv_srq_attr limit{0, 0, 2};
    ASSERT_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
    roce::SharedReceiveQueue::Request taken;
    ASSERT_TRUE(Srq::of(srq).queue->take(taken));
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(open.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event.element.srq, srq);
    ibv_ack_async_event(&event);
    std::uint32_t number = 0;
    EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
    EXPECT_EQ(number, Srq::of(srq).queue->spec().number);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(RdmaQpTest, XrcDomainsAreFilesOrPrivate) {
    const auto open_domain = [&](int fd, int flags,
                                 std::uint32_t mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS) {
        ibv_xrcd_init_attr attr{.comp_mask = mask, .fd = fd, .oflags = flags};
        errno = 0;
        return ibv_open_xrcd(open.context, &attr);
    };
    EXPECT_FALSE(open_domain(-1, O_CREAT, IBV_XRCD_INIT_ATTR_FD));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(open_domain(-1, 0));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(open_domain(-1, O_CREAT | O_APPEND));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(open_domain(12345, O_CREAT));
    EXPECT_EQ(errno, EBADF);
    const int file = ::open("/proc/self/exe", O_RDONLY), again = ::open("/proc/self/exe", O_RDONLY);
    EXPECT_FALSE(open_domain(file, 0));
    EXPECT_EQ(errno, EAGAIN);
    ibv_xrcd* const first = open_domain(file, O_CREAT | O_EXCL);
    ASSERT_TRUE(first);
    EXPECT_FALSE(open_domain(again, O_CREAT | O_EXCL));
    EXPECT_EQ(errno, EINVAL);
    ibv_xrcd* const second = open_domain(again, 0);
    ASSERT_TRUE(second);
    ibv_xrcd* const other = open_domain(-1, O_CREAT);

    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = first;
    ibv_qp* const target = ibv_create_qp_ex(open.context, &attr);
    ASSERT_TRUE(target);
    EXPECT_EQ(target->pd, nullptr);
    ibv_qp_open_attr handle{};
    handle.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    handle.qp_num = target->qp_num;
    handle.qp_type = IBV_QPT_XRC_RECV;
    handle.xrcd = other;
    EXPECT_FALSE(ibv_open_qp(open.context, &handle));
    handle.xrcd = second;
    ibv_qp* const shared = ibv_open_qp(open.context, &handle);
    ASSERT_TRUE(shared);
    EXPECT_EQ(shared->qp_num, target->qp_num);
    EXPECT_EQ(ibv_close_xrcd(first), EBUSY);
    EXPECT_EQ(ibv_destroy_qp(target), 0);
    EXPECT_EQ(ibv_close_xrcd(first), 0);
    EXPECT_EQ(ibv_close_xrcd(second), EBUSY);
    EXPECT_EQ(Recorder::all.size(), 1u);
    EXPECT_EQ(ibv_destroy_qp(shared), 0);
    EXPECT_TRUE(Recorder::all.empty());
    EXPECT_EQ(ibv_close_xrcd(second), 0);
    EXPECT_EQ(ibv_close_xrcd(other), 0);
    EXPECT_FALSE(open_domain(file, 0));
    EXPECT_EQ(errno, EAGAIN);
    close(file);
    close(again);
}

TEST_F(RdmaQpTest, XrcQueuesHaveADomainACompletionQueueAndANumber) {
    ibv_xrcd_init_attr domain{
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    ibv_xrcd* const xrcd = ibv_open_xrcd(open.context, &domain);
    ibv_srq_init_attr_ex attr{};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    attr.srq_type = IBV_SRQT_XRC;
    attr.attr = {4, 1, 0};
    attr.pd = open.pd;
    attr.xrcd = xrcd;
    attr.cq = cq;
    EXPECT_FALSE(ibv_create_srq_ex(open.context, &attr));
    EXPECT_EQ(errno, EINVAL);
    attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    ibv_srq* const srq = ibv_create_srq_ex(open.context, &attr);
    ASSERT_TRUE(srq);
    std::uint32_t number = 0;
    EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
    EXPECT_NE(number, 0u);
    EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
    ibv_qp_init_attr_ex qp = attr_of(IBV_QPT_RC);
    qp.srq = srq;
    EXPECT_EQ(refusal(qp), EINVAL);
    attr.srq_type = IBV_SRQT_TM;
    EXPECT_FALSE(ibv_create_srq_ex(open.context, &attr));
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST_F(RdmaQpTest, AnAddressOfAVlanTellsItsVlan) {
    open.device.set_roce_addresses({{{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 64, 7}});
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.sgid_index = 1;
    ASSERT_EQ(ibv_query_gid(open.context, 1, 1, &attr.grh.dgid), 0);
    std::uint8_t mac[6];
    std::uint16_t vlan = 0;
    ASSERT_EQ(ibv_resolve_eth_l2_from_gid(open.context, &attr, mac, &vlan), 0);
    EXPECT_EQ(vlan, 7);
}

TEST_F(RdmaQpTest, AnAddressHandleOfAReceivedDatagramLeadsBack) {
    ibv_gid own{};
    ASSERT_EQ(ibv_query_gid(open.context, 1, 0, &own), 0);
    ibv_grh grh{};
    grh.version_tclass_flow = htobe32(6u << 28 | 0x5a << 20 | 0x12345);
    grh.hop_limit = 33;
    grh.dgid = own;
    grh.sgid = own;
    grh.sgid.raw[15] ^= 1;
    ibv_wc wc{};
    wc.wc_flags = IBV_WC_GRH;
    wc.sl = 3;
    ibv_ah_attr attr{};
    ASSERT_EQ(ibv_init_ah_from_wc(open.context, 1, &wc, &grh, &attr), 0);
    EXPECT_EQ(attr.is_global, 1);
    EXPECT_EQ(attr.port_num, 1);
    EXPECT_EQ(attr.sl, 3);
    EXPECT_EQ(attr.grh.sgid_index, 0);
    EXPECT_EQ(attr.grh.traffic_class, 0x5a);
    EXPECT_EQ(attr.grh.flow_label, 0x12345u);
    EXPECT_EQ(attr.grh.hop_limit, 33);
    EXPECT_TRUE(std::equal(std::begin(attr.grh.dgid.raw), std::end(attr.grh.dgid.raw), grh.sgid.raw));
    std::uint8_t mac[6];
    std::uint16_t vlan = 0;
    ASSERT_EQ(ibv_resolve_eth_l2_from_gid(open.context, &attr, mac, &vlan), 0);
    EXPECT_EQ(mac[5], grh.sgid.raw[15]);  // a link-local address has its MAC in it
    EXPECT_EQ(mac[0], grh.sgid.raw[8] ^ 2);
    EXPECT_EQ(vlan, 0xffff);
    ibv_ah* const ah = ibv_create_ah_from_wc(open.pd, &wc, &grh, 1);
    ASSERT_TRUE(ah);
    EXPECT_EQ(ibv_dealloc_pd(open.pd), EBUSY);
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
    grh.dgid.raw[15] ^= 1;  // not ours
    EXPECT_EQ(ibv_init_ah_from_wc(open.context, 1, &wc, &grh, &attr), -1);
    grh.version_tclass_flow = 0;
    EXPECT_EQ(ibv_init_ah_from_wc(open.context, 1, &wc, &grh, &attr), -1);
    EXPECT_EQ(errno, EPROTONOSUPPORT);
    attr = {};
    attr.port_num = 1;
    EXPECT_EQ(ibv_create_ah(open.pd, &attr), nullptr);  // no GRH
    EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace ovsdr::soft::test
