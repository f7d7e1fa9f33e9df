// CQEs in memory, byte by byte, and DEVX queues as far as no engine is needed.
#include "datapath/rdma/completion/cqe_ring.hpp"

#include <endian.h>
#include <gtest/gtest.h>

#include <vector>

namespace ovsdr::soft::test {
namespace {

class CqeRingTest : public ::testing::Test {
protected:
    [[nodiscard]] CqeRing ring(unsigned entry_size = 64, bool ignore_overrun = false) {
        memory.assign(std::size_t{4} * entry_size, std::byte{0xee});
        return CqeRing({.base = memory.data(),
                        .log_length = 2,
                        .entry_size = entry_size,
                        .doorbell = doorbell,
                        .ignore_overrun = ignore_overrun});
    }
    [[nodiscard]] unsigned at(std::size_t offset) const { return std::to_integer<unsigned>(memory[offset]); }
    [[nodiscard]] std::vector<unsigned> bytes(std::size_t offset, std::size_t size) const {
        std::vector<unsigned> all;
        for (std::size_t i = 0; i < size; ++i) all.push_back(at(offset + i));
        return all;
    }

    std::vector<std::byte> memory;
    std::atomic<__be32> doorbell[2]{};
    Completion done{.status = IBV_WC_SUCCESS,
                    .opcode = IBV_WC_SEND,
                    .byte_len = 0x11223344,
                    .qp_num = 0xabcdef,
                    .timestamp = 0x0102030405060708,
                    .wqe_counter = 0x5566};
};

TEST_F(CqeRingTest, EntriesBeginInvalid) {
    [[maybe_unused]] const CqeRing made = ring();
    for (const std::size_t last : {63, 127, 191, 255}) EXPECT_EQ(at(last) >> 4, 15u);
}

TEST_F(CqeRingTest, ARequestersEntryNamesOperationAndCounter) {
    CqeRing made = ring();
    ASSERT_TRUE(made.write(done));
    EXPECT_EQ(bytes(44, 20), (std::vector<unsigned>{0x11, 0x22, 0x33, 0x44, 1,    2,    3,    4,    5, 6,
                                                    7,    8,    0x0a, 0xab, 0xcd, 0xef, 0x55, 0x66, 0, 0x00}));
    EXPECT_EQ(at(127) >> 4, 15u);
}

TEST_F(CqeRingTest, AResponsesEntrySaysWhatCame) {
    CqeRing made = ring(128);
    done.opcode = IBV_WC_RECV;
    done.wc_flags = IBV_WC_WITH_IMM | IBV_WC_GRH;
    done.imm_data = htobe32(0xa1a2a3a4);
    done.src_qp = 0x123456;
    done.sl = 2;
    done.solicited = true;
    ASSERT_TRUE(made.write(done));
    EXPECT_EQ(bytes(64 + 24, 4), (std::vector<unsigned>{0x12, 0x12, 0x34, 0x56}));
    EXPECT_EQ(bytes(64 + 36, 4), (std::vector<unsigned>{0xa1, 0xa2, 0xa3, 0xa4}));
    EXPECT_EQ(bytes(64 + 56, 8), (std::vector<unsigned>{0, 0xab, 0xcd, 0xef, 0x55, 0x66, 0, 0x32}));
    EXPECT_EQ(at(0), 0xeeu);
    done.wc_flags = IBV_WC_WITH_INV;
    done.imm_data = 0xb1b2b3b4;
    ASSERT_TRUE(made.write(done));
    EXPECT_EQ(bytes(192 + 36, 4), (std::vector<unsigned>{0xb1, 0xb2, 0xb3, 0xb4}));
    EXPECT_EQ(at(255), 0x42u);
}

TEST_F(CqeRingTest, AnErrorHasItsSyndrome) {
    CqeRing made = ring();
    done.status = IBV_WC_RNR_RETRY_EXC_ERR;
    done.vendor_err = 0x77;
    ASSERT_TRUE(made.write(done));
    EXPECT_EQ(bytes(54, 2), (std::vector<unsigned>{0x77, 0x16}));
    EXPECT_EQ(at(63), 0xd0u);
    done.opcode = IBV_WC_RECV;
    done.status = IBV_WC_WR_FLUSH_ERR;
    ASSERT_TRUE(made.write(done));
    EXPECT_EQ(at(64 + 55), 5u);
    EXPECT_EQ(at(127), 0xe0u);
}

TEST_F(CqeRingTest, TheOwnerBitTurnsWithEachRound) {
    CqeRing made = ring();
    for (unsigned i = 0; i < 12; ++i) {
        ASSERT_TRUE(made.write(done));
        EXPECT_EQ(at((i % 4) * 64 + 63), i / 4 % 2);
        doorbell[0] = htobe32(i + 1);
    }
}

TEST_F(CqeRingTest, AConsumerMayCountInSixteenBits) {
    CqeRing made = ring();
    for (std::uint32_t i = 0; i < 0x10008; ++i) {
        ASSERT_TRUE(made.write(done)) << i;
        doorbell[0] = htobe32((i + 1) & 0xffff);
    }
    for (unsigned i = 0; i < 4; ++i) ASSERT_TRUE(made.write(done));
    EXPECT_FALSE(made.write(done)) << "full all the same";
}

TEST_F(CqeRingTest, AFullRingTakesNothingUntilTheConsumerMoves) {
    CqeRing made = ring();
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(made.write(done));
    EXPECT_FALSE(made.write(done));
    doorbell[0] = htobe32(1);
    EXPECT_TRUE(made.write(done));
    EXPECT_FALSE(made.write(done));
    CqeRing careless = ring(64, true);
    for (int i = 0; i < 9; ++i) EXPECT_TRUE(careless.write(done));
}

}  // namespace
}  // namespace ovsdr::soft::test
