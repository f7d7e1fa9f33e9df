#include "offload/dr/reject.hpp"

namespace ovsdr::dr {

const char* name_of(RejectReason reason) noexcept {
    switch (reason) {
        case RejectReason::unsupported_match: return "unsupported match";
        case RejectReason::unsupported_mask: return "unsupported mask";
        case RejectReason::unsupported_action: return "unsupported action";
        case RejectReason::unsupported_order: return "unsupported order of actions";
        case RejectReason::recirculation: return "recirculation";
        case RejectReason::in_port_not_offloaded: return "in_port not offloaded";
        case RejectReason::output_not_offloaded: return "output not offloaded";
        case RejectReason::too_many_actions: return "too many actions";
        case RejectReason::device_limit: return "device limit";
    }
    return "unknown";
}

}  // namespace ovsdr::dr
