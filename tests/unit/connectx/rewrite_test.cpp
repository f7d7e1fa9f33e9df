// Modify-header actions through the system's own libmlx5: what it lets through on each profile, and what the entries
// that it writes do to packets. Runs under tests/connectx/run, for each profile.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/unit/connectx/forwarding.hpp"

namespace ovsdr::connectx {
namespace {

using namespace test;
using entries::test::Bytes;
using entries::test::frame_of;
using entries::test::FrameKind;
using entries::test::summed;

constexpr FrameKind tcp4{}, udp4{.protocol = 17}, icmp4{.protocol = 1}, tcp6{.ipv6 = true},
    udp6{.ipv6 = true, .protocol = 17}, icmp6{.ipv6 = true, .protocol = 58}, tagged4{.tagged = true},
    tagged6{.ipv6 = true, .tagged = true};
constexpr FrameKind kinds[] = {tcp4, udp4, icmp4, tcp6, udp6, icmp6, tagged4, tagged6};

enum class In : std::uint8_t { frame, type, tag, ipv4, ipv6, tcp, udp, reg_c, other_register, nothing };
enum class Adds : bool { no, yes };

/// Source: PRM, modify-header fields; RFCs. `at`: byte in the header; `low`: bits of `size` bytes below the field.
struct FieldCase {
    std::uint16_t id;
    const char* name;
    unsigned length;
    In in;
    std::size_t at = 0, size = 4;
    unsigned low = 0;
    Adds adds = Adds::no;
};

const FieldCase fields[] = {
    {0x01, "smac_47_16", 32, In::frame, 6},
    {0x02, "smac_15_0", 16, In::frame, 10, 2},
    {0x03, "ethertype", 16, In::type, 0, 2},
    {0x04, "dmac_47_16", 32, In::frame, 0},
    {0x05, "dmac_15_0", 16, In::frame, 4, 2},
    {0x06, "ip_dscp", 6, In::ipv4, 1, 1, 2},
    {0x06, "ip_dscp", 6, In::ipv6, 0, 2, 6},
    {0x07, "tcp_flags", 9, In::tcp, 12, 2},
    {0x08, "tcp_sport", 16, In::tcp, 0, 2},
    {0x09, "tcp_dport", 16, In::tcp, 2, 2},
    {0x0a, "ip_ttl", 8, In::ipv4, 8, 1, 0, Adds::yes},
    {0x0b, "udp_sport", 16, In::udp, 0, 2},
    {0x0c, "udp_dport", 16, In::udp, 2, 2},
    {0x0d, "sipv6_127_96", 32, In::ipv6, 8},
    {0x0e, "sipv6_95_64", 32, In::ipv6, 12},
    {0x0f, "sipv6_63_32", 32, In::ipv6, 16},
    {0x10, "sipv6_31_0", 32, In::ipv6, 20},
    {0x11, "dipv6_127_96", 32, In::ipv6, 24},
    {0x12, "dipv6_95_64", 32, In::ipv6, 28},
    {0x13, "dipv6_63_32", 32, In::ipv6, 32},
    {0x14, "dipv6_31_0", 32, In::ipv6, 36},
    {0x15, "sipv4", 32, In::ipv4, 12},
    {0x16, "dipv4", 32, In::ipv4, 16},
    {0x17, "first_vid", 16, In::tag, 2, 2},
    {0x47, "ipv6_hoplimit", 8, In::ipv6, 7, 1, 0, Adds::yes},
    {0x49, "metadata_reg_a", 32, In::other_register},
    {0x50, "metadata_reg_b", 32, In::other_register},
    {0x51, "metadata_reg_c_0", 32, In::reg_c, 0},
    {0x52, "metadata_reg_c_1", 32, In::reg_c, 1},
    {0x53, "metadata_reg_c_2", 32, In::reg_c, 2},
    {0x54, "metadata_reg_c_3", 32, In::reg_c, 3},
    {0x55, "metadata_reg_c_4", 32, In::reg_c, 4},
    {0x56, "metadata_reg_c_5", 32, In::reg_c, 5},
    {0x59, "tcp_seq_num", 32, In::tcp, 4, 4, 0, Adds::yes},
    {0x5b, "tcp_ack_num", 32, In::tcp, 8, 4, 0, Adds::yes},
    {0x6e, "gtpu_teid", 32, In::nothing},
    {0x73, "ip_ecn", 2, In::ipv4, 1, 1, 0},
    {0x73, "ip_ecn", 2, In::ipv6, 0, 2, 4},
};

/// -1: this kind of frame has no such header.
std::ptrdiff_t begin_of(In in, const FrameKind& kind) {
    const auto when = [](bool there, std::size_t at) { return there ? static_cast<std::ptrdiff_t>(at) : -1; };
    switch (in) {
        case In::frame:
        case In::reg_c: return 0;
        case In::type: return when(true, kind.l3() - 2);
        case In::tag: return when(kind.tagged, 12);
        case In::ipv4: return when(!kind.ipv6, kind.l3());
        case In::ipv6: return when(kind.ipv6, kind.l3());
        case In::tcp: return when(kind.protocol == 6, kind.l4());
        case In::udp: return when(kind.protocol == 17, kind.l4());
        default: return -1;
    }
}

/// set_action_in, add_action_in, copy_action_in: the type in four bits, the field in twelve, offset, length, data.
__be64 command(unsigned type, unsigned field, unsigned offset, unsigned length, std::uint32_t data) {
    return htobe64(std::uint64_t{type} << 60 | std::uint64_t{field} << 48 | std::uint64_t{offset} << 40 |
                   std::uint64_t{length % 32} << 32 | data);
}
__be64 set(unsigned field, std::uint32_t data, unsigned length = 32, unsigned offset = 0) {
    return command(1, field, offset, length, data);
}
__be64 add(unsigned field, std::uint32_t data) { return command(2, field, 0, 0, data); }
__be64 copy(unsigned from, unsigned to, unsigned length, unsigned from_offset = 0, unsigned to_offset = 0) {
    return command(3, from, from_offset, length, to << 16 | to_offset << 8);
}

/// Bits of `value` into a frame, most significant byte first.
Bytes written(Bytes frame, std::size_t at, std::size_t size, std::uint64_t value, std::uint64_t mask) {
    for (std::size_t i = 0; i < size; ++i) {
        const std::size_t down = 8 * (size - 1 - i);
        const auto bits = static_cast<std::uint8_t>(mask >> down);
        const auto byte = static_cast<std::uint8_t>(value >> down);
        frame[at + i] = static_cast<std::uint8_t>((frame[at + i] & ~bits) | (byte & bits));
    }
    return frame;
}

std::uint64_t low_bits(unsigned length) { return (std::uint64_t{1} << length) - 1; }

class Rewriting : public Forwarding {
protected:
    void SetUp() override {
        MatchParam both;
        both.number(source_port_at, 0xFFFF, 2).number(smac_at, 0xFFFF'FFFF'FFFF, 6);
        make_tables(both, outer_and_misc);
    }

    Action make(std::vector<__be64> commands) {
        errno = 0;
        return Action(mlx5dv_dr_action_create_modify_header(domain_.get(), 0, commands.size() * 8, commands.data()));
    }
    /// For all frames of frame_of() from there. `actions` and then out at to_vf.
    Rule rule(std::uint16_t source, std::vector<mlx5dv_dr_action*> actions) {
        MatchParam value;
        value.number(source_port_at, source, 2).number(smac_at, 0x0200'0000'0001, 6);
        return rule_for(value, std::move(actions));
    }
    /// What the list makes of the packet, from the wire and from a VF alike.
    entries::Packet rewritten(const std::vector<__be64>& commands, const Bytes& frame) {
        const Action modify = make(commands);
        EXPECT_NE(modify, nullptr) << strerror(errno);
        if (modify == nullptr) return {};
        const Rule from_wire = rule(wire, {modify.get()}), from_vport = rule(from_vf, {modify.get()});
        EXPECT_TRUE(from_wire != nullptr && from_vport != nullptr) << strerror(errno);
        entries::Packet packet = forwarded(wire, frame);
        EXPECT_EQ(forwarded(from_vf, frame).bytes, packet.bytes);
        return packet;
    }
    [[nodiscard]] int refusal(std::vector<__be64> commands) { return make(std::move(commands)) ? 0 : errno; }
};

TEST_F(Rewriting, SetsEachFieldOfEachPacket) {
    for (const FieldCase& field : fields) {
        if (field.in == In::other_register || field.in == In::nothing) continue;
        const std::uint32_t value = static_cast<std::uint32_t>(0x5A3C'691EU & low_bits(field.length));
        for (const FrameKind& kind : kinds) {
            const std::ptrdiff_t begin = begin_of(field.in, kind);
            if (begin < 0) continue;
            SCOPED_TRACE(field.name);
            const Bytes frame = frame_of(kind);
            const entries::Packet packet = rewritten({set(field.id, value, field.length)}, frame);
            if (field.in == In::reg_c) {
                EXPECT_EQ(packet.reg_c[field.at], value);
                EXPECT_EQ(packet.bytes, frame);
                continue;
            }
            const Bytes expected = summed(written(frame, static_cast<std::size_t>(begin) + field.at, field.size,
                                                  std::uint64_t{value} << field.low,
                                                  low_bits(field.length) << field.low), kind);
            ASSERT_NE(expected, frame);
            EXPECT_EQ(packet.bytes, expected);
        }
    }
}

TEST_F(Rewriting, SetsPartsOfAField) {
    for (const FieldCase& field : fields) {
        if (field.in == In::other_register || field.in == In::nothing || field.in == In::reg_c) continue;
        const unsigned offset = field.length > 2 ? 1 : 0, length = std::max(1U, field.length / 2);
        for (const FrameKind& kind : kinds) {
            const std::ptrdiff_t begin = begin_of(field.in, kind);
            if (begin < 0) continue;
            SCOPED_TRACE(field.name);
            const Bytes frame = frame_of(kind);
            for (const std::uint32_t value : {0U, 0xFFFF'FFFFU}) {
                const auto part = static_cast<std::uint32_t>(value & low_bits(length));
                const entries::Packet packet = rewritten({set(field.id, part, length, offset)}, frame);
                EXPECT_EQ(packet.bytes, summed(written(frame, static_cast<std::size_t>(begin) + field.at, field.size,
                                                       std::uint64_t{part} << offset << field.low,
                                                       low_bits(length) << offset << field.low), kind));
            }
        }
    }
}

TEST_F(Rewriting, AddsAndCopies) {
    Bytes frame = frame_of(tcp4);
    EXPECT_EQ(rewritten({add(0x0a, 0xFF)}, frame).bytes, summed(written(frame, 14 + 8, 1, 63, 0xFF), tcp4));
    EXPECT_EQ(rewritten({add(0x59, 0xFB)}, frame).bytes, summed(written(frame, 34 + 4, 4, 0x010203FF, ~0ULL), tcp4));
    EXPECT_EQ(rewritten({copy(0x16, 0x15, 32)}, frame).bytes, summed(written(frame, 26, 4, 0x0A000002, ~0ULL), tcp4));
    EXPECT_EQ(rewritten({copy(0x09, 0x08, 16)}, frame).bytes, summed(written(frame, 34, 2, 2000, ~0ULL), tcp4));
    EXPECT_EQ(rewritten({copy(0x16, 0x52, 16, 4, 8)}, frame).reg_c[1], (0x0A000002U >> 4 & 0xFFFF) << 8);
    EXPECT_EQ(rewritten({set(0x52, 0x1234), copy(0x52, 0x08, 16)}, frame).bytes,
              summed(written(frame, 34, 2, 0x1234, ~0ULL), tcp4));
    frame = frame_of(udp6);
    EXPECT_EQ(rewritten({add(0x47, 0xFF)}, frame).bytes, written(frame, 14 + 7, 1, 63, 0xFF));
    EXPECT_EQ(rewritten({copy(0x14, 0x10, 32)}, frame).bytes,
              summed(written(frame, 14 + 20, 4, 0xACB1B6BB, ~0ULL), udp6));
}

/// All that a router with address translation changes, in one list.
std::vector<__be64> whole_list(std::uint8_t seed) {
    const std::uint32_t word = 0x01010101U * seed;
    std::vector<__be64> commands{set(0x04, word), set(0x05, word & 0xFFFF, 16), set(0x01, ~word),
                                 set(0x02, ~word & 0xFFFF, 16), set(0x06, seed & 63U, 6), set(0x73, seed & 3U, 2),
                                 set(0x47, seed, 8), set(0x0b, 7000U + seed, 16), set(0x0c, 8000U + seed, 16)};
    for (unsigned field = 0x0d; field <= 0x14; ++field) commands.push_back(set(field, word ^ field << 8));
    return commands;
}

Bytes after_whole_list(std::uint8_t seed) {
    Bytes frame = frame_of(udp6);
    const std::uint32_t word = 0x01010101U * seed;
    frame = written(frame, 0, 6, std::uint64_t{word} << 16 | (word & 0xFFFF), ~0ULL);
    frame = written(frame, 6, 6, std::uint64_t{~word} << 16 | (~word & 0xFFFF), ~0ULL);
    frame = written(frame, 14, 2, (seed & 63U) << 6 | (seed & 3U) << 4, 0x0FF0);
    frame = written(frame, 14 + 7, 1, seed, ~0ULL);
    for (unsigned field = 0x0d; field <= 0x14; ++field) {
        frame = written(frame, 14 + 8 + 4 * (field - 0x0d), 4, word ^ field << 8, ~0ULL);
    }
    frame = written(frame, 54, 4, (7000U + seed) << 16 | (8000U + seed), ~0ULL);
    return summed(frame, udp6);
}

TEST_F(Rewriting, DoesLongListsAndKeepsThemApart) {
    // Alive together: on a ConnectX-7 they share a pattern.
    const Action one = make(whole_list(0x11)), other = make(whole_list(0x22));
    ASSERT_TRUE(one != nullptr && other != nullptr) << strerror(errno);
    const Rule from_wire = rule(wire, {one.get()}), from_vport = rule(from_vf, {other.get()});
    ASSERT_TRUE(from_wire != nullptr && from_vport != nullptr) << strerror(errno);
    EXPECT_EQ(forwarded(wire, frame_of(udp6)).bytes, after_whole_list(0x11));
    EXPECT_EQ(forwarded(from_vf, frame_of(udp6)).bytes, after_whole_list(0x22));
}

TEST_F(Rewriting, RewritesBetweenPopAndPush) {
    const bool connectx_5 = device()->steering_format() == 0;
    const Action pop(mlx5dv_dr_action_create_pop_vlan());
    const Action push(mlx5dv_dr_action_create_push_vlan(domain_.get(), htobe32(0x88A80123)));
    const Action modify = make({set(0x15, 0xC0A80105), set(0x0a, 5, 8)});
    ASSERT_TRUE(pop != nullptr && push != nullptr && modify != nullptr) << strerror(errno);
    const Bytes plain = summed(written(written(frame_of(tcp4), 26, 4, 0xC0A80105, ~0ULL), 22, 1, 5, 0xFF), tcp4);
    Bytes pushed = plain;
    pushed.insert(pushed.begin() + 12, {0x88, 0xA8, 0x01, 0x23});
    {
        const Rule popping = rule(wire, {pop.get(), modify.get()});
        ASSERT_NE(popping, nullptr) << strerror(errno);
        EXPECT_EQ(forwarded(wire, frame_of(tagged4)).bytes, plain);
    }
    const Rule pushing = rule(from_vf, {modify.get(), push.get()});
    ASSERT_NE(pushing, nullptr) << strerror(errno);
    EXPECT_EQ(forwarded(from_vf, frame_of(tcp4)).bytes, pushed);
    if (connectx_5) return;   // from vports it pops nothing, and from the wire it pushes nothing
    const Rule from_wire = rule(wire, {modify.get(), push.get()});
    ASSERT_NE(from_wire, nullptr) << strerror(errno);
    EXPECT_EQ(forwarded(wire, frame_of(tcp4)).bytes, pushed);
}

/// The table that offload/ goes by; its lines are the answer to "which fields may a compiler write on this device".
TEST_F(Rewriting, LetsTheseFieldsThroughAndNoOthers) {
    const char* const profile = std::getenv("OVSDR_CONNECTX_PROFILE");
    const auto text = [](int error) { return error == 0 ? "yes" : strerrorname_np(error); };
    std::uint16_t before = 0;
    for (const FieldCase& field : fields) {
        if (field.id == before) continue;
        before = field.id;
        const bool of_fdb = field.in != In::other_register && field.in != In::nothing;
        const int sets = refusal({set(field.id, 1, field.length)}), adds = refusal({add(field.id, 1)}),
                  copies_from = refusal({copy(field.id, 0x52, field.length)}),
                  copies_to = refusal({copy(0x52, field.id, field.length)});
        std::printf("%-5s %#04x %-16s %2u bits: SET %-7s ADD %-7s COPY from %-7s COPY to %s\n", profile, field.id,
                    field.name, field.length, text(sets), text(adds), text(copies_from), text(copies_to));
        EXPECT_EQ(sets, of_fdb ? 0 : EINVAL) << field.name;
        EXPECT_EQ(adds, field.adds == Adds::yes ? 0 : EINVAL) << field.name;
        EXPECT_EQ(copies_from, of_fdb ? 0 : EINVAL) << field.name;
        EXPECT_EQ(copies_to, of_fdb ? 0 : EINVAL) << field.name;
        const bool whole_word = field.length == 32;
        EXPECT_EQ(refusal({set(field.id, 1, whole_word ? 32 : 1, whole_word ? 1 : field.length)}), EINVAL)
            << field.name << ": a bit above it";
    }
    for (unsigned id = 0; id < 0x1000; ++id) {
        const bool known = std::any_of(std::begin(fields), std::end(fields),
                                       [id](const FieldCase& field) { return field.id == id; });
        if (known) continue;
        EXPECT_EQ(refusal({set(id, 1, 1)}), EINVAL) << "field " << id;
    }
    EXPECT_EQ(refusal({set(0x15, 1), set(0x10, 1)}), ENOTSUP) << "IPv4 with IPv6 addresses";
    EXPECT_EQ(refusal({set(0x0a, 1, 8), set(0x47, 1, 8)}), ENOTSUP) << "TTL with hop limit";
    EXPECT_EQ(refusal({set(0x08, 1, 16), set(0x0c, 1, 16)}), EINVAL) << "TCP with UDP";
    EXPECT_EQ(refusal({command(4, 0x01, 0, 1, 1)}), EOPNOTSUPP) << "another kind of action";
    EXPECT_EQ(refusal({}), EINVAL);
}

/// Of a ConnectX-7 arguments set the limit; elsewhere libmlx5 knows none below the 255 that an entry can name.
TEST_F(Rewriting, TakesListsUpToALength) {
    std::vector<__be64> commands;
    const auto add_one = [&commands] {
        commands.push_back(set(0x51 + commands.size() % 6, static_cast<std::uint32_t>(commands.size())));
    };
    while (commands.size() < 64) add_one();
    EXPECT_EQ(refusal(commands), 0);
    add_one();
    EXPECT_EQ(refusal(commands), device()->steering_format() == 2 ? EINVAL : 0);
}

}   // namespace
}   // namespace ovsdr::connectx
