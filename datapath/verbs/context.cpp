// Contexts: open devices, their operation tables, asynchronous events.
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

int post_srq_recv_op(ibv_srq*, ibv_recv_wr* first, ibv_recv_wr** bad) {
    *bad = first;
    return failed(EOPNOTSUPP);
}

constexpr int completion_vectors = 4;

}  // namespace

Context::Context(ibv_device* device, DeviceState& device_state) : verbs_context{}, state(device_state) {
    sz = sizeof(verbs_context);
    query_device_ex = query_device_op;
    query_port = query_port_op;
    create_cq_ex = create_cq_ex_op;
    create_qp_ex = create_qp_ex_op;
    create_wq = create_wq_op;
    modify_wq = modify_wq_op;
    destroy_wq = destroy_wq_op;
    context.device = device;
    context.ops.poll_cq = poll_cq_op;
    context.ops.req_notify_cq = req_notify_cq_op;
    context.ops.post_send = post_send_op;
    context.ops.post_recv = post_recv_op;
    context.ops.post_srq_recv = post_srq_recv_op;
    context.cmd_fd = -1;
    context.async_fd = events.fd();
    context.num_comp_vectors = completion_vectors;
    pthread_mutex_init(&context.mutex, nullptr);
    context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    listener_ =
        state.device().add_listener([this](VportId vport, VportChange change) { vport_changed(vport, change); });
}

Context::~Context() {
    state.device().remove_listener(listener_);
    pthread_mutex_destroy(&context.mutex);
}

void Context::vport_changed(VportId vport, VportChange change) {
    ibv_async_event event{};
    event.element.port_num = static_cast<int>(state.port_of(vport));
    VportInfo info{};
    const bool there = state.device().query(vport, info) == 0;
    switch (change) {
        case VportChange::link:
        case VportChange::added:
        case VportChange::removed:
            event.event_type = there && info.admin_up && info.link_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
            break;
        case VportChange::mac:
            event.event_type = IBV_EVENT_GID_CHANGE;
            break;
        case VportChange::mtu:
            return;
    }
    events.push(event);
}

void Context::add(Qp& qp) {
    std::lock_guard guard(mutex_);
    qps_.insert(&qp);
}

void Context::remove(Qp& qp) {
    std::lock_guard guard(mutex_);
    qps_.erase(&qp);
}

void Context::add(Wq& wq) {
    std::lock_guard guard(mutex_);
    wqs_.insert(&wq);
}

void Context::remove(Wq& wq) {
    std::lock_guard guard(mutex_);
    wqs_.erase(&wq);
}

void Context::stop() {
    std::lock_guard guard(mutex_);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    for (Qp* qp : qps_) {
        if (qp->raw->modify(attr, IBV_QP_STATE, 0) == 0) qp->qp_base.state = IBV_QPS_RESET;
    }
    for (Wq* wq : wqs_) wq->queue->reset();
}

ibv_context* open_context(ibv_device* device, DeviceState& state) noexcept {
    return created([&] { return &(new Context(device, state))->context; });
}

}  // namespace ovsdr::soft

using namespace ovsdr::soft;

extern "C" {

int ibv_close_device(ibv_context* context) {
    if (const int error = injected_fault("ibv_close_device")) return failed(error);
    Context& closed = Context::of(context);
    closed.stop();
    closed.let_go();
    return 0;
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    const int error = Context::of(context).events.pop(*event, [](const ibv_async_event& taken) {
        if (taken.event_type == IBV_EVENT_CQ_ERR) Cq::of(taken.element.cq).async_events.fetch_add(1);
    });
    if (error == 0) return 0;
    errno = error;
    return -1;
}

void ibv_ack_async_event(ibv_async_event* event) {
    // Events of ports have nothing to wait for; those of QPs do not occur for raw packet QPs.
    if (event->event_type != IBV_EVENT_CQ_ERR) return;
    ibv_cq* const cq = event->element.cq;
    pthread_mutex_lock(&cq->mutex);
    ++cq->async_events_completed;
    pthread_cond_signal(&cq->cond);
    pthread_mutex_unlock(&cq->mutex);
}

}  // extern "C"
