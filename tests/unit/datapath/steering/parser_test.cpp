// The parser against a second reading of the PRM, on frames cut at every length. Each frame is a heap block of its own
// size, so that a sanitizer sees a byte read too many.
#include "datapath/steering/parser.hpp"
#include "datapath/steering/tunnel.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "frames.hpp"
#include "naive_fields.hpp"
#include "spread.hpp"

namespace ovsdr::soft::test {
namespace {

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
        ASSERT_EQ(whole.get({bit, 32}), expected->get({bit, 32}))
            << "bit " << bit << " of a frame cut to " << frame.size();
    }
}

[[nodiscard]] std::size_t number(const Bytes& frame, std::size_t at) { return frame.at(at) * 256U + frame.at(at + 1); }

/// Behind the extension headers of an IPv6 packet, or its end where they are cut short; on the one of a later fragment.
[[nodiscard]] std::size_t behind_extensions(const Bytes& frame, std::size_t at, std::size_t end, bool& later) {
    std::uint8_t next = frame.at(at + 6);
    at += 40;
    while (next == 0 || next == 43 || next == 44 || next == 51 || next == 60) {
        if (at + 8 > end) return end;
        const std::size_t size = next == 44 ? 8U : next == 51 ? (frame[at + 1] + 2U) * 4 : (frame[at + 1] + 1U) * 8;
        if (at + size > end) return end;
        later = next == 44 && number(frame, at + 2) / 8 != 0;
        if (later) return at;
        next = frame[at];
        at += size;
    }
    return at;
}

/// Where the headers of a frame are whose fields are known.
[[nodiscard]] Headers places(const Bytes& frame, const Parameters& fields) {
    Headers all{};
    if (frame.size() < 14) return all;
    const unsigned tags = (fields.get(field::cvlan_tag) | fields.get(field::svlan_tag) ? 1 : 0) +
                          (fields.get(field::second_cvlan) | fields.get(field::second_svlan) ? 1 : 0);
    all.type = static_cast<std::uint16_t>(12 + 4 * tags);
    all.vlan = tags != 0 ? 12 : 0;
    all.l3_version = static_cast<std::uint8_t>(fields.get(field::ip_version));
    if (all.l3_version == 0) return all;
    all.l3 = static_cast<std::uint16_t>(all.type + 2);
    all.l4_protocol = static_cast<std::uint8_t>(fields.get(field::ip_protocol));
    all.fragment = fields.get(field::frag) != 0;
    const bool v4 = all.l3_version == 4;
    const std::size_t said = all.l3 + (v4 ? 0U : 40U) + number(frame, all.l3 + (v4 ? 2U : 4U));
    all.end = static_cast<std::uint32_t>(std::min(said, frame.size()));
    bool later = v4 && (number(frame, all.l3 + 6U) & 0x1fff) != 0;
    const std::size_t at = v4 ? all.l3 + (frame[all.l3] & 15U) * 4 : behind_extensions(frame, all.l3, all.end, later);
    if (!all.fragment) all.payload = static_cast<std::uint16_t>(at);
    const unsigned protocol = all.l4_protocol;
    const std::size_t least = protocol == 6 ? 20 : protocol == 17 || protocol == (v4 ? 1 : 58) ? 8 : all.end;
    if (!later && at + least <= all.end) all.l4 = static_cast<std::uint16_t>(at);
    return all;
}

void expect_places(const Headers& got, const Headers& expected) {
    ASSERT_EQ(got.type, expected.type);
    ASSERT_EQ(got.vlan, expected.vlan);
    ASSERT_EQ(got.l3, expected.l3);
    ASSERT_EQ(got.l4, expected.l4);
    ASSERT_EQ(got.l3_version, expected.l3_version);
    ASSERT_EQ(got.l4_protocol, expected.l4_protocol);
    ASSERT_EQ(got.fragment, expected.fragment);
    ASSERT_EQ(got.payload, expected.payload);
    ASSERT_EQ(got.end, expected.end);
}

void compare(const Bytes& frame, std::size_t size) {
    const std::unique_ptr<std::uint8_t[]> exact(new std::uint8_t[size]);
    std::copy(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size), exact.get());
    Key key;
    key.words.fill(~0ULL);
    const bool parsed = parse(exact.get(), static_cast<std::uint32_t>(size), key);
    const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
    const auto expected = take_apart(cut);
    ASSERT_EQ(parsed, expected.has_value()) << size;
    const Headers headers = locate(exact.get(), static_cast<std::uint32_t>(size));
    ASSERT_NO_FATAL_FAILURE(expect_places(headers, places(cut, expected.value_or(Parameters{})))) << size;
    if (!parsed) return;
    const Parameters got = spread(key);
    for (const Field& one : compared) {
        ASSERT_EQ(got.get(one), expected->get(one)) << "bit " << one.bit << " of a frame cut to " << size;
    }
    const std::span<const std::uint8_t> whole(exact.get(), size);
    ASSERT_NO_FATAL_FAILURE(compare_deep(whole, {}, {}, key));
    ASSERT_NO_FATAL_FAILURE(compare_deep(whole, {.gtpu = true, .option = sought}, naive_sought, key));
    const std::optional<Carried> carried = carried_by(cut, naive_sought);
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
        for (const std::uint8_t wrong :
             {0x00, 0x01, 0x2b, 0x2c, 0x33, 0x3b, 0x3c, 0x46, 0x4f, 0x60, 0x7f, 0x81, 0x88, 0xff}) {
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

/// An IPv6 packet ends with its frame, however long it says it is: there every header can be cut short.
TEST_P(TunnelParser, ReadsWhatIsThereAndInventsNothing) {
    for (const bool in_ipv6 : {false, true}) {
        TunnelCase one = GetParam();
        if (in_ipv6) one.outer.version = 6;
        const Bytes frame = frame_of_case(one);
        for (std::size_t size = 0; size <= frame.size(); ++size) ASSERT_NO_FATAL_FAILURE(compare(frame, size));
    }
}

TEST(MplsParser, LabelsStandBehindTheTagsAndOverGre) {
    for (const std::uint8_t type : {0x46, 0x47, 0x48, 0x49}) {
        for (const unsigned tags : {0U, 1U, 2U, 3U}) {
            FrameSpec spec{.version = 0};
            for (unsigned i = 0; i < tags; ++i) spec.tags.push_back(0x81000001 + i);
            Bytes frame = make_frame(spec);
            frame[12 + 4 * tags] = 0x88;
            frame[13 + 4 * tags] = type;
            for (std::size_t size = 14; size < 40; ++size) ASSERT_NO_FATAL_FAILURE(compare(frame, size)) << int{type};
            for (const unsigned version : {4U, 6U}) {
                Bytes content{8, 0, 0, 0, 0, 0, 7, 0};
                content.insert(content.end(), frame.begin(), frame.begin() + 40);
                const Bytes carrier = make_frame({.version = version, .dport = 4789}, content);
                for (std::size_t size = 14; size <= carrier.size(); ++size) {
                    ASSERT_NO_FATAL_FAILURE(compare(carrier, size));
                }
                const Bytes gre_content{0, 0, 0x88, type, 1, 2, 3, 4, 5};
                const Bytes over_gre = make_frame({.version = version, .protocol = 47}, gre_content);
                for (std::size_t size = 14; size <= over_gre.size(); ++size) {
                    ASSERT_NO_FATAL_FAILURE(compare(over_gre, size));
                }
            }
        }
    }
}

/// Every extension header before every other one, and cut short.
TEST(Ipv6Parser, ChainsOfEveryExtensionAreSkipped) {
    for (const std::uint8_t first : {0, 43, 44, 51, 60, 59, 50, 135}) {
        for (const std::uint8_t second : {0, 43, 44, 51, 60, 6, 17, 58, 1}) {
            for (const std::uint8_t units : {0, 1, 2}) {
                Bytes content{second, units, 0, 0, 0, 0, 0, 0};
                content.resize(content.size() + 32, 0);
                content[8] = 17;
                Bytes frame = make_frame({.version = 6, .protocol = 59}, content);
                frame[20] = first;
                for (std::size_t size = 54; size <= frame.size(); size += size < 80 ? 1 : 7) {
                    if (size % 8 > 1 && size % 8 < 5) continue;
                    ASSERT_NO_FATAL_FAILURE(compare(frame, size)) << int{first};
                }
                ASSERT_NO_FATAL_FAILURE(compare(frame, frame.size())) << int{first};
            }
        }
    }
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
const Bytes gtpu_extended{0x34, 0x01, 0, 18, 1, 2, 3, 4, 0, 7, 9, 0x85, 1, 0x10, 5, 0};
const Bytes gtp_prime{0x20, 1, 0, 10, 1, 2, 3, 4};
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
                      TunnelCase{{.protocol = 47}, gre_all, {.version = 6}, 14},
                      TunnelCase{{.protocol = 47}, gre_routed, {}, 14}, TunnelCase{to_geneve, geneve_option, {}},
                      TunnelCase{to_geneve, geneve_other_length, {}},
                      TunnelCase{to_geneve, geneve_twice, {.protocol = 6}, 14},
                      TunnelCase{to_geneve, geneve_beyond, {}, 14},
                      TunnelCase{to_gtpu, gtpu_chain, {.version = 6, .protocol = 6}, 14},
                      TunnelCase{to_gtpu, gtpu_chain, {}}, TunnelCase{to_gtpu, gtpu_endless, {}, 14},
                      TunnelCase{to_gtpu, gtpu_numbered, {.protocol = 6}, 14}, TunnelCase{to_gtpu, gtpu, {}, 14},
                      TunnelCase{to_gtpu, gtpu_numbered, {}, 14}, TunnelCase{to_gtpu, gtpu_extended, {}, 14},
                      TunnelCase{to_gtpu, gtp_prime, {}, 14}, TunnelCase{to_mpls, mpls, {}, 14},
                      TunnelCase{{.protocol = 47}, gre_mpls, {}, 14},
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
                                           FrameSpec{.version = 6, .place = 8, .fragment_header = true,
                                                     .hop_by_hop = true},
                                           FrameSpec{.version = 6, .protocol = 51}, FrameSpec{.protocol = 58},
                                           FrameSpec{.version = 6, .protocol = 1},
                                           FrameSpec{.protocol = 6, .place = 0x2000},
                                           FrameSpec{.version = 6, .protocol = 6, .place = 1,
                                                     .fragment_header = true}));

}  // namespace
}  // namespace ovsdr::soft::test
