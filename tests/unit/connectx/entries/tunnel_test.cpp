// Entries made by hand, executed on packets in tunnels. What libmlx5 writes is in ../decapsulation_test.cpp.
#include <gtest/gtest.h>

#include "tests/connectx/entries/stopped.hpp"
#include "tests/connectx/entries/walker.hpp"
#include "tests/unit/connectx/entries/entry_builder.hpp"
#include "tests/unit/connectx/tunnel_frames.hpp"

namespace ovsdr::connectx::entries {
namespace {

using namespace entries::test;
namespace tunnel = ovsdr::dr::test;
using ovsdr::connectx::test::encapsulated;
using ovsdr::connectx::test::geneve_with;
using ovsdr::connectx::test::readdressed;
using ovsdr::connectx::test::tagged;
using Bytes = entries::test::Bytes;

constexpr std::uint64_t first = 0x1000000, second = 0x2000000, out = 0x5000000040, missed = 0x5100000000;

template <std::size_t size>
std::array<std::uint8_t, size> field(unsigned offset, unsigned length, std::uint64_t value) {
    std::array<std::uint8_t, size> bytes{};
    put_bits(bytes.data(), offset, length, value);
    return bytes;
}

class TunnelWalk : public ::testing::Test {
protected:
    std::uint64_t run(EntryMemory memory) {
        memory.geneve_option = GeneveOption{0x0102, 0x80, 1};
        Walker walker(memory, [this](std::uint32_t, std::size_t bytes) { counted_.push_back(bytes); });
        return walker.run(first, packet_);
    }

    Icm icm_;
    Packet packet_;
    std::vector<std::size_t> counted_;
};

enum class In : std::uint8_t { vxlan, piece, tcp6, geneve, gre };

/// TCP over IPv4 in two tags.
Bytes tagged_inside() {
    Bytes inside = readdressed(tagged(frame_of({.tagged = true}), 0x88, 9));
    inside[14] = 0xB0;   // priority 5, CFI
    return inside;
}

/// Nothing inside a VXLAN has the value of its field outside.
Bytes frame_in(In in) {
    const Bytes inside = tagged_inside();
    Bytes piece = inside;
    piece[14 + 8 + 6] = 0x20;
    switch (in) {
        case In::vxlan: return encapsulated(tunnel::vxlan_over(tunnel::outer_ipv6(17), 0xA1B2C3), inside);
        case In::piece: return encapsulated(tunnel::vxlan(), piece);
        case In::tcp6: return encapsulated(tunnel::vxlan(), frame_of({.ipv6 = true}));
        case In::geneve: return encapsulated(geneve_with({1, 2, 0x80, 1, 0xD1, 0xD2, 0xD3, 0xD4}), inside);
        case In::gre: return encapsulated(tunnel::gre(tunnel::outer_ipv4(47), 0xB000), inside);
    }
    return {};
}

struct FieldCase {
    const char* name;
    unsigned format;
    std::uint16_t lookup;
    unsigned offset, length;
    std::uint64_t value;
    In in = In::vxlan;
};

const FieldCase field_cases[] = {
    {"vni", 0, 0x0a, 64, 24, 0xA1B2C3},           {"vni", 1, 0x002, 0, 24, 0xA1B2C3},
    {"tunnel dmac", 0, 0x0a, 0, 48, 0x0E1D2C3B4A59}, {"tunnel dmac", 1, 0x002, 32, 48, 0x0E1D2C3B4A59},
    {"tunnel type", 0, 0x0a, 48, 16, 0x0800},     {"tunnel type", 1, 0x002, 80, 16, 0x0800},
    {"tunnel fragment", 0, 0x0a, 96, 1, 1, In::piece}, {"tunnel fragment", 1, 0x002, 99, 1, 1, In::piece},
    {"tunnel priority", 0, 0x0a, 104, 3, 5},      {"tunnel priority", 1, 0x002, 112, 3, 5},
    {"tunnel cfi", 0, 0x0a, 107, 1, 1},           {"tunnel cfi", 1, 0x002, 115, 1, 1},
    {"tunnel l3", 0, 0x0a, 100, 2, 1},            {"tunnel l3", 1, 0x002, 106, 2, 1},
    {"tunnel qualifier", 0, 0x0a, 112, 2, 1},     {"tunnel qualifier", 1, 0x002, 110, 2, 1},
    {"tunnel vid", 0, 0x0a, 116, 12, 9},          {"tunnel vid", 1, 0x002, 116, 12, 9},
    {"dmac", 0, 0x07, 0, 48, 0x0E1D2C3B4A59},     {"dmac", 1, 0x004, 32, 48, 0x0E1D2C3B4A59},
    {"second vid", 0, 0x07, 116, 12, 5},          {"second vid", 1, 0x004, 116, 12, 5},
    {"smac", 0, 0x09, 0, 48, 0x0A1B2C3D4E5F},     {"smac", 1, 0x006, 32, 48, 0x0A1B2C3D4E5F},
    {"second priority", 0, 0x09, 108, 3, 3},      {"second priority", 1, 0x006, 112, 3, 3},
    {"both smac", 0, 0x37, 48, 48, 0x0A1B2C3D4E5F}, {"both smac", 1, 0x00c, 112, 16, 0x4E5F},
    {"source", 0, 0x12, 32, 32, 0x0A000001},      {"source", 1, 0x008, 0, 32, 0x0A000001},
    {"ttl", 0, 0x2a, 64, 8, 64},                  {"ttl", 1, 0x00f, 72, 8, 64},
    {"tcp sequence", 0, 0x2d, 32, 32, 0x01020304}, {"tcp sequence", 1, 0x114, 64, 32, 0x01020304},
    {"v6 destination", 0, 0x0e, 96, 32, 0xACB1B6BB, In::tcp6},
    {"v6 destination", 1, 0x108, 96, 32, 0xACB1B6BB, In::tcp6},
    {"v6 source", 0, 0x10, 0, 32, 0x20252A2F, In::tcp6}, {"v6 source", 1, 0x10a, 0, 32, 0x20252A2F, In::tcp6},
    {"flow label", 0, 0x14, 108, 20, 0xABCDE, In::tcp6}, {"flow label", 1, 0x00a, 76, 20, 0xABCDE, In::tcp6},
    {"words", 0, 0x34, 0, 64, 0x08000000A1B2C300}, {"words", 1, 0x00e, 0, 64, 0x08000000A1B2C300},
    {"words", 1, 0x117, 0, 64, 0x0240655800000100, In::geneve}, {"word", 1, 0x00e, 0, 32, 0xB0006558, In::gre},
    {"options length", 0, 0x19, 2, 6, 2, In::geneve}, {"options length", 1, 0x00e, 2, 6, 2, In::geneve},
    {"oam", 0, 0x19, 8, 1, 0, In::geneve},        {"oam", 1, 0x00e, 8, 1, 0, In::geneve},
    {"protocol", 0, 0x19, 16, 16, 0x6558, In::geneve}, {"protocol", 1, 0x00e, 16, 16, 0x6558, In::geneve},
    {"geneve vni", 0, 0x19, 32, 24, 1, In::geneve}, {"geneve vni", 1, 0x00e, 32, 24, 1, In::geneve},
    {"option", 0, 0x23, 32, 32, 0xD1D2D3D4, In::geneve}, {"option", 1, 0x112, 32, 32, 0xD1D2D3D4, In::geneve},
    {"exists", 1, 0x011, 65, 1, 1, In::geneve},
    {"C, K, S", 0, 0x16, 2, 2, 3, In::gre},       {"C, K, S", 1, 0x10d, 2, 2, 3, In::gre},
    {"C", 0, 0x16, 0, 1, 1, In::gre},             {"C", 1, 0x10d, 0, 1, 1, In::gre},
    {"gre protocol", 0, 0x16, 16, 16, 0x6558, In::gre}, {"gre protocol", 1, 0x10d, 16, 16, 0x6558, In::gre},
    {"key", 0, 0x16, 64, 32, 7, In::gre},         {"key", 1, 0x10d, 64, 32, 7, In::gre},
};

TEST_F(TunnelWalk, FindsEachFieldWhereItsLookupHasIt) {
    for (const FieldCase& one : field_cases) {
        const auto mask = field<16>(one.offset, one.length, ~std::uint64_t{0});
        for (const bool right : {true, false}) {
            const auto tag = field<16>(one.offset, one.length, right ? one.value : one.value ^ 1);
            packet_ = {.bytes = frame_in(one.in)};
            if (one.format == 0) {
                const auto lookup = static_cast<std::uint8_t>(one.lookup);
                icm_.put(first, Entry0(2, lookup).mask(mask).tag(tag).hit(out).miss(missed));
            } else {
                icm_.put(first, Entry1(one.lookup).mask(mask).tag(tag).hit(out).miss(missed));
            }
            EXPECT_EQ(run(icm_.memory(one.format)), right ? out : missed) << one.name << " of format " << one.format;
        }
    }
}

struct DefinerCase {
    const char* name;
    std::uint16_t layout;
    unsigned offset, length;
    std::uint64_t value;
    In in = In::vxlan;
};

const DefinerCase definer_cases[] = {
    {"protocol", 24, 224, 8, 6},         {"l3", 24, 232, 2, 1},              {"l4", 24, 234, 2, 1},
    {"qualifier", 24, 236, 2, 1},        {"fragment", 24, 238, 1, 1, In::piece}, {"outer protocol", 24, 240, 8, 17},
    {"source", 25, 0, 32, 0x0A000001},   {"destination", 25, 32, 32, 0x0A000002}, {"sport", 25, 64, 16, 1000},
    {"dport", 25, 80, 16, 2000},         {"l3", 25, 194, 2, 1},              {"l4", 25, 196, 2, 1},
    {"words", 16, 0, 64, 0x08000000A1B2C300}, {"words", 25, 128, 64, 0x08000000A1B2C300},
    {"qualifier", 25, 198, 2, 1},        {"outer dport", 25, 208, 16, 4789}, {"sport", 28, 0, 16, 1000},
    {"dport", 28, 16, 16, 2000},         {"source", 28, 64, 32, 0x0A000001}, {"destination", 28, 96, 32, 0x0A000002},
    {"protocol", 28, 224, 8, 6},         {"l3", 28, 232, 2, 1},              {"l4", 28, 234, 2, 1},
    {"qualifier", 28, 236, 2, 1},        {"fragment", 28, 238, 1, 1, In::piece},
    {"outer source", 28, 128, 32, 0xAC100001, In::piece},
};

TEST_F(TunnelWalk, RecognisesByTheInnerFieldsOfDefiners) {
    for (const DefinerCase& one : definer_cases) {
        const auto mask = field<32>(one.offset, one.length, ~std::uint64_t{0});
        const Definer definer{one.layout, Vector::load(mask.data(), mask.size())};
        for (const bool right : {true, false}) {
            packet_ = {.bytes = frame_in(one.in)};
            Entry1 entry = Entry1(0x421).hit(out).miss(missed);
            entry.bits(256 + one.offset, one.length, right ? one.value : one.value ^ 1);
            icm_.put(first, entry);
            EntryMemory memory = icm_.memory(2);
            memory.definer = [&definer](std::uint32_t) { return &definer; };
            EXPECT_EQ(run(memory), right ? out : missed) << one.name << " of definer " << one.layout;
        }
    }
}

TEST_F(TunnelWalk, HashesWhatIsInside) {
    constexpr std::uint64_t table = 0x3000000;
    packet_.bytes = frame_in(In::vxlan);
    icm_.put(first, Entry1().hit(table, 64).next(0x004, 0x0F00));   // the first four bytes of the inner destination
    for (unsigned i = 0; i < 64; ++i) icm_.put(table + i * 64, Entry1().hit(missed));
    std::uint32_t crc = 0;
    for (const std::uint8_t byte : std::array<std::uint8_t, 16>{0, 0, 0, 0, 0x0e, 0x1d, 0x2c, 0x3b}) {
        for (int bit = 0; bit < 8; ++bit) {
            crc = crc >> 1 ^ (((crc ^ static_cast<std::uint32_t>(byte >> bit)) & 1) != 0 ? 0xEDB88320 : 0);
        }
    }
    icm_.put(table + __builtin_bswap32(crc) % 64 * 64, Entry1().hit(out));
    EXPECT_EQ(run(icm_.memory(1)), out);
    packet_.bytes = frame_of({});
    EXPECT_THROW(run(icm_.memory(1)), Stopped);
}

TEST_F(TunnelWalk, DecapsulatesAndCountsWhatAnEntryTakesIn) {
    const Bytes inside = tagged_inside(), outside = frame_in(In::gre);
    packet_.bytes = outside;
    icm_.put(first, Entry1().counter(0x800001).action(0x0900130C, 4).reparse().hit(second));
    icm_.put(second, Entry1().counter(0x800002).hit(out));
    EXPECT_EQ(run(icm_.memory(1)), out);
    EXPECT_EQ(packet_.bytes, inside);
    EXPECT_EQ(counted_, (std::vector<std::size_t>{outside.size(), inside.size()}));

    packet_.bytes = outside;
    counted_.clear();
    icm_.put(first, Entry0(2).counter(0x800001).bits(161, 3, 2).bits(251, 1, 1).hit(second));
    icm_.put(second, Entry0(2).bits(161, 3, 4).hit(out));
    EXPECT_EQ(run(icm_.memory(0)), out);
    Bytes popped = inside;
    popped.erase(popped.begin() + 12, popped.begin() + 16);
    EXPECT_EQ(packet_.bytes, popped);
    EXPECT_EQ(counted_, (std::vector<std::size_t>{outside.size()}));
}

/// A list behind a decapsulation in one entry of format 0 writes the frame that was inside.
TEST_F(TunnelWalk, RewritesWhatWasInside) {
    EntryBytes list{};
    put_bits(list.data(), 0, 64, 0x0200100000000000);   // dmac_47_16
    icm_.put(Icm::modify_base + 3 * 64, list);
    icm_.put(first, Entry0(6).bits(161, 3, 2).bits(251, 1, 1).bits(96, 16, 1).bits(128, 32, 3).hit(out));
    packet_.bytes = encapsulated(tunnel::vxlan(), frame_of({}));
    EXPECT_EQ(run(icm_.memory(0)), out);
    Bytes expected = frame_of({});
    expected[0] = 0;
    EXPECT_EQ(packet_.bytes, expected);
}

TEST_F(TunnelWalk, StopsAtWhatNobodyDocuments) {
    const auto expect_stop = [&](const Packet& packet, const EntryBytes& entry, const std::string& name) {
        packet_ = packet;
        icm_.put(first, entry);
        try {
            (void)run(icm_.memory(1));
            ADD_FAILURE() << "went on past: " << name;
        } catch (const Stopped& stopped) {
            EXPECT_NE(std::string(stopped.what()).find(name), std::string::npos) << stopped.what();
        }
    };
    const EntryBytes decap = Entry1().action(0x0900130C, 4).reparse().hit(out);
    const EntryBytes network_id = Entry1(0x002).mask(field<16>(24, 8, 0xFF)).hit(out);
    const EntryBytes third_word = Entry1(0x00e).mask(field<16>(64, 8, 0xFF)).hit(out);
    Bytes longer = frame_in(In::gre);
    longer.push_back(0);
    expect_stop({.bytes = frame_in(In::gre), .side = Side::tx}, decap, "decapsulation on the TX side");
    expect_stop({.bytes = longer}, decap, "bytes behind its IP packet");
    expect_stop({.bytes = frame_in(In::vxlan)}, network_id, "of look-up type 0x2 (tunnel) of format 1");
    expect_stop({.bytes = frame_in(In::geneve)}, third_word, "of look-up type 0xe (tunnel header of the flexible");
    const struct {
        std::uint16_t lookup;
        unsigned offset;
        In in;
    } cases[] = {{0x002, 0, In::geneve}, {0x002, 0, In::gre}, {0x00e, 32, In::gre}, {0x10d, 16, In::geneve},
                 {0x112, 32, In::gre},   {0x011, 65, In::vxlan}};
    for (const auto& one : cases) {
        const Entry1 asks = Entry1(one.lookup).mask(field<16>(one.offset, 1, 1)).hit(out).miss(out);
        expect_stop({.bytes = frame_in(one.in)}, asks, "on a packet in no such tunnel");
    }
    const Entry1 inner = Entry1(0x004).mask(field<16>(32, 1, 1)).hit(out).miss(out);
    expect_stop({.bytes = frame_of({})}, inner, "on a packet in no such tunnel");
    expect_stop({.bytes = frame_in(In::vxlan), .side = Side::tx}, inner, "on a packet in no such tunnel");
    const Entry1 header = Entry1(0x00e).mask(field<16>(0, 1, 1)).hit(out).miss(out);
    expect_stop({.bytes = frame_of({.protocol = 17})}, header, "on a packet in no such tunnel");
}

}  // namespace
}  // namespace ovsdr::connectx::entries
