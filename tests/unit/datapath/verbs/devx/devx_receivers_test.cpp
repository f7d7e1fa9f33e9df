// TIRs with tunnel offloads, and counter sets of receive queues, on a whole NIC.
#include "devx_rings.hpp"

namespace ovsdr::soft::test {
namespace {

class DevxReceivers : public DevxRings {
protected:
    /// A frame to the TIR's rule: Ethernet, IPv4, and what follows.
    static Bytes outer(std::uint8_t protocol, const Bytes& behind) {
        const auto size = static_cast<std::uint16_t>(20 + behind.size());
        Bytes frame(34);
        std::copy(TirRule::address.begin(), TirRule::address.end(), frame.begin());
        frame[12] = 8;
        const std::array<std::uint8_t, 20> ip{0x45, 0, static_cast<std::uint8_t>(size >> 8),
                                              static_cast<std::uint8_t>(size), 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0,
                                              1, 10, 0, 0, 2};
        std::copy(ip.begin(), ip.end(), frame.begin() + 14);
        unsigned sum = 0;
        for (unsigned i = 14; i < 34; i += 2) sum += frame[i] << 8 | frame[i + 1];
        sum = (sum & 0xffff) + (sum >> 16);
        frame[24] = static_cast<std::uint8_t>(~sum >> 8);
        frame[25] = static_cast<std::uint8_t>(~sum);
        frame.insert(frame.end(), behind.begin(), behind.end());
        return frame;
    }
    /// UDP to VXLAN's port without a checksum, a VNI, an inner frame: IPv6 and TCP, whose checksum is wrong.
    static Bytes vxlan() {
        Bytes inner(14 + 40 + 20);
        inner[12] = 0x86;
        inner[13] = 0xdd;
        inner[14] = 0x60;
        inner[14 + 5] = 20;
        inner[14 + 6] = 6;
        inner[14 + 40 + 12] = 0x50;
        const auto size = static_cast<std::uint8_t>(16 + inner.size());
        Bytes all{0xc0, 0, 0x12, 0xb5, 0, size, 0, 0, 8, 0, 0, 0, 0, 0, 9, 0};
        all.insert(all.end(), inner.begin(), inner.end());
        return all;
    }
};

TEST_F(DevxReceivers, ATirWithTunnelOffloadsDescribesTheInnerPacket) {
    Cq sent = make_cq(), received = make_cq();
    Queue sq = make_sq(sent.number);
    Queue rq = make_rq(received.number);
    const Made tir = create(Mailbox(0x900, 272).put(256 + 232, 24, rq.number).put(256 + 258, 1, 1));
    ASSERT_NE(tir.object, nullptr) << out.get(0, 8);
    const TirRule rule(context, tir.object);
    post_receives(rq, 2);
    post_send(sq, outer(17, vxlan()), {});
    const auto* came = reinterpret_cast<const std::uint8_t*>(wait(received));
    ASSERT_NE(came, nullptr);
    EXPECT_EQ(came[0] & 0x3, 0x3) << "tunneled, in IPv4";
    EXPECT_EQ(came[28] & 0x7, 0x3) << "L2 and L3 good, the inner L4 not";
    EXPECT_EQ(came[29] & 0x7c, 1 << 2 | 1 << 4) << "IPv6 and TCP";
    post_send(sq, outer(59, Bytes(8)), {});
    came = reinterpret_cast<const std::uint8_t*>(wait(received));
    ASSERT_NE(came, nullptr);
    EXPECT_EQ(came[0] & 0x3, 0) << "carries nothing";
    EXPECT_EQ(came[29] & 0x0c, 2 << 2) << "IPv4";
}

TEST_F(DevxReceivers, AnInnerHashNeedsTunnelOffloadsAndStandsAlone) {
    Cq cq = make_cq();
    const Queue rq = make_rq(cq.number);
    Mailbox table(0x916, 272 + 8);
    table.put(256 + 176, 16, 1).put(256 + 208, 16, 1).put(256 + 1920 + 8, 24, rq.number);
    const Made rqt = create(table);
    ASSERT_NE(rqt.object, nullptr);
    const auto command = [&] {
        return Mailbox(0x900, 272).put(256 + 32, 4, 1).put(256 + 264, 24, rqt.number).put(256 + 288, 4, 2);
    };
    const auto inner = [&] { return command().put(256 + 672 + 2, 30, 0x3); };
    EXPECT_EQ(refusal(inner()), bad_param);
    EXPECT_EQ(refusal(inner().put(256 + 258, 1, 1).put(256 + 642, 30, 0x3)), bad_param) << "and an outer one";
    EXPECT_NE(create(inner().put(256 + 258, 1, 1)).object, nullptr);
    EXPECT_NE(create(command().put(256 + 642, 30, 0x13)).object, nullptr) << "addresses and SPI";
    EXPECT_EQ(refusal(command().put(256 + 642, 30, 0x14)), bad_param) << "SPI and ports";
    EXPECT_EQ(refusal(command().put(256 + 642, 30, 0x20)), bad_param) << "nothing that there is";
}

TEST_F(DevxReceivers, WhatFindsNoBufferIsCountedInTheQueuesSet) {
    Cq sent = make_cq(), received = make_cq();
    Queue sq = make_sq(sent.number);
    const Made set = create(Mailbox(0x771, 16));
    ASSERT_NE(set.object, nullptr) << out.get(0, 8);
    const auto id = static_cast<std::uint32_t>(out.get(88, 8));
    Queue rq;
    EXPECT_EQ(refusal(rq_command(rq, received.number, true).put(256 + 96, 8, id + 1)), bad_res) << "no such set";
    static_cast<Made&>(rq) = create(rq_command(rq, received.number, true).put(256 + 96, 8, id));
    ASSERT_NE(rq.object, nullptr) << out.get(0, 8);
    ASSERT_EQ(modify(rq, move(0x909, rq.number, 0, 1)), 0);
    const Made tir = make_tir(rq.number);
    const TirRule rule(context, tir.object);
    const auto count = [&](bool clear) {
        const Mailbox in = Mailbox(0x773, 32).put(192, 1, clear).put(248, 8, id);
        out = Mailbox();
        EXPECT_EQ(mlx5dv_devx_obj_query(set.object, in.bytes.data(), in.bytes.size(), out.bytes.data(), 256), 0);
        return out.get(384, 32);
    };
    for (unsigned i = 0; i < 3; ++i) post_send(sq, outer(59, Bytes(30)), {});
    EXPECT_TRUE(eventually([&] { return count(false) == 3; }, std::chrono::seconds(10)));
    EXPECT_EQ(count(true), 3u);
    EXPECT_EQ(count(false), 0u) << "cleared";
    EXPECT_EQ(mlx5dv_devx_obj_destroy(set.object), EBUSY) << "the queue uses it";
}

}  // namespace
}  // namespace ovsdr::soft::test
