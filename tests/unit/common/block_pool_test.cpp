// Blocks by the pool against a set of them; and what a sanitizer would not let a test see is left out.
#include "common/block_pool.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace ovsdr::test {
namespace {

struct Block {
    unsigned char* memory;
    std::size_t size;
    unsigned char mark;
};

/// Sizes of several classes come and go, each full of a mark of its own.
void come_and_go(BlockPool& pool, unsigned seed, unsigned steps) {
    std::mt19937 random(seed);
    std::vector<Block> blocks;
    const auto go = [&](std::size_t i) {
        const Block block = blocks[i];
        for (std::size_t at = 0; at < block.size; ++at) ASSERT_EQ(block.memory[at], block.mark);
        BlockPool::give_back(block.memory);
        blocks[i] = blocks.back();
        blocks.pop_back();
    };
    for (unsigned step = 0; step < steps; ++step) {
        constexpr std::size_t sizes[] = {1, 8, 56, 104, 105, 112, 2000, BlockPool::largest};
        const bool grows = step / (steps / 8) % 2 == 0;
        if (blocks.empty() || random() % 4 < (grows ? 3U : 1U)) {
            const std::size_t size = sizes[random() % std::size(sizes)];
            auto* const memory = static_cast<unsigned char*>(pool.take(size));
            ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 8, 0U);
            const auto mark = static_cast<unsigned char>(random());
            std::memset(memory, mark, size);
            blocks.push_back({memory, size, mark});
        } else {
            go(random() % blocks.size());
        }
        if (step % 1000 == 0) pool.trim();
    }
    while (!blocks.empty()) go(blocks.size() - 1);
}

TEST(BlockPoolTest, BlocksAreApart) {
    BlockPool pool;
    come_and_go(pool, 1, 20'000);
}

TEST(BlockPoolTest, ThreadsShareIt) {
    BlockPool pool;
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; ++i) threads.emplace_back([&pool, i] { come_and_go(pool, 10 + i, 8'000); });
    for (std::thread& thread : threads) thread.join();
}

#ifndef SANITIZED
TEST(BlockPoolTest, ASlabIsFullOfBlocksOfOneSize) {
    constexpr std::size_t size = 104, fits = (BlockPool::slab_size - 48) / size;
    const auto slab_of = [](void* block) { return reinterpret_cast<std::uintptr_t>(block) / BlockPool::slab_size; };
    BlockPool pool;
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < 3 * fits; ++i) blocks.push_back(pool.take(size));
    for (std::size_t i = 0; i < 3 * fits; ++i) {
        ASSERT_EQ(slab_of(blocks[i]), slab_of(blocks[i / fits * fits])) << i;
        if (i % fits == 0) continue;
        ASSERT_EQ(static_cast<char*>(blocks[i]) - static_cast<char*>(blocks[i - 1]), size);
    }
    void* const other = pool.take(size + 8);
    EXPECT_NE(slab_of(other), slab_of(blocks.back()));
    // What is given back is taken again, in a full slab too.
    BlockPool::give_back(blocks[5]);
    EXPECT_EQ(pool.take(size), blocks[5]);
    for (void* block : blocks) BlockPool::give_back(block);
    pool.trim();
    std::memset(other, 1, size);
    BlockPool::give_back(other);
}

/// Pages that a region of memory has, in bytes.
std::size_t resident() {
    std::size_t pages = 0, all = 0;
    std::FILE* const file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%zu %zu", &all, &pages) != 2) ADD_FAILURE() << "no /proc/self/statm";
    if (file != nullptr) std::fclose(file);
    return pages * 4096;
}

TEST(BlockPoolTest, APoolThatHasGrownGivesAllBack) {
    constexpr std::size_t size = 104, length = 200'000, all = size * length;
    BlockPool pool;
    std::vector<std::size_t*> blocks(length);
    const std::size_t before = resident();
    for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < length; ++i) {
            blocks[i] = static_cast<std::size_t*>(pool.take(size));
            for (std::size_t word = 0; word < size / sizeof i; ++word) blocks[i][word] = i;
        }
        for (std::size_t i = 0; i < length; ++i) {
            ASSERT_EQ(blocks[i][0], i);
            ASSERT_EQ(blocks[i][size / sizeof i - 1], i);
        }
        EXPECT_GE(resident(), before + all);
        for (std::size_t* block : blocks) BlockPool::give_back(block);
        pool.trim();
        EXPECT_LT(resident(), before + all / 10);
    }
}
#endif

}  // namespace
}  // namespace ovsdr::test
