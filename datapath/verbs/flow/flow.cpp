// Verbs flow steering: ibv_create_flow().
//
// The soft NIC's IB ports are a switchdev NIC's representors, and flows are the kernel's own there: each matches on the
// vport of its port besides what it asks for, and none is for what the function sends (EINVAL).
// Source: ibv_create_flow(3); mlx5_ib's fs.c, whose errors these are.
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/steering/vport_metadata.hpp"
#include "datapath/verbs/dr/dr_handle.hpp"
#include "datapath/verbs/flow/flow_objects.hpp"
#include "datapath/verbs/flow/flow_spec.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

constexpr unsigned last_priority = 15;
constexpr unsigned reg_c_0_offset = 192 + 44;  ///< bytes, in the match parameters

[[nodiscard]] int check(const ibv_qp& qp, const ibv_flow_attr& attr, DeviceState& state) {
    constexpr std::uint32_t known = IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
    const bool goes_on = attr.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
    if (attr.comp_mask || attr.port == 0 || attr.port > state.ports()) return EINVAL;
    if (qp.qp_type != IBV_QPT_RAW_PACKET) return EINVAL;
    if (goes_on && (attr.type == IBV_FLOW_ATTR_ALL_DEFAULT || attr.type == IBV_FLOW_ATTR_MC_DEFAULT)) return EINVAL;
    if (attr.priority > last_priority) return ENOMEM;
    if ((attr.flags & ~known) || (attr.flags & IBV_FLOW_ATTR_FLAGS_EGRESS)) return EINVAL;
    return attr.type > IBV_FLOW_ATTR_SNIFFER ? EINVAL : 0;
}

/// Takes what the plan names besides bytes into the request, and into the flow that gives it back.
[[nodiscard]] int take_parts(const FlowPlan& plan, VerbsFlow& flow, FlowRequest& request) {
    if (plan.drop) request.fate = FlowRequest::Fate::drop;
    request.tag = plan.tag;
    for (ibv_flow_action* named : plan.actions) {
        VerbsFlowAction& action = VerbsFlowAction::of(named);
        action.flows.fetch_add(1);
        flow.actions.push_back(&action);
        request.rewrites.push_back(action.action);
    }
    if (plan.counters == nullptr) return 0;
    Counters& counters = Counters::of(plan.counters);
    if (const int error = bind_counters(counters)) return error;
    flow.counters = &counters;
    request.counters = counters.bulk;
    return 0;
}

class Creation {
public:
    Creation(ibv_qp& qp, const ibv_flow_attr& attr, VportId vport)
        : qp_(qp), attr_(attr), vport_(vport), tables_(Context::of(qp.context).state.flows()) {}

    [[nodiscard]] int run(VerbsFlow& flow) {
        FlowPlan plan;
        switch (attr_.type) {
            case IBV_FLOW_ATTR_NORMAL:
                if (const int error = plan_flow(attr_, plan)) return error;
                return normal(plan, flow);
            case IBV_FLOW_ATTR_SNIFFER:
                return sniffer(flow);
            default:
                // Specifications say nothing here, but a tag is refused.
                if (const int error = plan_flow(attr_, plan)) return error;
                return plan.tag ? EINVAL : leftovers(flow);
        }
    }

private:
    [[nodiscard]] int normal(FlowPlan& plan, VerbsFlow& flow) {
        FlowRequest request;
        request.goes_on = attr_.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
        request.rank = plan.multicast_only && !request.goes_on ? rank::multicast
                                                               : rank::of_priority(attr_.priority, request.goes_on);
        if (const int error = take_parts(plan, flow, request)) return error;
        if (plan.drop) {
            request.goes_on = false;
            return add(plan, request, flow);
        }
        request.receiver = receiver_of(&qp_);
        return add(plan, request, flow);
    }

    /// Unicast and multicast apart, as the kernel has them: flows of either kind share a rule of theirs.
    [[nodiscard]] int leftovers(VerbsFlow& flow) {
        for (const std::uint8_t bit : {1, 0}) {
            if (bit == 0 && attr_.type == IBV_FLOW_ATTR_MC_DEFAULT) break;
            FlowPlan plan;
            plan.mask[key_offset::dmac] = 1;
            plan.value[key_offset::dmac] = bit;
            FlowRequest request;
            request.rank = rank::leftovers;
            request.receiver = receiver_of(&qp_);
            if (const int error = add(plan, request, flow)) return error;
        }
        return 0;
    }

    /// Sees what comes up from the port's vport, and all that the function's queues send; nothing is kept from others.
    [[nodiscard]] int sniffer(VerbsFlow& flow) {
        FlowPlan received;
        FlowRequest request;
        request.rank = rank::sniffer;
        request.goes_on = true;
        request.receiver = receiver_of(&qp_);
        if (const int error = add(received, request, flow)) return error;
        FlowPlan sent;
        request.domain = DomainType::nic_tx;
        return install(sent, request, flow);
    }

    [[nodiscard]] int add(FlowPlan& plan, FlowRequest& request, VerbsFlow& flow) {
        store_be32(&plan.mask[reg_c_0_offset], vport_metadata_mask);
        store_be32(&plan.value[reg_c_0_offset], vport_metadata(vport_));
        return install(plan, request, flow);
    }

    [[nodiscard]] int install(const FlowPlan& plan, FlowRequest& request, VerbsFlow& flow) {
        request.criteria = plan.criteria();
        request.mask = plan.mask;
        request.value = plan.value;
        return tables_.create(request, flow.parts.emplace_back());
    }

    ibv_qp& qp_;
    const ibv_flow_attr& attr_;
    const VportId vport_;
    FlowTables& tables_;
};

}  // namespace

VerbsFlow::~VerbsFlow() {
    parts.clear();
    for (VerbsFlowAction* action : actions) action->flows.fetch_sub(1);
    if (counters) unbind_counters(*counters);
    if (matcher_users) matcher_users->fetch_sub(1);
}

ibv_flow* create_flow_op(ibv_qp* qp, ibv_flow_attr* attr) {
    DeviceState& state = Context::of(qp->context).state;
    int error = injected_fault("ibv_create_flow");
    if (!error) error = check(*qp, *attr, state);
    const auto vport = error ? std::nullopt : state.vport_of(attr->port);
    if (!error && !vport) error = EINVAL;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_flow* {
        auto flow = std::make_unique<VerbsFlow>();
        flow->context = qp->context;
        if (const int refused = Creation(*qp, *attr, *vport).run(*flow)) {
            errno = refused;
            return nullptr;
        }
        return flow.release();
    });
}

int destroy_flow_op(ibv_flow* flow) {
    if (const int error = injected_fault("ibv_destroy_flow")) return failed(error);
    delete &VerbsFlow::of(flow);
    return 0;
}

/// IPsec offload of flows was ConnectX's FPGA line's; no profile of ours has it.
ibv_flow_action* create_flow_action_esp_op(ibv_context*, ibv_flow_action_esp_attr*) {
    const int error = injected_fault("ibv_create_flow_action_esp");
    errno = error ? error : EOPNOTSUPP;
    return nullptr;
}

int modify_flow_action_esp_op(ibv_flow_action*, ibv_flow_action_esp_attr*) {
    return failed(EOPNOTSUPP);
}

int destroy_flow_action_op(ibv_flow_action* base) {
    if (const int error = injected_fault("ibv_destroy_flow_action")) return failed(error);
    VerbsFlowAction& action = VerbsFlowAction::of(base);
    if (action.flows.load(std::memory_order_acquire)) return failed(EBUSY);
    Context& context = Context::of(base->context);
    delete &action;
    context.let_go();
    return 0;
}

}  // namespace ovsdr::soft
