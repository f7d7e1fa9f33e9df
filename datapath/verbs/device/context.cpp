// Contexts: open devices and their operation tables.
#include <unistd.h>

#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/completion/devx_doorbells.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"
#include "datapath/verbs/qp/srq.hpp"
#include "datapath/verbs/qp/xrc.hpp"

namespace ovsdr::soft {

namespace {

constexpr int completion_vectors = 4;

}  // namespace

Context::Context(ibv_device* device, DeviceState& device_state) : verbs_context{}, state(device_state) {
    sz = sizeof(verbs_context);
    query_device_ex = query_device_op;
    query_port = query_port_op;
    query_rt_values = query_rt_values_op;
    create_cq_ex = create_cq_ex_op;
    create_qp_ex = create_qp_ex_op;
    open_qp = open_qp_op;
    modify_qp_rate_limit = modify_qp_rate_limit_op;
    create_srq_ex = create_srq_ex_op;
    get_srq_num = get_srq_num_op;
    post_srq_ops = post_srq_ops_op;
    open_xrcd = open_xrcd_op;
    close_xrcd = close_xrcd_op;
    create_wq = create_wq_op;
    modify_wq = modify_wq_op;
    destroy_wq = destroy_wq_op;
    alloc_td = alloc_td_op;
    dealloc_td = dealloc_td_op;
    alloc_parent_domain = alloc_parent_domain_op;
    alloc_dm = alloc_dm_op;
    free_dm = free_dm_op;
    reg_dm_mr = reg_dm_mr_op;
    alloc_null_mr = alloc_null_mr_op;
    advise_mr = advise_mr_op;
    context.ops.alloc_mw = alloc_mw_op;
    context.ops.dealloc_mw = dealloc_mw_op;
    context.ops.bind_mw = bind_mw_op;
    create_rwq_ind_table = create_rwq_ind_table_op;
    destroy_rwq_ind_table = destroy_rwq_ind_table_op;
    ibv_create_flow = create_flow_op;
    ibv_destroy_flow = destroy_flow_op;
    create_flow_action_esp = create_flow_action_esp_op;
    modify_flow_action_esp = modify_flow_action_esp_op;
    destroy_flow_action = destroy_flow_action_op;
    create_counters = create_counters_op;
    destroy_counters = destroy_counters_op;
    attach_counters_point_flow = attach_counters_point_flow_op;
    read_counters = read_counters_op;
    context.device = device;
    context.ops.poll_cq = poll_cq_op;
    context.ops.req_notify_cq = req_notify_cq_op;
    context.ops.post_send = post_send_op;
    context.ops.post_recv = post_recv_op;
    context.ops.post_srq_recv = post_srq_recv_op;
    context.cmd_fd = device_state.open_file();
    context.async_fd = events.fd();
    context.num_comp_vectors = completion_vectors;
    pthread_mutex_init(&context.mutex, nullptr);
    context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    listener_ =
        state.device().add_listener([this](VportId vport, VportChange change) { vport_changed(vport, change); });
}

Context::~Context() {
    state.device().remove_listener(listener_);
    close(context.cmd_fd);
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

void Context::keep(std::unique_ptr<Pd> pd) {
    std::lock_guard guard(mutex_);
    given_up_.push_back(std::move(pd));
}

devx::DoorbellPage& Context::doorbell_page() {
    std::lock_guard guard(mutex_);
    if (!doorbell_page_) doorbell_page_ = std::make_unique<devx::DoorbellPage>(state.doorbell_pages());
    return *doorbell_page_;
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
        if (qp->rdma && qp->rdma->is_dc(MLX5DV_DCTYPE_DCT)) {
            qp->rdma->device->stop();
            continue;
        }
        const int error = qp->rdma ? modify_rdma_qp(*qp, attr, IBV_QP_STATE) : qp->raw->modify(attr, IBV_QP_STATE, 0);
        if (!error) qp->qp_base.state = IBV_QPS_RESET;
    }
    for (Wq* wq : wqs_) wq->reset();
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

}  // extern "C"
