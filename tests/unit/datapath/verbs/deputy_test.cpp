// A whole soft NIC with a tap in a network namespace of the test's own, and an application of the verbs that sleeps on
// its completion channel: whoever is woken over and over looks at the ports itself. Needs root.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::array<std::uint8_t, 6> address{0x02, 0, 0, 0, 0, 0x77};
constexpr std::size_t frame_size = 64, number_at = 16;
constexpr unsigned ring = 256;

/// NULL where there can be no tap.
ibv_context* open_nic() {
    static ibv_context* const context = []() -> ibv_context* {
        if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0 || access("/dev/net/tun", R_OK | W_OK) != 0) return nullptr;
        std::ofstream("/proc/sys/net/ipv6/conf/default/disable_ipv6") << "1";
        const std::string path = "/tmp/ovsdr-deputy-test-" + std::to_string(getpid()) + ".json";
        std::ofstream(path) << R"({"memory_mb": 128, "control_socket": "", "devices": [{"name": "mlx5_0",
            "ports": [{"vport": 1, "dpdk": "net_tap,iface=tap1"}]}]})";
        setenv("OVSDR_SOFTNIC", path.c_str(), 1);
        int length = 0;
        ibv_device** const list = ibv_get_device_list(&length);
        unlink(path.c_str());
        ibv_context* const opened = length == 1 ? ibv_open_device(list[0]) : nullptr;
        ibv_free_device_list(list);
        EXPECT_NE(opened, nullptr);
        return opened;
    }();
    return context;
}

/// The other end of the tap; its frames are numbered from 0.
class Guest {
public:
    Guest() : socket_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {
        where_.sll_family = AF_PACKET;
        where_.sll_ifindex = static_cast<int>(if_nametoindex("tap1"));
        where_.sll_halen = address.size();
    }
    ~Guest() { close(socket_); }
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

    void send() {
        std::array<std::uint8_t, frame_size> frame{};
        std::memcpy(frame.data(), address.data(), address.size());
        frame[6] = 0x02;
        frame[12] = 0x88;
        frame[13] = 0xb5;
        std::memcpy(&frame[number_at], &sent, sizeof sent);
        ASSERT_EQ(sendto(socket_, frame.data(), frame.size(), 0, reinterpret_cast<sockaddr*>(&where_), sizeof where_),
                  static_cast<ssize_t>(frame.size()));
        ++sent;
    }

    std::uint32_t sent = 0;

private:
    int socket_;
    sockaddr_ll where_{};
};

/// A raw packet QP that gets the frames to `address`, its completion queue and the channel.
class Receiver {
public:
    explicit Receiver(ibv_context* context)
        : pd_(ibv_alloc_pd(context)),
          channel(ibv_create_comp_channel(context)),
          cq(ibv_create_cq(context, ring, nullptr, channel, 0)),
          mr_(ibv_reg_mr(pd_, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE)) {
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.cap = {1, ring, 1, 1, 0};
        qp_ = ibv_create_qp(pd_, &attr);
        ibv_qp_attr state{};
        state.port_num = 1;
        state.qp_state = IBV_QPS_INIT;
        EXPECT_EQ(ibv_modify_qp(qp_, &state, IBV_QP_STATE | IBV_QP_PORT), 0);
        state.qp_state = IBV_QPS_RTR;
        EXPECT_EQ(ibv_modify_qp(qp_, &state, IBV_QP_STATE), 0);
        for (unsigned i = 0; i < ring; ++i) post(i);
        make_rule(context);
        EXPECT_EQ(ibv_req_notify_cq(cq, 0), 0);
    }
    ~Receiver() {
        EXPECT_EQ(mlx5dv_dr_rule_destroy(rule_), 0);
        EXPECT_EQ(mlx5dv_dr_action_destroy(action_), 0);
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher_), 0);
        EXPECT_EQ(mlx5dv_dr_table_destroy(table_), 0);
        EXPECT_EQ(mlx5dv_dr_domain_destroy(domain_), 0);
        EXPECT_EQ(ibv_destroy_qp(qp_), 0);
        EXPECT_EQ(ibv_dereg_mr(mr_), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    }
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;

    void set_flags(int flags) const { EXPECT_EQ(fcntl(channel->fd, F_SETFL, flags), 0); }
    [[nodiscard]] bool readable(std::chrono::milliseconds patience) const {
        pollfd polled{channel->fd, POLLIN, 0};
        return poll(&polled, 1, static_cast<int>(patience.count())) == 1;
    }
    /// Takes an event; 0 or an errno.
    [[nodiscard]] int get_event() {
        ibv_cq* told = nullptr;
        void* owner = nullptr;
        if (ibv_get_cq_event(channel, &told, &owner) != 0) return errno;
        ibv_ack_cq_events(told, 1);
        ++events;
        return 0;
    }
    /// Empties the completion queue; how many there were.
    unsigned take_all() {
        unsigned taken = 0;
        for (ibv_wc done{}; ibv_poll_cq(cq, 1, &done) == 1; ++taken) {
            EXPECT_EQ(done.status, IBV_WC_SUCCESS);
            std::uint32_t number = 0;
            std::memcpy(&number, &memory_[done.wr_id * frame_size + number_at], sizeof number);
            numbers.push_back(number);
            post(static_cast<unsigned>(done.wr_id));
        }
        return taken;
    }
    /// Step by step as in ibv_get_cq_event(3), by an application that is ready for EAGAIN: until `frames` are there.
    void receive(std::size_t frames) {
        const auto end = Clock::now() + 10s;
        while (numbers.size() < frames && Clock::now() < end) {
            (void)readable(100ms);
            if (looks_first) take_all();   // as OVS does
            (void)get_event();
            take_all();
            ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
            take_all();
        }
        ASSERT_EQ(numbers.size(), frames);
    }

private:
    void post(unsigned index) {
        ibv_sge piece{reinterpret_cast<std::uint64_t>(&memory_[index * frame_size]), frame_size, mr_->lkey};
        ibv_recv_wr wr{index, nullptr, &piece, 1};
        ibv_recv_wr* bad = nullptr;
        EXPECT_EQ(ibv_post_recv(qp_, &wr, &bad), 0);
    }
    void make_rule(ibv_context* context) {
        domain_ = mlx5dv_dr_domain_create(context, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
        table_ = mlx5dv_dr_table_create(domain_, 0);
        struct {
            std::size_t size = 64;
            std::uint8_t bytes[64] = {};
        } mask, value;
        std::memset(mask.bytes + 8, 0xff, address.size());
        std::memcpy(value.bytes + 8, address.data(), address.size());
        matcher_ = mlx5dv_dr_matcher_create(table_, 0, 1, reinterpret_cast<mlx5dv_flow_match_parameters*>(&mask));
        action_ = mlx5dv_dr_action_create_dest_ibv_qp(qp_);
        rule_ = mlx5dv_dr_rule_create(matcher_, reinterpret_cast<mlx5dv_flow_match_parameters*>(&value), 1, &action_);
        EXPECT_NE(rule_, nullptr);
    }

    std::vector<std::uint8_t> memory_ = std::vector<std::uint8_t>(ring * frame_size);
    ibv_pd* pd_;

public:
    ibv_comp_channel* channel;
    ibv_cq* cq;
    bool looks_first = false;
    unsigned events = 0;
    std::vector<std::uint32_t> numbers;

private:
    ibv_mr* mr_;
    ibv_qp* qp_;
    mlx5dv_dr_domain* domain_;
    mlx5dv_dr_table* table_;
    mlx5dv_dr_matcher* matcher_;
    mlx5dv_dr_action* action_;
    mlx5dv_dr_rule* rule_;
};

class DeputyTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (open_nic() == nullptr) GTEST_SKIP() << "no network namespace of its own, or no /dev/net/tun: not root?";
    }
    /// Frame after frame, with pauses in which the worker falls asleep.
    static void exchange(Guest& guest, Receiver& receiver, unsigned frames) {
        for (unsigned i = 0; i < frames; ++i) {
            std::this_thread::sleep_for(2ms);
            guest.send();
            ASSERT_NO_FATAL_FAILURE(receiver.receive(guest.sent));
        }
    }
    static void expect_each_once_in_order(const Guest& guest, const Receiver& receiver) {
        std::vector<std::uint32_t> sent(guest.sent);
        std::iota(sent.begin(), sent.end(), 0U);
        EXPECT_EQ(receiver.numbers, sent);
    }
};

TEST_F(DeputyTest, WhoWaitsFindsMostFramesByItsOwnLook) {
    Guest guest;
    Receiver receiver(open_nic());
    receiver.set_flags(O_NONBLOCK);
    receiver.looks_first = true;
    EXPECT_EQ(receiver.get_event(), EAGAIN) << "who has not met that is no deputy";
    ASSERT_NO_FATAL_FAILURE(exchange(guest, receiver, 200));
    EXPECT_LT(receiver.events, 100U) << "a frame of one's own look gives none";
    EXPECT_GE(receiver.events, 4U) << "before that the worker has woken it";
    expect_each_once_in_order(guest, receiver);
}

TEST_F(DeputyTest, ADescriptorThatBlocksHasAnEventForEachFrame) {
    Guest guest;
    Receiver receiver(open_nic());
    for (unsigned i = 0; i < 50; ++i) {
        std::this_thread::sleep_for(2ms);
        guest.send();
        ASSERT_TRUE(receiver.readable(5s));
        ASSERT_EQ(receiver.get_event(), 0);
        ASSERT_EQ(ibv_req_notify_cq(receiver.cq, 0), 0);
        receiver.take_all();
    }
    EXPECT_EQ(receiver.events, 50U);
    expect_each_once_in_order(guest, receiver);
}

/// Whoever takes the flag back waits for an event, and gets one.
TEST_F(DeputyTest, WhoStopsLookingIsWokenByEventsAgain) {
    Guest guest;
    Receiver receiver(open_nic());
    receiver.set_flags(O_NONBLOCK);
    ASSERT_NO_FATAL_FAILURE(exchange(guest, receiver, 50));
    receiver.set_flags(0);
    for (unsigned i = 0; i < 30; ++i) {
        std::this_thread::sleep_for(2ms);
        guest.send();
        ASSERT_EQ(receiver.get_event(), 0);
        ASSERT_EQ(ibv_req_notify_cq(receiver.cq, 0), 0);
        receiver.take_all();
    }
    expect_each_once_in_order(guest, receiver);
}

TEST_F(DeputyTest, ChannelsComeAndGoWhileFramesArrive) {
    for (unsigned round = 0; round < 5; ++round) {
        Guest guest;
        Receiver receiver(open_nic());
        receiver.set_flags(O_NONBLOCK);
        ASSERT_NO_FATAL_FAILURE(exchange(guest, receiver, 30));
        expect_each_once_in_order(guest, receiver);
    }
}

/// A request holds until its event, so it need not be made again where there was none.
TEST_F(DeputyTest, WhoAsksAgainOnlyBehindAnEventFindsWhatHasMadeItsDescriptorReadable) {
    Guest guest;
    Receiver receiver(open_nic());
    receiver.set_flags(O_NONBLOCK);
    unsigned in_vain = 0;
    for (unsigned i = 0; i < 100; ++i) {
        std::this_thread::sleep_for(2ms);
        guest.send();
        for (bool came = false; !came;) {
            ASSERT_TRUE(receiver.readable(5s));
            const bool told = receiver.get_event() == 0;
            ASSERT_EQ(told ? ibv_req_notify_cq(receiver.cq, 0) : 0, 0);
            came = receiver.take_all() > 0;
            in_vain += !told && !came;
        }
    }
    EXPECT_LT(in_vain, 10U) << "for 100 frames the loop turned that often, without a pause";
    expect_each_once_in_order(guest, receiver);
}

/// The example of ibv_get_cq_event(3) for a descriptor in non-blocking mode: once poll() says that it is readable,
/// there is an event, and it gives up where there is none.
TEST_F(DeputyTest, TheManualPagesApplicationGetsAnEventWhenItsDescriptorIsReadable) {
    Guest guest;
    Receiver receiver(open_nic());
    receiver.set_flags(O_NONBLOCK);
    unsigned without = 0;
    for (unsigned i = 0; i < 100; ++i) {
        std::this_thread::sleep_for(2ms);
        guest.send();
        while (receiver.readable(5s) && receiver.get_event() == EAGAIN) ++without;
        ASSERT_EQ(ibv_req_notify_cq(receiver.cq, 0), 0);
        receiver.take_all();
    }
    EXPECT_EQ(without, 0U) << "of 100 frames; the loop turned that often, without a pause";
    expect_each_once_in_order(guest, receiver);
}

}  // namespace
