// Which transitions each type of queue pair has, which attributes they take, and which values those may have.
#include <system_error>

#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

constexpr int to_init = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int connection = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int responds = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int retries = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
constexpr int requests = IBV_QP_TIMEOUT | retries | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int running = IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE;
constexpr int paused = running | IBV_QP_AV | IBV_QP_PKEY_INDEX;

/// The kernel's table (ib_modify_qp_is_ok) without alternate paths, which RoCE has not. Types by their letters: RC, UC,
/// D(atagram), S(ends by XRC), T(arget of XRC).
struct Row {
    std::string_view types;
    ibv_qp_state from, to;
    int required, optional;
};
constexpr Row rows[] = {
    {"RUST", IBV_QPS_RESET, IBV_QPS_INIT, to_init | IBV_QP_ACCESS_FLAGS, 0},
    {"D", IBV_QPS_RESET, IBV_QPS_INIT, to_init | IBV_QP_QKEY, 0},
    {"RUST", IBV_QPS_INIT, IBV_QPS_INIT, 0, to_init | IBV_QP_ACCESS_FLAGS},
    {"D", IBV_QPS_INIT, IBV_QPS_INIT, 0, to_init | IBV_QP_QKEY},
    {"RT", IBV_QPS_INIT, IBV_QPS_RTR, connection | responds, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {"US", IBV_QPS_INIT, IBV_QPS_RTR, connection, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {"D", IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {"R", IBV_QPS_RTR, IBV_QPS_RTS, requests | IBV_QP_SQ_PSN, running | IBV_QP_MIN_RNR_TIMER},
    {"S", IBV_QPS_RTR, IBV_QPS_RTS, requests | IBV_QP_SQ_PSN, running},
    {"T", IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN, running | IBV_QP_MIN_RNR_TIMER},
    {"U", IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, running},
    {"D", IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_QKEY},
    {"RT", IBV_QPS_RTS, IBV_QPS_RTS, 0, running | IBV_QP_MIN_RNR_TIMER},
    {"US", IBV_QPS_RTS, IBV_QPS_RTS, 0, running},
    {"D", IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_QKEY},
    {"RUDST", IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {"RT", IBV_QPS_SQD, IBV_QPS_RTS, 0, running | IBV_QP_MIN_RNR_TIMER},
    {"US", IBV_QPS_SQD, IBV_QPS_RTS, 0, running},
    {"D", IBV_QPS_SQD, IBV_QPS_RTS, 0, IBV_QP_QKEY},
    {"R", IBV_QPS_SQD, IBV_QPS_SQD, 0, paused | IBV_QP_PORT | requests | responds},
    {"U", IBV_QPS_SQD, IBV_QPS_SQD, 0, paused},
    {"S", IBV_QPS_SQD, IBV_QPS_SQD, 0, paused | IBV_QP_PORT | requests},
    {"T", IBV_QPS_SQD, IBV_QPS_SQD, 0, paused | IBV_QP_PORT | IBV_QP_TIMEOUT | responds},
    {"D", IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {"U", IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_ACCESS_FLAGS},
    {"D", IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_QKEY},
};
constexpr ibv_qp_state states[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
                                   IBV_QPS_SQD,   IBV_QPS_SQE,  IBV_QPS_ERR};

[[nodiscard]] const Row* row_of(char type, ibv_qp_state from, ibv_qp_state to) {
    const auto row = std::find_if(std::begin(rows), std::end(rows), [=](const Row& one) {
        return one.types.find(type) != std::string_view::npos && one.from == from && one.to == to;
    });
    return row == std::end(rows) ? nullptr : row;
}

struct TransitionsTest : TwoNodes {
    /// To itself, by an address that needs no asking.
    ibv_qp_attr attributes(const Queue& queue) {
        ibv_qp_attr attr = Queue::usual();
        attr.port_num = attr.ah_attr.port_num = 1;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.dgid = left.gid(0);
        attr.dest_qp_num = queue.number();
        return attr;
    }
    static ibv_qp_type type_of(char letter) {
        switch (letter) {
            case 'U': return IBV_QPT_UC;
            case 'D': return IBV_QPT_UD;
            case 'S': return IBV_QPT_XRC_SEND;
            case 'T': return IBV_QPT_XRC_RECV;
            default: return IBV_QPT_RC;
        }
    }
    std::unique_ptr<Queue> queue_in(char type, ibv_qp_state state) {
        auto queue = std::make_unique<Queue>(left, Queue::Options{.type = type_of(type), .memory = 64});
        const ibv_qp_attr attr = attributes(*queue);
        if (state == IBV_QPS_ERR) {
            EXPECT_EQ(queue->to(state), 0);
            return queue;
        }
        for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
            if (queue->pair->state() == state) return queue;
            EXPECT_EQ(queue->to(to, attr, row_of(type, queue->pair->state(), to)->required), 0);
        }
        if (state == IBV_QPS_SQD) {
            EXPECT_EQ(queue->to(state), 0);
        }
        if (state == IBV_QPS_SQE) {
            mlx5_wqe_av address{};
            EXPECT_EQ(resolve(left.state(), attr.ah_attr, address), 0);
            queue->post({.sges = {{queue->address(), 8, 0}}, .address = type == 'D' ? &address : nullptr});
            run();
        }
        EXPECT_EQ(queue->pair->state(), state);
        return queue;
    }
};

TEST_F(TransitionsTest, AreThoseOfTheKernelsTable) {
    for (const char type : {'R', 'U', 'D', 'S', 'T'}) {
        for (const ibv_qp_state from : states) {
            if (from == IBV_QPS_SQE && row_of(type, from, IBV_QPS_RTS) == nullptr) continue;  // they fail whole
            for (const ibv_qp_state to : states) {
                const Row* const row = row_of(type, from, to);
                const bool always = to == IBV_QPS_RESET || to == IBV_QPS_ERR;
                const int required = row ? row->required : 0, optional = row ? row->optional : 0;
                SCOPED_TRACE(std::string{type} + ": " + std::to_string(from) + " to " + std::to_string(to));
                const auto queue = queue_in(type, from);
                const ibv_qp_attr attr = attributes(*queue);
                if (!row && !always) {
                    EXPECT_EQ(queue->to(to, attr, 0), EINVAL);
                }
                for (int bit = IBV_QP_EN_SQD_ASYNC_NOTIFY; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
                    if (!(optional & bit)) {
                        EXPECT_EQ(queue->to(to, attr, required ^ bit), EINVAL) << bit;
                    }
                }
                EXPECT_EQ(queue->pair->state(), from);
                if (!row && !always) continue;
                EXPECT_EQ(queue->to(to, attr, required), 0);
                EXPECT_EQ(queue->pair->state(), to);
                for (int bit = IBV_QP_EN_SQD_ASYNC_NOTIFY; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
                    if (!(optional & bit)) continue;
                    const auto another = queue_in(type, from);
                    EXPECT_EQ(another->to(to, attributes(*another), required | bit), 0) << bit;
                }
            }
        }
    }
}

TEST_F(TransitionsTest, TheCurrentStateMayBeNamedAndTheNextOneNeedNot) {
    const auto queue = queue_in('R', IBV_QPS_RTS);
    ibv_qp_attr attr = attributes(*queue);
    attr.cur_qp_state = IBV_QPS_RTR;
    EXPECT_EQ(queue->to(IBV_QPS_SQD, attr, IBV_QP_CUR_STATE), EINVAL);
    attr.cur_qp_state = IBV_QPS_RTS;
    attr.min_rnr_timer = 21;
    EXPECT_EQ(queue->pair->modify(attr, IBV_QP_CUR_STATE | IBV_QP_MIN_RNR_TIMER), 0);
    EXPECT_EQ(queue->pair->modify(attr, IBV_QP_TIMEOUT), EINVAL);
    EXPECT_EQ(queue->pair->state(), IBV_QPS_RTS);
    queue->pair->query(attr);
    EXPECT_EQ(attr.min_rnr_timer, 21);
    EXPECT_EQ(queue->to(IBV_QPS_SQD, attr, IBV_QP_CUR_STATE), 0);
}

TEST_F(TransitionsTest, EachAttributeHasItsRangeAndIsKept) {
    struct Attribute {
        int bit;
        /// Sets it, if there is something to set.
        std::function<unsigned(ibv_qp_attr&, std::optional<unsigned>)> value;
        std::vector<unsigned> good, bad;
    };
    const auto member = [](auto ibv_qp_attr::*place) {
        return [place](ibv_qp_attr& attr, std::optional<unsigned> value) {
            if (value) attr.*place = static_cast<std::remove_reference_t<decltype(attr.*place)>>(*value);
            return static_cast<unsigned>(attr.*place);
        };
    };
    const Attribute all[] = {
        {IBV_QP_PORT, member(&ibv_qp_attr::port_num), {1}, {0, 2}},
        {IBV_QP_PKEY_INDEX, member(&ibv_qp_attr::pkey_index), {0}, {1}},
        {IBV_QP_TIMEOUT, member(&ibv_qp_attr::timeout), {0, 31}, {32, 255}},
        {IBV_QP_RETRY_CNT, member(&ibv_qp_attr::retry_cnt), {0, 7}, {8}},
        {IBV_QP_RNR_RETRY, member(&ibv_qp_attr::rnr_retry), {0, 7}, {8}},
        {IBV_QP_MIN_RNR_TIMER, member(&ibv_qp_attr::min_rnr_timer), {0, 31}, {32}},
        {IBV_QP_MAX_QP_RD_ATOMIC, member(&ibv_qp_attr::max_rd_atomic), {0, 16}, {17}},
        {IBV_QP_MAX_DEST_RD_ATOMIC, member(&ibv_qp_attr::max_dest_rd_atomic), {0, 16}, {17}},
        {IBV_QP_PATH_MIG_STATE,
         member(&ibv_qp_attr::path_mig_state),
         {IBV_MIG_MIGRATED},
         {IBV_MIG_REARM, IBV_MIG_ARMED}},
        {IBV_QP_ACCESS_FLAGS,
         member(&ibv_qp_attr::qp_access_flags),
         {0, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC,
          IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND},
         {IBV_ACCESS_ZERO_BASED, IBV_ACCESS_HUGETLB, IBV_ACCESS_RELAXED_ORDERING}},
    };
    const auto queue = queue_in('R', IBV_QPS_SQD);
    ibv_qp_attr read{};
    for (const Attribute& one : all) {
        for (const unsigned value : one.good) {
            ibv_qp_attr attr{};
            one.value(attr, value);
            EXPECT_EQ(queue->to(IBV_QPS_SQD, attr, one.bit), 0) << one.bit << ": " << value;
            queue->pair->query(read);
            EXPECT_EQ(one.value(read, {}), value) << one.bit;
        }
        for (const unsigned value : one.bad) {
            ibv_qp_attr attr{};
            one.value(attr, value);
            EXPECT_EQ(queue->to(IBV_QPS_SQD, attr, one.bit), EINVAL) << one.bit << ": " << value;
            queue->pair->query(read);
            EXPECT_EQ(one.value(read, {}), one.good.back()) << "what is refused changes nothing";
        }
    }
}

TEST_F(TransitionsTest, WhatAConnectionWasGivenIsToldAndForgottenAtReset) {
    const auto queue = queue_in('R', IBV_QPS_INIT);
    ibv_qp_attr attr = attributes(*queue), read{};
    for (const auto mtu : {static_cast<ibv_mtu>(0), static_cast<ibv_mtu>(6)}) {
        attr.path_mtu = mtu;
        EXPECT_EQ(queue->to(IBV_QPS_RTR, attr, connection | responds), EINVAL);
    }
    attr.path_mtu = IBV_MTU_512;
    attr.dest_qp_num = 0xff123456;  // 24 bits of each count
    attr.rq_psn = 0xff000007;
    attr.sq_psn = 0xff000009;
    attr.ah_attr.grh.traffic_class = 5;
    queue->pair->query(read);
    EXPECT_EQ(read.rq_psn, 0U);
    ASSERT_EQ(queue->to(IBV_QPS_RTR, attr, connection | responds), 0);
    queue->pair->query(read);
    EXPECT_EQ(read.qp_state, IBV_QPS_RTR);
    EXPECT_EQ(read.rq_psn, 7U);
    EXPECT_EQ(read.sq_psn, 0U);
    ASSERT_EQ(queue->to(IBV_QPS_RTS, attr, requests | IBV_QP_SQ_PSN), 0);
    read.cap.max_send_wr = 77;
    queue->pair->query(read);
    EXPECT_EQ(read.cap.max_send_wr, 77U) << "the library's";
    EXPECT_EQ(read.qp_state, IBV_QPS_RTS);
    EXPECT_EQ(read.cur_qp_state, IBV_QPS_RTS);
    EXPECT_EQ(read.path_mtu, IBV_MTU_512);
    EXPECT_EQ(read.dest_qp_num, 0x123456U);
    EXPECT_EQ(read.rq_psn, 7U);
    EXPECT_EQ(read.sq_psn, 9U);
    EXPECT_EQ(read.path_mig_state, IBV_MIG_MIGRATED);
    EXPECT_EQ(read.port_num, 1);
    EXPECT_EQ(read.qp_access_flags, attr.qp_access_flags);
    EXPECT_EQ(read.timeout, attr.timeout);
    EXPECT_EQ(read.retry_cnt, attr.retry_cnt);
    EXPECT_EQ(read.rnr_retry, attr.rnr_retry);
    EXPECT_EQ(read.min_rnr_timer, attr.min_rnr_timer);
    EXPECT_EQ(read.max_rd_atomic, attr.max_rd_atomic);
    EXPECT_EQ(read.max_dest_rd_atomic, attr.max_dest_rd_atomic);
    EXPECT_EQ(std::memcmp(&read.ah_attr, &attr.ah_attr, sizeof attr.ah_attr), 0);
    EXPECT_EQ(read.sq_draining, 0);
    queue->pair->stop();
    queue->pair->query(read);
    EXPECT_EQ(read.qp_state, IBV_QPS_RESET);
    EXPECT_EQ(read.dest_qp_num, 0U);
    EXPECT_EQ(read.rq_psn, 0U);
    EXPECT_EQ(read.sq_psn, 0U);
    EXPECT_EQ(read.timeout, 0);
}

TEST_F(TransitionsTest, ADatagramQueuesKeyMayChange) {
    const auto queue = queue_in('D', IBV_QPS_RTS);
    ibv_qp_attr attr{}, read{};
    queue->pair->query(read);
    EXPECT_EQ(read.qkey, Queue::usual().qkey);
    attr.qkey = 9;
    ASSERT_EQ(queue->pair->modify(attr, IBV_QP_QKEY), 0);
    queue->pair->query(read);
    EXPECT_EQ(read.qkey, 9U);
}

TEST_F(TransitionsTest, FromResetToErrThereIsNothingToTell) {
    SharedReceiveQueue srq({.state = left.state(), .domain = this, .number = 1, .max_requests = 4, .max_sges = 1});
    Queue queue(left, {.srq = &srq});
    ASSERT_EQ(queue.to(IBV_QPS_ERR), 0);
    EXPECT_EQ(queue.pair->state(), IBV_QPS_ERR);
    EXPECT_TRUE(queue.events.empty());
}

TEST_F(TransitionsTest, OtherTypesHaveAnotherTransport) {
    for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER}) {
        try {
            const Queue queue(left, {.type = type});
            ADD_FAILURE() << type;
        } catch (const std::system_error& error) {
            EXPECT_EQ(error.code().value(), EOPNOTSUPP);
        }
    }
}

/// A worker may fail a queue while the application waits for a neighbour.
TEST_F(TransitionsTest, AQueueThatFailsWhileItsAddressIsLookedForStaysFailed) {
    Queue client(left, {}), server(right, {});
    client.connect(server);
    server.connect(client);
    client.post(
        {.opcode = MLX5_OPCODE_RDMA_WRITE, .sges = {client.piece(0, 8)}, .remote = server.address(), .rkey = 0});
    (void)left.turn(now += 1000);  // the request is on its way
    ASSERT_EQ(client.to(IBV_QPS_SQD), 0);
    ibv_qp_attr attr{};
    attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.dgid = right.gid(1);
    attr.ah_attr.grh.dgid.raw[15] = 77;
    auto moved = std::async(std::launch::async, [&] { return client.to(IBV_QPS_SQD, attr, IBV_QP_AV); });
    while (left.sent.size() < 2) (void)left.turn(now += 1000);
    carry(left, right);
    run({}, 100'000);
    EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
    Frame answer;  // of 192.0.2.77
    for (const unsigned byte : {2, 0, 0, 0, 7, 1, 2, 0,   0, 0, 9,  9, 8, 6, 0, 1, 8, 0,   6, 4, 0,
                                2, 2, 0, 0, 0, 9, 9, 192, 0, 2, 77, 2, 0, 0, 0, 7, 1, 192, 0, 2, 1}) {
        answer.push_back(static_cast<std::byte>(byte));
    }
    left.receive(answer);
    EXPECT_EQ(moved.get(), EINVAL);
    EXPECT_EQ(client.pair->state(), IBV_QPS_ERR);
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
