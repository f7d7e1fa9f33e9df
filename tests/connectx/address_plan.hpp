// Where the device's address space has what: ICM that software allocates, and the places where steering ends.
//
// An address has 40 bits and is a multiple of 64. Software cannot tell these from any others: they are this device's
// choice.
#pragma once

#include <cstdint>

#include "tests/connectx/device.hpp"

namespace ovsdr::connectx::address_plan {

inline constexpr std::uint64_t steering = 0x10'0000'0000, modify_header = 0x20'0000'0000,
                               modify_pattern = 0x30'0000'0000;

inline constexpr std::uint64_t vport_rx = 0x50'0000'0000, vport_tx = 0x51'0000'0000, ends = 0x52'0000'0000,
                               tir = 0x53'0000'0000, table = 0x54'0000'0000, flow_meter = 0x55'0000'0000,
                               sampler = 0x56'0000'0000, queue_pair = 0x57'0000'0000, behind = 0x58'0000'0000;

inline constexpr std::uint64_t nic_rx_drop = ends, nic_tx_drop = ends + 0x40, nic_tx_allow = ends + 0x80,
                               fdb_rx_drop = ends + 0xc0, fdb_tx_drop = ends + 0x100;

/// For what has one address.
[[nodiscard]] constexpr std::uint64_t of(std::uint64_t base, std::uint32_t number) {
    return base + number * 64ULL;
}
/// For what has one on the RX side and one on the TX side.
[[nodiscard]] constexpr std::uint64_t of(std::uint64_t base, std::uint32_t number, unsigned side) {
    return base + number * 128ULL + side * 64U;
}

/// What an address stands for, if it is not of allocated ICM. Whether the object is there is not asked.
[[nodiscard]] constexpr AddressOwner owner_of(std::uint64_t address) {
    using Kind = AddressOwner::Kind;
    if (address < vport_rx || address >= behind || address % 64 != 0) return {};
    const std::uint64_t base = address & ~0xFFFF'FFFFULL;
    const auto one = static_cast<std::uint32_t>((address - base) / 64);
    const auto paired = [one](Kind kind) { return AddressOwner{kind, one / 2, static_cast<std::uint8_t>(one % 2)}; };
    switch (base) {
        case vport_rx:
            return {Kind::vport_rx, one};
        case vport_tx:
            return {Kind::vport_tx, one};
        case ends:
            return one > 4 ? AddressOwner{} : AddressOwner{address == nic_tx_allow ? Kind::nic_tx_allow : Kind::drop};
        case tir:
            return {Kind::tir, one};
        case table:
            return paired(Kind::table);
        case flow_meter:
            return paired(Kind::flow_meter);
        case sampler:
            return paired(Kind::sampler);
        default:
            return {Kind::queue_pair, one};
    }
}

}   // namespace ovsdr::connectx::address_plan
