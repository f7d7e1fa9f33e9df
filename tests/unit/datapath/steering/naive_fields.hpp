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
inline constexpr Field vxlan_vni{512 + 160, 24}, inner_dmac{1024 + 64, 32};
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

/// What the NIC sees in a frame; nothing for one that is no Ethernet frame.
[[nodiscard]] std::optional<Parameters> take_apart(const Bytes& frame);

}  // namespace ovsdr::soft::test
