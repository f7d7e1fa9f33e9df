// Queues made by raw DEVX commands on a whole soft NIC: the test is the application that fills the rings and rings the
// doorbells. Vport 1 gives back what it receives, so what a send queue sends comes to the receive queues by way of the
// vport.
//
// The mailboxes' offsets are written down here once more, from the device's reference, so that a wrong one is seen.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>

#include <array>
#include <atomic>
#include <cstring>
#include <span>
#include <vector>

#include "datapath/rdma/device_state.hpp"
#include "datapath/verbs/objects.hpp"
#include "tests/unit/datapath/ports/nic_fixture.hpp"

namespace ovsdr::soft::test {

using Bytes = std::vector<std::uint8_t>;

/// A command's input, or its answer.
struct Mailbox {
    explicit Mailbox(std::size_t size = 272) : bytes(size) {}
    Mailbox(std::uint16_t opcode, std::size_t size) : bytes(size) { put(0, 16, opcode); }

    Mailbox& put(unsigned offset, unsigned width, std::uint64_t value) {
        for (unsigned i = 0; i < width; ++i) {
            const unsigned bit = offset + width - 1 - i;
            const auto mask = static_cast<std::uint8_t>(0x80 >> bit % 8);
            bytes[bit / 8] = static_cast<std::uint8_t>(value >> i & 1 ? bytes[bit / 8] | mask : bytes[bit / 8] & ~mask);
        }
        return *this;
    }
    [[nodiscard]] std::uint64_t get(unsigned offset, unsigned width) const {
        std::uint64_t value = 0;
        for (unsigned bit = offset; bit < offset + width; ++bit) {
            value = value << 1 | (bytes[bit / 8] >> (7 - bit % 8) & 1);
        }
        return value;
    }
    Bytes bytes;
};

/// An object and the number that it was given.
struct Made {
    mlx5dv_devx_obj* object = nullptr;
    std::uint32_t number = 0;
};

class DevxRings : public NicTest {
protected:
    static constexpr unsigned ring_length = 16;   ///< entries, and 64-byte blocks of send rings
    static constexpr unsigned room_size = 2048;   ///< bytes of a receive buffer
    static constexpr unsigned status_ok = 0, bad_op = 2, bad_param = 3, bad_res = 5, bad_res_state = 9;

    /// The device's configuration.
    [[nodiscard]] virtual const char* configuration() const {
        return R"("ports": [{"vport": 1, "dpdk": "net_ring", "mtu": 9000}])";
    }

    void SetUp() override {
        memory.fill(0);
        start(configuration());
        state = std::make_unique<DeviceState>(device(), device().mempool());
        context = open_context(&listed, *state);
        pd = ibv_alloc_pd(context);
        mr = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
        umem = mlx5dv_devx_umem_reg(context, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
        uar = mlx5dv_devx_alloc_uar(context, MLX5DV_UAR_ALLOC_TYPE_NC);
        mlx5dv_obj named{};
        mlx5dv_pd told{};
        named.pd.in = pd;
        named.pd.out = &told;
        ASSERT_EQ(mlx5dv_init_obj(&named, MLX5DV_OBJ_PD), 0);
        pdn = told.pdn;
    }
    void TearDown() override {
        for (auto made = objects.rbegin(); made != objects.rend(); ++made) EXPECT_EQ(mlx5dv_devx_obj_destroy(*made), 0);
        if (routed) device().steering().remove_cotenant_send_rule(routed);
        mlx5dv_devx_free_uar(uar);
        EXPECT_EQ(mlx5dv_devx_umem_dereg(umem), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(ibv_dealloc_pd(pd), 0);
        EXPECT_EQ(ibv_close_device(context), 0);
        state.reset();
        nic_.reset();
    }

    /// Bytes of the memory that is UMEM and MR at once; where they begin in it.
    std::size_t take(std::size_t size) {
        const std::size_t at = taken;
        taken += (size + 63) / 64 * 64;
        EXPECT_LE(taken, memory.size());
        return at;
    }
    template <typename T>
    T* place(std::size_t at) {
        return reinterpret_cast<T*>(memory.data() + at);
    }

    /// The object stays until the test's end. On refusal the object is nullptr and the answer in `out`.
    Made create(const Mailbox& in) {
        Made made;
        out = Mailbox();
        made.object = mlx5dv_devx_obj_create(context, in.bytes.data(), in.bytes.size(), out.bytes.data(), 16);
        if (!made.object) return made;
        objects.push_back(made.object);
        made.number = static_cast<std::uint32_t>(out.get(72, 24));
        return made;
    }
    unsigned refusal(const Mailbox& in) {
        EXPECT_EQ(create(in).object, nullptr);
        EXPECT_EQ(errno, EREMOTEIO);
        return static_cast<unsigned>(out.get(0, 8));
    }
    void destroy(Made made) {
        std::erase(objects, made.object);
        EXPECT_EQ(mlx5dv_devx_obj_destroy(made.object), 0);
    }
    int modify(Made made, const Mailbox& in) {
        out = Mailbox();
        return mlx5dv_devx_obj_modify(made.object, in.bytes.data(), in.bytes.size(), out.bytes.data(), 16);
    }

    struct Cq : Made {
        std::size_t ring = 0, record = 0;
        std::uint32_t next = 0;
    };
    Mailbox cq_command(Cq& cq, unsigned log_length) {
        Mailbox in(0x400, 272);
        cq.ring = take(std::size_t{64} << log_length);
        cq.record = take(8);
        in.put(128 + 6, 1, 1).put(128 + 32, 32, umem->umem_id).put(128 + 448, 64, cq.record);  // doorbell record
        in.put(128 + 99, 5, log_length).put(128 + 104, 24, uar->page_id);
        in.put(640, 64, cq.ring).put(704, 32, umem->umem_id).put(736, 1, 1);
        return in;
    }
    Cq make_cq(unsigned log_length = 6) {
        Cq cq;
        static_cast<Made&>(cq) = create(cq_command(cq, log_length));
        EXPECT_NE(cq.object, nullptr) << "status " << out.get(0, 8);
        return cq;
    }
    /// The next CQE once it is the application's, nullptr when none comes.
    mlx5_cqe64* wait(Cq& cq, std::chrono::milliseconds patience = std::chrono::seconds(10)) {
        constexpr unsigned length = 64;
        auto* const entry = place<mlx5_cqe64>(cq.ring) + cq.next % length;
        const std::atomic_ref<std::uint8_t> last(entry->op_own);
        const bool came = eventually(
            [&] {
                const std::uint8_t now = last.load(std::memory_order_acquire);
                return (now & 1) == (cq.next / length & 1) && now >> 4 != MLX5_CQE_INVALID;
            },
            patience);
        if (!came) return nullptr;
        ++cq.next;
        std::atomic_ref(*place<__be32>(cq.record)).store(htobe32(cq.next & 0xffffff));
        return entry;
    }

    struct Queue : Made {
        std::size_t ring = 0, record = 0;
        std::uint16_t posted = 0;
    };
    /// The work queue context of `queue` at bit `wq`.
    void put_wq(Mailbox& in, unsigned wq, Queue& queue, unsigned log_stride) {
        queue.ring = take(std::size_t{ring_length} << log_stride);
        queue.record = take(8);
        in.put(wq, 4, 1).put(wq + 72, 24, pdn).put(wq + 128, 64, queue.record);
        in.put(wq + 268, 4, log_stride).put(wq + 283, 5, 4).put(wq + 288, 2, 3);
        in.put(wq + 320, 32, umem->umem_id).put(wq + 352, 32, umem->umem_id).put(wq + 384, 64, queue.ring);
    }
    Mailbox sq_command(Queue& sq, std::uint32_t cqn, std::uint32_t tisn) {
        Mailbox in(0x904, 272);
        in.put(256 + 3, 1, 1)
            .put(256 + 40, 24, 0xabc)
            .put(256 + 72, 24, cqn)
            .put(256 + 256, 16, 1)
            .put(256 + 360, 24, tisn);
        put_wq(in, 256 + 384, sq, 6);
        return in;
    }
    Mailbox rq_command(Queue& rq, std::uint32_t cqn, bool keep_vlan) {
        Mailbox in(0x908, 272);
        in.put(256 + 3, 1, keep_vlan).put(256 + 13, 1, 1).put(256 + 40, 24, 0xdef).put(256 + 72, 24, cqn);
        put_wq(in, 256 + 384, rq, 4);
        return in;
    }
    /// An RC queue pair, both of its rings of 16 blocks.
    Mailbox qp_command(std::uint32_t cqn) {
        Mailbox in(0x500, 272);
        const std::size_t rings = take(2 * 16 * 64), record = take(8);
        in.put(192 + 40, 24, pdn).put(192 + 73, 4, 4).put(192 + 77, 3, 2).put(192 + 81, 4, 4);
        in.put(192 + 1000, 24, cqn).put(192 + 1256, 24, cqn).put(192 + 1280, 64, record).put(192 + 1667, 1, 1);
        in.put(192 + 1824, 32, umem->umem_id).put(2048, 64, rings).put(2112, 32, umem->umem_id).put(2144, 1, 1);
        return in;
    }
    Made make_tis() { return create(Mailbox(0x912, 192)); }

    static Mailbox move(std::uint16_t opcode, std::uint32_t number, unsigned from, unsigned to) {
        return Mailbox(opcode, 272).put(64, 4, from).put(72, 24, number).put(256 + 8, 4, to);
    }
    unsigned state_of(Made queue, std::uint16_t opcode) {
        const Mailbox in = Mailbox(opcode, 16).put(72, 24, queue.number);
        out = Mailbox();
        EXPECT_EQ(mlx5dv_devx_obj_query(queue.object, in.bytes.data(), in.bytes.size(), out.bytes.data(), 272), 0);
        return static_cast<unsigned>(out.get(256 + 8, 4));
    }
    /// A send queue in RDY whose frames go to vport 1.
    Queue make_sq(std::uint32_t cqn) {
        Queue sq;
        static_cast<Made&>(sq) = create(sq_command(sq, cqn, make_tis().number));
        EXPECT_NE(sq.object, nullptr) << "status " << out.get(0, 8);
        device().steering().cotenant_send_rule(sq.number, VportId{1});
        routed = sq.number;
        EXPECT_EQ(modify(sq, move(0x905, sq.number, 0, 1)), 0);
        return sq;
    }
    Queue make_rq(std::uint32_t cqn, bool keep_vlan = true) {
        Queue rq;
        static_cast<Made&>(rq) = create(rq_command(rq, cqn, keep_vlan));
        EXPECT_NE(rq.object, nullptr) << "status " << out.get(0, 8);
        EXPECT_EQ(modify(rq, move(0x909, rq.number, 0, 1)), 0);
        return rq;
    }
    Made make_tir(std::uint32_t rqn) { return create(Mailbox(0x900, 272).put(256 + 232, 24, rqn)); }

    void ring(Queue& queue, unsigned word) {
        std::atomic_ref(place<__be32>(queue.record)[word]).store(htobe32(queue.posted), std::memory_order_release);
    }
    /// Posts `count` buffers; returns where the first is. They follow each other.
    std::size_t post_receives(Queue& rq, unsigned count, std::uint32_t size = room_size) {
        const std::size_t rooms = take(std::size_t{count} * room_size);
        for (unsigned i = 0; i < count; ++i) {
            auto* const segment = place<mlx5_wqe_data_seg>(rq.ring) + rq.posted++ % ring_length;
            mlx5dv_set_data_seg(segment, size, mr->lkey,
                                reinterpret_cast<std::uintptr_t>(memory.data() + rooms + i * room_size));
        }
        ring(rq, 0);
        return rooms;
    }

    struct Send {
        std::uint8_t opcode = MLX5_OPCODE_SEND;
        std::uint16_t front = 18;       ///< bytes of the frame that go inline
        std::uint8_t checksums = 0;     ///< MLX5_ETH_WQE_L3_CSUM, L4_CSUM
        std::uint16_t mss = 0;
        std::uint32_t tag = 0;          ///< insert type << 16 | TCI; no inline header then
        bool signaled = true;
        std::uint32_t lkey = 0;         ///< 0: the memory's
    };
    void post_send(Queue& sq, const Bytes& frame, const Send& send, bool rings = true) {
        const std::size_t at = take(frame.size());
        std::copy(frame.begin(), frame.end(), memory.begin() + static_cast<std::ptrdiff_t>(at));
        const std::uint16_t front = send.tag ? 0 : send.front;
        const std::size_t head = 16 + (14 + std::max<std::size_t>(front, 2) + 15) / 16 * 16;
        Bytes entry(head + 16);
        const auto units = static_cast<std::uint8_t>(entry.size() / 16);
        mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(entry.data()), sq.posted, send.opcode, 0, sq.number,
                            send.signaled ? MLX5_WQE_CTRL_CQ_UPDATE : 0, units, 0, 0);
        auto* const ethernet = reinterpret_cast<mlx5_wqe_eth_seg*>(entry.data() + 16);
        ethernet->cs_flags = send.checksums;
        ethernet->mss = htobe16(send.mss);
        const std::uint32_t what = htobe32(send.tag ? send.tag : std::uint32_t{front} << 16);
        std::memcpy(entry.data() + 16 + 12, &what, sizeof what);
        if (front) std::copy_n(frame.begin(), front, entry.begin() + 16 + 14);
        mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg*>(entry.data() + head),
                            static_cast<std::uint32_t>(frame.size() - front), send.lkey ? send.lkey : mr->lkey,
                            reinterpret_cast<std::uintptr_t>(memory.data() + at + front));
        for (std::size_t done = 0; done < entry.size(); done += 64) {
            std::memcpy(memory.data() + sq.ring + sq.posted++ % ring_length * 64, entry.data() + done,
                        std::min<std::size_t>(64, entry.size() - done));
        }
        if (rings) ring(sq, 1);
    }

    /// An ACCESS_ASO entry of two blocks that writes all of a flow meter's object, whose bytes as they were go to
    /// `read_to`.
    void post_meter_access(Queue& sq, std::uint32_t meter, const void* read_to, std::uint8_t fill) {
        std::array<std::uint8_t, 128> entry{};
        mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(entry.data()), sq.posted, 0x2d, 2, sq.number,
                            MLX5_WQE_CTRL_CQ_UPDATE, entry.size() / 16, 0, htobe32(meter));
        const std::uint64_t to = htobe64(reinterpret_cast<std::uintptr_t>(read_to) | 1);
        const std::uint32_t lkey = htobe32(mr->lkey);
        std::memcpy(entry.data() + 16, &to, sizeof to);
        std::memcpy(entry.data() + 24, &lkey, sizeof lkey);
        entry[28] = 1 << 6;  // the mask counts bytes
        entry[29] = 0x11;    // conditions: always
        std::memset(entry.data() + 56, 0xff, 8);
        std::memset(entry.data() + 64, fill, 64);
        for (std::size_t done = 0; done < entry.size(); done += 64) {
            std::memcpy(memory.data() + sq.ring + sq.posted++ % ring_length * 64, entry.data() + done, 64);
        }
        ring(sq, 1);
    }

    alignas(4096) static inline std::array<std::uint8_t, 1u << 20> memory;
    std::size_t taken = 0;
    std::unique_ptr<DeviceState> state;
    ibv_device listed{};
    ibv_context* context = nullptr;
    ibv_pd* pd = nullptr;
    std::uint32_t pdn = 0, routed = 0;
    ibv_mr* mr = nullptr;
    mlx5dv_devx_umem* umem = nullptr;
    mlx5dv_devx_uar* uar = nullptr;
    std::vector<mlx5dv_devx_obj*> objects;
    Mailbox out;
};

/// A NIC_RX rule on the root table: what goes to `address` gets tag 0x123 and goes to a TIR.
class TirRule {
public:
    static constexpr std::array<std::uint8_t, 6> address{0x02, 0, 0, 0, 0, 0x77};
    static constexpr std::uint32_t flow_tag = 0x123;

    TirRule(ibv_context* context, mlx5dv_devx_obj* tir) {
        domain_ = mlx5dv_dr_domain_create(context, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
        table_ = mlx5dv_dr_table_create(domain_, 0);
        struct {
            std::size_t size = 64;
            std::uint8_t bytes[64] = {};
        } mask, value;
        std::memset(mask.bytes + 8, 0xff, 6);
        std::copy(address.begin(), address.end(), value.bytes + 8);
        matcher_ = mlx5dv_dr_matcher_create(table_, 0, 1, reinterpret_cast<mlx5dv_flow_match_parameters*>(&mask));
        actions_ = {mlx5dv_dr_action_create_tag(flow_tag), mlx5dv_dr_action_create_dest_devx_tir(tir)};
        rule_ = mlx5dv_dr_rule_create(matcher_, reinterpret_cast<mlx5dv_flow_match_parameters*>(&value),
                                      actions_.size(), actions_.data());
        EXPECT_NE(rule_, nullptr);
    }
    ~TirRule() {
        EXPECT_EQ(mlx5dv_dr_rule_destroy(rule_), 0);
        for (mlx5dv_dr_action* action : actions_) EXPECT_EQ(mlx5dv_dr_action_destroy(action), 0);
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher_), 0);
        EXPECT_EQ(mlx5dv_dr_table_destroy(table_), 0);
        EXPECT_EQ(mlx5dv_dr_domain_destroy(domain_), 0);
    }
    TirRule(const TirRule&) = delete;
    TirRule& operator=(const TirRule&) = delete;

private:
    mlx5dv_dr_domain* domain_;
    mlx5dv_dr_table* table_;
    mlx5dv_dr_matcher* matcher_;
    std::array<mlx5dv_dr_action*, 2> actions_;
    mlx5dv_dr_rule* rule_;
};

}  // namespace ovsdr::soft::test
