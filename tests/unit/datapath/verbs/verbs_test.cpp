// The ABI front on a fake device: devices, ports, events, CQs, extended QPs, faults.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <thread>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/dr_seam.hpp"
#include "datapath/steering/steering_impl.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

class VerbsTest : public ::testing::Test {
protected:
    [[nodiscard]] ibv_qp* raw_qp(ibv_cq* cq, std::uint64_t operations = 0) {
        ibv_qp_init_attr_ex attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.cap = {8, 8, 2, 2, 64};
        attr.pd = open.pd;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD | (operations ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0);
        attr.send_ops_flags = operations;
        return ibv_create_qp_ex(open.context, &attr);
    }
    void make_ready(ibv_qp* qp, std::uint8_t port = 1) {
        ibv_qp_attr attr{};
        attr.port_num = port;
        for (const auto& [state, mask] :
             {std::pair{IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PORT}, std::pair{IBV_QPS_RTR, int{IBV_QP_STATE}},
              std::pair{IBV_QPS_RTS, int{IBV_QP_STATE}}}) {
            attr.qp_state = state;
            ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
        }
    }
    [[nodiscard]] unsigned drain(ibv_qp* qp) {
        std::array<rte_mbuf*, batch_length> packets;
        const unsigned length = open.device.poll(Qp::of(qp).raw->spec().sqn, packets.data(), batch_length);
        rte_pktmbuf_free_bulk(packets.data(), length);
        return length;
    }

    OpenDevice open;
};

TEST_F(VerbsTest, TheDeviceIsAConnectXOfItsProfile) {
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(open.context, nullptr, &attr), 0);
    EXPECT_EQ(attr.orig_attr.vendor_id, 0x02c9u);
    EXPECT_EQ(attr.orig_attr.vendor_part_id, 0x101du);
    EXPECT_EQ(attr.orig_attr.phys_port_cnt, 3);
    EXPECT_EQ(attr.phys_port_cnt_ex, 3u);
}

TEST_F(VerbsTest, PortsAreVportsAndKeepTheirNumbers) {
    mlx5dv_port port{};
    ASSERT_EQ(mlx5dv_query_port(open.context, 1, &port), 0);
    EXPECT_EQ(port.vport, 0);
    ASSERT_EQ(mlx5dv_query_port(open.context, 2, &port), 0);
    EXPECT_EQ(port.vport, 1);
    EXPECT_EQ(port.reg_c0.value, 1u << 16);
    EXPECT_EQ(port.reg_c0.mask, 0xffff0000u);
    ASSERT_EQ(mlx5dv_query_port(open.context, 3, &port), 0);
    EXPECT_EQ(port.vport, 0xffff);
    open.device.add(VportId{2});
    ASSERT_EQ(mlx5dv_query_port(open.context, 4, &port), 0);
    EXPECT_EQ(port.vport, 2);
    ASSERT_EQ(mlx5dv_query_port(open.context, 3, &port), 0);
    EXPECT_EQ(port.vport, 0xffff);
    EXPECT_EQ(mlx5dv_query_port(open.context, 5, &port), EINVAL);
    open.device.remove(VportId{1});
    EXPECT_EQ(mlx5dv_query_port(open.context, 2, &port), EOPNOTSUPP);
    ibv_port_attr attr{};
    ASSERT_EQ(ibv_query_port(open.context, 2, &attr), 0);
    EXPECT_EQ(attr.state, IBV_PORT_DOWN);
}

TEST_F(VerbsTest, PortStateFollowsTheVport) {
    ibv_port_attr attr{};
    ASSERT_EQ(ibv_query_port(open.context, 2, &attr), 0);
    EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
    EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
    EXPECT_EQ(attr.active_mtu, IBV_MTU_1024);
    ASSERT_EQ(open.device.set_admin_state(VportId{1}, false), 0);
    ASSERT_EQ(ibv_query_port(open.context, 2, &attr), 0);
    EXPECT_EQ(attr.state, IBV_PORT_DOWN);
    EXPECT_EQ(ibv_query_port(open.context, 9, &attr), EINVAL);
}

TEST_F(VerbsTest, TheManagersMtuIsTheUplinks) {
    const auto active_mtu = [this](std::uint8_t port) {
        ibv_port_attr attr{};
        EXPECT_EQ(ibv_query_port(open.context, port, &attr), 0);
        return attr.active_mtu;
    };
    ASSERT_EQ(open.device.set_mtu(uplink_vport, 4500), 0);
    EXPECT_EQ(active_mtu(1), IBV_MTU_4096) << "what it sends goes out by the uplink";
    EXPECT_EQ(active_mtu(2), IBV_MTU_1024) << "a representor's is its own";
    EXPECT_EQ(active_mtu(3), IBV_MTU_4096);
    ASSERT_EQ(open.device.set_mtu(uplink_vport, 4191), 0);
    EXPECT_EQ(active_mtu(1), IBV_MTU_2048);
    open.device.remove(uplink_vport);
    EXPECT_EQ(active_mtu(1), IBV_MTU_1024) << "without one, the manager's own";
}

TEST_F(VerbsTest, GidsComeFromTheMac) {
    ibv_gid_entry entry{};
    ASSERT_EQ(ibv_query_gid_ex(open.context, 1, 0, &entry, 0), 0);
    const std::uint8_t expected[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 1, 0};
    EXPECT_TRUE(std::equal(std::begin(expected), std::end(expected), entry.gid.raw));
    EXPECT_EQ(entry.gid_type, static_cast<unsigned>(IBV_GID_TYPE_ROCE_V2));
    EXPECT_EQ(ibv_query_gid_ex(open.context, 1, 1, &entry, 0), ENODATA);
    EXPECT_EQ(ibv_query_gid_ex(open.context, 2, 0, &entry, 0), ENODATA) << "representors have no RoCE";
}

TEST_F(VerbsTest, LinkChangesAreAsynchronousEvents) {
    fcntl(open.context->async_fd, F_SETFL, O_NONBLOCK);
    ibv_async_event event{};
    EXPECT_EQ(ibv_get_async_event(open.context, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
    ASSERT_EQ(open.device.set_admin_state(VportId{1}, false), 0);
    open.device.tell(VportId{1}, VportChange::link);
    ASSERT_EQ(ibv_get_async_event(open.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
    EXPECT_EQ(event.element.port_num, 2);
    ibv_ack_async_event(&event);
}

TEST_F(VerbsTest, ObjectsInUseAreBusy) {
    ibv_comp_channel* const channel = ibv_create_comp_channel(open.context);
    ibv_cq* const cq = ibv_create_cq(open.context, 7, nullptr, channel, 0);
    ibv_pd* const pd = ibv_alloc_pd(open.context);
    int bytes = 0;
    ibv_mr* const mr = ibv_reg_mr(pd, &bytes, sizeof bytes, 0);
    EXPECT_EQ(cq->cqe, 7);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), EBUSY);
    EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(VerbsTest, RegistrationRefusesBadAccessAndMissingMemory) {
    int bytes = 0;
    EXPECT_EQ(ibv_reg_mr(open.pd, &bytes, sizeof bytes, IBV_ACCESS_REMOTE_WRITE), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_reg_mr(open.pd, reinterpret_cast<void*>(0x1000), 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    void* const read_only = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(ibv_reg_mr(open.pd, read_only, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    ibv_mr* const readable = ibv_reg_mr(open.pd, read_only, 4096, 0);
    EXPECT_NE(readable, nullptr);
    EXPECT_EQ(ibv_dereg_mr(readable), 0);
    munmap(read_only, 4096);
}

TEST_F(VerbsTest, AnArmedCqTellsItsChannelAndWaitsForTheAcknowledgement) {
    ibv_comp_channel* const channel = ibv_create_comp_channel(open.context);
    ibv_cq* const cq = ibv_create_cq(open.context, 7, &open, channel, 0);
    ibv_qp* const qp = raw_qp(cq, IBV_QP_EX_WITH_SEND);
    make_ready(qp);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(ex);
    ex->wr_id = 3;
    ex->wr_flags = IBV_SEND_SIGNALED;
    std::array<std::uint8_t, 14> frame{};
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, frame.data(), frame.size());
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    EXPECT_EQ(drain(qp), 1u);
    ibv_cq* told = nullptr;
    void* context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel, &told, &context), 0);
    EXPECT_EQ(told, cq);
    EXPECT_EQ(context, &open);
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
    std::atomic<bool> destroyed = false;
    std::thread destroyer([&] {
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        destroyed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_FALSE(destroyed);
    ibv_ack_cq_events(cq, 1);
    destroyer.join();
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(VerbsTest, AnOverrunCqRaisesOneEvent) {
    ibv_cq* const cq = ibv_create_cq(open.context, 1, nullptr, nullptr, 0);
    ibv_qp* const qp = raw_qp(cq, IBV_QP_EX_WITH_SEND);
    make_ready(qp);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    std::array<std::uint8_t, 14> frame{};
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    for (int i = 0; i < 4; ++i) {
        ibv_wr_send(ex);
        ibv_wr_set_inline_data(ex, frame.data(), frame.size());
    }
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    EXPECT_EQ(drain(qp), 4u);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(open.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(event.element.cq, cq);
    ibv_ack_async_event(&event);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(VerbsTest, AnExtendedCqReadsTagRegBAndLength) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    attr.wc_flags = IBV_WC_EX_WITH_FLOW_TAG | IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM;
    ibv_cq_ex* const cq = ibv_create_cq_ex(open.context, &attr);
    ASSERT_NE(cq, nullptr);
    ibv_qp* const qp = raw_qp(ibv_cq_ex_to_cq(cq));
    make_ready(qp);
    std::array<std::uint8_t, 64> room{};
    ibv_mr* const mr = ibv_reg_mr(open.pd, room.data(), room.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_sge sge{reinterpret_cast<std::uint64_t>(room.data()), room.size(), mr->lkey};
    ibv_recv_wr wr{77, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
    rte_mbuf* packet = rte_pktmbuf_alloc(packet_pool());
    rte_pktmbuf_append(packet, 20);
    set_source(packet, uplink_vport);
    set_tag(packet, 0xabcdef);
    set_reg_b(packet, 0x12345678);
    receive_sink_of(qp).deliver(receive_sink_of(qp).self, 0, &packet, 1);
    ibv_poll_cq_attr poll_attr{};
    ASSERT_EQ(ibv_start_poll(cq, &poll_attr), 0);
    EXPECT_EQ(cq->wr_id, 77u);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_flow_tag(cq), 0xabcdefu);
    EXPECT_EQ(ibv_wc_read_imm_data(cq), htobe32(0x12345678)) << "reg_b is where an immediate would be";
    EXPECT_EQ(ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM, 0u);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), 20u);
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(VerbsTest, AnAbortedOrFailedBatchPostsNothing) {
    ibv_cq* const cq = ibv_create_cq(open.context, 7, nullptr, nullptr, 0);
    ibv_qp* const qp = raw_qp(cq, IBV_QP_EX_WITH_SEND);
    make_ready(qp);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(qp);
    std::array<std::uint8_t, 200> frame{};
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, frame.data(), 14);
    ibv_wr_abort(ex);
    EXPECT_EQ(drain(qp), 0u);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, frame.data(), 14);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, frame.data(), frame.size());
    EXPECT_EQ(ibv_wr_complete(ex), ENOMEM);
    EXPECT_EQ(drain(qp), 0u);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(VerbsTest, MakingAQueueEmptiesNoFlowCache) {
    ibv_cq* const cq = ibv_create_cq(open.context, 7, nullptr, nullptr, 0);
    const std::uint64_t before = open.device.steering().impl().cache_key(manager_vport).epoch;
    ibv_qp* const qp = raw_qp(cq);
    make_ready(qp, 2);
    EXPECT_EQ(open.device.steering().impl().cache_key(manager_vport).epoch, before);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_NE(open.device.steering().impl().cache_key(manager_vport).epoch, before)
        << "its number may be another's next";
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(VerbsTest, OnlyRawPacketSendIsOffered) {
    ibv_cq* const cq = ibv_create_cq(open.context, 7, nullptr, nullptr, 0);
    for (unsigned bit = 0; bit < 64; ++bit) {
        const std::uint64_t operation = std::uint64_t{1} << bit;
        if (operation == IBV_QP_EX_WITH_SEND || operation == IBV_QP_EX_WITH_TSO) continue;
        EXPECT_EQ(raw_qp(cq, operation), nullptr) << bit;
        EXPECT_EQ(errno, EOPNOTSUPP);
    }
    ibv_qp* const extended = raw_qp(cq, IBV_QP_EX_WITH_SEND);
    ASSERT_NE(extended, nullptr);
    EXPECT_NE(ibv_qp_to_qp_ex(extended)->wr_send_tso, nullptr) << "both, whichever was asked for";
    EXPECT_EQ(ibv_destroy_qp(extended), 0);
    ibv_qp* const plain = raw_qp(cq);
    EXPECT_EQ(ibv_qp_to_qp_ex(plain), nullptr);
    EXPECT_EQ(ibv_destroy_qp(plain), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(VerbsTest, TellsTheHandlesOfARawQpAndNothingItDoesNotHave) {
    ibv_cq* const cq = ibv_create_cq(open.context, 7, nullptr, nullptr, 0);
    ibv_qp* const qp = raw_qp(cq);
    mlx5dv_qp out{};
    mlx5dv_obj object{};
    object.qp = {qp, &out};
    EXPECT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), EOPNOTSUPP) << "no rings to map";
    out.comp_mask = MLX5DV_QP_MASK_RAW_QP_HANDLES;
    ASSERT_EQ(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP), 0);
    EXPECT_NE(out.sqn, 0u);
    EXPECT_NE(out.rqn, out.sqn);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(VerbsTest, InjectedFaultsFailTheCallTheyName) {
    arm_fault("ibv_create_cq", ENOMEM, 1);
    EXPECT_EQ(ibv_create_cq(open.context, 7, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    ibv_cq* const cq = ibv_create_cq(open.context, 7, nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    arm_fault("ibv_poll_cq", EIO, 1);
    ibv_wc completion{};
    EXPECT_LT(ibv_poll_cq(cq, 1, &completion), 0);
    EXPECT_EQ(ibv_poll_cq(cq, 1, &completion), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(VerbsTest, NamesAndRatesAreThoseOfRdmaCore) {
    EXPECT_STREQ(ibv_wc_status_str(IBV_WC_WR_FLUSH_ERR), "Work Request Flushed Error");
    EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "active");
    EXPECT_STREQ(ibv_port_state_str(static_cast<ibv_port_state>(99)), "unknown");
    EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
    EXPECT_EQ(mbps_to_ibv_rate(10000), IBV_RATE_10_GBPS);
}

TEST_F(VerbsTest, AContextClosedOverAQueuePairStopsIt) {
    OpenDevice other;
    ibv_context* const context = open_context(&other.listed, other.state);
    ibv_pd* const pd = ibv_alloc_pd(context);
    ibv_cq* const cq = ibv_create_cq(context, 7, nullptr, nullptr, 0);
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RAW_PACKET;
    attr.cap = {1, 1, 1, 1, 0};
    ibv_qp* const qp = ibv_create_qp(pd, &attr);
    make_ready(qp);
    EXPECT_EQ(other.device.send_sources(), 1u);
    EXPECT_EQ(ibv_close_device(context), 0);
    EXPECT_EQ(other.device.send_sources(), 0u);
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace ovsdr::soft::test
