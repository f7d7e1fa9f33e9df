// Work queue entries by their bytes: what is read out of them, and which are none.
#include "datapath/rdma/roce/work_entry.hpp"

#include <endian.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace ovsdr::soft::roce {
namespace {

/// Words as they stand in memory, big-endian.
using Words = std::vector<std::uint32_t>;

constexpr std::uint8_t signaled = 8, solicited = 2;
constexpr std::uint32_t is_inline = 0x80000000;
const Words remote{0x11223344, 0x55667788, 0xabcd, 0}, piece{100, 7, 0x1000, 0x2000};
const Words atomic{1, 2, 3, 4}, xrc{0xff00abcd, 0, 0, 0};

Words joined(std::initializer_list<Words> parts) {
    Words all;
    for (const Words& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
}

struct WorkEntryTest : testing::Test {
    static constexpr std::uint32_t length = 32;  // blocks
    alignas(64) std::byte blocks[length * 64]{};
    const SendRing ring{.base = blocks, .length = length};
    WorkEntry entry{};

    /// An entry at `block`, of as many units of 16 bytes as it has, or of `units`.
    void put(std::uint64_t block, std::uint8_t opcode, const Words& segments, std::uint32_t flags = 0,
             unsigned units = 0) {
        if (units == 0) units = 1 + static_cast<unsigned>(segments.size() / 4);
        const Words whole = joined({{opcode, 0x123400 | units, flags, 0xfeedbeef}, segments});
        for (std::size_t i = 0; i < whole.size(); ++i) {
            const __be32 word = htobe32(whole[i]);
            std::memcpy(blocks + (block * 64 + i * 4) % sizeof blocks, &word, 4);
        }
    }
    bool read(std::uint8_t opcode, const Words& segments, ibv_qp_type type = IBV_QPT_RC, std::uint32_t flags = 0) {
        put(0, opcode, segments, flags);
        return read_entry(ring, 0, type, entry);
    }
};

TEST_F(WorkEntryTest, SegmentsAreReadInTheirOrder) {
    ASSERT_TRUE(read(MLX5_OPCODE_RDMA_WRITE_IMM, joined({remote, piece, {0, 8, 1, 2}}), IBV_QPT_RC, 2 << 5 | signaled));
    EXPECT_EQ(entry.opcode, MLX5_OPCODE_RDMA_WRITE_IMM);
    EXPECT_EQ(entry.size, 64U);
    EXPECT_EQ(entry.blocks, 1U);
    EXPECT_EQ(entry.fence, Fence::reads);
    EXPECT_TRUE(entry.signaled);
    EXPECT_FALSE(entry.solicited);
    EXPECT_EQ(entry.immediate, htobe32(0xfeedbeef));
    EXPECT_EQ(entry.remote_address, 0x1122334455667788U);
    EXPECT_EQ(entry.rkey, 0xabcdU);
    ASSERT_EQ(entry.length, 2U);
    EXPECT_EQ(entry.pieces[0].length, 100U);
    EXPECT_EQ(entry.pieces[0].lkey, 7U);
    EXPECT_EQ(entry.pieces[0].addr, 0x100000002000U);
    EXPECT_EQ(entry.pieces[1].length, 1U << 31) << "what a byte count of 0 means";
    EXPECT_EQ(entry.pieces[1].lkey, 8U);
    EXPECT_FALSE(entry.is_inline);
    EXPECT_EQ(entry.xrc_srq, 0U);

    ASSERT_TRUE(read(MLX5_OPCODE_ATOMIC_CS, joined({remote, atomic, piece}), IBV_QPT_RC, solicited));
    EXPECT_EQ(entry.swap_add, 0x0000000100000002U);
    EXPECT_EQ(entry.compare, 0x0000000300000004U);
    EXPECT_FALSE(entry.signaled);
    EXPECT_TRUE(entry.solicited);

    ASSERT_TRUE(read(MLX5_OPCODE_SEND, joined({xrc, piece}), IBV_QPT_XRC_SEND));
    EXPECT_EQ(entry.xrc_srq, 0xabcdU);
    EXPECT_EQ(entry.length, 1U);

    for (const ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_DRIVER}) {
        Words address(12);
        address[2] = 0x123456;
        ASSERT_TRUE(read(MLX5_OPCODE_SEND, joined({address, piece}), type));
        EXPECT_EQ(entry.address.dqp_dct, htobe32(0x123456));
        EXPECT_EQ(entry.length, 1U);
    }
}

TEST_F(WorkEntryTest, EachTypeHasItsOperations) {
    struct Operation {
        std::uint8_t opcode;
        bool uc, ud;
        Words before;  ///< the pieces
    };
    const Operation all[] = {{MLX5_OPCODE_SEND, true, true, {}},
                             {MLX5_OPCODE_SEND_IMM, true, true, {}},
                             {MLX5_OPCODE_SEND_INVAL, false, false, {}},
                             {MLX5_OPCODE_RDMA_WRITE, true, false, remote},
                             {MLX5_OPCODE_RDMA_WRITE_IMM, true, false, remote},
                             {MLX5_OPCODE_RDMA_READ, false, false, remote},
                             {MLX5_OPCODE_ATOMIC_CS, false, false, joined({remote, atomic})},
                             {MLX5_OPCODE_ATOMIC_FA, false, false, joined({remote, atomic})}};
    for (const Operation& one : all) {
        const Words segments = joined({one.before, piece});
        EXPECT_TRUE(read(one.opcode, segments)) << int{one.opcode};
        EXPECT_EQ(entry.length, 1U) << int{one.opcode};
        EXPECT_EQ(read(one.opcode, segments, IBV_QPT_UC), one.uc) << int{one.opcode};
        EXPECT_EQ(read(one.opcode, joined({Words(12), segments}), IBV_QPT_UD), one.ud) << int{one.opcode};
        // Whichever segment is missing, or not all there.
        for (std::size_t size = 0; size < one.before.size(); size += 4) {
            EXPECT_FALSE(read(one.opcode, Words(segments.begin(), segments.begin() + static_cast<long>(size)))) << size;
        }
    }
    EXPECT_FALSE(read(MLX5_OPCODE_SEND, {}, IBV_QPT_XRC_SEND)) << "no queue is named";
    EXPECT_FALSE(read(MLX5_OPCODE_SEND, Words(8), IBV_QPT_UD)) << "half an address";
    for (const int local : {int{MLX5_OPCODE_NOP}, int{MLX5_OPCODE_UMR}, int{MLX5_OPCODE_LOCAL_INVAL}, 0x2d}) {
        EXPECT_TRUE(read(static_cast<std::uint8_t>(local), {1, 2, 3, 4}, IBV_QPT_UD)) << local;
    }
    EXPECT_TRUE(read(0x2f, {1, 2, 3, 4}));
    EXPECT_FALSE(read(0x2f, {1, 2, 3, 4}, IBV_QPT_UC)) << "copies are reliable connections'";
    for (const std::uint8_t other : {MLX5_OPCODE_TSO, MLX5_OPCODE_SET_PSV}) EXPECT_FALSE(read(other, piece));
}

TEST_F(WorkEntryTest, InlineBytesStandInOneOrMoreSegments) {
    ASSERT_TRUE(read(MLX5_OPCODE_SEND, {is_inline | 5, 0x01020304, 0x05000000, 0, is_inline | 12, 6, 7, 8}));
    EXPECT_TRUE(entry.is_inline);
    EXPECT_EQ(entry.inline_size, 17U);
    EXPECT_EQ(entry.length, 0U);
    const std::uint8_t bytes[] = {1, 2, 3, 4, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8};
    EXPECT_EQ(std::memcmp(entry.inline_bytes.data(), bytes, sizeof bytes), 0);
    // 13 bytes and their count are two units; what follows is another segment.
    ASSERT_TRUE(
        read(MLX5_OPCODE_SEND, {is_inline | 13, 1, 2, 3, 0x04000000, 0, 0, 0, is_inline | 1, 0xaa000000, 0, 0}));
    EXPECT_EQ(entry.inline_size, 14U);
    EXPECT_EQ(entry.inline_bytes[13], std::byte{0xaa});
    ASSERT_TRUE(read(MLX5_OPCODE_SEND, {is_inline | 0, 0, 0, 0}));
    EXPECT_EQ(entry.inline_size, 0U);
    EXPECT_TRUE(entry.is_inline);

    EXPECT_FALSE(read(MLX5_OPCODE_SEND, {is_inline | 13, 0, 0, 0})) << "longer than the entry";
    EXPECT_TRUE(read(MLX5_OPCODE_SEND, {is_inline | 12, 0, 0, 0}));
    EXPECT_FALSE(read(MLX5_OPCODE_SEND, joined({piece, {is_inline | 4, 0, 0, 0}}))) << "behind a piece";
    EXPECT_FALSE(read(MLX5_OPCODE_SEND, joined({{is_inline | 4, 0, 0, 0}, piece}))) << "before a piece";
    for (const std::uint8_t opcode : {MLX5_OPCODE_RDMA_READ, MLX5_OPCODE_ATOMIC_FA}) {
        const Words before = opcode == MLX5_OPCODE_RDMA_READ ? remote : joined({remote, atomic});
        EXPECT_FALSE(read(opcode, joined({before, {is_inline | 8, 0, 0, 0}}))) << "what comes back needs memory";
    }
    EXPECT_TRUE(read(MLX5_OPCODE_RDMA_WRITE, joined({remote, {is_inline | 8, 0, 0, 0}})));
}

TEST_F(WorkEntryTest, ThirtyTwoPiecesAreTheMost) {
    Words pieces;
    for (std::uint32_t i = 0; i < 32; ++i) pieces.insert(pieces.end(), {i + 1, 0, 0, 0});
    ASSERT_TRUE(read(MLX5_OPCODE_SEND, pieces));
    ASSERT_EQ(entry.length, 32U);
    EXPECT_EQ(entry.sges().size(), 32U);
    EXPECT_EQ(entry.sges()[31].length, 32U);
    pieces.insert(pieces.end(), {1, 0, 0, 0});
    EXPECT_FALSE(read(MLX5_OPCODE_SEND, pieces));
}

TEST_F(WorkEntryTest, BlocksAreOfFourUnitsAndWrapAroundTheRing) {
    const std::uint32_t blocks_by_units[] = {1, 1, 1, 1, 1, 2, 2, 2, 2, 3};
    for (unsigned units = 0; units < 10; ++units) {
        put(0, MLX5_OPCODE_NOP, {}, 0, 0x40 | units);  // the queue's number stands above
        EXPECT_EQ(entry_blocks(ring, length), blocks_by_units[units]) << units;
        EXPECT_EQ(read_entry(ring, 0, IBV_QPT_RC, entry), units != 0);
        EXPECT_EQ(entry.blocks, blocks_by_units[units]);
        EXPECT_EQ(entry.size, units * 16);
    }
    // The longest there is, over the ring's end.
    Words pieces;
    for (std::uint32_t i = 0; i < 62; ++i) pieces.insert(pieces.end(), {i, i, i, i});
    put(length - 3, MLX5_OPCODE_NOP, pieces);
    ASSERT_TRUE(read_entry(ring, 5 * length - 3, IBV_QPT_RC, entry));
    EXPECT_EQ(entry.blocks, 16U);
    EXPECT_EQ(entry.size, 63U * 16);
    for (std::uint32_t i = 0; i < 62; ++i) {
        std::uint32_t word = 0;
        std::memcpy(&word, entry.bytes.data() + 16 + i * 16, 4);
        ASSERT_EQ(be32toh(word), i);
    }
}

TEST_F(WorkEntryTest, FencesPastTheLastAreNone) {
    for (std::uint32_t fence = 0; fence < 8; ++fence) {
        EXPECT_EQ(read(MLX5_OPCODE_SEND, piece, IBV_QPT_RC, fence << 5), fence < 5) << fence;
    }
}

TEST_F(WorkEntryTest, CompletionsAreOfTheirOpcode) {
    const std::pair<int, int> known[] = {{MLX5_OPCODE_SEND, IBV_WC_SEND},
                                         {MLX5_OPCODE_SEND_IMM, IBV_WC_SEND},
                                         {MLX5_OPCODE_SEND_INVAL, IBV_WC_SEND},
                                         {MLX5_OPCODE_RDMA_WRITE, IBV_WC_RDMA_WRITE},
                                         {MLX5_OPCODE_RDMA_WRITE_IMM, IBV_WC_RDMA_WRITE},
                                         {MLX5_OPCODE_RDMA_READ, IBV_WC_RDMA_READ},
                                         {MLX5_OPCODE_ATOMIC_CS, IBV_WC_COMP_SWAP},
                                         {MLX5_OPCODE_ATOMIC_FA, IBV_WC_FETCH_ADD},
                                         {MLX5_OPCODE_LOCAL_INVAL, IBV_WC_LOCAL_INV},
                                         {MLX5_OPCODE_UMR, IBV_WC_DRIVER1},
                                         {0x2f, IBV_WC_DRIVER3}};
    for (const auto& [opcode, completed] : known)
        EXPECT_EQ(completion_opcode(static_cast<std::uint8_t>(opcode)), completed) << opcode;
}

TEST(ReceiveEntry, EndsAtTheInvalidKeyOrWithItsStride) {
    std::byte bytes[2 * 64]{};
    const auto put = [&bytes](std::size_t at, std::uint32_t size, std::uint32_t key, std::uint64_t address) {
        const mlx5_wqe_data_seg segment{htobe32(size), htobe32(key), htobe64(address)};
        std::memcpy(bytes + at * 16, &segment, 16);
    };
    const ReceiveRing ring{.base = bytes, .length = 2, .stride = 64};
    std::array<ibv_sge, most_pieces> pieces{};
    for (std::size_t i = 0; i < 4; ++i) put(4 + i, static_cast<std::uint32_t>(i), 9, 0x1000 + i);
    ASSERT_EQ(read_receive_entry(ring, 7, pieces), 4U);
    EXPECT_EQ(pieces[0].length, 1U << 31);
    EXPECT_EQ(pieces[1].length, 1U);
    EXPECT_EQ(pieces[3].addr, 0x1003U);
    EXPECT_EQ(pieces[3].lkey, 9U);
    put(6, 5, MLX5_INVALID_LKEY, 0);
    EXPECT_EQ(read_receive_entry(ring, 1, pieces), 2U);
    put(0, 5, MLX5_INVALID_LKEY, 0);
    EXPECT_EQ(read_receive_entry(ring, 0, pieces), 0U);
}

TEST(ReceiveEntry, HasThirtyTwoPiecesAtMost) {
    std::vector<std::byte> bytes(64 * 16);
    const ReceiveRing ring{.base = bytes.data(), .length = 1, .stride = 64 * 16};
    std::array<ibv_sge, most_pieces> pieces{};
    EXPECT_EQ(read_receive_entry(ring, 0, pieces), 32U);
}

}  // namespace
}  // namespace ovsdr::soft::roce
