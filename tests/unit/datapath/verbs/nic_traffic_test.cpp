// The whole soft NIC in one process: verbs, queues, steering and workers, on ports that lead nowhere. Two queues of the
// manager function talk to each other by way of the eSwitch while objects come and go beside them.
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::array<std::uint8_t, 6> address{0x02, 0, 0, 0, 0, 0x77};
constexpr std::size_t frame_size = 64;
constexpr unsigned ring = 256;

ibv_context* open_nic() {
    static ibv_context* const context = [] {
        const std::string path = "/tmp/ovsdr-nic-test-" + std::to_string(getpid()) + ".json";
        std::ofstream(path) << R"({"workers": 2, "memory_mb": 128, "control_socket": "", "devices": [{"name": "mlx5_0",
            "ports": [{"vport": 1, "dpdk": "net_null,no-rx=1"}, {"vport": 65535, "dpdk": "net_null,no-rx=1"}]}]})";
        setenv("OVSDR_SOFTNIC", path.c_str(), 1);
        int length = 0;
        ibv_device** const list = ibv_get_device_list(&length);
        unlink(path.c_str());
        ibv_context* const opened = length == 1 ? ibv_open_device(list[0]) : nullptr;
        ibv_free_device_list(list);
        return opened;
    }();
    return context;
}

/// A raw packet QP in RTS with its CQs, channel and registered frames.
struct Queue {
    explicit Queue(ibv_context* context) {
        pd = ibv_alloc_pd(context);
        channel = ibv_create_comp_channel(context);
        send_cq = ibv_create_cq(context, ring, nullptr, nullptr, 0);
        receive_cq = ibv_create_cq(context, ring, nullptr, channel, 0);
        mr = ibv_reg_mr(pd, frames.data(), frames.size(), IBV_ACCESS_LOCAL_WRITE);
        ibv_qp_init_attr attr{};
        attr.send_cq = send_cq;
        attr.recv_cq = receive_cq;
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.cap = {ring, ring, 1, 1, 0};
        attr.sq_sig_all = 1;
        qp = ibv_create_qp(pd, &attr);
        ibv_qp_attr state{};
        state.port_num = 1;
        for (const auto& [to, mask] :
             {std::pair{IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PORT}, std::pair{IBV_QPS_RTR, int{IBV_QP_STATE}},
              std::pair{IBV_QPS_RTS, int{IBV_QP_STATE}}}) {
            state.qp_state = to;
            EXPECT_EQ(ibv_modify_qp(qp, &state, mask), 0);
        }
    }
    ~Queue() {
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(ibv_destroy_cq(send_cq), 0);
        EXPECT_EQ(ibv_destroy_cq(receive_cq), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    }
    [[nodiscard]] std::uint8_t* frame(unsigned index) { return frames.data() + index * frame_size; }
    [[nodiscard]] ibv_sge piece(unsigned index) {
        return {reinterpret_cast<std::uint64_t>(frame(index)), frame_size, mr->lkey};
    }
    int post_receive(unsigned index) {
        ibv_sge sge = piece(index);
        ibv_recv_wr wr{index, nullptr, &sge, 1};
        ibv_recv_wr* bad = nullptr;
        return ibv_post_recv(qp, &wr, &bad);
    }
    int post_send(unsigned index, std::uint64_t number) {
        std::memcpy(frame(index), address.data(), address.size());
        std::memcpy(frame(index) + 16, &number, sizeof number);
        ibv_sge sge = piece(index);
        ibv_send_wr wr{};
        wr.wr_id = index;
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        ibv_send_wr* bad = nullptr;
        return ibv_post_send(qp, &wr, &bad);
    }

    std::vector<std::uint8_t> frames = std::vector<std::uint8_t>(ring * frame_size);
    ibv_pd* pd;
    ibv_comp_channel* channel;
    ibv_cq* send_cq;
    ibv_cq* receive_cq;
    ibv_mr* mr;
    ibv_qp* qp;
};

/// A NIC_RX rule on the root table: frames to `address` go to a queue.
class Rule {
public:
    Rule(ibv_context* context, ibv_qp* qp) {
        domain_ = mlx5dv_dr_domain_create(context, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
        table_ = mlx5dv_dr_table_create(domain_, 0);
        struct {
            std::size_t size = 64;
            std::uint8_t bytes[64] = {};
        } mask, value;
        std::memset(mask.bytes + 8, 0xff, 6);
        std::memcpy(value.bytes + 8, address.data(), 6);
        auto* const mask_parameters = reinterpret_cast<mlx5dv_flow_match_parameters*>(&mask);
        matcher_ = mlx5dv_dr_matcher_create(table_, 0, 1, mask_parameters);
        action_ = mlx5dv_dr_action_create_dest_ibv_qp(qp);
        rule_ = mlx5dv_dr_rule_create(matcher_, reinterpret_cast<mlx5dv_flow_match_parameters*>(&value), 1, &action_);
        EXPECT_NE(rule_, nullptr);
    }
    ~Rule() {
        EXPECT_EQ(mlx5dv_dr_rule_destroy(rule_), 0);
        EXPECT_EQ(mlx5dv_dr_action_destroy(action_), 0);
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher_), 0);
        EXPECT_EQ(mlx5dv_dr_table_destroy(table_), 0);
        EXPECT_EQ(mlx5dv_dr_domain_destroy(domain_), 0);
    }

private:
    mlx5dv_dr_domain* domain_;
    mlx5dv_dr_table* table_;
    mlx5dv_dr_matcher* matcher_;
    mlx5dv_dr_action* action_;
    mlx5dv_dr_rule* rule_;
};

/// Receives until `last`; every number must be one more than the one before.
void receive_all(Queue& queue, std::uint64_t last, Clock::duration patience) {
    std::uint64_t expected = 1;
    const auto deadline = Clock::now() + patience;
    while (expected <= last && Clock::now() < deadline) {
        ASSERT_EQ(ibv_req_notify_cq(queue.receive_cq, 0), 0);
        ibv_wc done[32];
        for (int got = 0; (got = ibv_poll_cq(queue.receive_cq, 32, done)) > 0;) {
            for (int i = 0; i < got; ++i) {
                ASSERT_EQ(done[i].status, IBV_WC_SUCCESS);
                ASSERT_EQ(done[i].byte_len, frame_size);
                std::uint64_t number = 0;
                std::memcpy(&number, queue.frame(static_cast<unsigned>(done[i].wr_id)) + 16, sizeof number);
                ASSERT_EQ(number, expected++);
                ASSERT_EQ(queue.post_receive(static_cast<unsigned>(done[i].wr_id)), 0);
            }
        }
        pollfd waiting{queue.channel->fd, POLLIN, 0};
        if (expected > last || poll(&waiting, 1, 200) != 1) continue;
        ibv_cq* cq = nullptr;
        void* context = nullptr;
        ASSERT_EQ(ibv_get_cq_event(queue.channel, &cq, &context), 0);
        ibv_ack_cq_events(cq, 1);
    }
    EXPECT_EQ(expected, last + 1);
}

/// Sends 1 to `last`, never more at once than the receiver has buffers for.
void send_all(Queue& queue, std::uint64_t last) {
    unsigned on_the_way = 0;
    for (std::uint64_t number = 1; number <= last;) {
        if (on_the_way < 32) {
            ASSERT_EQ(queue.post_send(static_cast<unsigned>(number % ring), number), 0);
            ++number;
            ++on_the_way;
            continue;
        }
        ibv_wc done[32];
        const int got = ibv_poll_cq(queue.send_cq, 32, done);
        for (int i = 0; i < got; ++i) ASSERT_EQ(done[i].status, IBV_WC_SUCCESS);
        on_the_way -= static_cast<unsigned>(got);
        if (got == 0) std::this_thread::yield();
    }
}

class NicTrafficTest : public ::testing::Test {
protected:
    void SetUp() override { ASSERT_NE(open_nic(), nullptr); }
};

TEST_F(NicTrafficTest, EveryFrameArrivesOnceInOrderAndWhole) {
    Queue sender(open_nic()), receiver(open_nic());
    const Rule rule(open_nic(), receiver.qp);
    for (unsigned i = 0; i < ring; ++i) ASSERT_EQ(receiver.post_receive(i), 0);
    // A receiver that lags loses frames, as hardware would; so the sender waits for each round.
    for (unsigned round = 0; round < 50; ++round) {
        send_all(sender, 200);
        receive_all(receiver, 200, 5s);
        ibv_wc done[64];
        while (ibv_poll_cq(sender.send_cq, 64, done) > 0) {
        }
    }
}

TEST_F(NicTrafficTest, ObjectsComeAndGoBesideTraffic) {
    Queue receiver(open_nic());
    const Rule rule(open_nic(), receiver.qp);
    for (unsigned i = 0; i < ring; ++i) ASSERT_EQ(receiver.post_receive(i), 0);
    std::atomic<bool> stop = false;
    std::atomic<std::uint64_t> received = 0;
    std::thread drain([&] {
        ibv_wc done[32];
        while (!stop) {
            const int got = ibv_poll_cq(receiver.receive_cq, 32, done);
            for (int i = 0; i < got; ++i) EXPECT_EQ(receiver.post_receive(static_cast<unsigned>(done[i].wr_id)), 0);
            received += static_cast<unsigned>(got);
            if (got == 0) std::this_thread::yield();
        }
    });
    std::vector<std::thread> churn;
    for (int t = 0; t < 2; ++t) {
        churn.emplace_back([&] {
            while (!stop) {
                Queue sender(open_nic());
                send_all(sender, 100);
                ibv_mr* const other = ibv_reg_mr(sender.pd, sender.frames.data(), sender.frames.size(), 0);
                EXPECT_EQ(ibv_dereg_mr(other), 0);
                ibv_qp_attr attr{};
                attr.qp_state = IBV_QPS_ERR;
                EXPECT_EQ(ibv_modify_qp(sender.qp, &attr, IBV_QP_STATE), 0);
            }
        });
    }
    std::this_thread::sleep_for(1s);
    stop = true;
    for (std::thread& thread : churn) thread.join();
    drain.join();
    EXPECT_GT(received, 1000u);
}

}  // namespace
