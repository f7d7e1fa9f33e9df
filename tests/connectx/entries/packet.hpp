// A packet on its way through the eSwitch: the frame, and what the device knows of it besides.
//
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace ovsdr::connectx::entries {

/// FDB entries exist twice: for packets from the wire (RX) and for packets from vports (TX). NIC domains are one of the
/// two.
enum class Side : std::uint8_t { rx = 0, tx = 1 };

struct Packet {
    std::vector<std::uint8_t> bytes;   ///< without FCS
    Side side = Side::rx;
    std::uint16_t gvmi = 0;            ///< vhca id of the function that it comes from; 0 from the wire
    std::uint32_t queue = 0;           ///< number of the send queue that it was written to; 0 from the wire
    bool looped_back = false;          ///< on the RX side, and not from the wire
    std::uint32_t flow_tag = 0;        ///< 24 bits, for the completion
    std::uint32_t reg_a = 0, reg_b = 0;
    std::array<std::uint32_t, 8> reg_c{};
};

}  // namespace ovsdr::connectx::entries
