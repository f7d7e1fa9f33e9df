// mlx5's own verbs flow steering: matchers in the device's format, and flows of them.
//
// A matcher is a plain value, as in the kernel: the device hears of its mask with the first flow.
// Source: mlx5dv_create_flow_matcher(3), mlx5dv_create_flow(3), mlx5dv_create_flow_action_modify_header(3),
// mlx5dv_create_flow_action_packet_reformat(3); libmlx5 and mlx5_ib's fs.c, whose errors these are.
#include <algorithm>
#include <cstring>
#include <optional>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/dr/dr_handle.hpp"
#include "datapath/verbs/flow/flow_objects.hpp"
#include "datapath/verbs/objects.hpp"

/// The public name; opaque to applications.
struct mlx5dv_flow_matcher {
    ibv_context* context;
    ovsdr::soft::DomainType domain;
    std::uint16_t priority;
    std::uint8_t criteria;
    std::vector<std::uint8_t> mask;
    std::atomic<unsigned> users{0};
};

using namespace ovsdr::soft;

namespace {

constexpr unsigned last_priority = 15;
constexpr unsigned max_flow_actions = 2;

/// EOPNOTSUPP for the tables of RoCE traffic, which the soft NIC steers nothing in; EINVAL for no table at all.
[[nodiscard]] int domain_of(unsigned table, DomainType& domain) {
    switch (table) {
        case MLX5DV_FLOW_TABLE_TYPE_NIC_RX:
            domain = DomainType::nic_rx;
            return 0;
        case MLX5DV_FLOW_TABLE_TYPE_NIC_TX:
            domain = DomainType::nic_tx;
            return 0;
        case MLX5DV_FLOW_TABLE_TYPE_FDB:
            domain = DomainType::fdb;
            return 0;
        case MLX5DV_FLOW_TABLE_TYPE_RDMA_RX:
        case MLX5DV_FLOW_TABLE_TYPE_RDMA_TX:
            return EOPNOTSUPP;
        default:
            return EINVAL;
    }
}

[[nodiscard]] int choose_domain(const mlx5dv_flow_matcher_attr& attr, DomainType& domain) {
    const bool typed = attr.comp_mask & MLX5DV_FLOW_MATCHER_MASK_FT_TYPE;
    if (attr.comp_mask & ~std::uint64_t{MLX5DV_FLOW_MATCHER_MASK_FT_TYPE}) return EOPNOTSUPP;
    if (attr.type != IBV_FLOW_ATTR_NORMAL) return EOPNOTSUPP;
    if (typed && attr.flags) return EINVAL;
    if (typed) return domain_of(attr.ft_type, domain);
    if (attr.flags & ~static_cast<std::uint32_t>(IBV_FLOW_ATTR_FLAGS_EGRESS)) return EINVAL;
    domain = attr.flags ? DomainType::nic_tx : DomainType::nic_rx;
    return 0;
}

/// What a flow's list of actions asks for, one of each kind.
struct Actions {
    ibv_qp* queue = nullptr;
    mlx5dv_devx_obj* object = nullptr;
    mlx5dv_devx_obj* counter = nullptr;
    bool drop = false, default_miss = false;
    std::optional<std::uint32_t> tag;
    std::vector<VerbsFlowAction*> rewrites;

    [[nodiscard]] bool ends() const { return queue || object || drop || default_miss; }
};

[[nodiscard]] int add_action(const mlx5dv_flow_action_attr& attr, Actions& actions) {
    switch (attr.type) {
        case MLX5DV_FLOW_ACTION_DEST_IBV_QP:
            if (actions.ends()) return EOPNOTSUPP;
            actions.queue = attr.qp;
            return 0;
        case MLX5DV_FLOW_ACTION_DEST_DEVX:
            if (actions.ends()) return EOPNOTSUPP;
            actions.object = attr.obj;
            return 0;
        case MLX5DV_FLOW_ACTION_DROP:
            if (actions.ends()) return EOPNOTSUPP;
            actions.drop = true;
            return 0;
        case MLX5DV_FLOW_ACTION_DEFAULT_MISS:
            if (actions.ends()) return EOPNOTSUPP;
            actions.default_miss = true;
            return 0;
        case MLX5DV_FLOW_ACTION_TAG:
            if (actions.tag) return EINVAL;
            actions.tag = attr.tag_value;
            return 0;
        case MLX5DV_FLOW_ACTION_COUNTERS_DEVX:
            if (actions.counter) return EOPNOTSUPP;
            actions.counter = attr.obj;
            return 0;
        case MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION:
            if (actions.rewrites.size() == max_flow_actions) return EOPNOTSUPP;
            actions.rewrites.push_back(&VerbsFlowAction::of(attr.action));
            return 0;
        default:
            return EOPNOTSUPP;
    }
}

/// The kernel's rules of what a flow may lead to in each table. No DEVX object of ours is a flow table.
[[nodiscard]] int check_destination(DomainType domain, const Actions& actions) {
    if (domain == DomainType::fdb && !actions.drop) return EINVAL;
    if (actions.queue && actions.queue->qp_type != IBV_QPT_RAW_PACKET) return EINVAL;
    if (actions.object && receiver_of(actions.object).sink.deliver == nullptr) return EINVAL;
    if (domain == DomainType::nic_tx && (actions.queue || actions.object)) return EINVAL;
    return actions.tag && *actions.tag >= 1u << 24 ? EINVAL : 0;
}

[[nodiscard]] bool for_multicast(const mlx5dv_flow_matcher& matcher, std::span<const std::uint8_t> value) {
    const auto at = [](std::span<const std::uint8_t> bytes, unsigned offset) {
        return offset < bytes.size() ? bytes[offset] : std::uint8_t{0};
    };
    if (!(matcher.criteria & criteria::outer)) return false;
    if (at(value, key_offset::dmac) & at(matcher.mask, key_offset::dmac) & 1) return true;
    constexpr unsigned ip = key_offset::destination_ip + 12;
    return (at(value, ip) & 0xf0) == 0xe0 && (at(matcher.mask, ip) & 0xf0) == 0xe0;
}

[[nodiscard]] int make_flow(mlx5dv_flow_matcher& matcher, std::span<const std::uint8_t> value, const Actions& actions,
                            VerbsFlow& flow) {
    FlowRequest request;
    request.domain = matcher.domain;
    request.rank = for_multicast(matcher, value) && matcher.domain == DomainType::nic_rx
                       ? rank::multicast
                       : rank::of_priority(matcher.priority);
    request.criteria = matcher.criteria;
    request.mask = matcher.mask;
    request.value = value;
    if (actions.drop) request.fate = FlowRequest::Fate::drop;
    if (actions.default_miss) request.fate = FlowRequest::Fate::next_namespace;
    request.tag = actions.tag;
    if (actions.queue) request.receiver = receiver_of(actions.queue);
    if (actions.object) request.receiver = receiver_of(actions.object);
    if (actions.counter) {
        request.counters = counter_bulk_of(actions.counter);
        if (request.counters == nullptr) return EINVAL;
    }
    for (VerbsFlowAction* action : actions.rewrites) {
        const auto same = [action](const auto& other) { return other->type == action->action->type; };
        if (std::any_of(request.rewrites.begin(), request.rewrites.end(), same)) return EINVAL;
        request.rewrites.push_back(action->action);
        action->flows.fetch_add(1);
        flow.actions.push_back(action);
    }
    matcher.users.fetch_add(1);
    flow.matcher_users = &matcher.users;
    return Context::of(matcher.context).state.flows().create(request, flow.parts.emplace_back());
}

/// Runs `make(action, domain)` for a new action of the root tables.
template <typename Make>
[[nodiscard]] ibv_flow_action* create_action(const char* call, ibv_context* context, unsigned table, Make make) {
    DomainType type{};
    int error = injected_fault(call);
    if (!error) error = domain_of(table, type);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_flow_action* {
        auto action = std::make_unique<VerbsFlowAction>();
        Action::Created made;
        if (const int refused = make(Context::of(context).state.flows().domain(type), made)) {
            errno = refused;
            return nullptr;
        }
        action->context = context;
        action->action = std::move(made);
        Context::of(context).hold();
        return action.release();
    });
}

}  // namespace

extern "C" {

mlx5dv_flow_matcher* mlx5dv_create_flow_matcher(ibv_context* context, mlx5dv_flow_matcher_attr* attr) {
    DomainType domain{};
    int error = injected_fault("mlx5dv_create_flow_matcher");
    if (!error) error = choose_domain(*attr, domain);
    if (!error && attr->match_mask->match_sz > match_param_size) error = EINVAL;
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&] {
        const auto mask = bytes_of(attr->match_mask);
        std::unique_ptr<mlx5dv_flow_matcher> matcher(new mlx5dv_flow_matcher{
            context, domain, attr->priority, attr->match_criteria_enable, {mask.begin(), mask.end()}});
        Context::of(context).hold();
        return matcher.release();
    });
}

int mlx5dv_destroy_flow_matcher(mlx5dv_flow_matcher* matcher) {
    if (const int error = injected_fault("mlx5dv_destroy_flow_matcher")) return failed(error);
    if (matcher->users.load(std::memory_order_acquire)) return failed(EBUSY);
    Context& context = Context::of(matcher->context);
    delete matcher;
    context.let_go();
    return 0;
}

ibv_flow* mlx5dv_create_flow(mlx5dv_flow_matcher* matcher, mlx5dv_flow_match_parameters* value, std::size_t length,
                             mlx5dv_flow_action_attr attributes[]) {
    Actions actions;
    int error = injected_fault("mlx5dv_create_flow");
    return created([&]() -> ibv_flow* {
        for (std::size_t i = 0; !error && i < length; ++i) error = add_action(attributes[i], actions);
        if (!error) error = check_destination(matcher->domain, actions);
        if (!error && matcher->priority > last_priority) error = ENOMEM;
        auto flow = std::make_unique<VerbsFlow>();
        flow->context = matcher->context;
        if (!error) error = make_flow(*matcher, bytes_of(value), actions, *flow);
        if (error) {
            errno = error;
            return nullptr;
        }
        return flow.release();
    });
}

ibv_flow_action* mlx5dv_create_flow_action_modify_header(ibv_context* context, std::size_t size,
                                                         std::uint64_t actions[], mlx5dv_flow_table_type table) {
    return create_action("mlx5dv_create_flow_action_modify_header", context, table,
                         [&](Domain& domain, Action::Created& action) {
                             if (size == 0 || size % sizeof *actions) return EINVAL;
                             return Action::modify_header(domain, true, {actions, size / sizeof *actions}, action);
                         });
}

ibv_flow_action* mlx5dv_create_flow_action_packet_reformat(ibv_context* context, std::size_t size, void* data,
                                                           mlx5dv_flow_action_packet_reformat_type type,
                                                           mlx5dv_flow_table_type table) {
    return create_action(
        "mlx5dv_create_flow_action_packet_reformat", context, table, [&](Domain& domain, Action::Created& action) {
            return reformat_action(domain, true, type, {static_cast<std::uint8_t*>(data), size}, action);
        });
}

/// IPsec: see create_flow_action_esp_op().
ibv_flow_action* mlx5dv_create_flow_action_esp(ibv_context* context, ibv_flow_action_esp_attr* attr,
                                               mlx5dv_flow_action_esp*) {
    return create_flow_action_esp_op(context, attr);
}

}  // extern "C"
