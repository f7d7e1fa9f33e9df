// The ring that a mirror fills: what a segment holds, when it is sealed, what is dropped, what is told of it.
#include "offload/mirror/segment_ring.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "offload/mirror/wire/guard.hpp"

namespace ovsdr::mirror {
namespace {

constexpr Geometry geometry{.segment_size = 8192, .slots = 4, .signature = {SignatureType::t10dif_crc, 512}};

struct MirrorRing : ::testing::Test {
    bool append(std::size_t size, std::uint64_t time = 1000, unsigned first = 1) {
        frame.assign(size, std::byte(first));
        return ring.append({.interface = 0,
                            .time = time,
                            .bytes = frame,
                            .original_size = static_cast<std::uint32_t>(size),
                            .direction = pcapng::Direction::inbound});
    }
    SegmentHeader header(std::uint64_t sequence) const {
        const DecodedHeader decoded = decode_header(ring.blocks_of(sequence));
        EXPECT_EQ(decoded.fault, HeaderFault::none) << text_of(decoded.fault);
        return decoded.header;
    }

    std::vector<std::byte> frame;
    std::vector<std::byte> memory = std::vector<std::byte>(4 * 8192, std::byte{0xEE});
    SegmentRing ring{geometry, 77, 0xABCD, memory, 9018};
};

TEST_F(MirrorRing, ASegmentIsAHeaderAndBlocksOfAPcapngFile) {
    ASSERT_TRUE(append(100, 1000, 7));
    ASSERT_TRUE(append(33, 2000, 8));
    EXPECT_EQ(ring.sealed(), 0u) << "not before it is full, or old";
    ASSERT_TRUE(ring.seal(5000));
    ASSERT_EQ(ring.sealed(), 1u);
    const auto bytes = ring.blocks_of(0);
    EXPECT_EQ(bytes.size() % 512, 0u);
    const SegmentHeader told = header(0);
    EXPECT_EQ(told.session, 77u);
    EXPECT_EQ(told.sequence, 0u);
    EXPECT_EQ(told.frames, 2u);
    EXPECT_EQ(told.dropped, 0u);
    EXPECT_EQ(told.sealed, 5000u);
    EXPECT_EQ(told.application_tag, 0xABCD);
    EXPECT_EQ(told.signature, geometry.signature);
    EXPECT_EQ(told.payload_crc, crc32c(0, bytes.first(told.used).subspan(header_size)));
    std::uint32_t type, size;
    std::memcpy(&type, bytes.data() + header_size, 4);
    std::memcpy(&size, bytes.data() + header_size + 4, 4);
    EXPECT_EQ(type, 6u) << "an enhanced packet";
    std::uint32_t second;
    std::memcpy(&second, bytes.data() + header_size + size + 4, 4);
    EXPECT_EQ(header_size + size + second, told.used);
    EXPECT_EQ(bytes[header_size + 28], std::byte{7});
    for (std::size_t i = told.used; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], std::byte{}) << "zeros up to the block";
}

TEST_F(MirrorRing, AFullSegmentIsSealedByTheFrameThatDoesNotFit) {
    for (int i = 0; i < 8; ++i) ASSERT_TRUE(append(1000, 1000 + i));
    EXPECT_EQ(ring.sealed(), 1u);
    ASSERT_TRUE(ring.seal(9));
    EXPECT_EQ(header(0).frames + header(1).frames, 8u);
    EXPECT_GT(header(0).frames, 6u);
    EXPECT_EQ(header(1).first_reference, 16u) << "blocks of the session, used or not";
    EXPECT_EQ(ring.appended(), 8u);
}

TEST_F(MirrorRing, AgeSealsAndAnEmptySegmentIsNone) {
    EXPECT_FALSE(ring.seal_if_older(1, 2)) << "nothing in it";
    ASSERT_TRUE(append(100, 1000));
    ASSERT_TRUE(append(100, 3000));
    EXPECT_FALSE(ring.seal_if_older(1000, 4000));
    EXPECT_TRUE(ring.seal_if_older(1001, 4000)) << "the first frame counts";
    EXPECT_FALSE(ring.seal_if_older(9999, 9999));
    EXPECT_FALSE(ring.seal(9999));
    EXPECT_EQ(ring.sealed(), 1u);
}

TEST_F(MirrorRing, AClockThatIsSetBackHoldsNoFrameUp) {
    ASSERT_TRUE(append(100, 1000000));
    EXPECT_FALSE(ring.seal_if_older(999000, 1000001));
    EXPECT_TRUE(ring.seal_if_older(1000, 2000));
    EXPECT_EQ(ring.sealed(), 1u);
}

TEST_F(MirrorRing, WhereThereIsNoRoomFramesAreDroppedAndTold) {
    int kept = 0;
    while (append(1000)) ++kept;
    EXPECT_EQ(ring.sealed(), 4u) << "every slot is used before one is lost";
    EXPECT_FALSE(append(10));
    EXPECT_FALSE(append(10));
    EXPECT_EQ(ring.dropped(), 3u);
    EXPECT_EQ(ring.appended(), static_cast<std::uint64_t>(kept));
    EXPECT_FALSE(ring.seal(5)) << "no segment to tell it with";
    ring.release(1);
    ASSERT_TRUE(append(10));
    ASSERT_TRUE(ring.seal(6));
    EXPECT_EQ(header(4).dropped, 3u);
    EXPECT_EQ(header(4).frames, 1u) << "nothing of what was in the slot before";
    EXPECT_EQ(header(4).sequence, 4u);
    ring.release(3);
    ASSERT_TRUE(append(10));
    ASSERT_TRUE(ring.seal(7));
    EXPECT_EQ(header(5).dropped, 0u) << "told once";
}

TEST_F(MirrorRing, DropsAreToldWithoutAFrameToo) {
    while (append(1000)) {}
    ring.release(4);
    ASSERT_TRUE(ring.seal_if_older(0, 8));
    EXPECT_EQ(header(4).dropped, 1u);
    EXPECT_EQ(header(4).frames, 0u);
    EXPECT_EQ(header(4).used, header_size);
    EXPECT_EQ(ring.blocks_of(4).size(), 512u);
    EXPECT_FALSE(ring.is_damaged(4));
}

TEST_F(MirrorRing, LongFramesAreCutAndSayHowLongTheyWere) {
    ASSERT_TRUE(append(60000));
    ASSERT_TRUE(ring.seal(1));
    const auto bytes = ring.blocks_of(0);
    EXPECT_LE(header(0).used, 8192u);
    EXPECT_GT(header(0).used, 8192u - 16) << "as much as a segment takes";
    std::uint32_t kept, original;
    std::memcpy(&kept, bytes.data() + header_size + 20, 4);
    std::memcpy(&original, bytes.data() + header_size + 24, 4);
    EXPECT_EQ(kept, ring.snap_length());
    EXPECT_EQ(original, 60000u);
}

TEST_F(MirrorRing, EachChangedByteIsDamage) {
    ASSERT_TRUE(append(100));
    ASSERT_TRUE(ring.seal(1));
    ASSERT_FALSE(ring.is_damaged(0));
    for (std::size_t at = 0; at < header(0).used; ++at) {
        memory[at] ^= std::byte{0x10};
        EXPECT_TRUE(ring.is_damaged(0)) << "byte " << at;
        memory[at] ^= std::byte{0x10};
    }
    EXPECT_FALSE(ring.is_damaged(0));
}

TEST_F(MirrorRing, ADamagedSegmentIsEmptiedAndTellsItsLoss) {
    while (append(1000)) {}
    ring.release(1);
    ASSERT_TRUE(append(100));
    ASSERT_TRUE(append(100));
    ASSERT_TRUE(ring.seal(1));
    memory[20] ^= std::byte{1};
    ASSERT_TRUE(ring.is_damaged(4));
    EXPECT_EQ(ring.empty(4, 99), 2u);
    EXPECT_FALSE(ring.is_damaged(4));
    EXPECT_EQ(header(4).frames, 0u);
    EXPECT_EQ(header(4).dropped, 3u) << "two in it, one before it";
    EXPECT_EQ(header(4).sealed, 99u);
    EXPECT_EQ(ring.blocks_of(4).size(), 512u);
}

}  // namespace
}  // namespace ovsdr::mirror
