// SQ, RQ, TIR and RQ tables by raw DEVX commands: what goes over the vport, what CQEs say, what is refused.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "devx_rings.hpp"

namespace ovsdr::soft::test {
namespace {

std::uint16_t ones_sum(std::span<const std::uint8_t> bytes, std::uint32_t sum = 0) {
    for (std::size_t i = 0; i < bytes.size(); ++i) sum += i % 2 ? bytes[i] : bytes[i] << 8;
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<std::uint16_t>(sum);
}

void store16(Bytes& bytes, std::size_t at, std::uint16_t value) {
    bytes[at] = static_cast<std::uint8_t>(value >> 8);
    bytes[at + 1] = static_cast<std::uint8_t>(value);
}

/// Ethernet, IPv4, and UDP (8 bytes) or TCP (20 bytes), without checksums.
Bytes ip_frame(std::size_t payload, std::uint8_t protocol = 17, std::uint16_t source_port = 1000) {
    const std::size_t header = protocol == 6 ? 20 : 8;
    Bytes frame(34 + header + payload);
    std::copy(TirRule::address.begin(), TirRule::address.end(), frame.begin());
    frame[6] = 2;
    frame[11] = 9;
    store16(frame, 12, 0x0800);
    frame[14] = 0x45;
    store16(frame, 16, static_cast<std::uint16_t>(20 + header + payload));
    frame[22] = 64;
    frame[23] = protocol;
    const std::array<std::uint8_t, 8> addresses{10, 0, 0, 1, 10, 0, 0, 2};
    std::copy(addresses.begin(), addresses.end(), frame.begin() + 26);
    store16(frame, 34, source_port);
    store16(frame, 36, 2000);
    if (protocol == 6) {
        frame[46] = 5 << 4;
        frame[47] = 0x18;  // ACK, PSH
    } else {
        store16(frame, 38, static_cast<std::uint16_t>(8 + payload));
    }
    std::iota(frame.begin() + static_cast<std::ptrdiff_t>(34 + header), frame.end(), std::uint8_t{1});
    return frame;
}

bool checksums_right(std::span<const std::uint8_t> frame) {
    const std::size_t transport = frame.size() - 34;
    const std::uint32_t pseudo = ones_sum(frame.subspan(26, 8)) + frame[23] + static_cast<std::uint32_t>(transport);
    return ones_sum(frame.subspan(14, 20)) == 0xffff && ones_sum(frame.subspan(34), pseudo) == 0xffff;
}

std::uint32_t last_word(const mlx5_cqe64* entry) { return be32toh(entry->sop_drop_qpn); }

TEST_F(DevxRings, AFrameGoesOutByTheVportAndComesBackIntoABuffer) {
    Cq sent = make_cq(), received = make_cq();
    Queue sq = make_sq(sent.number), rq = make_rq(received.number);
    const Made tir = make_tir(rq.number);
    const TirRule rule(context, tir.object);
    const std::size_t rooms = post_receives(rq, 2);
    Bytes frame = ip_frame(100);
    post_send(sq, frame, {.checksums = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM});

    const mlx5_cqe64* const done = wait(sent);
    ASSERT_NE(done, nullptr);
    EXPECT_EQ(done->op_own >> 4, MLX5_CQE_REQ);
    EXPECT_EQ(last_word(done), 0x0au << 24 | sq.number);
    EXPECT_EQ(be16toh(done->wqe_counter), 0);
    EXPECT_EQ(be32toh(done->srqn_uidx), 0xabcu);
    const mlx5_cqe64* const came = wait(received);
    ASSERT_NE(came, nullptr);
    EXPECT_EQ(came->op_own, MLX5_CQE_RESP_SEND << 4 | 0) << "owner bit of the first turn";
    EXPECT_EQ(be32toh(came->byte_cnt), frame.size());
    EXPECT_EQ(last_word(came), TirRule::flow_tag);
    EXPECT_EQ(be32toh(came->srqn_uidx), 0xdefu);
    EXPECT_EQ(came->hds_ip_ext, MLX5_CQE_L2_OK | MLX5_CQE_L3_OK | MLX5_CQE_L4_OK);
    EXPECT_EQ(came->l4_hdr_type_etc, 2 << 4 | MLX5_CQE_L3_HDR_TYPE_IPV4 << 2) << "UDP over IPv4";
    EXPECT_NE(came->timestamp, 0u);

    const std::span<std::uint8_t> got(memory.data() + rooms, frame.size());
    EXPECT_TRUE(checksums_right(got));
    store16(frame, 24, static_cast<std::uint16_t>(got[24] << 8 | got[25]));
    store16(frame, 40, static_cast<std::uint16_t>(got[40] << 8 | got[41]));
    EXPECT_TRUE(std::equal(frame.begin(), frame.end(), got.begin())) << "all but the checksums is as it was posted";
    EXPECT_EQ(counters(1).received_packets, 1u);
    EXPECT_EQ(counters(1).sent_packets, 1u);

    post_send(sq, ip_frame(10), {});
    const mlx5_cqe64* const second = wait(received);
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(be16toh(second->wqe_counter), 1);
    EXPECT_EQ(second->hds_ip_ext, MLX5_CQE_L2_OK) << "no checksums were asked for: they are wrong";
    EXPECT_EQ(mlx5dv_devx_obj_destroy(tir.object), EBUSY) << "the rule leads to it";
    EXPECT_EQ(mlx5dv_devx_obj_destroy(rq.object), EBUSY) << "the TIR does";
    EXPECT_EQ(mlx5dv_devx_obj_destroy(sent.object), EBUSY);
}

TEST_F(DevxRings, TagsAreInsertedAndStripped) {
    Cq sent = make_cq(), received = make_cq();
    Queue sq = make_sq(sent.number), rq = make_rq(received.number, true);
    const Made tir = make_tir(rq.number);
    const TirRule rule(context, tir.object);
    const std::size_t rooms = post_receives(rq, 3);
    const Bytes frame = ip_frame(30);
    post_send(sq, frame, {.tag = 0x8000u << 16 | 0x6064});
    const mlx5_cqe64* came = wait(received);
    ASSERT_NE(came, nullptr);
    EXPECT_EQ(be32toh(came->byte_cnt), frame.size() + 4);
    const std::uint8_t* got = memory.data() + rooms;
    const std::array<std::uint8_t, 4> tag{0x81, 0x00, 0x60, 0x64};
    EXPECT_TRUE(std::equal(frame.begin(), frame.begin() + 12, got));
    EXPECT_TRUE(std::equal(tag.begin(), tag.end(), got + 12));
    EXPECT_TRUE(std::equal(frame.begin() + 12, frame.end(), got + 16));
    EXPECT_EQ(came->l4_hdr_type_etc & 1, 0);

    EXPECT_EQ(modify(rq, move(0x909, rq.number, 1, 1).put(128, 64, 2)), 0) << "modify_bitmask: vsd, to 0";
    post_send(sq, frame, {.tag = 0x8000u << 16 | 0x6064});
    came = wait(received);
    ASSERT_NE(came, nullptr);
    EXPECT_EQ(be32toh(came->byte_cnt), frame.size());
    EXPECT_EQ(be16toh(came->vlan_info), 0x6064);
    EXPECT_EQ(came->l4_hdr_type_etc & 1, 1) << "a tag was stripped";
    EXPECT_TRUE(std::equal(frame.begin(), frame.end(), memory.data() + rooms + room_size));

    post_send(sq, frame, {.tag = 0xc000u << 16 | 0x0005});
    came = wait(received);
    ASSERT_NE(came, nullptr);
    got = memory.data() + rooms + 2 * room_size;
    EXPECT_EQ(got[12] << 8 | got[13], 0x88a8) << "a service tag, which is not stripped";
}

TEST_F(DevxRings, ALargeSegmentIsCutIntoFrames) {
    Cq sent = make_cq(), received = make_cq();
    Queue sq = make_sq(sent.number), rq = make_rq(received.number);
    const Made tir = make_tir(rq.number);
    const TirRule rule(context, tir.object);
    const std::size_t rooms = post_receives(rq, 3);
    const Bytes frame = ip_frame(250, 6);
    post_send(
        sq, frame,
        {.opcode = MLX5_OPCODE_TSO, .front = 54, .checksums = MLX5_ETH_WQE_L3_CSUM | MLX5_ETH_WQE_L4_CSUM, .mss = 100});
    for (unsigned i = 0; i < 3; ++i) {
        const mlx5_cqe64* const came = wait(received);
        ASSERT_NE(came, nullptr) << i;
        const unsigned payload = i < 2 ? 100 : 50;
        ASSERT_EQ(be32toh(came->byte_cnt), 54u + payload) << i;
        const std::span<std::uint8_t> got(memory.data() + rooms + i * room_size, 54 + payload);
        EXPECT_TRUE(checksums_right(got)) << i;
        EXPECT_EQ(got[38 + 3], i * 100) << "sequence number";
        EXPECT_EQ(got[47], i < 2 ? 0x10 : 0x18) << "PSH on the last only";
        EXPECT_TRUE(std::equal(got.begin() + 54, got.end(), frame.begin() + 54 + i * 100)) << i;
    }
    const mlx5_cqe64* const done = wait(sent);
    ASSERT_NE(done, nullptr);
    EXPECT_EQ(last_word(done) >> 24, unsigned{MLX5_OPCODE_TSO});
    EXPECT_EQ(wait(sent, std::chrono::milliseconds(20)), nullptr) << "one entry, one CQE";
}

TEST_F(DevxRings, ASegmentLargerThanMaxTsoIsALengthError) {
    Cq sent = make_cq();
    Queue sq = make_sq(sent.number);
    constexpr std::size_t max_tso = std::size_t{1} << 18, tcp_header = 20;
    const Send send{.opcode = MLX5_OPCODE_TSO, .front = 34 + tcp_header, .mss = 8000};
    post_send(sq, ip_frame(max_tso, 6), send);
    const mlx5_cqe64* const done = wait(sent);
    ASSERT_NE(done, nullptr);
    EXPECT_EQ(done->op_own >> 4, MLX5_CQE_REQ);
    post_send(sq, ip_frame(max_tso + 1, 6), send);
    const auto* const error = reinterpret_cast<mlx5_err_cqe*>(wait(sent));
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->op_own >> 4, MLX5_CQE_REQ_ERR);
    EXPECT_EQ(error->syndrome, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
    const std::uint64_t frames = (max_tso + send.mss - 1) / send.mss;
    EXPECT_EQ(counters(1).sent_packets, frames) << "nothing of the second";
}

TEST_F(DevxRings, RingsAndCountersWrap) {
    Cq sent = make_cq(), received = make_cq();
    Queue sq = make_sq(sent.number), rq = make_rq(received.number);
    const Made tir = make_tir(rq.number);
    const TirRule rule(context, tir.object);
    constexpr unsigned rounds = 100;  // of 2 blocks each, in a ring of 16, a CQ of 64
    for (unsigned i = 0; i < rounds; ++i) {
        const std::size_t rooms = post_receives(rq, 1);
        const Bytes frame = ip_frame(20 + i, 17, static_cast<std::uint16_t>(i));
        post_send(sq, frame, {.front = static_cast<std::uint16_t>(i % 2 ? 42 : 18), .signaled = i % 3 == 0});
        const mlx5_cqe64* const came = wait(received);
        ASSERT_NE(came, nullptr) << i;
        EXPECT_EQ(be16toh(came->wqe_counter), i);
        ASSERT_TRUE(std::equal(frame.begin(), frame.end(), memory.data() + rooms)) << i;
        taken -= room_size + (frame.size() + 63) / 64 * 64;
        if (i % 3 == 0) {
            ASSERT_NE(wait(sent), nullptr) << i;
        }
    }
    EXPECT_EQ(wait(sent, std::chrono::milliseconds(20)), nullptr) << "unsignaled entries have no CQE";
}

TEST_F(DevxRings, AFailedEntryFailsTheSendQueueUntilItIsReset) {
    Cq sent = make_cq();
    Queue sq = make_sq(sent.number);
    post_send(sq, ip_frame(50), {.lkey = 0x7777}, false);
    post_send(sq, ip_frame(50), {.signaled = false});
    const auto* error = reinterpret_cast<mlx5_err_cqe*>(wait(sent));
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->op_own >> 4, MLX5_CQE_REQ_ERR);
    EXPECT_EQ(error->syndrome, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    EXPECT_EQ(be32toh(error->s_wqe_opcode_qpn), 0x0au << 24 | sq.number);
    EXPECT_EQ(be16toh(error->wqe_counter), 0);
    error = reinterpret_cast<mlx5_err_cqe*>(wait(sent));
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->syndrome, MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
    EXPECT_NE(be16toh(error->wqe_counter), 0);
    EXPECT_EQ(state_of(sq, 0x907), 3u);
    EXPECT_EQ(modify(sq, move(0x905, sq.number, 3, 1)), EREMOTEIO) << "ERR leads to RST only";
    EXPECT_EQ(out.get(0, 8), bad_param);
    EXPECT_EQ(modify(sq, move(0x905, sq.number, 1, 0)), EREMOTEIO) << "it is not in RDY";
    EXPECT_EQ(out.get(0, 8), bad_res_state);

    ASSERT_EQ(modify(sq, move(0x905, sq.number, 3, 0)), 0);
    sq.posted = 0;
    ring(sq, 1);
    ASSERT_EQ(modify(sq, move(0x905, sq.number, 0, 1)), 0);
    post_send(sq, ip_frame(50), {});
    const mlx5_cqe64* const done = wait(sent);
    ASSERT_NE(done, nullptr);
    EXPECT_EQ(done->op_own >> 4, MLX5_CQE_REQ);
    EXPECT_EQ(be16toh(done->wqe_counter), 0) << "counted anew";
}

TEST_F(DevxRings, ATornEntryIsAnOperationError) {
    Cq sent = make_cq();
    Queue sq = make_sq(sent.number);
    post_send(sq, ip_frame(50), {.opcode = MLX5_OPCODE_RDMA_WRITE});
    const auto* const error = reinterpret_cast<mlx5_err_cqe*>(wait(sent));
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->syndrome, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
}

TEST_F(DevxRings, AQueueWithoutATisSendsNoFrames) {
    Cq sent = make_cq();
    Queue sq;
    static_cast<Made&>(sq) = create(sq_command(sq, sent.number, 0).put(256 + 256, 16, 0));
    ASSERT_NE(sq.object, nullptr) << out.get(0, 8);
    ASSERT_EQ(modify(sq, move(0x905, sq.number, 0, 1)), 0);
    post_send(sq, ip_frame(50), {.opcode = MLX5_OPCODE_NOP});
    const mlx5_cqe64* const done = wait(sent);
    ASSERT_NE(done, nullptr);
    EXPECT_EQ(done->op_own >> 4, MLX5_CQE_REQ);
    post_send(sq, ip_frame(50), {});
    const auto* const error = reinterpret_cast<mlx5_err_cqe*>(wait(sent));
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->syndrome, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
}

TEST_F(DevxRings, ABufferThatIsTooSmallFailsTheReceiveQueue) {
    Cq sent = make_cq(), received = make_cq();
    Queue sq = make_sq(sent.number), rq = make_rq(received.number);
    const Made tir = make_tir(rq.number);
    const TirRule rule(context, tir.object);
    post_receives(rq, 1, 40);
    post_receives(rq, 1);
    post_send(sq, ip_frame(50), {});
    for (const unsigned syndrome : {MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, MLX5_CQE_SYNDROME_WR_FLUSH_ERR}) {
        const auto* const error = reinterpret_cast<mlx5_err_cqe*>(wait(received));
        ASSERT_NE(error, nullptr);
        EXPECT_EQ(error->op_own >> 4, MLX5_CQE_RESP_ERR);
        EXPECT_EQ(error->syndrome, syndrome);
    }
    EXPECT_EQ(state_of(rq, 0x90b), 3u);
}

TEST_F(DevxRings, AnIndirectTirSpreadsFlowsOverItsTable) {
    Cq sent = make_cq();
    Queue sq = make_sq(sent.number);
    std::array<Cq, 2> received{make_cq(), make_cq()};
    std::array<Queue, 2> rqs{make_rq(received[0].number), make_rq(received[1].number)};
    Mailbox table(0x916, 272 + 8);
    table.put(256 + 176, 16, 4).put(256 + 208, 16, 2);
    for (unsigned i = 0; i < 2; ++i) table.put(256 + 1920 + 32 * i + 8, 24, rqs[i].number);
    const Made rqt = create(table);
    ASSERT_NE(rqt.object, nullptr);
    Mailbox command(0x900, 272);
    command.put(256 + 32, 4, 1).put(256 + 264, 24, rqt.number).put(256 + 288, 4, 2);
    // Microsoft's key and its first vector: 66.9.149.187:2794 to 161.142.100.80:1766, hash 0x51ccc178 with ports.
    constexpr std::array<std::uint8_t, 40> key{0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
                                               0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
                                               0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
                                               0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};
    for (unsigned i = 0; i < key.size(); ++i) command.put(256 + 320 + 8 * i, 8, key[i]);
    command.put(256 + 640, 2, 1).put(256 + 642, 30, 0xf);  // IPv4 and UDP: addresses and ports
    const Made tir = create(command);
    ASSERT_NE(tir.object, nullptr) << out.get(0, 8);
    const TirRule rule(context, tir.object);
    for (Queue& rq : rqs) post_receives(rq, 2);
    Bytes frame = ip_frame(10);
    const std::array<std::uint8_t, 8> addresses{66, 9, 149, 187, 161, 142, 100, 80};
    std::copy(addresses.begin(), addresses.end(), frame.begin() + 26);
    store16(frame, 34, 2794);
    store16(frame, 36, 1766);
    post_send(sq, frame, {});
    const mlx5_cqe64* came = wait(received[0]);
    ASSERT_NE(came, nullptr) << "an even hash";
    std::array<std::uint8_t, 5> hash;
    std::memcpy(hash.data(), reinterpret_cast<const std::uint8_t*>(came) + 12, hash.size());
    EXPECT_EQ(hash, (std::array<std::uint8_t, 5>{0x51, 0xcc, 0xc1, 0x78, 2 << 6 | 1 << 2})) << "hash, and of what";

    // Now the second queue only.
    Mailbox change(0x917, 272 + 8);
    change.put(72, 24, rqt.number).put(128, 64, 1).put(256 + 176, 16, 4).put(256 + 208, 16, 1);
    change.put(256 + 1920 + 8, 24, rqs[1].number);
    ASSERT_EQ(modify(rqt, change), 0) << out.get(0, 8);
    post_send(sq, frame, {});
    EXPECT_NE(wait(received[1]), nullptr);
    EXPECT_EQ(wait(received[0], std::chrono::milliseconds(20)), nullptr);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(rqt.object), EBUSY) << "the TIR uses it";
    EXPECT_EQ(mlx5dv_devx_obj_destroy(rqs[1].object), EBUSY) << "the table does";
    destroy(static_cast<const Made&>(rqs[0]));
}

TEST_F(DevxRings, AnArmedQueueTellsOnce) {
    auto* const channel =
        mlx5dv_devx_create_event_channel(context, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
    ASSERT_NE(channel, nullptr);
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
    Cq sent = make_cq();
    Queue sq = make_sq(sent.number);
    std::uint16_t types[] = {0, 4};
    ASSERT_EQ(mlx5dv_devx_subscribe_devx_event(channel, sent.object, sizeof types, types, 42), 0);
    std::uint16_t unknown[] = {0x9};
    EXPECT_EQ(mlx5dv_devx_subscribe_devx_event(channel, sent.object, sizeof unknown, unknown, 42), EINVAL)
        << "no object's";
    const auto came = [&](std::chrono::milliseconds patience) {
        return eventually(
            [&] {
                mlx5dv_devx_async_event_hdr header{};
                return mlx5dv_devx_get_event(channel, &header, sizeof header) == sizeof header && header.cookie == 42;
            },
            patience);
    };
    const auto arm = [&](unsigned sequence) {
        const std::uint32_t word = sequence << 28 | (sent.next & 0xffffff);
        std::atomic_ref(place<__be32>(sent.record)[1]).store(htobe32(word));
        auto* const doorbell =
            reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(uar->base_addr) + MLX5_CQ_DOORBELL);
        std::atomic_ref(*doorbell).store(htobe64(std::uint64_t{word} << 32 | sent.number));
    };
    using namespace std::chrono_literals;
    post_send(sq, ip_frame(10), {});
    ASSERT_NE(wait(sent), nullptr);
    EXPECT_FALSE(came(50ms)) << "it is not armed";
    arm(0);
    EXPECT_FALSE(came(50ms)) << "nothing new";
    post_send(sq, ip_frame(10), {});
    EXPECT_TRUE(came(10s));
    post_send(sq, ip_frame(10), {});
    EXPECT_FALSE(came(50ms)) << "one arming, one event";
    arm(1);
    EXPECT_TRUE(came(10s)) << "what came since the counter was written tells at once";

    const int own = eventfd(0, EFD_NONBLOCK);
    ASSERT_EQ(mlx5dv_devx_subscribe_devx_event_fd(channel, own, sent.object, 0), 0);
    while (sent.next < 3) ASSERT_NE(wait(sent), nullptr);
    arm(2);
    post_send(sq, ip_frame(10), {});
    std::uint64_t told = 0;
    EXPECT_TRUE(eventually([&] { return read(own, &told, sizeof told) == sizeof told; }));
    EXPECT_EQ(told, 1u);
    close(own);
    mlx5dv_devx_destroy_event_channel(channel);
}

TEST_F(DevxRings, RefusesWhatADeviceWithoutTheCapabilityRefuses) {
    Cq cq = make_cq();
    const Made tis = make_tis();
    const auto sq = [&](unsigned offset, unsigned width, std::uint64_t value) {
        Queue queue;
        return refusal(sq_command(queue, cq.number, tis.number).put(offset, width, value));
    };
    EXPECT_EQ(sq(256 + 72, 24, 0x9999), bad_res) << "no such CQ";
    EXPECT_EQ(sq(256 + 360, 24, 0x9999), bad_res) << "no such TIS";
    EXPECT_EQ(sq(256 + 256, 16, 2), bad_param) << "two TISes";
    EXPECT_EQ(sq(256 + 8, 4, 1), bad_param) << "made in RDY";
    EXPECT_EQ(sq(256 + 4, 1, 1), bad_param) << "multi-packet entries";
    EXPECT_EQ(sq(256 + 14, 1, 1), bad_param) << "hairpin";
    EXPECT_EQ(sq(256 + 384, 4, 0), bad_param) << "a linked list";
    EXPECT_EQ(sq(256 + 384 + 72, 24, 0xfffff), bad_res) << "no such PD";
    EXPECT_EQ(sq(256 + 384 + 268, 4, 4), bad_param) << "blocks that are not 64 bytes";
    EXPECT_EQ(sq(256 + 384 + 288, 1, 0), bad_param) << "no doorbell record";
    EXPECT_EQ(sq(256 + 384 + 352, 32, 0x9999), bad_param) << "no such UMEM";
    EXPECT_EQ(sq(256 + 384 + 384, 64, memory.size() - 64), bad_param) << "past the UMEM's end";
    const auto rq = [&](unsigned offset, unsigned width, std::uint64_t value) {
        Queue queue;
        return refusal(rq_command(queue, cq.number, true).put(offset, width, value));
    };
    EXPECT_EQ(rq(256 + 4, 4, 1), bad_param) << "shared receive memory";
    EXPECT_EQ(rq(256 + 72, 24, 0x9999), bad_res);
    EXPECT_EQ(rq(256 + 384, 4, 3), bad_param) << "striding";
    EXPECT_EQ(rq(256 + 384 + 5, 2, 1), bad_param) << "padding";
    EXPECT_EQ(refusal(Mailbox(0x912, 192).put(256 + 296, 24, 0x9999)), bad_res) << "no such transport domain";
    EXPECT_EQ(refusal(Mailbox(0x900, 272).put(256 + 148, 4, 1)), bad_param) << "LRO";
    EXPECT_EQ(refusal(Mailbox(0x900, 272).put(256 + 32, 4, 1).put(256 + 288, 4, 2)), bad_res) << "no such table";
    EXPECT_EQ(refusal(Mailbox(0x916, 272)), bad_param) << "an empty table";
    Cq unmade;
    EXPECT_NE(create(cq_command(unmade, 6).put(128 + 17, 1, 1).put(128 + 18, 2, 3)).object, nullptr) << "compression";
    EXPECT_EQ(refusal(cq_command(unmade, 6).put(128 + 17, 1, 1).put(128 + 18, 2, 2)), bad_param) << "no such format";
    EXPECT_EQ(refusal(cq_command(unmade, 6).put(128 + 17, 1, 1).put(128 + 25, 7, 1)), bad_param) << "another layout";
    EXPECT_EQ(refusal(cq_command(unmade, 6).put(128 + 17, 1, 1).put(128 + 92, 2, 1)), bad_param)
        << "tags in small CQEs";
    EXPECT_EQ(refusal(cq_command(unmade, 6).put(736, 1, 0)), bad_param) << "no ring";
    EXPECT_EQ(refusal(Mailbox(0x90c, 272)), bad_op) << "CREATE_RMP";
    EXPECT_EQ(create(Mailbox(0x301, 272)).object, nullptr) << "CREATE_EQ";
    EXPECT_EQ(errno, EINVAL) << "event queues are the kernel's";
    const Made made = make_tir(make_rq(cq.number).number);
    EXPECT_EQ(modify(made, Mailbox(0x901, 272).put(72, 24, made.number)), EREMOTEIO);
    EXPECT_EQ(out.get(0, 8), bad_op);
    EXPECT_EQ(modify(made, Mailbox(0x905, 272).put(72, 24, made.number)), EINVAL) << "not a send queue";
}

TEST_F(DevxRings, OnlyRingsThatTheDeviceWritesNeedAUmemThatItMayWrite) {
    Cq cq = make_cq();
    mlx5dv_devx_umem* const readable = mlx5dv_devx_umem_reg(context, memory.data(), memory.size(), 0);
    ASSERT_NE(readable, nullptr);
    mlx5dv_devx_umem* const writable = std::exchange(umem, readable);
    Queue rq, sq;
    Cq refused;
    const Mailbox receive = rq_command(rq, cq.number, true), send = sq_command(sq, cq.number, make_tis().number);
    const Mailbox complete = cq_command(refused, 6);
    umem = writable;
    EXPECT_NE(create(receive).object, nullptr);
    EXPECT_NE(create(send).object, nullptr);
    EXPECT_EQ(refusal(complete), bad_param);
    while (!objects.empty()) {
        EXPECT_EQ(mlx5dv_devx_obj_destroy(objects.back()), 0);
        objects.pop_back();
    }
    EXPECT_EQ(mlx5dv_devx_umem_dereg(readable), 0);
}

TEST_F(DevxRings, DomainsThatAreUsedStay) {
    const Made domain = create(Mailbox(0x816, 16));
    ASSERT_NE(domain.object, nullptr);
    const Made tis = create(Mailbox(0x912, 192).put(256 + 296, 24, domain.number));
    ASSERT_NE(tis.object, nullptr);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(domain.object), EBUSY);
    const Made own = create(Mailbox(0x800, 16));
    ASSERT_NE(own.object, nullptr);
    Cq cq = make_cq();
    Queue sq;
    const Made queue = create(sq_command(sq, cq.number, tis.number).put(256 + 384 + 72, 24, own.number));
    ASSERT_NE(queue.object, nullptr);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(own.object), EBUSY);
    EXPECT_EQ(mlx5dv_devx_obj_destroy(tis.object), EBUSY);
}

TEST_F(DevxRings, AUmemIsItsDevicesAndStaysWhileQueuesStandInIt) {
    mlx5dv_devx_umem* const first = umem;
    mlx5dv_devx_umem* const second =
        mlx5dv_devx_umem_reg(context, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(second, nullptr);
    Cq cq = make_cq();
    const std::uint32_t tisn = make_tis().number;
    umem = second;
    Queue rq, sq;
    Cq another;
    for (const Mailbox& command : {cq_command(another, 6), rq_command(rq, cq.number, true),
                                   sq_command(sq, cq.number, tisn), qp_command(cq.number)}) {
        const Made made = create(command);
        ASSERT_NE(made.object, nullptr) << "status " << out.get(0, 8);
        EXPECT_EQ(mlx5dv_devx_umem_dereg(second), EBUSY);
        destroy(made);
    }
    Cq parted;
    const Mailbox record_elsewhere = cq_command(parted, 6).put(704, 32, first->umem_id);
    const Made made = create(record_elsewhere);
    ASSERT_NE(made.object, nullptr);
    EXPECT_EQ(mlx5dv_devx_umem_dereg(second), EBUSY) << "its doorbell record";
    destroy(made);

    DeviceState other(device(), device().mempool());
    ibv_context* const stranger = open_context(&listed, other);
    EXPECT_EQ(mlx5dv_devx_obj_create(stranger, record_elsewhere.bytes.data(), record_elsewhere.bytes.size(),
                                     out.bytes.data(), 16),
              nullptr);
    EXPECT_EQ(out.get(0, 8), bad_param) << "of another device";
    EXPECT_EQ(ibv_close_device(stranger), 0);

    umem = first;
    EXPECT_EQ(mlx5dv_devx_umem_dereg(second), 0);
    EXPECT_EQ(refusal(record_elsewhere), bad_param) << "it is gone";
}

TEST_F(DevxRings, AQueuePairIsRefusedWhatTheDeviceLacks) {
    const Cq cq = make_cq();
    EXPECT_NE(create(qp_command(cq.number)).object, nullptr);
    EXPECT_NE(create(qp_command(cq.number).put(192 + 1381, 3, 3)).object, nullptr) << "it only sends";
    for (const unsigned kind : {1u, 2u, 4u, 7u}) {
        EXPECT_EQ(refusal(qp_command(cq.number).put(192 + 1381, 3, kind)), bad_param) << kind;
    }
    for (const auto& [bit, width] : std::initializer_list<std::pair<unsigned, unsigned>>{
             {24, 4}, {28, 2}, {32, 1}, {34, 1}, {92, 4}, {96, 8}, {1172, 6}, {1181, 1}, {1182, 1}, {1183, 1}}) {
        EXPECT_EQ(refusal(qp_command(cq.number).put(192 + bit, width, 1)), bad_param) << bit;
    }
    EXPECT_EQ(refusal(qp_command(cq.number).put(192 + 8, 8, 3)), bad_param) << "RD";
    EXPECT_EQ(refusal(qp_command(cq.number).put(192 + 1000, 24, 1)), bad_res) << "no such CQ";
    EXPECT_EQ(refusal(qp_command(cq.number).put(2144, 1, 0)), bad_param) << "no rings";
    EXPECT_EQ(refusal(qp_command(cq.number).put(192 + 1667, 1, 0)), bad_param) << "no doorbell record";
}

TEST_F(DevxRings, MemoryThatIsNotThereMakesNoUmem) {
    void* const page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mlx5dv_devx_umem* const readable = mlx5dv_devx_umem_reg(context, page, 4096, 0);
    ASSERT_NE(readable, nullptr);
    EXPECT_EQ(mlx5dv_devx_umem_dereg(readable), 0);
    EXPECT_EQ(mlx5dv_devx_umem_reg(context, page, 4096, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    munmap(page, 4096);
    EXPECT_EQ(mlx5dv_devx_umem_reg(context, page, 4096, 0), nullptr);
    EXPECT_EQ(errno, EFAULT);
}

}  // namespace
}  // namespace ovsdr::soft::test
