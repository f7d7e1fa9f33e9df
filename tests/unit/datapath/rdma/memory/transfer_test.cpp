#include "datapath/rdma/memory/transfer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

namespace ovsdr::soft {
namespace {

class TransferTest : public ::testing::Test {
protected:
    TransferTest() {
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 8));
    }

    std::uint32_t add(std::size_t offset, std::size_t size, unsigned access = IBV_ACCESS_LOCAL_WRITE) {
        MemoryRegion region{reinterpret_cast<std::uintptr_t>(bytes.data() + offset), size, bytes.data() + offset,
                            access, &domain};
        EXPECT_EQ(table.add(region), 0);
        return region.key;
    }
    [[nodiscard]] ibv_sge piece(std::uint32_t key, std::size_t offset, std::uint32_t size) const {
        return {reinterpret_cast<std::uintptr_t>(bytes.data() + offset), size, key};
    }
    [[nodiscard]] Transfer::Spec spec(unsigned access = 0) { return {table, &domain, access, false, 1}; }

    std::vector<std::byte> bytes = std::vector<std::byte>(4096);
    int domain = 0;
    int other_domain = 0;
    MemoryTable table;
    Transfer transfer;
};

TEST_F(TransferTest, GathersPiecesInOrderInAnyFragments) {
    const std::uint32_t key = add(0, 4096);
    const std::array pieces{piece(key, 100, 7), piece(key, 3000, 0), piece(key, 50, 300), piece(key, 2000, 1)};
    ASSERT_EQ(transfer.begin(spec(), pieces), Transfer::Fault::none);
    std::vector<std::byte> expected;
    for (const ibv_sge& part : pieces) {
        const auto* const from = reinterpret_cast<const std::byte*>(part.addr);
        expected.insert(expected.end(), from, from + part.length);
    }
    ASSERT_EQ(transfer.size(), expected.size());
    std::mt19937 random(1);
    for (int round = 0; round < 500; ++round) {
        const std::size_t offset = random() % (expected.size() + 1);
        std::vector<std::byte> got(random() % (expected.size() - offset + 1));
        ASSERT_EQ(transfer.gather(offset, got), Transfer::Fault::none);
        ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + static_cast<long>(offset)));
    }
}

TEST_F(TransferTest, ScattersInAscendingFragmentsAndTouchesNothingElse) {
    const std::uint32_t key = add(0, 4096);
    const std::array pieces{piece(key, 100, 7), piece(key, 50, 30), piece(key, 2000, 90)};
    std::vector<std::byte> message(127);
    for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(200 + i);
    std::vector<std::byte> expected = bytes;
    std::copy_n(message.begin(), 7, expected.begin() + 100);
    std::copy_n(message.begin() + 7, 30, expected.begin() + 50);
    std::copy_n(message.begin() + 37, 90, expected.begin() + 2000);
    ASSERT_EQ(transfer.begin(spec(IBV_ACCESS_LOCAL_WRITE), pieces), Transfer::Fault::none);
    const std::span<const std::byte> wire(message);
    for (std::size_t offset = 0; offset < message.size();) {
        const std::size_t part = std::min<std::size_t>(1 + offset % 11, message.size() - offset);
        ASSERT_EQ(transfer.scatter(offset, wire.subspan(offset, part)), Transfer::Fault::none);
        offset += part;
    }
    EXPECT_EQ(bytes, expected);
}

TEST_F(TransferTest, TellsAtOnceWhatAKeyDoesNotGrant) {
    const std::uint32_t readable = add(0, 100, 0);
    const std::array all{piece(readable, 0, 100)};
    const std::array past_the_end{piece(readable, 1, 100)};
    EXPECT_EQ(transfer.begin(spec(), all), Transfer::Fault::none);
    EXPECT_EQ(transfer.begin(spec(IBV_ACCESS_LOCAL_WRITE), all), Transfer::Fault::protection);
    EXPECT_EQ(transfer.begin(spec(), past_the_end), Transfer::Fault::protection);
    Transfer::Spec stranger{table, &other_domain, 0, false, 0};
    EXPECT_EQ(transfer.begin(stranger, all), Transfer::Fault::protection);
}

TEST_F(TransferTest, FailsWhenARegionGoesMeanwhile) {
    const std::uint32_t key = add(0, 100);
    const std::array pieces{piece(key, 0, 100)};
    ASSERT_EQ(transfer.begin(spec(), pieces), Transfer::Fault::none);
    table.remove(key);
    std::array<std::byte, 10> some{};
    EXPECT_EQ(transfer.gather(0, some), Transfer::Fault::protection);
}

TEST_F(TransferTest, RefusesMoreBytesThanThereAre) {
    const std::array pieces{piece(add(0, 100), 0, 100)};
    ASSERT_EQ(transfer.begin(spec(IBV_ACCESS_LOCAL_WRITE), pieces), Transfer::Fault::none);
    std::array<std::byte, 10> some{};
    EXPECT_EQ(transfer.gather(90, some), Transfer::Fault::none);
    EXPECT_EQ(transfer.gather(91, some), Transfer::Fault::length);
    EXPECT_EQ(transfer.scatter(101, std::span(some).first(0)), Transfer::Fault::length);
    const std::vector<ibv_sge> many(Transfer::max_pieces + 1, pieces[0]);
    EXPECT_EQ(transfer.begin(spec(), many), Transfer::Fault::length);
}

}  // namespace
}  // namespace ovsdr::soft
