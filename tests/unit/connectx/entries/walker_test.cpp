// Entries made by hand, executed on packets. What libmlx5 writes is for tests/differential/run.
#include "tests/connectx/entries/walker.hpp"

#include <gtest/gtest.h>

#include <span>

#include "tests/unit/connectx/entries/entry_builder.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {
namespace {

using namespace test;

constexpr std::uint64_t first = 0x1000000, second = 0x2000000, table = 0x3000000;
constexpr std::uint64_t out = 0x5000000040, other_out = 0x5000000080, missed = 0x5100000000;

/// 02:00:00:00:00:02 from 02:00:00:00:00:01, VID 5 at priority 3, UDP 10.0.0.1:1000 to 10.0.0.2:2000.
std::vector<std::uint8_t> frame() {
    return {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0x60, 5, 8, 0, 0x45, 0xB9, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0,
            10, 0, 0, 1, 10, 0, 0, 2, 0x03, 0xE8, 0x07, 0xD0, 0, 12, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
}

struct Counted {
    std::uint32_t counter;
    std::size_t bytes;
    friend bool operator==(const Counted&, const Counted&) = default;
};

class WalkerTest : public ::testing::Test {
protected:
    std::uint64_t run(unsigned format) {
        Walker walker(icm_.memory(format),
                      [this](std::uint32_t counter, std::size_t bytes) { counted_.push_back({counter, bytes}); });
        return walker.run(first, packet_);
    }
    void expect_stop(unsigned format, const std::string& name) {
        try {
            run(format);
            FAIL() << "went on";
        } catch (const Stopped& stopped) {
            EXPECT_NE(std::string(stopped.what()).find(name), std::string::npos) << stopped.what();
        }
    }
    /// A mask of `length` bits at `offset`, and the same place with a value.
    static TagBytes field(unsigned offset, unsigned length, std::uint64_t value) {
        TagBytes bytes{};
        put_bits(bytes.data(), offset, length, value);
        return bytes;
    }

    Icm icm_;
    Packet packet_{.bytes = frame()};
    std::vector<Counted> counted_;
};

struct FieldCase {
    const char* name;
    unsigned format;
    std::uint16_t lookup;
    unsigned offset, length;
    std::uint64_t value;   ///< in frame()
};

const FieldCase field_cases[] = {
    {"dmac", 1, 0x003, 32, 48, 0x020000000002}, {"smac", 1, 0x005, 32, 48, 0x020000000001},
    {"ethertype", 1, 0x003, 80, 16, 0x0800},    {"qualifier", 1, 0x003, 14, 2, 2},
    {"vid", 1, 0x003, 20, 12, 5},               {"priority", 1, 0x005, 16, 3, 3},
    {"second", 1, 0x005, 110, 2, 0},            {"l3", 1, 0x003, 10, 2, 1},
    {"fragment", 1, 0x003, 3, 1, 0},            {"both dmac", 1, 0x00b, 0, 32, 0x02000000},
    {"both smac", 1, 0x00b, 112, 16, 1},        {"source", 1, 0x007, 0, 32, 0x0A000001},
    {"destination", 1, 0x007, 32, 32, 0x0A000002}, {"sport", 1, 0x007, 64, 16, 1000},
    {"dport", 1, 0x007, 80, 16, 2000},          {"protocol", 1, 0x007, 120, 8, 17},
    {"dscp", 1, 0x007, 112, 6, 0x2E},           {"ecn", 1, 0x007, 118, 2, 1},
    {"ttl", 1, 0x00d, 72, 8, 64},               {"ihl", 1, 0x00d, 68, 4, 5},
    {"l4 sport", 1, 0x009, 32, 16, 1000},       {"l4 protocol", 1, 0x009, 24, 8, 17},
    {"dmac", 0, 0x1b, 0, 48, 0x020000000002},   {"smac", 0, 0x1c, 0, 48, 0x020000000001},
    {"ethertype", 0, 0x1b, 48, 16, 0x0800},     {"qualifier", 0, 0x1b, 80, 2, 2},
    {"vid", 0, 0x1b, 84, 12, 5},                {"both smac", 0, 0x38, 48, 48, 0x020000000001},
    {"source", 0, 0x20, 32, 32, 0x0A000001},    {"destination", 0, 0x20, 0, 32, 0x0A000002},
    {"sport", 0, 0x20, 64, 16, 1000},           {"dport", 0, 0x20, 80, 16, 2000},
    {"dscp", 0, 0x20, 112, 6, 0x2E},            {"protocol", 0, 0x20, 120, 8, 17},
    {"ttl", 0, 0x2b, 64, 8, 64},                {"l4 dport", 0, 0x21, 16, 16, 2000},
};

TEST_F(WalkerTest, FindsEachFieldWhereItsLookupHasIt) {
    for (const FieldCase& one : field_cases) {
        for (const bool right : {true, false}) {
            const std::uint64_t value = right ? one.value : one.value ^ 1;
            const TagBytes mask = field(one.offset, one.length, ~std::uint64_t{0});
            const TagBytes tag = field(one.offset, one.length, value);
            packet_ = {.bytes = frame()};
            if (one.format == 0) {
                const auto lookup = static_cast<std::uint8_t>(one.lookup);
                icm_.put(first, Entry0(2, lookup).mask(mask).tag(tag).hit(out).miss(missed));
            } else {
                icm_.put(first, Entry1(one.lookup).mask(mask).tag(tag).hit(out).miss(missed));
            }
            EXPECT_EQ(run(one.format), right ? out : missed) << one.name << " of format " << one.format;
        }
    }
}

TEST_F(WalkerTest, ReadsRegistersAndSource) {
    packet_.reg_c[1] = 0x12345678;
    packet_.gvmi = 7;
    packet_.queue = 0x345;
    icm_.put(first, Entry1(0x10f).mask(field(32, 32, ~0ULL)).tag(field(32, 32, 0x12345678)).hit(second).miss(missed));
    TagBytes mask = field(16, 16, 0xFFFF), tag = field(16, 16, 7);
    put_bits(mask.data(), 40, 24, 0xFFFFFF);
    put_bits(tag.data(), 40, 24, 0x345);
    icm_.put(second, Entry1(0x104).mask(mask).tag(tag).hit(out).miss(missed));
    EXPECT_EQ(run(1), out);
}

TEST_F(WalkerTest, FollowsMissesToTheEndOfTheChain) {
    const TagBytes mask = field(80, 16, 0xFFFF), tag = field(80, 16, 0x0806);
    icm_.put(first, Entry1(0x003).mask(mask).tag(tag).hit(other_out).miss(second).counter(1));
    icm_.put(second, Entry1(0x003).mask(mask).tag(tag).hit(other_out).miss(missed).counter(2));
    EXPECT_EQ(run(1), missed);
    EXPECT_TRUE(counted_.empty());
}

TEST_F(WalkerTest, TakesNoPacketIntoAnEmptyEntry) {
    TagBytes never{};
    never[0] = 0xDC;
    icm_.put(first, Entry1(0x003).tag(never).miss(missed));
    EXPECT_EQ(run(1), missed);
}

/// The bits of a CRC, one after another.
std::uint32_t plain_hash(std::span<const std::uint8_t> bytes) {
    std::uint32_t crc = 0;
    for (const std::uint8_t byte : bytes) {
        for (int bit = 0; bit < 8; ++bit) {
            const bool feedback = ((crc ^ static_cast<std::uint32_t>(byte >> bit)) & 1) != 0;
            crc = crc >> 1 ^ (feedback ? 0xEDB88320 : 0);
        }
    }
    return (crc & 0xFF) << 24 | (crc >> 8 & 0xFF) << 16 | (crc >> 16 & 0xFF) << 8 | crc >> 24;
}

TEST_F(WalkerTest, IndexesATableByTheHashOfTheMaskedBytes) {
    // Of look-up 7 the two addresses are hashed: bytes 0 to 7.
    for (const std::uint8_t last : {1, 2, 77, 200}) {
        packet_ = {.bytes = frame()};
        packet_.bytes[33] = last;
        const TagBytes hashed{10, 0, 0, last, 10, 0, 0, 2};
        icm_ = {};
        icm_.put(first, Entry1().hit(table, 64).next(0x007, 0xFF00));
        const Entry1 found = Entry1(0x007).mask(field(24, 8, 0xFF)).tag(field(24, 8, last)).hit(out);
        icm_.put(table + plain_hash(hashed) % 64 * 64, found);
        EXPECT_EQ(run(1), out) << unsigned{last};
    }
}

TEST_F(WalkerTest, CountsAnEntrysPacketBeforeItsActions) {
    icm_.put(first, Entry1().counter(0x800001).action(0x08020002, 4).reparse().hit(second));
    icm_.put(second, Entry1().counter(0x800002).hit(out));
    EXPECT_EQ(run(1), out);
    EXPECT_EQ(counted_, (std::vector<Counted>{{0x800001, 60}, {0x800002, 56}}));
}

TEST_F(WalkerTest, PopsAndPushesTags) {
    std::vector<std::uint8_t> popped = frame();
    popped.erase(popped.begin() + 12, popped.begin() + 16);
    icm_.put(first, Entry1().action(0x08020002, 4).reparse().hit(second));
    EXPECT_EQ(run(1), second);
    EXPECT_EQ(packet_.bytes, popped);
    icm_.put(first, Entry1().action(0x0A000C0081006005, 8).reparse().hit(second));
    EXPECT_EQ(run(1), second);
    EXPECT_EQ(packet_.bytes, frame());
    icm_.put(first, Entry0(2).bits(161, 3, 4).hit(second));
    EXPECT_EQ(run(0), second);
    EXPECT_EQ(packet_.bytes, popped);
    packet_.side = Side::tx;
    icm_.put(first, Entry0(1).bits(102, 3, 1).bits(128, 32, 0x81006005).hit(second));
    EXPECT_EQ(run(0), second);
    EXPECT_EQ(packet_.bytes, frame());
}

TEST_F(WalkerTest, SeesHeadersAsTheyWereUntilAnEntryParsesAgain) {
    const TagBytes mask = field(20, 12, 0xFFF), tag = field(20, 12, 5);
    for (const bool again : {false, true}) {
        packet_ = {.bytes = frame()};
        Entry1 pops = Entry1().action(0x08020002, 4).hit(second);
        if (again) pops.reparse();
        icm_.put(first, pops);
        icm_.put(second, Entry1(0x003).mask(mask).tag(tag).hit(out).miss(missed));
        EXPECT_EQ(run(1), again ? missed : out);
    }
}

TEST_F(WalkerTest, SetsRegistersInlineAndByList) {
    const std::uint64_t set_c1 = 0x0691202011223344;
    icm_.put(first, Entry1().action(set_c1, 8).hit(second));
    icm_.put(second, Entry1(0x10f).mask(field(32, 32, ~0ULL)).tag(field(32, 32, 0x11223344)).hit(out).miss(missed));
    EXPECT_EQ(run(1), out) << "registers show at once";
    EXPECT_EQ(packet_.reg_c[1], 0x11223344U);

    EntryBytes list{};
    put_bits(list.data(), 0, 64, 0x0690300800000099);   // eight bits of reg_c_0, from bit 16 on
    icm_.put(Icm::modify_base + 3 * 64, list);
    icm_.put(first, Entry1().action(0x0F010003, 4).reparse().hit(out));
    packet_.reg_c[0] = 0xFFFFFFFF;
    EXPECT_EQ(run(1), out);
    EXPECT_EQ(packet_.reg_c[0], 0xFF99FFFFU);

    put_bits(list.data(), 0, 64, 0x020C000055667788);   // format 0: the lower half is reg_c_1
    icm_.put(Icm::modify_base + 3 * 64, list);
    icm_.put(first, Entry0(6).bits(96, 16, 1).bits(128, 32, 3).hit(out));
    EXPECT_EQ(run(0), out);
    EXPECT_EQ(packet_.reg_c[1], 0x55667788U);
    EXPECT_EQ(packet_.reg_c[0], 0xFF99FFFFU);
}

TEST_F(WalkerTest, PutsArgumentsIntoAPattern) {
    EntryBytes pattern{}, numbers{};
    put_bits(pattern.data(), 0, 64, 0x0695202000000000);
    put_bits(pattern.data(), 64, 64, 0x060E280800000000);   // TTL
    put_bits(numbers.data(), 0, 64, 0x0695202055667788);    // libmlx5 writes the commands whole
    put_bits(numbers.data(), 64, 64, 9);
    constexpr std::uint64_t pattern_base = 0x800000000;
    icm_.put(pattern_base + 2 * 64, pattern);
    icm_.put(first, Entry1().action(0x0E00000202000345, 8).reparse().hit(out));
    EntryMemory memory = icm_.memory(2);
    memory.modify_pattern_base = pattern_base;
    memory.argument = [&numbers](std::uint32_t id) {
        return id == 0x345 ? std::optional(numbers) : std::nullopt;
    };
    Walker walker(memory, [](std::uint32_t, std::size_t) {});
    EXPECT_EQ(walker.run(first, packet_), out);
    EXPECT_EQ(packet_.reg_c[1], 0x55667788U);
    EXPECT_EQ(packet_.bytes[18 + 8], 9);
    icm_.put(first, Entry1().action(0x0E00000202000346, 8).hit(out));
    EXPECT_THROW(walker.run(first, packet_), Stopped);
}

TEST_F(WalkerTest, StopsAtAPairOfCommandsForOneField) {
    EntryBytes list{};
    put_bits(list.data(), 0, 64, 0x0691202000000001);
    put_bits(list.data(), 64, 64, 0x0690202000000002);
    put_bits(list.data(), 128, 64, 0x0690202000000003);   // of another pair
    icm_.put(Icm::modify_base + 3 * 64, list);
    icm_.put(first, Entry1().action(0x0F030003, 4).reparse().hit(out));
    EXPECT_EQ(run(1), out);
    EXPECT_EQ(packet_.reg_c[1], 1U);
    EXPECT_EQ(packet_.reg_c[0], 3U);
    put_bits(list.data(), 64, 64, 0x0691202000000002);
    icm_.put(Icm::modify_base + 3 * 64, list);
    expect_stop(1, "two modify-header actions of a pair on field 0x91");
}

TEST_F(WalkerTest, HasRegistersElsewhereInFormat2) {
    icm_.put(first, Entry1().action(0x0695202011223344, 8).hit(out));
    EXPECT_EQ(run(2), out);
    EXPECT_EQ(packet_.reg_c[1], 0x11223344U);
    expect_stop(1, "modify-header action SET of field 0x95");
}

TEST_F(WalkerTest, SetsTheFlowTag) {
    icm_.put(first, Entry1().action(0x0CABCDEF, 4).hit(out));
    EXPECT_EQ(run(1), out);
    EXPECT_EQ(packet_.flow_tag, 0xABCDEFU);
    icm_.put(first, Entry0(2).bits(128, 32, 0x80000123).hit(out));
    EXPECT_EQ(run(0), out);
    EXPECT_EQ(packet_.flow_tag, 0x123U);
}

TEST_F(WalkerTest, HasTwelveBytesOfActionsInAMatchEntry) {
    const Entry1 full = Entry1(0x400 | any_packet).bits(160, 32, 0x08020002).bits(192, 64, 0x0A000C0088A80007);
    icm_.put(first, Entry1(full).reparse().hit(out));
    EXPECT_EQ(run(1), out);
    std::vector<std::uint8_t> expected = frame();
    expected[12] = 0x88, expected[13] = 0xA8, expected[14] = 0, expected[15] = 7;
    EXPECT_EQ(packet_.bytes, expected);
}

struct DefinerCase {
    const char* name;
    std::uint16_t layout;
    unsigned offset, length;
    std::uint64_t value;   ///< in frame()
};

const DefinerCase definer_cases[] = {
    {"dmac", 0, 64, 48, 0x020000000002},   {"smac", 0, 192, 48, 0x020000000001}, {"vid", 0, 148, 12, 5},
    {"version", 2, 32, 4, 4},              {"ttl", 2, 48, 8, 64},                {"protocol", 2, 56, 8, 17},
    {"sport", 2, 192, 16, 1000},           {"dport", 6, 208, 16, 2000},          {"l4", 16, 202, 2, 2},
    {"gvmi", 16, 208, 16, 7},              {"queue", 16, 232, 24, 9},            {"source", 22, 0, 32, 0x0A000001},
    {"l3", 22, 106, 2, 1},                 {"dmac low", 22, 240, 16, 2},         {"reg_c_1", 24, 96, 32, 0x1234},
    {"protocol", 24, 240, 8, 17},          {"qualifier", 25, 206, 2, 2},         {"priority", 26, 144, 3, 3},
    {"destination", 28, 160, 32, 0x0A000002}, {"ihl", 33, 228, 4, 5},            {"dscp", 2, 40, 6, 0x2E},
};

TEST_F(WalkerTest, RecognisesByDefinersAndHashesAllOfTheirBytes) {
    for (const DefinerCase& one : definer_cases) {
        for (const bool right : {true, false}) {
            std::array<std::uint8_t, 32> mask{}, tag{};
            put_bits(mask.data(), one.offset, one.length, ~std::uint64_t{0});
            put_bits(tag.data(), one.offset, one.length, right ? one.value : one.value ^ 1);
            const Definer definer{one.layout, Vector::load(mask.data(), mask.size())};
            packet_ = {.bytes = frame(), .gvmi = 7, .queue = 9};
            packet_.reg_c[1] = 0x1234;
            icm_ = {};
            // The first entry leads into a table of 16 by the same definer.
            icm_.put(first, Entry1(0x400 | any_packet).hit(table, 16).bits(112, 8, 0x21));
            std::array<std::uint8_t, 32> hashed{};
            put_bits(hashed.data(), one.offset, one.length, one.value);
            Entry1 found = Entry1(0x421).hit(out).miss(missed);
            for (unsigned i = 0; i < tag.size(); ++i) found.bits(256 + 8 * i, 8, tag[i]);
            icm_.put(table + plain_hash(hashed) % 16 * 64, found);
            EntryMemory memory = icm_.memory(2);
            memory.definer = [&definer](std::uint32_t id) { return id == 0x21 ? &definer : nullptr; };
            Walker walker(memory, [](std::uint32_t, std::size_t) {});
            EXPECT_EQ(walker.run(first, packet_), right ? out : missed) << one.name << " of definer " << one.layout;
        }
    }
}

TEST_F(WalkerTest, StopsByNameAtWhatItDoesNotKnow) {
    const struct {
        EntryBytes entry;
        unsigned format;
        const char* name;
    } cases[] = {
        {Entry1(0x006).mask(field(32, 1, 1)).tag({}).hit(out), 1, "inner source MAC"},
        {Entry1(0x003).mask(field(1, 1, 1)).tag({}).hit(out), 1, "(destination MAC) of format 1"},
        {Entry1(0x1ff).mask(field(1, 1, 1)).tag({}).hit(out), 1, "look-up type 0x1ff"},
        {Entry1(0x403).hit(out), 1, "definer 3, which is not there"},
        {Entry1(0x200).hit(out), 1, "entry format 0x2"},
        {Entry1().bits(91, 1, 1).hit(out), 1, "match_polarity"},
        {Entry1().bits(157, 1, 1).hit(out), 1, "hash_after_actions"},
        {Entry1().bits(93, 3, 1).hit(out), 1, "reserved_at_5d"},
        {Entry1().action(0x0B, 1).hit(out), 1, "INSERT_POINTER"},
        {Entry1().action(0x0900130C, 4).hit(out), 1, "a packet that is in no known tunnel"},
        {Entry1().action(0x0900190C, 4).hit(out), 1, "REMOVE_HEADER_TO_HEADER as 0x0900190c"},
        {Entry1().action(0x09021304, 4).hit(out), 1, "REMOVE_HEADER_TO_HEADER as 0x09021304"},
        {Entry1().action(0x12, 1).hit(out), 2, "ASO of type 0"},
        {Entry1().action(0x0E00000901000000, 8).hit(out), 1, "a modify-header pattern at 0x240, where there is no"},
        {Entry1().action(0x77, 1).hit(out), 1, "action 0x77"},
        {Entry1().action(0x08050002, 4).hit(out), 1, "header anchor 0x5"},
        {Entry1().action(0x08020102, 4).hit(out), 1, "REMOVE_BY_SIZE 4 bytes behind header anchor 0x2"},
        {Entry1().action(0x08020004, 4).hit(out), 1, "a tag that is not there"},
        {Entry1().action(0x08020001, 4).hit(out), 1, "a removal of 2 bytes of tags"},
        {Entry1().action(0x0A02000081000005, 8).hit(out), 1, "INSERT_INLINE at header anchor 0x2"},
        {Entry1().action(0x0691202011223344, 8).hit(table, 16), 1, "that leads to a hash table"},
        {Entry1().action(0x0691200011223344, 8).hit(out), 1, ": 0 bits at 32"},
        {Entry1().action(0x0691002811223344, 8).hit(out), 1, ": 40 bits at 0"},
        {Entry1().action(0x0791202011223344, 8).hit(out), 1, "ADD of field 0x91"},
        {Entry1().action(0x0F010009, 4).hit(out), 1, "where there is no memory"},
        {Entry0(3).hit(out), 0, "entry type 0x3"},
        {Entry0(1).hit(out), 0, "an entry of the other side"},
        {Entry0(2).bits(161, 3, 2).hit(out), 0, "DECAP without fail_on_error"},
        {Entry0(2).bits(161, 3, 2).bits(251, 1, 1).hit(out), 0, "a packet that is in no known tunnel"},
        {Entry0(2).bits(161, 3, 3).bits(251, 1, 1).hit(out), 0, "L3_DECAP of format 0"},
        {Entry0(2).bits(251, 1, 1).hit(out), 0, "fail_on_error of an RX entry without an action"},
        {Entry0(2).bits(161, 3, 4).bits(251, 1, 1).hit(out), 0, "fail_on_error of an RX entry with POP_VLAN"},
        {Entry0(6).bits(251, 1, 1).hit(out), 0, "fail_on_error of an RX entry without an action"},
        {Entry0(2).bits(96, 16, 1).hit(out), 0, "member_count of an RX entry"},
        {Entry0(2).bits(128, 32, 0x123).hit(out), 0, "qp_list_pointer 0x123"},
        {Entry0(2).bits(161, 3, 4).hit(table, 16), 0, "that leads to a hash table"},
        {Entry0(6).bits(164, 4, 1).hit(out), 0, "action_description of a MODIFY entry"},
        {Entry0(2).bits(91, 1, 1).hit(out), 0, "linear_hash_enable"},
        {Entry1().bits(120, 8, 0xFF).bits(128, 27, 0x7FFFFFF), 1, "an empty entry"},
        {Entry1().hit(first), 1, "in circles"},
    };
    for (const auto& one : cases) {
        packet_ = {.bytes = frame()};
        icm_.put(first, one.entry);
        SCOPED_TRACE(one.name);
        expect_stop(one.format, one.name);
    }
    const struct {
        EntryBytes entry;
        const char* name;
    } sending[] = {
        {Entry0(6).bits(161, 3, 4).hit(out), "tunneling_action of a MODIFY entry on the TX side"},
        {Entry0(1).bits(106, 6, 1).hit(out), "action_description of a TX entry without an action"},
        {Entry0(1).bits(251, 1, 1).hit(out), "go_back of a TX entry without an action"},
        {Entry0(1).bits(102, 3, 1).bits(106, 6, 1).hit(out), "action_description of PUSH_VLAN"},
        {Entry0(1).bits(102, 3, 4).bits(251, 1, 1).hit(out), "go_back of ENCAP"},
        {Entry0(1).bits(102, 3, 4).bits(128, 32, 7).hit(out), "reformat 0x7, which is no L2 to L2 tunnel or not there"},
        {Entry0(1).bits(102, 3, 3).hit(out), "ENCAP_L3 of format 0"},
        {Entry0(1, 0x0a).mask(field(64, 24, ~0ULL)).hit(out), "(tunnel) of format 0, on a packet in no such tunnel"},
    };
    for (const auto& one : sending) {
        packet_ = {.bytes = frame(), .side = Side::tx};
        icm_.put(first, one.entry);
        SCOPED_TRACE(one.name);
        expect_stop(0, one.name);
    }
}

TEST_F(WalkerTest, PutsTheHeadersOfAReformatInFront) {
    // To 10.9.0.2, with a tag; the lengths and both checksums are what is not there yet.
    const std::vector<std::uint8_t> headers{2,    0, 0, 0, 0, 9, 2,    0, 0, 0, 0, 8, 0x81, 0, 0, 30, 8, 0, 0x45, 0,
                                            1,    1, 0, 0, 0, 0, 64,   17, 7, 7, 10, 9, 0,   1, 10, 9, 0, 2,
                                            0x80, 1, 0x12, 0xB5, 1, 1, 9, 9, 8, 0, 0, 0, 0, 0, 5, 0};
    const auto run_with = [&](unsigned format, const EntryBytes& entry) {
        packet_ = {.bytes = frame(), .side = Side::tx};
        icm_.put(first, entry);
        EntryMemory memory = icm_.memory(format);
        memory.tunnel_headers = [&headers](std::uint32_t id) {
            return id == 0x1234 ? std::optional(headers) : std::nullopt;
        };
        Walker walker(memory, [](std::uint32_t, std::size_t) {});
        EXPECT_EQ(walker.run(first, packet_), out);
        return packet_.bytes;
    };
    std::vector<std::uint8_t> expected = headers;
    const std::vector<std::uint8_t> inside = frame();
    expected.insert(expected.end(), inside.begin(), inside.end());
    // 54 bytes of headers and 60 inside.
    expected[20] = 0, expected[21] = 96;
    expected[28] = 0x66, expected[29] = 0x79;
    expected[42] = 0, expected[43] = 76;
    expected[44] = expected[45] = 0;
    EXPECT_EQ(run_with(1, Entry1().action(0x0B0000D900001234, 8).reparse().hit(out)).size(), expected.size());
    EXPECT_EQ(packet_.bytes, expected);
    EXPECT_EQ(run_with(0, Entry0(1).bits(102, 3, 4).bits(106, 6, 27).bits(128, 32, 0x1234).hit(out)), expected);
    EXPECT_THROW((void)run_with(0, Entry0(1).bits(102, 3, 4).bits(106, 6, 26).bits(128, 32, 0x1234).hit(out)), Stopped);
    EXPECT_THROW((void)run_with(1, Entry1().action(0x0B0200D900001234, 8).hit(out)), Stopped);
}

TEST_F(WalkerTest, TakesNoTagOffAnUntaggedPacket) {
    packet_.bytes.erase(packet_.bytes.begin() + 12, packet_.bytes.begin() + 16);
    icm_.put(first, Entry1().action(0x08020002, 4).reparse().hit(out));
    expect_stop(1, "a tag that is not there");
    icm_.put(first, Entry0(2).bits(161, 3, 4).hit(out));
    expect_stop(0, "a tag that is not there");
}

}  // namespace
}  // namespace ovsdr::connectx::entries
