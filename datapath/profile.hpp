// Device profiles: what each ConnectX generation can and cannot do, as facts that steering and the DEVX capability
// queries read. Chosen per device in the configuration ("profile": "connectx-6dx").
#pragma once

#include <cstdint>
#include <string_view>

namespace ovsdr::soft {

struct Profile {
    std::string_view name;              ///< as written in the configuration
    std::uint16_t pci_device_id;        ///< vendor is 0x15b3 on PCI and 0x02c9 in ibv_device_attr
    std::uint8_t steering_format;       ///< sw_format_ver of the capabilities: 0 ConnectX-5, 1 ConnectX-6 Dx, 2 ConnectX-7
    bool counts_before_pop;             ///< STE v0 counts received bytes before pop and decapsulation, v1 after
    bool aso_flow_meter;                ///< ACCESS_ASO meters; ConnectX-5 has none
};

inline constexpr Profile connectx_5{"connectx-5", 0x1019, 0, true, false};
inline constexpr Profile connectx_6dx{"connectx-6dx", 0x101d, 1, false, true};
inline constexpr Profile connectx_7{"connectx-7", 0x1021, 2, false, true};

/// nullptr for a name that is no profile.
[[nodiscard]] constexpr const Profile* profile_named(std::string_view name) noexcept {
    for (const Profile* profile : {&connectx_5, &connectx_6dx, &connectx_7}) {
        if (profile->name == name) return profile;
    }
    return nullptr;
}

}  // namespace ovsdr::soft
