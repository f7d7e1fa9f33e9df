// Rates of send queues made by DEVX commands. The clock is the machine's, so that only too fast can be told from right.
#include <chrono>

#include "devx_rings.hpp"

namespace ovsdr::soft::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned frames = 12, frame_size = 1000;
constexpr std::uint64_t modify_rate = 1;

struct PacedRings : DevxRings {
    mlx5dv_pp* rate(std::uint32_t kilobits) {
        const __be32 value = htobe32(kilobits);
        return mlx5dv_pp_alloc(context, sizeof value, &value, 0);
    }
    Mailbox paced_by(const Made& sq, std::uint32_t index) {
        return move(0x905, sq.number, 1, 1).put(128, 64, modify_rate).put(256 + 240, 16, index);
    }
    /// How long it takes until all frames are sent.
    std::chrono::duration<double> time_of(Queue& sq, Cq& sent) {
        const auto begin = Clock::now();
        for (unsigned i = 0; i < frames; ++i) post_send(sq, Bytes(frame_size, 0x5a), {.signaled = i + 1 == frames});
        EXPECT_NE(wait(sent, std::chrono::seconds(60)), nullptr);
        return Clock::now() - begin;
    }
};

TEST_F(PacedRings, ASendQueueKeepsToTheRateOfItsIndex) {
    mlx5dv_pp* const slow = rate(800);       // a frame in 10 ms
    mlx5dv_pp* const very_slow = rate(1);    // one in 8 s
    Cq sent = make_cq();
    Queue sq;
    const Made tis = make_tis();
    static_cast<Made&>(sq) = create(sq_command(sq, sent.number, tis.number).put(256 + 240, 16, slow->index));
    ASSERT_NE(sq.object, nullptr);
    ASSERT_EQ(modify(sq, move(0x905, sq.number, 0, 1)), 0);
    EXPECT_GE(time_of(sq, sent).count(), (frames - 1) * 0.010 - 0.001);
    ASSERT_EQ(modify(sq, paced_by(sq, very_slow->index)), 0);
    post_send(sq, Bytes(frame_size, 0x5a), {.signaled = false});
    ASSERT_EQ(modify(sq, paced_by(sq, 0)), 0);
    EXPECT_LE(time_of(sq, sent).count(), 5.0) << "nothing is owed";
    EXPECT_NE(modify(sq, paced_by(sq, 127)), 0);
    EXPECT_EQ(out.get(0, 8), bad_param) << "no such rate";
    EXPECT_NE(modify(sq, paced_by(sq, 0).put(128, 64, 2)), 0);
    EXPECT_EQ(out.get(0, 8), bad_param) << "no such bit";
    Queue other;
    EXPECT_EQ(refusal(sq_command(other, sent.number, tis.number).put(256 + 240, 16, 127)), bad_param);
    mlx5dv_pp_free(slow);
    mlx5dv_pp_free(very_slow);
}

TEST_F(PacedRings, CapabilitiesSayWhichRatesThereAre) {
    const Mailbox in = Mailbox(0x100, 16).put(48, 16, 0xc << 1 | 1);
    Mailbox answer(16 + 4096);
    ASSERT_EQ(mlx5dv_devx_general_cmd(context, in.bytes.data(), 16, answer.bytes.data(), answer.bytes.size()), 0);
    EXPECT_EQ(answer.get(128, 1), 1u) << "packet_pacing";
    EXPECT_EQ(answer.get(128 + 5, 2), 0u) << "neither bounds of bursts nor typical sizes";
    EXPECT_EQ(answer.get(128 + 64, 32), 100'000'000u);
    EXPECT_EQ(answer.get(128 + 96, 32), 1u);
    EXPECT_EQ(answer.get(128 + 144, 16), 128u);
}

}  // namespace
}  // namespace ovsdr::soft::test
