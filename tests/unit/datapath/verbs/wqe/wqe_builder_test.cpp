// Entries of a send ring, byte by byte against layouts computed by hand; batches, room, wrapping.
#include "datapath/verbs/wqe/wqe_builder.hpp"

#include <endian.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ovsdr::soft::test {
namespace {

class WqeBuilderTest : public ::testing::Test {
protected:
    void open(std::uint32_t blocks, std::uint32_t entries, bool all_signaled = false) {
        ring.assign(blocks * 64, std::byte{0xee});
        builder.open({.qpn = 0x123456,
                      .blocks = blocks,
                      .max_entries = entries,
                      .max_sges = 4,
                      .max_inline = 100,
                      .all_signaled = all_signaled},
                     ring.data(), &doorbell);
    }
    void send(std::uint64_t wr_id, unsigned sges = 1, unsigned flags = 0) {
        builder.begin({.opcode = MLX5_OPCODE_SEND}, wr_id, flags);
        for (unsigned i = 0; i < sges; ++i) builder.append_data({0x1000 + i, 64, 0x77});
        builder.end();
    }
    [[nodiscard]] int publish() {
        any = false;
        return builder.publish(any);
    }
    [[nodiscard]] std::vector<unsigned> bytes(std::size_t offset, std::size_t size) const {
        std::vector<unsigned> all;
        for (std::size_t i = 0; i < size; ++i) {
            all.push_back(std::to_integer<unsigned>(ring[(offset + i) % ring.size()]));
        }
        return all;
    }
    [[nodiscard]] std::uint32_t rung() const { return be32toh(doorbell.load()); }
    void free_blocks(std::uint64_t count) { builder.ring().freed->store(count); }

    std::vector<std::byte> ring;
    std::atomic<__be32> doorbell{0};
    WqeBuilder builder;
    bool any = false;
};

TEST_F(WqeBuilderTest, AnEntryIsControlSegmentThenItsSegments) {
    open(16, 16);
    builder.start();
    builder.begin({.opcode = MLX5_OPCODE_SEND_IMM, .immediate = htobe32(0xa1b2c3d4)}, 7,
                  IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
    builder.append_data({0x0102030405060708, 0x11223344, 0x55667788});
    builder.end();
    ASSERT_EQ(publish(), 0);
    EXPECT_TRUE(any);
    EXPECT_EQ(bytes(0, 32), (std::vector<unsigned>{
                                0x00, 0x00, 0x00, 0x0b,  // opmod, index, opcode
                                0x12, 0x34, 0x56, 0x02,  // queue, two units of 16 bytes
                                0x00, 0x00, 0x00, 0x0a,  // completion asked for (8), solicited (2)
                                0xa1, 0xb2, 0xc3, 0xd4,  // immediate
                                0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,  // byte count, lkey
                                0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08}));
    EXPECT_EQ(rung(), 1u);
    EXPECT_EQ(builder.ring().wr_ids[0], 7u);
}

TEST_F(WqeBuilderTest, TheIndexCountsBlocksAndTheDoorbellSaysHowMany) {
    open(16, 16);
    builder.start();
    send(1, 4);  // 80 bytes: two blocks
    send(2);
    ASSERT_EQ(publish(), 0);
    EXPECT_EQ(bytes(128, 4), (std::vector<unsigned>{0, 0, 2, 0x0a}));
    EXPECT_EQ(rung(), 3u);
    EXPECT_EQ(builder.ring().wr_ids[2], 2u);
}

TEST_F(WqeBuilderTest, AnEntryGoesAroundTheEndOfTheRing) {
    open(4, 4);
    builder.start();
    send(1, 4);
    send(2);
    ASSERT_EQ(publish(), 0);
    free_blocks(3);
    builder.start();
    send(3, 4);
    ASSERT_EQ(publish(), 0);
    EXPECT_EQ(bytes(192, 4), (std::vector<unsigned>{0, 0, 3, 0x0a}));
    // The fourth piece stands in the ring's first 16 bytes.
    EXPECT_EQ(bytes(0, 16), (std::vector<unsigned>{0, 0, 0, 64, 0, 0, 0, 0x77, 0, 0, 0, 0, 0, 0, 0x10, 0x03}));
    EXPECT_EQ(rung(), 5u);
}

TEST_F(WqeBuilderTest, TheQueueIsFullOfEntriesBeforeItIsFullOfBlocks) {
    open(16, 3);
    builder.start();
    for (std::uint64_t i = 0; i < 3; ++i) send(i);
    ASSERT_EQ(publish(), 0);
    builder.start();
    send(3);
    EXPECT_EQ(publish(), ENOMEM);
    EXPECT_FALSE(any);
    EXPECT_EQ(rung(), 3u);
    free_blocks(1);
    builder.start();
    send(3);
    EXPECT_EQ(publish(), 0);
    builder.start();
    send(4);
    EXPECT_EQ(publish(), ENOMEM);
}

TEST_F(WqeBuilderTest, TheQueueIsFullOfBlocksToo) {
    open(4, 4);
    builder.start();
    send(1, 4);
    send(2, 4);
    send(3);
    EXPECT_EQ(builder.error(), ENOMEM);
    builder.abort();
    builder.start();
    send(1, 4);
    send(2);
    send(3, 4);
    EXPECT_EQ(publish(), ENOMEM);
}

TEST_F(WqeBuilderTest, AnAbortedBatchNeverWas) {
    open(8, 8);
    builder.start();
    send(1);
    builder.abort();
    EXPECT_EQ(rung(), 0u);
    builder.start();
    EXPECT_EQ(publish(), 0);
    EXPECT_FALSE(any);
    builder.start();
    send(2);
    ASSERT_EQ(publish(), 0);
    EXPECT_EQ(builder.ring().wr_ids[0], 2u);
    EXPECT_EQ(rung(), 1u);
}

TEST_F(WqeBuilderTest, TheFirstErrorStays) {
    open(8, 8);
    builder.start();
    builder.fail(EOPNOTSUPP);
    builder.fail(ENOMEM);
    send(1);
    EXPECT_EQ(publish(), EOPNOTSUPP);
    EXPECT_EQ(rung(), 0u);
}

TEST_F(WqeBuilderTest, AnEntryWaitsForItsSetters) {
    open(8, 8);
    builder.start();
    builder.begin({.opcode = MLX5_OPCODE_SEND}, 1, 0);
    builder.expect(2);
    EXPECT_TRUE(builder.expects_setter());
    builder.setter_done();
    EXPECT_EQ(publish(), EINVAL);
    builder.start();
    builder.begin({.opcode = MLX5_OPCODE_SEND}, 1, 0);
    builder.expect(2);
    builder.setter_done();
    builder.setter_done();
    EXPECT_FALSE(builder.expects_setter());
    EXPECT_EQ(publish(), EINVAL);
    builder.start();
    builder.begin({.opcode = MLX5_OPCODE_SEND}, 1, 0);
    builder.expect(1);
    builder.begin({.opcode = MLX5_OPCODE_SEND}, 2, 0);
    EXPECT_EQ(publish(), EINVAL);
}

TEST_F(WqeBuilderTest, FencesAreTheApplicationsOrTheEntrysBefore) {
    open(8, 8);
    builder.start();
    builder.begin({.opcode = MLX5_OPCODE_UMR, .completes_as = IBV_WC_LOCAL_INV, .fences_next = true}, 1, 0);
    builder.end();
    ASSERT_EQ(publish(), 0);
    EXPECT_EQ(bytes(11, 1), (std::vector<unsigned>{0x00}));
    builder.start();
    send(2);  // aborted: the fence stands for the next one
    builder.abort();
    builder.start();
    send(2);
    send(3);
    send(4, 1, IBV_SEND_FENCE);
    ASSERT_EQ(publish(), 0);
    EXPECT_EQ(bytes(64 + 11, 1), (std::vector<unsigned>{0x20}));
    EXPECT_EQ(bytes(128 + 11, 1), (std::vector<unsigned>{0x00}));
    EXPECT_EQ(bytes(192 + 11, 1), (std::vector<unsigned>{0x80}));
}

TEST_F(WqeBuilderTest, AQueueOfSignaledRequestsSignalsEach) {
    open(8, 8, true);
    builder.start();
    send(1);
    ASSERT_EQ(publish(), 0);
    EXPECT_EQ(bytes(11, 1), (std::vector<unsigned>{0x08}));
}

TEST_F(WqeBuilderTest, ARawEntryKeepsItsBytesAndGetsItsIndex) {
    open(8, 8);
    builder.start();
    send(1, 4);
    std::array<std::uint8_t, 32> raw{0xab, 0x99, 0x99, 0x0a, 0x65, 0x43, 0x21, 2, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7};
    builder.copy_raw(raw.data(), 9);
    ASSERT_EQ(publish(), 0);
    EXPECT_EQ(bytes(128, 20),
              (std::vector<unsigned>{0xab, 0, 2, 0x0a, 0x65, 0x43, 0x21, 2, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 0}));
    EXPECT_EQ(rung(), 3u);
    raw[7] = 0;  // no control segment
    builder.start();
    builder.copy_raw(raw.data(), 9);
    EXPECT_EQ(publish(), EINVAL);
}

TEST_F(WqeBuilderTest, AnEntryHasAtMost63UnitsOf16Bytes) {
    open(64, 8);
    builder.start();
    builder.begin({.opcode = MLX5_OPCODE_SEND}, 1, 0);
    EXPECT_EQ(builder.append_bytes(62 * 16).size(), 62u * 16);
    EXPECT_EQ(builder.error(), 0);
    builder.append_data({1, 1, 1});
    builder.end();
    EXPECT_EQ(publish(), ENOMEM);
}

TEST_F(WqeBuilderTest, PostingGoesOnPastTheDoorbellsSixteenBits) {
    open(2, 2);
    for (std::uint64_t i = 0; i < 0x10001; ++i) {
        builder.start();
        send(i);
        ASSERT_EQ(publish(), 0);
        free_blocks(i + 1);
    }
    EXPECT_EQ(rung(), 1u);
    EXPECT_EQ(bytes(0, 4), (std::vector<unsigned>{0, 0, 0, 0x0a}));
}

TEST_F(WqeBuilderTest, ResetForgetsWhatWasPosted) {
    open(8, 2);
    builder.start();
    send(1);
    send(2);
    ASSERT_EQ(publish(), 0);
    builder.reset();
    EXPECT_EQ(rung(), 0u);
    builder.start();
    send(3);
    send(4);
    EXPECT_EQ(publish(), 0);
    EXPECT_EQ(builder.ring().wr_ids[0], 3u);
}

TEST_F(WqeBuilderTest, CancelledEntriesBecomeNopsOfTheSameSize) {
    open(16, 16);
    builder.start();
    send(1, 4);  // blocks 0 and 1
    send(2, 4);  // 2 and 3
    builder.begin({.opcode = MLX5_OPCODE_RDMA_READ}, 2, IBV_SEND_SIGNALED);
    builder.end();
    send(3);
    ASSERT_EQ(publish(), 0);
    EXPECT_EQ(builder.cancel(0, 9), 0u);
    EXPECT_EQ(builder.cancel(4, 2), 1u) << "from a block on";
    EXPECT_EQ(builder.cancel(0, 2), 2u);
    EXPECT_EQ(bytes(0, 4), (std::vector<unsigned>{0, 0, 0, 0x0a}));
    EXPECT_EQ(bytes(128, 8), (std::vector<unsigned>{0, 0, 2, 0, 0x12, 0x34, 0x56, 5}));
    EXPECT_EQ(bytes(256, 4), (std::vector<unsigned>{0, 0, 4, 0}));
    EXPECT_EQ(bytes(256 + 11, 1), std::vector<unsigned>{8}) << "still asks for its completion";
    EXPECT_EQ(bytes(320, 4), (std::vector<unsigned>{0, 0, 5, 0x0a}));
}

}  // namespace
}  // namespace ovsdr::soft::test
