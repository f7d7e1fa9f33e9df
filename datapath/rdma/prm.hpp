// The device's command language: where the fields of a mailbox are, and how to read and write them.
//
// A Field is a bit offset and a width in a big-endian structure; bit 0 is the most significant bit of the first byte.
// Nested structures add their own offset (within()).
// Source: ConnectX programmer's reference (PRM), commands and contexts as Linux and DPDK document them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ovsdr::soft::prm {

struct Field {
    std::uint32_t offset;  ///< bits
    std::uint32_t width;   ///< bits, at most 64
};

/// `field` of a structure that begins at bit `offset` of another.
[[nodiscard]] constexpr Field within(std::uint32_t offset, Field field) {
    return {offset + field.offset, field.width};
}

/// 0 for bits that the mailbox is too short to hold.
[[nodiscard]] constexpr std::uint64_t get(std::span<const std::byte> mailbox, Field field) {
    std::uint64_t value = 0;
    for (std::uint32_t bit = field.offset; bit < field.offset + field.width; ++bit) {
        const std::size_t byte = bit / 8;
        const unsigned set =
            byte < mailbox.size() ? (std::to_integer<unsigned>(mailbox[byte]) >> (7 - bit % 8)) & 1 : 0;
        value = value << 1 | set;
    }
    return value;
}

/// Bits past the mailbox's end are left out.
constexpr void set(std::span<std::byte> mailbox, Field field, std::uint64_t value) {
    if (field.offset % 8 == 0 && field.width % 8 == 0) {
        // Whole bytes, as statistics are: a query of a counter bulk writes a thousand fields.
        for (std::uint32_t byte = (field.offset + field.width) / 8; byte-- > field.offset / 8; value >>= 8) {
            if (byte < mailbox.size()) mailbox[byte] = static_cast<std::byte>(value);
        }
        return;
    }
    for (std::uint32_t i = 0; i < field.width; ++i) {
        const std::uint32_t bit = field.offset + field.width - 1 - i;
        if (bit / 8 >= mailbox.size()) continue;
        const std::byte mask{static_cast<unsigned char>(1u << (7 - bit % 8))};
        mailbox[bit / 8] = (value >> i) & 1 ? mailbox[bit / 8] | mask : mailbox[bit / 8] & ~mask;
    }
}

enum class Opcode : std::uint16_t {
    query_hca_cap = 0x100,
    create_mkey = 0x200,
    query_vport_state = 0x750,
    modify_vport_state = 0x751,
    query_esw_vport_context = 0x752,
    query_nic_vport_context = 0x754,
    modify_nic_vport_context = 0x755,
    query_vport_counter = 0x770,
    alloc_q_counter = 0x771,
    query_q_counter = 0x773,
    query_lag = 0x842,
    create_cq = 0x400,
    query_cq = 0x402,
    modify_cq = 0x403,
    create_qp = 0x500,
    query_qp = 0x50b,
    alloc_pd = 0x800,
    alloc_transport_domain = 0x816,
    create_tir = 0x900,
    modify_tir = 0x901,
    destroy_tir = 0x902,
    query_tir = 0x903,
    create_sq = 0x904,
    modify_sq = 0x905,
    query_sq = 0x907,
    create_rq = 0x908,
    modify_rq = 0x909,
    query_rq = 0x90b,
    create_tis = 0x912,
    modify_tis = 0x913,
    query_tis = 0x915,
    create_rqt = 0x916,
    modify_rqt = 0x917,
    query_rqt = 0x918,
    alloc_flow_counter = 0x939,
    dealloc_flow_counter = 0x93a,
    query_flow_counter = 0x93b,
    create_general_object = 0xa00,
    query_general_object = 0xa02,
};

enum class Status : std::uint8_t {
    ok = 0x0,
    bad_op = 0x2,
    bad_param = 0x3,
    bad_res = 0x5,
    res_busy = 0x6,
    lim_err = 0x8,
    bad_res_state = 0x9,
    bad_index = 0xa,
    no_res = 0xf,
    bad_inp_len = 0x50,
    bad_outp_len = 0x51,
};

// Heads of all mailboxes.
inline constexpr Field opcode{0, 16};
inline constexpr Field op_mod{48, 16};
inline constexpr Field status{0, 8};
inline constexpr Field syndrome{32, 32};

// Commands on a vport.
inline constexpr Field other_vport{64, 1};
inline constexpr Field vport_number{80, 16};

namespace vport_state {
inline constexpr Field admin_state{120, 4};
inline constexpr Field state{124, 4};
enum Admin : std::uint8_t { down = 0, up = 1, follow = 2 };
enum OpMod : std::uint16_t { vnic = 0, esw = 1, uplink = 2 };
}  // namespace vport_state

namespace nic_vport_context {
inline constexpr std::uint32_t size = 256;          // bytes
inline constexpr std::uint32_t in_query_out = 128;  // bit offsets of the context
inline constexpr std::uint32_t in_modify_in = 2048;
inline constexpr Field allowed_list_type_in{101, 3};  // of the query's input
inline constexpr Field field_select{96, 32};          // of the modification's input
inline constexpr std::uint32_t select_mtu = 1u << 6;
inline constexpr std::uint32_t select_permanent_address = 1u << 3;
inline constexpr Field mtu{0x130, 16};  // hardware's: with Ethernet header, VLAN tag and FCS
inline constexpr std::uint32_t mtu_overhead = 22;
inline constexpr Field system_image_guid{0x140, 64};
inline constexpr Field port_guid{0x180, 64};
inline constexpr Field node_guid{0x1c0, 64};
inline constexpr Field permanent_address{0x7b0, 48};
}  // namespace nic_vport_context

namespace vport_counter {
inline constexpr Field clear{192, 1};
inline constexpr std::uint32_t out_size = 0x210;  // bytes
// Bit offsets of pairs of 64-bit packets and octets.
inline constexpr std::uint32_t received_errors = 0x80;
inline constexpr std::uint32_t transmit_errors = 0x100;
inline constexpr std::uint32_t received_eth_unicast = 0x480;
inline constexpr std::uint32_t transmitted_eth_unicast = 0x500;
}  // namespace vport_counter

namespace flow_counter {
inline constexpr Field id_in_alloc_out{64, 32};
inline constexpr Field bulk_log_size{115, 5};
inline constexpr Field bulk{120, 8};
inline constexpr std::uint32_t bulk_unit = 128;  // counters
inline constexpr Field mkey{96, 32}, address{128, 64};  // of a dump to memory
inline constexpr Field clear{192, 1};
inline constexpr Field dump_to_memory{193, 1};
inline constexpr Field length{208, 16};  // num_of_counters
inline constexpr Field id{224, 32};
inline constexpr std::uint32_t statistics = 16;  // byte offset in the query's output
inline constexpr std::uint32_t value_size = 16;  // bytes: packets, octets
}  // namespace flow_counter

namespace general_object {
inline constexpr Field type{48, 16};
inline constexpr Field number{64, 32};  // in and out
inline constexpr Field log_range{99, 5};
inline constexpr std::uint32_t flow_meter_aso = 0x24, first_hit_aso = 0x25, conn_track_offload = 0x31;
inline constexpr std::uint32_t geneve_tlv_option = 0x0b;
}  // namespace general_object

/// Of QUERY_LAG's output. A remap says by which port that leaves which is to leave by port 1, 2.
namespace lag_context {
inline constexpr std::uint32_t begin = 64;  ///< bit offset
inline constexpr Field shared_fdb{begin, 1}, state{begin + 29, 3};  // fdb_selection_mode, lag_state
inline constexpr Field remap_2{begin + 52, 4}, remap_1{begin + 60, 4};
}  // namespace lag_context

/// flow_meter_aso, flow_hit_aso and conn_track_offload have one shape; behind the command's head.
namespace aso_object {
inline constexpr Field access_pd{128 + 136, 24};
inline constexpr std::uint32_t image = 16 + 64;   // byte offset of 64 bytes of state
inline constexpr std::uint32_t in_size = 16 + 128;  // bytes
inline constexpr unsigned max_log_length = 16;    // objects
}  // namespace aso_object

/// geneve_tlv_option, behind the command's head.
namespace geneve_tlv_option {
inline constexpr Field index{128 + 88, 8};  // geneve_option_fte_index
inline constexpr Field option_class{128 + 96, 16}, type{128 + 112, 8}, length{128 + 123, 5};
inline constexpr std::uint32_t mailbox = 16 + 64;  // bytes
inline constexpr unsigned max_options = 1, max_length = 1;
}  // namespace geneve_tlv_option

namespace event {
inline constexpr std::uint16_t completion = 0x0;
inline constexpr std::uint16_t cq_error = 0x4;
inline constexpr std::uint16_t port_change = 0x9;
inline constexpr std::uint16_t nic_vport_change = 0xd;
inline constexpr std::uint32_t eqe_size = 64;  // bytes
inline constexpr Field type{8, 8};
inline constexpr Field subtype{24, 8};
inline constexpr std::uint8_t subtype_port_down = 1;
inline constexpr std::uint8_t subtype_port_active = 4;
inline constexpr Field port_number{32 * 8 + 64, 4};    // port_change: eqe_port_state
inline constexpr Field completed_cqn{32 * 8 + 6 * 32 + 8, 24};  // completion: eqe_comp
inline constexpr Field failed_cqn{32 * 8 + 8, 24};             // cq_error: eqe_cq_err
inline constexpr Field cq_error_syndrome{32 * 8 + 88, 8};
inline constexpr std::uint8_t syndrome_overrun = 1;
inline constexpr Field vport_number{32 * 8 + 16, 16};  // nic_vport_change: eqe_vport_change
}  // namespace event

}  // namespace ovsdr::soft::prm
