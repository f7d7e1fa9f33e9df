// Ops whose outcome is no function of the packet: first hits, meters and tracked connections.
//
// An outcome is what goes into the low byte of a register. There are few of them: 0 and 1 of a first hit, the colours
// of a meter, five verdicts on a segment. None has a bit between the highest two and the lowest two, so 16 bits hold
// a set of them.
//
// Threads: the lane's worker.
#pragma once

#include <bit>

#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/key.hpp"
#include "datapath/steering/program.hpp"

namespace ovsdr::soft {

[[nodiscard]] constexpr bool is_stateful(OpCode code) noexcept {
    return code == OpCode::first_hit || code == OpCode::meter || code == OpCode::flow_meter ||
           code == OpCode::connection;
}

struct StatefulUse {
    Meter* meter;        ///< nullptr for what is no meter
    Colour colour;       ///< that a packet comes in with; undefined: what its register holds
    std::uint8_t reg_c;  ///< gets the outcome in its low byte
    bool active;         ///< a legacy meter that is switched off does nothing
    ConnTrack* connection = nullptr;
};

[[nodiscard]] inline StatefulUse stateful_use(const Op& op) noexcept {
    void* object = const_cast<void*>(op.object);
    if (op.code == OpCode::flow_meter) {
        auto* legacy = static_cast<FlowMeter*>(object);
        return {&legacy->meter, legacy->meter.start_colour(), legacy->reg_c,
                legacy->active.load(std::memory_order_relaxed)};
    }
    const auto reg_c = static_cast<std::uint8_t>(op.argument >> 8);
    if (op.code == OpCode::first_hit) return {nullptr, Colour::red, reg_c, true};
    if (op.code == OpCode::connection) return {nullptr, Colour::red, reg_c, true, static_cast<ConnTrack*>(object)};
    auto* meter = static_cast<Meter*>(object);
    const auto colour = static_cast<Colour>(op.argument & 3);
    return {meter, colour == Colour::undefined ? meter->start_colour() : colour, reg_c, true};
}

/// Whether the outcome may depend on what its register holds, now or once the meter's parameters are others: on the
/// colour there, or because a legacy meter that is switched off leaves it.
[[nodiscard]] inline bool reads_register(const Op& op) noexcept {
    if (op.code == OpCode::flow_meter) return true;
    return op.code == OpCode::meter && static_cast<Colour>(op.argument & 3) == Colour::undefined;
}

/// Sets of outcomes.
namespace outcomes {

/// The set of `outcome` alone.
[[nodiscard]] constexpr std::uint16_t of(std::uint8_t outcome) noexcept {
    return static_cast<std::uint16_t>(1U << ((outcome >> 4 & 12) | (outcome & 3)));
}
/// Whether there is such a set.
[[nodiscard]] constexpr bool holds(std::uint8_t outcome) noexcept { return (outcome & 0x3c) == 0; }

/// One of a set that is not empty.
[[nodiscard]] constexpr std::uint8_t first_of(std::uint16_t set) noexcept {
    const auto number = static_cast<unsigned>(std::countr_zero(set));
    return static_cast<std::uint8_t>((number & 12) << 4 | (number & 3));
}

/// All that can come out of `op` where its register's low byte is `held`, whatever the parameters of a meter are.
/// Empty: no set holds them.
[[nodiscard]] inline std::uint16_t possible(const Op& op, std::uint8_t held) noexcept {
    constexpr std::uint16_t colours = of(0) | of(1) | of(2);
    switch (op.code) {
        case OpCode::first_hit: return of(0) | of(1);
        case OpCode::connection:
            return of(0) | of(ConnTrack::state_changed) | of(ConnTrack::invalid) |
                   of(ConnTrack::invalid | ConnTrack::bad_packet) | of(ConnTrack::trap);
        case OpCode::flow_meter:
            return holds(held) ? static_cast<std::uint16_t>(colours | of(held & 3) | of(held)) : std::uint16_t{0};
        default: {
            if (reads_register(op)) return static_cast<std::uint16_t>(colours | of(held & 3));
            // A packet never leaves a meter with a better colour than it came with.
            return static_cast<std::uint16_t>((2U << (op.argument & 3)) - 1);
        }
    }
}

}  // namespace outcomes

}  // namespace ovsdr::soft
