// Ops whose outcome is no function of the packet: first hits, meters and tracked connections.
//
// Threads: the lane's worker.
#pragma once

#include "datapath/steering/dr_action.hpp"
#include "datapath/steering/program.hpp"

namespace ovsdr::soft {

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

}  // namespace ovsdr::soft
