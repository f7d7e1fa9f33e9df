// QUERY_HCA_CAP: what the device says that it can do. Only what is implemented is claimed; docs/soft-nic-devx.md lists
// what is implemented and not claimed.
#include <algorithm>
#include <array>
#include <bit>

#include "datapath/rdma/devx/devx.hpp"
#include "datapath/rdma/devx/devx_layout.hpp"
#include "datapath/rdma/roce/memory_copy.hpp"
#include "datapath/steering/plain_function.hpp"
#include "datapath/steering/reformat.hpp"

namespace ovsdr::soft::devx {

using prm::Field;
using prm::Status;

namespace {

constexpr std::uint32_t capability = 128;  // bit offset in the output

struct Fact {
    Field field;
    std::uint64_t value;
};

// cmd_hca_cap
constexpr Field vhca_id{48, 16};
constexpr Field steering_format_version{1092, 4};
constexpr Field general_object_types{1024, 64};
constexpr Field flex_parser_protocols{1344, 32};
constexpr Field log_dma_mmo_max_size{107, 5};
constexpr Field dma_mmo_sq{339, 1};

/// Which of the device's eight parsers (0 to 3 are looked up together, and 4 to 7) has a protocol's word.
struct ParserId {
    std::uint32_t protocol;
    Field field;
    std::uint64_t id;
};
constexpr ParserId parser_ids[] = {
    {flex_parser::gtpu, {1512, 4}, 0},           // gtpu_dw_0
    {flex_parser::gtpu, {1560, 4}, 1},           // gtpu_teid
    {flex_parser::gtpu, {1792, 4}, 2},           // gtpu_dw_2
    {flex_parser::gtpu, {1796, 4}, 3},           // gtpu_first_ext_dw_0
    {flex_parser::mpls_over_gre, {1752, 4}, 4},
    {flex_parser::mpls_over_udp, {1756, 4}, 5},
    {flex_parser::geneve_option, {1732, 4}, 6},  // geneve_opt_0
};
constexpr Field max_geneve_tlv_options{1376, 8}, max_geneve_tlv_option_data_len{1387, 5};

constexpr Field rts2rts_lag_tx_port_affinity{338, 1}, lag_dct{630, 2}, lag_tx_port_affinity{632, 1}, lag_master{635, 1},
    num_lag_ports{636, 4};

// qos_cap
constexpr Field flow_meter_old{7, 1}, log_max_flow_meter{16, 8}, flow_meter_reg_id{24, 8}, flow_meter{40, 1};
constexpr Field packet_pacing{0, 1}, packet_pacing_uid{11, 1}, pacing_max_rate{64, 32}, pacing_min_rate{96, 32},
    pacing_table_size{144, 16};
constexpr Field log_meter_aso_max_alloc{299, 5}, log_max_num_meter_aso{307, 5};
constexpr unsigned log_max_meters = 20;

constexpr std::array general_facts{
    Fact{{136, 8}, 15},       // log_max_qp_sz
    Fact{{155, 5}, 18},       // log_max_qp
    Fact{{200, 8}, 22},       // log_max_cq_sz
    Fact{{219, 5}, 24},       // log_max_cq
    Fact{{234, 6}, 18},       // log_max_mkey
    Fact{{265, 7}, 64},       // log_max_mrw_sz
    Fact{{385, 1}, 1},        // vport_counters
    Fact{{390, 10}, prm::q_counter::most},  // max_qp_cnt
    Fact{{419, 1}, 1},        // eth_virt
    Fact{{422, 1}, 1},        // nic_flow_table
    Fact{{438, 2}, 1},        // port_type: Ethernet
    Fact{{440, 8}, 1},        // num_ports
    Fact{{451, 5}, 30},       // log_max_msg
    Fact{{508, 4}, 1},        // cqe_version
    Fact{{540, 1}, 1},        // eth_net_offloads
    Fact{{545, 1}, 1},        // cq_resize
    Fact{{704, 16}, 0xff},    // max_flow_counter_31_16
    Fact{{784, 8}, 0xff},     // flow_counter_bulk_alloc: 128 << 0..7
    Fact{{803, 5}, 16},       // log_max_transport_domain
    Fact{{811, 5}, 23},       // log_max_pd
    Fact{{840, 8}, 14},       // log_max_flow_counter_bulk
    Fact{{848, 16}, 0xffff},  // max_flow_counter_15_0
    Fact{{865, 1}, 1},        // flow_counters_dump
    Fact{{656, 16}, 1024},    // max_wqe_sz_sq
    Fact{{688, 16}, 512},     // max_wqe_sz_rq
    Fact{{867, 5}, 18},       // log_max_rq
    Fact{{875, 5}, 18},       // log_max_sq
    Fact{{883, 5}, 18},       // log_max_tir
    Fact{{891, 5}, 18},       // log_max_tis
    Fact{{907, 5}, 18},       // log_max_rqt
    Fact{{915, 5}, 11},       // log_max_rqt_size
    Fact{{896, 1}, 1},        // basic_cyclic_rcv_wqe
    Fact{{992, 1}, 1},        // nic_vport_change_event
    Fact{{539, 1}, 1},        // qos
    Fact{{1468, 1}, 1},       // mini_cqe_resp_stride_index
    Fact{{1470, 1}, 1},       // cqe_compression_128
    Fact{{1471, 1}, 1},       // cqe_compression
    Fact{{1488, 16}, 64},     // cqe_compression_max_num
    Fact{{1566, 1}, 1},       // sw_owner_id
};

// per_protocol_networking_offload_caps
constexpr std::array ethernet_facts{
    Fact{{0, 1}, 1},    // csum_cap
    Fact{{1, 1}, 1},    // vlan_cap
    Fact{{7, 1}, 1},    // wqe_vlan_insert
    Fact{{11, 5}, 18},  // max_lso_cap
    Fact{{18, 2}, 2},   // wqe_inline_mode: nothing has to be inline
    Fact{{20, 4}, 11},  // rss_ind_tbl_cap
    Fact{{25, 1}, 1},   // scatter_fcs
    Fact{{62, 1}, 1},   // max_geneve_opt_len: 63 double words
    // tunnel_stateless_geneve_rx; other tunnels' bits mean both ways, and nothing is segmented inside a tunnel
    Fact{{63, 1}, 1},
};

// flow_table_prop_layout, and where it stands in the capability of each domain.
constexpr Field sw_owner{17, 1};
constexpr Field sw_owner_v2{30, 1};
constexpr Field max_modify_header_actions{48, 8};
constexpr std::uint32_t nic_receive = 512;
constexpr std::uint32_t nic_transmit = 2048;
constexpr std::uint32_t fdb = 512;

constexpr std::array table_facts{
    Fact{{0, 1}, 1},     // ft_support
    Fact{{2, 1}, 1},     // flow_counter
    Fact{{3, 1}, 1},     // flow_modify_en
    Fact{{7, 1}, 1},     // reformat
    Fact{{8, 1}, 1},     // decap
    Fact{{15, 1}, 1},    // reformat_and_vlan_action
    Fact{{18, 1}, 1},    // reformat_l3_tunnel_to_l2
    Fact{{19, 1}, 1},    // reformat_l2_to_l3_tunnel
    Fact{{20, 1}, 1},    // reformat_and_modify_action
    Fact{{34, 6}, 24},   // log_max_ft_size
    Fact{{40, 8}, 20},   // log_max_modify_header_context
    Fact{{56, 8}, 64},   // max_ft_level
    Fact{{80, 8}, 32},   // metadata_reg_b_width
    Fact{{88, 8}, 32},   // metadata_reg_a_width
    Fact{{120, 8}, 24},  // log_max_ft_num
    Fact{{144, 8}, 24},  // log_max_flow_counter
    Fact{{152, 8}, 5},   // log_max_destination
    Fact{{184, 8}, 24},  // log_max_flow
};
constexpr Field flow_tag{1, 1}, log_max_ft_sampler_num{72, 8};
constexpr unsigned log_max_samplers = 16;

/// Bits of ft_field_support, from the first to the last.
struct Fields {
    std::uint32_t first, last;
};
constexpr std::uint32_t ft_field_support = 256;
constexpr std::array matched_fields{
    Fields{0, 25},    // outer_dmac to outer_vxlan_vni
    Fields{32, 54},   // inner_dmac to inner_tcp_flags
    Fields{77, 84},   // inner_first_mpls, outer_first_mpls
    Fields{88, 89},   // hop limits, inner and outer
    Fields{91, 94},   // S-VLAN qualifiers
    Fields{120, 127}  // metadata_reg_c_7 to _0
};
constexpr Fields geneve_fields{26, 29}, mpls_over_udp_fields{69, 72}, mpls_over_gre_fields{73, 76};
constexpr Fields source_port_field{31, 31}, reg_a_field{63, 63}, source_sqn_field{95, 95};
constexpr Fields geneve_option_data{64, 64}, geneve_option_exists{65, 65};
// ft_field_support_2, and where it stands in the capability of each domain.
constexpr Field tunnel_header_0_1{16, 1};
constexpr std::uint32_t nic_receive_2 = 5120, nic_transmit_2 = 5888, fdb_2 = 5120;
constexpr std::array vlan_fields{Field{10, 1}, Field{11, 1}, Field{13, 1}, Field{14, 1}};  // pop, push, pop 2, push 2

/// flow_table_nic_cap: headers of any kind, how many, how long.
constexpr Field max_encap_header_size{54, 10};   // also in e_switch_cap
constexpr std::array reformat_facts{Fact{{32, 1}, 1}, Fact{{43, 5}, 20},
                                    Fact{max_encap_header_size, Reformat::max_size}};

// Rights on an eSwitch.
constexpr Field vport_group_manager{416, 1}, eswitch_manager{423, 1};

void put(Output out, std::uint32_t structure, Field field, std::uint64_t value) {
    prm::set(out, prm::within(capability + structure, field), value);
}

void put_general(DeviceState& state, Output out) {
    for (const Fact& fact : general_facts) put(out, 0, fact.field, fact.value);
    put(out, 0, vhca_id, state.vhca_id_of(manager_vport));
    for (const Field right : {vport_group_manager, eswitch_manager}) {
        put(out, 0, right, is_plain_function(state.device().steering()) ? 0 : 1);
    }
    const Profile& profile = state.device().profile();
    put(out, 0, steering_format_version, profile.steering_format);
    if (state.device().has_lag()) {
        put(out, 0, num_lag_ports, lag_ports);
        for (const Field able : {rts2rts_lag_tx_port_affinity, lag_dct, lag_tx_port_affinity, lag_master}) {
            put(out, 0, able, 1);
        }
    }
    if (!roce::MemoryCopy::there_is(profile)) return;
    put(out, 0, dma_mmo_sq, 1);
    put(out, 0, log_dma_mmo_max_size, std::countr_zero(roce::MemoryCopy::most));
}

void put_objects(const Profile& profile, Output out) {
    namespace general = prm::general_object;
    const std::uint64_t aso = 1ULL << general::flow_meter_aso | 1ULL << general::first_hit_aso |
                              1ULL << general::conn_track_offload;
    const bool option = profile.has_parser(flex_parser::geneve_option);
    put(out, 0, general_object_types, (profile.aso ? aso : 0) | (option ? 1ULL << general::geneve_tlv_option : 0));
    if (option) {
        put(out, 0, max_geneve_tlv_options, prm::geneve_tlv_option::max_options);
        put(out, 0, max_geneve_tlv_option_data_len, prm::geneve_tlv_option::max_length);
    }
    put(out, 0, flex_parser_protocols, profile.flex_parsers);
    for (const ParserId& parser : parser_ids) {
        if (profile.has_parser(parser.protocol)) put(out, 0, parser.field, parser.id);
    }
}

void put_qos(const Profile& profile, Output out) {
    put(out, 0, packet_pacing, 1);
    put(out, 0, packet_pacing_uid, 1);  // rates may belong to those who make them
    put(out, 0, pacing_max_rate, RateTable::fastest);
    put(out, 0, pacing_min_rate, RateTable::slowest);
    put(out, 0, pacing_table_size, RateTable::length);
    put(out, 0, flow_meter_old, 1);
    put(out, 0, flow_meter, 1);
    put(out, 0, log_max_flow_meter, log_max_meters);
    put(out, 0, flow_meter_reg_id, profile.flow_meter_registers);
    if (!profile.aso) return;
    put(out, 0, log_meter_aso_max_alloc, prm::aso_object::max_log_length);
    put(out, 0, log_max_num_meter_aso, log_max_meters);
}

void put_fields(Output out, std::uint32_t structure, Fields fields) {
    for (std::uint32_t bit = fields.first; bit <= fields.last; ++bit) {
        put(out, structure, {ft_field_support + bit, 1}, 1);
    }
}

/// What packets are matched by: match.cpp refuses the rest.
void put_matched(const Profile& profile, Output out, std::uint32_t structure) {
    for (const Fields& fields : matched_fields) put_fields(out, structure, fields);
    if (profile.parses(flex_parser::geneve)) put_fields(out, structure, geneve_fields);
    if (profile.has_parser(flex_parser::mpls_over_udp)) put_fields(out, structure, mpls_over_udp_fields);
    if (profile.has_parser(flex_parser::mpls_over_gre)) put_fields(out, structure, mpls_over_gre_fields);
    if (profile.has_parser(flex_parser::geneve_option)) put_fields(out, structure, geneve_option_data);
    if (profile.tells_geneve_options()) put_fields(out, structure, geneve_option_exists);
}

/// Where packets come from, and samplers: not where they are sent.
void put_receiving(Output out, std::uint32_t structure) {
    put(out, structure, log_max_ft_sampler_num, log_max_samplers);
    put_fields(out, structure, source_port_field);
    put_fields(out, structure, source_sqn_field);
}

void put_tables(const Profile& profile, Output out, std::uint32_t structure) {
    for (const Fact& fact : table_facts) put(out, structure, fact.field, fact.value);
    put(out, structure, profile.steering_format == 0 ? sw_owner : sw_owner_v2, 1);
    put(out, structure, max_modify_header_actions, profile.max_root_edits);
    for (const Field field : vlan_fields) put(out, structure, field, 1);
    put_matched(profile, out, structure);
}

}  // namespace

Status query_capabilities(DeviceState& state, Input in, Output out) {
    // The low bit asks for the maximum (0) or the current value (1): they are the same here.
    const Profile& profile = state.device().profile();
    switch (prm::get(in, prm::op_mod) >> 1) {
        case 0x0:
            put_general(state, out);
            put_objects(profile, out);
            return Status::ok;
        case 0x1:  // Ethernet offloads
            for (const Fact& fact : ethernet_facts) put(out, 0, fact.field, fact.value);
            return Status::ok;
        case 0x7:  // NIC flow tables
            for (const Fact& fact : reformat_facts) put(out, 0, fact.field, fact.value);
            put_tables(profile, out, nic_receive);
            put(out, nic_receive, flow_tag, 1);
            put_receiving(out, nic_receive);
            put_tables(profile, out, nic_transmit);
            put_fields(out, nic_transmit, reg_a_field);
            for (const std::uint32_t structure : {nic_receive_2, nic_transmit_2}) {
                put(out, structure, tunnel_header_0_1, 1);
            }
            return Status::ok;
        case 0x8:  // eSwitch flow tables
            if (is_plain_function(state.device().steering())) return Status::bad_param;
            put_tables(profile, out, fdb);
            put_receiving(out, fdb);
            put(out, fdb_2, tunnel_header_0_1, 1);
            return Status::ok;
        case 0x9:  // eSwitch: no sub-functions, no VLAN handling of its own
            if (is_plain_function(state.device().steering())) return Status::bad_param;
            put(out, 0, max_encap_header_size, Reformat::max_size);
            return Status::ok;
        case 0xc:
            put_qos(profile, out);
            return Status::ok;
        case 0xf:  // device memory: none to give out
            return Status::ok;
        default:
            return Status::bad_param;
    }
}

}  // namespace ovsdr::soft::devx
