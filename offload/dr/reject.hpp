// Why a megaflow stays in software: a reason that is counted and a detail that names the field or action at fault.
#pragma once

#include <string>

namespace ovsdr::dr {

enum class RejectReason {
    unsupported_match,      ///< a field without a DR equivalent; detail: field
    unsupported_mask,       ///< a field that DR matches whole or not at all; detail: field and mask
    unsupported_action,     ///< detail: action
    unsupported_order,      ///< actions that the device does not take in this order
    recirculation,          ///< recirc_id is not 0
    in_port_not_offloaded,  ///< in_port is no dr port, or is not matched whole
    output_not_offloaded,   ///< an output to a port that is no vport of this device
    too_many_actions,
    device_limit,           ///< the device's profile lacks what is needed
};

struct Reject {
    RejectReason reason;
    std::string detail;
};

/// "unsupported match", as users read it.
[[nodiscard]] const char* name_of(RejectReason reason) noexcept;

}  // namespace ovsdr::dr
