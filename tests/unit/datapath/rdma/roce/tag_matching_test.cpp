// Tag matching: which buffer a message goes to, what is told of it, and what is fetched.
#include "datapath/rdma/roce/tag_matching.hpp"

#include <infiniband/tm_types.h>

#include <optional>

#include "datapath/rdma/completion/tag_info.hpp"
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

constexpr std::uint64_t whole = ~std::uint64_t{0};

struct TagMatchingTest : TwoNodes {
    CompletionQueue told{256, false, {}};
    SharedReceiveQueue srq{{.state = right.state(),
                            .domain = this,
                            .number = 77,
                            .max_requests = 8,
                            .max_sges = 1,
                            .completions = &told,
                            .max_tags = 4,
                            .max_ops = 8}};
    std::vector<std::byte> memory = std::vector<std::byte>(1 << 16);
    MemoryRegion region{reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), memory.data(),
                        IBV_ACCESS_LOCAL_WRITE, this};
    Queue client{left, {}};
    std::optional<Queue> server;

    void SetUp() override {
        ASSERT_EQ(right.state().memory().add(region), 0);
        server.emplace(right, Queue::Options{.srq = &srq});
        client.connect(*server);
        server->connect(client);
        fill(client.memory, 1);
    }
    void TearDown() override {
        server.reset();
        right.state().memory().remove(region.key);
    }

    [[nodiscard]] std::vector<Completion> poll() {
        run();
        std::vector<Completion> all(64);
        all.resize(static_cast<std::size_t>(told.take(all)));
        return all;
    }
    int operate(ibv_ops_wr request) {
        ibv_ops_wr* bad = nullptr;
        const int error = srq.tags()->post(&request, &bad);
        EXPECT_EQ(bad, error ? &request : nullptr);
        handle = request.tm.handle;
        return error;
    }
    /// An entry whose buffer is `size` bytes at `offset` of memory.
    int add(std::uint64_t tag, std::uint64_t wr_id, std::size_t offset, std::uint32_t size, std::uint64_t mask = whole,
            int flags = 0, std::uint32_t unexpected = 0) {
        ibv_sge piece{region.iova + offset, size, region.key};
        ibv_ops_wr request{};
        request.wr_id = 1000 + wr_id;
        request.opcode = IBV_WR_TAG_ADD;
        request.flags = flags;
        request.tm = {.unexpected_cnt = unexpected, .handle = 0, .add = {wr_id, &piece, 1, tag, mask}};
        return operate(request);
    }
    int remove(std::uint32_t which, int flags = IBV_OPS_SIGNALED) {
        ibv_ops_wr request{};
        request.opcode = IBV_WR_TAG_DEL;
        request.flags = flags;
        request.tm.handle = which;
        return operate(request);
    }
    int synchronise(std::uint32_t count, int flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC) {
        ibv_ops_wr request{};
        request.opcode = IBV_WR_TAG_SYNC;
        request.flags = flags;
        request.tm.unexpected_cnt = count;
        return operate(request);
    }
    void buffer(std::uint64_t wr_id, std::size_t offset, std::uint32_t size = 4096) {
        ibv_sge piece{region.iova + offset, size, region.key};
        ibv_recv_wr request{wr_id, nullptr, &piece, 1}, *bad = nullptr;
        ASSERT_EQ(srq.post(&request, &bad), 0);
    }
    /// Sends `size` bytes of which the first are a header.
    void send(std::uint8_t opcode, std::uint64_t tag, std::size_t size, ibv_rvh where = {}) {
        const ibv_tmh header{opcode, {}, htobe32(0xc0ffee), htobe64(tag)};
        std::memcpy(client.memory.data(), &header, sizeof header);
        if (opcode == IBV_TMH_RNDV) std::memcpy(client.memory.data() + sizeof header, &where, sizeof where);
        client.post({.sges = {client.piece(0, size)}});
        run();
    }
    [[nodiscard]] bool holds(std::size_t at, std::size_t from, std::size_t size) const {
        return std::equal(client.memory.begin() + static_cast<long>(from),
                          client.memory.begin() + static_cast<long>(from + size),
                          memory.begin() + static_cast<long>(at));
    }

    std::uint32_t handle = 0;
};

constexpr auto match = unsigned{IBV_WC_TM_MATCH}, valid = unsigned{IBV_WC_TM_DATA_VALID},
               sync_request = unsigned{IBV_WC_TM_SYNC_REQ};

TEST_F(TagMatchingTest, AMessageGoesToTheOldestEntryOfItsTagWithoutItsHeader) {
    ASSERT_EQ(add(0x1200, 1, 0, 1000, 0xff00), 0);
    ASSERT_EQ(add(0x1234, 2, 2000, 1000), 0);
    ASSERT_EQ(add(0x1234, 3, 4000, 1000), 0);
    send(IBV_TMH_EAGER, 0x1234, 216);
    auto done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 1U) << "0x1234 & 0xff00 == 0x1200";
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[0].opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(done[0].wc_flags, match | valid);
    EXPECT_EQ(done[0].byte_len, 200U);
    EXPECT_EQ(done[0].qp_num, server->number());
    EXPECT_EQ(tag_info(done[0]).tag, 0x1234U);
    EXPECT_EQ(tag_info(done[0]).priv, 0xc0ffeeU);
    EXPECT_TRUE(holds(0, 16, 200));
    send(IBV_TMH_EAGER, 0x1234, 1016);
    done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 2U);
    EXPECT_TRUE(holds(2000, 16, 1000));
}

TEST_F(TagMatchingTest, ALongMessageTellsOfTheMatchFirst) {
    ASSERT_EQ(add(5, 1, 0, 5000), 0);
    send(IBV_TMH_EAGER, 5, 5016);
    const auto done = poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[0].wc_flags, match);
    EXPECT_EQ(tag_info(done[0]).tag, 5U);
    EXPECT_EQ(done[1].wr_id, 1U);
    EXPECT_EQ(done[1].wc_flags, valid);
    EXPECT_EQ(done[1].byte_len, 5000U);
    EXPECT_EQ(tag_info(done[1]).tag, 0U);
    EXPECT_TRUE(holds(0, 16, 5000));
}

TEST_F(TagMatchingTest, AMessageLongerThanItsBufferFailsTheQueue) {
    ASSERT_EQ(add(5, 1, 0, 100), 0);
    send(IBV_TMH_EAGER, 5, 117);
    const auto done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[0].status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(done[0].wc_flags, 0U) << "nothing of it is valid";
    EXPECT_EQ(server->pair->state(), IBV_QPS_ERR);
}

TEST_F(TagMatchingTest, MessagesWithoutATagGoToTheQueueWhole) {
    for (const std::uint8_t opcode : {IBV_TMH_NO_TAG, IBV_TMH_FIN}) {
        ASSERT_EQ(add(5, 1, 0, 4096), 0);
        buffer(9, 8192);
        send(opcode, 5, 100);
        const auto done = poll();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].wr_id, 9U);
        EXPECT_EQ(done[0].opcode, IBV_WC_TM_NO_TAG);
        EXPECT_EQ(done[0].wc_flags, 0U);
        EXPECT_EQ(done[0].byte_len, 100U);
        EXPECT_TRUE(holds(8192, 0, 100));
    }
}

TEST_F(TagMatchingTest, AnUnexpectedMessageHoldsUpNewEntriesUntilItIsReported) {
    ASSERT_EQ(add(1, 1, 0, 1000), 0);
    buffer(9, 8192);
    buffer(10, 12288);
    send(IBV_TMH_EAGER, 2, 50);
    auto done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 9U);
    EXPECT_EQ(done[0].opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(done[0].wc_flags, 0U);
    EXPECT_EQ(tag_info(done[0]).tag, 0U);
    EXPECT_EQ(done[0].byte_len, 50U);
    EXPECT_TRUE(holds(8192, 0, 50));
    // The device does not know that the application knows: the new entry waits, the old one does not.
    ASSERT_EQ(add(2, 2, 1000, 1000, whole, IBV_OPS_SIGNALED), 0);
    done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].opcode, IBV_WC_TM_ADD);
    EXPECT_EQ(done[0].wr_id, 1002U);
    EXPECT_EQ(done[0].wc_flags, sync_request);
    send(IBV_TMH_EAGER, 2, 50);
    send(IBV_TMH_EAGER, 1, 50);
    done = poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].wr_id, 10U);
    EXPECT_EQ(done[1].wr_id, 1U);
    ASSERT_EQ(synchronise(1), 0);
    ASSERT_EQ(synchronise(2), 0);
    done = poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[1].opcode, IBV_WC_TM_SYNC);
    EXPECT_EQ(done[1].wc_flags, 0U);
    send(IBV_TMH_EAGER, 2, 50);
    done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 2U);
    EXPECT_EQ(done[0].wc_flags, match | valid);
}

TEST_F(TagMatchingTest, OnlyAnOperationThatSaysSoReportsUnexpectedMessages) {
    buffer(9, 8192);
    send(IBV_TMH_EAGER, 2, 50);
    ASSERT_EQ(poll().size(), 1U);
    ASSERT_EQ(add(2, 2, 1000, 1000, whole, IBV_OPS_SIGNALED, 1), 0);
    auto done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wc_flags, sync_request) << "without the flag";
    EXPECT_EQ(synchronise(1, IBV_OPS_TM_SYNC | 1 << 5), EINVAL);
    ASSERT_EQ(add(3, 3, 1000, 1000, whole, IBV_OPS_SIGNALED), 0);
    done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wc_flags, sync_request) << "what was refused has reported nothing";
    ASSERT_EQ(add(4, 4, 1000, 1000, whole, IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC, 1), 0);
    done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wc_flags, 0U);
}

TEST_F(TagMatchingTest, AnUnexpectedMessageWaitsForABuffer) {
    client.post({.sges = {}});
    run({}, 2'000'000);
    std::vector<Completion> none(4);
    EXPECT_EQ(told.take(none), 0);
    buffer(9, 8192);
    EXPECT_EQ(poll().size(), 1U);
    EXPECT_EQ(client.sends().size(), 1U);
}

TEST_F(TagMatchingTest, ARendezvousIsFetchedAndFinished) {
    client.post_receive(4, {client.piece(1000, 64)});
    ASSERT_EQ(add(5, 1, 100, 6000), 0);
    send(IBV_TMH_RNDV, 5, 40, {htobe64(client.address(2000)), htobe32(client.region.key), htobe32(6000)});
    const auto done = poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[0].wc_flags, match);
    EXPECT_EQ(tag_info(done[0]).tag, 5U);
    EXPECT_EQ(done[1].wr_id, 1U);
    EXPECT_EQ(done[1].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[1].opcode, IBV_WC_TM_RECV);
    EXPECT_EQ(done[1].wc_flags, valid);
    EXPECT_EQ(done[1].byte_len, 6000U);
    EXPECT_TRUE(holds(100, 2000, 6000));
    const auto finished = client.receives_done();
    ASSERT_EQ(finished.size(), 1U);
    EXPECT_EQ(finished[0].byte_len, 32U);
    EXPECT_EQ(client.memory[1000], std::byte{IBV_TMH_FIN});
    EXPECT_TRUE(std::equal(client.memory.begin() + 1, client.memory.begin() + 32, client.memory.begin() + 1001));
    EXPECT_EQ(server->sends().size(), 0U);
}

TEST_F(TagMatchingTest, ManyRendezvousGoThroughTheSameQueue) {
    for (std::uint64_t i = 0; i < 400; ++i) {
        client.post_receive(i, {client.piece(1000, 64)});
        ASSERT_EQ(add(i, i, 100, 3000, whole, IBV_OPS_SIGNALED), 0) << i;
        const std::size_t from = 2000 + i;
        send(IBV_TMH_RNDV, i, 32, {htobe64(client.address(from)), htobe32(client.region.key), htobe32(3000)});
        ASSERT_EQ(poll().size(), 3U) << i;
        ASSERT_TRUE(holds(100, from, 3000)) << i;
        ASSERT_EQ(client.receives_done().size(), 1U);
        (void)client.sends();
    }
}

TEST_F(TagMatchingTest, ARendezvousForASmallBufferIsTheApplications) {
    ASSERT_EQ(add(5, 1, 100, 500), 0);
    send(IBV_TMH_RNDV, 5, 40, {htobe64(client.address(2000)), htobe32(client.region.key), htobe32(501)});
    const auto done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 1U);
    EXPECT_EQ(done[0].status, IBV_WC_TM_RNDV_INCOMPLETE);
    EXPECT_EQ(done[0].wc_flags, match | valid);
    EXPECT_TRUE(holds(100, 0, 32));
    EXPECT_EQ(server->pair->state(), IBV_QPS_RTS);
}

TEST_F(TagMatchingTest, AReadThatIsRefusedLeavesTheRendezvousIncomplete) {
    ASSERT_EQ(add(5, 1, 100, 500), 0);
    send(IBV_TMH_RNDV, 5, 32, {htobe64(client.address(2000)), htobe32(client.region.key + 1), htobe32(500)});
    const auto done = poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[1].wr_id, 1U);
    EXPECT_EQ(done[1].status, IBV_WC_TM_RNDV_INCOMPLETE);
    EXPECT_EQ(server->pair->state(), IBV_QPS_ERR);
}

TEST_F(TagMatchingTest, ARendezvousRequestIsOfOnePacketAndHasItsHeaders) {
    ASSERT_EQ(add(5, 1, 100, 500), 0);
    send(IBV_TMH_RNDV, 5, 65);
    EXPECT_EQ(server->pair->state(), IBV_QPS_ERR);
}

TEST_F(TagMatchingTest, AHandleIsTakenUntilItsLastCompletionIsPolled) {
    for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(add(i, i, 0, 100), 0);
    EXPECT_EQ(add(4, 4, 0, 100), ENOMEM);
    send(IBV_TMH_EAGER, 2, 20);
    EXPECT_EQ(add(4, 4, 0, 100), ENOMEM) << "matched is not polled";
    ASSERT_EQ(poll().size(), 1U);
    ASSERT_EQ(add(4, 4, 0, 100), 0);
    EXPECT_EQ(handle, 2U);
    ASSERT_EQ(remove(0), 0);
    EXPECT_EQ(add(5, 5, 0, 100), ENOMEM);
    const auto done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].opcode, IBV_WC_TM_DEL);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    EXPECT_EQ(add(5, 5, 0, 100), 0);
    EXPECT_EQ(remove(1, 0), 0);
    EXPECT_EQ(add(6, 6, 0, 100), 0) << "nobody is told of an unsignaled deletion";
}

TEST_F(TagMatchingTest, WhatWasMatchedCannotBeRemoved) {
    ASSERT_EQ(add(1, 1, 0, 100), 0);
    send(IBV_TMH_EAGER, 1, 20);
    ASSERT_EQ(remove(handle), 0);
    const auto done = poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[1].opcode, IBV_WC_TM_DEL);
    EXPECT_EQ(done[1].status, IBV_WC_TM_ERR);
}

TEST_F(TagMatchingTest, ATaggedMessageWaitsForABufferToo) {
    send(IBV_TMH_EAGER, 2, 50);
    ASSERT_EQ(add(2, 2, 0, 1000), 0) << "and is matched by what is added meanwhile";
    auto done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 2U);
    client.post({.sges = {client.piece(0, 50)}});
    run({}, 2'000'000);
    buffer(9, 8192);
    done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].wr_id, 9U);
    EXPECT_EQ(done[0].status, IBV_WC_SUCCESS);
    ASSERT_EQ(add(3, 3, 0, 1000, whole, IBV_OPS_SIGNALED), 0);
    EXPECT_EQ(poll().at(0).wc_flags, sync_request) << "it counts once";
    ASSERT_EQ(synchronise(1), 0);
    (void)poll();
    send(IBV_TMH_EAGER, 3, 50);
    EXPECT_EQ(poll().at(0).wr_id, 3U);
}

TEST_F(TagMatchingTest, AnEntryWithoutAPieceTakesMessagesOfNothing) {
    for (const std::size_t size : {sizeof(ibv_tmh), sizeof(ibv_tmh) + 1}) {
        ibv_ops_wr request{};
        request.opcode = IBV_WR_TAG_ADD;
        request.tm.add = {7, nullptr, 0, 5, whole};
        ASSERT_EQ(operate(request), 0);
        send(IBV_TMH_EAGER, 5, size);
        const auto done = poll();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].wr_id, 7U);
        EXPECT_EQ(done[0].byte_len, 0U);
        EXPECT_EQ(done[0].status, size == sizeof(ibv_tmh) ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR);
    }
}

TEST_F(TagMatchingTest, ARendezvousOfNothingIsFinished) {
    client.post_receive(4, {client.piece(1000, 64)});
    ASSERT_EQ(add(5, 1, 100, 0), 0);
    send(IBV_TMH_RNDV, 5, 32, {0, 0, 0});
    const auto done = poll();
    ASSERT_EQ(done.size(), 2U);
    EXPECT_EQ(done[1].status, IBV_WC_SUCCESS);
    EXPECT_EQ(done[1].byte_len, 0U);
    EXPECT_EQ(done[1].wc_flags, valid);
    EXPECT_EQ(client.receives_done().size(), 1U);
}

TEST_F(TagMatchingTest, ARendezvousNeedsRoomForItsHeaders) {
    ASSERT_EQ(add(5, 1, 100, 31), 0);
    send(IBV_TMH_RNDV, 5, 32, {0, 0, htobe32(32)});
    const auto done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, IBV_WC_LOC_LEN_ERR);
    EXPECT_EQ(client.sends().at(0).status, IBV_WC_REM_INV_REQ_ERR);
    EXPECT_EQ(server->pair->state(), IBV_QPS_ERR);
}

TEST_F(TagMatchingTest, ARendezvousNeedsAPlaceForItsHeaders) {
    region.key += 1;  // a key that is not there
    ASSERT_EQ(add(5, 1, 100, 32), 0);
    region.key -= 1;
    send(IBV_TMH_RNDV, 5, 32, {0, 0, htobe32(33)});
    const auto done = poll();
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done[0].status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(client.sends().at(0).status, IBV_WC_REM_OP_ERR);
}

TEST_F(TagMatchingTest, ARendezvousThatInvalidatesAForeignKeyIsRefused) {
    ASSERT_EQ(add(5, 1, 100, 500), 0);
    const ibv_tmh header{IBV_TMH_RNDV, {}, 0, htobe64(5)};
    std::memcpy(client.memory.data(), &header, sizeof header);
    client.post({.opcode = MLX5_OPCODE_SEND_INVAL, .sges = {client.piece(0, 32)}, .immediate = htobe32(region.key)});
    run();
    EXPECT_EQ(client.sends().at(0).status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(TagMatchingTest, RendezvousWaitForRoomInTheQueue) {
    SharedReceiveQueue large{{.state = right.state(), .domain = this, .number = 78, .max_requests = 8, .max_sges = 1,
                              .completions = &told, .max_tags = 127, .max_ops = 1024}};
    Queue from{left, {}}, to{right, {.srq = &large}};
    from.connect(to);
    to.connect(from);
    // Nobody receives what says that the first is done: 128 are under way.
    ibv_sge piece{region.iova, 100, region.key};
    const auto rendezvous = [&](bool expected) {
        ibv_ops_wr request{}, *bad = nullptr;
        request.opcode = IBV_WR_TAG_ADD;
        request.tm.add = {1, &piece, 1, 5, whole};
        if (expected) {
            ASSERT_EQ(large.tags()->post(&request, &bad), 0);
        }
        const ibv_tmh header{IBV_TMH_RNDV, {}, 0, htobe64(5)};
        const ibv_rvh where{htobe64(from.address(64)), htobe32(from.region.key), htobe32(100)};
        std::memcpy(from.memory.data(), &header, sizeof header);
        std::memcpy(from.memory.data() + sizeof header, &where, sizeof where);
        from.post({.sges = {from.piece(0, 32)}});
        run({}, 100'000);
        (void)from.sends();
    };
    std::size_t matched = 0, ended = 0, unexpected = 0;
    const auto count = [&] {
        std::vector<Completion> all(300);
        all.resize(static_cast<std::size_t>(told.take(all)));
        for (const Completion& completion : all)
            ++(completion.wc_flags & valid ? ended : completion.wc_flags & match ? matched : unexpected);
    };
    for (unsigned i = 0; i < 128; ++i) {
        rendezvous(true);
        count();
    }
    EXPECT_EQ(matched, 128U);
    EXPECT_EQ(ended, 1U);
    ibv_recv_wr buffer{9, nullptr, &piece, 1}, *bad = nullptr;
    ASSERT_EQ(large.post(&buffer, &bad), 0);
    rendezvous(false);
    count();
    EXPECT_EQ(unexpected, 0U) << "not ready";
    for (unsigned i = 0; i < 64; ++i) from.post_receive(i, {from.piece(2000, 64)});
    run();
    (void)from.receives_done();
    for (unsigned i = 0; i < 64; ++i) from.post_receive(i, {from.piece(2000, 64)});
    run();
    (void)from.receives_done();
    count();
    EXPECT_EQ(matched, 128U);
    EXPECT_EQ(ended, 128U);
    EXPECT_EQ(unexpected, 1U);
}

TEST_F(TagMatchingTest, WhatWasUnderWayIsFreeAfterReset) {
    const auto reset = [&] {
        ASSERT_EQ(server->to(IBV_QPS_RESET), 0);
        ASSERT_EQ(client.to(IBV_QPS_RESET), 0);
        client.posted = 0;
        client.send_doorbell = 0;
        client.send_freed = 0;
        wire = [](const Frame&, bool) { return 1u; };
        (void)poll();
        client.connect(*server);
        server->connect(client);
    };
    // Rendezvous whose bytes do not come, and a message that breaks off.
    for (unsigned i = 0; i < 4; ++i) ASSERT_EQ(add(5, i, 0, 6000), 0);
    wire = [](const Frame&, bool from_left) { return from_left ? 1u : 0u; };
    for (unsigned i = 0; i < 3; ++i) {
        const ibv_tmh header{IBV_TMH_RNDV, {}, 0, htobe64(5)};
        const ibv_rvh where{htobe64(client.address(2000)), htobe32(client.region.key), htobe32(6000)};
        std::memcpy(client.memory.data(), &header, sizeof header);
        std::memcpy(client.memory.data() + sizeof header, &where, sizeof where);
        client.post({.sges = {client.piece(0, 32)}});
        run({}, 100'000);
    }
    unsigned packets = 0;
    wire = [&](const Frame&, bool from_left) { return from_left && packets++ == 0 ? 1u : 0u; };
    const ibv_tmh eager{IBV_TMH_EAGER, {}, 0, htobe64(5)};
    std::memcpy(client.memory.data(), &eager, sizeof eager);
    client.post({.sges = {client.piece(0, 5000)}});
    run({}, 100'000);
    EXPECT_EQ(add(6, 6, 0, 100), ENOMEM);
    reset();
    for (unsigned i = 0; i < 4; ++i) EXPECT_EQ(add(7, i, 0, 6000), 0) << i;
    // A message without an entry that breaks off has taken a buffer.
    for (std::uint64_t i = 0; i < 8; ++i) buffer(i, 8192);
    packets = 0;
    wire = [&](const Frame&, bool from_left) { return from_left && packets++ == 0 ? 1u : 0u; };
    client.post({.sges = {client.piece(0, 5000)}});
    run({}, 100'000);
    reset();
    buffer(8, 8192);
    // And rendezvous go on as before.
    client.post_receive(4, {client.piece(1000, 64)});
    send(IBV_TMH_RNDV, 7, 32, {htobe64(client.address(2000)), htobe32(client.region.key), htobe32(6000)});
    EXPECT_EQ(poll().size(), 2U);
    EXPECT_TRUE(holds(0, 2000, 6000));
}

TEST_F(TagMatchingTest, UnexpectedMessagesAreToBeReportedInTime) {
    TagMatcher& tags = *srq.tags();
    const auto unexpected = [&] {
        buffer(1, 0);
        SharedReceiveQueue::Request request;
        TagMatch none{};
        EXPECT_EQ(tags.claim(1, none, srq, request), TagMatcher::Claim::unexpected);
        srq.give_back(request.slot);
    };
    for (unsigned i = 0; i < 0x3fff; ++i) unexpected();
    EXPECT_EQ(tags.sync_flag(), 0U);
    unexpected();
    EXPECT_EQ(tags.sync_flag(), sync_request);
    ASSERT_EQ(synchronise(0x10004), 0);  // modulo 2^16
    EXPECT_EQ(tags.sync_flag(), 0U);
    unexpected();
    EXPECT_EQ(tags.sync_flag(), 0U);
    ASSERT_EQ(synchronise(0), 0);
    EXPECT_EQ(tags.sync_flag(), sync_request);
}

TEST_F(TagMatchingTest, AListIsExecutedUpToItsFirstBadOperation) {
    ibv_ops_wr requests[2]{}, *bad = nullptr;
    requests[0].opcode = IBV_WR_TAG_SYNC;
    requests[0].flags = IBV_OPS_SIGNALED;
    requests[0].next = &requests[1];
    requests[1].opcode = IBV_WR_TAG_ADD;
    requests[1].tm.add.num_sge = -1;
    EXPECT_EQ(srq.tags()->post(requests, &bad), EINVAL);
    EXPECT_EQ(bad, &requests[1]);
    EXPECT_EQ(poll().size(), 1U);
    EXPECT_EQ(remove(3), 0) << "the last handle, which nobody has";
    EXPECT_EQ(poll().at(0).status, IBV_WC_TM_ERR);
}

TEST(TagMatcherTest, OperationsAreRoundedUpToAPowerOfTwo) {
    CompletionQueue told{64, false, {}};
    for (const auto& [asked, granted] : {std::pair{0U, 0U}, {1U, 1U}, {5U, 8U}, {8U, 8U}}) {
        TagMatcher tags(1, asked, 1, told);
        for (unsigned i = 0; i <= granted; ++i) {
            ibv_ops_wr request{}, *bad = nullptr;
            request.opcode = IBV_WR_TAG_SYNC;
            EXPECT_EQ(tags.post(&request, &bad), i == granted ? ENOMEM : 0) << asked << ' ' << i;
        }
    }
}

TEST_F(TagMatchingTest, OperationsAreRefused) {
    for (int i = 0; i < 8; ++i) ASSERT_EQ(synchronise(0), 0);
    EXPECT_EQ(synchronise(0), ENOMEM);
    EXPECT_EQ(poll().size(), 8U);
    EXPECT_EQ(synchronise(0), 0);
    EXPECT_EQ(remove(4), EINVAL);
    ibv_ops_wr request{};
    request.opcode = static_cast<ibv_ops_wr_opcode>(3);
    EXPECT_EQ(operate(request), EINVAL);
    request.opcode = IBV_WR_TAG_ADD;
    request.tm.add.num_sge = 2;
    EXPECT_EQ(operate(request), EINVAL);
    EXPECT_EQ(synchronise(0, 1 << 5), EINVAL);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
