// DEVX commands, byte by byte: the numbers here are the PRM's, written out again.
#include "datapath/rdma/devx/devx.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/rdma/dr_seam.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::uint64_t big_endian(const Bytes& bytes, std::size_t at, std::size_t size) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i) value = value << 8 | bytes.at(at + i);
    return value;
}

class DevxTest : public ::testing::Test {
protected:
    /// A command's mailbox: opcode at byte 0, op_mod at byte 6.
    static Bytes command(std::uint16_t opcode, std::size_t size, std::uint16_t op_mod = 0) {
        Bytes in(size);
        in[0] = static_cast<std::uint8_t>(opcode >> 8);
        in[1] = static_cast<std::uint8_t>(opcode);
        in[6] = static_cast<std::uint8_t>(op_mod >> 8);
        in[7] = static_cast<std::uint8_t>(op_mod);
        return in;
    }
    /// other_vport is the first bit of byte 8, vport_number bytes 10 and 11.
    static Bytes of_vport(Bytes in, std::uint16_t vport) {
        in[8] = 0x80;
        in[10] = static_cast<std::uint8_t>(vport >> 8);
        in[11] = static_cast<std::uint8_t>(vport);
        return in;
    }
    int run(const Bytes& in, std::size_t out_size) {
        out.assign(out_size, 0xee);
        return mlx5dv_devx_general_cmd(open.context, in.data(), in.size(), out.data(), out.size());
    }
    mlx5dv_devx_obj* create(const Bytes& in) {
        out.assign(16, 0xee);
        return mlx5dv_devx_obj_create(open.context, in.data(), in.size(), out.data(), out.size());
    }

    OpenDevice open;
    Bytes out;
};

TEST_F(DevxTest, GivesGeneralCapabilities) {
    ASSERT_EQ(run(command(0x100, 16, 0x1), 16 + 4096), 0);
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(big_endian(out, 16 + 136, 4) >> 24 & 0xf, 1u) << "steering_format_version of ConnectX-6 Dx";
    EXPECT_EQ(out[16 + 98], 0xff) << "flow_counter_bulk_alloc";
    EXPECT_EQ(out[16 + 52] & 0x03, 0x03) << "nic_flow_table, eswitch_manager";
}

/// CREATE_GENERAL_OBJECT of type 0x0b: head, then index at byte 27, class at 28, type at 30, length at 31.
Bytes geneve_option(std::uint8_t length = 1, std::uint8_t index = 0, std::size_t size = 80) {
    Bytes in(size);
    in[0] = 0x0a;
    in[7] = 0x0b;
    in[27] = index;
    in[28] = 0x01;
    in[29] = 0x02;
    in[30] = 0x80;
    in[31] = length;
    return in;
}

TEST_F(DevxTest, ADeviceLooksForOneGeneveOption) {
    ASSERT_EQ(run(command(0x100, 16, 0x1), 16 + 4096), 0);
    EXPECT_EQ(big_endian(out, 16 + 128, 8) >> 0x0b & 1, 1u) << "general_obj_types";
    EXPECT_EQ(big_endian(out, 16 + 168, 4) >> 10 & 1, 1u) << "flex_parser_protocols";
    EXPECT_EQ(out[16 + 172], 1) << "max_geneve_tlv_options";
    EXPECT_EQ(out[16 + 173] & 0x1f, 1) << "max_geneve_tlv_option_data_len";
    ASSERT_EQ(run(command(0x100, 16, 0x7 << 1), 16 + 4096), 0);
    EXPECT_EQ(out[16 + 64 + 40] & 0xc0, 0xc0) << "ft_field_support of received packets";
    mlx5dv_devx_obj* const option = create(geneve_option());
    ASSERT_NE(option, nullptr);
    Bytes query = command(0xa02, 16);
    query[7] = 0x0b;
    std::copy(out.begin() + 8, out.begin() + 12, query.begin() + 8);
    Bytes answer(80);
    ASSERT_EQ(mlx5dv_devx_obj_query(option, query.data(), query.size(), answer.data(), answer.size()), 0);
    EXPECT_EQ(big_endian(answer, 24, 8), 0x01028001u);
    EXPECT_EQ(create(geneve_option()), nullptr);
    EXPECT_EQ(errno, EREMOTEIO);
    EXPECT_EQ(out[0], 0x08) << "EXCEED_LIM";
    EXPECT_EQ(mlx5dv_devx_obj_destroy(option), 0);
    mlx5dv_devx_obj* const next = create(geneve_option());
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(next), 0);
}

TEST_F(DevxTest, RefusesGeneveOptionsThatItCannotLookFor) {
    for (const Bytes& in : {geneve_option(0), geneve_option(2), geneve_option(1, 1)}) {
        EXPECT_EQ(create(in), nullptr);
        EXPECT_EQ(out[0], 0x03) << "BAD_PARAM";
    }
    EXPECT_EQ(create(geneve_option(1, 0, 79)), nullptr);
    EXPECT_EQ(out[0], 0x50) << "BAD_INP_LEN";
    const Profile other = with_flex_parser_profile(connectx_6dx, 3);
    OpenDevice gtpu(other);
    const Bytes in = geneve_option();
    EXPECT_EQ(mlx5dv_devx_obj_create(gtpu.context, in.data(), in.size(), out.data(), out.size()), nullptr);
    EXPECT_EQ(out[0], 0x03);
}

TEST_F(DevxTest, SteeringFormatFollowsTheProfile) {
    OpenDevice other(connectx_5);
    const Bytes in = command(0x100, 16, 0x1);
    out.assign(16 + 4096, 0);
    ASSERT_EQ(mlx5dv_devx_general_cmd(other.context, in.data(), in.size(), out.data(), out.size()), 0);
    EXPECT_EQ(out[16 + 136] & 0xf, 0u);
}

TEST_F(DevxTest, AnUnknownOpcodeIsBadOpAndEremoteio) {
    EXPECT_EQ(run(command(0x7fff, 16), 16), EREMOTEIO);
    EXPECT_EQ(errno, EREMOTEIO);
    EXPECT_EQ(out[0], 0x02);
    EXPECT_NE(big_endian(out, 4, 4), 0u);
}

TEST_F(DevxTest, ShortMailboxesAreRefused) {
    EXPECT_EQ(run(command(0x100, 15), 16), EINVAL) << "the kernel wants a whole head";
    EXPECT_EQ(run(command(0x770, 16), 528), EREMOTEIO);
    EXPECT_EQ(out[0], 0x50) << "BAD_INP_LEN";
    EXPECT_EQ(run(command(0x754, 16), 16), EREMOTEIO);
    EXPECT_EQ(out[0], 0x51) << "BAD_OUTP_LEN";
}

TEST_F(DevxTest, QueriesMacAndMtuOfAVport) {
    ASSERT_EQ(run(of_vport(command(0x754, 16), 1), 16 + 256), 0);
    EXPECT_EQ(big_endian(out, 54, 2), 1500u + 22);
    EXPECT_EQ(big_endian(out, 262, 6), 0x020000000101u);
}

TEST_F(DevxTest, ModifiesMacAndMtuOfAVport) {
    Bytes in = of_vport(command(0x755, 512), 1);
    in[15] = 0x40 | 0x08;  // field_select: mtu and permanent_address
    in[294] = 9000 >> 8;
    in[295] = 9000 & 0xff;
    const Bytes mac{0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee};
    std::copy(mac.begin(), mac.end(), in.begin() + 502);
    ASSERT_EQ(run(in, 16), 0);
    VportInfo info;
    ASSERT_EQ(open.device.query(VportId{1}, info), 0);
    EXPECT_EQ(info.mtu, 9000 - 22);
    EXPECT_TRUE(std::equal(mac.begin(), mac.end(), info.mac));
}

TEST_F(DevxTest, RefusesAnMtuThatTheVportCannotHave) {
    Bytes in = of_vport(command(0x755, 512), 1);
    in[15] = 0x40;
    in[295] = 60;
    EXPECT_EQ(run(in, 16), EREMOTEIO);
    EXPECT_EQ(out[0], 0x03);
}

TEST_F(DevxTest, ReadsAndSetsVportState) {
    ASSERT_EQ(run(of_vport(command(0x750, 16, 1), 1), 16), 0);
    EXPECT_EQ(out[15], 0x11) << "admin up, link up";
    Bytes in = of_vport(command(0x751, 16, 1), 1);
    in[15] = 0x00;
    ASSERT_EQ(run(in, 16), 0);
    ASSERT_EQ(run(of_vport(command(0x750, 16, 1), 1), 16), 0);
    EXPECT_EQ(out[15], 0x00);
}

TEST_F(DevxTest, AVportThatIsNotThereIsABadResource) {
    EXPECT_EQ(run(of_vport(command(0x750, 16, 1), 99), 16), EREMOTEIO);
    EXPECT_EQ(out[0], 0x05);
}

TEST_F(DevxTest, ReadsVportCounters) {
    ASSERT_EQ(run(of_vport(command(0x770, 32), 1), 528), 0);
    EXPECT_EQ(big_endian(out, 144, 8), 10u) << "received_eth_unicast.packets";
    EXPECT_EQ(big_endian(out, 152, 8), 1000u);
    EXPECT_EQ(big_endian(out, 160, 8), 20u) << "transmitted_eth_unicast.packets";
    EXPECT_EQ(big_endian(out, 168, 8), 2000u);
    EXPECT_EQ(big_endian(out, 16, 8), 1u + 3u) << "received_errors: drops and oversize";
    EXPECT_EQ(big_endian(out, 32, 8), 2u + 5u) << "transmit_errors: drops and overruns";
}

TEST_F(DevxTest, CountsInABulkOfCounters) {
    Bytes in = command(0x939, 16);
    in[15] = 0x02;  // flow_counter_bulk: 2 * 128
    mlx5dv_devx_obj* const bulk = create(in);
    ASSERT_NE(bulk, nullptr);
    const auto id = static_cast<std::uint32_t>(big_endian(out, 8, 4));
    bulk->counters->add(0, 0, 3, 300);
    bulk->counters->add(0, 0, 4, 400);
    bulk->counters->add(0, 255, 5, 500);

    Bytes query = command(0x93b, 32);
    query[24] = 0x80;  // clear
    query[26] = 256 >> 8;
    for (int i = 0; i < 4; ++i) query[28 + i] = static_cast<std::uint8_t>(id >> (24 - 8 * i));
    out.assign(16 + 256 * 16, 0);
    ASSERT_EQ(mlx5dv_devx_obj_query(bulk, query.data(), query.size(), out.data(), out.size()), 0);
    EXPECT_EQ(big_endian(out, 16, 8), 7u);
    EXPECT_EQ(big_endian(out, 24, 8), 700u);
    EXPECT_EQ(big_endian(out, 16 + 255 * 16, 8), 5u);
    EXPECT_EQ(big_endian(out, 24 + 255 * 16, 8), 500u);
    ASSERT_EQ(mlx5dv_devx_obj_query(bulk, query.data(), query.size(), out.data(), out.size()), 0);
    EXPECT_EQ(big_endian(out, 16, 8), 0u) << "cleared";

    out.resize(16 + 255 * 16);
    EXPECT_EQ(mlx5dv_devx_obj_query(bulk, query.data(), query.size(), out.data(), out.size()), EREMOTEIO);
    EXPECT_EQ(out[0], 0x51);
    query[28] ^= 0x40;
    EXPECT_EQ(mlx5dv_devx_obj_query(bulk, query.data(), query.size(), out.data(), out.size()), EINVAL) << "not its id";
    EXPECT_EQ(mlx5dv_devx_obj_destroy(bulk), 0);
}

TEST_F(DevxTest, RefusesBulksThatAreNoPowerOfTwo) {
    Bytes in = command(0x939, 16);
    in[15] = 0x03;
    EXPECT_EQ(create(in), nullptr);
    EXPECT_EQ(errno, EREMOTEIO);
    EXPECT_EQ(out[0], 0x03);
}

TEST_F(DevxTest, AHeldCounterCannotBeDestroyed) {
    mlx5dv_devx_obj* const counter = create(command(0x939, 16));
    ASSERT_NE(counter, nullptr);
    counter->holders = 1;
    EXPECT_EQ(mlx5dv_devx_obj_destroy(counter), EBUSY);
    counter->holders = 0;
    EXPECT_EQ(mlx5dv_devx_obj_destroy(counter), 0);
}

TEST_F(DevxTest, ATirLeadsToAWorkQueue) {
    ibv_cq* const cq = ibv_create_cq(open.context, 7, nullptr, nullptr, 0);
    ibv_wq_init_attr attr{};
    attr.wq_type = IBV_WQT_RQ;
    attr.max_wr = 4;
    attr.max_sge = 1;
    attr.pd = open.pd;
    attr.cq = cq;
    ibv_wq* const wq = ibv_create_wq(open.context, &attr);
    ASSERT_NE(wq, nullptr);
    Bytes in = command(0x900, 272);
    for (int i = 0; i < 3; ++i) in[32 + 29 + i] = static_cast<std::uint8_t>(wq->wq_num >> (16 - 8 * i));  // inline_rqn
    mlx5dv_devx_obj* const tir = create(in);
    ASSERT_NE(tir, nullptr);
    EXPECT_NE(big_endian(out, 9, 3), 0u) << "tirn";
    EXPECT_EQ(ibv_destroy_wq(wq), EBUSY);

    std::array<std::uint8_t, 32> room{};
    ibv_mr* const mr = ibv_reg_mr(open.pd, room.data(), room.size(), IBV_ACCESS_LOCAL_WRITE);
    ibv_sge sge{reinterpret_cast<std::uint64_t>(room.data()), room.size(), mr->lkey};
    ibv_recv_wr wr{9, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_wq_recv(wq, &wr, &bad), 0);
    ibv_wq_attr ready{};
    ready.attr_mask = IBV_WQ_ATTR_STATE;
    ready.wq_state = IBV_WQS_RDY;
    ASSERT_EQ(ibv_modify_wq(wq, &ready), 0);
    rte_mbuf* packet = rte_pktmbuf_alloc(packet_pool());
    rte_pktmbuf_append(packet, 14);
    const Sink sink = receive_sink_of(tir);
    sink.deliver(sink.self, 0, &packet, 1);
    ibv_wc done{};
    ASSERT_EQ(ibv_poll_cq(cq, 1, &done), 1);
    EXPECT_EQ(done.wr_id, 9u);
    EXPECT_EQ(done.byte_len, 14u);
    EXPECT_EQ(done.qp_num, wq->wq_num);

    EXPECT_EQ(mlx5dv_devx_obj_destroy(tir), 0);
    EXPECT_EQ(ibv_destroy_wq(wq), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(DevxTest, ATirToNoQueueIsABadResource) {
    EXPECT_EQ(create(command(0x900, 272)), nullptr);
    EXPECT_EQ(out[0], 0x05);
}

TEST_F(DevxTest, ObjectsAreNotMadeByGeneralCommands) {
    EXPECT_EQ(run(command(0x939, 16), 16), EINVAL);
    EXPECT_EQ(create(command(0x100, 16)), nullptr);
}

TEST_F(DevxTest, TellsOfVportChangesOnAnEventChannel) {
    auto* const channel = mlx5dv_devx_create_event_channel(open.context, mlx5dv_devx_create_event_channel_flags{});
    ASSERT_NE(channel, nullptr);
    std::uint16_t types[] = {0xd};
    ASSERT_EQ(mlx5dv_devx_subscribe_devx_event(channel, nullptr, sizeof types, types, 42), 0);
    open.device.tell(VportId{1}, VportChange::mtu);
    alignas(8) std::uint8_t buffer[72] = {};
    auto* const header = reinterpret_cast<mlx5dv_devx_async_event_hdr*>(buffer);
    ASSERT_EQ(mlx5dv_devx_get_event(channel, header, sizeof buffer), 72);
    EXPECT_EQ(header->cookie, 42u);
    EXPECT_EQ(buffer[8 + 1], 0xd) << "event type";
    EXPECT_EQ(buffer[8 + 35], 1) << "vport number";
    mlx5dv_devx_destroy_event_channel(channel);
}

}  // namespace
}  // namespace ovsdr::soft::test
