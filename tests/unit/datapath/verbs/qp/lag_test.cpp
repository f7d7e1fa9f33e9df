// LAG as applications see it: which queue pairs have a port, which they may choose, and by which of them frames leave.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "datapath/verbs/ah.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

/// A device whose uplink is two ports, which count what leaves by them; index 0 counts what has chosen none.
class LagDevice : public FakeDevice {
public:
    LagDevice() {
        EXPECT_EQ(steering().attach(uplink_vport, counting(0)), 0);
        for (unsigned port = 1; port <= lag_ports; ++port) {
            EXPECT_EQ(steering().attach_lag_port(port, counting(port), counting(0)), 0);
        }
    }
    bool has_lag() const override { return lag; }
    unsigned active_lag_port(unsigned port) const override { return down == port ? 3 - port : port; }

    /// What came out since the last call.
    std::array<unsigned, lag_ports + 1> take() { return std::exchange(seen, {}); }

    bool lag = true;
    unsigned down = 0;
    std::array<unsigned, lag_ports + 1> seen{};

private:
    Sink counting(unsigned port) {
        return {[](void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
                    *static_cast<unsigned*>(self) += length;
                    rte_pktmbuf_free_bulk(packets, length);
                },
                &seen[port]};
    }
};

using Seen = std::array<unsigned, lag_ports + 1>;
using Ports = std::pair<unsigned, unsigned>;  ///< chosen and active

class LagVerbs : public ::testing::Test {
protected:
    LagVerbs() : state(device, packet_pool()), context(open_context(&listed, state)), pd(ibv_alloc_pd(context)) {
        cq = ibv_create_cq(context, 64, nullptr, nullptr, 0);
    }
    ~LagVerbs() override {
        lane.reset();
        for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
    }

    ibv_qp* create(ibv_qp_type type, std::uint32_t send_entries = 8) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = type;
        attr.cap = {send_entries, 8, 1, 1, 64};
        attr.sq_sig_all = 1;
        qps.push_back(ibv_create_qp(pd, &attr));
        EXPECT_NE(qps.back(), nullptr) << std::strerror(errno);
        return qps.back();
    }
    static int move(ibv_qp* qp, ibv_qp_state to) {
        ibv_qp_attr attr{};
        attr.qp_state = to;
        attr.port_num = 1;
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = 0x123;
        attr.qkey = 7;
        attr.min_rnr_timer = attr.timeout = 12;
        attr.retry_cnt = attr.rnr_retry = 7;
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1;
        // A link-local address says the MAC, so that nobody has to be asked for it.
        attr.ah_attr = {.grh = {.dgid = {.raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 9}},
                                .flow_label = 0, .sgid_index = 0, .hop_limit = 64, .traffic_class = 0},
                        .dlid = 0, .sl = 0, .src_path_bits = 0, .static_rate = 0, .is_global = 1, .port_num = 1};
        int mask = IBV_QP_STATE;
        const ibv_qp_type type = qp->qp_type;
        const bool raw = type == IBV_QPT_RAW_PACKET, ud = type == IBV_QPT_UD;
        const bool reliable = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
        if (to == IBV_QPS_INIT) {
            mask |= IBV_QP_PORT | (raw ? 0 : IBV_QP_PKEY_INDEX | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
        }
        if (to == IBV_QPS_RTR && !raw && !ud) {
            mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            if (type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        }
        if (to == IBV_QPS_RTS && !raw) {
            mask |= IBV_QP_SQ_PSN;
            if (reliable) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
        return ibv_modify_qp(qp, &attr, mask);
    }
    static void make_ready(ibv_qp* qp) {
        for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) ASSERT_EQ(move(qp, to), 0) << to;
    }
    static Ports ports_of(ibv_qp* qp) {
        std::uint8_t chosen = 0xee, active = 0xee;
        EXPECT_EQ(mlx5dv_query_qp_lag_port(qp, &chosen, &active), 0);
        return {chosen, active};
    }
    static int query(ibv_qp* qp) {
        std::uint8_t chosen = 0, active = 0;
        errno = 0;
        const int error = mlx5dv_query_qp_lag_port(qp, &chosen, &active);
        EXPECT_EQ(errno, error);
        return error;
    }
    /// One frame of 60 bytes; what the workers do with it.
    void send(ibv_qp* qp, ibv_ah* ah = nullptr) {
        std::array<std::uint8_t, 60> frame{};
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(frame.data()), frame.size(), 0};
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        wr.send_flags = IBV_SEND_INLINE;
        if (ah) wr.wr.ud = {.ah = ah, .remote_qpn = 0x123, .remote_qkey = 7};
        ibv_send_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
        if (!lane) lane = std::make_unique<Lane>(device.steering(), 0);
        lane->online();
        if (Qp::of(qp).raw) {
            std::array<rte_mbuf*, batch_length> packets;
            const std::uint32_t sqn = Qp::of(qp).raw->spec().sqn;
            const unsigned length = device.poll(sqn, packets.data(), batch_length);
            lane->from_queue(sqn, packets.data(), length);
        } else {
            const Outlet outlet{[](void* self, std::uint32_t sqn, rte_mbuf** packets, unsigned length) noexcept {
                                    static_cast<Lane*>(self)->from_queue(sqn, packets, length);
                                },
                                lane.get()};
            (void)device.serve(outlet, now += 1000);
        }
        lane->quiescent();
        lane->offline();
    }

    LagDevice device;
    DeviceState state;
    ibv_device listed{};
    ibv_context* context;
    ibv_pd* pd;
    ibv_cq* cq = nullptr;
    std::vector<ibv_qp*> qps;
    std::unique_ptr<Lane> lane;
    std::uint64_t now = 1'000'000;
};

TEST_F(LagVerbs, TheDeviceSaysHowManyPortsItsUplinkHas) {
    mlx5dv_context told{};
    told.comp_mask = MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS;
    ASSERT_EQ(mlx5dv_query_device(context, &told), 0);
    EXPECT_EQ(told.num_lag_ports, 2);
    device.lag = false;
    told.comp_mask = MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS;
    ASSERT_EQ(mlx5dv_query_device(context, &told), 0);
    EXPECT_EQ(told.num_lag_ports, 1);
}

TEST_F(LagVerbs, QueuePairsOfAContextGetPortsInTurnWhenTheyGoToInit) {
    for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_UC}) {
        ibv_qp* const one = create(type);
        ibv_qp* const two = create(type);
        EXPECT_EQ(query(one), EOPNOTSUPP) << "no port in RESET";
        ASSERT_EQ(move(one, IBV_QPS_INIT), 0);
        ASSERT_EQ(move(two, IBV_QPS_INIT), 0);
        EXPECT_EQ(ports_of(one), Ports(2, 2)) << type;
        EXPECT_EQ(ports_of(two), Ports(1, 1)) << type;
        ASSERT_EQ(move(one, IBV_QPS_RTR), 0);
        ASSERT_EQ(move(one, IBV_QPS_RTS), 0);
        EXPECT_EQ(ports_of(one), Ports(2, 2)) << "the others keep it";
    }
    ibv_context* const other = open_context(&listed, state);
    ibv_qp* const last = create(IBV_QPT_RC);
    ASSERT_EQ(move(last, IBV_QPS_INIT), 0);
    EXPECT_EQ(ports_of(last), Ports(2, 2));
    EXPECT_EQ(Context::of(other).next_lag_port(), 2U) << "each context counts for itself";
    EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(LagVerbs, ResetTakesAnRdmaQueuePairsPortAndLeavesARawPacketOnesTis) {
    ibv_qp* const rc = create(IBV_QPT_RC);
    ibv_qp* const raw = create(IBV_QPT_RAW_PACKET);
    make_ready(rc);
    make_ready(raw);
    const Ports of_raw = ports_of(raw);
    ASSERT_EQ(move(rc, IBV_QPS_RESET), 0);
    ASSERT_EQ(move(raw, IBV_QPS_RESET), 0);
    EXPECT_EQ(query(rc), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(rc, 1), EOPNOTSUPP);
    EXPECT_EQ(ports_of(raw), of_raw);
    ASSERT_EQ(move(raw, IBV_QPS_INIT), 0);
    EXPECT_EQ(ports_of(raw), Ports(2, 2)) << "the next one in turn";
    ASSERT_EQ(move(raw, IBV_QPS_INIT), 0);
    EXPECT_EQ(ports_of(raw), Ports(2, 2)) << "INIT to INIT gives none";
    ASSERT_EQ(move(rc, IBV_QPS_INIT), 0);
    const Ports of_rc = ports_of(rc);
    ASSERT_EQ(move(rc, IBV_QPS_INIT), 0);
    EXPECT_EQ(ports_of(rc), of_rc);
}

TEST_F(LagVerbs, FramesOfARawPacketQueueLeaveByItsPort) {
    ibv_qp* const qp = create(IBV_QPT_RAW_PACKET);
    const std::uint8_t port_of_uplink = static_cast<std::uint8_t>(state.port_of(uplink_vport));
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = port_of_uplink;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
    ASSERT_EQ(move(qp, IBV_QPS_RTR), 0);
    ASSERT_EQ(move(qp, IBV_QPS_RTS), 0);
    EXPECT_EQ(ports_of(qp), Ports(2, 2));
    send(qp);
    EXPECT_EQ(device.take(), (Seen{0, 0, 1}));
    ASSERT_EQ(mlx5dv_modify_qp_lag_port(qp, 1), 0);
    EXPECT_EQ(ports_of(qp), Ports(1, 1));
    send(qp);
    EXPECT_EQ(device.take(), (Seen{0, 1, 0}));
    ASSERT_EQ(mlx5dv_modify_qp_lag_port(qp, 0), 0) << "by no port";
    send(qp);
    EXPECT_EQ(device.take(), (Seen{1, 0, 0}));
    EXPECT_EQ(query(qp), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(qp, 1), EOPNOTSUPP) << "libmlx5 asks first";
}

TEST_F(LagVerbs, PacketsOfConnectionsAndDatagramsLeaveByTheirPort) {
    ibv_ah_attr to{};
    to.grh.dgid.raw[0] = 0xfe;
    to.grh.dgid.raw[1] = 0x80;
    to.grh.dgid.raw[11] = 0xff;
    to.grh.dgid.raw[12] = 0xfe;
    to.grh.dgid.raw[15] = 9;
    to.grh.hop_limit = 64;
    to.is_global = 1;
    to.port_num = 1;
    ibv_ah* const ah = ibv_create_ah(pd, &to);
    ASSERT_NE(ah, nullptr);
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
        ibv_qp* const qp = create(type);
        make_ready(qp);
        for (const std::uint8_t port : {1, 2, 1}) {
            ASSERT_EQ(mlx5dv_modify_qp_lag_port(qp, port), 0);
            EXPECT_EQ(ports_of(qp), Ports(port, port));
            send(qp, type == IBV_QPT_UD ? ah : nullptr);
            const Seen seen = device.take();
            EXPECT_GE(seen[port], 1U) << "type " << type << ", port " << int{port};
            EXPECT_EQ(seen[0] + seen[1] + seen[2], seen[port]) << "type " << type << ", port " << int{port};
        }
        EXPECT_EQ(move(qp, IBV_QPS_RESET), 0);  // it would repeat what nobody acknowledges
        device.take();
    }
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(LagVerbs, TheActivePortIsTheOneThatStandsIn) {
    ibv_qp* const qp = create(IBV_QPT_RC);
    make_ready(qp);
    device.down = 2;
    EXPECT_EQ(ports_of(qp), Ports(2, 1));
    ASSERT_EQ(mlx5dv_modify_qp_lag_port(qp, 1), 0);
    EXPECT_EQ(ports_of(qp), Ports(1, 1));
    device.down = 1;
    EXPECT_EQ(ports_of(qp), Ports(1, 2));
}

TEST_F(LagVerbs, RdmaQueuePairsChangePortsInRtsOnlyRawPacketOnesFromInitOn) {
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
        ibv_qp* const qp = create(type);
        for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR}) {
            ASSERT_EQ(move(qp, to), 0);
            EXPECT_EQ(query(qp), 0);
            EXPECT_EQ(mlx5dv_modify_qp_lag_port(qp, 1), EOPNOTSUPP) << type << " " << to;
        }
        ASSERT_EQ(move(qp, IBV_QPS_RTS), 0);
        EXPECT_EQ(mlx5dv_modify_qp_lag_port(qp, 1), 0);
        ASSERT_EQ(move(qp, IBV_QPS_ERR), 0);
        EXPECT_EQ(ports_of(qp), Ports(1, 1));
        EXPECT_EQ(mlx5dv_modify_qp_lag_port(qp, 2), EOPNOTSUPP);
    }
    ibv_qp* const raw = create(IBV_QPT_RAW_PACKET);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(raw, 1), EOPNOTSUPP);
    ASSERT_EQ(move(raw, IBV_QPS_INIT), 0);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(raw, 1), 0);
    ASSERT_EQ(move(raw, IBV_QPS_ERR), 0);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(raw, 2), 0);
}

TEST_F(LagVerbs, PortsThatTheLagDoesNotHaveAreRefused) {
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_RAW_PACKET}) {
        ibv_qp* const qp = create(type);
        make_ready(qp);
        const Ports before = ports_of(qp);
        for (const std::uint8_t port : {3, 4, 17, 255}) {
            EXPECT_EQ(mlx5dv_modify_qp_lag_port(qp, port), EINVAL);
            EXPECT_EQ(errno, EINVAL);
        }
        EXPECT_EQ(ports_of(qp), before);
    }
}

TEST_F(LagVerbs, ARawPacketQueuePairWithoutASendQueueHasNoTis) {
    ibv_qp* const qp = create(IBV_QPT_RAW_PACKET, 0);
    make_ready(qp);
    EXPECT_EQ(query(qp), EINVAL);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(qp, 1), EINVAL);
    ibv_qp* const next = create(IBV_QPT_RAW_PACKET);
    ASSERT_EQ(move(next, IBV_QPS_INIT), 0);
    EXPECT_EQ(ports_of(next), Ports(1, 1)) << "it has had its turn all the same";
}

TEST_F(LagVerbs, AnRssQueuePairHasNoTis) {
    ibv_wq_init_attr of_queue{};
    of_queue.wq_type = IBV_WQT_RQ;
    of_queue.max_wr = 8;
    of_queue.max_sge = 1;
    of_queue.pd = pd;
    of_queue.cq = cq;
    ibv_wq* queue = ibv_create_wq(context, &of_queue);
    ASSERT_NE(queue, nullptr);
    ibv_rwq_ind_table_init_attr of_table{0, &queue, 0};
    ibv_rwq_ind_table* const table = ibv_create_rwq_ind_table(context, &of_table);
    ASSERT_NE(table, nullptr);
    std::array<std::uint8_t, 40> key{};
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.pd = pd;
    attr.rwq_ind_tbl = table;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, 40, key.data(), IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4};
    ibv_qp* const qp = ibv_create_qp_ex(context, &attr);
    ASSERT_NE(qp, nullptr);
    EXPECT_EQ(query(qp), EINVAL);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(qp, 1), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(qp) | ibv_destroy_rwq_ind_table(table) | ibv_destroy_wq(queue), 0);
}

/// What steering has remembered of a queue does not outlive it: one of the manager's has no rule, the uplink's has.
TEST_F(LagVerbs, AQueueThatGoesToAnotherPortAfterResetIsFollowed) {
    device.lag = false;
    ibv_qp* const qp = create(IBV_QPT_RAW_PACKET);
    for (const VportId vport : {manager_vport, uplink_vport, manager_vport, uplink_vport}) {
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = static_cast<std::uint8_t>(state.port_of(vport));
        ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
        ASSERT_EQ(move(qp, IBV_QPS_RTR), 0);
        ASSERT_EQ(move(qp, IBV_QPS_RTS), 0);
        send(qp);
        send(qp);
        EXPECT_EQ(device.take(), (Seen{vport == uplink_vport ? 2U : 0U, 0, 0}));
        ASSERT_EQ(move(qp, IBV_QPS_RESET), 0);
    }
}

TEST_F(LagVerbs, XrcInitiatorsHaveAPortForGoodAndTargetsNone) {
    ibv_xrcd_init_attr domain{
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
    ibv_xrcd* const xrcd = ibv_open_xrcd(context, &domain);
    ASSERT_NE(xrcd, nullptr);
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.xrcd = xrcd;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    ibv_qp* const target = ibv_create_qp_ex(context, &attr);
    ASSERT_NE(target, nullptr);
    EXPECT_EQ(move(target, IBV_QPS_INIT), 0);
    EXPECT_EQ(query(target), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(target, 1), EOPNOTSUPP);
    EXPECT_EQ(ibv_destroy_qp(target), 0);
    EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
    ibv_qp* const initiator = create(IBV_QPT_XRC_SEND);
    make_ready(initiator);
    EXPECT_EQ(ports_of(initiator), Ports(1, 1)) << "the target took the first turn, for its answers";
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(initiator, 2), EOPNOTSUPP);
    EXPECT_EQ(ports_of(initiator), Ports(1, 1));
}

TEST_F(LagVerbs, DcInitiatorsHaveAPortAndTargetsNone) {
    ibv_qp_init_attr_ex attr{};
    attr.qp_type = IBV_QPT_DRIVER;
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {8, 0, 1, 0, 64};
    attr.pd = pd;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    mlx5dv_qp_init_attr mlx5{};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    qps.push_back(mlx5dv_create_qp(context, &attr, &mlx5));
    ibv_qp* const initiator = qps.back();
    ASSERT_NE(initiator, nullptr);
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(initiator, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
    EXPECT_EQ(ports_of(initiator), Ports(2, 2));
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(initiator, 1), EOPNOTSUPP) << "not in RTS";
    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = IBV_MTU_1024;
    ASSERT_EQ(ibv_modify_qp(initiator, &to, IBV_QP_STATE | IBV_QP_PATH_MTU), 0);
    to.qp_state = IBV_QPS_RTS;
    to.timeout = 12;
    to.retry_cnt = to.rnr_retry = 7;
    to.max_rd_atomic = 1;
    ASSERT_EQ(ibv_modify_qp(initiator, &to, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), 0);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(initiator, 1), 0);
    EXPECT_EQ(ports_of(initiator), Ports(1, 1));

    ibv_srq_init_attr srq_attr{};
    srq_attr.attr = {16, 1, 0};
    ibv_srq* const srq = ibv_create_srq(pd, &srq_attr);
    ibv_qp_init_attr_ex target_attr{};
    target_attr.qp_type = IBV_QPT_DRIVER;
    target_attr.send_cq = target_attr.recv_cq = cq;
    target_attr.pd = pd;
    target_attr.srq = srq;
    target_attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
    mlx5.dc_init_attr.dct_access_key = 1;
    ibv_qp* const target = mlx5dv_create_qp(context, &target_attr, &mlx5);
    ASSERT_NE(target, nullptr) << std::strerror(errno);
    EXPECT_EQ(query(target), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_modify_qp_lag_port(target, 1), EOPNOTSUPP);
    EXPECT_EQ(ibv_destroy_qp(target), 0);
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(LagVerbs, WithoutLagNobodyHasAPort) {
    device.lag = false;
    for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_RAW_PACKET}) {
        ibv_qp* const qp = create(type);
        make_ready(qp);
        EXPECT_EQ(query(qp), EOPNOTSUPP);
        EXPECT_EQ(mlx5dv_modify_qp_lag_port(qp, 1), EOPNOTSUPP);
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
}

TEST_F(LagVerbs, AQueuePairThatIsGoneLeavesNoChoiceBehind) {
    ibv_qp* const qp = create(IBV_QPT_RC);
    make_ready(qp);
    const std::uint32_t sqn = qp->qp_num;
    qps.pop_back();
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    device.steering().cotenant_send_rule(sqn, uplink_vport);
    rte_mbuf* packet = rte_pktmbuf_alloc(packet_pool());
    (void)rte_pktmbuf_append(packet, 60);
    Lane other(device.steering(), 1);
    other.online();
    other.from_queue(sqn, &packet, 1);
    other.quiescent();
    other.offline();
    EXPECT_EQ(device.take(), (Seen{1, 0, 0}));
    device.steering().remove_cotenant_send_rule(sqn);
}

}  // namespace
}  // namespace ovsdr::soft::test
