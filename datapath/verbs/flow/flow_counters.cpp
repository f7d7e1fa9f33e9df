// Counters of flows: attached to points of view first, bound by the first flow, read while bound.
// Source: ibv_create_counters(3), ibv_attach_counters_point_flow(3), ibv_read_counters(3); libmlx5 and mlx5_ib.
#include <algorithm>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/flow/flow_objects.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

int bind_counters(Counters& counters) {
    const std::lock_guard lock(counters.mutex);
    if (counters.points.empty()) return EINVAL;
    if (counters.bulk == nullptr) {
        counters.bulk = std::make_shared<CounterBulk>(1, Context::of(counters.context).state.device().workers());
    }
    ++counters.flows;
    return 0;
}

void unbind_counters(Counters& counters) noexcept {
    const std::lock_guard lock(counters.mutex);
    --counters.flows;
}

ibv_counters* create_counters_op(ibv_context* context, ibv_counters_init_attr* attr) {
    int error = injected_fault("ibv_create_counters");
    if (!error && attr->comp_mask) error = EOPNOTSUPP;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_counters* {
        auto counters = std::make_unique<Counters>();
        counters->context = context;
        Context::of(context).hold();
        return counters.release();
    });
}

int destroy_counters_op(ibv_counters* base) {
    if (const int error = injected_fault("ibv_destroy_counters")) return failed(error);
    Counters& counters = Counters::of(base);
    {
        const std::lock_guard lock(counters.mutex);
        if (counters.flows) return failed(EBUSY);
    }
    Context& context = Context::of(base->context);
    delete &counters;
    context.let_go();
    return 0;
}

/// Flows take counters when they are created: there is no attaching to one that exists.
int attach_counters_point_flow_op(ibv_counters* base, ibv_counter_attach_attr* attr, ibv_flow* flow) {
    if (const int error = injected_fault("ibv_attach_counters_point_flow")) return failed(error);
    if (flow) return failed(ENOTSUP);
    if (attr->comp_mask) return failed(EOPNOTSUPP);
    if (attr->counter_desc != IBV_COUNTER_PACKETS && attr->counter_desc != IBV_COUNTER_BYTES) return failed(ENOTSUP);
    Counters& counters = Counters::of(base);
    const std::lock_guard lock(counters.mutex);
    if (counters.flows) return failed(EBUSY);
    try {
        counters.points.push_back({attr->counter_desc, attr->index});
    } catch (const std::bad_alloc&) {
        return failed(ENOMEM);
    }
    return 0;
}

/// EINVAL while no flow has bound the counters, and where an index does not fit into `values`.
int read_counters_op(ibv_counters* base, std::uint64_t* values, std::uint32_t length, std::uint32_t flags) {
    if (const int error = injected_fault("ibv_read_counters")) return failed(error);
    if (flags & ~static_cast<std::uint32_t>(IBV_READ_COUNTERS_ATTR_PREFER_CACHED)) return failed(EINVAL);
    Counters& counters = Counters::of(base);
    const std::lock_guard lock(counters.mutex);
    const bool fits = std::all_of(counters.points.begin(), counters.points.end(),
                                  [length](const Counters::Point& point) { return point.index < length; });
    if (!counters.flows || !fits) return failed(EINVAL);
    const CounterBulk::Value now = counters.bulk->read(0);
    std::fill_n(values, length, 0);
    for (const Counters::Point& point : counters.points) {
        values[point.index] += point.description == IBV_COUNTER_PACKETS ? now.packets : now.bytes;
    }
    return 0;
}

}  // namespace ovsdr::soft
