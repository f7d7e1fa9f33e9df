// What has become of a megaflow's packet at some point of its actions.
//
// Threads: a value. Equal: the same bytes come out, whatever went in.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/differential/judge/set_action.hpp"
#include "tests/differential/judge/tunnel_push.hpp"

namespace ovsdr::differential {

using PushedTag = std::tuple<std::uint16_t, std::uint16_t, std::uint8_t>;   ///< TPID, VID, PCP

struct PacketShape {
    unsigned popped = 0;
    std::vector<PushedTag> pushed;
    std::map<std::pair<SetHeader, std::size_t>, std::pair<PatternBytes, PatternBytes>> written;   ///< value, mask
    std::optional<TunnelPush> tunnel;
    std::vector<PushedTag> tunnel_tags;   ///< in front of its headers

    void set(const SetAction& set) {
        for (std::size_t i = 0; i < set.fields.size(); ++i) {
            if (set.fields[i].mask == PatternBytes{}) continue;
            auto& [value, mask] = written[{set.header, i}];
            for (std::size_t k = 0; k < mask.size(); ++k) {
                const std::uint8_t bits = set.fields[i].mask[k];
                value[k] = static_cast<std::uint8_t>((value[k] & ~bits) | set.fields[i].value[k]);
                mask[k] |= bits;
            }
        }
    }
    auto operator<=>(const PacketShape&) const = default;
};

}  // namespace ovsdr::differential
