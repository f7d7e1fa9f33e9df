// Packet pacing and transmit scheduling of raw packet queues, through the verbs that applications use. The test is the
// worker, and the clock is its own.
#include "datapath/rdma/pacing/send_limit.hpp"

#include <gtest/gtest.h>
#include <infiniband/mlx5_api.h>
#include <sys/mman.h>

#include <map>
#include <memory>

#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

constexpr std::uint64_t second = 1'000'000'000;
constexpr std::uint32_t frame_size = 1000;

/// A raw packet queue in RTS that always has something to send, while it is `busy`.
struct Sender {
    Sender(OpenDevice& device, ibv_mr* region) : mr(region) {
        cq = ibv_create_cq(device.context, 127, nullptr, nullptr, 0);
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.cap = {64, 1, 1, 1, 0};
        attr.sq_sig_all = true;
        qp = ibv_create_qp(device.pd, &attr);
        for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) EXPECT_EQ(to(state), 0);
    }
    ~Sender() {
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
    }
    int to(ibv_qp_state state, std::uint32_t rate = 0) {
        ibv_qp_attr attr{};
        attr.qp_state = state;
        attr.port_num = 1;
        attr.rate_limit = rate;
        return ibv_modify_qp(qp, &attr,
                             IBV_QP_STATE | (state == IBV_QPS_INIT ? IBV_QP_PORT : 0) | (rate ? IBV_QP_RATE_LIMIT : 0));
    }
    int pace(std::uint32_t kilobits) {
        ibv_qp_rate_limit_attr attr{};
        attr.rate_limit = kilobits;
        return ibv_modify_qp_rate_limit(qp, &attr);
    }
    void post() {
        ibv_wc done[16];
        while (ibv_poll_cq(cq, 16, done) > 0) {}
        ibv_sge piece{reinterpret_cast<std::uint64_t>(mr->addr), frame_size, mr->lkey};
        ibv_send_wr wr{};
        wr.sg_list = &piece;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        ibv_send_wr* bad = nullptr;
        while (busy && ibv_post_send(qp, &wr, &bad) == 0) {}
    }
    [[nodiscard]] std::uint32_t sqn() const { return Qp::of(qp).raw->spec().sqn; }

    ibv_mr* mr;
    ibv_cq* cq;
    ibv_qp* qp;
    bool busy = true;
};

class SendLimitTest : public ::testing::Test {
protected:
    SendLimitTest() : mr(ibv_reg_mr(open.pd, buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE)) {}
    ~SendLimitTest() override {
        senders.clear();
        for (mlx5dv_sched_leaf* leaf : leaves) EXPECT_EQ(mlx5dv_sched_leaf_destroy(leaf), 0);
        for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) EXPECT_EQ(mlx5dv_sched_node_destroy(*node), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
    }

    Sender& add() { return *senders.emplace_back(std::make_unique<Sender>(open, mr)); }
    static mlx5dv_sched_attr attributes(mlx5dv_sched_node* parent, std::optional<std::uint32_t> share = {},
                                        std::optional<std::uint32_t> megabits = {}) {
        mlx5dv_sched_attr attr{};
        attr.parent = parent;
        if (share) attr.flags |= MLX5DV_SCHED_ELEM_ATTR_FLAGS_BW_SHARE;
        if (megabits) attr.flags |= MLX5DV_SCHED_ELEM_ATTR_FLAGS_MAX_AVG_BW;
        attr.bw_share = share.value_or(0);
        attr.max_avg_bw = megabits.value_or(0);
        return attr;
    }
    mlx5dv_sched_node* node(const mlx5dv_sched_attr& attr) {
        mlx5dv_sched_node* const made = mlx5dv_sched_node_create(open.context, &attr);
        if (made) nodes.push_back(made);
        return made;
    }
    mlx5dv_sched_leaf* leaf(const mlx5dv_sched_attr& attr) {
        mlx5dv_sched_leaf* const made = mlx5dv_sched_leaf_create(open.context, &attr);
        if (made) leaves.push_back(made);
        return made;
    }
    /// A queue under a leaf of its own.
    Sender& add_under(const mlx5dv_sched_attr& attr) {
        Sender& sender = add();
        EXPECT_EQ(mlx5dv_modify_qp_sched_elem(sender.qp, leaf(attr), nullptr), 0);
        return sender;
    }

    /// The worker's turns: it sleeps when there is nothing to do, until it is due.
    void run(std::uint64_t time) {
        const Outlet outlet{[](void* self, std::uint32_t sqn, rte_mbuf** packets, unsigned length) noexcept {
                                for (unsigned i = 0; i < length; ++i) {
                                    static_cast<SendLimitTest*>(self)->sent[sqn] += rte_pktmbuf_pkt_len(packets[i]);
                                }
                                rte_pktmbuf_free_bulk(packets, length);
                            },
                            this};
        sent.clear();
        turns = 0;
        const std::uint64_t end = now + time;
        while (now < end) {
            for (const auto& sender : senders) sender->post();
            ++turns;
            const unsigned work = open.device.serve(outlet, now);
            now = work ? now + 1000 : std::min(end, std::max(now + 1000, open.device.next_turn(now)));
        }
    }
    [[nodiscard]] double megabits(const Sender& sender, std::uint64_t time) {
        return static_cast<double>(sent[sender.sqn()]) * 8e3 / static_cast<double>(time);
    }

    std::array<std::uint8_t, frame_size> buffer{};
    OpenDevice open;
    ibv_mr* mr;
    std::vector<std::unique_ptr<Sender>> senders;
    std::vector<mlx5dv_sched_node*> nodes;
    std::vector<mlx5dv_sched_leaf*> leaves;
    std::map<std::uint32_t, std::uint64_t> sent;  ///< bytes by SQN
    std::uint64_t now = second;
    unsigned turns = 0;
};

TEST_F(SendLimitTest, APacedQueueSendsAtItsRate) {
    for (const std::uint32_t kilobits : {800u, 8'000u, 123'457u}) {
        Sender& sender = add();
        ASSERT_EQ(sender.pace(kilobits), 0);
        run(second);
        const double bytes = kilobits * 125.0;
        EXPECT_NEAR(static_cast<double>(sent[sender.sqn()]), bytes, bytes / 1000 + 2 * frame_size);
        EXPECT_LE(turns, 3 * bytes / frame_size + 100) << "it sleeps between packets";
        senders.clear();
    }
}

TEST_F(SendLimitTest, IdleTimeIsWorthAMillisecond) {
    Sender& sender = add();
    ASSERT_EQ(sender.pace(80'000), 0);  // ten packets a millisecond
    sender.busy = false;
    run(second);
    EXPECT_EQ(sent[sender.sqn()], 0u);
    EXPECT_EQ(open.device.next_turn(now), Service::never) << "nothing to send";
    sender.busy = true;
    run(2000);
    EXPECT_EQ(sent[sender.sqn()], 11u * frame_size) << "one, and what was saved";
    EXPECT_NEAR(static_cast<double>(open.device.next_turn(now)), static_cast<double>(now + 100'000), 3000);
}

TEST_F(SendLimitTest, ARateIsSetWithRtsAndLiftedAgain) {
    Sender& sender = add();
    ASSERT_EQ(sender.to(IBV_QPS_RESET), 0);
    ASSERT_EQ(sender.to(IBV_QPS_INIT), 0);
    EXPECT_EQ(sender.pace(8'000), EINVAL) << "not in RTS";
    ASSERT_EQ(sender.to(IBV_QPS_RTR), 0);
    ASSERT_EQ(sender.to(IBV_QPS_RTS, 8'000), 0);
    run(second);
    EXPECT_NEAR(megabits(sender, second), 8, 0.02);
    EXPECT_EQ(open.device.send_sources(), 0u);
    ASSERT_EQ(sender.pace(16'000), 0);
    run(second);
    EXPECT_NEAR(megabits(sender, second), 16, 0.05);
    ASSERT_EQ(sender.pace(0), 0);
    EXPECT_EQ(open.device.send_sources(), 1u) << "polled like any other";
    ASSERT_EQ(sender.pace(8'000), 0);
    ASSERT_EQ(sender.to(IBV_QPS_RESET), 0);
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) EXPECT_EQ(sender.to(state), 0);
    EXPECT_EQ(open.device.send_sources(), 1u) << "RESET has ended the limit";
}

TEST_F(SendLimitTest, RatesAreThoseOfTheCapabilities) {
    ibv_device_attr_ex attr{};
    ASSERT_EQ(ibv_query_device_ex(open.context, nullptr, &attr), 0);
    const ibv_packet_pacing_caps& caps = attr.packet_pacing_caps;
    EXPECT_EQ(caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
    Sender& sender = add();
    EXPECT_EQ(sender.pace(caps.qp_rate_limit_min), 0);
    EXPECT_EQ(sender.pace(caps.qp_rate_limit_max), 0);
    EXPECT_EQ(sender.pace(caps.qp_rate_limit_max + 1), EINVAL);
    ibv_qp_rate_limit_attr limit{1000, 0, 0, 0};
    EXPECT_EQ(ibv_modify_qp_rate_limit(sender.qp, &limit), 0);
    limit.max_burst_sz = 1;
    EXPECT_EQ(ibv_modify_qp_rate_limit(sender.qp, &limit), EINVAL);
    limit = {1000, 0, 1, 0};
    EXPECT_EQ(ibv_modify_qp_rate_limit(sender.qp, &limit), EINVAL);
    limit = {1000, 0, 0, 1};
    EXPECT_EQ(ibv_modify_qp_rate_limit(sender.qp, &limit), EINVAL);
}

TEST_F(SendLimitTest, IndicesAreSharedUnlessDedicated) {
    const auto alloc = [&](std::uint32_t kilobits, std::uint32_t flags = 0) {
        const __be32 rate = htobe32(kilobits);
        return std::unique_ptr<mlx5dv_pp, decltype(&mlx5dv_pp_free)>(
            mlx5dv_pp_alloc(open.context, sizeof rate, &rate, flags), &mlx5dv_pp_free);
    };
    const auto one = alloc(100), same = alloc(100), other = alloc(200);
    const auto own = alloc(100, MLX5DV_PP_ALLOC_FLAGS_DEDICATED_INDEX);
    ASSERT_TRUE(one && same && other && own);
    EXPECT_NE(one->index, 0) << "stands for no limit";
    EXPECT_EQ(one->index, same->index);
    EXPECT_NE(one->index, other->index);
    EXPECT_NE(one->index, own->index);
    EXPECT_EQ(alloc(100)->index, one->index) << "not the dedicated one";
    std::vector<decltype(alloc(1))> all;
    for (unsigned i = 0; i < RateTable::length - 4; ++i) all.push_back(alloc(1000 + i));
    for (const auto& entry : all) ASSERT_TRUE(entry);
    EXPECT_FALSE(alloc(300));
    EXPECT_EQ(errno, ENOSPC);
    EXPECT_TRUE(alloc(200)) << "it is there already";
    Sender& sender = add();
    EXPECT_EQ(sender.pace(300), ENOSPC);
    EXPECT_EQ(sender.pace(1000), 0);
    all.erase(all.begin());
    EXPECT_FALSE(alloc(300)) << "the queue holds it";
    EXPECT_EQ(sender.pace(0), 0);
    EXPECT_TRUE(alloc(300));
}

TEST_F(SendLimitTest, PacingContextsAreRefusedAsTheKernelDoes) {
    const auto refusal = [&](std::size_t size, const std::array<std::uint8_t, 49>& bytes, std::uint32_t flags = 0) {
        mlx5dv_pp* const entry = mlx5dv_pp_alloc(open.context, size, bytes.data(), flags);
        if (!entry) return errno;
        mlx5dv_pp_free(entry);
        return 0;
    };
    const std::array<std::uint8_t, 49> good{0, 0, 1, 0};
    EXPECT_EQ(refusal(48, good), 0);
    EXPECT_EQ(refusal(49, good), EINVAL);
    EXPECT_EQ(refusal(0, good), EINVAL);
    EXPECT_EQ(refusal(48, good, 2), EOPNOTSUPP);
    EXPECT_EQ(refusal(48, {}), EINVAL) << "no rate";
    EXPECT_EQ(refusal(48, {0xff, 0xff, 0xff, 0xff}), EINVAL) << "faster than the device";
    EXPECT_EQ(refusal(48, {0, 0, 1, 0, 0, 0, 0, 1}), EINVAL) << "a bound of bursts";
    EXPECT_EQ(refusal(48, {0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0}), EINVAL) << "a typical size";
}

TEST_F(SendLimitTest, ALeafLimitsItsQueuesTogether) {
    mlx5dv_sched_leaf* const limited = leaf(attributes(node(attributes(nullptr)), {}, 10));
    Sender &one = add(), &two = add();
    for (const Sender* sender : {&one, &two}) ASSERT_EQ(mlx5dv_modify_qp_sched_elem(sender->qp, limited, nullptr), 0);
    run(second);
    EXPECT_NEAR(megabits(one, second) + megabits(two, second), 10, 0.05);
    EXPECT_NEAR(megabits(one, second), 5, 0.05) << "alike";
    two.busy = false;
    run(second);  // until it has sent what was posted
    run(second);
    EXPECT_NEAR(megabits(one, second), 10, 0.05) << "what the other does not need";
    const mlx5dv_sched_attr faster = attributes(nodes[0], {}, 30);
    ASSERT_EQ(mlx5dv_sched_leaf_modify(limited, &faster), 0);
    run(second);
    EXPECT_NEAR(megabits(one, second), 30, 0.3);
    ASSERT_EQ(mlx5dv_modify_qp_sched_elem(one.qp, nullptr, nullptr), 0);
    ASSERT_EQ(mlx5dv_modify_qp_sched_elem(two.qp, nullptr, nullptr), 0);
    EXPECT_EQ(open.device.send_sources(), 2u) << "free again";
}

TEST_F(SendLimitTest, ANodeLimitsAllBelowIt) {
    mlx5dv_sched_node* const root = node(attributes(nullptr));
    mlx5dv_sched_node* const limited = node(attributes(root, {}, 20));
    Sender& slow = add_under(attributes(node(attributes(limited)), {}, 4));
    Sender& fast = add_under(attributes(limited));
    Sender& beside = add_under(attributes(root, {}, 100));
    run(second);
    EXPECT_NEAR(megabits(slow, second), 4, 0.05);
    EXPECT_NEAR(megabits(fast, second), 16, 0.1) << "the rest";
    EXPECT_NEAR(megabits(beside, second), 100, 0.5);
}

TEST_F(SendLimitTest, BusyElementsShareByWeight) {
    for (const std::optional<std::uint32_t> limit :
         {std::optional<std::uint32_t>{}, std::optional<std::uint32_t>{50}}) {
        mlx5dv_sched_node* const parent = node(attributes(node(attributes(nullptr)), {}, limit));
        Sender& seven = add_under(attributes(parent, 7));
        Sender& two = add_under(attributes(node(attributes(parent, 2)), 100));
        Sender& one = add_under(attributes(parent, 0));
        const std::uint64_t time = limit ? second : second / 1000;
        run(time);
        const double all = megabits(seven, time) + megabits(two, time) + megabits(one, time);
        EXPECT_NEAR(megabits(seven, time) / all, 0.7, 0.01);
        EXPECT_NEAR(megabits(two, time) / all, 0.2, 0.01) << "shares count between those beside each other only";
        EXPECT_NEAR(megabits(one, time) / all, 0.1, 0.01);
        if (limit) {
            EXPECT_NEAR(all, *limit, 0.5);
        }
        two.busy = false;
        run(time);
        run(time);
        EXPECT_NEAR(megabits(seven, time) / (megabits(seven, time) + megabits(one, time)), 7.0 / 8, 0.01);
        const mlx5dv_sched_attr equal = attributes(parent, 1);
        ASSERT_EQ(mlx5dv_sched_leaf_modify(leaves[leaves.size() - 3], &equal), 0);
        run(time);
        EXPECT_NEAR(megabits(seven, time) / (megabits(seven, time) + megabits(one, time)), 0.5, 0.01);
        senders.clear();
    }
}

TEST_F(SendLimitTest, WhoWasIdleHasNoClaimToThePast) {
    mlx5dv_sched_node* const parent = node(attributes(node(attributes(nullptr)), {}, 50));
    Sender &one = add_under(attributes(parent)), &two = add_under(attributes(parent));
    two.busy = false;
    run(second);
    two.busy = true;
    run(second);
    EXPECT_NEAR(megabits(one, second), 25, 0.5);
}

TEST_F(SendLimitTest, OwnRatesHoldUnderALeafAndGiveTheRestAway) {
    mlx5dv_sched_node* const parent = node(attributes(node(attributes(nullptr)), {}, 50));
    Sender &paced = add_under(attributes(parent, 10)), &other = add_under(attributes(parent, 1));
    ASSERT_EQ(paced.pace(5'000), 0);
    run(second);
    EXPECT_NEAR(megabits(paced, second), 5, 0.1);
    EXPECT_NEAR(megabits(other, second), 45, 0.5);
}

TEST_F(SendLimitTest, SchedulingIsRefusedAsLibmlx5Does) {
    const auto node_refusal = [&](mlx5dv_sched_attr attr) { return node(attr) ? 0 : errno; };
    const auto leaf_refusal = [&](mlx5dv_sched_attr attr) { return leaf(attr) ? 0 : errno; };
    EXPECT_EQ(node_refusal(attributes(nullptr, 1)), EINVAL) << "a root has no attributes";
    EXPECT_EQ(node_refusal(attributes(nullptr, {}, 1)), EINVAL);
    EXPECT_EQ(leaf_refusal(attributes(nullptr)), EINVAL) << "a leaf has a parent";
    EXPECT_EQ(mlx5dv_sched_node_create(open.context, nullptr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    mlx5dv_sched_node* const root = node(attributes(nullptr));
    mlx5dv_sched_attr wrong = attributes(root);
    wrong.comp_mask = 1;
    EXPECT_EQ(node_refusal(wrong), EINVAL);
    wrong = attributes(root);
    wrong.flags = 4;
    EXPECT_EQ(leaf_refusal(wrong), EINVAL);
    EXPECT_EQ(leaf_refusal(attributes(root, Scheduler::most_share)), 0);
    EXPECT_EQ(leaf_refusal(attributes(root, Scheduler::most_share + 1)), EINVAL);
    mlx5dv_sched_attr share = attributes(root, Scheduler::most_share + 1);
    EXPECT_EQ(mlx5dv_sched_leaf_modify(leaves[0], &share), EINVAL);
    wrong = attributes(nullptr);
    EXPECT_EQ(mlx5dv_sched_leaf_modify(leaves[0], &wrong), EINVAL);
    EXPECT_EQ(mlx5dv_sched_node_modify(root, &wrong), 0) << "nothing to change";
    wrong = attributes(nullptr, {}, 10);
    EXPECT_EQ(mlx5dv_sched_node_modify(root, &wrong), EINVAL);
    mlx5dv_sched_node* lowest = root;
    for (unsigned level = 1; level < Scheduler::most_levels; ++level) lowest = node(attributes(lowest));
    ASSERT_TRUE(lowest);
    EXPECT_EQ(leaf_refusal(attributes(lowest)), EINVAL) << "too many levels";
    EXPECT_EQ(mlx5dv_sched_node_destroy(root), EBUSY);
    OpenDevice elsewhere;
    wrong = attributes(root);
    EXPECT_EQ(mlx5dv_sched_leaf_create(elsewhere.context, &wrong), nullptr);
    EXPECT_EQ(errno, EINVAL) << "of another device";
}

TEST_F(SendLimitTest, QueuesHangOnLeavesInRtsUntilTheyLetGo) {
    mlx5dv_sched_leaf* const place = leaf(attributes(node(attributes(nullptr)), {}, 1));
    Sender& sender = add();
    EXPECT_EQ(mlx5dv_modify_qp_sched_elem(sender.qp, nullptr, place), EINVAL) << "raw packets are not answered";
    ASSERT_EQ(mlx5dv_modify_qp_sched_elem(sender.qp, place, nullptr), 0);
    EXPECT_EQ(mlx5dv_sched_leaf_destroy(place), EBUSY);
    ASSERT_EQ(sender.to(IBV_QPS_RESET), 0);
    EXPECT_EQ(open.device.send_sources(), 0u);
    EXPECT_EQ(mlx5dv_modify_qp_sched_elem(sender.qp, place, nullptr), EOPNOTSUPP) << "not in RTS";
    EXPECT_EQ(mlx5dv_sched_leaf_destroy(place), 0) << "RESET lets go";
    leaves.clear();
}

TEST_F(SendLimitTest, VarsArePagesOfTheCommandFile) {
    EXPECT_EQ(mlx5dv_alloc_var(open.context, 1), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    std::vector<mlx5dv_var*> all;
    while (mlx5dv_var* const var = mlx5dv_alloc_var(open.context, 0)) all.push_back(var);
    EXPECT_EQ(errno, ENOSPC);
    ASSERT_GE(all.size(), 2u);
    EXPECT_NE(all[0]->page_id, all[1]->page_id);
    EXPECT_NE(all[0]->mmap_off, all[1]->mmap_off);
    const auto map = [&](const mlx5dv_var& var) {
        void* const at =
            mmap(nullptr, var.length, PROT_READ | PROT_WRITE, MAP_SHARED, open.context->cmd_fd, var.mmap_off);
        EXPECT_NE(at, MAP_FAILED);
        return static_cast<std::uint32_t*>(at);
    };
    std::uint32_t *const first = map(*all[0]), *const second_page = map(*all[1]);
    first[0] = 7;
    EXPECT_EQ(second_page[0], 0u);
    munmap(first, all[0]->length);
    munmap(second_page, all[1]->length);
    const std::uint32_t page = all[0]->page_id;
    mlx5dv_free_var(all[0]);
    all[0] = mlx5dv_alloc_var(open.context, 0);
    ASSERT_TRUE(all[0]);
    EXPECT_EQ(all[0]->page_id, page);
    std::uint32_t* const again = map(*all[0]);
    EXPECT_EQ(again[0], 0u) << "what another wrote";
    munmap(again, all[0]->length);
    for (mlx5dv_var* var : all) mlx5dv_free_var(var);
}

}  // namespace
}  // namespace ovsdr::soft::test
