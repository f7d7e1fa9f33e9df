// RoCE of the manager function while its uplink is a port of the switch: two soft NICs on one wire, one of which
// manages an eSwitch. What they send each other passes the switch by, and each finds the other's MAC.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "offload/dr/device/device.hpp"
#include "offload/dr/device/ib_port.hpp"
#include "offload/dr/device/leak.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr {
namespace {

using namespace std::chrono_literals;
using slowpath::PortQueue;
using test::MegaflowBuilder;

constexpr std::uint8_t ib_port = 1;
constexpr std::uint32_t key = 0x11111111, messages = 20;
enum GidIndex { link_local = 0, over_ipv4 = 1, over_ipv6 = 2 };   // as the soft NIC gives them

/// A queue pair of type UD, and a buffer that each message comes into.
class Datagrams {
public:
    Datagrams(ibv_context* context, ibv_pd* pd) : context_(context), pd_(pd), memory_(4096) {
        cq_ = ibv_create_cq(context, 128, nullptr, nullptr, 0);
        region_ = ibv_reg_mr(pd, memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
        ibv_qp_init_attr wanted{};
        wanted.send_cq = wanted.recv_cq = cq_;
        wanted.cap = {64, 64, 1, 1, 0};
        wanted.qp_type = IBV_QPT_UD;
        wanted.sq_sig_all = 1;
        qp_ = ibv_create_qp(pd, &wanted);
        EXPECT_TRUE(cq_ != nullptr && region_ != nullptr && qp_ != nullptr);
        ibv_qp_attr attributes{};
        attributes.qp_state = IBV_QPS_INIT;
        attributes.port_num = ib_port;
        attributes.qkey = key;
        EXPECT_EQ(ibv_modify_qp(qp_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
        attributes.qp_state = IBV_QPS_RTR;
        EXPECT_EQ(ibv_modify_qp(qp_, &attributes, IBV_QP_STATE), 0);
        attributes.qp_state = IBV_QPS_RTS;
        EXPECT_EQ(ibv_modify_qp(qp_, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
        for (unsigned i = 0; i < 64; ++i) make_room();
    }
    ~Datagrams() {
        ibv_destroy_qp(qp_);
        ibv_dereg_mr(region_);
        ibv_destroy_cq(cq_);
    }
    Datagrams(const Datagrams&) = delete;
    Datagrams& operator=(const Datagrams&) = delete;

    /// Looks the peer's MAC up. NULL: nobody answered.
    ibv_ah* way_to(const Datagrams& peer, int gid_index) const {
        ibv_ah_attr attributes{};
        attributes.is_global = 1;
        attributes.port_num = ib_port;
        attributes.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
        attributes.grh.hop_limit = 64;
        EXPECT_EQ(ibv_query_gid(peer.context_, ib_port, gid_index, &attributes.grh.dgid), 0);
        return ibv_create_ah(pd_, &attributes);
    }
    void send(const Datagrams& peer, ibv_ah* way) {
        ibv_sge place{reinterpret_cast<std::uintptr_t>(memory_.data()) + 2048, 256, region_->lkey};
        ibv_send_wr request{}, *bad = nullptr;
        request.sg_list = &place;
        request.num_sge = 1;
        request.opcode = IBV_WR_SEND;
        request.wr.ud = {way, peer.qp_->qp_num, key};
        EXPECT_EQ(ibv_post_send(qp_, &request, &bad), 0);
    }
    /// So many come, and no more.
    unsigned received(unsigned wanted) {
        unsigned came = 0;
        const auto end = std::chrono::steady_clock::now() + 3s;
        ibv_wc completion{};
        while (came < wanted && std::chrono::steady_clock::now() < end) {
            if (ibv_poll_cq(cq_, 1, &completion) != 1) continue;
            EXPECT_EQ(completion.status, IBV_WC_SUCCESS);
            if (completion.opcode != IBV_WC_RECV) continue;
            ++came;
            make_room();
        }
        return came;
    }

private:
    void make_room() {
        ibv_sge place{reinterpret_cast<std::uintptr_t>(memory_.data()), 2048, region_->lkey};
        ibv_recv_wr receive{}, *bad = nullptr;
        receive.sg_list = &place;
        receive.num_sge = 1;
        EXPECT_EQ(ibv_post_recv(qp_, &receive, &bad), 0);
    }

    ibv_context* context_;
    ibv_pd* pd_;
    std::vector<std::uint8_t> memory_;
    ibv_cq* cq_;
    ibv_mr* region_;
    ibv_qp* qp_;
};

class ManagersRoce : public ::testing::Test {
protected:
    static void run(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }
    static std::string device(int number, const std::string& other_ports) {
        const std::string n = std::to_string(number);
        return R"({"name": "mlx5_)" + n + R"(", "mac": "02:00:00:00:79:0)" + n + R"(", "ports": [)" + other_ports +
               R"({"vport": 65535, "dpdk": "net_af_packet,iface=wire)" + n + R"(", "roce_address": ["192.0.2.)" +
               std::to_string(number + 1) + R"(/24", "2001:db8::)" + std::to_string(number + 1) + R"(/64"]}]})";
    }

    void SetUp() override {
        if (unshare(CLONE_NEWNET) != 0) GTEST_SKIP() << "no right to make a network namespace";
        run("ip link add wire0 type veth peer name wire1");
        for (const std::string end : {"wire0", "wire1"}) {
            run("sysctl -qw net.ipv6.conf." + end + ".disable_ipv6=1; ethtool -K " + end +
                " tx off >/dev/null 2>&1; ip link set " + end + " up");
        }
        std::ofstream("softnic-roce-test.json")
            << R"({"memory_mb": 512, "control_socket": "", "devices": [)"
            << device(0, R"({"vport": 1, "dpdk": "net_null,no-rx=1"}, )") << ", " << device(1, "") << "]}";
        setenv("OVSDR_SOFTNIC", "softnic-roce-test.json", 1);
        auto opened = Eswitch::open("mlx5_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
        for (const std::uint16_t vport : {std::uint16_t{1}, uplink_vport.value}) attach(VportId{vport});
        int length = 0;
        ibv_device** devices = ibv_get_device_list(&length);
        for (int i = 0; i < length; ++i) {
            if (ibv_get_device_name(devices[i]) == std::string("mlx5_1")) peer_context_ = ibv_open_device(devices[i]);
        }
        ibv_free_device_list(devices);
        ASSERT_NE(peer_context_, nullptr);
        peer_pd_ = ibv_alloc_pd(peer_context_);
        manager_ = std::make_unique<Datagrams>(eswitch_->context(), eswitch_->pd());
        peer_ = std::make_unique<Datagrams>(peer_context_, peer_pd_);
    }
    void TearDown() override {
        if (eswitch_ == nullptr) return;
        manager_.reset();
        peer_.reset();
        ibv_dealloc_pd(peer_pd_);
        ibv_close_device(peer_context_);
        eswitch_->flush(std::nullopt);
        for (const auto& [vport, queue] : queues_) eswitch_->detach_port(vport);
        queues_.clear();
        eswitch_.reset();
        unlink("softnic-roce-test.json");
        EXPECT_EQ(leaked_objects(), 0U);
    }
    void attach(VportId vport) {
        const auto found = find_ib_port(eswitch_->context(), vport);
        ASSERT_TRUE(found) << found.error().what;
        auto queue = PortQueue::create({.context = eswitch_->context(), .pd = eswitch_->pd(),
                                        .ib_port = found->number});
        ASSERT_TRUE(queue) << queue.error().what;
        const OdpPort odp{vport == uplink_vport ? 9U : vport.value};
        const auto attached = eswitch_->attach_port({odp, vport, "port", (*queue)->qp(), (*queue)->sqn()});
        ASSERT_TRUE(attached) << attached.error().what;
        queues_.emplace_back(vport, std::move(*queue));
    }
    [[nodiscard]] RoceAddress address(int gid_index) const {
        auto found = roce_address(eswitch_->context(), ib_port, gid_index);
        EXPECT_TRUE(found) << found.error().what;
        return *found;
    }
    /// Frames that the switch was given of what came in from the uplink.
    std::size_t missed() {
        std::size_t frames = 0;
        std::this_thread::sleep_for(50ms);
        PortQueue& queue = *queues_.back().second;
        for (auto batch = queue.receive(0); !batch.empty(); batch = queue.receive(0)) frames += batch.size();
        return frames;
    }
    /// Each way, by what the other's queue pair gets.
    void exchange(ibv_ah* to_manager, ibv_ah* to_peer) {
        for (unsigned i = 0; i < messages; ++i) {
            peer_->send(*manager_, to_manager);
            manager_->send(*peer_, to_peer);
        }
        EXPECT_EQ(manager_->received(messages), messages);
        EXPECT_EQ(peer_->received(messages), messages);
    }

    std::shared_ptr<Eswitch> eswitch_;
    std::vector<std::pair<VportId, std::unique_ptr<PortQueue>>> queues_;
    ibv_context* peer_context_ = nullptr;
    ibv_pd* peer_pd_ = nullptr;
    std::unique_ptr<Datagrams> manager_, peer_;
};

/// One test, since a process has one soft NIC.
TEST_F(ManagersRoce, IsLetInPastTheSwitchAndItsNeighboursAnswer) {
    const RoceAddress known = address(over_ipv4);
    EXPECT_TRUE(known.is_ipv4());
    EXPECT_EQ(known.mac, (std::array<std::uint8_t, 6>{2, 0, 0, 0, 0x79, 0}));
    EXPECT_FALSE(address(over_ipv6).is_ipv4());
    EXPECT_EQ(roce_address(eswitch_->context(), ib_port, 99).error().code, ENOENT);

    EXPECT_EQ(peer_->way_to(*manager_, over_ipv4), nullptr) << "the switch has all, and nobody in it answers";
    EXPECT_EQ(errno, ETIMEDOUT);
    EXPECT_GT(missed(), 0U);
    MegaflowBuilder ipv6(9);
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch_->put({1, 1}, MegaflowBuilder(9).ipv4().output(1))));
    ASSERT_TRUE(std::holds_alternative<std::monostate>(eswitch_->put({1, 2}, ipv6.ipv6().output(1))));

    for (const GidIndex gid : {over_ipv4, over_ipv6, link_local}) {
        SCOPED_TRACE(gid);
        const auto let_in = eswitch_->let_roce_in(address(gid));
        ASSERT_TRUE(let_in) << let_in.error().what;
        const auto counted = [&] {
            std::this_thread::sleep_for(200ms);   // status() asks the device for what is not recent
            return eswitch_->status({1, 1})->stats.packets + eswitch_->status({1, 2})->stats.packets;
        };
        const std::uint64_t before = counted();
        ibv_ah* const to_manager = peer_->way_to(*manager_, gid);
        ibv_ah* const to_peer = manager_->way_to(*peer_, gid);
        ASSERT_TRUE(to_manager != nullptr && to_peer != nullptr);
        const std::uint64_t discovery = counted() - before;
        exchange(to_manager, to_peer);
        EXPECT_EQ(counted() - before, discovery) << "no RoCE is the switch's, neither way";
        EXPECT_TRUE(gid != over_ipv4 || missed() > 0) << "the switch has its copies of ARP";
        EXPECT_TRUE(gid != over_ipv6 || discovery > 0) << "and of neighbour discovery";
        eswitch_->detach_port(uplink_vport);
        queues_.pop_back();
        exchange(to_manager, to_peer);   // no port of the switch: as without one
        attach(uplink_vport);
        exchange(to_manager, to_peer);
        ibv_destroy_ah(to_manager);
        ibv_destroy_ah(to_peer);
        eswitch_->forget_roce(address(gid));
    }
}

}  // namespace
}  // namespace ovsdr::dr
