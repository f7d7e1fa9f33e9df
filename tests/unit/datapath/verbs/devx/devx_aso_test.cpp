// ACCESS_ASO entries on send queues made by DEVX commands; the objects themselves are tested in rdma/aso_test.cpp.
#include "devx_rings.hpp"

namespace ovsdr::soft::test {
namespace {

TEST_F(DevxRings, AQueueWithoutATisReadsAndWritesAsoObjects) {
    const Made meter = create(Mailbox(0xa00, 144).put(48, 16, 0x24).put(128 + 136, 24, pdn));
    const Made foreign = create(Mailbox(0xa00, 144).put(48, 16, 0x24).put(128 + 136, 24, pdn + 1));
    ASSERT_NE(meter.object, nullptr);
    ASSERT_NE(foreign.object, nullptr);
    Cq done = make_cq();
    Queue sq;
    static_cast<Made&>(sq) = create(sq_command(sq, done.number, 0).put(256 + 256, 16, 0));
    ASSERT_EQ(modify(sq, move(0x905, sq.number, 0, 1)), 0);
    const std::size_t room = take(64);
    constexpr std::uint8_t untouched = 0xee, first = 0x11, second = 0x22;
    for (const auto& [writes, finds] : {std::pair{first, std::uint8_t{0}}, std::pair{second, first}}) {
        memory[room + 5] = untouched;
        post_meter_access(sq, meter.number, memory.data() + room, writes);
        const mlx5_cqe64* const entry = wait(done);
        ASSERT_NE(entry, nullptr);
        EXPECT_EQ(entry->op_own >> 4, MLX5_CQE_REQ);
        EXPECT_EQ(be32toh(entry->sop_drop_qpn), 0x2du << 24 | sq.number);
        EXPECT_EQ(memory[room + 5], finds);
    }
    post_meter_access(sq, foreign.number, memory.data() + room, first);
    const auto* const error = reinterpret_cast<mlx5_err_cqe*>(wait(done));
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->syndrome, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR) << "another PD's object";
    EXPECT_EQ(memory[room + 5], first) << "not read";
}

TEST_F(DevxRings, AnAsoObjectIsNotReadIntoMemoryOfNoKey) {
    const Made meter = create(Mailbox(0xa00, 144).put(48, 16, 0x24).put(128 + 136, 24, pdn));
    Cq done = make_cq();
    Queue sq = make_sq(done.number);
    static std::array<std::uint8_t, 64> elsewhere{};
    post_meter_access(sq, meter.number, elsewhere.data(), 0x11);
    const auto* const error = reinterpret_cast<mlx5_err_cqe*>(wait(done));
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->syndrome, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
}

}  // namespace
}  // namespace ovsdr::soft::test
