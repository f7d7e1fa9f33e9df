// Methods for root tables, whose rules the kernel holds: matchers, rules, their modify-header lists and reformats; and
// steering anchors.
//
// What is refused here is what the kernel's mlx5_ib refuses before it asks the firmware
// (drivers/infiniband/hw/mlx5/fs.c); what only firmware would refuse is taken.
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
    if (bytes.size() > match_param_most) throw Refused{EINVAL, "match parameters are too long"};
    return {bytes.begin(), bytes.end()};
}

void create_matcher(OpenFile& file, Call& call) {
    if (call.element(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE) != MLX5_IB_FLOW_TYPE_NORMAL)
        throw NotEmulated{"a matcher that is not normal"};
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
        (is_table ? made.rule.table : made.rule.tir) = name.id;
        made.uses.push_back(name);
        parts.push_back(handle);
    } else if (to_queue_pair) {
        const std::uint32_t handle = call.handle(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP);
        made.rule.queue_pair = file.objects.get<QueuePair>(handle).number;
        if (type == TableType::nic_tx) throw Refused{EINVAL, "a queue pair behind NIC_TX"};
        parts.push_back(handle);
    }
}

void read_counters(OpenFile& file, Call& call, RootRuleHandle& made, std::vector<std::uint32_t>& parts) {
    const auto handles = call.numbers(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX);
    const auto offsets = call.numbers(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET);
    for (std::size_t i = 0; i < handles.size(); ++i) {
        const ObjectName name = file.objects.get<DevxHandle>(handles[i]).name;
        const std::uint32_t offset = i < offsets.size() ? offsets[i] : 0;
        if (name.kind != ObjectKind::counter) throw Refused{EINVAL, "not a counter"};
        if (offset >= file.nic.firmware.find(name)->id_length) throw Refused{EINVAL, "behind the end of the bulk"};
        made.rule.counters.push_back(name.id + offset);
        made.uses.push_back(name);
        parts.push_back(handles[i]);
    }
}

void read_actions(OpenFile& file, Call& call, RootRuleHandle& made, std::vector<std::uint32_t>& parts) {
    bool modifies = false, reformats = false;
    for (const std::uint32_t handle : call.numbers(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS)) {
        const RootAction& action = file.objects.get<RootActionHandle>(handle).action;
        bool& seen = action.kind == RootAction::Kind::modify_header ? modifies : reformats;
        if (seen) throw Refused{EINVAL, "two actions of a kind"};
        seen = true;
        made.rule.actions.push_back(handle);
        parts.push_back(handle);
    }
}

void create_rule(OpenFile& file, Call& call) {
    const std::uint32_t matcher = call.handle(MLX5_IB_ATTR_CREATE_FLOW_MATCHER);
    const TableType type = file.objects.get<RootMatcherHandle>(matcher).matcher.type;
    RootRuleHandle made{};
    std::vector<std::uint32_t> parts{matcher};
    made.rule.matcher = matcher;
    made.rule.value = match_param(call, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE);
    read_destination(file, call, type, made, parts);
    read_counters(file, call, made, parts);
    read_actions(file, call, made, parts);
    if (call.has(MLX5_IB_ATTR_CREATE_FLOW_TAG)) {
        constexpr std::uint64_t most = 0xFFFFFF;
        const std::uint64_t tag = call.number(MLX5_IB_ATTR_CREATE_FLOW_TAG);
        if (tag > most) throw Refused{EINVAL, "a flow tag has 24 bits"};
        made.rule.tag = static_cast<std::uint32_t>(tag);
    }
    made.rule.order = ++file.nic.rules_made;
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
