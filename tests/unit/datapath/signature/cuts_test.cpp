// Blocks that the end of a packet cuts, wherever it is, and memory that copies with a guard or without.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "datapath/signature/stream.hpp"
#include "tests/unit/datapath/signature/domains.hpp"
#include "tests/unit/datapath/signature/random_bytes.hpp"
#include "tests/unit/datapath/signature/reference.hpp"

namespace ovsdr::soft::signature {
namespace {

struct PlainMemory {
    std::vector<std::byte> bytes;

    bool read(std::uint64_t offset, std::span<std::byte> to) {
        std::copy_n(bytes.data() + offset, to.size(), to.data());
        return true;
    }
    bool write(std::uint64_t offset, std::span<const std::byte> from) {
        std::copy_n(from.data(), from.size(), bytes.data() + offset);
        return true;
    }
};

/// Copies with the guard where it can.
struct GuardingMemory : PlainMemory {
    using PlainMemory::read, PlainMemory::write;
    bool read(std::uint64_t offset, std::span<std::byte> to, Guard& guard) {
        return moved(to.data(), {bytes.data() + offset, to.size()}, guard);
    }
    bool write(std::uint64_t offset, std::span<const std::byte> from, Guard& guard) {
        return moved(bytes.data() + offset, from, guard);
    }
    static bool moved(std::byte* to, std::span<const std::byte> from, Guard& guard) {
        if (guard.copies(from.size())) return guard.copy(to, from);
        std::copy(from.begin(), from.end(), to);
        guard.update(from);
        return true;
    }
};
static_assert(Guarding<GuardingMemory> && !Guarding<PlainMemory>);

std::vector<Domain> domains_of(std::uint32_t size) {
    return {t10(size, GuardType::t10_crc, 0),     t10(size, GuardType::t10_crc, ones),
            t10(size, GuardType::ip_checksum, 0), crc(size, GuardType::crc32, ones),
            crc(size, GuardType::crc32c, ones),   crc(size, GuardType::crc64_xp10, ones)};
}

template <typename Memory>
class CutsTest : public ::testing::Test {
protected:
    static constexpr std::size_t blocks = 3;

    /// Two packets, or three with one of `middle` bytes between.
    struct Cut {
        std::size_t at, middle = 0;
    };
    template <typename Use>
    static void packets(std::size_t size, const Cut& cut, Use use) {
        const std::size_t ends[] = {std::min(cut.at, size), std::min(cut.at + cut.middle, size), size};
        std::size_t begin = 0;
        for (const std::size_t end : ends) {
            if (begin != end) use(begin, end - begin);
            begin = end;
        }
    }

    void send_and_take(const Domain& domain, const Attributes& attributes, std::span<const std::byte> raw,
                       const Cut& cut) {
        const std::vector<std::byte> wire = reference::framed(domain, raw);
        const auto in_memory = attributes.memory.present() ? wire : std::vector<std::byte>(raw.begin(), raw.end());
        const auto on_wire = attributes.wire.present() ? wire : std::vector<std::byte>(raw.begin(), raw.end());
        Memory source{{in_memory}}, sink{{std::vector<std::byte>(in_memory.size())}};
        std::vector<std::byte> sent(on_wire.size());
        Stream sender, receiver;
        packets(sent.size(), cut, [&](std::size_t at, std::size_t size) {
            ASSERT_TRUE(sender.gather(attributes, source, at, std::span(sent).subspan(at, size)));
            ASSERT_TRUE(receiver.scatter(attributes, sink, at, std::span(on_wire).subspan(at, size)));
        });
        ASSERT_EQ(sent, on_wire) << cut.at;
        ASSERT_EQ(sink.bytes, in_memory) << cut.at;
        ASSERT_EQ(sender.error().type, ErrorType::none) << cut.at;
        ASSERT_EQ(receiver.error().type, ErrorType::none) << cut.at;
    }

    /// One wrong bit in the block that is cut, on either side of the cut, is found.
    void find_error(const Domain& domain, std::span<const std::byte> raw, const Cut& cut, std::size_t wrong) {
        auto wire = reference::framed(domain, raw);
        wire[wrong] ^= std::byte{0x40};
        Memory sink{{std::vector<std::byte>(raw.size())}};
        Stream receiver;
        packets(wire.size(), cut, [&](std::size_t at, std::size_t size) {
            ASSERT_TRUE(receiver.scatter({{}, domain, 0xFF, 0}, sink, at, std::span(wire).subspan(at, size)));
        });
        const std::size_t frame = domain.block_size + domain.field_size();
        ASSERT_NE(receiver.error().type, ErrorType::none) << cut.at << " wrong at " << wrong;
        ASSERT_EQ(receiver.error().offset, wrong / frame * frame) << cut.at;
    }

    std::mt19937 random{6};
};

using Memories = ::testing::Types<PlainMemory, GuardingMemory>;
TYPED_TEST_SUITE(CutsTest, Memories);

TYPED_TEST(CutsTest, AnywhereInABlockOfEachType) {
    for (const Domain& domain : domains_of(512)) {
        SCOPED_TRACE("type " + std::to_string(static_cast<int>(domain.guard)));
        const auto raw = random_bytes(this->random, this->blocks * 512);
        const std::size_t frame = 512 + domain.field_size();
        for (std::size_t at = frame - 20; at <= 2 * frame + 20; ++at) {
            this->send_and_take(domain, {{}, domain, 0xFF, 0}, raw, {at});
            this->find_error(domain, raw, {at}, at - 1 - this->random() % 8);
            this->find_error(domain, raw, {at}, at + this->random() % 8);
            if (::testing::Test::HasFatalFailure()) return;
        }
    }
}

TYPED_TEST(CutsTest, AroundTheFieldsOfLongerBlocksTwice) {
    for (const std::uint32_t size : {520U, 4048U, 4096U, 4160U}) {
        for (const Domain& domain : domains_of(size)) {
            SCOPED_TRACE("block " + std::to_string(size) + " type " + std::to_string(static_cast<int>(domain.guard)));
            const auto raw = random_bytes(this->random, this->blocks * size);
            const std::size_t frame = size + domain.field_size();
            for (std::size_t at = 2 * frame - 18; at <= 2 * frame + 2; ++at) {
                for (const std::size_t middle : {1U, 3U, 4U, 8U, 20U}) {
                    this->send_and_take(domain, {{}, domain, 0xFF, 0}, raw, {at, middle});
                    if (::testing::Test::HasFatalFailure()) return;
                }
            }
        }
    }
}

TYPED_TEST(CutsTest, WithFieldsInMemoryAndOnBothSides) {
    for (const Domain& domain : domains_of(512)) {
        SCOPED_TRACE("type " + std::to_string(static_cast<int>(domain.guard)));
        const auto raw = random_bytes(this->random, this->blocks * 512);
        for (std::size_t at = 480; at <= 1060; ++at) {
            this->send_and_take(domain, {domain, {}, 0xFF, 0}, raw, {at});
            this->send_and_take(domain, {domain, domain, 0xFF, 0}, raw, {at});
            this->send_and_take(domain, {domain, domain, 0xFF, 0xFF}, raw, {at});
            if (::testing::Test::HasFatalFailure()) return;
        }
    }
}

}  // namespace
}  // namespace ovsdr::soft::signature
