// LAG in DEVX commands, byte by byte: QUERY_LAG, capabilities, and the ports of TIS and queue pairs. The uplink's two
// ports count what leaves by each.
#include "devx_rings.hpp"

namespace ovsdr::soft::test {
namespace {

class DevxLag : public DevxRings {
protected:
    const char* configuration() const override {
        return R"("ports": [{"vport": 65535, "dpdk": ["net_ring", "net_ring"]}])";
    }

    int general(const Mailbox& in, std::size_t size) {
        out = Mailbox(size);
        return mlx5dv_devx_general_cmd(context, in.bytes.data(), in.bytes.size(), out.bytes.data(), out.bytes.size());
    }
    static Mailbox tis(unsigned port, bool strict = false) {
        return Mailbox(0x912, 192).put(256 + 4, 4, port).put(256, 1, strict);
    }
    Mailbox modify_tis(Made made, unsigned bitmask, unsigned port, bool strict = false) {
        return Mailbox(0x913, 192)
            .put(72, 24, made.number)
            .put(160, 32, bitmask)
            .put(256 + 4, 4, port)
            .put(256, 1, strict);
    }
    /// Port and strictness.
    std::pair<unsigned, unsigned> port_of(Made made) {
        const Mailbox in = Mailbox(0x915, 16).put(72, 24, made.number);
        Mailbox answer(176);
        EXPECT_EQ(mlx5dv_devx_obj_query(made.object, in.bytes.data(), in.bytes.size(), answer.bytes.data(),
                                        answer.bytes.size()), 0);
        return {static_cast<unsigned>(answer.get(128 + 4, 4)), static_cast<unsigned>(answer.get(128, 1))};
    }
    /// Frames that left by each port.
    std::pair<std::uint64_t, std::uint64_t> left() {
        VportCounters first{}, second{};
        EXPECT_EQ(device().lag_counters(1, first), 0);
        EXPECT_EQ(device().lag_counters(2, second), 0);
        return {first.received_packets, second.received_packets};
    }
    static Bytes frame() {
        Bytes bytes(64);
        const std::uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};
        std::copy(std::begin(head), std::end(head), bytes.begin());
        return bytes;
    }
};
using Port = std::pair<unsigned, unsigned>;
using Left = std::pair<std::uint64_t, std::uint64_t>;

TEST_F(DevxLag, QueryLagSaysWhichPortStandsForWhich) {
    ASSERT_EQ(general(Mailbox(0x842, 16), 16), 0);
    EXPECT_EQ(out.get(0, 8), 0u);
    EXPECT_EQ(out.get(64, 64), 0x8000000100000201u) << "fdb_selection_mode, lag_state 1; remap of 2, remap of 1";
    EXPECT_EQ(general(Mailbox(0x842, 15), 16), EINVAL);
    EXPECT_EQ(general(Mailbox(0x842, 16), 15), EINVAL);
}

TEST_F(DevxLag, TheDeviceClaimsWhatItHas) {
    Mailbox in(0x100, 16);
    ASSERT_EQ(general(in.put(48, 16, 1), 16 + 256), 0);
    EXPECT_EQ(out.get(128 + 636, 4), 2u) << "num_lag_ports";
    EXPECT_EQ(out.get(128 + 632, 1), 1u) << "lag_tx_port_affinity";
    EXPECT_EQ(out.get(128 + 635, 1), 1u) << "lag_master";
    EXPECT_EQ(out.get(128 + 630, 2), 1u) << "lag_dct";
    EXPECT_EQ(out.get(128 + 338, 1), 1u) << "rts2rts_lag_tx_port_affinity";
}

TEST_F(DevxLag, ATisIsMadeWithAPortAndChangesIt) {
    const Made made = create(tis(2, true));
    ASSERT_NE(made.object, nullptr);
    EXPECT_EQ(port_of(made), Port(2, 1));
    EXPECT_EQ(modify(made, modify_tis(made, 1 << 2, 1)), 0);
    EXPECT_EQ(port_of(made), Port(1, 1)) << "strictness was not named";
    EXPECT_EQ(modify(made, modify_tis(made, 1 << 1, 2)), 0);
    EXPECT_EQ(port_of(made), Port(1, 0)) << "the port was not named";
    EXPECT_EQ(modify(made, modify_tis(made, 1 << 2, 0)), 0);
    EXPECT_EQ(port_of(made), Port(0, 0));
    EXPECT_EQ(modify(made, modify_tis(made, 1 << 2 | 1 << 1, 2, true)), 0);
    EXPECT_EQ(port_of(made), Port(2, 1));
}

TEST_F(DevxLag, PortsThatAreNotThereAreBadParameters) {
    EXPECT_EQ(refusal(tis(3)), bad_param);
    EXPECT_EQ(refusal(tis(15)), bad_param);
    EXPECT_EQ(refusal(tis(0, true)), bad_param) << "strict about nothing";
    const Made made = create(tis(2));
    for (const Mailbox& in : {modify_tis(made, 1 << 2, 3), modify_tis(made, 0, 1), modify_tis(made, 1 << 2 | 1, 1),
                              modify_tis(made, 1 << 3, 1), modify_tis(made, 1 << 2 | 1 << 1, 0, true)}) {
        EXPECT_EQ(modify(made, in), EREMOTEIO);
        EXPECT_EQ(out.get(0, 8), bad_param);
    }
    EXPECT_EQ(port_of(made), Port(2, 0));
}

TEST_F(DevxLag, FramesOfAnSqLeaveByItsTissPort) {
    Cq cq = make_cq();
    const Made made = create(tis(2));
    Queue sq;
    static_cast<Made&>(sq) = create(sq_command(sq, cq.number, made.number));
    ASSERT_NE(sq.object, nullptr) << "status " << out.get(0, 8);
    device().steering().cotenant_send_rule(sq.number, uplink_vport);
    routed = sq.number;
    ASSERT_EQ(modify(sq, move(0x905, sq.number, 0, 1)), 0);
    std::uint64_t first = 0, second = 0;
    for (const unsigned port : {2u, 1u, 2u}) {
        ASSERT_EQ(modify(made, modify_tis(made, 1 << 2, port)), 0);
        post_send(sq, frame(), {});
        ASSERT_NE(wait(cq), nullptr);
        (port == 1 ? first : second) += 1;
        EXPECT_TRUE(eventually([&] { return left() == Left(first, second); }))
            << left().first << " and " << left().second;
    }
}

/// The second port has no interface.
struct DevxHalfLag : DevxLag {
    const char* configuration() const override {
        return R"("ports": [{"vport": 65535, "dpdk": ["net_ring", "net_af_packet,iface=nowhere0"]}])";
    }
};

TEST_F(DevxHalfLag, OnePortStandsInForTheOtherUnlessAQueueIsStrict) {
    ASSERT_EQ(general(Mailbox(0x842, 16), 16), 0);
    EXPECT_EQ(out.get(64, 64), 0x8000000100000101u);
    Cq cq = make_cq();
    const Made made = create(tis(2, true));
    Queue sq;
    static_cast<Made&>(sq) = create(sq_command(sq, cq.number, made.number));
    ASSERT_NE(sq.object, nullptr);
    device().steering().cotenant_send_rule(sq.number, uplink_vport);
    routed = sq.number;
    ASSERT_EQ(modify(sq, move(0x905, sq.number, 0, 1)), 0);
    const auto lost = [&] {
        VportCounters counters{};
        EXPECT_EQ(device().lag_counters(2, counters), 0);
        return counters.receive_drops;
    };
    post_send(sq, frame(), {});
    EXPECT_TRUE(eventually([&] { return lost() == 1; }));
    ASSERT_EQ(modify(made, modify_tis(made, 1 << 1, 0)), 0);
    post_send(sq, frame(), {});
    EXPECT_TRUE(eventually([&] { return left().first == 1; }));
    ASSERT_EQ(modify(made, modify_tis(made, 1 << 1, 0, true)), 0);
    post_send(sq, frame(), {});
    EXPECT_TRUE(eventually([&] { return lost() == 2; }));
}

/// CREATE_QP of type RC in `memory`, with that lag_tx_port_affinity.
struct DevxLagQp : DevxLag {
    Mailbox qp_command(std::uint32_t cqn, unsigned port) {
        const std::size_t rings = take(1024), record = take(8);
        Mailbox in(0x500, 272);
        in.put(192 + 4, 4, port).put(192 + 40, 24, pdn).put(192 + 73, 4, 3).put(192 + 77, 3, 0).put(192 + 81, 4, 3);
        in.put(192 + 1000, 24, cqn).put(192 + 1256, 24, cqn);
        in.put(192 + 1280, 64, record).put(192 + 1667, 1, 1).put(192 + 1824, 32, umem->umem_id);
        in.put(2048, 64, rings).put(2112, 32, umem->umem_id).put(2144, 1, 1);
        return in;
    }
    static Mailbox move_qp(std::uint16_t opcode, Made made, unsigned port = 0, unsigned optional = 0) {
        Mailbox in(opcode, 272);
        in.put(72, 24, made.number).put(128, 32, optional).put(192 + 4, 4, port);
        return in.put(192 + 192 + 296, 8, 1).put(192 + 64, 3, 3).put(192 + 192 + 88, 8, 64);  // IB port, MTU, hop limit
    }
    unsigned port_of_qp(Made made) {
        const Mailbox in = Mailbox(0x50b, 16).put(72, 24, made.number);
        Mailbox answer(272);
        EXPECT_EQ(mlx5dv_devx_obj_query(made.object, in.bytes.data(), in.bytes.size(), answer.bytes.data(),
                                        answer.bytes.size()), 0);
        return static_cast<unsigned>(answer.get(192 + 4, 4));
    }
};

TEST_F(DevxLagQp, AQueuePairHasThePortOfItsContextAndChangesItInRts) {
    const Cq cq = make_cq();
    EXPECT_EQ(refusal(qp_command(cq.number, 3)), bad_param);
    const Made made = create(qp_command(cq.number, 1));
    ASSERT_NE(made.object, nullptr) << "status " << out.get(0, 8);
    EXPECT_EQ(port_of_qp(made), 1u);
    EXPECT_EQ(modify(made, move_qp(0x502, made, 3)), EREMOTEIO);
    EXPECT_EQ(out.get(0, 8), bad_param);
    ASSERT_EQ(modify(made, move_qp(0x502, made, 2)), 0) << out.get(0, 8);
    EXPECT_EQ(port_of_qp(made), 2u);
    EXPECT_EQ(modify(made, move_qp(0x505, made, 1, 1 << 15)), EREMOTEIO) << "not in RTS";
    EXPECT_EQ(port_of_qp(made), 2u);
    Mailbox to_rtr = move_qp(0x503, made);
    to_rtr.put(192 + 192 + 128, 16, 0xfe80).put(192 + 192 + 128 + 88, 16, 0xfffe).put(192 + 192 + 128 + 120, 8, 9);
    ASSERT_EQ(modify(made, to_rtr), 0) << out.get(0, 8);
    ASSERT_EQ(modify(made, move_qp(0x504, made)), 0) << out.get(0, 8);
    EXPECT_EQ(port_of_qp(made), 2u) << "commands without the parameter leave the port alone";
    EXPECT_EQ(modify(made, move_qp(0x505, made, 1)), 0);
    EXPECT_EQ(port_of_qp(made), 2u);
    EXPECT_EQ(modify(made, move_qp(0x505, made, 3, 1 << 15)), EREMOTEIO);
    EXPECT_EQ(out.get(0, 8), bad_param);
    EXPECT_EQ(modify(made, move_qp(0x505, made, 1, 1 << 15)), 0) << out.get(0, 8);
    EXPECT_EQ(port_of_qp(made), 1u);
    EXPECT_EQ(modify(made, move_qp(0x505, made, 2, 1 << 15 | 1)), EREMOTEIO)
        << "another parameter, which is not implemented";
    EXPECT_EQ(modify(made, move_qp(0x50a, made)), 0);
    EXPECT_EQ(port_of_qp(made), 0u);
}

struct DevxQpOneUplink : DevxLagQp {
    const char* configuration() const override { return R"("ports": [{"vport": 65535, "dpdk": "net_ring"}])"; }
};

TEST_F(DevxQpOneUplink, QueuePairsHaveNoPortToChoose) {
    const Cq cq = make_cq();
    EXPECT_EQ(refusal(qp_command(cq.number, 1)), bad_param);
    const Made made = create(qp_command(cq.number, 0));
    ASSERT_NE(made.object, nullptr) << "status " << out.get(0, 8);
    EXPECT_EQ(modify(made, move_qp(0x502, made, 1)), EREMOTEIO);
    ASSERT_EQ(modify(made, move_qp(0x502, made)), 0);
    Mailbox to_rtr = move_qp(0x503, made);
    to_rtr.put(192 + 192 + 128, 16, 0xfe80).put(192 + 192 + 128 + 88, 16, 0xfffe).put(192 + 192 + 128 + 120, 8, 9);
    ASSERT_EQ(modify(made, to_rtr), 0);
    ASSERT_EQ(modify(made, move_qp(0x504, made)), 0);
    EXPECT_EQ(modify(made, move_qp(0x505, made, 0, 1 << 15)), EREMOTEIO);
}

/// The same commands on a device with one uplink.
TEST_F(DevxRings, WithoutLagThereIsNothingToQueryAndNothingToChoose) {
    const Mailbox query(0x842, 16);
    out = Mailbox(16);
    EXPECT_EQ(mlx5dv_devx_general_cmd(context, query.bytes.data(), 16, out.bytes.data(), 16), EREMOTEIO);
    EXPECT_EQ(out.get(0, 8), bad_op);
    Mailbox capabilities(0x100, 16);
    capabilities.put(48, 16, 1);
    out = Mailbox(272);
    ASSERT_EQ(mlx5dv_devx_general_cmd(context, capabilities.bytes.data(), 16, out.bytes.data(), 272), 0);
    EXPECT_EQ(out.get(128 + 630, 10), 0u);
    EXPECT_EQ(out.get(128 + 338, 1), 0u);
    EXPECT_EQ(refusal(Mailbox(0x912, 192).put(256 + 4, 4, 1)), bad_param);
    EXPECT_EQ(refusal(Mailbox(0x912, 192).put(256, 1, 1)), bad_param);
    const Made tis = make_tis();
    EXPECT_EQ(modify(tis, Mailbox(0x913, 192).put(72, 24, tis.number).put(160, 32, 1 << 2)), EREMOTEIO);
    EXPECT_EQ(out.get(0, 8), bad_param);
}

}  // namespace
}  // namespace ovsdr::soft::test
