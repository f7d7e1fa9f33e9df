// Device profiles: what each ConnectX generation can and cannot do, as facts that steering and the DEVX capability
// queries read. Chosen per device in the configuration ("profile": "connectx-6dx").
#pragma once

#include <cstdint>
#include <string_view>

namespace ovsdr::soft {

/// Protocols of the flexible parser, as bits of the capabilities' flex_parser_protocols.
namespace flex_parser {
inline constexpr std::uint32_t geneve = 1 << 3, mpls_over_gre = 1 << 4, mpls_over_udp = 1 << 5, vxlan_gpe = 1 << 7;
inline constexpr std::uint32_t icmp_v4 = 1 << 8, icmp_v6 = 1 << 9;
inline constexpr std::uint32_t geneve_option = 1 << 10;
inline constexpr std::uint32_t gtpu = 1 << 11 | 0xf << 16;  ///< and its words 2, 0, TEID and first extension
}

struct Profile {
    std::string_view name;              ///< as written in the configuration
    std::uint16_t pci_device_id;        ///< vendor is 0x15b3 on PCI and 0x02c9 in ibv_device_attr
    std::uint8_t steering_format;       ///< sw_format_ver: 0 ConnectX-5, 1 ConnectX-6 Dx, 2 ConnectX-7
    bool counts_before_pop;             ///< received bytes are counted before pop and decapsulation, else after
    bool pops_when_sending;             ///< pop_vlan where packets come from vports or our own queues
    bool pushes_when_receiving;         ///< push_vlan where packets come from the wire
    bool encapsulates_when_receiving;   ///< L2_TO_L2_TUNNEL and L2_TO_L3_TUNNEL likewise
    bool aso;                           ///< first hit, flow meter and connection tracking, by ACCESS_ASO
    bool sampler_restores_reg_c_0;      ///< an FDB sampler must SET reg_c_0 of what goes on from vports
    std::uint64_t definers;             ///< formats that libmlx5 may use; ConnectX-6 Dx as with firmware that has none.
                                        ///< DEVX makes none for applications: its capabilities do not name them
    std::uint32_t flex_parsers;         ///< flex_parser_protocols; below as shipped (the firmware's parser profile 0)
    std::uint8_t flow_meter_registers;  ///< bit n: a legacy meter may return its colour in reg_c_n
    std::uint8_t max_root_edits;        ///< modify-header commands of one root action (max_modify_header_actions)
    std::uint8_t log_max_edits;         ///< commands of one action elsewhere: what the device's memory holds in a piece

    /// Whether masks may name the protocol's fields; libmlx5 takes the later formats' parsers for granted.
    [[nodiscard]] constexpr bool parses(std::uint32_t protocol) const noexcept {
        return steering_format >= 1 || has_parser(protocol);
    }
    /// Whether masks may ask if a Geneve header has the option that was set up: the first format has no such look-up.
    [[nodiscard]] constexpr bool tells_geneve_options() const noexcept {
        return steering_format >= 1 && has_parser(flex_parser::geneve_option);
    }
    [[nodiscard]] constexpr bool has_parser(std::uint32_t protocol) const noexcept {
        return (flex_parsers & protocol) == protocol;
    }
};

/// What generations do differently, as far as rdma-core 44's dr_ste_v0.c, _v1.c, _v2.c and dr_action.c tell them apart.
// clang-format off
inline constexpr std::uint64_t formats_0_2_22_and_24 = 1ULL << 0 | 1ULL << 2 | 1ULL << 22 | 1ULL << 24;
//  part    format counts pops   pushes encaps aso    restores definers               parsers registers root log
inline constexpr Profile connectx_5{"connectx-5",
    0x1019, 0,     true,  false, false, false, false, true,    0,                     0x488,  0xfc,     32,  17};
inline constexpr Profile connectx_6dx{"connectx-6dx",
    0x101d, 1,     false, true,  true,  true,  true,  false,   0,                     0x788,  0xfc,     32,  17};
inline constexpr Profile connectx_7{"connectx-7",
    0x1021, 2,     false, true,  true,  true,  true,  false,   formats_0_2_22_and_24, 0x788,  0xfc,     32,  17};
// clang-format on

/// The flexible parser set up for other protocols, as mlxconfig's FLEX_PARSER_PROFILE_ENABLE does: 0 as shipped, 1 MPLS
/// over GRE and UDP, 2 VXLAN-GPE and ICMP, 3 GTP-U. Source: DPDK's guide to mlx5, "configuration".
inline constexpr unsigned flex_parser_profiles = 4;
[[nodiscard]] constexpr Profile with_flex_parser_profile(Profile profile, unsigned number) noexcept {
    using namespace flex_parser;
    constexpr std::uint32_t protocols[flex_parser_profiles] = {0, geneve | mpls_over_gre | mpls_over_udp,
                                                               vxlan_gpe | icmp_v4 | icmp_v6, gtpu};
    if (number == 0) return profile;
    // Later formats have these without a parser.
    const std::uint32_t fixed = profile.steering_format >= 1 ? geneve | vxlan_gpe | icmp_v4 | icmp_v6 : 0;
    profile.flex_parsers = protocols[number] | (profile.flex_parsers & fixed);
    return profile;
}

/// nullptr for a name that is no profile.
[[nodiscard]] constexpr const Profile* profile_named(std::string_view name) noexcept {
    for (const Profile* profile : {&connectx_5, &connectx_6dx, &connectx_7}) {
        if (profile->name == name) return profile;
    }
    return nullptr;
}

}  // namespace ovsdr::soft
