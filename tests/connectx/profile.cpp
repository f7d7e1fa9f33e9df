#include "tests/connectx/profile.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "tests/connectx/address_plan.hpp"
#include "tests/connectx/layouts.hpp"

namespace ovsdr::connectx {
namespace {

using enum CapabilityGroup;
using namespace layout;

struct Kind {
    const char* name;
    std::uint32_t part_id;
    unsigned steering_format;
    std::uint64_t flex_protocols;
    bool has_definers, has_arguments;
};

// Flex parser protocols: GENEVE 0x8, VXLAN-GPE 0x80, ICMPv4 0x100, ICMPv6 0x200, GENEVE option 0x400.
constexpr Kind kinds[] = {
    {"cx5", 0x1017, 0, 0x488, false, false},
    {"cx6dx", 0x101d, 1, 0x788, false, false},
    {"cx7", 0x1021, 2, 0x788, true, true},
};

/// Which of eight flexible parsers has the Geneve option; entries/lookup_tables.hpp has it in this place.
constexpr std::uint64_t geneve_option_parser = 6;

/// By OVSDR_CONNECTX_DEFINERS. The soft NIC has formats 0, 2, 22 and 24: others take integrity bits and tunnel headers
/// that it has no parser for.
constexpr std::uint64_t soft_formats = 1ULL << 0 | 1ULL << 2 | 1ULL << 22 | 1ULL << 24;
constexpr std::uint64_t definer_formats[] = {
    0, soft_formats, soft_formats | 1ULL << 6 | 1ULL << 16 | 1ULL << 25 | 1ULL << 26 | 1ULL << 28 | 1ULL << 33};

constexpr std::uint64_t bit(GeneralType type) {
    return 1ULL << static_cast<unsigned>(type);
}

// clang-format off
constexpr Capability common[] = {
    {general, cmd_hca_cap::vhca_id, manager_vhca},
    {general, cmd_hca_cap::eswitch_manager, 1},
    {general, cmd_hca_cap::vport_group_manager, 1},
    {general, cmd_hca_cap::nic_flow_table, 1},
    {general, cmd_hca_cap::roce, 1},
    {general, cmd_hca_cap::qos, 1},
    {general, cmd_hca_cap::port_type, 1},
    {general, cmd_hca_cap::num_ports, 1},
    {general, cmd_hca_cap::flow_counter_bulk_alloc, 0x7},   // 128, 256 or 512 counters at once
    {general, cmd_hca_cap::isolate_vl_tc_new, 1},
    // Which of eight parsers has what: numbers that differ, so that a mix-up shows.
    {general, cmd_hca_cap::flex_parser_id_gtpu_dw_0, 0},
    {general, cmd_hca_cap::flex_parser_id_gtpu_teid, 1},
    {general, cmd_hca_cap::flex_parser_id_gtpu_dw_2, 2},
    {general, cmd_hca_cap::flex_parser_id_gtpu_first_ext_dw_0, 3},
    {general, cmd_hca_cap::flex_parser_id_outer_first_mpls_over_gre, 4},
    {general, cmd_hca_cap::flex_parser_id_outer_first_mpls_over_udp_label, 5},
    {general, cmd_hca_cap::flex_parser_id_geneve_opt_0, geneve_option_parser},
    {general, cmd_hca_cap::max_geneve_tlv_options, most_geneve_options},
    {general, cmd_hca_cap::max_geneve_tlv_option_data_len, geneve_option_length},
    {general, cmd_hca_cap::flex_parser_id_icmp_dw0, 0},
    {general, cmd_hca_cap::flex_parser_id_icmp_dw1, 1},
    {general, cmd_hca_cap::flex_parser_id_icmpv6_dw0, 2},
    {general, cmd_hca_cap::flex_parser_id_icmpv6_dw1, 3},
    // Queue pairs in loopback write steering entries; without this, NIC domains have a root table only.
    {roce, roce_cap::fl_rc_qp_when_roce_disabled, 1},
    {roce, roce_cap::fl_rc_qp_when_roce_enabled, 1},
    {nic_flow_table, flow_table_nic_cap::sw_steering_nic_rx_action_drop_icm_address, address_plan::nic_rx_drop},
    {nic_flow_table, flow_table_nic_cap::sw_steering_nic_tx_action_drop_icm_address, address_plan::nic_tx_drop},
    {nic_flow_table, flow_table_nic_cap::sw_steering_nic_tx_action_allow_icm_address, address_plan::nic_tx_allow},
    {nic_flow_table, flow_table_nic_cap::flow_table_properties_nic_receive / flow_table_prop_layout::max_ft_level, 64},
    {eswitch_flow_table, flow_table_eswitch_cap::ft_field_support_2_tunnel_header_0_1, 1},
    {eswitch_flow_table, flow_table_eswitch_cap::sw_steering_fdb_action_drop_icm_address_rx, address_plan::fdb_rx_drop},
    {eswitch_flow_table, flow_table_eswitch_cap::sw_steering_fdb_action_drop_icm_address_tx, address_plan::fdb_tx_drop},
    {eswitch_flow_table, flow_table_eswitch_cap::sw_steering_uplink_icm_address_rx,
     address_plan::of(address_plan::vport_rx, 0xFFFF)},
    {eswitch_flow_table, flow_table_eswitch_cap::sw_steering_uplink_icm_address_tx,
     address_plan::of(address_plan::vport_tx, 0xFFFF)},
    {device_memory, device_mem_cap::steering_sw_icm_start_address, address_plan::steering},
    {device_memory, device_mem_cap::log_steering_sw_icm_size, log_steering_icm},
    {device_memory, device_mem_cap::log_sw_icm_alloc_granularity, log_icm_granularity},
    {device_memory, device_mem_cap::header_modify_sw_icm_start_address, address_plan::modify_header},
    {device_memory, device_mem_cap::log_header_modify_sw_icm_size, log_modify_header_icm},
    {device_memory, device_mem_cap::header_modify_pattern_sw_icm_start_address, address_plan::modify_pattern},
    {device_memory, device_mem_cap::log_header_modify_pattern_sw_icm_size, log_modify_pattern_icm},
};

/// Steering formats from 1 on have another bit for tables whose entries software writes.
constexpr Capability before_format_1[] = {
    {nic_flow_table, flow_table_nic_cap::flow_table_properties_nic_receive / flow_table_prop_layout::sw_owner, 1},
    {nic_flow_table, flow_table_nic_cap::flow_table_properties_nic_transmit / flow_table_prop_layout::sw_owner, 1},
    {eswitch_flow_table,
     flow_table_eswitch_cap::flow_table_properties_nic_esw_fdb / flow_table_prop_layout::sw_owner, 1},
};
constexpr Capability from_format_1[] = {
    {nic_flow_table, flow_table_nic_cap::flow_table_properties_nic_receive / flow_table_prop_layout::sw_owner_v2, 1},
    {nic_flow_table, flow_table_nic_cap::flow_table_properties_nic_transmit / flow_table_prop_layout::sw_owner_v2, 1},
    {nic_flow_table, flow_table_nic_cap::flow_table_properties_nic_receive / flow_table_prop_layout::ft_field_support /
                         flow_table_fields_supported::geneve_tlv_option_0_exist, 1},
    {eswitch_flow_table,
     flow_table_eswitch_cap::flow_table_properties_nic_esw_fdb / flow_table_prop_layout::sw_owner_v2, 1},
};
/// Fields that packets are matched by in tables of both kinds: tunnels and what is in them.
constexpr Field matched_in[] = {
    flow_table_nic_cap::flow_table_properties_nic_receive / flow_table_prop_layout::ft_field_support,
    flow_table_eswitch_cap::flow_table_properties_nic_esw_fdb / flow_table_prop_layout::ft_field_support,
};
constexpr Field tunnel_fields[] = {
    flow_table_fields_supported::outer_gre_protocol_and_key, flow_table_fields_supported::outer_vxlan_vni,
    flow_table_fields_supported::outer_geneve_header,        flow_table_fields_supported::inner_headers,
    flow_table_fields_supported::geneve_tlv_option_0_data,
};
constexpr Capability with_arguments[] = {
    {general, cmd_hca_cap::log_header_modify_argument_granularity, 0},
    {general, cmd_hca_cap::log_header_modify_argument_max_alloc, log_modify_arguments},
};
// clang-format on

std::uint64_t general_types(const Profile& profile) {
    std::uint64_t types = bit(GeneralType::flow_sampler) | bit(GeneralType::flow_meter) |
                          bit(GeneralType::geneve_tlv_option);
    if (profile.steering_format > 0) {
        types |= bit(GeneralType::aso_flow_meter) | bit(GeneralType::aso_first_hit) | bit(GeneralType::aso_connection);
    }
    if (profile.definer_formats != 0) types |= bit(GeneralType::match_definer);
    if (profile.has_arguments) types |= bit(GeneralType::modify_argument);
    return types;
}

std::optional<unsigned> number_of(const char* variable, unsigned most) {
    const char* text = std::getenv(variable);
    if (text == nullptr || *text == 0) return std::nullopt;
    unsigned value = 0;
    const auto parsed = std::from_chars(text, text + std::strlen(text), value);
    if (parsed.ec != std::errc{} || *parsed.ptr != 0 || value > most) {
        throw std::invalid_argument(std::string(variable) + " is not a number up to " + std::to_string(most) + ": " +
                                    text);
    }
    return value;
}

}   // namespace

bool is_known(CapabilityGroup group) {
    constexpr std::array known{general, odp, atomic,        roce,   nic_flow_table, eswitch_flow_table,
                               eswitch, qos, device_memory, crypto, general_2};
    return std::find(known.begin(), known.end(), group) != known.end();
}

Profile profile_of_environment() {
    const char* wanted = std::getenv("OVSDR_CONNECTX_PROFILE");
    if (wanted == nullptr || *wanted == 0) wanted = "cx6dx";
    const auto* kind = std::find_if(std::begin(kinds), std::end(kinds),
                                    [&](const Kind& one) { return std::strcmp(one.name, wanted) == 0; });
    if (kind == std::end(kinds))
        throw std::invalid_argument(std::string("OVSDR_CONNECTX_PROFILE is not cx5, cx6dx or cx7: ") + wanted);

    constexpr unsigned most_vfs = 126;   // ibv_modify_qp() has eight bits for a port
    Profile profile{.name = kind->name,
                    .part_id = kind->part_id,
                    .steering_format = kind->steering_format,
                    .vfs = number_of("OVSDR_CONNECTX_VFS", most_vfs).value_or(2),
                    .definer_formats = definer_formats[number_of("OVSDR_CONNECTX_DEFINERS", 2)
                                                           .value_or(kind->has_definers ? 1 : 0)],
                    .has_arguments = number_of("OVSDR_CONNECTX_ARGUMENTS", 1).value_or(kind->has_arguments) != 0,
                    .has_event_cap = number_of("OVSDR_CONNECTX_EVENTS", 1).value_or(1) != 0,
                    .capabilities{std::begin(common), std::end(common)}};
    const auto add = [&](auto& rows) {
        profile.capabilities.insert(profile.capabilities.end(), std::begin(rows), std::end(rows));
    };
    profile.steering_format == 0 ? add(before_format_1) : add(from_format_1);
    if (profile.has_arguments) add(with_arguments);
    for (const Field field : tunnel_fields) {
        const std::uint64_t all = (std::uint64_t{1} << field.width) - 1;
        profile.capabilities.push_back({nic_flow_table, matched_in[0] / field, all});
        profile.capabilities.push_back({eswitch_flow_table, matched_in[1] / field, all});
    }
    profile.capabilities.insert(
        profile.capabilities.end(),
        {{general, cmd_hca_cap::steering_format_version, profile.steering_format},
         {general, cmd_hca_cap::flex_parser_protocols, kind->flex_protocols},
         {general, cmd_hca_cap::general_obj_types, general_types(profile)},
         {general, cmd_hca_cap::match_definer_format_supported, profile.definer_formats}});
    return profile;
}

}   // namespace ovsdr::connectx
