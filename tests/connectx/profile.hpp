// What kind of ConnectX this is, and what it claims to be able to do.
//
// The claims are the emulation's own: they make libmlx5 behave as on such a card. Fields that are not listed are 0.
// Source: what libmlx5 asks (PRM QUERY_HCA_CAP); that ConnectX-5 steers with entries of format 0, 6 Dx with 1, 7
// with 2.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/connectx/bits.hpp"

namespace ovsdr::connectx {

/// Groups of capabilities: op_mod of QUERY_HCA_CAP without its lowest bit (maximum or current), halved.
enum class CapabilityGroup : std::uint16_t {
    general = 0x0,
    odp = 0x2,
    atomic = 0x3,
    roce = 0x4,
    nic_flow_table = 0x7,
    eswitch_flow_table = 0x8,
    eswitch = 0x9,
    qos = 0xc,
    device_memory = 0xf,
    crypto = 0x1a,
    general_2 = 0x20,
};
[[nodiscard]] bool is_known(CapabilityGroup group);

struct Capability {
    CapabilityGroup group;
    Field field;   ///< of the group's structure
    std::uint64_t value;
};

struct Profile {
    std::string name;           ///< cx5, cx6dx, cx7
    std::uint32_t part_id;      ///< PCI device
    unsigned steering_format;   ///< 0, 1, 2
    unsigned vfs;               ///< how many VF vports: 1 to vfs
    std::uint64_t definer_formats;   ///< match definers, a bit for each format: matcher layouts with them; 0: none
    bool has_arguments;         ///< modify-header arguments and patterns
    bool has_event_cap;         ///< firmware says which events a process may have; without, Linux keeps to a few
    std::vector<Capability> capabilities;
};

/// General object types (obj_type of CREATE_GENERAL_OBJECT).
enum class GeneralType : std::uint16_t {
    flow_meter = 0xa,
    geneve_tlv_option = 0xb,
    match_definer = 0x18,
    flow_sampler = 0x20,
    modify_argument = 0x23,
    aso_flow_meter = 0x24,
    aso_first_hit = 0x25,
    aso_connection = 0x31,
};

/// log2 of the bytes of ICM of each type.
inline constexpr unsigned log_steering_icm = 29, log_modify_header_icm = 25, log_modify_pattern_icm = 25;
inline constexpr unsigned log_icm_granularity = 12;
/// log2 of the modify-header arguments that one object may have.
inline constexpr unsigned log_modify_arguments = 10;
/// GENEVE_TLV_OPT objects at a time, and words of 4 bytes in the option that one names: what a card has whose flexible
/// parser is set up as it comes (FLEX_PARSER_PROFILE_ENABLE 0).
inline constexpr unsigned most_geneve_options = 1, geneve_option_length = 1;
inline constexpr std::uint16_t manager_vhca = 1;

/// Out of the environment: OVSDR_CONNECTX_PROFILE (cx5, cx6dx, cx7; default cx6dx), OVSDR_CONNECTX_VFS (default 2),
/// OVSDR_CONNECTX_DEFINERS (0 none, 1 as the soft NIC has them, 2 all that libmlx5 knows; default: 1 on cx7),
/// OVSDR_CONNECTX_ARGUMENTS (0, 1; default: 1 on cx7), OVSDR_CONNECTX_EVENTS (0, 1; default 1). Throws
/// std::invalid_argument.
[[nodiscard]] Profile profile_of_environment();

}   // namespace ovsdr::connectx
