// RDMA queue pairs, the library's half, on a device half that only records.
#pragma once

#include <endian.h>
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "datapath/verbs/ah.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"
#include "datapath/verbs/qp/srq.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
class Recorder final : public roce::QueuePair {
public:
    explicit Recorder(const roce::QueuePairSpec& spec) : spec_(spec) { all[spec.qpn] = this; }
    ~Recorder() override { all.erase(spec_.qpn); }
    const roce::QueuePairSpec& spec() const noexcept override { return spec_; }
    ibv_qp_state state() const noexcept override { return state_; }
    int modify(const ibv_qp_attr& attr, int mask) override {
        if (refuses) return refuses;
        if (mask & IBV_QP_STATE) state_ = attr.qp_state;
        return 0;
    }
    void query(ibv_qp_attr& attr) const override { attr.sq_psn = 77; }
    std::optional<std::uint64_t> drained_at() const override { return drained; }
    int set_udp_source_port(std::uint16_t to) override {
        udp_source_port = to;
        return 0;
    }
    int schedule(Scheduler::Element* requests, Scheduler::Element* answers) override {
        scheduled = {requests, answers};
        return 0;
    }
    int reset_stream(std::uint16_t stream) override {
        stream_reset = stream;
        return refuses;
    }
    void stop() noexcept override { state_ = IBV_QPS_RESET; }
    void ring_send() noexcept override { ++send_rings; }
    void ring_receive() noexcept override { ++receive_rings; }

    void complete(bool send, std::uint64_t freed) {
        const Completion completion{.wr_id = 5,
                                    .status = IBV_WC_SUCCESS,
                                    .opcode = IBV_WC_SEND,
                                    .qp_num = spec_.qpn,
                                    .freed = send ? spec_.send.freed : spec_.receive.freed,
                                    .freed_up_to = freed};
        (send ? spec_.send_queue : spec_.receive_queue)->add({&completion, 1});
    }

    static inline std::map<std::uint32_t, Recorder*> all;
    unsigned send_rings = 0, receive_rings = 0;
    int refuses = 0;
    std::optional<std::uint64_t> drained;
    std::uint16_t udp_source_port = 0;
    std::optional<std::uint16_t> stream_reset;
    std::pair<Scheduler::Element*, Scheduler::Element*> scheduled{};

private:
    const roce::QueuePairSpec spec_;
    ibv_qp_state state_ = IBV_QPS_RESET;
};

using Bytes = std::vector<unsigned>;

/// Numbers as they stand in memory, most significant byte first.
inline void be(Bytes& to, unsigned size, std::uint64_t value) {
    for (unsigned i = 0; i < size; ++i) to.push_back(static_cast<unsigned>(value >> 8 * (size - 1 - i)) & 0xff);
}
[[nodiscard]] inline Bytes words(std::initializer_list<std::uint32_t> values) {
    Bytes all;
    for (const std::uint32_t value : values) be(all, 4, value);
    return all;
}

class RdmaQpTest : public ::testing::Test {
protected:
    RdmaQpTest() {
        make_queue_pair = [](const roce::QueuePairSpec& spec) -> std::unique_ptr<roce::QueuePair> {
            return std::make_unique<Recorder>(spec);
        };
        cq = ibv_create_cq(open.context, 100, nullptr, nullptr, 0);
        mr = ibv_reg_mr(open.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    }
    ~RdmaQpTest() override {
        for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
        EXPECT_EQ(ibv_destroy_cq(cq), 0);
        make_queue_pair = &roce::QueuePair::create;
    }

    [[nodiscard]] ibv_qp_init_attr_ex attr_of(ibv_qp_type type) const {
        ibv_qp_init_attr_ex attr{};
        attr.qp_type = type;
        attr.send_cq = attr.recv_cq = cq;
        attr.cap = {16, 16, 2, 2, 64};
        attr.pd = open.pd;
        attr.comp_mask = IBV_QP_INIT_ATTR_PD;
        return attr;
    }
    ibv_qp* create(ibv_qp_init_attr_ex& attr, mlx5dv_qp_init_attr* mlx5 = nullptr) {
        ibv_qp* const qp =
            mlx5 ? mlx5dv_create_qp(open.context, &attr, mlx5) : ibv_create_qp_ex(open.context, &attr);
        if (qp) qps.push_back(qp);
        return qp;
    }
    ibv_qp* create(ibv_qp_type type, std::uint64_t operations = 0) {
        ibv_qp_init_attr_ex attr = attr_of(type);
        attr.send_ops_flags = operations;
        if (operations) attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        return create(attr);
    }
    int refusal(ibv_qp_init_attr_ex attr, mlx5dv_qp_init_attr* mlx5 = nullptr) {
        errno = 0;
        return create(attr, mlx5) ? 0 : errno;
    }
    static void to(ibv_qp* qp, std::initializer_list<ibv_qp_state> states) {
        ibv_qp_attr attr{};
        for (const ibv_qp_state state : states) {
            attr.qp_state = state;
            ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
        }
    }
    static void ready(ibv_qp* qp) { to(qp, {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}); }
    [[nodiscard]] static Recorder& device(ibv_qp* qp) { return *Recorder::all.at(qp->qp_num); }
    [[nodiscard]] static Bytes sent(ibv_qp* qp, std::size_t block, std::size_t size) {
        const auto* const at = reinterpret_cast<const std::uint8_t*>(device(qp).spec().send.base) + block * 64;
        return {at, at + size};
    }
    [[nodiscard]] static Bytes received(ibv_qp* qp, std::size_t entry, std::size_t size) {
        const auto& ring = device(qp).spec().receive;
        const auto* const at = reinterpret_cast<const std::uint8_t*>(ring.base) + entry * ring.stride;
        return {at, at + size};
    }
    [[nodiscard]] ibv_send_wr request(ibv_wr_opcode opcode, int sges = 1) {
        ibv_send_wr wr{};
        wr.wr_id = 42;
        wr.sg_list = pieces;
        wr.num_sge = sges;
        wr.opcode = opcode;
        return wr;
    }
    int post(ibv_qp* qp, ibv_send_wr& wr) {
        bad = nullptr;
        return ibv_post_send(qp, &wr, &bad);
    }

    OpenDevice open;
    ibv_cq* cq;
    std::vector<ibv_qp*> qps;
    alignas(4096) std::array<std::byte, 4096> memory{};
    ibv_mr* mr;
    ibv_sge pieces[3]{{0x1000, 100, 7}, {0x2000, 0, 8}, {0x3000, 200, 9}};
    ibv_send_wr* bad = nullptr;
    ibv_recv_wr* bad_receive = nullptr;
};

}  // namespace ovsdr::soft::test
