// Modify-header commands made by hand, carried out on frames: what is expected is written byte by byte and summed anew.
#include <gtest/gtest.h>

#include "tests/connectx/entries/edits.hpp"
#include "tests/connectx/entries/stopped.hpp"
#include "tests/unit/connectx/entries/entry_builder.hpp"
#include "tests/unit/connectx/entries/frames.hpp"

namespace ovsdr::connectx::entries {
namespace {

using namespace test;

constexpr FrameKind tcp4{}, udp4{.protocol = 17}, icmp4{.protocol = 1}, tcp6{.ipv6 = true},
    udp6{.ipv6 = true, .protocol = 17}, icmp6{.ipv6 = true, .protocol = 58}, tagged4{.tagged = true},
    tagged6{.ipv6 = true, .tagged = true};
constexpr FrameKind kinds[] = {tcp4, udp4, icmp4, tcp6, udp6, icmp6, tagged4, tagged6};

struct Command {
    unsigned verb, code, shift, length;
    std::uint32_t data;
};

/// Several commands behind one another. `verb` as in the layouts: SET is 2, ADD 3 of format 0; 6 and 7 otherwise.
Bytes list_of(std::initializer_list<Command> commands) {
    Bytes bytes;
    for (const Command& one : commands) {
        std::uint8_t words[8]{};
        put_bits(words, 0, 8, one.verb);
        put_bits(words, 8, 8, one.code);
        put_bits(words, 18, 6, one.shift);
        put_bits(words, 26, 6, one.length);
        put_bits(words, 32, 32, one.data);
        bytes.insert(bytes.end(), words, words + 8);
    }
    return bytes;
}

Bytes edited(unsigned format, const Bytes& commands, const Bytes& frame) {
    Packet packet{.bytes = frame};
    edit(format, commands, packet);
    return packet.bytes;
}

/// `value` of `size` bytes at `at`, the bits of `mask` only.
Bytes written(Bytes frame, std::size_t at, std::size_t size, std::uint64_t value, std::uint64_t mask = ~0ULL) {
    for (std::size_t i = 0; i < size; ++i) {
        const auto byte = static_cast<std::uint8_t>(value >> 8 * (size - 1 - i));
        const auto bits = static_cast<std::uint8_t>(mask >> 8 * (size - 1 - i));
        frame[at + i] = static_cast<std::uint8_t>((frame[at + i] & ~bits) | (byte & bits));
    }
    return frame;
}

enum class In : std::uint8_t { frame, type, ipv4, ipv6, ports, tcp };   ///< where `at` counts from

struct FieldCase {
    const char* name;
    struct {
        unsigned code, shift;
    } format_0, format_1;
    unsigned length;   ///< bits
    std::uint32_t data;
    In in;
    std::size_t at, size;
    std::uint64_t value, mask;
};

const FieldCase field_cases[] = {
    {"dmac high", {0, 16}, {0, 32}, 32, 0xA1A2A3A4, In::frame, 0, 4, 0xA1A2A3A4, ~0ULL},
    {"dmac low", {0, 0}, {1, 48}, 16, 0xA5A6, In::frame, 4, 2, 0xA5A6, ~0ULL},
    {"smac high", {1, 16}, {8, 32}, 32, 0xB1B2B3B4, In::frame, 6, 4, 0xB1B2B3B4, ~0ULL},
    {"smac low", {1, 0}, {9, 48}, 16, 0xB5B6, In::frame, 10, 2, 0xB5B6, ~0ULL},
    {"a byte of smac", {1, 24}, {8, 40}, 8, 0x77, In::frame, 8, 1, 0x77, ~0ULL},
    {"ethertype", {2, 32}, {1, 32}, 16, 0x1234, In::type, 0, 2, 0x1234, ~0ULL},
    {"IPv4 dscp", {4, 0}, {0x0e, 50}, 6, 0x15, In::ipv4, 1, 1, 0x54, 0xFC},
    {"IPv4 ecn", {4, 6}, {0x0e, 48}, 2, 2, In::ipv4, 1, 1, 2, 3},
    {"IPv6 dscp", {4, 0}, {0x0e, 50}, 6, 0x15, In::ipv6, 0, 2, 0x15 << 6, 0x0FC0},
    {"IPv6 ecn", {4, 6}, {0x0e, 48}, 2, 2, In::ipv6, 0, 2, 2 << 4, 0x0030},
    {"TTL", {4, 8}, {0x0e, 40}, 8, 5, In::ipv4, 8, 1, 5, ~0ULL},
    {"hop limit", {4, 8}, {0x0e, 40}, 8, 5, In::ipv6, 7, 1, 5, ~0ULL},
    {"IPv4 source", {3, 0}, {0x40, 32}, 32, 0xC0A80105, In::ipv4, 12, 4, 0xC0A80105, ~0ULL},
    {"IPv4 destination", {3, 32}, {0x41, 32}, 32, 0xFFFFFFFF, In::ipv4, 16, 4, 0xFFFFFFFF, ~0ULL},
    {"bits of IPv4 source", {3, 5}, {0x40, 37}, 9, 0x1FF, In::ipv4, 12, 4, 0x1FF << 5, 0x1FF << 5},
    {"IPv6 source 0", {6, 32}, {0x4c, 32}, 32, 0x01020304, In::ipv6, 8, 4, 0x01020304, ~0ULL},
    {"IPv6 source 1", {6, 0}, {0x4d, 32}, 32, 0x01020304, In::ipv6, 12, 4, 0x01020304, ~0ULL},
    {"IPv6 source 2", {7, 32}, {0x4e, 32}, 32, 0, In::ipv6, 16, 4, 0, ~0ULL},
    {"IPv6 source 3", {7, 0}, {0x4f, 32}, 32, 0x01020304, In::ipv6, 20, 4, 0x01020304, ~0ULL},
    {"IPv6 destination 0", {3, 32}, {0x44, 32}, 32, 0x01020304, In::ipv6, 24, 4, 0x01020304, ~0ULL},
    {"IPv6 destination 1", {3, 0}, {0x45, 32}, 32, 0x01020304, In::ipv6, 28, 4, 0x01020304, ~0ULL},
    {"IPv6 destination 2", {5, 32}, {0x46, 32}, 32, 0xFFFFFFFF, In::ipv6, 32, 4, 0xFFFFFFFF, ~0ULL},
    {"IPv6 destination 3", {5, 0}, {0x47, 32}, 32, 0x01020304, In::ipv6, 36, 4, 0x01020304, ~0ULL},
    {"source port", {8, 0}, {0x18, 48}, 16, 53, In::ports, 0, 2, 53, ~0ULL},
    {"destination port", {8, 16}, {0x18, 32}, 16, 0xFFFF, In::ports, 2, 2, 0xFFFF, ~0ULL},
    {"TCP flags", {8, 48}, {0x19, 48}, 9, 0x111, In::tcp, 12, 2, 0x111, 0x1FF},
    {"TCP sequence", {9, 32}, {0x5e, 32}, 32, 0xDEADBEEF, In::tcp, 4, 4, 0xDEADBEEF, ~0ULL},
    {"TCP acknowledgement", {9, 0}, {0x5f, 32}, 32, 0xDEADBEEF, In::tcp, 8, 4, 0xDEADBEEF, ~0ULL},
};

/// -1: this kind of frame has no such header.
std::ptrdiff_t begin_of(In in, const FrameKind& kind) {
    const bool ports = kind.protocol == 6 || kind.protocol == 17;
    switch (in) {
        case In::frame: return 0;
        case In::type: return static_cast<std::ptrdiff_t>(kind.l3()) - 2;
        case In::ipv4: return kind.ipv6 ? -1 : static_cast<std::ptrdiff_t>(kind.l3());
        case In::ipv6: return kind.ipv6 ? static_cast<std::ptrdiff_t>(kind.l3()) : -1;
        case In::ports: return ports ? static_cast<std::ptrdiff_t>(kind.l4()) : -1;
        case In::tcp: return kind.protocol == 6 ? static_cast<std::ptrdiff_t>(kind.l4()) : -1;
    }
    return -1;
}

void expect_stop(unsigned format, const Bytes& commands, const Bytes& frame, const std::string& name) {
    Packet packet{.bytes = frame};
    try {
        edit(format, commands, packet);
        FAIL() << "went on past " << name;
    } catch (const Stopped& stopped) {
        EXPECT_NE(std::string(stopped.what()).find(name), std::string::npos) << stopped.what();
        EXPECT_EQ(packet.bytes, frame) << name;
    }
}

TEST(Rewrite, SetsEachFieldOfEachPacketWithItsChecksums) {
    unsigned done = 0;
    for (const FieldCase& one : field_cases) {
        for (const FrameKind& kind : kinds) {
            const std::ptrdiff_t begin = begin_of(one.in, kind);
            if (begin < 0) continue;
            const Bytes frame = frame_of(kind);
            const auto at = static_cast<std::size_t>(begin) + one.at;
            const Bytes expected = summed(written(frame, at, one.size, one.value, one.mask), kind);
            ASSERT_NE(expected, frame) << one.name;
            const unsigned length_0 = one.length % 32;
            for (const unsigned format : {0U, 1U, 2U}) {
                const Command command = format == 0
                                            ? Command{2, one.format_0.code, one.format_0.shift, length_0, one.data}
                                            : Command{6, one.format_1.code, one.format_1.shift, one.length, one.data};
                EXPECT_EQ(edited(format, list_of({command}), frame), expected)
                    << one.name << " of format " << format << ", protocol " << unsigned{kind.protocol};
                ++done;
            }
        }
    }
    EXPECT_EQ(done, 3U * (6 * 8 + 6 * 4 + 11 * 4 + 2 * 6 + 3 * 4)) << "fields times kinds of frames that have them";
}

TEST(Rewrite, SetsTheWholeTagOfATaggedPacketOnly) {
    for (const FrameKind& kind : {tagged4, tagged6}) {
        const Bytes expected = written(frame_of(kind), 14, 2, 0xE123);
        EXPECT_EQ(edited(0, list_of({{2, 2, 0, 16, 0xE123}}), frame_of(kind)), expected);
        EXPECT_EQ(edited(1, list_of({{6, 2, 32, 16, 0xE123}}), frame_of(kind)), expected);
        const Bytes vid_only = written(frame_of(kind), 14, 2, 0x123, 0xFFF);
        EXPECT_EQ(edited(1, list_of({{6, 2, 32, 12, 0x123}}), frame_of(kind)), vid_only);
    }
    expect_stop(0, list_of({{2, 2, 0, 12, 7}}), frame_of(tcp4), "the packet has no such header");
}

TEST(Rewrite, AddsModuloTheField) {
    const Bytes frame = frame_of(tcp4);
    const Bytes less = summed(written(frame, 14 + 8, 1, 63), tcp4);
    EXPECT_EQ(edited(0, list_of({{3, 4, 8, 8, 0xFF}}), frame), less);
    EXPECT_EQ(edited(1, list_of({{7, 0x0e, 40, 8, 0xFF}}), frame), less);
    EXPECT_EQ(edited(1, list_of({{7, 0x0e, 40, 8, 0xFFFFFFFF}}), frame), less);
    EXPECT_EQ(edited(2, list_of({{7, 0x0e, 40, 8, 0xFF}}), frame_of(udp6)), written(frame_of(udp6), 14 + 7, 1, 63));
    const Bytes sequence = summed(written(frame, 14 + 20 + 4, 4, 0x010203FF), tcp4);
    EXPECT_EQ(edited(0, list_of({{3, 9, 32, 0, 0xFB}}), frame), sequence);
    EXPECT_EQ(edited(1, list_of({{7, 0x5e, 32, 32, 0xFB}}), frame), sequence);
    expect_stop(1, list_of({{7, 0x18, 48, 16, 1}}), frame, "ADD of field 0x18");
    expect_stop(0, list_of({{3, 8, 0, 16, 1}}), frame, "ADD of field 0x8");
}

/// `verb` 1 of format 0, 5 of the others; the source stands in the second word.
TEST(Rewrite, CopiesBetweenHeadersAndRegisters) {
    const auto copy = [](unsigned verb, unsigned to, unsigned to_shift, unsigned length, unsigned from,
                         unsigned from_shift) {
        return list_of({{verb, to, to_shift, length, from << 16 | from_shift << 8}});
    };
    const Bytes frame = frame_of(tcp4);
    Packet packet{.bytes = frame};
    edit(0, copy(1, 0x0c, 0, 32, 3, 32), packet);   // IPv4 destination into reg_c_1
    EXPECT_EQ(packet.reg_c[1], 0x0A000002U);
    edit(0, copy(1, 3, 0, 16, 0x0c, 0), packet);    // its lower half into the source
    EXPECT_EQ(packet.bytes, summed(written(frame, 14 + 12, 4, 0x0A000002), tcp4));

    packet = {.bytes = frame};
    edit(1, copy(5, 0x91, 40, 16, 0x18, 32), packet);   // destination port into bits 8 to 23 of reg_c_1
    EXPECT_EQ(packet.reg_c[1], 2000U << 8);
    edit(1, copy(5, 0x18, 48, 16, 0x91, 40), packet);   // and on to the source port
    EXPECT_EQ(packet.bytes, summed(written(frame, 14 + 20, 2, 2000), tcp4));
    EXPECT_EQ(packet.reg_c[0], 0U);

    packet = {.bytes = frame};
    packet.reg_c[1] = 0x00004321;
    edit(2, copy(5, 0x18, 48, 16, 0x95, 32), packet);
    EXPECT_EQ(packet.bytes, summed(written(frame, 14 + 20, 2, 0x4321), tcp4));
}

TEST(Rewrite, LeavesAnAbsentUdpChecksumAbsentAndNeverMakesOneAbsent) {
    for (const FrameKind& kind : {udp4, udp6}) {
        const Bytes absent = written(frame_of(kind), kind.l4_checksum(), 2, 0);
        EXPECT_EQ(edited(1, list_of({{6, 0x18, 48, 16, 53}}), absent), written(absent, kind.l4(), 2, 53));
    }
    // A source port that makes the sum 0: the checksum says 0xFFFF.
    Bytes frame = frame_of(udp4);
    const auto checksum = static_cast<std::uint32_t>(frame[udp4.l4_checksum()] << 8 | frame[udp4.l4_checksum() + 1]);
    const std::uint32_t port = (1000 + checksum) % 0xFFFF;
    const Bytes expected = summed(written(frame, udp4.l4(), 2, port), udp4);
    ASSERT_EQ(expected[udp4.l4_checksum()], 0xFF);
    ASSERT_EQ(expected[udp4.l4_checksum() + 1], 0xFF);
    EXPECT_EQ(edited(0, list_of({{2, 8, 0, 16, port}}), frame), expected);
    EXPECT_EQ(edited(0, list_of({{2, 8, 0, 16, 1000}}), expected), frame) << "and back";
}

TEST(Rewrite, LeavesAWrongChecksumAsWrongAsItWas) {
    for (const FrameKind& kind : {tcp4, udp4, tcp6, udp6}) {
        Bytes wrong = frame_of(kind);
        wrong[kind.l4_checksum()] ^= 0x40;
        const Bytes once = edited(1, list_of({{6, 0x18, 48, 16, 53}}), wrong);
        EXPECT_NE(once, summed(once, kind));
        EXPECT_EQ(edited(1, list_of({{6, 0x18, 48, 16, 1000}}), once), wrong);
    }
    Bytes wrong = frame_of(tcp4);
    wrong[14 + 10] ^= 0x40;
    const Bytes once = edited(1, list_of({{6, 0x0e, 40, 8, 5}}), wrong);
    EXPECT_EQ(once[14 + 8], 5);
    EXPECT_NE(once, summed(once, tcp4));
    EXPECT_EQ(edited(1, list_of({{6, 0x0e, 40, 8, 64}}), once), wrong);
    EXPECT_EQ(edited(1, list_of({{6, 0x0e, 40, 8, 64}}), wrong), wrong) << "what is written was there";
    // All ones is a sum of 0, too: a write that changes nothing must not touch it.
    wrong = written(frame_of(tcp4), 14 + 10, 2, 0xFFFF);
    EXPECT_EQ(edited(1, list_of({{6, 0x0e, 40, 8, 64}}), wrong), wrong);
}

TEST(Rewrite, FindsTheFirstOfTwoTags) {
    Bytes frame = frame_of(tagged4);
    const Bytes second{0x81, 0, 0, 7};
    frame.insert(frame.begin() + 16, second.begin(), second.end());
    EXPECT_EQ(edited(0, list_of({{2, 2, 0, 16, 0xE123}}), frame), written(frame, 14, 2, 0xE123));
    EXPECT_EQ(edited(1, list_of({{6, 1, 32, 16, 0x9999}}), frame), written(frame, 20, 2, 0x9999)) << "the ethertype";
}

TEST(Rewrite, MendsBehindExtensionHeadersAndOptions) {
    // A destination options header between IPv6 and UDP.
    Bytes frame = frame_of(udp6);
    const Bytes plain = edited(1, list_of({{6, 0x4f, 32, 32, 0x11223344}}), frame);
    const Bytes options{17, 0, 1, 4, 0, 0, 0, 0};
    const auto with_options = [&options](Bytes whole) {
        whole.insert(whole.begin() + 54, options.begin(), options.end());
        whole[14 + 5] = static_cast<std::uint8_t>(whole[14 + 5] + 8);
        whole[14 + 6] = 60;
        return whole;
    };
    EXPECT_EQ(edited(1, list_of({{6, 0x4f, 32, 32, 0x11223344}}), with_options(frame)), with_options(plain));
    // Four bytes of options in IPv4.
    frame = frame_of(tcp4);
    const auto with_nops = [](Bytes whole) {
        whole.insert(whole.begin() + 34, 4, 1);
        whole[14] = 0x46;
        whole[14 + 3] = static_cast<std::uint8_t>(whole[14 + 3] + 4);
        whole[24] = whole[25] = 0;
        put_sum(whole, 24, sum_of(whole, 14, 38));
        return whole;
    };
    const Bytes ports = edited(0, list_of({{2, 8, 16, 16, 80}}), frame);
    EXPECT_EQ(edited(0, list_of({{2, 8, 16, 16, 80}}), with_nops(frame)), with_nops(ports));
}

TEST(Rewrite, DoesAListInItsOrderWithGaps) {
    const Bytes frame = frame_of(tcp4);
    Bytes expected = written(frame, 0, 6, 0xA1A2A3A4A5A6);
    EXPECT_EQ(edited(0, list_of({{2, 0, 16, 0, 0xA1A2A3A4}, {}, {2, 0, 0, 16, 0xA5A6}}), frame), expected);
    // The ethertype first: the IP header is still where it was, until an entry parses again.
    expected = summed(written(written(frame, 12, 2, 0x9999), 14 + 8, 1, 9), tcp4);
    EXPECT_EQ(edited(1, list_of({{6, 1, 32, 16, 0x9999}, {6, 0x0e, 40, 8, 9}}), frame), expected);
}

TEST(Rewrite, StopsWhereNobodySaysWhatHappens) {
    const Bytes frame = frame_of(tcp4);
    const auto no_header = "the packet has no such header";
    expect_stop(1, list_of({{6, 0x44, 32, 32, 1}}), frame, no_header);
    expect_stop(1, list_of({{6, 0x40, 32, 32, 1}}), frame_of(tcp6), no_header);
    expect_stop(0, list_of({{2, 6, 0, 0, 1}}), frame, no_header);
    expect_stop(0, list_of({{2, 8, 0, 16, 1}}), frame_of(icmp4), no_header);
    expect_stop(1, list_of({{6, 0x19, 48, 9, 1}}), frame_of(udp4), no_header);
    expect_stop(1, list_of({{6, 0x18, 48, 17, 1}}), frame, ": 17 bits at 48");
    expect_stop(0, list_of({{2, 8, 40, 16, 1}}), frame, "not all of these bits");
    expect_stop(1, list_of({{6, 0x33, 32, 32, 1}}), frame, "SET of field 0x33");
    expect_stop(1, list_of({{8, 0x18, 48, 16, 1}}), frame, "modify-header action 0x8");
    expect_stop(0, list_of({{2, 0x11, 0, 16, 1}}), frame, "SET of field 0x11");
    // The second of a pair on a window of the first: the first is done already.
    Packet packet{.bytes = frame};
    EXPECT_THROW(edit(0, list_of({{2, 0, 16, 0, 1}, {2, 0, 0, 16, 1}}), packet), Stopped);
    EXPECT_THROW(edit(1, list_of({{6, 0x91, 32, 32, 1}, {5, 0x90, 32, 32, 0x91 << 16 | 32 << 8}}), packet), Stopped);
}

TEST(Rewrite, StopsAtAddressesWhoseChecksumIsNotThere) {
    for (const std::uint8_t flags : {0x20, 0x00}) {   // first and later fragment
        Bytes fragment = frame_of(udp4);
        fragment[14 + 6] = flags;
        fragment[14 + 7] = flags == 0 ? 1 : 0;
        expect_stop(1, list_of({{6, 0x40, 32, 32, 1}}), fragment, "an address of a fragment");
        EXPECT_NE(edited(1, list_of({{6, 0x0e, 40, 8, 1}}), fragment), fragment) << "its TTL is another matter";
        expect_stop(1, list_of({{6, 0x18, 48, 16, 1}}), fragment, "the packet has no such header");
    }
    Bytes cut = frame_of(tcp4);
    cut[14 + 3] = 20 + 19;
    expect_stop(0, list_of({{2, 3, 0, 0, 1}}), cut, "cut short");
    Bytes routed = frame_of(udp6);
    const Bytes header{17, 0, 0, 1, 0, 0, 0, 0};   // one segment left
    routed.insert(routed.begin() + 54, header.begin(), header.end());
    routed[14 + 5] = static_cast<std::uint8_t>(routed[14 + 5] + 8);
    routed[14 + 6] = 43;
    expect_stop(1, list_of({{6, 0x47, 32, 32, 1}}), routed, "before a routing header");
    EXPECT_NE(edited(1, list_of({{6, 0x4f, 32, 32, 1}}), routed), routed);
}

}  // namespace
}  // namespace ovsdr::connectx::entries
