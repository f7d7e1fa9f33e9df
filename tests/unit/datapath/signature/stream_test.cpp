#include "datapath/signature/stream.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "datapath/signature/blocks.hpp"
#include "tests/unit/datapath/signature/domains.hpp"
#include "tests/unit/datapath/signature/random_bytes.hpp"
#include "tests/unit/datapath/signature/reference.hpp"

namespace ovsdr::soft::signature {
namespace {

constexpr std::array block_sizes{512u, 520u, 4048u, 4096u, 4160u};

/// Bytes behind a layout that cuts them anywhere.
struct CutMemory {
    std::vector<std::byte> bytes;
    std::mt19937 random{7};

    template <typename Use>
    bool visit(std::uint64_t offset, std::uint64_t size, Use use) {
        if (offset > bytes.size() || size > bytes.size() - offset) return false;
        while (size != 0) {
            const std::uint64_t part = std::min<std::uint64_t>(size, 1 + random() % 900);
            use(bytes.data() + offset, part);
            offset += part;
            size -= part;
        }
        return true;
    }
    bool read(std::uint64_t offset, std::span<std::byte> to) {
        return visit(offset, to.size(), [&to](const std::byte* part, std::uint64_t size) {
            std::copy_n(part, size, to.begin());
            to = to.subspan(size);
        });
    }
    bool write(std::uint64_t offset, std::span<const std::byte> from) {
        return visit(offset, from.size(), [&from](std::byte* part, std::uint64_t size) {
            std::copy_n(from.begin(), size, part);
            from = from.subspan(size);
        });
    }
};

/// Each type with each seed and block size, and no signature.
std::vector<Domain> all_domains() {
    std::vector<Domain> domains{Domain{}};
    for (const std::uint32_t size : block_sizes) {
        for (const std::uint64_t seed : {std::uint64_t{0}, ones}) {
            domains.push_back(t10(size, GuardType::t10_crc, seed));
            domains.push_back(t10(size, GuardType::ip_checksum, seed));
            domains.push_back(crc(size, GuardType::crc32, seed));
            domains.push_back(crc(size, GuardType::crc32c, seed));
            domains.push_back(crc(size, GuardType::crc64_xp10, seed));
        }
    }
    return domains;
}

class StreamTest : public ::testing::Test {
protected:
    /// Sends what is in `memory`, in pieces of any size; some are asked for again.
    std::vector<std::byte> sent(const Attributes& attributes, CutMemory& memory, std::size_t wire_size, Error& error) {
        Stream stream;
        std::vector<std::byte> wire(wire_size);
        for (std::size_t at = 0; at < wire_size;) {
            const std::size_t size = std::min<std::size_t>(1 + random() % 1500, wire_size - at);
            EXPECT_TRUE(stream.gather(attributes, memory, at, std::span(wire).subspan(at, size)));
            at += size;
            if (random() % 8 == 0) at -= random() % (at + 1);  // go back N
        }
        error = stream.error();
        return wire;
    }

    Error received(const Attributes& attributes, CutMemory& memory, std::span<const std::byte> wire) {
        Stream stream;
        for (std::size_t at = 0; at < wire.size();) {
            const std::size_t size = std::min<std::size_t>(1 + random() % 1500, wire.size() - at);
            EXPECT_TRUE(stream.scatter(attributes, memory, at, wire.subspan(at, size)));
            at += size;
        }
        return stream.error();
    }

    std::mt19937 random{5};
};

TEST_F(StreamTest, EachPairingMovesTheBytesThatTheModelHas) {
    const std::vector<std::byte> raw = random_bytes(random, 3 * 4160 + 100);
    const std::vector<Domain> domains = all_domains();
    std::vector<std::vector<std::byte>> framed;
    for (const Domain& domain : domains) framed.push_back(reference::framed(domain, raw));
    for (std::size_t m = 0; m < domains.size(); ++m) {
        for (std::size_t w = 0; w < domains.size(); ++w) {
            const Attributes attributes{domains[m], domains[w], 0xFF, 0};
            SCOPED_TRACE("memory " + std::to_string(m) + " wire " + std::to_string(w));
            Error error;
            CutMemory memory{framed[m]};
            ASSERT_EQ(sent(attributes, memory, framed[w].size(), error), framed[w]);
            ASSERT_EQ(error.type, ErrorType::none);
            CutMemory empty{std::vector<std::byte>(framed[m].size(), std::byte{0xEE})};
            ASSERT_EQ(received(attributes, empty, framed[w]).type, ErrorType::none);
            ASSERT_EQ(empty.bytes, framed[m]);
        }
    }
}

TEST_F(StreamTest, AFieldInMemoryIsReadAndWrittenWhereTheDataEnds) {
    // RDMA of exactly one block, no signature on the wire: the last byte of the message completes the block.
    const Domain domain = crc(512, GuardType::crc32, ones);
    const Attributes attributes{domain, {}, 0xFF, 0};
    const auto raw = random_bytes(random, 512);
    CutMemory memory{std::vector<std::byte>(516)};
    EXPECT_EQ(received(attributes, memory, raw).type, ErrorType::none);
    EXPECT_EQ(memory.bytes, reference::framed(domain, raw));
    memory.bytes[515] ^= std::byte{1};
    Error error;
    EXPECT_EQ(sent(attributes, memory, 512, error), raw);
    EXPECT_EQ(error.type, ErrorType::guard);
}

TEST_F(StreamTest, ReportsTheFirstBadBlockWithItsOffsetAndValues) {
    const Domain domain = t10(512, GuardType::t10_crc, ones);
    const auto raw = random_bytes(random, 4 * 512);
    const auto good = reference::framed(domain, raw);
    for (const bool in_memory : {false, true}) {
        const Attributes attributes{in_memory ? domain : Domain{}, in_memory ? Domain{} : domain, 0xFF, 0};
        const auto error_of = [&](std::size_t at, unsigned flip, std::size_t second) {
            CutMemory bad{good};
            bad.bytes[at] ^= static_cast<std::byte>(flip);
            bad.bytes[second] ^= std::byte{1};
            Error error;
            if (in_memory) {
                (void)sent(attributes, bad, raw.size(), error);
                return error;
            }
            CutMemory memory{std::vector<std::byte>(raw.size())};
            return received(attributes, memory, bad.bytes);
        };
        const std::size_t last = 3 * 520;  // in a later block: not the first
        const Error guard = error_of(520 + 512, 0x80, last);
        EXPECT_EQ(guard.type, ErrorType::guard);
        EXPECT_EQ(guard.offset, 520u);
        const auto value = reference::guard(GuardType::t10_crc, ones, std::span(raw).subspan(512, 512));
        EXPECT_EQ(guard.actual, value);
        EXPECT_EQ(guard.expected, value ^ 0x8000);
        const Error application = error_of(2 * 520 + 515, 0x01, last);
        EXPECT_EQ(application.type, ErrorType::application_tag);
        EXPECT_EQ(application.offset, 2 * 520u);
        EXPECT_EQ(application.actual, 0xABCDu);
        EXPECT_EQ(application.expected, 0xABCCu);
        const Error reference = error_of(2 * 520 + 519, 0x0F, last);
        EXPECT_EQ(reference.type, ErrorType::reference_tag);
        EXPECT_EQ(reference.offset, 2 * 520u);
        EXPECT_EQ(reference.actual, 0u) << "0xFFFFFFFE + 2";
        EXPECT_EQ(reference.expected, 0x0Fu);
        EXPECT_EQ(error_of(515, 0x01, 513).type, ErrorType::guard) << "guard before application tag in one block";
        EXPECT_EQ(error_of(519, 0x01, 515).type, ErrorType::application_tag) << "application tag before reference tag";
    }
}

TEST_F(StreamTest, ErrorsOfCrcsHaveTheWholeValue) {
    for (const GuardType type : {GuardType::crc32, GuardType::crc32c, GuardType::crc64_xp10}) {
        const Domain domain = crc(4096, type, ones);
        const auto raw = random_bytes(random, 2 * 4096);
        CutMemory memory{reference::framed(domain, raw)};
        memory.bytes.back() ^= std::byte{0x80};
        Error error;
        (void)sent({domain, {}, 0xFF, 0}, memory, raw.size(), error);
        const std::uint64_t value = reference::guard(type, ones, std::span(raw).subspan(4096));
        EXPECT_EQ(error.type, ErrorType::guard);
        EXPECT_EQ(error.actual, value);
        EXPECT_EQ(error.expected, value ^ std::uint64_t{1} << (8 * domain.field_size() - 1));
        EXPECT_EQ(error.offset, 4096 + domain.field_size());
    }
}

TEST_F(StreamTest, ChecksTheBytesOfTheMaskOnly) {
    // Byte k of the mask covers byte k of the field, the least significant byte being 0.
    for (const Domain& domain :
         {t10(512, GuardType::ip_checksum, 0), crc(512, GuardType::crc32c, 0), crc(512, GuardType::crc64_xp10, 0)}) {
        const auto raw = random_bytes(random, 512);
        const unsigned size = domain.field_size();
        for (unsigned flipped = 0; flipped < size; ++flipped) {
            CutMemory memory{reference::framed(domain, raw)};
            memory.bytes[512 + flipped] ^= std::byte{0x10};
            const unsigned bit = domain.t10dif ? 7 - flipped : 8 - size + flipped;
            const auto mask = static_cast<std::uint8_t>(1u << bit);
            Error error;
            (void)sent({domain, {}, mask, 0}, memory, 512, error);
            EXPECT_NE(error.type, ErrorType::none) << "field byte " << flipped;
            (void)sent({domain, {}, static_cast<std::uint8_t>(~mask), 0}, memory, 512, error);
            EXPECT_EQ(error.type, ErrorType::none) << "field byte " << flipped;
        }
    }
}

TEST_F(StreamTest, CopiesTheBytesOfTheMaskAndMakesTheOthers) {
    for (const bool sending : {false, true}) {
        Domain input = t10(512, GuardType::t10_crc, ones);
        Domain output = t10(512, GuardType::ip_checksum, 0);
        output.application_tag = 0x1111;
        output.reference_tag = 0x22222222;
        const auto raw = random_bytes(random, 3 * 512);
        auto in = reference::framed(input, raw);
        for (std::size_t block = 0; block < 3; ++block) {  // not what anyone would calculate
            for (unsigned i = 0; i < 8; ++i) in[block * 520 + 512 + i] = static_cast<std::byte>(0xF0 + i);
        }
        const auto made = reference::framed(output, raw);
        for (unsigned mask = 0; mask < 256; ++mask) {
            auto expected = made;
            for (std::size_t block = 0; block < 3; ++block) {
                for (unsigned i = 0; i < 8; ++i) {
                    if (mask >> (7 - i) & 1) expected[block * 520 + 512 + i] = in[block * 520 + 512 + i];
                }
            }
            const auto copy = static_cast<std::uint8_t>(mask);
            if (sending) {
                CutMemory memory{in};
                Error error;
                ASSERT_EQ(sent({input, output, 0, copy}, memory, in.size(), error), expected) << mask;
                ASSERT_EQ(error.type, ErrorType::none);
            } else {
                CutMemory memory{std::vector<std::byte>(in.size())};
                ASSERT_EQ(received({output, input, 0, copy}, memory, in).type, ErrorType::none);
                ASSERT_EQ(memory.bytes, expected) << mask;
            }
        }
    }
}

TEST_F(StreamTest, EscapesDependOnTheTagsInTheField) {
    const auto raw = random_bytes(random, 512);
    const auto type_with = [&](Escape escape, std::uint16_t application, std::uint32_t reference) {
        Domain domain = t10(512, GuardType::t10_crc, 0);
        domain.escape = escape;
        CutMemory memory{reference::framed(domain, raw)};
        const std::uint64_t field = std::uint64_t{0x1234} << 48 | std::uint64_t{application} << 32 | reference;
        domain.store(field, std::span(memory.bytes).subspan(512));
        Error error;
        (void)sent({domain, {}, 0xFF, 0}, memory, 512, error);
        return error.type;
    };
    EXPECT_EQ(type_with(Escape::never, 0xFFFF, 0xFFFFFFFF), ErrorType::guard);
    EXPECT_EQ(type_with(Escape::application_tag, 0xFFFF, 1), ErrorType::none);
    EXPECT_EQ(type_with(Escape::application_tag, 0xFFFE, 0xFFFFFFFF), ErrorType::guard);
    EXPECT_EQ(type_with(Escape::application_and_reference_tag, 0xFFFF, 1), ErrorType::guard);
    EXPECT_EQ(type_with(Escape::application_and_reference_tag, 0xFFFF, 0xFFFFFFFF), ErrorType::none);
    EXPECT_EQ(type_with(Escape::application_and_reference_tag, 0, 0xFFFFFFFF), ErrorType::guard);
}

TEST_F(StreamTest, ReferenceTagStaysWithoutRemap) {
    Domain domain = t10(512, GuardType::t10_crc, 0);
    domain.increment_reference_tag = false;
    const auto raw = random_bytes(random, 3 * 512);
    CutMemory memory{raw};
    Error error;
    const auto wire = sent({{}, domain, 0xFF, 0}, memory, 3 * 520, error);
    for (std::size_t block = 0; block < 3; ++block)
        EXPECT_EQ(domain.load(std::span(wire).subspan(block * 520 + 512)) & 0xFFFFFFFF, 0xFFFFFFFEu);
}

TEST_F(StreamTest, AnyRangeOfTheWireIsTheSameBytes) {
    // A responder that is asked again from the middle of a read begins a new stream there.
    const auto raw = random_bytes(random, 6 * 4160);
    for (const auto& [memory_domain, wire] :
         {std::pair{Domain{}, t10(520, GuardType::t10_crc, ones)},
          std::pair{crc(4096, GuardType::crc64_xp10, ones), t10(512, GuardType::ip_checksum, 0)},
          std::pair{t10(4048, GuardType::t10_crc, 0), t10(4048, GuardType::t10_crc, 0)}}) {
        for (const std::uint8_t copy : {0x00, 0xFF}) {
            if (copy && !wire.same_structure(memory_domain)) continue;
            const auto expected = reference::framed(wire, raw);
            CutMemory memory{reference::framed(memory_domain, raw)};
            for (int round = 0; round < 400; ++round) {
                Stream stream;
                std::size_t at = random() % expected.size();
                if (round % 3 == 0)
                    at = at / (wire.block_size + 8) * (wire.block_size + 8) + wire.block_size + random() % 8;
                if (at >= expected.size()) continue;
                std::vector<std::byte> got(std::min<std::size_t>(random() % 9000, expected.size() - at));
                ASSERT_TRUE(stream.gather({memory_domain, wire, 0xFF, copy}, memory, at, got));
                ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + static_cast<long>(at))) << at;
                ASSERT_EQ(stream.error().type, ErrorType::none);
            }
        }
    }
}

TEST_F(StreamTest, AMessageMayGoOnWhereAnotherEndedWithinABlock) {
    const Domain wire = t10(512, GuardType::t10_crc, ones);
    const Domain memory_domain = crc(4096, GuardType::crc32c, ones);
    const auto raw = random_bytes(random, 2 * 4096);
    const auto bytes = reference::framed(wire, raw);
    CutMemory memory{std::vector<std::byte>(2 * 4100)};
    for (const std::size_t step : {1U, 103U, 257U, 512U, 517U, 519U, 1032U}) {
        std::fill(memory.bytes.begin(), memory.bytes.end(), std::byte{});
        for (std::size_t at = 0; at < bytes.size(); at += step) {
            Stream stream;
            const auto part =
                std::span<const std::byte>(bytes).subspan(at, std::min<std::size_t>(step, bytes.size() - at));
            ASSERT_TRUE(stream.scatter({memory_domain, wire, 0xFF, 0}, memory, at, part));
            ASSERT_EQ(stream.error().type, ErrorType::none);
        }
        ASSERT_EQ(memory.bytes, reference::framed(memory_domain, raw)) << step;
    }
}

TEST_F(StreamTest, AMessageMayBeginAtACopiedField) {
    const Domain domain = t10(512, GuardType::t10_crc, ones);
    const auto raw = random_bytes(random, 2 * 512);
    const auto bytes = reference::framed(domain, raw);
    for (const std::uint8_t copy : {0x00, 0x0F, 0xF0, 0xFF}) {
        CutMemory memory{std::vector<std::byte>(bytes.size())};
        for (const auto& [at, size] : {std::pair{0, 512}, std::pair{512, 8}, std::pair{520, 512}, std::pair{1032, 8},
                                       std::pair{0, 512}, std::pair{512, 528}}) {
            Stream stream;
            const auto part =
                std::span<const std::byte>(bytes).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(size));
            ASSERT_TRUE(stream.scatter({domain, domain, 0xFF, copy}, memory, static_cast<std::uint64_t>(at), part));
            ASSERT_EQ(stream.error().type, ErrorType::none);
        }
        EXPECT_EQ(memory.bytes, bytes);
    }
}

TEST_F(StreamTest, FailsWhereMemoryEnds) {
    const Attributes attributes{crc(512, GuardType::crc32, ones), {}, 0xFF, 0};
    CutMemory memory{std::vector<std::byte>(515)};
    std::vector<std::byte> data(512);
    EXPECT_TRUE(Stream().gather(attributes, memory, 0, std::span(data).first(511)));
    EXPECT_FALSE(Stream().gather(attributes, memory, 0, data)) << "the field's last byte is missing";
    EXPECT_FALSE(Stream().scatter(attributes, memory, 0, data));
}

/// A part of it is out of reach for a while.
struct LockedMemory : CutMemory {
    std::uint64_t locked_from = 0, locked_to = 0;

    [[nodiscard]] bool reached(std::uint64_t offset, std::uint64_t size) const {
        return offset + size <= locked_from || offset >= locked_to;
    }
    bool read(std::uint64_t offset, std::span<std::byte> to) {
        return reached(offset, to.size()) && CutMemory::read(offset, to);
    }
    bool write(std::uint64_t offset, std::span<const std::byte> from) {
        return reached(offset, from.size()) && CutMemory::write(offset, from);
    }
};

TEST_F(StreamTest, GoesOnRightlyAfterAPartThatWasOutOfReach) {
    const Domain memory_domain = crc(4096, GuardType::crc32c, ones), dif = t10(512, GuardType::t10_crc, ones);
    const auto raw = random_bytes(random, 2 * 4096);
    for (const auto& [inside, outside] :
         {std::pair{memory_domain, dif}, std::pair{dif, dif}, std::pair{Domain{}, dif}}) {
        const auto in_memory = reference::framed(inside, raw), on_wire = reference::framed(outside, raw);
        for (const std::uint8_t copy : {0x00, 0xFF}) {
            if (copy && !inside.same_structure(outside)) continue;
            const Attributes attributes{inside, outside, 0xFF, copy};
            for (const bool goes_back : {false, true}) {
                // The fourth piece fails; what comes next is that piece again, or the one behind it.
                LockedMemory memory{{in_memory}, 1000, 1030};
                Stream stream;
                std::vector<std::byte> got(on_wire.size());
                for (std::size_t at = 0; at < got.size(); at += 300) {
                    const auto piece = std::span(got).subspan(at, std::min<std::size_t>(300, got.size() - at));
                    if (at == 900) {
                        EXPECT_FALSE(stream.gather(attributes, memory, at, piece));
                        memory.locked_to = 0;
                        if (!goes_back) continue;
                    }
                    ASSERT_TRUE(stream.gather(attributes, memory, at, piece));
                    ASSERT_TRUE(std::equal(piece.begin(), piece.end(), on_wire.begin() + static_cast<long>(at))) << at;
                }
                EXPECT_EQ(stream.error().type, ErrorType::none);
            }
            LockedMemory memory{{std::vector<std::byte>(in_memory.size())}, 1000, 1030};
            Stream stream;
            for (std::size_t at = 0; at < on_wire.size(); at += 300) {
                const auto piece =
                    std::span<const std::byte>(on_wire).subspan(at, std::min<std::size_t>(300, on_wire.size() - at));
                if (at == 900) {
                    EXPECT_FALSE(stream.scatter(attributes, memory, at, piece));
                    memory.locked_to = 0;
                }
                ASSERT_TRUE(stream.scatter(attributes, memory, at, piece));
            }
            EXPECT_EQ(stream.error().type, ErrorType::none);
            EXPECT_EQ(memory.bytes, in_memory);
        }
    }
}

TEST_F(StreamTest, NeedsTheFieldThatItCopiesAndTheDataBeforeAGuard) {
    // The wire field is asked for alone: what it is made of comes from memory.
    const Domain dif = t10(512, GuardType::t10_crc, ones);
    const auto bytes = reference::framed(dif, random_bytes(random, 512));
    std::array<std::byte, 8> field{};
    for (const std::uint8_t copy : {0x00, 0xFF}) {
        const Attributes attributes{dif, dif, 0xFF, copy};
        LockedMemory no_field{{bytes}, 515, 516}, no_data{{bytes}, 100, 101};
        EXPECT_EQ(Stream().gather(attributes, no_field, 512, field), copy == 0);
        EXPECT_EQ(Stream().gather(attributes, no_data, 512, field), copy != 0) << "a copied guard needs no data";
    }
    // What stands in the lower half of a mask is not of a CRC of 32 bits, and all of one of 64.
    for (const GuardType type : {GuardType::crc32, GuardType::crc64_xp10}) {
        const Domain domain = crc(512, type, ones);
        LockedMemory no_data{{reference::framed(domain, random_bytes(random, 512))}, 100, 101};
        const auto whole = std::span(field).first(domain.field_size());
        EXPECT_EQ(Stream().gather({domain, domain, 0xFF, 0xF0}, no_data, 512, whole), type == GuardType::crc32);
        EXPECT_FALSE(Stream().gather({domain, domain, 0xFF, 0x0F}, no_data, 512, whole));
        EXPECT_TRUE(Stream().gather({domain, domain, 0xFF, 0xFF}, no_data, 512, whole));
    }
    LockedMemory no_data{{bytes}, 100, 101};
    EXPECT_TRUE(Stream().gather({dif, dif, 0x3F, 0xC0}, no_data, 512, field))
        << "tags do not, when the guard is copied";
}

TEST_F(StreamTest, APlaceThatWasOutOfReachIsPlacedAgain) {
    // The stream is moved to the middle of a block whose beginning cannot be read; later it can.
    const Domain dif = t10(512, GuardType::t10_crc, ones);
    const auto raw = random_bytes(random, 3 * 512);
    const auto wire = reference::framed(dif, raw);
    for (const Domain& inside : {Domain{}, dif}) {
        const auto in_memory = reference::framed(inside, raw);
        LockedMemory memory{{in_memory}, 512 + 8, 512 + 60};
        Stream stream;
        std::vector<std::byte> got(520);
        const Attributes attributes{inside, dif, 0xFF, 0};
        ASSERT_TRUE(stream.gather(attributes, memory, 0, std::span(got).first(10)));
        EXPECT_FALSE(stream.gather(attributes, memory, 520 + 300, got));
        memory.locked_to = 0;
        ASSERT_TRUE(stream.gather(attributes, memory, 520 + 300, got));
        EXPECT_TRUE(std::equal(got.begin(), got.end(), wire.begin() + 820));
        EXPECT_EQ(stream.error().type, ErrorType::none);
        // The same for what comes in.
        LockedMemory target{{in_memory}, 512 + 8, 512 + 60};
        Stream receiver;
        const auto piece = [&wire](std::size_t at, std::size_t size) {
            return std::span<const std::byte>(wire).subspan(at, size);
        };
        ASSERT_TRUE(receiver.scatter(attributes, target, 0, piece(0, 10)));
        EXPECT_FALSE(receiver.scatter(attributes, target, 820, piece(820, 520)));
        target.locked_to = 0;
        ASSERT_TRUE(receiver.scatter(attributes, target, 820, piece(820, 520)));
        EXPECT_EQ(receiver.error().type, ErrorType::none);
        EXPECT_EQ(target.bytes, in_memory);
    }
}

TEST_F(StreamTest, WhatComesInFromTheStartOfABlockOrOfACopiedFieldReadsNothing) {
    struct WriteOnlyMemory : CutMemory {
        bool read(std::uint64_t, std::span<std::byte>) { return false; }
    };
    const Domain dif = t10(512, GuardType::t10_crc, ones);
    const auto wire = reference::framed(dif, random_bytes(random, 2 * 512));
    for (const std::uint8_t copy : {0x00, 0xFF}) {
        WriteOnlyMemory memory{{std::vector<std::byte>(wire.size())}};
        Stream stream;
        EXPECT_TRUE(stream.scatter({dif, dif, copy ? std::uint8_t{0} : std::uint8_t{0xFF}, copy}, memory, 0, wire));
        EXPECT_EQ(memory.bytes, wire);
    }
    WriteOnlyMemory memory{{std::vector<std::byte>(wire.size())}};
    Stream stream;
    EXPECT_TRUE(stream.scatter({dif, dif, 0, 0xFF}, memory, 512, std::span(wire).subspan(512)));
    EXPECT_TRUE(std::equal(wire.begin() + 512, wire.end(), memory.bytes.begin() + 512));
}

TEST_F(StreamTest, FieldsBehindTheFirstAreCheckedWhereverAMessageBegins) {
    const Domain dif = t10(512, GuardType::t10_crc, ones);
    const auto raw = random_bytes(random, 4 * 512);
    auto wire = reference::framed(dif, raw);
    wire[515] ^= std::byte{1};
    wire[2 * 520 + 513] ^= std::byte{1};
    for (const std::size_t start : {512U, 514U, 519U, 520U, 600U, 1030U, 1034U}) {
        for (const std::size_t step : {3U, 700U}) {
            CutMemory memory{raw};
            Stream stream;
            for (std::size_t at = start; at < wire.size(); at += step) {
                const auto part = std::span<const std::byte>(wire).subspan(at, std::min(step, wire.size() - at));
                ASSERT_TRUE(stream.scatter({{}, dif, 0xFF, 0}, memory, at, part));
            }
            ASSERT_EQ(stream.error().type, start == 512 ? ErrorType::application_tag : ErrorType::guard) << start;
            ASSERT_EQ(stream.error().offset, start == 512 ? 0U : 2 * 520U)
                << "a field that is entered half-way is not checked";
        }
    }
}

TEST_F(StreamTest, AFieldThatCannotBeWrittenFails) {
    const Domain dif = t10(512, GuardType::t10_crc, ones);
    const auto wire = reference::framed(dif, random_bytes(random, 512));
    for (const std::uint8_t copy : {0x00, 0xFF}) {
        LockedMemory memory{{std::vector<std::byte>(520)}, 515, 516};
        EXPECT_FALSE(Stream().scatter({dif, dif, 0xFF, copy}, memory, 0, wire));
        EXPECT_EQ(Stream().scatter({dif, dif, 0xFF, copy}, memory, 0, std::span(wire).first(512)), copy != 0);
        EXPECT_TRUE(Stream().scatter({dif, dif, 0xFF, copy}, memory, 0, std::span(wire).first(511)));
    }
}

TEST_F(StreamTest, BlocksInPlaceBeginAnywhereAndEndWithTheLastWholeOne) {
    const Domain domain = t10(512, GuardType::t10_crc, ones);
    const auto raw = random_bytes(random, 6 * 512);
    const auto all = reference::framed(domain, raw);
    const auto part = std::vector(all.begin() + 2 * 520, all.begin() + 5 * 520 + 519);
    auto made = part;
    for (std::size_t block = 0; block < 3; ++block) {
        std::fill_n(made.begin() + static_cast<long>(block * 520 + 512), 8, std::byte{});
    }
    generate(domain, 2, made);
    EXPECT_EQ(made, part);
    made.back() ^= std::byte{1};
    EXPECT_EQ(validate(domain, 2, 0xFF, made).type, ErrorType::none) << "not a whole block";
    EXPECT_EQ(validate(domain, 3, 0xFF, made).type, ErrorType::reference_tag);
    EXPECT_EQ(validate(domain, 3, 0xF0, made).type, ErrorType::none) << "nobody asked for the reference tag";
    made[519] ^= std::byte{1};
    EXPECT_EQ(validate(domain, 2, 0xFF, made).offset, 2 * 520U);
}

TEST_F(StreamTest, BlocksInPlaceAreTheModels) {
    const auto raw = random_bytes(random, 3 * 4160);
    for (const Domain& domain : all_domains()) {
        if (!domain.present()) continue;
        auto expected = reference::framed(domain, std::span(raw).first(3 * domain.block_size));
        auto made = expected;
        for (std::size_t block = 0; block < 3; ++block) {
            std::fill_n(
                made.begin() + static_cast<long>(block * (domain.block_size + domain.field_size()) + domain.block_size),
                domain.field_size(), std::byte{});
        }
        generate(domain, 0, made);
        ASSERT_EQ(made, expected);
        EXPECT_EQ(validate(domain, 0, 0xFF, made).type, ErrorType::none);
        made[made.size() - domain.field_size() - 1] ^= std::byte{4};
        EXPECT_EQ(validate(domain, 0, 0xFF, made).type, ErrorType::guard);
        EXPECT_EQ(validate(domain, 0, 0xFF, made).offset, 2 * (domain.block_size + domain.field_size()));
    }
}

}  // namespace
}  // namespace ovsdr::soft::signature
