// The parser against a second reading of the PRM, on frames cut at every length. Each frame is a heap block of its own
// size, so that a sanitizer sees a byte read too many.
#include "datapath/steering/parser.hpp"
#include "datapath/steering/tunnel.hpp"

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

constexpr GeneveOption sought{.option_class = 0x0102, .type = 0x80, .length = 1};
const NaiveParser naive_sought{.gtpu = true, .option = NaiveParser::Option{.kind = 0x010280, .length = 4}};

void compare_deep(std::span<const std::uint8_t> frame, const ParserSetup& setup, const NaiveParser& naive, Key& key) {
    parse_deep(frame.data(), static_cast<std::uint32_t>(frame.size()), setup, key);
    const Parameters whole = spread(key);
    const auto expected = take_apart(Bytes(frame.begin(), frame.end()), naive);
    for (unsigned bit = 0; bit < parameters_size * 8; bit += 32) {
        ASSERT_EQ(whole.get({bit, 32}), expected->get({bit, 32})) << "bit " << bit << " of a frame cut to " << frame.size();
    }
}

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
    const std::span<const std::uint8_t> whole(exact.get(), size);
    ASSERT_NO_FATAL_FAILURE(compare_deep(whole, {}, {}, key));
    ASSERT_NO_FATAL_FAILURE(compare_deep(whole, {.gtpu = true, .option = sought}, naive_sought, key));
    const std::optional<Carried> carried = carried_by(Bytes(whole.begin(), whole.end()), naive_sought);
    const Tunnel tunnel = find_tunnel(exact.get(), static_cast<std::uint32_t>(size));
    ASSERT_EQ(tunnel.inner != 0, carried.has_value()) << size;
    if (!carried) return;
    ASSERT_EQ(Bytes(exact.get() + tunnel.inner, exact.get() + tunnel.end), carried->packet) << size;
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

struct TunnelCase {
    FrameSpec outer;
    Bytes header;
    FrameSpec inner;
    unsigned cut = 0;  ///< bytes of the inner frame left out in front: 14 = an IP packet
};

[[nodiscard]] Bytes frame_of_case(const TunnelCase& one) {
    Bytes content = one.header;
    const Bytes inner = make_frame(one.inner);
    content.insert(content.end(), inner.begin() + one.cut, inner.end());
    return make_frame(one.outer, content);
}

class TunnelParser : public ::testing::TestWithParam<TunnelCase> {};

TEST_P(TunnelParser, ReadsWhatIsThereAndInventsNothing) {
    const Bytes frame = frame_of_case(GetParam());
    for (std::size_t size = 0; size <= frame.size(); ++size) ASSERT_NO_FATAL_FAILURE(compare(frame, size));
}

TEST_P(TunnelParser, SurvivesEveryByteBeingWrong) {
    const Bytes frame = frame_of_case(GetParam());
    for (std::size_t at = 0; at < frame.size(); ++at) {
        for (const std::uint8_t wrong : {0x00, 0x01, 0x08, 0x2f, 0x46, 0x60, 0x81, 0xff}) {
            Bytes bad = frame;
            bad[at] = wrong;
            ASSERT_NO_FATAL_FAILURE(compare(bad, bad.size())) << "byte " << at;
        }
    }
}

const FrameSpec to_vxlan{.dport = 4789}, to_gpe{.version = 6, .dport = 4790}, to_geneve{.dport = 6081};
const Bytes vxlan{8, 0, 0, 0, 0x12, 0x34, 0x56, 0};
const Bytes no_vni{0, 0, 0, 0, 0x12, 0x34, 0x56, 0};
const Bytes gpe_ipv4{0x0c, 0, 0, 1, 1, 2, 3, 0}, gpe_ipv6{0x0c, 0, 0, 2, 1, 2, 3, 0}, gpe_l2{0x0c, 0, 0, 3, 1, 2, 3, 0};
const Bytes geneve_l2{0x02, 0x80, 0x65, 0x58, 9, 8, 7, 0, 1, 2, 3, 1, 4, 5, 6, 7};
const Bytes geneve_ipv6{0x00, 0x00, 0x86, 0xdd, 9, 8, 7, 0}, geneve_version_1{0x40, 0, 0x65, 0x58, 9, 8, 7, 0};
const Bytes geneve_option{0x04, 0, 0x65, 0x58, 9, 8, 7, 0, 1, 2, 0, 0, 1, 2, 0x80, 1, 4, 5, 6, 7, 1, 2, 3, 0};
const Bytes geneve_other_length{0x03, 0, 0x65, 0x58, 9, 8, 7, 0, 1, 2, 0x80, 2, 4, 5, 6, 7, 8, 9, 10, 11};
const Bytes geneve_twice{0x04, 0, 0x08, 0x00, 9, 8, 7, 0, 1, 2, 0x80, 1, 1, 1, 1, 1, 1, 2, 0x80, 1, 2, 2, 2, 2};
const Bytes geneve_beyond{0x02, 0, 0x08, 0x00, 9, 8, 7, 0, 9, 9, 9, 0, 1, 2, 0x80, 1};
const Bytes nvgre{0x20, 0, 0x65, 0x58, 0xaa, 0xbb, 0xcc, 0xdd}, gre{0, 0, 8, 0};
const FrameSpec to_gtpu{.dport = 2152}, to_mpls{.version = 6, .dport = 6635};
const Bytes gtpu{0x30, 0xff, 0, 10, 1, 2, 3, 4}, gtpu_numbered{0x32, 0xff, 0, 14, 1, 2, 3, 4, 0, 7, 0, 0x85};
const Bytes gtpu_extended{0x34, 0x01, 0, 18, 1, 2, 3, 4, 0, 7, 9, 0x85, 1, 0x10, 5, 0}, gtp_prime{0x20, 1, 0, 10, 1, 2, 3, 4};
const Bytes gtpu_chain{0x34, 0xff, 0, 26, 1, 2, 3, 4, 0, 7, 9, 0x85, 1, 0x10, 5, 0x40, 2, 0x08, 0x68, 0, 0, 0, 0, 0};
const Bytes gtpu_endless{0x34, 0xff, 0, 26, 1, 2, 3, 4, 0, 7, 9, 0x85, 0, 0x10, 5, 0x40};
const Bytes mpls{0x12, 0x34, 0x51, 0x40}, gre_mpls{0x20, 0, 0x88, 0x47, 1, 2, 3, 4, 0x12, 0x34, 0x51, 0x40};
const Bytes gre_all{0xb0, 0, 0x86, 0xdd, 1, 2, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10}, gre_routed{0x40, 0, 8, 0};

INSTANTIATE_TEST_SUITE_P(
    Tunnels, TunnelParser,
    ::testing::Values(TunnelCase{to_vxlan, vxlan, {.protocol = 6, .tcp_flags = 0x112}},
                      TunnelCase{to_vxlan, vxlan, {.tags = {0x88a85fff, 0x81006002}, .version = 6, .protocol = 58}},
                      TunnelCase{to_vxlan, vxlan, {.place = 0x2000}}, TunnelCase{to_vxlan, no_vni, {}},
                      TunnelCase{to_vxlan, vxlan, to_vxlan},
                      TunnelCase{{.tags = {0x81000002}, .dport = 4789}, vxlan, {.version = 0}},
                      TunnelCase{{.place = 0x2000, .dport = 4789}, vxlan, {}},
                      TunnelCase{to_gpe, gpe_l2, {.protocol = 6}}, TunnelCase{to_gpe, gpe_ipv4, {.protocol = 6}, 14},
                      TunnelCase{to_gpe, gpe_ipv6, {.version = 6, .hop_by_hop = true}, 14},
                      TunnelCase{to_geneve, geneve_l2, {.version = 6, .protocol = 6}},
                      TunnelCase{to_geneve, geneve_ipv6, {.version = 6, .protocol = 6}, 14},
                      TunnelCase{to_geneve, geneve_version_1, {}}, TunnelCase{{.protocol = 47}, nvgre, {.protocol = 6}},
                      TunnelCase{{.version = 6, .protocol = 47}, gre, {.protocol = 6}, 14},
                      TunnelCase{{.protocol = 47}, gre_all, {.version = 6}, 14}, TunnelCase{{.protocol = 47}, gre_routed, {}, 14},
                      TunnelCase{to_geneve, geneve_option, {}}, TunnelCase{to_geneve, geneve_other_length, {}},
                      TunnelCase{to_geneve, geneve_twice, {.protocol = 6}, 14}, TunnelCase{to_geneve, geneve_beyond, {}, 14},
                      TunnelCase{to_gtpu, gtpu_chain, {.version = 6, .protocol = 6}, 14}, TunnelCase{to_gtpu, gtpu_chain, {}},
                      TunnelCase{to_gtpu, gtpu_endless, {}, 14}, TunnelCase{to_gtpu, gtpu_numbered, {.protocol = 6}, 14},
                      TunnelCase{to_gtpu, gtpu, {}, 14}, TunnelCase{to_gtpu, gtpu_numbered, {}, 14},
                      TunnelCase{to_gtpu, gtpu_extended, {}, 14}, TunnelCase{to_gtpu, gtp_prime, {}, 14},
                      TunnelCase{to_mpls, mpls, {}, 14}, TunnelCase{{.protocol = 47}, gre_mpls, {}, 14},
                      TunnelCase{{.protocol = 4}, {}, {.protocol = 1}, 14},
                      TunnelCase{{.version = 6, .protocol = 41}, {}, {.version = 6, .protocol = 6}, 14}));

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
