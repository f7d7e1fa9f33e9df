// Work queues: receive queues that TIRs lead to.
#include <algorithm>
#include <bit>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/limits.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

[[nodiscard]] int check(const ibv_wq_init_attr& attr) {
    if (attr.wq_type != IBV_WQT_RQ || !attr.pd || !attr.cq) return EINVAL;
    if (attr.comp_mask & ~static_cast<unsigned>(IBV_WQ_INIT_ATTR_FLAGS)) return EINVAL;
    constexpr std::uint32_t flags = IBV_WQ_FLAGS_CVLAN_STRIPPING | IBV_WQ_FLAGS_SCATTER_FCS;
    if ((attr.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) && (attr.create_flags & ~flags)) return EOPNOTSUPP;
    const bool fits = attr.max_wr > 0 && attr.max_wr <= static_cast<unsigned>(limits::work_requests) &&
                      attr.max_sge <= static_cast<unsigned>(limits::receive_sges);
    return fits ? 0 : EINVAL;
}

int post_wq_recv(ibv_wq* wq, ibv_recv_wr* first, ibv_recv_wr** bad) {
    if (const int error = injected_fault("ibv_post_wq_recv")) {
        *bad = first;
        return failed(error);
    }
    const int error = Wq::of(wq).poster.post(first, bad);
    Wq::of(wq).queue->rung();
    return error;
}

[[nodiscard]] ibv_wq_state state_of(const Wq& wq) {
    switch (wq.queue->state()) {
        case ReceiveQueue::State::open:
            return IBV_WQS_RDY;
        case ReceiveQueue::State::failed:
            return IBV_WQS_ERR;
        default:
            return IBV_WQS_RESET;
    }
}

}  // namespace

ibv_wq* create_wq_op(ibv_context* context, ibv_wq_init_attr* attr) {
    int error = injected_fault("ibv_create_wq");
    if (!error) error = check(*attr);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_wq* {
        DeviceState& state = Context::of(context).state;
        auto wq = std::make_unique<Wq>();
        const std::uint32_t flags = attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS ? attr->create_flags : 0;
        attr->max_wr = std::bit_ceil(attr->max_wr);
        attr->max_sge = std::bit_ceil(std::max(attr->max_sge, 1u));
        wq->context = context;
        wq->pd = attr->pd;
        wq->cq = attr->cq;
        wq->wq_type = attr->wq_type;
        wq->state = IBV_WQS_RESET;
        wq->post_recv = post_wq_recv;
        wq->wq_num = wq->handle = state.queue_numbers().take();
        const auto stride = static_cast<std::uint32_t>(attr->max_sge * sizeof(mlx5_wqe_data_seg));
        wq->ring = allocate_queue(Pd::of(attr->pd).allocator(MLX5DV_RES_TYPE_RWQ), std::size_t{attr->max_wr} * stride);
        wq->poster.open({.length = attr->max_wr, .stride = stride, .max_sges = attr->max_sge}, wq->ring.get(),
                        &wq->doorbells[MLX5_RCV_DBR]);
        wq->queue = std::make_unique<ReceiveQueue>(
            ReceiveQueueSpec{.memory = state.memory(),
                             .completions = *Cq::of(attr->cq).queue,
                             .domain = Pd::of(attr->pd).domain(),
                             .length = 0,
                             .max_sges = 0,
                             .flags = {.strip_cvlan = (flags & IBV_WQ_FLAGS_CVLAN_STRIPPING) != 0,
                                       .scatter_fcs = (flags & IBV_WQ_FLAGS_SCATTER_FCS) != 0},
                             .number = wq->wq_num,
                             .ring = wq->poster.ring()});
        state.add_receive_queue(wq->wq_num, *wq->queue);
        Context::of(context).add(*wq);
        Pd::of(attr->pd).users.fetch_add(1);
        return wq.release();
    });
}

int modify_wq_op(ibv_wq* base, ibv_wq_attr* attr) {
    if (const int error = injected_fault("ibv_modify_wq")) return failed(error);
    Wq& wq = Wq::of(base);
    constexpr std::uint32_t known = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
    const bool reflags = attr->attr_mask & IBV_WQ_ATTR_FLAGS;
    constexpr std::uint32_t flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
    if (reflags && (attr->flags_mask & ~flags)) return failed(EOPNOTSUPP);
    if (attr->attr_mask & ~known) return failed(EINVAL);
    const ibv_wq_state now = state_of(wq);
    if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) && attr->curr_wq_state != now) return failed(EINVAL);
    const ibv_wq_state to = attr->attr_mask & IBV_WQ_ATTR_STATE ? attr->wq_state : now;
    switch (to) {
        case IBV_WQS_RESET:
            wq.reset();
            break;
        case IBV_WQS_RDY:
            if (now == IBV_WQS_ERR) return failed(EINVAL);
            wq.queue->open();
            break;
        case IBV_WQS_ERR:
            wq.queue->fail();
            break;
        default:
            return failed(EINVAL);
    }
    if (reflags && (attr->flags_mask & flags)) wq.queue->strip_cvlan(attr->flags & flags);
    base->state = state_of(wq);
    return 0;
}

int destroy_wq_op(ibv_wq* base) {
    if (const int error = injected_fault("ibv_destroy_wq")) return failed(error);
    Wq& wq = Wq::of(base);
    Context& context = Context::of(base->context);
    const std::uint32_t number = base->wq_num;
    if (!context.state.remove_receive_queue(number)) return failed(EBUSY);
    context.remove(wq);
    Pd::of(base->pd).users.fetch_sub(1);
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    delete &wq;
    context.state.queue_numbers().give_back(number);
    return 0;
}

}  // namespace ovsdr::soft
