// Shared receive queues: basic ones, XRC's, and those that match tags.
#include "datapath/verbs/qp/srq.hpp"

#include "datapath/control/fault.hpp"
#include "datapath/rdma/roce/tag_matching.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/xrc.hpp"
#include "datapath/verbs/wqe/qp_layout.hpp"

namespace ovsdr::soft {

namespace {

/// What the kernel and libmlx5 want of a queue that matches tags: its own completion queue, an extended one, from which
/// a tag can be read.
[[nodiscard]] int check_tags(const ibv_srq_init_attr_ex& attr) {
    constexpr std::uint32_t needed = IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    if ((attr.comp_mask & needed) != needed || !attr.cq || !Cq::of(attr.cq).start_poll) return EINVAL;
    const ibv_tm_cap& caps = attr.tm_cap;
    const bool fits = caps.max_num_tags != 0 && caps.max_num_tags <= roce::TagMatcher::most_tags &&
                      caps.max_ops <= roce::TagMatcher::most_ops;
    return fits ? 0 : EINVAL;
}

[[nodiscard]] int check(const ibv_srq_init_attr_ex& attr) {
    constexpr std::uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD |
                                    IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
    if (attr.comp_mask & ~known) return EINVAL;
    if (!(attr.comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr.pd) return EINVAL;
    const ibv_srq_type type = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr.srq_type : IBV_SRQT_BASIC;
    constexpr std::uint32_t xrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    switch (type) {
        case IBV_SRQT_BASIC:
            return 0;
        case IBV_SRQT_XRC:
            return (attr.comp_mask & xrc) == xrc && attr.xrcd && attr.cq ? 0 : EINVAL;
        case IBV_SRQT_TM:
            return check_tags(attr);
        default:
            return EINVAL;
    }
}

void report_limit(Srq& srq) {
    ibv_async_event event{};
    event.element.srq = &srq;
    event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
    Context::of(srq.context).events.push(event);
}

[[nodiscard]] ibv_srq* create(ibv_context* context, ibv_srq_init_attr_ex& attr, const char* call) noexcept {
    int error = injected_fault(call);
    if (!error) error = check(attr);
    if (!error) error = lay_out(attr.attr);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_srq* {
        DeviceState& state = Context::of(context).state;
        auto srq = std::make_unique<Srq>();
        Srq* const self = srq.get();
        srq->type = attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr.srq_type : IBV_SRQT_BASIC;
        const bool is_xrc = srq->type == IBV_SRQT_XRC, matches = srq->type == IBV_SRQT_TM;
        if (is_xrc) srq->xrcd = &Xrcd::of(attr.xrcd);
        if (is_xrc || matches) srq->cq = attr.cq;
        const std::uint32_t number = state.queue_numbers().take();
        srq->queue = std::make_unique<roce::SharedReceiveQueue>(roce::SharedReceiveQueueSpec{
            .state = state,
            .domain = Pd::of(attr.pd).domain(),
            .number = number,
            .max_requests = attr.attr.max_wr,
            .max_sges = attr.attr.max_sge,
            .completions = srq->cq ? Cq::of(srq->cq).queue.get() : nullptr,
            .xrc_domain = srq->xrcd ? srq->xrcd->domain() : nullptr,
            .max_tags = matches ? attr.tm_cap.max_num_tags : 0,
            .max_ops = matches ? attr.tm_cap.max_ops : 0,
            .limit_reached = [self] { report_limit(*self); }});
        srq->context = context;
        srq->srq_context = attr.srq_context;
        srq->pd = attr.pd;
        srq->handle = number;
        srq->events_completed = 0;
        pthread_mutex_init(&srq->mutex, nullptr);
        pthread_cond_init(&srq->cond, nullptr);
        if (srq->cq) Cq::of(srq->cq).queue->hold();
        if (srq->xrcd) srq->xrcd->users.fetch_add(1);
        Pd::of(attr.pd).users.fetch_add(1);
        return srq.release();
    });
}

}  // namespace

ibv_srq* create_srq_ex_op(ibv_context* context, ibv_srq_init_attr_ex* attr) {
    return create(context, *attr, "ibv_create_srq_ex");
}

/// Of any queue, as libmlx5 has it: those of DC targets need theirs too.
int get_srq_num_op(ibv_srq* srq, std::uint32_t* number) {
    *number = Srq::of(srq).queue->spec().number;
    return 0;
}

int post_srq_ops_op(ibv_srq* srq, ibv_ops_wr* first, ibv_ops_wr** bad) {
    int error = injected_fault("ibv_post_srq_ops");
    if (!error && Srq::of(srq).type != IBV_SRQT_TM) error = EINVAL;
    if (error) {
        *bad = first;
        return failed(error);
    }
    error = Srq::of(srq).queue->tags()->post(first, bad);
    return error ? failed(error) : 0;
}

int post_srq_recv_op(ibv_srq* srq, ibv_recv_wr* first, ibv_recv_wr** bad) {
    if (const int error = injected_fault("ibv_post_srq_recv")) {
        *bad = first;
        return failed(error);
    }
    const int error = Srq::of(srq).queue->post(first, bad);
    return error ? failed(error) : 0;
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
    ibv_srq_init_attr_ex full{};
    full.srq_context = attr->srq_context;
    full.attr = attr->attr;
    full.comp_mask = IBV_SRQ_INIT_ATTR_PD;
    full.pd = pd;
    ibv_srq* const srq = create(pd->context, full, "ibv_create_srq");
    if (srq) attr->attr = full.attr;
    return srq;
}

int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
    if (const int error = injected_fault("ibv_modify_srq")) return failed(error);
    const int error = Srq::of(srq).queue->modify(*attr, mask);
    return error ? failed(error) : 0;
}

int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
    if (const int error = injected_fault("ibv_query_srq")) return failed(error);
    Srq::of(srq).queue->query(*attr);
    return 0;
}

int ibv_destroy_srq(ibv_srq* base) {
    if (const int error = injected_fault("ibv_destroy_srq")) return failed(error);
    Srq& srq = Srq::of(base);
    if (srq.queue->held()) return failed(EBUSY);
    Context& context = Context::of(base->context);
    const std::uint32_t number = srq.queue->spec().number;
    srq.queue.reset();
    forget_events(context, srq);
    if (srq.cq) Cq::of(srq.cq).queue->release();
    if (srq.xrcd) srq.xrcd->users.fetch_sub(1);
    Pd::of(base->pd).users.fetch_sub(1);
    context.state.queue_numbers().give_back(number);
    pthread_mutex_destroy(&base->mutex);
    pthread_cond_destroy(&base->cond);
    delete &srq;
    return 0;
}

}  // extern "C"
