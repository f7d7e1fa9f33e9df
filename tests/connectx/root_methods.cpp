// Methods for root tables, whose rules the kernel holds: matchers, rules, their modify-header lists and reformats; and
// steering anchors.
//
// What is refused here is what the kernel refuses before it asks the firmware: its mlx5_ib
// (drivers/infiniband/hw/mlx5/fs.c) and, of values and of rules of one match, its mlx5_core (fs_core.c). What only
// firmware would refuse is taken.
#include <fmt/format.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include <algorithm>
#include <cerrno>

#include "tests/connectx/open_file.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::size_t match_param_most = sizeof(mlx5_ib_match_params);
constexpr std::size_t modify_action_size = 8;
constexpr std::uint16_t last_priority = 15;   // MLX5_IB_FLOW_LAST_PRIO

TableType table_type(std::uint64_t type) {
    switch (type) {
        case MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX:
            return TableType::nic_rx;
        case MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX:
            return TableType::nic_tx;
        case MLX5_IB_UAPI_FLOW_TABLE_TYPE_FDB:
            return TableType::fdb;
        case MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_RX:
            return TableType::rdma_rx;
        case MLX5_IB_UAPI_FLOW_TABLE_TYPE_RDMA_TX:
            return TableType::rdma_tx;
        default:
            throw Refused{EINVAL, "no such type of flow table"};
    }
}

std::vector<std::uint8_t> match_param(Call& call, std::uint16_t attribute) {
    const auto bytes = call.input(attribute);
    if (bytes.empty() || bytes.size() > match_param_most)
        throw Refused{EINVAL, fmt::format("match parameters of {} bytes", bytes.size())};
    return {bytes.begin(), bytes.end()};
}

void create_matcher(OpenFile& file, Call& call) {
    if (call.element(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE) != MLX5_IB_FLOW_TYPE_NORMAL)
        throw NotEmulated{"a matcher that is not normal"};
    if (call.has(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE) && call.has(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS))
        throw Refused{EINVAL, "the type of table, said twice"};
    constexpr std::uint32_t egress = 1U << 2;   // IB_FLOW_ATTR_FLAGS_EGRESS, the older way to say NIC_TX
    const std::uint64_t flags = call.number(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, 0);
    if ((flags & ~std::uint64_t{egress}) != 0) throw NotEmulated{fmt::format("flow flags {:#x}", flags)};
    const std::uint64_t type =
        call.number(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE,
                    flags != 0 ? MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX : MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX);
    RootMatcher matcher{.handle = 0,
                        .type = table_type(type),
                        .priority = call.structure<std::uint16_t>(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE),
                        .criteria = call.structure<std::uint8_t>(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA),
                        .mask = match_param(call, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK)};
    const std::uint32_t handle = file.objects.add(RootMatcherHandle{std::move(matcher)});
    file.objects.get<RootMatcherHandle>(handle).matcher.handle = handle;
    call.answer_handle(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE, handle);
}

void destroy_matcher(OpenFile& file, Call& call) {
    file.destroy_of_kind<RootMatcherHandle>(call.handle(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE));
}

/// Where a rule leads, as the kernel's get_dests() allows it.
void read_destination(OpenFile& file, Call& call, TableType type, RootRuleHandle& made,
                      std::vector<std::uint32_t>& parts) {
    const std::uint64_t flags = call.number(MLX5_IB_ATTR_CREATE_FLOW_FLAGS, 0);
    constexpr std::uint64_t known = MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP | MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS;
    if ((flags & ~known) != 0) throw Refused{EINVAL, fmt::format("flow flags {:#x}", flags)};
    const bool sends = type == TableType::nic_tx || type == TableType::rdma_tx;
    const bool to_object = call.has(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX),
               to_queue_pair = call.has(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
    made.rule.drop = (flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP) != 0;
    made.rule.default_miss = (flags & MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS) != 0;
    if (made.rule.drop && made.rule.default_miss) throw Refused{EINVAL, "drop and default miss"};
    if (type == TableType::nic_rx && to_object + to_queue_pair + (flags != 0) > 1)
        throw Refused{EINVAL, "two destinations"};
    if (type == TableType::fdb && !to_object && !made.rule.drop)
        throw Refused{EINVAL, "an FDB rule that leads nowhere"};
    if (type == TableType::rdma_rx && to_object == to_queue_pair)
        throw Refused{EINVAL, "an RDMA_RX rule needs one destination"};
    if (to_object) {
        const std::uint32_t handle = call.handle(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX);
        const ObjectName name = file.objects.get<DevxHandle>(handle).name;
        const bool is_table = name.kind == ObjectKind::flow_table;
        if (!is_table && name.kind != ObjectKind::tir)
            throw Refused{EINVAL, "the destination is neither table nor TIR"};
        if (!is_table && (type == TableType::fdb || type == TableType::rdma_rx))
            throw Refused{EINVAL, "the destination is no table"};
        if (!is_table && sends) throw Refused{EINVAL, "a TIR behind a table of what is sent"};
        (is_table ? made.rule.table : made.rule.tir) = name.id;
        made.uses.push_back(name);
    } else if (to_queue_pair) {
        const std::uint32_t handle = call.handle(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
        made.rule.queue_pair = file.objects.get<QueuePair>(handle).number;
        if (sends) throw Refused{EINVAL, "a queue pair behind a table of what is sent"};
        parts.push_back(handle);
    }
}

void read_counter(OpenFile& file, Call& call, RootRuleHandle& made) {
    const auto handles = call.numbers(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX);
    const auto offsets = call.numbers(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET);
    if (handles.empty()) return;
    if (handles.size() > 1 || offsets.size() > 1) throw Refused{EINVAL, "more than one counter"};
    const ObjectName name = file.objects.get<DevxHandle>(handles[0]).name;
    const std::uint32_t offset = offsets.empty() ? 0 : offsets[0];
    if (name.kind != ObjectKind::counter) throw Refused{EINVAL, "not a counter"};
    if (offset >= file.nic.firmware.find(name)->id_length) throw Refused{EINVAL, "behind the end of the bulk"};
    made.rule.counters.push_back(name.id + offset);
    made.uses.push_back(name);
}

void read_actions(OpenFile& file, Call& call, RootRuleHandle& made, std::vector<std::uint32_t>& parts) {
    constexpr std::size_t most = 2;
    bool modifies = false, reformats = false;
    const auto handles = call.numbers(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS);
    if (handles.size() > most) throw Refused{EINVAL, "more than two actions"};
    for (const std::uint32_t handle : handles) {
        const RootAction& action = file.objects.get<RootActionHandle>(handle).action;
        bool& seen = action.kind == RootAction::Kind::modify_header ? modifies : reformats;
        if (seen) throw Refused{EINVAL, "two actions of a kind"};
        seen = true;
        made.rule.actions.push_back(handle);
        parts.push_back(handle);
    }
}

/// The same bytes, where a short one goes on with zeros.
bool is_equal(std::vector<std::uint8_t> one, std::vector<std::uint8_t> other) {
    one.resize(match_param_most);
    other.resize(match_param_most);
    return one == other;
}

/// What a rule does to a packet, for comparison: decapsulations are all alike.
std::vector<std::uint32_t> edits_of(OpenFile& file, const RootRule& rule) {
    std::vector<std::uint32_t> edits;
    for (const std::uint32_t handle : rule.actions) {
        const RootAction& action = file.objects.get<RootActionHandle>(handle).action;
        const bool decapsulates =
            action.kind == RootAction::Kind::reformat &&
            action.reformat_type == MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2;
        edits.push_back(decapsulates ? 0 : handle);
    }
    std::sort(edits.begin(), edits.end());
    return edits;
}

/// Rules of one match are one entry to the kernel: they may lead to different places, and must agree in the rest.
/// Whether there are others.
bool check_others_of_its_match(OpenFile& file, const RootMatcher& matcher, const RootRule& rule) {
    bool any = false;
    file.objects.for_each<RootRuleHandle>([&](std::uint32_t, const RootRuleHandle& handle) {
        const RootRule& other = handle.rule;
        const RootMatcher& by = file.objects.get<RootMatcherHandle>(other.matcher).matcher;
        if (by.type != matcher.type || by.priority != matcher.priority || by.criteria != matcher.criteria ||
            !is_equal(by.mask, matcher.mask) || !is_equal(other.value, rule.value)) {
            return;
        }
        if (other.drop != rule.drop || edits_of(file, other) != edits_of(file, rule))
            throw Refused{EEXIST, "a rule of this match does something else"};
        if (rule.tag && *rule.tag != other.tag.value_or(0))
            throw Refused{EEXIST, "a rule of this match has another tag"};
        any = true;
    });
    return any;
}

void check_value(const RootMatcher& matcher, const RootRule& rule) {
    for (std::size_t i = 0; i < rule.value.size(); ++i) {
        const unsigned mask = i < matcher.mask.size() ? matcher.mask[i] : 0;
        if ((rule.value[i] & ~mask) != 0)
            throw Refused{EINVAL, fmt::format("byte {} of the value has bits that the mask has not", i)};
    }
}

void create_rule(OpenFile& file, Call& call) {
    const std::uint32_t handle_of_matcher = call.handle(MLX5_IB_ATTR_CREATE_FLOW_MATCHER);
    const RootMatcher& matcher = file.objects.get<RootMatcherHandle>(handle_of_matcher).matcher;
    RootRuleHandle made{};
    std::vector<std::uint32_t> parts{handle_of_matcher};
    made.rule.matcher = handle_of_matcher;
    made.rule.value = match_param(call, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE);
    read_destination(file, call, matcher.type, made, parts);
    read_counter(file, call, made);
    read_actions(file, call, made, parts);
    if (call.has(MLX5_IB_ATTR_CREATE_FLOW_TAG)) {
        constexpr std::uint64_t most = 0xFFFFFF;
        const std::uint64_t tag = call.number(MLX5_IB_ATTR_CREATE_FLOW_TAG);
        if (tag > most) throw Refused{EINVAL, "a flow tag has 24 bits"};
        made.rule.tag = static_cast<std::uint32_t>(tag);
    }
    if (matcher.priority > last_priority) throw Refused{ENOMEM, fmt::format("priority {}", matcher.priority)};
    check_value(matcher, made.rule);
    const bool is_shared = check_others_of_its_match(file, matcher, made.rule);
    made.rule.order = ++file.nic.rules_made;
    if (is_shared) ++file.nic.shared_root_entries;
    for (const ObjectName used : made.uses) file.nic.firmware.hold(used);
    const std::uint32_t handle = file.objects.add(std::move(made), std::move(parts));
    file.objects.get<RootRuleHandle>(handle).rule.handle = handle;
    call.answer_handle(MLX5_IB_ATTR_CREATE_FLOW_HANDLE, handle);
}

void destroy_rule(OpenFile& file, Call& call) {
    // Two methods, one number: the driver's own, and the one of all devices.
    constexpr auto by_driver = static_cast<std::uint16_t>(MLX5_IB_ATTR_DESTROY_FLOW_HANDLE);
    const bool driver = call.has(by_driver);
    file.destroy_of_kind<RootRuleHandle>(
        call.handle(driver ? by_driver : std::uint16_t{UVERBS_ATTR_DESTROY_FLOW_HANDLE}));
}

std::uint32_t add_action(OpenFile& file, RootAction action) {
    const std::uint32_t handle = file.objects.add(RootActionHandle{std::move(action)});
    file.objects.get<RootActionHandle>(handle).action.handle = handle;
    return handle;
}

void create_modify_header(OpenFile& file, Call& call) {
    const auto list = call.input(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM);
    if (list.empty() || list.size() % modify_action_size != 0)
        throw Refused{EINVAL, "not a list of modify-header actions"};
    const std::uint32_t handle =
        add_action(file, {.handle = 0,
                          .kind = RootAction::Kind::modify_header,
                          .type = table_type(call.number(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE)),
                          .reformat_type = 0,
                          .data{list.begin(), list.end()}});
    call.answer_handle(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE, handle);
}

/// mlx5_ib takes reformats in NIC tables only: encapsulation when sending, decapsulation when receiving.
bool is_taken(std::uint64_t reformat, TableType type) {
    switch (reformat) {
        case MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL:
        case MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL:
            return type == TableType::nic_tx;
        case MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2:
        case MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2:
            return type == TableType::nic_rx;
        default:
            return false;
    }
}

void create_reformat(OpenFile& file, Call& call) {
    const auto data = call.input(MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_DATA_BUF);
    const TableType type = table_type(call.number(MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_FT_TYPE));
    const std::uint64_t reformat = call.number(MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_TYPE);
    if (!is_taken(reformat, type)) throw Refused{EOPNOTSUPP, "the kernel takes no such reformat in this type of table"};
    if (data.empty() && reformat != MLX5_IB_UAPI_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2)
        throw Refused{ENOENT, "no header"};
    const std::uint32_t handle = add_action(file, {.handle = 0,
                                                   .kind = RootAction::Kind::reformat,
                                                   .type = type,
                                                   .reformat_type = static_cast<std::uint8_t>(reformat),
                                                   .data{data.begin(), data.end()}});
    call.answer_handle(MLX5_IB_ATTR_CREATE_PACKET_REFORMAT_HANDLE, handle);
}

void destroy_action(OpenFile& file, Call& call) {
    file.destroy_of_kind<RootActionHandle>(call.handle(UVERBS_ATTR_DESTROY_FLOW_ACTION_HANDLE));
}

void create_anchor(OpenFile& file, Call& call) {
    const TableType type = table_type(call.number(MLX5_IB_ATTR_STEERING_ANCHOR_FT_TYPE));
    const auto priority = static_cast<std::uint16_t>(call.number(MLX5_IB_ATTR_STEERING_ANCHOR_PRIORITY));
    const ObjectName table = file.nic.firmware.take_kernel_table(type, priority);
    call.answer_handle(MLX5_IB_ATTR_STEERING_ANCHOR_CREATE_HANDLE, file.objects.add(SteeringAnchor{table}));
    call.answer(MLX5_IB_ATTR_STEERING_ANCHOR_FT_ID, table.id);
}

void destroy_anchor(OpenFile& file, Call& call) {
    file.destroy_of_kind<SteeringAnchor>(call.handle(MLX5_IB_ATTR_STEERING_ANCHOR_DESTROY_HANDLE));
}

constexpr Method table[] = {
    {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE, "FLOW_MATCHER_CREATE", true, create_matcher},
    {MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, "FLOW_MATCHER_DESTROY", false, destroy_matcher},
    {UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, "FLOW_CREATE", true, create_rule},
    {UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_DESTROY_FLOW, "FLOW_DESTROY", false, destroy_rule},
    {UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, "FLOW_DESTROY", false, destroy_rule},
    {UVERBS_OBJECT_FLOW_ACTION, MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER, "FLOW_ACTION_CREATE_MODIFY_HEADER",
     true, create_modify_header},
    {UVERBS_OBJECT_FLOW_ACTION, MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT, "FLOW_ACTION_CREATE_PACKET_REFORMAT",
     true, create_reformat},
    {UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_DESTROY, "FLOW_ACTION_DESTROY", false, destroy_action},
    {MLX5_IB_OBJECT_STEERING_ANCHOR, MLX5_IB_METHOD_STEERING_ANCHOR_CREATE, "STEERING_ANCHOR_CREATE", true,
     create_anchor},
    {MLX5_IB_OBJECT_STEERING_ANCHOR, MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY, "STEERING_ANCHOR_DESTROY", false,
     destroy_anchor},
};

}   // namespace

std::span<const Method> root_methods() {
    return table;
}

}   // namespace ovsdr::connectx
