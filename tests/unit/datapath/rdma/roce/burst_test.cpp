// A burst's bounds: packets, bytes, buffers, and room where they go.
#include "datapath/rdma/roce/burst.hpp"

#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

struct BurstTest : testing::Test {
    Node node{1};
    std::vector<unsigned> batches;
    std::vector<Frame> frames;
    const Outlet outlet{[](void* self, std::uint32_t sqn, rte_mbuf** packets, unsigned length) noexcept {
                            EXPECT_EQ(sqn, 9U);
                            auto& test = *static_cast<BurstTest*>(self);
                            test.batches.push_back(length);
                            for (unsigned i = 0; i < length; ++i) {
                                const auto* const bytes = rte_pktmbuf_mtod(packets[i], const std::byte*);
                                test.frames.emplace_back(bytes, bytes + rte_pktmbuf_data_len(packets[i]));
                                rte_pktmbuf_free(packets[i]);
                            }
                        },
                        this};
    const unsigned buffers = rte_mempool_avail_count(soft::test::packet_pool());
    const Path away = path(false), here = path(true);

    void TearDown() override { EXPECT_EQ(rte_mempool_avail_count(soft::test::packet_pool()), buffers); }
    Path path(bool local) {
        return make_path({.source = node.gid(1), .destination = node.gid(1), .hop_limit = 1, .local = local});
    }
    static Burst::Spec spec(const Path& path, unsigned payload = 5) {
        return {.path = path, .opcode = 4, .qpn = 77, .psn = 1, .extensions = 0, .payload = payload};
    }
    static bool send(Burst& burst, const Path& path, unsigned payload = 5) {
        Burst::Packet packet;
        if (!burst.begin(spec(path, payload), packet)) return false;
        std::memset(packet.payload, 0xaa, payload);
        burst.finish(packet);
        return true;
    }
    /// Entries of the inbox, as many as there is room for.
    void fill_inbox() {
        rte_mbuf* const nothing = rte_pktmbuf_alloc(soft::test::packet_pool());
        ASSERT_NE(nothing, nullptr);
        Engine& engine = node.transport().engine_of(77);
        while (engine.post(nothing)) rte_mbuf_refcnt_update(nothing, 1);  // each entry holds it
        rte_pktmbuf_free(nothing);
        EXPECT_EQ(engine.room(), 0U);
    }
    void drain_inbox() {
        while (node.turn(1) != 0) {
        }
    }
};

TEST_F(BurstTest, APacketHasItsPaddingOfZeros) {
    for (unsigned payload = 0; payload < 9; ++payload) {
        {
            Burst burst(node.transport(), outlet, 9, 1);
            ASSERT_TRUE(send(burst, away, payload));
        }
        const Frame& frame = frames.back();
        const unsigned pad = -payload & 3;
        ASSERT_EQ(frame.size(), 42 + 12 + payload + pad + 4);
        EXPECT_EQ(frame[43], static_cast<std::byte>(0x40 | pad << 4));
        for (unsigned i = 0; i < payload + pad; ++i) {
            EXPECT_EQ(frame[54 + i], i < payload ? std::byte{0xaa} : std::byte{0});
        }
        Arrival arrival;
        ASSERT_TRUE(read_frame(frame.data(), frame.size(), arrival));
        EXPECT_EQ(arrival.payload_size, payload);
        EXPECT_TRUE(icrc_is_right(arrival));
    }
}

TEST_F(BurstTest, EndsWithItsBudgetOfPackets) {
    {
        Burst burst(node.transport(), outlet, 9, 40);
        for (unsigned i = 0; i < 40; ++i) {
            EXPECT_FALSE(burst.full());
            EXPECT_EQ(burst.sent(), i);
            ASSERT_TRUE(send(burst, away));
            EXPECT_EQ(batches.size(), i < 31 ? 0U : 1U);
        }
        EXPECT_TRUE(burst.full());
        EXPECT_FALSE(send(burst, away));
        EXPECT_FALSE(burst.starved());
    }
    EXPECT_EQ(batches, (std::vector{32U, 8U}));
    { const Burst nothing(node.transport(), outlet, 9, 40); }
    EXPECT_EQ(batches.size(), 2U);
}

TEST_F(BurstTest, EndsWithTheBytesThatItIsAllowed) {
    Burst burst(node.transport(), outlet, 9, 100);
    ASSERT_TRUE(send(burst, away, 8));
    EXPECT_EQ(burst.size(), 66U);
    EXPECT_FALSE(burst.ends_with(4096));
    burst.allow(200);
    EXPECT_EQ(burst.size(), 0U);
    EXPECT_FALSE(burst.ends_with(199));
    EXPECT_TRUE(burst.ends_with(200));
    ASSERT_TRUE(send(burst, away, 8));
    EXPECT_FALSE(burst.ends_with(133));
    EXPECT_TRUE(burst.ends_with(134));
    ASSERT_TRUE(send(burst, away, 8));
    ASSERT_FALSE(burst.full());
    ASSERT_TRUE(send(burst, away, 12)) << "the last one whole";
    EXPECT_EQ(burst.size(), 66U + 66 + 70);
    EXPECT_TRUE(burst.full());
    burst.allow(66);
    ASSERT_TRUE(send(burst, away, 8));
    EXPECT_TRUE(burst.full()) << "to the byte";
    EXPECT_FALSE(send(burst, away));
}

TEST_F(BurstTest, WantsBuffers) {
    Burst burst(node.transport(), outlet, 9, 100);
    EXPECT_FALSE(send(burst, away, 10'200)) << "longer than a buffer";
    EXPECT_TRUE(burst.starved());
    std::vector<rte_mbuf*> taken;
    for (rte_mbuf* one = nullptr; (one = rte_pktmbuf_alloc(soft::test::packet_pool())) != nullptr;) {
        taken.push_back(one);
    }
    Burst other(node.transport(), outlet, 9, 100);
    EXPECT_FALSE(send(other, away));
    EXPECT_TRUE(other.starved());
    for (rte_mbuf* one : taken) rte_pktmbuf_free(one);
}

TEST_F(BurstTest, WhatStaysInTheDeviceGoesToItsInboxAtOnce) {
    {
        Burst burst(node.transport(), outlet, 9, 100);
        const unsigned room = node.transport().engine_of(77).room();
        ASSERT_TRUE(send(burst, here));
        EXPECT_EQ(node.transport().engine_of(77).room(), room - 1);
        EXPECT_EQ(burst.sent(), 1U);
    }
    EXPECT_TRUE(batches.empty());
    drain_inbox();
}

TEST_F(BurstTest, AFullInboxIsWaitedForAndWhatFindsItFullIsCounted) {
    fill_inbox();
    {
        Burst burst(node.transport(), outlet, 9, 100);
        EXPECT_FALSE(send(burst, here));
        EXPECT_TRUE(burst.starved());
        EXPECT_TRUE(send(burst, away)) << "the wire has room";
    }
    drain_inbox();
    {
        Burst burst(node.transport(), outlet, 9, 100);
        Burst::Packet packet;
        ASSERT_TRUE(burst.begin(spec(here), packet));
        fill_inbox();
        burst.finish(packet);
        EXPECT_FALSE(burst.starved());
    }
    EXPECT_EQ(node.transport().counters().inbox_full, 1U);
    drain_inbox();
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
