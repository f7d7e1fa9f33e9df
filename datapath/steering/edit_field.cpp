#include "datapath/steering/edit_field.hpp"

#include <algorithm>
#include <iterator>

namespace ovsdr::soft {
namespace {

using enum EditPlace;
namespace at = key_offset;

constexpr EditField fields[] = {
    {0x01, "smac_47_16", ethernet, 6, 4, 0, 32, 0, 0, false, false, at::smac, 4},
    {0x02, "smac_15_0", ethernet, 10, 2, 0, 16, 0, 0, false, false, at::smac + 4, 2},
    {0x03, "ethertype", type, 0, 2, 0, 16, 0, 0, false, false, at::ethertype, 2},
    {0x04, "dmac_47_16", ethernet, 0, 4, 0, 32, 0, 0, false, false, at::dmac, 4},
    {0x05, "dmac_15_0", ethernet, 4, 2, 0, 16, 0, 0, false, false, at::dmac + 4, 2},
    {0x06, "ip_dscp", tos, 0, 2, 2, 6, 0, 0, false, false, at::tos, 1},
    {0x07, "tcp_flags", tcp, 12, 2, 0, 9, 0, 6, false, false, at::l3_flags, 2},
    {0x08, "tcp_sport", tcp, 0, 2, 0, 16, 0, 6, false, false, at::tcp_sport, 2},
    {0x09, "tcp_dport", tcp, 2, 2, 0, 16, 0, 6, false, false, at::tcp_dport, 2},
    {0x0a, "ip_ttl", ipv4, 8, 1, 0, 8, 4, 0, false, true, at::ttl, 1},
    {0x0b, "udp_sport", udp, 0, 2, 0, 16, 0, 17, false, false, at::udp_sport, 2},
    {0x0c, "udp_dport", udp, 2, 2, 0, 16, 0, 17, false, false, at::udp_dport, 2},
    {0x0d, "sipv6_127_96", ipv6, 8, 4, 0, 32, 6, 0, true, false, at::source_ip, 4},
    {0x0e, "sipv6_95_64", ipv6, 12, 4, 0, 32, 6, 0, true, false, at::source_ip + 4, 4},
    {0x0f, "sipv6_63_32", ipv6, 16, 4, 0, 32, 6, 0, true, false, at::source_ip + 8, 4},
    {0x10, "sipv6_31_0", ipv6, 20, 4, 0, 32, 6, 0, true, false, at::source_ip + 12, 4},
    {0x11, "dipv6_127_96", ipv6, 24, 4, 0, 32, 6, 0, true, false, at::destination_ip, 4},
    {0x12, "dipv6_95_64", ipv6, 28, 4, 0, 32, 6, 0, true, false, at::destination_ip + 4, 4},
    {0x13, "dipv6_63_32", ipv6, 32, 4, 0, 32, 6, 0, true, false, at::destination_ip + 8, 4},
    {0x14, "dipv6_31_0", ipv6, 36, 4, 0, 32, 6, 0, true, false, at::destination_ip + 12, 4},
    {0x15, "sipv4", ipv4, 12, 4, 0, 32, 4, 0, true, false, at::source_ip + 12, 4},
    {0x16, "dipv4", ipv4, 16, 4, 0, 32, 4, 0, true, false, at::destination_ip + 12, 4},
    // libmlx5 takes all 16 bits of the tag under this name, priority and DEI with the VLAN id.
    {0x17, "first_vid", vlan, 2, 2, 0, 16, 0, 0, false, false, at::first_vlan, 2},
    {0x47, "ipv6_hoplimit", ipv6, 7, 1, 0, 8, 6, 0, false, true, at::ttl, 1},
    {0x49, "reg_a", reg, at::reg_a, 4, 0, 32, 0, 0, false, false, at::reg_a, 4},
    {0x50, "reg_b", reg, at::reg_b, 4, 0, 32, 0, 0, false, false, at::reg_b, 4},
    {0x51, "reg_c_0", reg, reg_c_offset(0), 4, 0, 32, 0, 0, false, false, reg_c_offset(0), 4},
    {0x52, "reg_c_1", reg, reg_c_offset(1), 4, 0, 32, 0, 0, false, false, reg_c_offset(1), 4},
    {0x53, "reg_c_2", reg, reg_c_offset(2), 4, 0, 32, 0, 0, false, false, reg_c_offset(2), 4},
    {0x54, "reg_c_3", reg, reg_c_offset(3), 4, 0, 32, 0, 0, false, false, reg_c_offset(3), 4},
    {0x55, "reg_c_4", reg, reg_c_offset(4), 4, 0, 32, 0, 0, false, false, reg_c_offset(4), 4},
    {0x56, "reg_c_5", reg, reg_c_offset(5), 4, 0, 32, 0, 0, false, false, reg_c_offset(5), 4},
    {0x59, "tcp_seq_num", tcp, 4, 4, 0, 32, 0, 0, false, true, at::outer_tcp_seq, 4},
    {0x5b, "tcp_ack_num", tcp, 8, 4, 0, 32, 0, 0, false, true, at::outer_tcp_ack, 4},
    {0x73, "ip_ecn", tos, 0, 2, 0, 2, 0, 0, false, false, at::tos, 1},
};

}  // namespace

const EditField* edit_field(std::uint16_t id) noexcept {
    const auto* field = std::find_if(std::begin(fields), std::end(fields),
                                     [id](const EditField& candidate) { return candidate.id == id; });
    return field == std::end(fields) ? nullptr : field;
}

}  // namespace ovsdr::soft
