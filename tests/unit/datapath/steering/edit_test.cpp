// Modify-header commands one by one: every field that libmlx5 knows, on frames of every kind, against bits moved one at
// a time and checksums computed from scratch.
#include "datapath/steering/edit.hpp"

#include <cerrno>
#include <optional>
#include <random>

#include "frames.hpp"
#include "objects.hpp"
#include "packet_pool.hpp"

namespace ovsdr::soft::test {
namespace {

/// A kind of frame, and where its headers begin.
struct Shape {
    const char* name;
    FrameSpec spec;
    unsigned l3 = 0, l4 = 0;
};

std::vector<Shape> shapes() {
    std::vector<Shape> all;
    for (const unsigned version : {4U, 6U}) {
        for (const std::uint8_t protocol : {std::uint8_t{6}, std::uint8_t{17}}) {
            for (const unsigned tags : {0U, 1U, 2U}) {
                Shape shape{"", {.version = version, .protocol = protocol, .tos = 0x5a, .payload = 31}};
                for (unsigned i = 0; i < tags; ++i) shape.spec.tags.push_back(i + 1 < tags ? 0x88a8'6123 : 0x8100'2456);
                shape.l3 = 14 + 4 * tags;
                shape.l4 = shape.l3 + (version == 4 ? 20 : 40);
                all.push_back(shape);
            }
        }
    }
    all.push_back({"no IP", {.version = 0}});
    return all;
}

/// Where a field's highest bit is in a frame of that shape.
struct FieldPlace {
    unsigned id;
    unsigned width;
    std::optional<unsigned> (*bit)(const Shape& shape);
    bool addable = false;
};

constexpr auto at_l3 = [](const Shape& shape, unsigned version, unsigned byte) -> std::optional<unsigned> {
    if (shape.spec.version != version) return std::nullopt;
    return (shape.l3 + byte) * 8;
};
constexpr auto at_l4 = [](const Shape& shape, unsigned protocol, unsigned bit) -> std::optional<unsigned> {
    if (shape.spec.version == 0 || shape.spec.protocol != protocol) return std::nullopt;
    return shape.l4 * 8 + bit;
};

#define HERE [](const Shape & s) -> std::optional<unsigned>
const FieldPlace field_places[] = {
    {0x01, 32, HERE { (void)s; return 48; }},
    {0x02, 16, HERE { (void)s; return 80; }},
    {0x04, 32, HERE { (void)s; return 0; }},
    {0x05, 16, HERE { (void)s; return 32; }},
    {0x06, 6, HERE { return s.spec.version == 6 ? at_l3(s, 6, 0).value() + 4 : at_l3(s, 4, 1); }}
, {0x73, 2,
   HERE{return s.spec.version == 6   ? at_l3(s, 6, 1).value() + 2
               : s.spec.version == 4 ? std::optional(at_l3(s, 4, 1).value() + 6)
                                     : std::nullopt;
}
}
, {0x07, 9, HERE{return at_l4(s, 6, 12 * 8 + 7);
}
}
, {0x08, 16, HERE{return at_l4(s, 6, 0);
}
}
, {0x09, 16, HERE{return at_l4(s, 6, 16);
}
}
, {0x0a, 8, HERE{return at_l3(s, 4, 8);
}
, true
}
, {0x0b, 16, HERE{return at_l4(s, 17, 0);
}
}
, {0x0c, 16, HERE{return at_l4(s, 17, 16);
}
}
, {0x0d, 32, HERE{return at_l3(s, 6, 8);
}
}
, {0x0e, 32, HERE{return at_l3(s, 6, 12);
}
}
, {0x0f, 32, HERE{return at_l3(s, 6, 16);
}
}
, {0x10, 32, HERE{return at_l3(s, 6, 20);
}
}
, {0x11, 32, HERE{return at_l3(s, 6, 24);
}
}
, {0x12, 32, HERE{return at_l3(s, 6, 28);
}
}
, {0x13, 32, HERE{return at_l3(s, 6, 32);
}
}
, {0x14, 32, HERE{return at_l3(s, 6, 36);
}
}
, {0x15, 32, HERE{return at_l3(s, 4, 12);
}
}
, {0x16, 32, HERE{return at_l3(s, 4, 16);
}
}
, {0x17, 16, HERE{return s.spec.tags.empty() ? std::nullopt : std::optional(14U * 8);
}
}
, {0x47, 8, HERE{return at_l3(s, 6, 7);
}
, true
}
, {0x59, 32, HERE{return at_l4(s, 6, 32);
}
, true
}
, {0x5b, 32, HERE{return at_l4(s, 6, 64);
}
, true
}
,
};
#undef HERE

std::uint64_t get_bits(const Frame& frame, unsigned bit, unsigned width) {
    std::uint64_t value = 0;
    for (unsigned i = bit; i < bit + width; ++i) value = value << 1 | (frame[i / 8] >> (7 - i % 8) & 1);
    return value;
}

void put_bits(Frame& frame, unsigned bit, unsigned width, std::uint64_t value) {
    for (unsigned i = 0; i < width; ++i) {
        const unsigned at = bit + width - 1 - i;
        const auto one = static_cast<std::uint8_t>(0x80 >> at % 8);
        frame[at / 8] = static_cast<std::uint8_t>((value >> i & 1) != 0 ? frame[at / 8] | one : frame[at / 8] & ~one);
    }
}

class EditFields : public ::testing::Test {
protected:
    [[nodiscard]] static std::shared_ptr<const EditList> compiled(std::initializer_list<std::uint64_t> commands,
                                                                  DomainType domain = DomainType::fdb) {
        std::vector<std::uint64_t> big_endian;
        for (const std::uint64_t command : commands) big_endian.push_back(__builtin_bswap64(command));
        std::shared_ptr<const EditList> list;
        EXPECT_EQ(EditList::compile(domain, big_endian, list), 0);
        return list;
    }
    static Frame edited(const EditList& list, Frame frame, const Key& registers = {}) {
        list.apply(frame.data(), static_cast<std::uint32_t>(frame.size()), registers);
        return frame;
    }
    static std::uint32_t reg(const Key& key, unsigned index) { return load_be32(key.bytes() + reg_c_offset(index)); }

    /// COPY with both offsets.
    static std::uint64_t copy(unsigned from, unsigned from_offset, unsigned to, unsigned to_offset, unsigned length) {
        return copy_command(from, to, length) | static_cast<std::uint64_t>(from_offset) << 40 |
               static_cast<std::uint64_t>(to_offset) << 8;
    }

    std::mt19937 random{42};
    std::vector<Shape> all = shapes();
};

TEST_F(EditFields, SetReplacesTheBitsThatItNames) {
    for (const FieldPlace& field : field_places) {
        for (const Shape& shape : all) {
            for (unsigned round = 0; round < 8; ++round) {
                const unsigned length = round == 0 ? field.width : 1 + random() % field.width;
                const unsigned offset = random() % (field.width - length + 1);
                const auto data = static_cast<std::uint32_t>(random());
                const Frame before = make_frame(shape.spec);
                Frame expected = before;
                if (const auto bit = field.bit(shape)) {
                    put_bits(expected, *bit + field.width - offset - length, length, data);
                    fix_checksums(expected);
                }
                ASSERT_EQ(edited(*compiled({set_command(field.id, offset, length, data)}), before), expected)
                    << "field " << field.id << " offset " << offset << " length " << length << " version "
                    << shape.spec.version << " protocol " << int{shape.spec.protocol};
            }
        }
    }
}

TEST_F(EditFields, SetEthertypeTouchesNoChecksum) {
    for (const Shape& shape : all) {
        Frame expected = make_frame(shape.spec);
        const unsigned at = shape.spec.version == 0 ? 12 : shape.l3 - 2;
        expected[at] = 0x12;
        expected[at + 1] = 0x34;
        ASSERT_EQ(edited(*compiled({set_command(3, 0, 16, 0x1234)}), make_frame(shape.spec)), expected);
    }
}

TEST_F(EditFields, AddWrapsWithinItsField) {
    for (const FieldPlace& field : field_places) {
        std::vector<std::uint64_t> command{__builtin_bswap64(add_command(field.id, 1))};
        std::shared_ptr<const EditList> list;
        ASSERT_EQ(EditList::compile(DomainType::fdb, command, list), field.addable ? 0 : EINVAL)
            << "field " << field.id;
        if (!field.addable) continue;
        for (const Shape& shape : all) {
            for (unsigned round = 0; round < 8; ++round) {
                const auto data = round == 0 ? 0xffffffffU : static_cast<std::uint32_t>(random());
                const Frame before = make_frame(shape.spec);
                Frame expected = before;
                if (const auto bit = field.bit(shape)) {
                    put_bits(expected, *bit, field.width, get_bits(before, *bit, field.width) + data);
                    fix_checksums(expected);
                }
                ASSERT_EQ(edited(*compiled({add_command(field.id, data)}), before), expected) << "field " << field.id;
            }
        }
    }
}

TEST_F(EditFields, CopyMovesBitsBetweenAnyTwoFields) {
    for (const FieldPlace& from : field_places) {
        for (const FieldPlace& to : field_places) {
            const Shape& shape = all[random() % all.size()];
            const unsigned length = 1 + random() % std::min(from.width, to.width);
            const unsigned from_offset = random() % (from.width - length + 1);
            const unsigned to_offset = random() % (to.width - length + 1);
            const Frame before = make_frame(shape.spec);
            Frame expected = before;
            if (const auto bit = to.bit(shape)) {
                const auto source = from.bit(shape);
                const std::uint64_t value =
                    source ? get_bits(before, *source + from.width - from_offset - length, length) : 0;
                put_bits(expected, *bit + to.width - to_offset - length, length, value);
                fix_checksums(expected);
            }
            ASSERT_EQ(edited(*compiled({copy(from.id, from_offset, to.id, to_offset, length)}), before), expected)
                << "from " << from.id << " to " << to.id << " length " << length;
        }
    }
}

TEST_F(EditFields, RegistersAreSetAndCopiedBitByBit) {
    constexpr std::array<unsigned, 6> ids{0x51, 0x52, 0x53, 0x54, 0x55, 0x56};
    for (unsigned from = 0; from < ids.size(); ++from) {
        for (unsigned to = 0; to < ids.size(); ++to) {
            const unsigned length = 1 + random() % 32, from_offset = random() % (33 - length),
                           to_offset = random() % (33 - length);
            const auto first = static_cast<std::uint32_t>(random()), second = static_cast<std::uint32_t>(random());
            const auto list = compiled({set_command(ids[to], 0, 32, first), set_command(ids[from], 0, 32, second),
                                        copy(ids[from], from_offset, ids[to], to_offset, length)});
            Key key{};
            const Frame frame = make_frame({});
            list->apply_registers(key, frame.data(), static_cast<std::uint32_t>(frame.size()));
            const std::uint32_t mask = length == 32 ? ~0U : (1U << length) - 1;
            const std::uint32_t old = from == to ? second : first;
            const std::uint32_t expected = (old & ~(mask << to_offset)) | (second >> from_offset & mask) << to_offset;
            ASSERT_EQ(reg(key, to), expected);
            EXPECT_FALSE(list->edits_headers());
        }
    }
}

TEST_F(EditFields, EachCommandSeesWhatThoseBeforeItDid) {
    const Frame before = make_frame({});
    // The header first, then the register from it; and the register into a header before it changes.
    const auto header_first = compiled({set_command(id::dmac_15_0, 0, 16, 0x1234), copy(id::dmac_15_0, 0, 0x53, 0, 16),
                                        add_command(id::ip_ttl, 1), copy(id::ip_ttl, 0, 0x53, 16, 8)});
    Key key{};
    header_first->apply_registers(key, before.data(), static_cast<std::uint32_t>(before.size()));
    EXPECT_EQ(reg(key, 2), 0x00411234U);
    const auto register_first = compiled({copy(0x53, 0, id::dmac_15_0, 0, 16), set_command(0x53, 0, 32, 0xffffffff),
                                          copy(0x53, 0, id::smac_15_0, 0, 16)});
    Key held{};
    store_be32(held.bytes() + reg_c_offset(2), 0x4321);
    Frame expected = before;
    put_bits(expected, 32, 16, 0x4321);
    put_bits(expected, 80, 16, 0xffff);
    EXPECT_EQ(edited(*register_first, before, held), expected);
}

/// Values of a port: checksums that carry twice, and the one that would be 0.
TEST_F(EditFields, ChecksumsAreRightWhateverTheValue) {
    for (const std::uint8_t protocol : {std::uint8_t{6}, std::uint8_t{17}}) {
        const Frame before = make_frame({.protocol = protocol, .payload = 3});
        const unsigned field = protocol == 6 ? id::tcp_sport : id::udp_sport;
        bool zero = false;
        for (std::uint32_t value = 0; value < 65536; value += protocol == 6 ? 7 : 1) {
            Frame expected = before;
            put_bits(expected, 34 * 8, 16, value);
            fix_checksums(expected);
            zero = zero || (protocol == 17 && expected[40] == 0xff && expected[41] == 0xff);
            ASSERT_EQ(edited(*compiled({set_command(field, 0, 16, value)}), before), expected) << value;
        }
        EXPECT_EQ(zero, protocol == 17) << "one sum is 0, and written as its other form";
    }
    for (unsigned i = 0; i < 5000; ++i) {
        const auto address = static_cast<std::uint32_t>(random());
        const Frame before = make_frame({.destination = static_cast<std::uint32_t>(random())});
        Frame expected = before;
        put_bits(expected, 30 * 8, 32, address);
        fix_checksums(expected);
        ASSERT_EQ(edited(*compiled({set_command(id::dipv4, 0, 32, address)}), before), expected);
    }
}

TEST_F(EditFields, BitsThatAreAsTheyWereLeaveTheFrameAlone) {
    Frame frame = make_frame({.protocol = 6, .sport = 7});
    frame[50] = frame[51] = 0xff;  // no checksum that anybody computes
    EXPECT_EQ(edited(*compiled({set_command(id::tcp_sport, 0, 16, 7)}), frame), frame);
}

TEST_F(EditFields, FramesShorterThanAnEthernetHeaderAreLeftAlone) {
    const auto list =
        compiled({set_command(id::dmac_47_16, 0, 32, 0x11111111), set_command(id::smac_15_0, 0, 16, 0x2222)});
    for (unsigned size = 0; size < 20; ++size) {
        Frame frame(size, 0xee), expected = frame;
        if (size >= 14) {
            put_bits(expected, 0, 32, 0x11111111);
            put_bits(expected, 80, 16, 0x2222);
        }
        EXPECT_EQ(edited(*list, frame), expected) << size;
    }
}

TEST_F(EditFields, JumboFramesAreReadWhole) {
    const auto list =
        compiled({copy(id::ip_ttl, 0, 0x53, 0, 8), set_command(id::ip_ttl, 0, 8, 9), copy(id::ip_ttl, 0, 0x54, 0, 8)});
    const Frame frame = make_frame({.ttl = 77, .payload = 9900});
    Key key{};
    list->apply_registers(key, frame.data(), static_cast<std::uint32_t>(frame.size()));
    EXPECT_EQ(reg(key, 2), 77U);
    EXPECT_EQ(reg(key, 3), 9U);
    EXPECT_EQ(frame, make_frame({.ttl = 77, .payload = 9900}));
}

/// Where the match parameters have what a field's bytes hold.
TEST_F(EditFields, WhatIsCopiedIntoAFieldIsNotKnown) {
    constexpr std::pair<unsigned, Field> places_of_fields[] = {{0x01, {0, 32}},
                                                               {0x02, {32, 16}},
                                                               {0x03, {48, 16}},
                                                               {0x04, {64, 32}},
                                                               {0x05, {96, 16}},
                                                               {0x06, {136, 8}},
                                                               {0x07, {144, 16}},
                                                               {0x08, {160, 16}},
                                                               {0x09, {176, 16}},
                                                               {0x0a, {216, 8}},
                                                               {0x0b, {224, 16}},
                                                               {0x0c, {240, 16}},
                                                               {0x0d, {256, 32}},
                                                               {0x0e, {288, 32}},
                                                               {0x0f, {320, 32}},
                                                               {0x10, {352, 32}},
                                                               {0x11, {384, 32}},
                                                               {0x12, {416, 32}},
                                                               {0x13, {448, 32}},
                                                               {0x14, {480, 32}},
                                                               {0x15, {352, 32}},
                                                               {0x16, {480, 32}},
                                                               {0x17, {112, 16}},
                                                               {0x47, {216, 8}},
                                                               {0x49, field::reg_a},
                                                               {0x51, field::reg_c_0},
                                                               {0x52, field::reg_c_1},
                                                               {0x53, {field::reg_c_0.bit - 64, 32}},
                                                               {0x54, {field::reg_c_0.bit - 96, 32}},
                                                               {0x55, {field::reg_c_0.bit - 128, 32}},
                                                               {0x56, {field::reg_c_0.bit - 160, 32}},
                                                               {0x59, field::outer_seq},
                                                               {0x5b, field::outer_ack},
                                                               {0x73, {136, 8}}};
    for (const auto& [id, place] : places_of_fields) {
        const auto list = compiled({copy(id == 0x53 ? 0x54 : 0x53, 0, id, 0, 2)}, DomainType::nic_tx);
        for (unsigned bit = 0; bit < parameters_size * 8; bit += 8) {
            const int at = key_offset_of(bit / 32 * 4);
            if (at < 0) continue;
            const bool inside = bit >= place.bit && bit < place.bit + place.width;
            EXPECT_EQ(list->taint().bytes()[static_cast<unsigned>(at) + bit / 8 % 4], inside ? 0xff : 0)
                << "field " << id << " bit " << bit;
        }
        const bool header = id < 0x49 || id > 0x56;
        EXPECT_EQ(list->edits_headers(), header);
        EXPECT_EQ(list->repeatable(), !header);
        // Constants in registers and MAC addresses are known; others depend on the packet's having the header.
        const auto constant = compiled({set_command(id, 0, 2, 1)}, DomainType::nic_tx);
        EXPECT_EQ(constant->taint() == Key{}, !header || id == 1 || id == 2 || id == 4 || id == 5) << id;
        EXPECT_TRUE(constant->repeatable());
    }
}

TEST_F(EditFields, SixtyFourCommandsWork) {
    std::vector<std::uint64_t> commands;
    for (unsigned i = 0; i < 64; ++i) commands.push_back(__builtin_bswap64(add_command(id::ip_ttl, 1)));
    std::shared_ptr<const EditList> list;
    ASSERT_EQ(EditList::compile(DomainType::fdb, commands, list), 0);
    EXPECT_EQ(edited(*list, make_frame({.ttl = 10})), make_frame({.ttl = 74}));
}

class EditLimits : public SteeringTest {
protected:
    Domain fdb{steering, DomainType::fdb, nullptr}, rx{steering, DomainType::nic_rx, nullptr};
    Domain tx{steering, DomainType::nic_tx, nullptr};

    int error_of(Domain& domain, std::initializer_list<std::uint64_t> commands) {
        Action::Created action;
        return try_modify(domain, commands, action);
    }
    int error_of_many(std::size_t count, bool root) {
        const std::vector<std::uint64_t> commands(count, __builtin_bswap64(set_command(id::reg_c_1, 0, 32, 1)));
        Action::Created action;
        return Action::modify_header(fdb, root, commands, action);
    }
};

TEST_F(EditLimits, EveryFieldHasItsLength) {
    for (const FieldPlace& field : field_places) {
        EXPECT_EQ(error_of(fdb, {set_command(field.id, 0, field.width, 1)}), 0) << field.id;
        EXPECT_EQ(error_of(fdb, {set_command(field.id, 1, field.width, 1)}), EINVAL) << field.id;
        if (field.width < 32) {
            EXPECT_EQ(error_of(fdb, {set_command(field.id, 0, field.width + 1, 1)}), EINVAL) << field.id;
            EXPECT_EQ(error_of(fdb, {set_command(field.id, 0, 0, 1)}), EINVAL) << field.id << ": 0 is 32";
            EXPECT_EQ(error_of(fdb, {copy_command(0x53, field.id, field.width + 1)}), EINVAL) << field.id;
            EXPECT_EQ(error_of(fdb, {copy_command(field.id, 0x53, field.width + 1)}), EINVAL) << field.id;
        }
        EXPECT_EQ(error_of(fdb, {copy_command(0x53, field.id, field.width)}), 0) << field.id;
        EXPECT_EQ(error_of(fdb, {copy_command(field.id, 0x53, field.width)}), 0) << field.id;
    }
}

TEST_F(EditLimits, RegistersAndTheEthertypeHaveTheirLengthToo) {
    for (const unsigned id : {0x03U, 0x49U, 0x51U, 0x52U, 0x53U, 0x54U, 0x55U, 0x56U}) {
        const unsigned width = id == 3 ? 16 : 32, other = id == 0x53 ? 0x54 : 0x53;
        EXPECT_EQ(error_of(tx, {set_command(id, 0, width, 1)}), 0) << id;
        EXPECT_EQ(error_of(tx, {set_command(id, width - 1, 1, 1)}), 0) << id;
        EXPECT_EQ(error_of(tx, {set_command(id, 1, width, 1)}), EINVAL) << id;
        EXPECT_EQ(error_of(tx, {set_command(id, width - 1, 2, 1)}), EINVAL) << id;
        const auto copy = [](unsigned from, unsigned from_offset, unsigned to, unsigned to_offset, unsigned length) {
            return copy_command(from, to, length) | static_cast<std::uint64_t>(from_offset) << 40 |
                   static_cast<std::uint64_t>(to_offset) << 8;
        };
        EXPECT_EQ(error_of(tx, {copy(id, width - 4, other, 0, 4)}), 0) << id;
        EXPECT_EQ(error_of(tx, {copy(id, width - 4, other, 0, 5)}), EINVAL) << id;
        EXPECT_EQ(error_of(tx, {copy(other, 0, id, width - 4, 4)}), 0) << id;
        EXPECT_EQ(error_of(tx, {copy(other, 0, id, width - 4, 5)}), EINVAL) << id;
    }
}

TEST_F(EditLimits, CommandsAreSetAddAndCopy) {
    for (std::uint64_t kind = 0; kind < 16; ++kind) {
        const std::uint64_t command = kind << 60 | 0x0aULL << 48 | 8ULL << 32 | 0x53ULL << 16;
        EXPECT_EQ(error_of(fdb, {command}), kind >= 1 && kind <= 3 ? 0 : EOPNOTSUPP) << kind;
    }
}

TEST_F(EditLimits, AnyOtherIdIsNoField) {
    for (unsigned id = 0; id < 0x1000; ++id) {
        const bool known =
            id == 3 || id == 0x49 || id == 0x50 || (id >= 0x51 && id <= 0x56) ||
            std::any_of(std::begin(field_places), std::end(field_places),
                        [id](const FieldPlace& place) { return place.id == id; });
        if (known) continue;
        ASSERT_EQ(error_of(fdb, {set_command(id, 0, 1, 1)}), EINVAL) << id;
        ASSERT_EQ(error_of(fdb, {add_command(id, 1)}), EINVAL) << id;
        ASSERT_EQ(error_of(fdb, {copy_command(id, 0x53, 1)}), EINVAL) << id;
        ASSERT_EQ(error_of(fdb, {copy_command(0x53, id, 1)}), EINVAL) << id;
    }
}

TEST_F(EditLimits, RegAIsForSendersAndRegBForReceivers) {
    for (Domain* domain : {&fdb, &rx, &tx}) {
        const bool sends = domain->type() == DomainType::nic_tx;
        EXPECT_EQ(error_of(*domain, {set_command(0x49, 0, 32, 1)}), sends ? 0 : EINVAL);
        EXPECT_EQ(error_of(*domain, {copy_command(0x49, 0x53, 8)}), sends ? 0 : EINVAL);
        EXPECT_EQ(error_of(*domain, {copy_command(0x53, 0x49, 8)}), sends ? 0 : EINVAL);
        EXPECT_EQ(error_of(*domain, {add_command(0x49, 1)}), EINVAL);
        EXPECT_EQ(error_of(*domain, {add_command(0x50, 1)}), EINVAL);
        const int for_receivers = domain == &rx ? 0 : EINVAL;
        EXPECT_EQ(error_of(*domain, {set_command(0x50, 0, 32, 1)}), for_receivers);
        EXPECT_EQ(error_of(*domain, {copy_command(0x50, 0x53, 8)}), for_receivers);
        EXPECT_EQ(error_of(*domain, {copy_command(0x53, 0x50, 8)}), for_receivers);
        EXPECT_EQ(error_of(*domain, {set_command(0x50, 8, 25, 1)}), EINVAL) << "past its bits";
    }
}

TEST_F(EditLimits, OneListKeepsToOneL3AndOneL4) {
    const auto set = [](unsigned id) { return set_command(id, 0, 8, 1); };
    const std::vector<unsigned> v4{0x0a, 0x15, 0x16}, v6{0x0d, 0x10, 0x11, 0x14, 0x47}, tcp{7, 8, 9}, udp{0x0b, 0x0c};
    for (const unsigned a : v4) {
        for (const unsigned b : v6) {
            EXPECT_EQ(error_of(fdb, {set(a), set(b)}), ENOTSUP);
            EXPECT_EQ(error_of(fdb, {set(b), set(2), set(a)}), ENOTSUP);
            EXPECT_EQ(error_of(fdb, {copy_command(a, 0x53, 8), set(b)}), 0) << "only what is written counts";
        }
    }
    for (const unsigned a : tcp) {
        for (const unsigned b : udp) EXPECT_EQ(error_of(fdb, {set(a), set(0x0a), set(b)}), EINVAL);
    }
    EXPECT_EQ(error_of(fdb, {set(0x0b), add_command(0x59, 1)}), 0) << "sequence numbers are tied to no L4";
}

/// Each two fields: the L3 and the L4 that libmlx5 ties them to, or 0.
TEST_F(EditLimits, EachTwoFieldsGoTogetherUnlessTheyAreTiedToDifferentOnes) {
    std::vector<unsigned> ids{0x03, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56};
    for (const FieldPlace& place : field_places) ids.push_back(place.id);
    const auto l3_of = [](unsigned id) {
        if (id == 0x0a || id == 0x15 || id == 0x16) return 4;
        return (id >= 0x0d && id <= 0x14) || id == 0x47 ? 6 : 0;
    };
    const auto l4_of = [](unsigned id) { return id >= 7 && id <= 9 ? 6 : id == 0x0b || id == 0x0c ? 17 : 0; };
    for (const unsigned a : ids) {
        for (const unsigned b : ids) {
            const auto conflict = [](int one, int other) { return one != 0 && other != 0 && one != other; };
            const int expected = conflict(l3_of(a), l3_of(b)) ? ENOTSUP : conflict(l4_of(a), l4_of(b)) ? EINVAL : 0;
            EXPECT_EQ(error_of(fdb, {set_command(a, 0, 2, 1), set_command(b, 0, 2, 1)}), expected) << a << ' ' << b;
        }
    }
}

TEST_F(EditLimits, ListsEndWhereTheDevicesRoomDoes) {
    EXPECT_EQ(error_of_many(0, false), EINVAL);
    EXPECT_EQ(error_of_many(0, true), EINVAL);
    EXPECT_EQ(error_of_many(32, true), 0);
    EXPECT_EQ(error_of_many(33, true), EOPNOTSUPP) << "max_modify_header_actions";
    EXPECT_EQ(error_of_many(33, false), 0);
    EXPECT_EQ(error_of_many(1U << 17, false), 0);
    EXPECT_EQ(error_of_many((1U << 17) + 1, false), EINVAL);
}

}  // namespace
}  // namespace ovsdr::soft::test
