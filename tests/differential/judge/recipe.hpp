// What a frame is made of, drawn so that a megaflow takes it, and then changed in one thing.
//
// A packet of a tunnel is a frame of the underlay, and in it another one.
//
// Threads: pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

struct TagOnWire {
    std::uint16_t tpid, tci;
};

/// What is not true of a tunnel's headers, or what no public document says how a device parses it.
enum class TunnelLie : std::uint8_t { none, udp_length, option_twice, reserved_bits, not_ethernet, checksum };

/// What a frame is made of.
struct Recipe {
    std::uint32_t in_port = 0;
    std::array<std::array<std::uint8_t, 16>, feature_length> values{};
    std::vector<TagOnWire> tags;
    std::uint16_t eth_type = 0;
    std::uint16_t fragment = 0;          ///< IPv4's flags and offset; IPv6 gets a fragment header of the same
    bool fragment_header = false;        ///< IPv6, also of no fragment
    std::size_t options = 0;             ///< words of IPv4 options; not 0: an IPv6 extension header
    std::uint8_t extension = 0;          ///< which one
    std::size_t cut = 0;                 ///< bytes that the IP payload is too short for its L4 header
    int length_lie = 0;                  ///< added to IPv4's total length
    std::uint8_t version_lie = 0;        ///< instead of the IP version
    std::uint8_t size_lie = 0;           ///< instead of IPv4's header size, in words: fewer than it may have
    bool llc = false;                    ///< an 802.3 frame: the ethertype is behind an LLC and SNAP header
    std::uint8_t offset_lie = 5;         ///< TCP's data offset, in words
    bool ipv6_length_lie = false;        ///< a payload beyond the frame
    bool chain_lie = false;              ///< IPv6 extension headers that the packet has no room for
    std::uint8_t fragment_lie = 0;       ///< reserved bits of an IPv6 fragment header
    std::size_t payload = 0;
    std::vector<Recipe> inner{};         ///< none, or the frame in a tunnel
    TunnelHeaders tunnel{};              ///< in front of it
    TunnelLie tunnel_lie = TunnelLie::none;
    std::size_t shortened_to = 0;        ///< bytes; 0: it is whole

    [[nodiscard]] std::array<std::uint8_t, 16>& operator[](Feature feature) {
        return values[static_cast<std::size_t>(feature)];
    }
    [[nodiscard]] const std::array<std::uint8_t, 16>& operator[](Feature feature) const {
        return values[static_cast<std::size_t>(feature)];
    }
    [[nodiscard]] std::uint8_t byte(Feature feature) const { return (*this)[feature][15]; }
    [[nodiscard]] std::uint32_t label() const {
        return (static_cast<std::uint32_t>((*this)[Feature::label][13]) << 16 | half(Feature::label)) & 0xFFFFF;
    }
    [[nodiscard]] std::uint16_t half(Feature feature) const {
        return static_cast<std::uint16_t>((*this)[feature][14] << 8 | (*this)[feature][15]);
    }
    [[nodiscard]] std::uint32_t word(Feature feature) const {
        const auto& value = (*this)[feature];
        return static_cast<std::uint32_t>(value[12] << 8 | value[13]) << 16 | half(feature);
    }
};

/// A packet of this megaflow, which is no tunnel port's, as it comes from its in_port. If it pops into a tunnel there
/// is a frame inside.
[[nodiscard]] Recipe aimed_at(const Megaflow& megaflow, Chance& chance);
/// Changes one thing; bits, such as the megaflow looks at.
void change(Recipe& recipe, const Megaflow& megaflow, Chance& chance);
/// Makes a header say what is not true, where only a card can tell what it makes of it.
void lie(Recipe& recipe, Chance& chance);
/// Draws what the masks leave open anew: features of the frame as it comes in, and of the one in its tunnel.
using Masks = std::array<PatternBytes, feature_length>;
struct MasksOfFrame {
    Masks outer{}, inner{};
};
void vary(Recipe& recipe, const MasksOfFrame& masks, Chance& chance);

/// The feature of the underlay's frame that a tunnel's feature is, if it is one of IP or UDP.
[[nodiscard]] Feature in_underlay(Feature feature);

/// `number`: the last four bytes.
[[nodiscard]] std::vector<std::uint8_t> frame_of(const Recipe& recipe, std::uint32_t number, Chance& chance);

/// What follows the markers' megaflows.
[[nodiscard]] std::vector<std::uint8_t> marker_frame(std::uint32_t number);
/// What follows the megaflow that priming this meter meets.
[[nodiscard]] std::vector<std::uint8_t> priming_frame(std::uint32_t meter, std::uint32_t number);

}  // namespace ovsdr::differential
