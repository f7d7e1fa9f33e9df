// ACCESS_ASO on a queue pair: entries in the ring, executed in their order, with the queue's protection domain.
#include "datapath/rdma/aso_access.hpp"
#include "tests/unit/datapath/rdma/roce/two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

constexpr std::uint32_t queues_pd = 1;  // Queue's domain_number
constexpr std::uint32_t object = 0x500;

struct AsoQueueTest : TwoNodes {
    Queue client{left, {}}, server{right, {}};
    std::shared_ptr<AsoBulk> bits = std::make_shared<AsoBulk>(AsoKind::first_hit, 1, nullptr);

    void SetUp() override {
        client.connect(server);
        server.connect(client);
    }
    void own(std::uint32_t pd) { left.state().aso().add(object, bits, pd); }

    struct Access {
        std::uint32_t number = object;
        std::uint8_t opmod = 4;                  ///< first hit
        std::size_t read_to = ~std::size_t{0};   ///< offset in the queue's memory
        std::uint32_t lkey = 0;                  ///< 0: the queue's
        std::uint8_t fill = 0;                   ///< what all bytes become
        std::uint64_t mask = 0;
    };
    static void post(Queue& queue, const Access& access) {
        std::array<std::uint8_t, 128> entry{};
        const auto put = [&entry](std::size_t at, std::uint64_t value, unsigned size) {
            for (unsigned i = 0; i < size; ++i) entry[at + i] = static_cast<std::uint8_t>(value >> 8 * (size - 1 - i));
        };
        mlx5_wqe_ctrl_seg control{};
        mlx5dv_set_ctrl_seg(&control, static_cast<std::uint16_t>(queue.posted), 0x2d, access.opmod, queue.number(),
                            MLX5_WQE_CTRL_CQ_UPDATE, entry.size() / 16, 0, htobe32(access.number));
        std::memcpy(entry.data(), &control, sizeof control);
        if (access.read_to != ~std::size_t{0}) put(16, queue.address(access.read_to) | 1, 8);
        put(24, access.lkey != 0 ? access.lkey : queue.region.key, 4);
        put(28, 1 << 6, 1);  // the mask counts bytes
        put(29, 0x11, 1);    // both conditions are true
        put(56, access.mask, 8);
        std::fill(entry.begin() + 64, entry.end(), access.fill);
        for (std::size_t at = 0; at < entry.size(); at += 64, ++queue.posted) {
            std::memcpy(queue.send_ring + queue.posted % Queue::ring_length * 64, entry.data() + at, 64);
        }
        queue.send_doorbell = htobe32(queue.posted & 0xffff);
        if (queue.rings) queue.pair->ring_send();
    }
    static std::vector<ibv_wc_status> statuses(Queue& queue) {
        std::vector<ibv_wc_status> all;
        for (const Completion& completion : queue.sends()) all.push_back(completion.status);
        return all;
    }
};

TEST_F(AsoQueueTest, WritesAndReadsBesideOtherEntries) {
    own(queues_pd);
    server.post_receive(1, {server.piece(0, 64)});
    post(client, {.fill = 0xff, .mask = 1});        // the last byte: bits 0 to 7
    client.post({.sges = {client.piece(0, 64)}});
    post(client, {.number = object + 1, .fill = 0x04, .mask = 2});
    post(client, {.read_to = 128});
    run();
    EXPECT_EQ(statuses(client), std::vector(4, IBV_WC_SUCCESS));
    EXPECT_EQ(server.receives_done().size(), 1U);
    EXPECT_TRUE(bits->hit(7, false));
    EXPECT_FALSE(bits->hit(8, false));
    EXPECT_TRUE(bits->hit(512 + 10, false));
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(client.memory[128 + i], std::byte(i == 63 ? 0xff : 0)) << i;
}

TEST_F(AsoQueueTest, AQueueThatIsLookedAtAgainAndAgainHasThemToo) {
    own(queues_pd);
    Queue polled(left, {.polled = true});
    polled.connect(server);
    post(polled, {.fill = 0xff, .mask = 1});
    run([&] { return bits->hit(0, false); }, 1'000'000);
    EXPECT_EQ(statuses(polled), std::vector(1, IBV_WC_SUCCESS));
    EXPECT_TRUE(bits->hit(0, false));
}

TEST_F(AsoQueueTest, AnObjectOfAnotherProtectionDomainIsNotTouched) {
    own(queues_pd + 1);
    post(client, {.fill = 0xff, .mask = ~0ULL});
    post(client, {.fill = 0xff, .mask = ~0ULL});
    run();
    EXPECT_EQ(statuses(client), (std::vector{IBV_WC_LOC_QP_OP_ERR, IBV_WC_WR_FLUSH_ERR}));
    EXPECT_NE(client.pair->state(), IBV_QPS_RTS);
    EXPECT_FALSE(bits->hit(0, false));
}

TEST_F(AsoQueueTest, AnObjectThatIsNotThereFailsTheQueue) {
    post(client, {});
    run();
    EXPECT_EQ(statuses(client), std::vector{IBV_WC_LOC_QP_OP_ERR});
}

TEST_F(AsoQueueTest, MemoryThatCannotBeWrittenIsAProtectionError) {
    own(queues_pd);
    post(client, {.read_to = 0, .lkey = server.region.key + 0x4200, .fill = 0xff, .mask = ~0ULL});
    run();
    EXPECT_EQ(statuses(client), std::vector{IBV_WC_LOC_PROT_ERR});
    EXPECT_FALSE(bits->hit(0, false)) << "a request that fails changes nothing";
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
