// A second reading of the device's match parameters, apart from the engine's: fields by the PRM's bit offsets into
// dr_match_param, and packets taken apart one field at a time into such a buffer. Slow and plain on purpose.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ovsdr::soft::test {

using Bytes = std::vector<std::uint8_t>;

/// Bit offset from the beginning of dr_match_param, and width.
struct Field {
    unsigned bit;
    unsigned width;
};

namespace field {
inline constexpr Field smac_47_16{0, 32}, smac_15_0{32, 16}, ethertype{48, 16}, dmac_47_16{64, 32}, dmac_15_0{96, 16};
inline constexpr Field first_prio{112, 3}, first_cfi{115, 1}, first_vid{116, 12};
inline constexpr Field ip_protocol{128, 8}, ip_dscp{136, 6}, ip_ecn{142, 2}, cvlan_tag{144, 1}, svlan_tag{145, 1};
inline constexpr Field frag{146, 1}, ip_version{147, 4}, tcp_flags{151, 9}, tcp_sport{160, 16}, tcp_dport{176, 16};
inline constexpr Field ipv4_ihl{208, 4}, ttl{216, 8}, udp_sport{224, 16}, udp_dport{240, 16};
inline constexpr Field src_127_96{256, 32}, src_95_64{288, 32}, src_63_32{320, 32}, src_31_0{352, 32};
inline constexpr Field dst_127_96{384, 32}, dst_95_64{416, 32}, dst_63_32{448, 32}, dst_31_0{480, 32};
inline constexpr Field source_sqn{512 + 8, 24}, source_port{512 + 48, 16};
inline constexpr Field second_prio{512 + 64, 3}, second_cfi{512 + 67, 1}, second_vid{512 + 68, 12};
inline constexpr Field second_cvlan{512 + 96, 1}, second_svlan{512 + 98, 1};
inline constexpr Field gre_c{512, 1}, gre_k{512 + 2, 1}, gre_s{512 + 3, 1}, gre_protocol{512 + 112, 16};
inline constexpr Field inner_second_prio{512 + 80, 3}, inner_second_cfi{512 + 83, 1}, inner_second_vid{512 + 84, 12};
inline constexpr Field inner_second_cvlan{512 + 97, 1}, inner_second_svlan{512 + 99, 1};
inline constexpr Field gre_key_h{512 + 128, 24}, gre_key_l{512 + 152, 8}, vxlan_vni{512 + 160, 24};
inline constexpr Field geneve_vni{512 + 192, 24}, geneve_exists{512 + 222, 1}, geneve_oam{512 + 223, 1};
inline constexpr Field outer_label{512 + 236, 20}, inner_label{512 + 268, 20};
inline constexpr Field geneve_opt_len{512 + 298, 6}, geneve_protocol{512 + 304, 16};
inline constexpr Field bth_dst_qp{512 + 328, 24}, inner_esp{512 + 352, 32}, outer_esp{512 + 384, 32};
inline constexpr Field inner_dmac{1024 + 64, 32}, inner_dmac_15_0{1024 + 96, 16}, inner_smac_15_0{1024 + 32, 16};
inline constexpr Field inner_ethertype{1024 + 48, 16}, inner_first_vid{1024 + 116, 12}, inner_protocol{1024 + 128, 8};
inline constexpr Field inner_cvlan{1024 + 144, 1}, inner_svlan{1024 + 145, 1}, inner_frag{1024 + 146, 1};
inline constexpr Field inner_version{1024 + 147, 4}, inner_tcp_sport{1024 + 160, 16}, inner_ttl{1024 + 216, 8};
inline constexpr Field inner_udp_dport{1024 + 240, 16}, inner_src_31_0{1024 + 352, 32}, inner_dst_31_0{1024 + 480, 32};
inline constexpr Field outer_mpls{1536, 32}, inner_mpls{1536 + 32, 32}, mpls_over_gre{1536 + 64, 32};
inline constexpr Field mpls_over_udp{1536 + 96, 32};
inline constexpr Field inner_seq{2048, 32}, outer_seq{2048 + 32, 32}, inner_ack{2048 + 64, 32};
inline constexpr Field outer_ack{2048 + 96, 32};
inline constexpr Field gpe_vni{2048 + 136, 24}, gpe_next{2048 + 160, 8}, gpe_flags{2048 + 168, 8};
inline constexpr Field geneve_option{2048 + 288, 32}, gtpu_teid{2048 + 320, 32}, gtpu_type{2048 + 352, 8};
inline constexpr Field gtpu_flags{2048 + 360, 8}, gtpu_dw_2{2048 + 384, 32}, gtpu_extension{2048 + 416, 32};
inline constexpr Field gtpu_dw_0{2048 + 448, 32};
inline constexpr Field sample_0{2560, 32}, macsec_0{3072, 32};
inline constexpr Field tunnel_0{3072 + 128, 32}, tunnel_1{3072 + 160, 32}, tunnel_2{3072 + 192, 32};
inline constexpr Field icmp_data{2048 + 192, 32}, icmpv6_data{2048 + 224, 32};
inline constexpr Field reg_c_3_low{1536 + 280, 8}, reg_c_5_low{1536 + 216, 8};
inline constexpr Field reg_c_7{1536 + 128, 32}, reg_c_1{1536 + 320, 32}, reg_c_0{1536 + 352, 32}, reg_a{1536 + 384, 32};
inline constexpr Field icmp_type{2048 + 256, 8}, icmp_code{2048 + 264, 8}, icmpv6_type{2048 + 272, 8};
inline constexpr Field icmpv6_code{2048 + 280, 8};
}  // namespace field

inline constexpr unsigned parameters_size = 448;

/// A mask, a value, or what a packet has.
class Parameters {
public:
    Parameters() : bytes_(parameters_size) {}

    Parameters& set(Field field, std::uint64_t value) {
        for (unsigned i = 0; i < field.width; ++i) {
            const unsigned bit = field.bit + i;
            const std::uint8_t one = static_cast<std::uint8_t>(0x80 >> bit % 8);
            if ((value >> (field.width - 1 - i) & 1) != 0) {
                bytes_[bit / 8] = static_cast<std::uint8_t>(bytes_[bit / 8] | one);
            } else {
                bytes_[bit / 8] = static_cast<std::uint8_t>(bytes_[bit / 8] & ~one);
            }
        }
        return *this;
    }
    [[nodiscard]] std::uint64_t get(Field field) const {
        std::uint64_t value = 0;
        for (unsigned i = 0; i < field.width; ++i) {
            const unsigned bit = field.bit + i;
            value = value << 1 | (bytes_[bit / 8] >> (7 - bit % 8) & 1);
        }
        return value;
    }
    [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
    [[nodiscard]] std::span<const std::uint8_t> first(std::size_t size) const { return {bytes_.data(), size}; }

private:
    Bytes bytes_;
};

/// What the NIC is set up to look for beside what it always sees.
struct NaiveParser {
    bool gtpu = false;  ///< inner packets of GTP-U
    struct Option {
        unsigned kind;    ///< class and type
        unsigned length;  ///< of its data, bytes
    };
    std::optional<Option> option{};  ///< of Geneve headers
};

/// What the NIC sees in a frame, the inner packet of a tunnel too; nothing for one that is no Ethernet frame.
[[nodiscard]] std::optional<Parameters> take_apart(const Bytes& frame, const NaiveParser& parser = {});

/// The inner packet of a tunnel, and whether it begins with an Ethernet header (else: its IP version); nothing where
/// the frame carries none.
struct Carried {
    Bytes packet;
    unsigned ip_version;  ///< 0 = Ethernet
};
[[nodiscard]] std::optional<Carried> carried_by(const Bytes& frame, const NaiveParser& parser = {});

}  // namespace ovsdr::soft::test
