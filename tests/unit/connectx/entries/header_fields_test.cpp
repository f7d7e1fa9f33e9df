// What the parser takes for a header, and what it does not.
#include "tests/connectx/entries/header_fields.hpp"

#include <gtest/gtest.h>

namespace ovsdr::connectx::entries {
namespace {

using Bytes = std::vector<std::uint8_t>;

HeaderFields parsed(const Bytes& frame) {
    HeaderFields fields;
    fields.parse(frame);
    return fields;
}

Bytes ethernet(const Bytes& rest) {
    Bytes frame{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1};
    frame.insert(frame.end(), rest.begin(), rest.end());
    return frame;
}

/// A TCP SYN of 40 bytes with `padding` behind.
Bytes ipv4(std::uint8_t first = 0x45, std::uint16_t total = 40, std::uint16_t fragment = 0, std::size_t padding = 6) {
    Bytes packet = {8, 0, first, 0, static_cast<std::uint8_t>(total >> 8), static_cast<std::uint8_t>(total), 0, 0,
                    static_cast<std::uint8_t>(fragment >> 8), static_cast<std::uint8_t>(fragment), 64, 6, 0, 0,
                    10, 0, 0, 1, 10, 0, 0, 2,
                    0, 80, 1, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0x51, 0x02, 0, 0, 0, 0, 0, 0};
    packet.resize(packet.size() + padding);
    return ethernet(packet);
}

/// `headers`: extension headers and what follows; `next`: of the fixed header.
Bytes ipv6(std::uint8_t next, const Bytes& headers) {
    Bytes packet = {0x86, 0xDD, 0x6B, 0x9A, 0xBC, 0xDE, 0, static_cast<std::uint8_t>(headers.size()), next, 63};
    for (std::uint8_t i = 0; i < 32; ++i) packet.push_back(i);
    packet.insert(packet.end(), headers.begin(), headers.end());
    return ethernet(packet);
}

TEST(HeaderFields, ReadsIpv4AndTcp) {
    const HeaderFields fields = parsed(ipv4());
    EXPECT_EQ(fields[Field::l3_type], 1U);
    EXPECT_EQ(fields[Field::protocol], 6U);
    EXPECT_EQ(fields[Field::source_port], 80U);
    EXPECT_EQ(fields[Field::destination_port], 256U);
    EXPECT_EQ(fields[Field::tcp_flags], 0x102U);
    EXPECT_EQ(fields[Field::tcp_sequence], 1U);
    EXPECT_EQ(fields[Field::tcp_acknowledgement], 2U);
    EXPECT_EQ(fields.offsets().ethertype, 12U);
    EXPECT_EQ(fields.offsets().ipv4, 14U);
    EXPECT_EQ(fields.offsets().ipv6, 0U);
    EXPECT_EQ(fields.offsets().transport, 34U);
}

TEST(HeaderFields, LeavesABrokenIpv4HeaderAlone) {
    for (const Bytes& frame : {ipv4(0x55), ipv4(0x44), ipv4(0x45, 19), ipv4(0x45, 47), ipv4(0x4F, 40)}) {
        const HeaderFields fields = parsed(frame);
        EXPECT_EQ(fields[Field::ethertype], 0x0800U);
        EXPECT_EQ(fields[Field::l3_type], 0U);
        EXPECT_EQ(fields[Field::protocol], 0U);
        EXPECT_EQ(fields[Field::source_port], 0U);
    }
    EXPECT_EQ(parsed(ipv4(0x45, 46))[Field::l3_type], 1U);
}

TEST(HeaderFields, ReadsNoPortsOfAFragmentOrACutHeader) {
    for (const std::uint16_t fragment : {0x2000, 0x0001, 0x2001}) {
        const HeaderFields fields = parsed(ipv4(0x45, 40, fragment));
        EXPECT_EQ(fields[Field::fragment], 1U);
        EXPECT_EQ(fields[Field::protocol], 6U);
        EXPECT_EQ(fields[Field::source_port], 0U);
    }
    EXPECT_EQ(parsed(ipv4(0x45, 40, 0x4000))[Field::fragment], 0U);
    EXPECT_EQ(parsed(ipv4(0x45, 39))[Field::source_port], 0U);
}

TEST(HeaderFields, LooksThroughTwoTags) {
    const Bytes one = ethernet({0x88, 0xA8, 0xB0, 7, 0x12, 0x34});
    EXPECT_EQ(parsed(one)[Field::first_qualifier], 1U);
    EXPECT_EQ(parsed(one)[Field::first_priority], 5U);
    EXPECT_EQ(parsed(one)[Field::first_cfi], 1U);
    EXPECT_EQ(parsed(one)[Field::first_vid], 7U);
    EXPECT_EQ(parsed(one)[Field::second_qualifier], 0U);
    EXPECT_EQ(parsed(one)[Field::ethertype], 0x1234U);
    const Bytes three = ethernet({0x81, 0, 0, 1, 0x88, 0xA8, 0x20, 2, 0x81, 0, 0, 3, 0x12, 0x34});
    EXPECT_EQ(parsed(three)[Field::first_qualifier], 2U);
    EXPECT_EQ(parsed(three)[Field::second_qualifier], 1U);
    EXPECT_EQ(parsed(three)[Field::second_priority], 1U);
    EXPECT_EQ(parsed(three)[Field::second_vid], 2U);
    EXPECT_EQ(parsed(three)[Field::ethertype], 0x8100U);
    EXPECT_EQ(parsed(ethernet({0x81, 0, 0, 1}))[Field::ethertype], 0x8100U) << "a tag that is cut short";
}

TEST(HeaderFields, ReadsIpv6BehindExtensionHeaders) {
    const Bytes udp{0, 53, 0, 99, 0, 8, 0, 0};
    const HeaderFields plain = parsed(ipv6(17, udp));
    EXPECT_EQ(plain[Field::l3_type], 2U);
    EXPECT_EQ(plain[Field::dscp], 0x2EU);
    EXPECT_EQ(plain[Field::ecn], 1U);
    EXPECT_EQ(plain[Field::ipv6_flow_label], 0xABCDEU);
    EXPECT_EQ(plain[Field::ipv6_hop_limit], 63U);
    EXPECT_EQ(plain[Field::ipv6_source_127_96], 0x00010203U);
    EXPECT_EQ(plain[Field::ipv6_destination_31_0], 0x1C1D1E1FU);
    EXPECT_EQ(plain[Field::source_port], 53U);
    Bytes options{17, 0, 1, 4, 0, 0, 0, 0};
    options.insert(options.end(), udp.begin(), udp.end());
    EXPECT_EQ(parsed(ipv6(60, options))[Field::protocol], 17U);
    EXPECT_EQ(parsed(ipv6(60, options))[Field::destination_port], 99U);
    Bytes cut{17, 9, 1, 4, 0, 0, 0, 0};
    EXPECT_EQ(parsed(ipv6(60, cut))[Field::protocol], 60U);
}

TEST(HeaderFields, TellsIpv6FragmentsFromWholePacketsWithAFragmentHeader) {
    const auto with = [](std::uint8_t high, std::uint8_t low) {
        return parsed(ipv6(44, {17, 0, high, low, 0, 0, 0, 1, 0, 53, 0, 99, 0, 8, 0, 0}));
    };
    EXPECT_EQ(with(0, 0)[Field::fragment], 0U);
    EXPECT_EQ(with(0, 0)[Field::source_port], 53U);
    EXPECT_EQ(with(0, 1)[Field::fragment], 1U);
    EXPECT_EQ(with(0, 1)[Field::protocol], 17U);
    EXPECT_EQ(with(0, 1)[Field::source_port], 0U);
    EXPECT_EQ(with(0, 8)[Field::fragment], 1U);
    EXPECT_EQ(with(0, 8)[Field::protocol], 44U);
}

TEST(HeaderFields, ReadsIcmpOfItsOwnIpVersion) {
    const HeaderFields fields = parsed(ipv6(58, {135, 2, 0, 0, 1, 2, 3, 4}));
    EXPECT_EQ(fields[Field::icmp_type], 135U);
    EXPECT_EQ(fields[Field::icmp_code], 2U);
    EXPECT_EQ(fields[Field::icmp_data], 0x01020304U);
    EXPECT_EQ(parsed(ipv6(1, {8, 2, 0, 0, 1, 2, 3, 4}))[Field::icmp_type], 0U);
}

TEST(HeaderFields, ForgetsTheLastFrame) {
    HeaderFields fields = parsed(ipv4());
    fields.parse(ethernet({0x12, 0x34}));
    EXPECT_EQ(fields[Field::source_port], 0U);
    EXPECT_EQ(fields[Field::ethertype], 0x1234U);
    EXPECT_EQ(fields.offsets().ipv4, 0U);
    EXPECT_EQ(fields.offsets().transport, 0U);
    fields.parse(Bytes(13));
    EXPECT_EQ(fields[Field::ethertype], 0U);
}

}  // namespace
}  // namespace ovsdr::connectx::entries
