// Shared receive queues, as applications hold them. The queue itself is roce::SharedReceiveQueue.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "datapath/rdma/roce/shared_receive_queue.hpp"

namespace ovsdr::soft {

struct Xrcd;

struct Srq : ibv_srq {
    [[nodiscard]] static Srq& of(ibv_srq* srq) noexcept { return *static_cast<Srq*>(srq); }
    ibv_srq_type type = IBV_SRQT_BASIC;
    std::unique_ptr<roce::SharedReceiveQueue> queue;
    Xrcd* xrcd = nullptr;
    ibv_cq* cq = nullptr;                        ///< XRC, tag matching
    std::atomic<std::uint32_t> async_events{0};  ///< taken by ibv_get_async_event()
};

ibv_srq* create_srq_ex_op(ibv_context* context, ibv_srq_init_attr_ex* attr);
int get_srq_num_op(ibv_srq* srq, std::uint32_t* number);
int post_srq_ops_op(ibv_srq* srq, ibv_ops_wr* first, ibv_ops_wr** bad);
int post_srq_recv_op(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad);

}  // namespace ovsdr::soft
