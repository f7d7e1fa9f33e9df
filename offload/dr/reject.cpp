#include "offload/dr/reject.hpp"

#include <fmt/format.h>

namespace ovsdr::dr {

StaticName name_of(RejectReason reason) noexcept {
    switch (reason) {
        case RejectReason::unsupported_match: return "unsupported match";
        case RejectReason::unsupported_mask: return "unsupported mask";
        case RejectReason::unsupported_action: return "unsupported action";
        case RejectReason::unsupported_order: return "unsupported order of actions";
        case RejectReason::recirculation: return "recirculation";
        case RejectReason::in_port_not_offloaded: return "in_port not offloaded";
        case RejectReason::output_not_offloaded: return "output not offloaded";
        case RejectReason::too_many_actions: return "too many actions";
        case RejectReason::policed_port: return "policed port";
        case RejectReason::device_limit: return "device limit";
    }
    return "unknown";
}

std::string text_of(const Obstacle& obstacle, const PortNames& names) {
    std::string text = fmt::format("{}: {}{}", name_of(obstacle.reason).text(), obstacle.name.text(), obstacle.value);
    if (!obstacle.port) return text;
    const auto known = names.find(*obstacle.port);
    if (known != names.end()) return text + ": " + known->second;
    return text + fmt::format(": datapath port {}", obstacle.port->value);
}

std::string text_of(const Reject& reject, const PortNames& names) {
    std::string text;
    for (const Obstacle& obstacle : reject.obstacles) {
        if (!text.empty()) text += "; ";
        text += text_of(obstacle, names);
    }
    return text;
}

}  // namespace ovsdr::dr
