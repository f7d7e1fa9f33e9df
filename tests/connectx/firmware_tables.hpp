// Commands of firmware that are known here, and the objects that they make, as tables.
#pragma once

#include <cstdint>

#include "tests/connectx/firmware.hpp"
#include "tests/connectx/layouts.hpp"

namespace ovsdr::connectx {

/// Opcodes of commands. Source: PRM, "Command Opcodes".
enum Opcode : std::uint16_t {
    QUERY_HCA_CAP = 0x100,
    CREATE_CQ = 0x400,
    CREATE_QP = 0x500,
    DESTROY_QP = 0x501,
    RST2INIT_QP = 0x502,
    INIT2RTR_QP = 0x503,
    RTR2RTS_QP = 0x504,
    QUERY_ESW_FUNCTIONS = 0x740,
    QUERY_VPORT_STATE = 0x750,
    MODIFY_VPORT_STATE = 0x751,
    QUERY_ESW_VPORT_CONTEXT = 0x752,
    QUERY_NIC_VPORT_CONTEXT = 0x754,
    MODIFY_NIC_VPORT_CONTEXT = 0x755,
    QUERY_ROCE_ADDRESS = 0x760,
    QUERY_VPORT_COUNTER = 0x770,
    CREATE_TIR = 0x900,
    CREATE_SQ = 0x904,
    MODIFY_SQ = 0x905,
    CREATE_FLOW_TABLE = 0x930,
    QUERY_FLOW_TABLE = 0x932,
    CREATE_FLOW_GROUP = 0x933,
    SET_FLOW_TABLE_ENTRY = 0x936,
    ALLOC_FLOW_COUNTER = 0x939,
    QUERY_FLOW_COUNTER = 0x93b,
    ALLOC_PACKET_REFORMAT_CONTEXT = 0x93d,
    CREATE_GENERAL_OBJECT = 0xa00,
    MODIFY_GENERAL_OBJECT = 0xa01,
    QUERY_GENERAL_OBJECT = 0xa02,
    SYNC_STEERING = 0xb00,
};

struct CommandName {
    Opcode opcode;
    const char* name;
};
// clang-format off
inline constexpr CommandName command_names[] = {
#define COMMAND(name) {name, #name}
    COMMAND(QUERY_HCA_CAP),
    COMMAND(CREATE_CQ),
    COMMAND(CREATE_SQ),
    COMMAND(MODIFY_SQ),
    COMMAND(CREATE_QP),
    COMMAND(RST2INIT_QP),
    COMMAND(INIT2RTR_QP),
    COMMAND(RTR2RTS_QP),
    COMMAND(QUERY_ESW_FUNCTIONS),
    COMMAND(QUERY_VPORT_STATE),
    COMMAND(MODIFY_VPORT_STATE),
    COMMAND(QUERY_ESW_VPORT_CONTEXT),
    COMMAND(QUERY_NIC_VPORT_CONTEXT),
    COMMAND(MODIFY_NIC_VPORT_CONTEXT),
    COMMAND(QUERY_ROCE_ADDRESS),
    COMMAND(QUERY_VPORT_COUNTER),
    COMMAND(CREATE_TIR),
    COMMAND(CREATE_FLOW_TABLE),
    COMMAND(QUERY_FLOW_TABLE),
    COMMAND(CREATE_FLOW_GROUP),
    COMMAND(SET_FLOW_TABLE_ENTRY),
    COMMAND(ALLOC_FLOW_COUNTER),
    COMMAND(QUERY_FLOW_COUNTER),
    COMMAND(ALLOC_PACKET_REFORMAT_CONTEXT),
    COMMAND(CREATE_GENERAL_OBJECT),
    COMMAND(MODIFY_GENERAL_OBJECT),
    COMMAND(QUERY_GENERAL_OBJECT),
    COMMAND(SYNC_STEERING),
#undef COMMAND
};
// clang-format on

/// Commands on no object that the kernel passes on for a process (mlx5_ib's devx_is_general_cmd()): those that are
/// known here, and whatever lies from `general_first` to `general_last`.
inline constexpr Opcode open_to_all[] = {
    QUERY_HCA_CAP,           QUERY_ESW_FUNCTIONS, QUERY_VPORT_STATE,   QUERY_ESW_VPORT_CONTEXT,
    QUERY_NIC_VPORT_CONTEXT, QUERY_ROCE_ADDRESS,  QUERY_VPORT_COUNTER,
};
inline constexpr std::uint16_t general_first = 0xb00, general_last = 0xcff;

/// Where commands on an object name it.
struct Naming {
    Opcode opcode;
    Field id;
};
inline constexpr Naming namings[] = {
    {RST2INIT_QP, layout::modify_qp_in::qpn},
    {INIT2RTR_QP, layout::modify_qp_in::qpn},
    {RTR2RTS_QP, layout::modify_qp_in::qpn},
    {MODIFY_SQ, layout::modify_sq_in::sqn},
    {QUERY_FLOW_TABLE, layout::query_flow_table_in::table_id},
    {QUERY_FLOW_COUNTER, layout::query_flow_counter_in::flow_counter_id},
    {MODIFY_GENERAL_OBJECT, layout::general_obj_in_cmd_hdr::obj_id},
    {QUERY_GENERAL_OBJECT, layout::general_obj_in_cmd_hdr::obj_id},
};

/// What a creating command makes.
struct Creation {
    Opcode opcode;
    std::uint16_t general_type;   ///< of CREATE_GENERAL_OBJECT, otherwise 0
    ObjectKind kind;
    const char* label;
    std::size_t input_size;   ///< bytes that the command has at least
    Field id;                 ///< in the answer; width 0: it has none
};

// clang-format off
inline constexpr Creation creations[] = {
    {CREATE_FLOW_TABLE, 0, ObjectKind::flow_table, "CREATE_FLOW_TABLE",
     layout::create_flow_table_in::size, layout::create_flow_table_out::table_id},
    {CREATE_FLOW_GROUP, 0, ObjectKind::flow_group, "CREATE_FLOW_GROUP",
     layout::create_flow_group_in::size, layout::create_flow_group_out::group_id},
    {SET_FLOW_TABLE_ENTRY, 0, ObjectKind::flow_entry, "SET_FLOW_TABLE_ENTRY",
     layout::set_fte_in::size, {0, 0}},
    {ALLOC_FLOW_COUNTER, 0, ObjectKind::counter, "ALLOC_FLOW_COUNTER",
     layout::alloc_flow_counter_in::size, layout::alloc_flow_counter_out::flow_counter_id},
    {ALLOC_PACKET_REFORMAT_CONTEXT, 0, ObjectKind::reformat, "ALLOC_PACKET_REFORMAT_CONTEXT",
     layout::alloc_packet_reformat_context_in::size, layout::alloc_packet_reformat_context_out::packet_reformat_id},
    {CREATE_TIR, 0, ObjectKind::tir, "CREATE_TIR", 32, layout::create_tir_out::tirn},
    {CREATE_QP, 0, ObjectKind::queue_pair, "CREATE_QP", layout::create_qp_in::size, layout::create_qp_out::qpn},
    {CREATE_CQ, 0, ObjectKind::completion_queue, "CREATE_CQ", layout::create_cq_in::size, layout::create_cq_out::cqn},
    {CREATE_SQ, 0, ObjectKind::send_queue, "CREATE_SQ", layout::create_sq_in::size, layout::create_sq_out::sqn},
#define GENERAL(type, kind, label, size) \
    {CREATE_GENERAL_OBJECT, static_cast<std::uint16_t>(GeneralType::type), ObjectKind::kind, \
     "CREATE_GENERAL_OBJECT:" label, size, layout::general_obj_out_cmd_hdr::obj_id}
    GENERAL(flow_sampler, sampler, "FLOW_SAMPLER", layout::create_flow_sampler_in::size),
    GENERAL(flow_meter, flow_meter, "FLOW_METER", layout::create_flow_meter_in::size),
    GENERAL(aso_flow_meter, aso_flow_meter, "ASO_FLOW_METER", layout::general_obj_in_cmd_hdr::size),
    GENERAL(aso_first_hit, aso_first_hit, "ASO_FIRST_HIT", layout::general_obj_in_cmd_hdr::size),
    GENERAL(aso_connection, aso_connection, "ASO_CT", layout::general_obj_in_cmd_hdr::size),
    GENERAL(geneve_tlv_option, geneve_option, "GENEVE_TLV_OPT", layout::create_geneve_tlv_option_in::size),
    GENERAL(match_definer, match_definer, "MATCH_DEFINER", layout::create_definer_in::size),
    GENERAL(modify_argument, modify_argument, "HEADER_MODIFY_ARGUMENT", layout::general_obj_in_cmd_hdr::size),
#undef GENERAL
};
// clang-format on

/// The row for a creating command, or null.
[[nodiscard]] const Creation* creation_of(Bytes command);

}   // namespace ovsdr::connectx
