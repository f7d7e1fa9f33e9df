// Transmit scheduling: nodes and leaves of the device's scheduler, and queue pairs under them.
// Source: mlx5dv_sched_node_create(3), mlx5dv_modify_qp_sched_elem(3); libmlx5, whose errors these are.
#include "datapath/control/fault.hpp"
#include "datapath/rdma/pacing/scheduler.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"

namespace {

/// Holds the context of an element.
struct Scheduled {
    ovsdr::soft::Context& context;
    std::unique_ptr<ovsdr::soft::Scheduler::Element> element;
};

}  // namespace

struct mlx5dv_sched_node : Scheduled {};
struct mlx5dv_sched_leaf : Scheduled {};

using namespace ovsdr::soft;

namespace {

using Kind = Scheduler::Kind;

[[nodiscard]] Scheduler& scheduler_of(const Scheduled& scheduled) {
    return scheduled.context.state.scheduler();
}

[[nodiscard]] int check(const mlx5dv_sched_attr* attr, Kind kind) {
    constexpr std::uint32_t known = MLX5DV_SCHED_ELEM_ATTR_FLAGS_BW_SHARE | MLX5DV_SCHED_ELEM_ATTR_FLAGS_MAX_AVG_BW;
    if (!attr || attr->comp_mask || (attr->flags & ~known)) return EINVAL;
    const bool is_root = !attr->parent;
    return is_root && (kind == Kind::leaf || attr->flags) ? EINVAL : 0;
}

[[nodiscard]] Scheduler::Attributes attributes_of(const mlx5dv_sched_attr& attr) {
    Scheduler::Attributes attributes;
    if (attr.flags & MLX5DV_SCHED_ELEM_ATTR_FLAGS_BW_SHARE) attributes.share = attr.bw_share;
    if (attr.flags & MLX5DV_SCHED_ELEM_ATTR_FLAGS_MAX_AVG_BW) attributes.megabits = attr.max_avg_bw;
    return attributes;
}

template <typename Handle>
[[nodiscard]] Handle* create(const char* call, ibv_context* base, const mlx5dv_sched_attr* attr, Kind kind) noexcept {
    return created([&]() -> Handle* {
        Context& context = Context::of(base);
        int error = injected_fault(call);
        if (!error) error = check(attr, kind);
        // An element of another device is none of ours.
        if (!error && attr->parent && &attr->parent->context.state != &context.state) error = EINVAL;
        auto handle = std::unique_ptr<Handle>(new Handle{{context, nullptr}});
        Scheduler::Element* const parent = !error && attr->parent ? attr->parent->element.get() : nullptr;
        if (!error) error = context.state.scheduler().add(parent, kind, attributes_of(*attr), handle->element);
        if (error) {
            errno = error;
            return nullptr;
        }
        context.hold();
        return handle.release();
    });
}

[[nodiscard]] int modify(const char* call, const Scheduled* scheduled, const mlx5dv_sched_attr* attr, Kind kind) {
    int error = injected_fault(call);
    if (!error) error = check(attr, kind);
    if (!error) error = scheduler_of(*scheduled).modify(*scheduled->element, attributes_of(*attr));
    return error ? failed(error) : 0;
}

template <typename Handle>
[[nodiscard]] int destroy(const char* call, Handle* handle) {
    int error = injected_fault(call);
    if (!error) error = scheduler_of(*handle).remove(*handle->element);
    if (error) return failed(error);
    Context& context = handle->context;
    delete handle;
    context.let_go();
    return 0;
}

[[nodiscard]] Scheduler::Element* element_of(const mlx5dv_sched_leaf* leaf) {
    return leaf ? leaf->element.get() : nullptr;
}

[[nodiscard]] int attach(Qp& qp, const mlx5dv_sched_leaf* requests, const mlx5dv_sched_leaf* answers) {
    const ibv_qp& base = qp.qp_base;
    DeviceState& state = Context::of(qp.qp_base.context).state;
    const bool connected = base.qp_type == IBV_QPT_RC;
    if (!connected && base.qp_type != IBV_QPT_UC && base.qp_type != IBV_QPT_UD && base.qp_type != IBV_QPT_RAW_PACKET) {
        return EOPNOTSUPP;
    }
    if (answers && !connected) return EINVAL;
    for (const mlx5dv_sched_leaf* leaf : {requests, answers}) {
        if (leaf && &leaf->context.state != &state) return EINVAL;
    }
    if (qp.rss) return EOPNOTSUPP;  // It is in no state.
    if (qp.raw) return qp.raw->schedule(state.scheduler(), element_of(requests));
    if (base.state != IBV_QPS_INIT && base.state != IBV_QPS_RTS) return EOPNOTSUPP;
    return qp.rdma->device->schedule(element_of(requests), element_of(answers));
}

}  // namespace

extern "C" {

mlx5dv_sched_node* mlx5dv_sched_node_create(ibv_context* context, const mlx5dv_sched_attr* attr) {
    return create<mlx5dv_sched_node>("mlx5dv_sched_node_create", context, attr, Kind::node);
}

mlx5dv_sched_leaf* mlx5dv_sched_leaf_create(ibv_context* context, const mlx5dv_sched_attr* attr) {
    return create<mlx5dv_sched_leaf>("mlx5dv_sched_leaf_create", context, attr, Kind::leaf);
}

int mlx5dv_sched_node_modify(mlx5dv_sched_node* node, const mlx5dv_sched_attr* attr) {
    return modify("mlx5dv_sched_node_modify", node, attr, Kind::node);
}

int mlx5dv_sched_leaf_modify(mlx5dv_sched_leaf* leaf, const mlx5dv_sched_attr* attr) {
    return modify("mlx5dv_sched_leaf_modify", leaf, attr, Kind::leaf);
}

int mlx5dv_sched_node_destroy(mlx5dv_sched_node* node) {
    return destroy("mlx5dv_sched_node_destroy", node);
}

int mlx5dv_sched_leaf_destroy(mlx5dv_sched_leaf* leaf) {
    return destroy("mlx5dv_sched_leaf_destroy", leaf);
}

int mlx5dv_modify_qp_sched_elem(ibv_qp* qp, const mlx5dv_sched_leaf* requests, const mlx5dv_sched_leaf* answers) {
    int error = injected_fault("mlx5dv_modify_qp_sched_elem");
    try {
        if (!error) error = attach(Qp::of(qp), requests, answers);
    } catch (const std::bad_alloc&) {
        error = ENOMEM;
    }
    return error ? failed(error) : 0;
}

}  // extern "C"
