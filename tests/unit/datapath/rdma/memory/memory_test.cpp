#include "datapath/rdma/memory/memory.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

namespace ovsdr::soft {
namespace {

class MemoryTableTest : public ::testing::Test {
protected:
    std::uint32_t add(std::uint64_t iova, unsigned access = IBV_ACCESS_LOCAL_WRITE) {
        MemoryRegion region{iova, bytes.size(), bytes.data(), access, &domain};
        EXPECT_EQ(table.add(region), 0);
        return region.key;
    }

    std::array<std::byte, 256> bytes{};
    int domain = 0;
    int other_domain = 0;
    MemoryTable table;
};

TEST_F(MemoryTableTest, FindsWhatIsInBounds) {
    const std::uint32_t key = add(0x1000);
    EXPECT_EQ(table.lookup(key, 0x1000, 256, 0, &domain), bytes.data());
    EXPECT_EQ(table.lookup(key, 0x10ff, 1, 0, &domain), bytes.data() + 255);
}

TEST_F(MemoryTableTest, RefusesWhatIsOutOfBounds) {
    const std::uint32_t key = add(0x1000);
    EXPECT_EQ(table.lookup(key, 0x0fff, 1, 0, &domain), nullptr);
    EXPECT_EQ(table.lookup(key, 0x1000, 257, 0, &domain), nullptr);
    EXPECT_EQ(table.lookup(key, 0x1100, 1, 0, &domain), nullptr);
    EXPECT_EQ(table.lookup(key, 0x1001, ~std::uint64_t{0}, 0, &domain), nullptr) << "the sum of address and size wraps";
}

TEST_F(MemoryTableTest, RefusesAccessThatWasNotGranted) {
    const std::uint32_t key = add(0x1000, 0);
    EXPECT_NE(table.lookup(key, 0x1000, 1, 0, &domain), nullptr);
    EXPECT_EQ(table.lookup(key, 0x1000, 1, IBV_ACCESS_LOCAL_WRITE, &domain), nullptr);
}

TEST_F(MemoryTableTest, RefusesAnotherDomain) {
    EXPECT_EQ(table.lookup(add(0x1000), 0x1000, 1, 0, &other_domain), nullptr);
}

TEST_F(MemoryTableTest, AStaleKeyFindsNothing) {
    const std::uint32_t first = add(0x1000);
    table.remove(first);
    EXPECT_EQ(table.lookup(first, 0x1000, 1, 0, &domain), nullptr);
    const std::uint32_t second = add(0x1000);
    EXPECT_NE(first, second);
    EXPECT_EQ(table.lookup(first, 0x1000, 1, 0, &domain), nullptr);
}

TEST_F(MemoryTableTest, RemovalWaitsForReaders) {
    const std::uint32_t key = add(0x1000);
    std::atomic<bool> removed = false;
    std::thread remover;
    {
        const MemoryTable::Reading reading(table, 3);
        remover = std::thread([&] {
            table.remove(key);
            removed = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_FALSE(removed);
    }
    remover.join();
    EXPECT_TRUE(removed);
}

TEST_F(MemoryTableTest, HoldsAsManyRegionsAsTheDeviceSays) {
    for (unsigned i = MemoryTable::first_index; i < MemoryTable::max_regions; ++i) add(0);
    MemoryRegion region{0, 1, bytes.data(), 0, &domain};
    EXPECT_EQ(table.add(region), ENOMEM);
}

}  // namespace
}  // namespace ovsdr::soft
