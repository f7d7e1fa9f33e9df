// Two devices joined by a wire in memory, queue pairs on them, and a clock that the test moves.
//
// The test is the workers: run() gives the engines their turns, carries what they send across the wire, and moves the
// clock to the next deadline when nothing else happens. The wire can lose, repeat, reorder, and look at frames.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "../fake_device.hpp"
#include "datapath/rdma/roce/address.hpp"
#include "datapath/rdma/roce/frame.hpp"
#include "datapath/rdma/roce/queue_pair.hpp"
#include "datapath/rdma/roce/shared_receive_queue.hpp"
#include "datapath/rdma/roce/transport.hpp"

namespace ovsdr::soft::roce::test {

using soft::test::FakeDevice;

using Frame = std::vector<std::byte>;

inline constexpr std::uint8_t a_send = MLX5_OPCODE_SEND, a_write = MLX5_OPCODE_RDMA_WRITE;
inline constexpr std::uint8_t a_read = MLX5_OPCODE_RDMA_READ, an_atomic = MLX5_OPCODE_ATOMIC_FA;

inline RoceAddress ipv4(std::uint8_t last) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last}, 96 + 24};
}

class Node {
public:
    static constexpr std::uint16_t vlan = 5;  ///< of the GIDs 3 and 4

    explicit Node(std::uint8_t number) : number_(number), state_((prepare(), device_), soft::test::packet_pool()) {
        (void)state_.transport();  // before there are threads
    }

    FakeDevice& device() { return device_; }
    DeviceState& state() { return state_; }
    Transport& transport() { return state_.transport(); }
    ibv_gid gid(unsigned index = 1) { return transport().addresses().gids.at(index).gid; }

    /// Frames that left; a turn of the worker.
    unsigned turn(std::uint64_t now) {
        const Outlet outlet{[](void* self, std::uint32_t sqn, rte_mbuf** packets, unsigned length) noexcept {
                                static_cast<Node*>(self)->last_sqn = sqn;
                                for (unsigned i = 0; i < length; ++i) static_cast<Node*>(self)->keep(packets[i]);
                            },
                            this};
        return device_.serve(outlet, now);
    }
    /// What the uplink receives.
    void receive(const Frame& frame, VportId vport = uplink_vport, rte_mempool* pool = soft::test::packet_pool()) {
        rte_mbuf* packet = rte_pktmbuf_alloc(pool);
        ASSERT_NE(packet, nullptr) << rte_mempool_avail_count(pool);
        std::memcpy(rte_pktmbuf_append(packet, static_cast<std::uint16_t>(frame.size())), frame.data(), frame.size());
        if (!lane_) lane_ = std::make_unique<Lane>(device_.steering(), 0);
        lane_->online();
        lane_->from_vport(vport, &packet, 1);
        lane_->quiescent();
        lane_->offline();  // or it would have to be asked whenever a table changes
    }

    std::deque<Frame> sent;
    std::uint32_t last_sqn = 0;  ///< whose the last of them was

private:
    void prepare() {
        const std::uint8_t mac[6] = {2, 0, 0, 0, 7, number_};
        (void)device_.set_mac(manager_vport, mac);
        device_.set_roce_addresses(
            {ipv4(number_), {{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number_}, 64},
             {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, number_}, 96 + 24, vlan},
             {{0x20, 1, 0xd, 0xb8, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, number_}, 64, vlan}});
        device_.set_mtu(uplink_vport, 9000);
    }
    void keep(rte_mbuf* packet) {
        const auto* bytes = rte_pktmbuf_mtod(packet, const std::byte*);
        sent.emplace_back(bytes, bytes + rte_pktmbuf_pkt_len(packet));
        rte_pktmbuf_free(packet);
    }

    std::uint8_t number_;
    FakeDevice device_;
    std::unique_ptr<Lane> lane_;
    DeviceState state_;
};

/// A queue pair with its rings and memory, driven as the library drives it.
class Queue {
public:
    static constexpr unsigned ring_length = 64;  ///< blocks, and receive entries
    static constexpr unsigned pieces = 4;

    struct Options {
        ibv_qp_type type = IBV_QPT_RC;
        std::size_t memory = 1 << 16;
        SharedReceiveQueue* srq = nullptr;
        bool polled = false;
        std::uint32_t create_flags = 0;
        const void* xrc_domain = nullptr;
        bool stops_at_signature_errors = false;
        std::optional<DcSpec> dc = std::nullopt;
        bool anonymous = false;  ///< nobody gives its entries numbers
        const std::uint32_t* completes_as = nullptr;
        bool silent = false;     ///< nobody wants its events
        bool bare = false;       ///< without rings
    };

    Queue(Node& node, const Options& options) : Queue(node, options, node.state().queue_numbers().take()) {}
    Queue(Node& node, const Options& options, std::uint32_t qpn)
        : node(node),
          completions(1024, false, {}),
          received(1024, false, {}),
          memory(options.memory),
          pair(QueuePair::create(
              {.state = node.state(),
               .type = options.type,
               .domain = this,
               .domain_number = 1,
               .qpn = qpn,
               .sqn = node.state().queue_numbers().take(),
               .send_queue = &completions,
               .receive_queue = &received,
               .srq = options.srq,
               .send = options.bare ? SendRing{}
                                    : SendRing{send_ring, ring_length, &send_doorbell,
                                               options.anonymous ? nullptr : send_ids, &send_freed,
                                               options.completes_as},
               .receive = options.bare ? ReceiveRing{}
                                       : ReceiveRing{receive_ring, options.srq ? 0 : ring_length, pieces * 16,
                                                     &receive_doorbell, options.anonymous ? nullptr : receive_ids,
                                                     &receive_freed},
               .polled = options.polled,
               .create_flags = options.create_flags,
               .xrc_domain = options.xrc_domain,
               .dc = options.dc,
               .stops_at_signature_errors = options.stops_at_signature_errors,
               .event = options.silent ? std::function<void(ibv_event_type)>()
                                       : [this](ibv_event_type type) { events.push_back(type); }})) {
        rings = !options.polled;
        region = {reinterpret_cast<std::uint64_t>(memory.data()), memory.size(), memory.data(),
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
                  this};
        EXPECT_EQ(node.state().memory().add(region), 0);
    }
    ~Queue() {
        pair.reset();
        node.state().memory().remove(region.key);
    }

    [[nodiscard]] std::uint32_t number() const { return pair->spec().qpn; }
    [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const { return region.iova + offset; }
    [[nodiscard]] ibv_sge piece(std::size_t offset, std::size_t size) const {
        return {region.iova + offset, static_cast<std::uint32_t>(size), region.key};
    }

    struct Work {
        std::uint8_t opcode = MLX5_OPCODE_SEND, opmod = 0;
        std::vector<ibv_sge> sges;
        std::vector<std::byte> inlined;
        std::uint64_t remote = 0;
        std::uint32_t rkey = 0;
        std::uint64_t swap_add = 0, compare = 0;
        __be32 immediate = 0;
        bool signaled = true, solicited = false;
        std::uint8_t fence = 0;
        std::uint64_t wr_id = 0;
        const mlx5_wqe_av* address = nullptr;
        std::uint32_t xrc_srq = 0;
        std::uint16_t stream = 0;  ///< DC
    };
    void post(const Work& work) {
        std::vector<std::byte> entry(16);
        const auto put = [&entry](const auto& segment) {
            const auto bytes = std::as_bytes(std::span{&segment, 1});
            entry.insert(entry.end(), bytes.begin(), bytes.end());
        };
        if (work.address) put(mlx5_wqe_datagram_seg{*work.address});
        if (pair->spec().type == IBV_QPT_XRC_SEND) put(std::array<__be32, 4>{htobe32(work.xrc_srq)});
        const bool atomic = work.opcode == MLX5_OPCODE_ATOMIC_CS || work.opcode == MLX5_OPCODE_ATOMIC_FA;
        if (atomic || work.opcode == MLX5_OPCODE_RDMA_WRITE || work.opcode == MLX5_OPCODE_RDMA_WRITE_IMM ||
            work.opcode == MLX5_OPCODE_RDMA_READ) {
            put(mlx5_wqe_raddr_seg{htobe64(work.remote), htobe32(work.rkey), 0});
        }
        if (atomic) put(mlx5_wqe_atomic_seg{htobe64(work.swap_add), htobe64(work.compare)});
        for (const ibv_sge& sge : work.sges) {
            put(mlx5_wqe_data_seg{htobe32(sge.length), htobe32(sge.lkey), htobe64(sge.addr)});
        }
        if (!work.inlined.empty()) {
            put(htobe32(static_cast<std::uint32_t>(work.inlined.size()) | MLX5_INLINE_SEG));
            entry.insert(entry.end(), work.inlined.begin(), work.inlined.end());
            entry.resize((entry.size() + 15) & ~std::size_t{15});
        }
        mlx5_wqe_ctrl_seg control{};
        mlx5dv_set_ctrl_seg(&control, static_cast<std::uint16_t>(posted), work.opcode, work.opmod, number(),
                            static_cast<std::uint8_t>(work.fence << 5 | (work.signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0) |
                                                      (work.solicited ? MLX5_WQE_CTRL_SOLICITED : 0)),
                            static_cast<std::uint8_t>(entry.size() / 16), 0, work.immediate);
        control.dci_stream_channel_id = htobe16(work.stream);
        std::memcpy(entry.data(), &control, sizeof control);
        send_ids[posted % ring_length] = work.wr_id;
        for (std::size_t at = 0; at < entry.size(); at += 64, ++posted) {
            std::memcpy(send_ring + posted % ring_length * 64, entry.data() + at,
                        std::min<std::size_t>(64, entry.size() - at));
        }
        send_doorbell = htobe32(posted & 0xffff);
        if (rings) pair->ring_send();
    }
    /// Room for `blocks` more, by what was polled.
    [[nodiscard]] bool room(unsigned blocks = 1) const { return posted + blocks - send_freed <= ring_length; }

    void post_receive(std::uint64_t wr_id, const std::vector<ibv_sge>& sges) {
        std::byte* entry = receive_ring + receives % ring_length * pieces * 16;
        for (unsigned i = 0; i < pieces; ++i) {
            mlx5_wqe_data_seg segment{0, htobe32(MLX5_INVALID_LKEY), 0};
            if (i < sges.size()) segment = {htobe32(sges[i].length), htobe32(sges[i].lkey), htobe64(sges[i].addr)};
            std::memcpy(entry + i * 16, &segment, 16);
        }
        receive_ids[receives++ % ring_length] = wr_id;
        receive_doorbell = htobe32(receives & 0xffff);
        if (rings) pair->ring_receive();
    }

    [[nodiscard]] std::vector<Completion> poll(CompletionQueue& queue) {
        std::vector<Completion> all(64);
        all.resize(static_cast<std::size_t>(queue.take(all)));
        return all;
    }
    std::vector<Completion> sends() { return poll(completions); }
    std::vector<Completion> receives_done() { return poll(received); }

    [[nodiscard]] int to(ibv_qp_state state, ibv_qp_attr attr = {}, int mask = 0) {
        attr.qp_state = state;
        return pair->modify(attr, mask | IBV_QP_STATE);
    }
    /// RESET to RTS with usual attributes; `peer` may be on the same node.
    void connect(Queue& peer, unsigned gid_index = 1, ibv_qp_attr attr = usual()) {
        attr.port_num = 1;
        attr.dest_qp_num = peer.number();
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid = peer.node.gid(gid_index);
        attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
        const ibv_qp_type type = pair->spec().type;
        const bool reliable = type != IBV_QPT_UC && type != IBV_QPT_UD;
        if (type == IBV_QPT_UD) {
            ASSERT_EQ(to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
            ASSERT_EQ(to(IBV_QPS_RTR, attr), 0);
            ASSERT_EQ(to(IBV_QPS_RTS, attr, IBV_QP_SQ_PSN), 0);
            return;
        }
        ASSERT_EQ(to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
        int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
        if (reliable && type != IBV_QPT_XRC_SEND) rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
        ASSERT_EQ(to(IBV_QPS_RTR, attr, rtr), 0);
        int rts = IBV_QP_SQ_PSN;
        if (type == IBV_QPT_XRC_RECV) rts |= IBV_QP_TIMEOUT;
        if (reliable && type != IBV_QPT_XRC_RECV) {
            rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
        ASSERT_EQ(to(IBV_QPS_RTS, attr, rts), 0);
    }
    static ibv_qp_attr usual() {
        ibv_qp_attr attr{};
        attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        attr.path_mtu = IBV_MTU_1024;
        attr.rq_psn = attr.sq_psn = 0xfffff0;  // numbers wrap soon
        attr.timeout = 14;
        attr.retry_cnt = 7;
        attr.rnr_retry = 7;
        attr.min_rnr_timer = 12;
        attr.max_rd_atomic = 4;
        attr.max_dest_rd_atomic = 4;
        attr.qkey = 0x11223344;
        return attr;
    }

    Node& node;
    bool rings = true;
    alignas(64) std::byte send_ring[ring_length * 64]{};
    alignas(64) std::byte receive_ring[ring_length * pieces * 16]{};
    std::uint64_t send_ids[ring_length]{}, receive_ids[ring_length]{};
    std::atomic<__be32> send_doorbell{0}, receive_doorbell{0};
    std::atomic<std::uint64_t> send_freed{0}, receive_freed{0};
    std::uint32_t posted = 0, receives = 0;
    CompletionQueue completions, received;
    std::vector<std::byte> memory;
    MemoryRegion region{};
    std::vector<ibv_event_type> events;
    std::unique_ptr<QueuePair> pair;
};

struct TwoNodes : testing::Test {
    Node left{1}, right{2};
    std::uint64_t now = 1'000'000;
    /// What the wire does to a frame: how often it arrives. Order is the wire's as long as `reorder` is not set.
    std::function<unsigned(const Frame&, bool from_left)> wire = [](const Frame&, bool) { return 1u; };
    std::function<bool()> overtakes = [] { return false; };
    std::uint64_t frames = 0;

    TwoNodes() {
        for (const unsigned gid : {1u, 2u, 3u, 4u}) {
            introduce(left, right, gid);
            introduce(right, left, gid);
        }
        frames = 0;
    }
    /// Lets `one` find out who has an address of `other`.
    void introduce(Node& one, Node& other, unsigned gid) {
        auto found = std::async(std::launch::async, [&] {
            Mac mac{};
            return one.transport().neighbours().resolve(other.gid(gid), one.transport().addresses().gids.at(gid), mac);
        });
        while (found.wait_for(std::chrono::milliseconds(0)) != std::future_status::ready) run({}, 0);
        EXPECT_EQ(found.get(), 0);
    }

    void carry(Node& from, Node& to) {
        while (!from.sent.empty()) {
            auto next = from.sent.begin();
            if (from.sent.size() > 1 && overtakes()) ++next;
            const Frame frame = std::move(*next);
            from.sent.erase(next);
            ++frames;
            for (unsigned times = wire(frame, &from == &left); times != 0; --times) to.receive(frame);
        }
    }
    /// Until nothing moves any more, or `done`. Deadlines further off than `patience` are not waited for.
    void run(const std::function<bool()>& done = {}, std::uint64_t patience = 100'000'000'000) {
        const std::uint64_t end = now + patience;
        while (!done || !done()) {
            now += 1000;
            const unsigned work = left.turn(now) + right.turn(now);
            carry(left, right);
            carry(right, left);
            if (work != 0) continue;
            const std::uint64_t next = std::min(left.device().next_turn(now), right.device().next_turn(now));
            if (next > end) return;
            now = std::max(now, next);
        }
    }
    static void fill(std::span<std::byte> bytes, unsigned seed) {
        std::mt19937 random(seed);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    }
};

}  // namespace ovsdr::soft::roce::test
