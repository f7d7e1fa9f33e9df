// What is asked for, answered, and asked for again: packet by packet.
#include <sys/mman.h>

#include <utility>

#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

constexpr std::uint8_t fetch_add = MLX5_OPCODE_ATOMIC_FA, compare_swap = MLX5_OPCODE_ATOMIC_CS;
constexpr std::uint32_t first_psn = 0xfffff0;  // Queue::usual()

struct RecoveryTest : TwoNodes {
    Queue client{left, {.memory = 1 << 18}}, server{right, {.memory = 1 << 18}};
    std::vector<Frame> requests, answers;  ///< all that was sent
    std::uint32_t odd_key = 0;
    std::function<bool(const Arrival&, bool from_left)> loses = [](const Arrival&, bool) { return false; };

    RecoveryTest() {
        wire = [this](const Frame& frame, bool from_left) {
            (from_left ? requests : answers).push_back(frame);
            return loses(taken_apart(frame), from_left) ? 0u : 1u;
        };
    }
    void join(ibv_qp_attr of_client = Queue::usual(), ibv_qp_attr of_server = Queue::usual()) {
        client.connect(server, 1, of_client);
        server.connect(client, 1, of_server);
        fill(server.memory, 1);
    }
    static Arrival taken_apart(const Frame& frame) {
        Arrival arrival{};
        EXPECT_TRUE(read_frame(frame.data(), frame.size(), arrival));
        return arrival;
    }
    static std::vector<std::uint32_t> numbers(const std::vector<Frame>& frames) {
        std::vector<std::uint32_t> all;
        for (const Frame& frame : frames) all.push_back(taken_apart(frame).psn);
        return all;
    }
    /// Syndrome and MSN of each answer.
    static std::vector<std::uint32_t> syndromes(const std::vector<Frame>& frames) {
        std::vector<std::uint32_t> all;
        for (const Frame& frame : frames) {
            const Arrival arrival = taken_apart(frame);
            if (!arrival.operation.aeth) continue;
            __be32 word = 0;
            std::memcpy(&word, arrival.headers(), sizeof word);
            all.push_back(be32toh(word));
        }
        return all;
    }
    void post(std::uint8_t opcode, std::size_t size, std::size_t at = 0, std::uint64_t wr_id = 0) {
        client.post({.opcode = opcode, .sges = {client.piece(at, size)}, .remote = server.address(at),
                     .rkey = server.region.key, .swap_add = 1, .wr_id = wr_id});
    }
    std::vector<ibv_wc_status> statuses() {
        std::vector<ibv_wc_status> all;
        for (const Completion& completion : client.sends()) all.push_back(completion.status);
        return all;
    }
    /// The same request once more, as the wire may repeat it; what is answered in the right node's next turns.
    std::vector<Frame> repeat(const std::vector<Frame>& frames) {
        answers.clear();
        for (const Frame& frame : frames) right.receive(frame);
        for (int i = 0; i < 4; ++i) {
            (void)right.turn(now += 1000);
            for (const Frame& frame : right.sent) answers.push_back(frame);
            right.sent.clear();
        }
        return answers;
    }
};

TEST_F(RecoveryTest, AReceiverThatIsNotReadyIsGivenItsTime) {
    // IBTA volume 1, table 45, in microseconds.
    constexpr std::uint64_t times[] = {655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320,
                                       480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10240, 15360,
                                       20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520};
    join();
    for (std::uint8_t timer = 0; timer < 32; ++timer) {
        ibv_qp_attr attr{};
        attr.min_rnr_timer = timer;
        ASSERT_EQ(server.pair->modify(attr, IBV_QP_MIN_RNR_TIMER), 0);
        requests.clear();
        answers.clear();
        std::uint64_t sent[2]{};
        post(a_send, 8);
        run([&] {
            if (requests.size() == 1 && sent[0] == 0) sent[0] = now;
            sent[1] = now;
            return requests.size() == 2;
        });
        EXPECT_EQ(syndromes(answers).at(0) >> 24, 0x20U | timer);
        // A turn of each node, and the one of the clock's arrival.
        EXPECT_EQ(sent[1] - sent[0], times[timer] * 1000 + 3000) << int{timer};
        server.post_receive(1, {server.piece(0, 8)});
        run();
        EXPECT_EQ(statuses(), std::vector{IBV_WC_SUCCESS});
    }
}

TEST_F(RecoveryTest, ARefusalThatTheWireRepeatsCostsNoRetry) {
    ibv_qp_attr attr = Queue::usual();
    attr.rnr_retry = 1;
    join(attr);
    wire = [this](const Frame& frame, bool from_left) {
        (from_left ? requests : answers).push_back(frame);
        return from_left ? 1u : 3u;
    };
    post(a_send, 8);
    run();
    EXPECT_EQ(statuses(), std::vector{IBV_WC_RNR_RETRY_EXC_ERR});
    EXPECT_EQ(requests.size(), 2U);
}

TEST_F(RecoveryTest, ProgressGivesAllRetriesBack) {
    ibv_qp_attr attr = Queue::usual();
    attr.retry_cnt = attr.rnr_retry = 1;
    attr.timeout = 10;
    join(attr);
    unsigned sent = 0;
    loses = [&](const Arrival&, bool from_left) { return from_left && sent++ % 2 == 0; };
    for (unsigned i = 0; i < 4; ++i) {
        post(a_write, 8);
        run();
        EXPECT_EQ(statuses(), std::vector{IBV_WC_SUCCESS});
    }
    loses = [](const Arrival&, bool) { return false; };
    for (unsigned i = 0; i < 4; ++i) {
        post(a_send, 8);
        run({}, 100'000);
        server.post_receive(1, {server.piece(0, 8)});
        run();
        EXPECT_EQ(statuses(), std::vector{IBV_WC_SUCCESS});
    }
}

TEST_F(RecoveryTest, WithoutATimeoutNothingIsGivenUp) {
    ibv_qp_attr attr = Queue::usual();
    attr.timeout = 0;
    join(attr);
    loses = [](const Arrival&, bool) { return true; };
    post(a_write, 8);
    run();
    EXPECT_TRUE(client.sends().empty());
    EXPECT_EQ(requests.size(), 1U);
    EXPECT_EQ(left.device().next_turn(now), Service::never);
}

TEST_F(RecoveryTest, ARefusalBehindAReadWhoseAnswerIsMissingIsNotTheReads) {
    join();
    bool first = true;
    loses = [&](const Arrival& arrival, bool from_left) {
        return !from_left && arrival.operation.kind == Kind::read_response && std::exchange(first, false);
    };
    post(a_read, 8);
    client.post({.opcode = a_write, .sges = {client.piece(0, 8)}, .remote = server.address(), .rkey = 0});
    run();
    EXPECT_EQ(statuses(), (std::vector{IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR})) << "the server has failed";
}

TEST_F(RecoveryTest, AReceiverThatIsNotReadyBehindAReadWhoseAnswerIsMissingIsAskedLater) {
    ibv_qp_attr attr = Queue::usual();
    attr.rnr_retry = 0;
    join(attr);
    bool first = true;
    loses = [&](const Arrival& arrival, bool from_left) {
        return !from_left && arrival.operation.kind == Kind::read_response && std::exchange(first, false);
    };
    post(a_read, 8);
    post(a_send, 8);
    run();
    EXPECT_EQ(statuses(), (std::vector{IBV_WC_SUCCESS, IBV_WC_RNR_RETRY_EXC_ERR}));
}

TEST_F(RecoveryTest, AnAnswerToWhatIsNoReadSaysNothing) {
    join();
    loses = [](const Arrival& arrival, bool from_left) {
        return !from_left && arrival.operation.kind == Kind::acknowledge;
    };
    post(a_write, 8);
    post(a_read, 8);
    run({}, 100'000);
    Frame forged;
    for (const Frame& frame : answers) {
        if (taken_apart(frame).operation.kind == Kind::read_response) forged = frame;
    }
    ASSERT_FALSE(forged.empty());
    EXPECT_EQ(statuses(), std::vector<ibv_wc_status>(2, IBV_WC_SUCCESS)) << "the read's answer acknowledges the write";
    // The same for a write that waits for its acknowledgement.
    post(a_write, 8);
    run({}, 100'000);
    const __be32 psn = htobe32(psn_add(first_psn, 2));
    std::memcpy(forged.data() + 42 + 8, &psn, 4);
    const std::uint32_t crc = icrc(forged.data() + 14, true, forged.size() - 18);
    std::memcpy(forged.data() + forged.size() - 4, &crc, 4);
    left.receive(forged);
    (void)left.turn(now += 1000);
    EXPECT_TRUE(client.sends().empty());
    EXPECT_EQ(client.pair->state(), IBV_QPS_RTS);
}

TEST_F(RecoveryTest, AsManyReadsAndAtomicsWaitAsTheInitiatorMay) {
    for (const std::uint8_t depth : {1, 3}) {
        Queue from{left, {}}, to{right, {}};
        ibv_qp_attr attr = Queue::usual();
        attr.max_rd_atomic = depth;
        from.connect(to, 1, attr);
        to.connect(from);
        unsigned waiting = 0, most = 0;
        wire = [&](const Frame&, bool from_left) {
            from_left ? ++waiting : --waiting;
            most = std::max(most, waiting);
            return 1u;
        };
        for (int i = 0; i < 8; ++i) {
            from.post({.opcode = i % 2 == 0 ? a_read : fetch_add,
                       .sges = {from.piece(0, 8)},
                       .remote = to.address(),
                       .rkey = to.region.key});
        }
        run();
        EXPECT_EQ(from.sends().size(), 8U);
        EXPECT_EQ(most, depth);
    }
}

TEST_F(RecoveryTest, MoreThanTheTargetGrantsIsInvalid) {
    for (const std::uint8_t granted : {1, 2, 3}) {
        Queue from{left, {}}, to{right, {}};
        from.connect(to);
        ibv_qp_attr attr = Queue::usual();
        attr.max_dest_rd_atomic = granted;
        to.connect(from, 1, attr);
        for (int i = 0; i < 3; ++i) {
            from.post({.opcode = i == 1 ? fetch_add : a_read,
                       .sges = {from.piece(0, 8)},
                       .remote = to.address(),
                       .rkey = to.region.key});
        }
        run();
        const auto done = from.sends();
        ASSERT_EQ(done.size(), 3U);
        // An atomic is done at once: it needs no room, but takes some.
        EXPECT_EQ(done.back().status == IBV_WC_SUCCESS, granted == 3) << int{granted};
        EXPECT_EQ(to.pair->state(), granted == 3 ? IBV_QPS_RTS : IBV_QPS_ERR);
    }
    Queue from{left, {}}, to{right, {}};
    from.connect(to);
    ibv_qp_attr attr = Queue::usual();
    attr.max_dest_rd_atomic = 0;
    to.connect(from, 1, attr);
    from.post({.opcode = fetch_add, .sges = {from.piece(0, 8)}, .remote = to.address(), .rkey = to.region.key});
    run();
    EXPECT_EQ(from.sends().at(0).status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(RecoveryTest, EveryThirtySecondPacketAndTheLastAskForAnAcknowledgement) {
    join();
    post(a_write, 100 * 1024);
    run();
    std::vector<std::uint32_t> asking;
    for (const Frame& frame : requests) {
        const Arrival arrival = taken_apart(frame);
        if (arrival.ack_requested()) asking.push_back(arrival.psn);
    }
    EXPECT_EQ(requests.size(), 100U);
    EXPECT_EQ(asking, (std::vector<std::uint32_t>{0, 32, 64, 83}));
}

TEST_F(RecoveryTest, TheEndOfTheWindowAsksForAnAcknowledgement) {
    ibv_qp_attr attr = Queue::usual();
    attr.sq_psn = attr.rq_psn = 1;
    join(attr, attr);
    loses = [](const Arrival&, bool from_left) { return !from_left; };
    post(a_write, 200 * 1024);
    run([&] { return requests.size() == 128; });
    EXPECT_EQ(numbers(requests).back(), 128U);
    EXPECT_TRUE(taken_apart(requests.back()).ack_requested());
    EXPECT_FALSE(taken_apart(requests[126]).ack_requested());
    for (int i = 0; i < 5; ++i) (void)left.turn(now += 1000);
    EXPECT_TRUE(left.sent.empty()) << "and nothing goes past it";
}

TEST_F(RecoveryTest, MessagesAreCutAtThePathMtu) {
    for (unsigned mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; ++mtu) {
        const std::uint32_t size = 128u << mtu;
        Queue from{left, {}}, to{right, {}};
        ibv_qp_attr attr = Queue::usual();
        attr.path_mtu = static_cast<ibv_mtu>(mtu);
        from.connect(to, 1, attr);
        to.connect(from, 1, attr);
        for (const std::uint8_t opcode : {a_write, a_read}) {
            for (const std::uint32_t more : {0u, 1u}) {
                requests.clear();
                answers.clear();
                from.post({.opcode = opcode,
                           .sges = {from.piece(0, 2 * size + more)},
                           .remote = to.address(),
                           .rkey = to.region.key});
                run();
                std::vector<std::uint32_t> sizes;
                for (const Frame& frame : opcode == a_write ? requests : answers)
                    sizes.push_back(taken_apart(frame).payload_size);
                EXPECT_EQ(sizes, more ? (std::vector{size, size, 1u}) : (std::vector{size, size}));
                EXPECT_EQ(from.sends().at(0).status, IBV_WC_SUCCESS);
            }
        }
    }
}

TEST_F(RecoveryTest, AnswersCountMessages) {
    join();
    server.post_receive(1, {server.piece(0, 8)});
    for (const std::uint8_t opcode : {a_send, a_write, a_read, fetch_add, compare_swap}) {
        post(opcode, 8);
        run();
    }
    post(a_write, 3000);
    run();
    EXPECT_EQ(syndromes(answers),
              (std::vector<std::uint32_t>{0x1f000001, 0x1f000002, 0x1f000003, 0x1f000004, 0x1f000005, 0x1f000006}));
    EXPECT_EQ(numbers(answers),
              (std::vector<std::uint32_t>{0xfffff0, 0xfffff1, 0xfffff2, 0xfffff3, 0xfffff4, 0xfffff7}));
}

TEST_F(RecoveryTest, ReadAnswersHaveTheirHeadersFirstAndLast) {
    join();
    post(a_read, 3000);
    client.post({.opcode = a_read, .remote = 0, .rkey = 0});  // of nothing: without a key
    post(a_read, 1024);
    run();
    std::vector<std::uint8_t> opcodes;
    for (const Frame& frame : answers) opcodes.push_back(taken_apart(frame).bth.opcode);
    EXPECT_EQ(opcodes, (std::vector<std::uint8_t>{0x0d, 0x0e, 0x0f, 0x10, 0x10}));
    EXPECT_EQ(syndromes(answers), (std::vector<std::uint32_t>{0x1f000003, 0x1f000003, 0x1f000003, 0x1f000003}));
    EXPECT_EQ(numbers(answers), (std::vector<std::uint32_t>{0xfffff0, 0xfffff1, 0xfffff2, 0xfffff3, 0xfffff4}));
    EXPECT_EQ(statuses(), std::vector(3, IBV_WC_SUCCESS));
}

TEST_F(RecoveryTest, TheLastPacketOfAMessageIsTheSolicitedOne) {
    join();
    server.post_receive(1, {server.piece(0, 3000)});
    client.post({.sges = {client.piece(0, 3000)}, .solicited = true});
    client.post({.opcode = a_read,
                 .sges = {client.piece(0, 8)},
                 .remote = server.address(),
                 .rkey = server.region.key,
                 .solicited = true});
    run();
    std::vector<bool> solicited;
    for (const Frame& frame : requests) solicited.push_back(taken_apart(frame).solicited());
    EXPECT_EQ(solicited, (std::vector{false, false, true, true}));
}

TEST_F(RecoveryTest, AnEarlyPacketIsRefusedOnceAndTheGapIsFilled) {
    join();
    unsigned sent = 0;
    loses = [&](const Arrival&, bool from_left) { return from_left && sent++ == 1; };
    for (unsigned i = 0; i < 6; ++i) post(a_write, 8, i * 8, i);
    run();
    EXPECT_EQ(statuses(), std::vector(6, IBV_WC_SUCCESS));
    EXPECT_EQ(numbers(requests), (std::vector<std::uint32_t>{0xfffff0, 0xfffff1, 0xfffff2, 0xfffff3, 0xfffff4, 0xfffff5,
                                                             0xfffff1, 0xfffff2, 0xfffff3, 0xfffff4, 0xfffff5}));
    EXPECT_EQ(syndromes(answers), (std::vector<std::uint32_t>{0x1f000001, 0x60000001, 0x1f000006}));
    EXPECT_EQ(numbers(answers), (std::vector<std::uint32_t>{0xfffff0, 0xfffff1, 0xfffff5}));
    // Another gap is another refusal.
    sent = 0;
    loses = [&](const Arrival&, bool from_left) { return from_left && sent++ == 0; };
    answers.clear();
    post(a_write, 8);
    post(a_write, 8);
    run();
    EXPECT_EQ(syndromes(answers), (std::vector<std::uint32_t>{0x60000006, 0x1f000008}));
}

TEST_F(RecoveryTest, WhatCameBeforeIsAcknowledgedAgainUpToTheLast) {
    join();
    for (unsigned i = 0; i < 3; ++i) post(a_write, 8);
    run();
    repeat({requests[0]});
    EXPECT_EQ(numbers(answers), std::vector<std::uint32_t>{0xfffff2});
    EXPECT_EQ(syndromes(answers), std::vector<std::uint32_t>{0x1f000003});
}

TEST_F(RecoveryTest, AtomicsThatCameBeforeAreAnsweredAgainAndNotDoneAgain) {
    join();
    std::memset(server.memory.data(), 0, 8);
    for (unsigned i = 0; i < 17; ++i) post(i % 2 == 0 ? fetch_add : compare_swap, 8);
    run();
    EXPECT_EQ(statuses(), std::vector(17, IBV_WC_SUCCESS));
    const std::vector<std::byte> before = server.memory;
    EXPECT_TRUE(repeat({requests[0]}).empty()) << "as many as may wait are remembered";
    for (const std::size_t which : {1UL, 2UL, 16UL}) {
        ASSERT_EQ(repeat({requests[which]}).size(), 1U) << which;
        const Arrival again = taken_apart(answers[0]);
        EXPECT_EQ(again.psn, psn_add(first_psn, static_cast<std::uint32_t>(which)));
        EXPECT_EQ(again.operation.kind, Kind::atomic_acknowledge);
        __be64 value = 0;
        std::memcpy(&value, again.extensions + 4, 8);
        EXPECT_EQ(be64toh(value), which == 1 ? 1U : which == 2 ? 1U : 8U);
    }
    EXPECT_EQ(server.memory, before);
}

TEST_F(RecoveryTest, AnswersThatWaitAreSixtyFourAtMost) {
    join();
    post(fetch_add, 8);
    run();
    EXPECT_EQ(repeat(std::vector<Frame>(100, requests[0])).size(), 64U);
    // Reads that are asked for again make room for others: half of it.
    requests.clear();
    for (unsigned i = 0; i < 40; ++i) {
        post(a_read, 8, i * 8);
        run();
    }
    EXPECT_EQ(repeat(requests).size(), 33U);
}

TEST_F(RecoveryTest, AReadThatIsAskedForTwiceWhileItWaitsIsAnsweredOnce) {
    join();
    post(a_read, 3000);
    run();
    EXPECT_EQ(repeat({requests[0], requests[0], requests[0]}).size(), 3U);
    EXPECT_EQ(numbers(answers), (std::vector<std::uint32_t>{0xfffff0, 0xfffff1, 0xfffff2}));
}

TEST_F(RecoveryTest, WhatTheTargetDoesNotAllowIsARemoteAccessError) {
    // A region whose addresses are aligned and whose bytes are not.
    const auto status_of = [this](const std::function<void(Queue&, Queue&)>& post) {
        Queue from{left, {}}, to{right, {}};
        from.connect(to);
        to.connect(from);
        to.post_receive(1, {to.piece(0, 8)});
        MemoryRegion odd = to.region;
        odd.iova = 0x10000;
        odd.base += 4;
        odd.size -= 4;
        EXPECT_EQ(right.state().memory().add(odd), 0);
        odd_key = odd.key;
        post(from, to);
        run();
        right.state().memory().remove(odd.key);
        const auto done = from.sends();
        return done.empty() ? IBV_WC_GENERAL_ERR : done[0].status;
    };
    EXPECT_EQ(status_of([&](Queue& from, Queue&) {
                  from.post({.opcode = fetch_add, .sges = {from.piece(0, 8)}, .remote = 0x10000, .rkey = odd_key});
              }),
              IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(status_of([&](Queue& from, Queue& to) {
                  from.post({.opcode = fetch_add, .sges = {from.piece(0, 8)}, .remote = to.address(),
                             .rkey = to.region.key + 1});
              }),
              IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(status_of([&](Queue& from, Queue& to) {
                  from.post({.opcode = MLX5_OPCODE_SEND_INVAL, .sges = {from.piece(0, 8)},
                             .immediate = htobe32(to.region.key)});
              }),
              IBV_WC_REM_ACCESS_ERR);
}

TEST_F(RecoveryTest, PacketsFindNobodyBeforeTheQueueIsReady) {
    Queue late{right, {}};
    client.connect(late);
    late.connect(client);
    ASSERT_EQ(late.to(IBV_QPS_RESET), 0);
    post(a_send, 8);
    run({}, 1'000'000);
    EXPECT_TRUE(answers.empty());
    ibv_qp_attr attr = Queue::usual();
    attr.port_num = attr.ah_attr.port_num = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = left.gid(1);
    attr.ah_attr.grh.sgid_index = 1;
    attr.dest_qp_num = client.number();
    ASSERT_EQ(late.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
    run({}, 1'000'000'000);
    EXPECT_TRUE(answers.empty());
    EXPECT_TRUE(late.events.empty());
    late.connect(client);
    late.post_receive(1, {late.piece(0, 8)});
    ASSERT_EQ(late.to(IBV_QPS_ERR), 0);
    run({}, 1'000'000'000);
    EXPECT_TRUE(answers.empty());
}

TEST_F(RecoveryTest, HalfTheCircleIsNeverUnderWay) {
    // 2^31 bytes in packets of 256 are 2^23 of them.
    constexpr std::size_t size = std::size_t{1} << 31;
    void* const pages = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    MemoryRegion region{reinterpret_cast<std::uint64_t>(pages), size, static_cast<std::byte*>(pages), 0, &client};
    ASSERT_EQ(left.state().memory().add(region), 0);
    ibv_qp_attr attr = Queue::usual();
    attr.path_mtu = IBV_MTU_256;
    join(attr, attr);
    loses = [](const Arrival&, bool) { return true; };
    const auto taken = [&] {
        ibv_qp_attr now_is{};
        client.pair->query(now_is);
        return psn_distance(first_psn, now_is.sq_psn);
    };
    const Queue::Work large{.opcode = a_write,
                            .sges = {{region.iova, size / 2, region.key}, {region.iova, size / 2, region.key}},
                            .remote = server.address(), .rkey = server.region.key};
    post(a_write, 8);
    client.post(large);
    run([&] { return !requests.empty(); });
    EXPECT_EQ(taken(), 1) << "the large one waits until it is alone";
    loses = [](const Arrival&, bool) { return false; };
    run();
    EXPECT_EQ(statuses(), (std::vector{IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR})) << "there is no so large region";
    left.state().memory().remove(region.key);
    munmap(pages, size);
}

TEST_F(RecoveryTest, AMessageHasTwoGigabytesAtMost) {
    constexpr std::size_t size = std::size_t{1} << 31;
    void* const pages = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    MemoryRegion region{reinterpret_cast<std::uint64_t>(pages), size, static_cast<std::byte*>(pages), 0, &client};
    ASSERT_EQ(left.state().memory().add(region), 0);
    join();
    server.post_receive(1, {server.piece(0, 8)});
    client.post(
        {.sges = {{region.iova, size - 1, region.key}, {region.iova, 1, region.key}, {region.iova, 1, region.key}}});
    run();
    EXPECT_EQ(statuses(), std::vector{IBV_WC_LOC_LEN_ERR});
    EXPECT_TRUE(requests.empty());
    Queue other{left, {}}, peer{right, {}};
    region.domain = &other;
    ASSERT_EQ(left.state().memory().replace(region), 0);
    other.connect(peer);
    peer.connect(other);
    other.post({.sges = {{region.iova, size - 1, region.key}, {region.iova, 1, region.key}}});
    run([&] { return !requests.empty(); });
    EXPECT_FALSE(requests.empty()) << "which is a good one";
    left.state().memory().remove(region.key);
    munmap(pages, size);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
