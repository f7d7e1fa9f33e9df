// Segments: which rings there can be, and headers that are read back, or refused.
#include "offload/mirror/wire/segment.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "offload/mirror/wire/guard.hpp"

namespace ovsdr::mirror {
namespace {

const Signature dif{SignatureType::t10dif_crc, 520};
const SegmentHeader example{.session = 0x1122334455667788,
                            .sequence = 0x99AABBCCDDEEFF00,
                            .first_reference = 0x01020304,
                            .used = 65000,
                            .dropped = 0x1000000002,
                            .sealed = 0x1718191A1B1C1D1E,
                            .frames = 77,
                            .payload_crc = 0xCAFEBABE,
                            .application_tag = 0xD0D1,
                            .signature = dif};

std::array<std::byte, header_size> bytes_of(const SegmentHeader& header) {
    std::array<std::byte, header_size> bytes;
    encode(header, bytes);
    return bytes;
}

/// With its CRC made right again.
DecodedHeader decode_changed(std::array<std::byte, header_size> bytes) {
    const std::uint32_t crc = crc32c(0, std::span(bytes).first(60));
    for (unsigned i = 0; i < 4; ++i) bytes[60 + i] = static_cast<std::byte>(crc >> 8 * i);
    return decode_header(bytes);
}

TEST(MirrorGeometry, RingsThatAddUpOnly) {
    const Geometry good{.segment_size = 520 * 100, .slots = 16, .signature = dif};
    EXPECT_EQ(good.fault(), "");
    EXPECT_EQ(good.blocks(), 100u);
    const auto fault = [&](auto change) {
        Geometry changed = good;
        change(changed);
        return changed.fault();
    };
    EXPECT_NE(fault([](Geometry& g) { g.segment_size += 8; }), "") << "half a block";
    EXPECT_NE(fault([](Geometry& g) { g.segment_size = 520 * 7; }), "") << "too small";
    EXPECT_NE(fault([](Geometry& g) { g.segment_size = 520 * 8100; }), "") << "too large";
    EXPECT_NE(fault([](Geometry& g) { g.slots = 1; }), "");
    EXPECT_NE(fault([](Geometry& g) { g.slots = 1025; }), "");
    EXPECT_NE(fault([](Geometry& g) { g.signature.block_size = 1024; }), "");
    EXPECT_NE(fault([](Geometry& g) { g.signature.type = static_cast<SignatureType>(9); }), "");
    EXPECT_NE(fault([](Geometry& g) {
                  g.signature.block_size = 512;
                  g.segment_size = 2 << 20;
                  g.slots = 1024;
              }),
              "")
        << "2 GiB";
}

TEST(MirrorGeometry, BlocksAreCountedThroughTheSession) {
    const Geometry geometry{.segment_size = 520 * 100, .slots = 16, .signature = dif};
    EXPECT_EQ(geometry.first_reference(0), 0u);
    EXPECT_EQ(geometry.first_reference(7), 700u);
    EXPECT_EQ(geometry.first_reference(std::uint64_t{1} << 32), 0u) << "it goes round";
    EXPECT_EQ(geometry.slot_of(33), 1u);
}

TEST(MirrorSegment, HeadersAreReadBack) {
    const auto bytes = bytes_of(example);
    const DecodedHeader decoded = decode_header(bytes);
    EXPECT_EQ(decoded.fault, HeaderFault::none);
    EXPECT_EQ(decoded.header, example);
}

/// The wire format, so that nobody changes it unawares.
TEST(MirrorSegment, LayoutIsThatOfTheDocument) {
    const auto bytes = bytes_of(example);
    constexpr unsigned expected[] = {
        'D',  'R',  'M',  'S',  1,    0,    64,   0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  // session
        0x00, 0xFF, 0xEE, 0xDD, 0xCC, 0xBB, 0xAA, 0x99, 4,    3,    2,    1,    0xE8, 0xFD, 0,    0,     // used
        2,    0,    0,    0,    16,   0,    0,    0,    0x1E, 0x1D, 0x1C, 0x1B, 0x1A, 0x19, 0x18, 0x17,  // sealed
        77,   0,    0,    0,    0xBE, 0xBA, 0xFE, 0xCA, 0xD1, 0xD0, 0x08, 0x22};                         // signature
    static_assert(std::size(expected) == 60);
    for (std::size_t i = 0; i < 60; ++i) EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), expected[i]) << "byte " << i;
}

TEST(MirrorSegment, EachFlippedBitIsFound) {
    auto bytes = bytes_of(example);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        bytes[bit / 8] ^= std::byte{1} << bit % 8;
        EXPECT_NE(decode_header(bytes).fault, HeaderFault::none) << "bit " << bit;
        bytes[bit / 8] ^= std::byte{1} << bit % 8;
    }
}

TEST(MirrorSegment, WhatIsNoHeaderIsNamed) {
    auto bytes = bytes_of(example);
    EXPECT_EQ(decode_header(std::span(bytes).first(63)).fault, HeaderFault::size);
    EXPECT_EQ(decode_header({}).fault, HeaderFault::size);
    bytes[0] = {};
    EXPECT_EQ(decode_changed(bytes).fault, HeaderFault::magic);
    bytes = bytes_of(example);
    bytes[4] = std::byte{2};
    EXPECT_EQ(decode_changed(bytes).fault, HeaderFault::version);
    bytes = bytes_of(example);
    bytes[6] = std::byte{65};
    EXPECT_EQ(decode_changed(bytes).fault, HeaderFault::version);
    bytes = bytes_of(example);
    bytes[40] ^= std::byte{1};
    EXPECT_EQ(decode_header(bytes).fault, HeaderFault::crc);
    SegmentHeader wrong = example;
    wrong.used = 63;
    EXPECT_EQ(decode_header(bytes_of(wrong)).fault, HeaderFault::contents);
    wrong = example;
    wrong.signature.block_size = 521;
    EXPECT_EQ(decode_header(bytes_of(wrong)).fault, HeaderFault::contents);
}

}  // namespace
}  // namespace ovsdr::mirror
