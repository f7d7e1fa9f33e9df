// The parser against a second reading of the PRM, on frames cut at every length. Each frame is a heap block of its own
// size, so that a sanitizer sees a byte read too many.
#include "datapath/steering/parser.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "frames.hpp"
#include "naive_fields.hpp"

namespace ovsdr::soft::test {
namespace {

/// The engine's words put back where the PRM has them.
[[nodiscard]] Parameters spread(const Key& key) {
    Parameters all;
    for (unsigned offset = 0; offset < parameters_size; offset += 4) {
        const int place = key_offset_of(offset);
        if (place >= 0) all.set(Field{offset * 8, 32}, load_be32(key.bytes() + place));
    }
    return all;
}

constexpr Field compared[] = {
    field::smac_47_16, field::smac_15_0, field::ethertype, field::dmac_47_16, field::dmac_15_0, field::first_prio,
    field::first_cfi, field::first_vid, field::ip_protocol, field::ip_dscp, field::ip_ecn, field::cvlan_tag,
    field::svlan_tag, field::frag, field::ip_version, field::tcp_flags, field::tcp_sport, field::tcp_dport,
    field::ipv4_ihl, field::ttl, field::udp_sport, field::udp_dport, field::src_127_96, field::src_95_64,
    field::src_63_32, field::src_31_0, field::dst_127_96, field::dst_95_64, field::dst_63_32, field::dst_31_0,
    field::second_prio, field::second_cfi, field::second_vid, field::second_cvlan, field::second_svlan,
    field::icmp_type, field::icmp_code, field::icmpv6_type, field::icmpv6_code, field::source_port, field::source_sqn,
    field::reg_c_0, field::reg_c_1, field::reg_a};

void compare(const Bytes& frame, std::size_t size) {
    const std::unique_ptr<std::uint8_t[]> exact(new std::uint8_t[size]);
    std::copy(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size), exact.get());
    Key key;
    key.words.fill(~0ULL);
    const bool parsed = parse(exact.get(), static_cast<std::uint32_t>(size), key);
    const auto expected = take_apart(Bytes(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size)));
    ASSERT_EQ(parsed, expected.has_value()) << size;
    (void)locate(exact.get(), static_cast<std::uint32_t>(size));
    if (!parsed) return;
    const Parameters got = spread(key);
    for (const Field& one : compared) {
        ASSERT_EQ(got.get(one), expected->get(one)) << "bit " << one.bit << " of a frame cut to " << size;
    }
}

class Parser : public ::testing::TestWithParam<FrameSpec> {};

TEST_P(Parser, ReadsWhatIsThereAndInventsNothing) {
    const Bytes frame = make_frame(GetParam());
    for (std::size_t size = 0; size <= frame.size(); ++size) ASSERT_NO_FATAL_FAILURE(compare(frame, size));
}

TEST_P(Parser, SurvivesEveryByteBeingWrong) {
    const Bytes frame = make_frame(GetParam());
    for (std::size_t at = 0; at < frame.size(); ++at) {
        for (const std::uint8_t wrong : {0x00, 0x01, 0x2c, 0x33, 0x46, 0x60, 0x7f, 0x81, 0xff}) {
            Bytes bad = frame;
            bad[at] = wrong;
            ASSERT_NO_FATAL_FAILURE(compare(bad, bad.size())) << "byte " << at;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Frames, Parser,
                         ::testing::Values(FrameSpec{}, FrameSpec{.protocol = 6, .tcp_flags = 0x1ab},
                                           FrameSpec{.protocol = 1, .tos = 0xb9}, FrameSpec{.place = 0x2000},
                                           FrameSpec{.place = 0x4001}, FrameSpec{.place = 0x4000},
                                           FrameSpec{.version = 0}, FrameSpec{.version = 6},
                                           FrameSpec{.tags = {0x8100e123}, .version = 6, .protocol = 6},
                                           FrameSpec{.tags = {0x88a85fff, 0x81000001}, .protocol = 17},
                                           FrameSpec{.tags = {0x88a80001, 0x81000002, 0x81000003}},
                                           FrameSpec{.version = 6, .protocol = 58, .hop_by_hop = true},
                                           FrameSpec{.version = 6, .place = 1, .fragment_header = true},
                                           FrameSpec{.version = 6, .place = 0, .fragment_header = true},
                                           FrameSpec{.version = 6, .place = 8, .fragment_header = true, .hop_by_hop = true},
                                           FrameSpec{.version = 6, .protocol = 51}));

}  // namespace
}  // namespace ovsdr::soft::test
