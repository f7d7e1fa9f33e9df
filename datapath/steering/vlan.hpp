// VLAN tags in front of the ethertype: how all of the soft NIC goes through them.
//
// Two tags are followed, of 802.1Q (0x8100) and 802.1ad (0x88a8) in any order: as many as the device's parser knows,
// which has fields for a first and a second VLAN (PRM, fte_match_set_lyr_2_4 and fte_match_set_misc). What is behind
// them is the ethertype, a third tag's too: nobody looks behind that. A tag that is cut short is an ethertype as well.
//
// Who only takes the outermost tag away (pop_vlan, C-VLAN stripping) does not go through them and is not concerned.
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "datapath/steering/key.hpp"

namespace ovsdr::soft {

inline constexpr unsigned most_vlan_tags = 2;
inline constexpr std::uint32_t vlan_tag_size = 4;
inline constexpr std::uint16_t type_cvlan = 0x8100, type_svlan = 0x88a8;

[[nodiscard]] constexpr bool is_vlan(std::uint16_t type) noexcept { return type == type_cvlan || type == type_svlan; }

/// The ethertype behind a frame's tags.
struct EtherType {
    std::uint32_t offset;  ///< where it stands
    std::uint16_t type;
    std::uint16_t tags;    ///< before it
};

/// Calls on_tag(number, its type, its TCI in network order) for each tag. `size`: at least 14.
template <typename OnTag>
[[nodiscard]] inline EtherType follow_vlan_tags(const std::uint8_t* frame, std::uint32_t size, OnTag on_tag) noexcept {
    EtherType behind{.offset = 12, .type = load_be16(frame + 12), .tags = 0};
    while (behind.tags < most_vlan_tags && is_vlan(behind.type) && behind.offset + vlan_tag_size + 2 <= size) {
        on_tag(behind.tags, behind.type, frame + behind.offset + 2);
        behind.offset += vlan_tag_size;
        behind.type = load_be16(frame + behind.offset);
        ++behind.tags;
    }
    return behind;
}

/// The same for those whom the tags do not interest. A frame without an ethertype (below 14 bytes) has type 0 at 12.
[[nodiscard]] inline EtherType ethertype_of(const std::uint8_t* frame, std::uint32_t size) noexcept {
    if (size < 14) return {.offset = 12, .type = 0, .tags = 0};
    return follow_vlan_tags(frame, size, [](unsigned, std::uint16_t, const std::uint8_t*) {});
}

}  // namespace ovsdr::soft
