// RoCEv2 frames by their bytes. The ICRC's oracles: a bit-by-bit computation here, and a frame that scapy's
// contrib.roce made.
#include "datapath/rdma/roce/frame.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace ovsdr::soft::roce {
namespace {

using Frame = std::vector<std::byte>;

/// scapy 2.5.0: Ether/IP(tos=0x22, flags="DF", id=0)/UDP(sport=0xc123, chksum=0)/BTH(opcode=SEND_ONLY, solicited,
/// migreq, padcount=3, dqpn=0x123456, ackreq, psn=0xabcdef)/"hello"+3 bytes of padding.
constexpr std::string_view by_scapy =
    "020000000702020000000701080045220034000040004011b693c0000201c0000202c12312b70020000004f0ffff0012345680abcdef"
    "68656c6c6f0000002d72972b";

/// The same behind Dot1Q(vlan=5, prio=3).
constexpr std::string_view tagged_by_scapy =
    "02000000070202000000070181006005080045220034000040004011b693c0000201c0000202c12312b70020000004f0ffff"
    "0012345680abcdef68656c6c6f0000002d72972b";

[[nodiscard]] Frame from_hex(std::string_view text) {
    Frame bytes;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        bytes.push_back(static_cast<std::byte>(std::stoul(std::string(text.substr(i, 2)), nullptr, 16)));
    }
    return bytes;
}

[[nodiscard]] std::uint32_t crc32_bit_by_bit(const Frame& bytes) {
    std::uint32_t crc = 0xffffffff;
    for (const std::byte byte : bytes) {
        for (unsigned bit = 0; bit < 8; ++bit) {
            const std::uint32_t in = (static_cast<std::uint32_t>(byte) >> bit & 1) ^ (crc & 1);
            crc = crc >> 1 ^ (in ? 0xedb88320 : 0);
        }
    }
    return ~crc;
}

/// IBTA 17.9.3.1 word for word: ones for the LRH, then the packet with its variant fields at ones.
[[nodiscard]] std::uint32_t reference_icrc(const Frame& frame, bool ipv4) {
    Frame covered(8, std::byte{0xff});
    Frame packet(frame.begin() + 14, frame.end() - 4);
    const auto ones = [&packet](std::size_t at) { packet[at] = std::byte{0xff}; };
    const std::size_t udp = ipv4 ? 20 : 40;
    if (ipv4) {
        for (const std::size_t at : {1, 8, 10, 11}) ones(at);
    } else {
        packet[0] |= std::byte{0x0f};
        for (const std::size_t at : {1, 2, 3, 7}) ones(at);
    }
    ones(udp + 6);
    ones(udp + 7);
    ones(udp + 8 + 4);
    covered.insert(covered.end(), packet.begin(), packet.end());
    return crc32_bit_by_bit(covered);
}

[[nodiscard]] PathSpec spec(bool ipv4) {
    PathSpec spec{.source_mac = {2, 0, 0, 0, 7, 1},
                  .destination_mac = {2, 0, 0, 0, 7, 2},
                  .traffic_class = 0x22,
                  .hop_limit = 64,
                  .flow_label = 0x54321,
                  .udp_source = 0xc123,
                  .local = false};
    const std::uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
    const std::uint8_t global[16] = {0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    std::memcpy(spec.source.raw, ipv4 ? mapped : global, 16);
    std::memcpy(spec.destination.raw, spec.source.raw, 16);
    spec.destination.raw[15] = 2;
    return spec;
}

/// What Burst does, without its buffers.
[[nodiscard]] Frame build(const Path& path, const Bth& bth, const Frame& body) {
    Frame frame(path.size + sizeof bth + body.size() + 4);
    std::byte* const at = write_front(path, frame.data(), static_cast<unsigned>(sizeof bth + body.size() + 4));
    std::memcpy(at, &bth, sizeof bth);
    std::copy(body.begin(), body.end(), at + sizeof bth);
    const std::uint32_t crc = icrc(frame.data() + path.ip_offset(), path.ipv4, frame.size() - path.ip_offset() - 4);
    std::memcpy(frame.data() + frame.size() - 4, &crc, 4);
    return frame;
}

TEST(RoceFrame, EqualsWhatScapyBuilds) {
    const Bth bth{.opcode = 4, .flags = 0xf0, .pkey = 0xffff, .qpn = htobe32(0x123456), .psn = htobe32(0x80abcdef)};
    Frame body(8);
    std::memcpy(body.data(), "hello", 5);
    EXPECT_EQ(build(make_path(spec(true)), bth, body), from_hex(by_scapy));
    PathSpec tagged = spec(true);
    tagged.vlan = 5;
    tagged.priority = 3;
    EXPECT_EQ(build(make_path(tagged), bth, body), from_hex(tagged_by_scapy));
}

TEST(RoceFrame, ATagIsNoPartOfThePacket) {
    const Frame frame = from_hex(tagged_by_scapy);
    Arrival arrival;
    ASSERT_TRUE(read_frame(frame.data(), frame.size(), arrival));
    EXPECT_EQ(arrival.vlan, 5);
    EXPECT_EQ(arrival.frame, frame.data());
    EXPECT_EQ(arrival.payload_size, 5U);
    EXPECT_TRUE(icrc_is_right(arrival));
    for (std::size_t size = 0; size < frame.size(); ++size) {
        const Frame cut(frame.begin(), frame.begin() + static_cast<long>(size));
        EXPECT_FALSE(read_frame(cut.data(), cut.size(), arrival)) << size;
    }
}

TEST(RoceFrame, IcrcEqualsABitByBitOne) {
    std::mt19937 random(3);
    for (const bool ipv4 : {true, false}) {
        for (int round = 0; round < 50; ++round) {
            Frame body(random() % 1025 * 4);
            for (std::byte& byte : body) byte = static_cast<std::byte>(random());
            const Bth bth{.opcode = 7,
                          .flags = 0x40,
                          .pkey = 0xffff,
                          .qpn = static_cast<__be32>(random()),
                          .psn = static_cast<__be32>(random())};
            const Frame frame = build(make_path(spec(ipv4)), bth, body);
            std::uint32_t crc = 0;
            std::memcpy(&crc, frame.data() + frame.size() - 4, 4);
            ASSERT_EQ(crc, reference_icrc(frame, ipv4));
        }
    }
}

TEST(RoceFrame, OnlyMappedAddressesAreIpv4) {
    // RFC 4291 2.5.5.2: 80 zero bits, 16 ones, the IPv4 address.
    const auto is_ipv4_path = [](std::initializer_list<std::pair<unsigned, std::uint8_t>> bytes) {
        PathSpec with = spec(false);
        with.source = with.destination = {};
        for (const auto& [at, value] : bytes) with.source.raw[at] = value;
        return make_path(with).ipv4;
    };
    EXPECT_TRUE(is_ipv4_path({{10, 0xff}, {11, 0xff}, {12, 192}, {15, 1}}));
    EXPECT_FALSE(is_ipv4_path({{12, 192}, {15, 1}})) << "compatible, not mapped";
    EXPECT_FALSE(is_ipv4_path({{10, 0xff}, {12, 192}, {15, 1}}));
    EXPECT_FALSE(is_ipv4_path({{11, 0xff}, {12, 192}, {15, 1}}));
    EXPECT_FALSE(is_ipv4_path({{9, 1}, {10, 0xff}, {11, 0xff}, {15, 1}}));
    EXPECT_FALSE(is_ipv4_path({{0, 0x20}, {10, 0xff}, {11, 0xff}, {15, 1}}));
}

TEST(RoceFrame, ReadsWhatItWrote) {
    const Frame frame = from_hex(by_scapy);
    Arrival arrival;
    ASSERT_TRUE(read_frame(frame.data(), frame.size(), arrival));
    EXPECT_EQ(arrival.vlan, 0);
    EXPECT_EQ(arrival.qpn, 0x123456U);
    EXPECT_EQ(arrival.psn, 0xabcdefU);
    EXPECT_TRUE(arrival.ack_requested());
    EXPECT_TRUE(arrival.solicited());
    EXPECT_EQ(arrival.service, ServiceType::rc);
    EXPECT_EQ(arrival.operation.kind, Kind::send);
    EXPECT_EQ(arrival.payload_size, 5U);
    EXPECT_EQ(std::memcmp(arrival.payload, "hello", 5), 0);
    EXPECT_EQ(std::memcmp(&arrival.source, spec(true).source.raw, 16), 0);
    EXPECT_EQ(std::memcmp(&arrival.destination, spec(true).destination.raw, 16), 0);
    EXPECT_TRUE(icrc_is_right(arrival));
}

TEST(RoceFrame, EveryBitFromTheAddressesOnIsCovered) {
    const Frame good = from_hex(by_scapy);
    for (std::size_t bit = (14 + 12) * 8; bit < good.size() * 8; ++bit) {
        const std::size_t byte = bit / 8;
        const bool udp_checksum = byte == 40 || byte == 41, reserved = byte == 42 + 4;
        Frame bad = good;
        bad[byte] ^= static_cast<std::byte>(1u << bit % 8);
        Arrival arrival;
        const bool taken = read_frame(bad.data(), bad.size(), arrival) && icrc_is_right(arrival);
        EXPECT_EQ(taken, udp_checksum || reserved) << "bit " << bit;
    }
}

TEST(RoceFrame, RefusesEveryTruncation) {
    const Frame good = from_hex(by_scapy);
    for (std::size_t size = 0; size < good.size(); ++size) {
        const Frame cut(good.begin(), good.begin() + static_cast<long>(size));
        Arrival arrival;
        EXPECT_FALSE(read_frame(cut.data(), cut.size(), arrival)) << size;
    }
    Frame longer = good;  // Ethernet padding behind the packet is none of ours
    longer.resize(good.size() + 10);
    Arrival arrival;
    EXPECT_TRUE(read_frame(longer.data(), longer.size(), arrival));
}

struct Way {
    bool ipv4, tagged;
    [[nodiscard]] Path path() const {
        PathSpec with = spec(ipv4);
        with.vlan = tagged ? 5 : 0;
        return make_path(with);
    }
    [[nodiscard]] std::size_t ip() const { return tagged ? 18 : 14; }
    [[nodiscard]] std::size_t udp() const { return ip() + (ipv4 ? 20 : 40); }
};
constexpr Way ways[] = {{true, false}, {true, true}, {false, false}, {false, true}};
constexpr Bth send_only{.opcode = 4, .flags = 0, .pkey = 0xffff, .qpn = 0, .psn = 0};

TEST(RoceFrame, NothingBehindItsEndIsRead) {
    for (const Way& way : ways) {
        const Frame good = build(way.path(), send_only, Frame(8));
        Arrival arrival;
        for (std::size_t size = 0; size < good.size(); ++size) {
            EXPECT_FALSE(read_frame(good.data(), size, arrival)) << size;
        }
        ASSERT_TRUE(read_frame(good.data(), good.size(), arrival));
        EXPECT_TRUE(icrc_is_right(arrival));
        EXPECT_EQ(arrival.ipv4, way.ipv4);
        EXPECT_EQ(arrival.ip, good.data() + way.ip());
        EXPECT_EQ(arrival.extensions, good.data() + way.udp() + 8 + 12);
        EXPECT_EQ(arrival.vlan, way.tagged ? 5 : 0);
        const PathSpec sent = spec(way.ipv4);
        EXPECT_EQ(std::memcmp(&arrival.source, &sent.source, 16), 0);
        EXPECT_EQ(std::memcmp(&arrival.destination, &sent.destination, 16), 0);
    }
}

TEST(RoceFrame, EachBitThatSaysWhatItIsIsJudged) {
    for (const Way& way : ways) {
        const Frame good = build(way.path(), send_only, Frame(8));
        const auto judged = [&](std::size_t byte, unsigned bit) {
            const std::size_t ip = way.ip(), udp = way.udp();
            if (byte == 12 || byte == 13) return true;  // the type
            if (byte < ip) return byte >= 16;           // behind a tag: the type
            if (byte >= udp) return byte - udp >= 2 && byte - udp < 6;
            if (!way.ipv4) return (byte == ip && bit >= 4) || byte == ip + 4 || byte == ip + 5 || byte == ip + 6;
            // Version and length, size, "more fragments" and the offset, protocol.
            return byte == ip || byte == ip + 2 || byte == ip + 3 || (byte == ip + 6 && bit < 6) || byte == ip + 7 ||
                   byte == ip + 9;
        };
        for (std::size_t byte = 12; byte < way.udp() + 8; ++byte) {
            for (unsigned bit = 0; bit < 8; ++bit) {
                Frame other = good;
                other[byte] ^= static_cast<std::byte>(1u << bit);
                Arrival arrival;
                EXPECT_EQ(read_frame(other.data(), other.size(), arrival), !judged(byte, bit)) << byte << '.' << bit;
            }
        }
    }
}

TEST(RoceFrame, ALengthHasRoomForItsHeaders) {
    const auto with_length = [](const Way& way, unsigned more) {
        Frame frame(way.udp() + 8 + 12);  // a BTH is there, and no ICRC
        (void)write_front(way.path(), frame.data(), 0);
        frame[way.ip() + (way.ipv4 ? 3 : 5)] = static_cast<std::byte>((way.ipv4 ? 28 : 8) + more);
        return frame;
    };
    for (const Way& way : ways) {
        Frame headers = with_length(way, 0);
        EXPECT_TRUE(is_roce(headers.data(), way.udp() + 8));
        EXPECT_FALSE(is_roce(headers.data(), way.udp() + 7));
        Arrival arrival;
        EXPECT_FALSE(read_frame(headers.data(), headers.size(), arrival));
        headers = with_length(way, -1U);
        EXPECT_FALSE(is_roce(headers.data(), headers.size()));
        // A BTH and an ICRC are the least, and four bytes the grain.
        for (unsigned size = 0; size < 33; ++size) {
            Frame frame(way.path().size + 40);
            std::byte* const at = write_front(way.path(), frame.data(), size);
            std::memcpy(at, &send_only, sizeof send_only);
            EXPECT_EQ(read_frame(frame.data(), frame.size(), arrival), size >= 16 && size % 4 == 0) << size;
        }
    }
}

TEST(RoceFrame, ExtensionsAndPaddingHaveTheirRoom) {
    for (unsigned body = 0; body <= 8; body += 4) {
        for (std::uint8_t pad = 0; pad < 4; ++pad) {
            const Bth with_immediate{
                .opcode = 5, .flags = static_cast<std::uint8_t>(pad << 4), .pkey = 0xffff, .qpn = 0, .psn = 0};
            const Frame frame = build(ways[0].path(), with_immediate, Frame(body));
            Arrival arrival;
            const bool fits = body >= 4U + pad;
            ASSERT_EQ(read_frame(frame.data(), frame.size(), arrival), fits) << body << ' ' << int{pad};
            if (fits) {
                EXPECT_EQ(arrival.payload_size, body - 4 - pad);
            }
        }
    }
}

TEST(RoceFrame, AnotherUdpSourcePortIsTwoBytes) {
    for (const Way& way : ways) {
        const Frame before = build(way.path(), send_only, {});
        Path path = way.path();
        path.set_udp_source(0xcafe);
        Frame after = build(path, send_only, {});
        EXPECT_EQ(after[way.udp()], std::byte{0xca});
        EXPECT_EQ(after[way.udp() + 1], std::byte{0xfe});
        std::copy_n(before.begin() + static_cast<long>(way.udp()), 2, after.begin() + static_cast<long>(way.udp()));
        EXPECT_TRUE(std::equal(before.begin(), before.end() - 4, after.begin()));
    }
}

TEST(RoceFrame, AnOpcodeIsFoundByWhatItSays) {
    for (std::uint8_t low = 0; low < 32; ++low) {
        const Operation& one = operations[low];
        if (one.kind == Kind::none) continue;
        EXPECT_EQ(opcode_of(one.kind, one.first, one.last, one.immediate, one.invalidate), low);
        EXPECT_EQ(one.is_request(), low < 0x0d || low > 0x12) << int{low};
    }
    EXPECT_EQ(opcode_of(Kind::read, false, false), 0xff);
    EXPECT_EQ(opcode_of(Kind::write, true, true, false, true), 0xff) << "a write invalidates nothing";
}

TEST(RoceFrame, OpcodesHaveTheHeadersOfTheSpecification) {
    // IBTA table 38: opcode -> bytes of extension headers.
    const std::pair<unsigned, unsigned> known[] = {
        {0x00, 0},  {0x01, 0},  {0x02, 0},  {0x03, 4},  {0x04, 0},  {0x05, 4},  {0x06, 16}, {0x07, 0},  {0x08, 0},
        {0x09, 4},  {0x0a, 16}, {0x0b, 20}, {0x0c, 16}, {0x0d, 4},  {0x0e, 0},  {0x0f, 4},  {0x10, 4},  {0x11, 4},
        {0x12, 12}, {0x13, 28}, {0x14, 28}, {0x16, 4},  {0x17, 4},  {0x20, 0},  {0x21, 0},  {0x22, 0},  {0x23, 4},
        {0x24, 0},  {0x25, 4},  {0x26, 16}, {0x27, 0},  {0x28, 0},  {0x29, 4},  {0x2a, 16}, {0x2b, 20}, {0x64, 8},
        {0x65, 12}, {0xa0, 4},  {0xa1, 4},  {0xa2, 4},  {0xa3, 8},  {0xa4, 4},  {0xa5, 8},  {0xa6, 20}, {0xa7, 4},
        {0xa8, 4},  {0xa9, 8},  {0xaa, 20}, {0xab, 24}, {0xac, 20}, {0xad, 4},  {0xae, 0},  {0xaf, 4},  {0xb0, 4},
        {0xb1, 4},  {0xb2, 12}, {0xb3, 32}, {0xb4, 32}, {0xb6, 8},  {0xb7, 8},
        // DC: RD's of table 38 (RDETH and DETH, or RDETH alone), and what RD has not.
        {0x40, 12}, {0x41, 12}, {0x42, 12}, {0x43, 16}, {0x44, 12}, {0x45, 16}, {0x46, 28}, {0x47, 12}, {0x48, 12},
        {0x49, 16}, {0x4a, 28}, {0x4b, 32}, {0x4c, 28}, {0x4d, 8},  {0x4e, 4},  {0x4f, 8},  {0x50, 8},  {0x51, 8},
        {0x52, 16}, {0x53, 40}, {0x54, 40}, {0x55, 20}, {0x56, 16}, {0x57, 16}, {0x58, 12}};
    std::size_t existing = 0;
    for (unsigned opcode = 0; opcode < 256; ++opcode) {
        existing += operation_of(static_cast<std::uint8_t>(opcode)).kind != Kind::none;
    }
    EXPECT_EQ(existing, std::size(known));
    for (const auto& [opcode, size] : known) {
        const Operation operation = operation_of(static_cast<std::uint8_t>(opcode));
        EXPECT_NE(operation.kind, Kind::none) << opcode;
        EXPECT_EQ(extensions_size(static_cast<ServiceType>(opcode & 0xe0), operation), size) << opcode;
    }
}

TEST(RoceFrame, SequenceNumbersCompareAroundTheCircle) {
    EXPECT_EQ(psn_add(0xffffff, 1), 0U);
    EXPECT_EQ(psn_distance(0xfffffe, 2), 4);
    EXPECT_EQ(psn_distance(2, 0xfffffe), -4);
    EXPECT_EQ(psn_distance(5, 5), 0);
    EXPECT_EQ(psn_distance(5, 0x800004), 0x7fffff) << "half of the circle";
    EXPECT_EQ(psn_distance(5, 0x800005), -0x800000);
}

/// One tag of 802.1Q is a GID's VLAN. No other that the device follows is, and a third tag hides what follows.
TEST(LinkLayerTest, KnowsOneVlan) {
    const auto read = [](std::vector<std::uint8_t> from_type) {
        std::vector<std::uint8_t> frame(12, 2);
        frame.insert(frame.end(), from_type.begin(), from_type.end());
        return read_link_layer(reinterpret_cast<const std::byte*>(frame.data()), frame.size());
    };
    EXPECT_FALSE(read({}).understood);
    EXPECT_FALSE(read({8}).understood);
    const LinkLayer plain = read({8, 0});
    EXPECT_TRUE(plain.understood);
    EXPECT_EQ(plain.vlan, 0);
    EXPECT_EQ(plain.type, 0x0800);
    EXPECT_EQ(plain.size, 14U);
    const LinkLayer tagged = read({0x81, 0, 0xff, 0xfe, 0x86, 0xdd});
    EXPECT_TRUE(tagged.understood);
    EXPECT_EQ(tagged.vlan, 0xffe);
    EXPECT_EQ(tagged.type, 0x86dd);
    EXPECT_EQ(tagged.size, 18U);
    EXPECT_EQ(read({0x81, 0, 0, 5, 8}).type, 0x8100) << "a tag that is cut short";
    EXPECT_FALSE(read({0x88, 0xa8, 0, 5, 8, 0}).understood);
    EXPECT_FALSE(read({0x81, 0, 0, 5, 0x81, 0, 0, 5, 8, 0}).understood);
    EXPECT_FALSE(read({0x88, 0xa8, 0, 5, 0x81, 0, 0, 5, 8, 0}).understood);
}

}  // namespace
}  // namespace ovsdr::soft::roce
