// What the Direct Rules front may know of contexts, QPs and DEVX objects.
#include "datapath/rdma/devx/devx_object.hpp"
#include "datapath/rdma/dr_seam.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

Device& device_of(ibv_context* context) noexcept {
    return Context::of(context).state.device();
}

Sink receive_sink_of(ibv_qp* qp) noexcept {
    if (qp->qp_type != IBV_QPT_RAW_PACKET) return Sink{};
    return Qp::of(qp).rss ? Qp::of(qp).rss->sink() : Qp::of(qp).raw->receiver().sink();
}

void hold(ibv_qp* qp) noexcept {
    if (Qp::of(qp).rss) return Qp::of(qp).rss->hold();
    Qp::of(qp).raw->receiver().hold();
}
void release(ibv_qp* qp) noexcept {
    if (Qp::of(qp).rss) return Qp::of(qp).rss->release();
    Qp::of(qp).raw->receiver().release();
}

std::shared_ptr<CounterBulk> counter_bulk_of(mlx5dv_devx_obj* object) noexcept {
    return object->counters;
}

std::shared_ptr<AsoBulk> aso_bulk_of(mlx5dv_devx_obj* object) noexcept {
    return object->aso;
}

Sink receive_sink_of(mlx5dv_devx_obj* tir) noexcept {
    return tir->resource ? tir->resource->sink() : Sink{};
}
void hold(mlx5dv_devx_obj* object) noexcept {
    object->holders.fetch_add(1, std::memory_order_relaxed);
}
void release(mlx5dv_devx_obj* object) noexcept {
    object->holders.fetch_sub(1, std::memory_order_release);
}

}  // namespace ovsdr::soft
