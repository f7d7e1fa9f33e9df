// The fixture of the DC transport's tests: an initiator on the left node, a target on the right one.
#pragma once

#include "datapath/rdma/roce/dc_target.hpp"
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {

inline constexpr std::uint64_t access_key = 0x1122334455667788;

struct DcTest : TwoNodes {
    /// A DCT with an SRQ of its own, in RTR.
    struct Target {
        Target(Node& node, std::uint64_t key = access_key)
            : srq({.state = node.state(), .domain = &domain, .number = 1, .max_requests = 64, .max_sges = 1}),
              queue(node,
                    {.type = IBV_QPT_DRIVER, .srq = &srq, .dc = DcSpec{.end = MLX5DV_DCTYPE_DCT, .access_key = key}}),
              buffers(1 << 18) {
            region = {reinterpret_cast<std::uint64_t>(buffers.data()), buffers.size(), buffers.data(),
                      IBV_ACCESS_LOCAL_WRITE, &domain};
            EXPECT_EQ(node.state().memory().add(region), 0);
            ibv_qp_attr attr = Queue::usual();
            attr.port_num = attr.ah_attr.port_num = 1;
            attr.ah_attr.is_global = 1;
            attr.ah_attr.grh.sgid_index = 1;
            EXPECT_EQ(queue.to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
            EXPECT_EQ(queue.to(IBV_QPS_RTR, attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER), 0);
        }
        ~Target() { queue.node.state().memory().remove(region.key); }
        void post(std::uint64_t wr_id) {
            ibv_sge sge{region.iova + wr_id * 4096, 4096, region.key};
            ibv_recv_wr work{wr_id, nullptr, &sge, 1}, *bad = nullptr;
            ASSERT_EQ(srq.post(&work, &bad), 0);
        }
        int domain = 0;
        SharedReceiveQueue srq;
        Queue queue;
        std::vector<std::byte> buffers;
        MemoryRegion region{};
    };
    /// A DCI in RTS.
    struct Initiator : Queue {
        explicit Initiator(Node& node, DcSpec dc = {.end = MLX5DV_DCTYPE_DCI}, ibv_qp_attr attr = usual())
            : Queue(node, {.type = IBV_QPT_DRIVER, .dc = dc}) {
            to_rts(attr);
        }
        void to_rts(ibv_qp_attr attr = usual()) {
            attr.port_num = 1;
            ASSERT_EQ(to(IBV_QPS_INIT, attr, IBV_QP_PKEY_INDEX | IBV_QP_PORT), 0);
            ASSERT_EQ(to(IBV_QPS_RTR, attr, IBV_QP_PATH_MTU), 0);
            ASSERT_EQ(to(IBV_QPS_RTS, attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                                IBV_QP_MAX_QP_RD_ATOMIC), 0);
        }
    };
    static DcSpec streams(std::uint8_t log_streams, std::uint8_t log_errored) {
        return {.end = MLX5DV_DCTYPE_DCI, .log_streams = log_streams, .log_errored = log_errored};
    }
    /// The address vector of a target as seen from the left node.
    mlx5_wqe_av vector_to(Queue& target, std::uint64_t key = access_key) {
        mlx5_wqe_av vector{};
        ibv_ah_attr attr{};
        attr.is_global = 1;
        attr.port_num = 1;
        attr.grh.sgid_index = 1;
        attr.grh.dgid = target.node.gid(1);
        EXPECT_EQ(resolve(left.state(), attr, vector), 0);
        vector.dqp_dct = htobe32(target.number() | MLX5_EXTENDED_UD_AV);
        vector.key.dc_key = htobe64(key);
        return vector;
    }
    /// The opcodes that cross the wire from now on, and the packets themselves.
    std::vector<std::uint8_t> opcodes;
    std::vector<Frame> packets;
    void watch() {
        wire = [this](const Frame& frame, bool) {
            Arrival arrival;
            if (read_frame(frame.data(), frame.size(), arrival)) {
                opcodes.push_back(arrival.bth.opcode);
                packets.push_back(frame);
            }
            return 1u;
        };
    }
    static std::vector<ibv_wc_status> statuses(const std::vector<Completion>& completions) {
        std::vector<ibv_wc_status> all;
        for (const Completion& completion : completions) all.push_back(completion.status);
        return all;
    }

    Initiator initiator{left};
    Target target{right};
    mlx5_wqe_av to_target = vector_to(target.queue);
};

}  // namespace ovsdr::soft::roce::test
