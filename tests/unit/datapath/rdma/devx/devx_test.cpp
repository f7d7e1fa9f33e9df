// DEVX commands, byte by byte: the numbers here are the PRM's, written out again.
#include "datapath/rdma/devx/devx.hpp"

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <vector>

#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/rdma/dr_seam.hpp"
#include "datapath/steering/room.hpp"
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

TEST_F(DevxTest, CountersEndWhereTheDeviceHasRoomForNoMore) {
    Room& room = room_of(open.device.steering());
    room.limit(Resource::flow_counters, 128 + 64);
    Bytes bulk = command(0x939, 16);
    bulk[15] = 0x01;   // 128 of them
    mlx5dv_devx_obj* const counters = create(bulk);
    ASSERT_NE(counters, nullptr);
    EXPECT_EQ(create(bulk), nullptr);
    EXPECT_EQ(errno, EREMOTEIO);
    EXPECT_EQ(out[0], 0x08) << "EXCEED_LIM";
    EXPECT_EQ(room.taken(Resource::flow_counters), 128U) << "what was refused takes nothing";
    EXPECT_EQ(mlx5dv_devx_obj_destroy(counters), 0);
    mlx5dv_devx_obj* const next = create(bulk);
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(next), 0);
    EXPECT_EQ(room.taken(Resource::flow_counters), 0U);
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

TEST_F(DevxTest, SaysWhatFlowTablesMatchAndSample) {
    ASSERT_EQ(run(command(0x100, 16, 0x7 << 1), 16 + 4096), 0);
    const std::size_t receive = 16 + 64, transmit = 16 + 256;
    for (const std::size_t table : {receive, transmit}) {
        EXPECT_EQ(out[table + 32 + 3] & 0x3c, 0x3c) << "geneve_vni, _oam, _protocol_type, _opt_len";
        EXPECT_EQ(big_endian(out, table + 32, 4) >> 6, 0x3ffffffu) << "outer_dmac to outer_vxlan_vni";
    }
    EXPECT_EQ(out[receive + 9], 16) << "log_max_ft_sampler_num";
    EXPECT_EQ(out[transmit + 9], 0) << "no sampler where packets are sent";
    EXPECT_EQ(out[receive + 32 + 3] & 1, 1) << "source_eswitch_port";
    EXPECT_EQ(out[transmit + 32 + 3] & 1, 0);
    EXPECT_EQ(out[16 + 640 + 2] & 0x80, 0x80) << "tunnel_header_0_1";
    ASSERT_EQ(run(command(0x100, 16, 0x8 << 1), 16 + 4096), 0);
    EXPECT_EQ(out[receive + 9], 16) << "of the FDB, which stands where NIC_RX does";
    ASSERT_EQ(run(command(0x100, 16, 0x1 << 1), 16 + 4096), 0);
    EXPECT_EQ(out[16 + 7] & 0x03, 0x03) << "max_geneve_opt_len, tunnel_stateless_geneve_rx";
    EXPECT_EQ(out[16 + 3] & 0x03, 0) << "GRE's and VXLAN's mean segmentation too";
}

TEST_F(DevxTest, QueueCountersAreASetOf128) {
    ASSERT_EQ(run(command(0x100, 16, 0x1), 16 + 4096), 0);
    EXPECT_EQ(big_endian(out, 16 + 48, 2) & 0x3ff, 128u) << "max_qp_cnt";
    std::vector<mlx5dv_devx_obj*> sets;
    while (mlx5dv_devx_obj* const set = create(command(0x771, 16))) {
        EXPECT_NE(out[11], 0) << "counter_set_id";
        sets.push_back(set);
    }
    EXPECT_EQ(sets.size(), 128u);
    EXPECT_EQ(out[0], 0x08) << "EXCEED_LIM";
    Bytes query = command(0x773, 32);
    query[31] = static_cast<std::uint8_t>(sets.front()->number);
    Bytes answer(256);
    EXPECT_EQ(mlx5dv_devx_obj_query(sets.front(), query.data(), query.size(), answer.data(), answer.size()), 0);
    EXPECT_EQ(big_endian(answer, 48, 4), 0u) << "out_of_buffer";
    EXPECT_EQ(mlx5dv_devx_obj_query(sets.back(), query.data(), query.size(), answer.data(), answer.size()), EINVAL)
        << "not its id";
    for (mlx5dv_devx_obj* const set : sets) EXPECT_EQ(mlx5dv_devx_obj_destroy(set), 0);
    mlx5dv_devx_obj* const next = create(command(0x771, 16));
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(next), 0);
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

/// As DPDK's mlx5 driver reads counters: through an indirect key, answered on a descriptor.
TEST_F(DevxTest, DumpsABulkOfCountersToMemory) {
    ASSERT_EQ(run(command(0x100, 16, 0x1), 16 + 4096), 0);
    EXPECT_EQ(out[16 + 108] & 0x40, 0x40) << "flow_counters_dump";
    std::vector<std::uint64_t> values(2 * 128, 0xee);
    ibv_mr* const mr = ibv_reg_mr(open.pd, values.data(), values.size() * 8, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    mlx5dv_obj named{};
    mlx5dv_pd told{};
    named.pd = {open.pd, &told};
    ASSERT_EQ(mlx5dv_init_obj(&named, MLX5DV_OBJ_PD), 0);
    const auto put = [](Bytes& in, std::size_t at, std::uint64_t value, std::size_t size) {
        for (std::size_t i = 0; i < size; ++i) in[at + i] = static_cast<std::uint8_t>(value >> 8 * (size - 1 - i));
    };
    const auto address = reinterpret_cast<std::uintptr_t>(values.data());
    Bytes make = command(0x200, 272 + 4 * 16);
    make[16 + 2] = 0x0e;  // lw, lr, KLM
    make[16 + 7] = 0x5a;  // the key's tag
    put(make, 16 + 4, 0xffffff, 3);
    put(make, 16 + 13, told.pdn, 3);
    put(make, 16 + 16, address, 8);
    put(make, 16 + 24, values.size() * 8, 8);
    put(make, 96, 4, 4);
    put(make, 272, values.size() * 8, 4);
    put(make, 276, mr->lkey, 4);
    put(make, 280, address, 8);
    mlx5dv_devx_obj* const key = create(make);
    ASSERT_NE(key, nullptr) << unsigned{out[0]};
    const auto lkey = static_cast<std::uint32_t>(big_endian(out, 8, 4) << 8 | 0x5a);
    Bytes alloc = command(0x939, 16);
    alloc[15] = 0x01;
    mlx5dv_devx_obj* const bulk = create(alloc);
    ASSERT_NE(bulk, nullptr);
    bulk->counters->add(0, 0, 3, 300);
    bulk->counters->add(0, 127, 5, 500);
    Bytes query = command(0x93b, 32);
    put(query, 12, lkey, 4);
    put(query, 16, address, 8);
    query[24] = 0x40;
    query[27] = 128;
    put(query, 28, bulk->number, 4);

    mlx5dv_devx_cmd_comp* const completions = mlx5dv_devx_create_cmd_comp(open.context);
    ASSERT_NE(completions, nullptr);
    ASSERT_EQ(mlx5dv_devx_obj_query_async(bulk, query.data(), query.size(), 16, 77, completions), 0);
    alignas(mlx5dv_devx_async_cmd_hdr) std::array<std::uint8_t, 24> answer{};
    auto* const head = reinterpret_cast<mlx5dv_devx_async_cmd_hdr*>(answer.data());
    EXPECT_EQ(mlx5dv_devx_get_async_cmd_comp(completions, head, answer.size() - 1), ENOSPC) << "and it stays";
    ASSERT_EQ(mlx5dv_devx_get_async_cmd_comp(completions, head, answer.size()), 0);
    EXPECT_EQ(head->wr_id, 77u);
    EXPECT_EQ(answer[8], 0) << "status";
    EXPECT_EQ(be64toh(values[0]), 3u);
    EXPECT_EQ(be64toh(values[1]), 300u);
    EXPECT_EQ(be64toh(values[2 * 127 + 1]), 500u);

    put(query, 12, lkey ^ 1, 4);
    ASSERT_EQ(mlx5dv_devx_obj_query_async(bulk, query.data(), query.size(), 16, 78, completions), 0);
    ASSERT_EQ(mlx5dv_devx_get_async_cmd_comp(completions, head, answer.size()), 0);
    EXPECT_EQ(answer[8], 0x05) << "BAD_RES: no such key";
    put(query, 12, lkey, 4);
    put(query, 16, address + 8, 8);
    EXPECT_EQ(mlx5dv_devx_obj_query(bulk, query.data(), query.size(), out.data(), out.size()), EREMOTEIO)
        << "past its end";
    put(query, 28, bulk->number + 128, 4);
    EXPECT_EQ(mlx5dv_devx_obj_query_async(bulk, query.data(), query.size(), 16, 79, completions), EINVAL)
        << "not its counter";
    mlx5dv_devx_destroy_cmd_comp(completions);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(key), 0);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(bulk), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(DevxTest, KeysThatADeviceWithoutTheCapabilityRefuses) {
    const auto refused = [this](std::size_t byte, std::uint8_t bits) {
        Bytes in = command(0x200, 272 + 64);
        in[16 + 2] = 0x0e;
        in[99] = 4;
        in[16 + byte] |= bits;
        EXPECT_EQ(create(in), nullptr);
        return out[0];
    };
    EXPECT_EQ(refused(0, 0x40), 0x03) << "free";
    EXPECT_EQ(refused(2, 0x80), 0x03) << "umr_en";
    EXPECT_EQ(refused(2, 0x01), 0x03) << "another access mode";
    EXPECT_EQ(refused(12, 0x40), 0x03) << "signatures";
    EXPECT_EQ(refused(13, 0xff), 0x05) << "no such PD";
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
