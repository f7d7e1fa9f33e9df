// Pools of packet buffers that grow: what they give out, when, and to whom.
#include "datapath/ports/packet_pool.hpp"

#include <gtest/gtest.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <signal.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "datapath/ports/eal.hpp"

namespace ovsdr::soft {
namespace {

constexpr unsigned length = 4000;

class PacketPool : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        sigset_t all;
        sigfillset(&all);
        std::thread([&] {
            pthread_sigmask(SIG_SETMASK, &all, nullptr);
            std::string error;
            EXPECT_EQ(start_eal({.memory_mb = 128}, error), 0) << error;
        }).join();
    }
    void SetUp() override { ASSERT_TRUE(pool_) << error_; }

    /// Bytes of DPDK's memory that are taken.
    static std::size_t allocated() {
        std::size_t sum = 0;
        for (int socket = 0; socket < RTE_MAX_NUMA_NODES; ++socket) {
            rte_malloc_socket_stats stats{};
            if (rte_malloc_get_socket_stats(socket, &stats) == 0) sum += stats.heap_allocsz_bytes;
        }
        return sum;
    }
    /// As many as there are, up to `most`.
    std::vector<rte_mbuf*> take(unsigned most) {
        std::vector<rte_mbuf*> taken;
        while (taken.size() < most) {
            rte_mbuf* const buffer = rte_pktmbuf_alloc(pool_.get());
            if (buffer == nullptr) break;
            taken.push_back(buffer);
        }
        return taken;
    }

    std::string error_;
    Mempool pool_ = make_mempool({.name = "grows", .length = length, .room = small_room}, error_);
};

TEST_F(PacketPool, ADeviceSeesEachBufferWhereItIs) {
    const std::vector<rte_mbuf*> taken = take(length);
    ASSERT_EQ(taken.size(), length);
    for (rte_mbuf* buffer : taken) {
        ASSERT_EQ(rte_pktmbuf_iova(buffer), reinterpret_cast<rte_iova_t>(rte_pktmbuf_mtod(buffer, char*)));
        rte_pktmbuf_free(buffer);
    }
}

TEST_F(PacketPool, BeginsSmallAndGrowsToItsLength) {
    EXPECT_GE(made_buffers(*pool_), 64U);
    EXPECT_LT(made_buffers(*pool_), length / 4);
    EXPECT_EQ(rte_mempool_in_use_count(pool_.get()), 0U);
    const std::vector<rte_mbuf*> taken = take(length + 1);
    EXPECT_EQ(taken.size(), length);
    EXPECT_EQ(made_buffers(*pool_), length);
    EXPECT_EQ(rte_mempool_avail_count(pool_.get()), 0U);
    EXPECT_EQ(rte_pktmbuf_alloc(pool_.get()), nullptr);
    for (rte_mbuf* buffer : taken) rte_pktmbuf_free(buffer);
    EXPECT_EQ(rte_mempool_avail_count(pool_.get()), length);
    EXPECT_EQ(take(length + 1).size(), length);
}

TEST_F(PacketPool, DoesNotGrowForBuffersThatComeBack) {
    const unsigned before = made_buffers(*pool_);
    for (unsigned i = 0; i < 2 * length; ++i) rte_pktmbuf_free(rte_pktmbuf_alloc(pool_.get()));
    EXPECT_EQ(made_buffers(*pool_), before);
}

TEST_F(PacketPool, GivesOutWholeBuffersThatDoNotOverlap) {
    std::vector<rte_mbuf*> taken = take(length);
    ASSERT_EQ(taken.size(), length);
    std::ranges::sort(taken);
    for (std::size_t i = 0; i < taken.size(); ++i) {
        const rte_mbuf& buffer = *taken[i];
        ASSERT_EQ(buffer.pool, pool_.get());
        ASSERT_EQ(buffer.buf_addr, reinterpret_cast<const std::uint8_t*>(&buffer) + sizeof buffer);
        ASSERT_EQ(buffer.buf_len, small_room + RTE_PKTMBUF_HEADROOM);
        ASSERT_EQ(rte_mbuf_refcnt_read(&buffer), 1);
        ASSERT_TRUE(i == 0 || reinterpret_cast<const std::uint8_t*>(taken[i - 1]) + sizeof buffer + buffer.buf_len <=
                                  reinterpret_cast<const std::uint8_t*>(&buffer));
    }
}

TEST_F(PacketPool, ThreadsThatGrowItTogetherShareNoBuffer) {
    std::vector<std::vector<rte_mbuf*>> taken(4);
    std::vector<std::thread> threads;
    for (auto& mine : taken) threads.emplace_back([&] { mine = take(length); });
    for (std::thread& thread : threads) thread.join();
    std::set<rte_mbuf*> all;
    std::size_t sum = 0;
    for (const auto& mine : taken) {
        sum += mine.size();
        all.insert(mine.begin(), mine.end());
    }
    EXPECT_EQ(sum, length);
    EXPECT_EQ(all.size(), length);
}

TEST_F(PacketPool, GivesItsMemoryBackWhetherGrownOrNot) {
    pool_.reset();
    const std::size_t before = allocated();
    for (const unsigned most : {0U, length}) {
        pool_ = make_mempool({.name = "grows", .length = length, .room = small_room}, error_);
        ASSERT_TRUE(pool_) << error_;
        for (rte_mbuf* buffer : take(most)) rte_pktmbuf_free(buffer);
        pool_.reset();
        EXPECT_EQ(allocated(), before);
    }
}

TEST_F(PacketPool, AskedForMoreThanThereIsRoomForSaysWhatToRaise) {
    const Mempool too_large = make_mempool({.name = "large", .length = 1'000'000, .room = jumbo_room}, error_);
    EXPECT_FALSE(too_large);
    EXPECT_NE(error_.find("raise memory_mb"), std::string::npos) << error_;
}

TEST_F(PacketPool, OneWithinPagesIsMadeWhole) {
    const Mempool whole = make_mempool({.name = "pages", .length = 511, .room = 3000, .packing = Packing::within_pages},
                                       error_);
    ASSERT_TRUE(whole) << error_;
    EXPECT_EQ(made_buffers(*whole), 511U);
}

}  // namespace
}  // namespace ovsdr::soft
