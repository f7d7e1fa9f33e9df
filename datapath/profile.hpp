// Device profiles: what each ConnectX generation can and cannot do, as facts that steering and the DEVX capability
// queries read. Chosen per device in the configuration ("profile": "connectx-6dx").
#pragma once

#include <cstdint>
#include <string_view>

namespace ovsdr::soft {

/// Protocols of the flexible parser, as bits of the capabilities' flex_parser_protocols.
namespace flex_parser {
inline constexpr std::uint32_t geneve = 1 << 3, vxlan_gpe = 1 << 7, icmp_v4 = 1 << 8, icmp_v6 = 1 << 9;
}

struct Profile {
    std::string_view name;              ///< as written in the configuration
    std::uint16_t pci_device_id;        ///< vendor is 0x15b3 on PCI and 0x02c9 in ibv_device_attr
    std::uint8_t steering_format;       ///< sw_format_ver of the capabilities: 0 ConnectX-5, 1 ConnectX-6 Dx, 2 ConnectX-7
    bool counts_before_pop;             ///< received bytes are counted before pop and decapsulation, else after
    bool pops_when_sending;             ///< pop_vlan where packets come from vports or our own queues
    bool pushes_when_receiving;         ///< push_vlan where packets come from the wire
    bool encapsulates_when_receiving;   ///< L2_TO_L2_TUNNEL and L2_TO_L3_TUNNEL likewise
    bool aso;                           ///< first hit and flow meter, by ACCESS_ASO; connection tracking on none of ours
    bool sampler_restores_reg_c_0;      ///< an FDB sampler must SET reg_c_0 of what goes on from vports
    bool matcher_layout;                ///< mlx5dv_dr_matcher_set_layout() has something to set (definers)
    std::uint32_t flex_parsers;         ///< flex_parser_protocols, as the firmware is shipped (its parser profile 0)
    std::uint8_t flow_meter_registers;  ///< bit n: a legacy meter may return its colour in reg_c_n
    std::uint8_t max_root_edits;        ///< modify-header commands of one root action (max_modify_header_actions)
    std::uint8_t log_max_edits;         ///< commands of one action elsewhere: what the device's memory holds in a piece

    /// Whether masks may name the protocol's fields; libmlx5 takes the later formats' parsers for granted.
    [[nodiscard]] constexpr bool parses(std::uint32_t protocol) const noexcept {
        return steering_format >= 1 || (flex_parsers & protocol) != 0;
    }
};

/// What generations do differently, as far as rdma-core 44's dr_ste_v0.c, _v1.c, _v2.c and dr_action.c tell them apart.
// clang-format off
//                                     name            part   format counts pops   pushes encaps aso    restores layout parsers registers root log
inline constexpr Profile connectx_5  {"connectx-5",   0x1019, 0,     true,  false, false, false, false, true,    false, 0x088,  0xfc,     32,  17};
inline constexpr Profile connectx_6dx{"connectx-6dx", 0x101d, 1,     false, true,  true,  true,  true,  false,   true,  0x388,  0xfc,     32,  17};
inline constexpr Profile connectx_7  {"connectx-7",   0x1021, 2,     false, true,  true,  true,  true,  false,   true,  0x388,  0xfc,     32,  17};
// clang-format on

/// nullptr for a name that is no profile.
[[nodiscard]] constexpr const Profile* profile_named(std::string_view name) noexcept {
    for (const Profile* profile : {&connectx_5, &connectx_6dx, &connectx_7}) {
        if (profile->name == name) return profile;
    }
    return nullptr;
}

}  // namespace ovsdr::soft
