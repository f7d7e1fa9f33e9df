#include "offload/dr/nic/held_mark.hpp"

namespace ovsdr::dr {

namespace {

MarkHolding holding;

}  // namespace

void on_marks(const MarkHolding& wanted) noexcept { holding = wanted; }

HeldMark::HeldMark(std::uint32_t mark) noexcept : mark_(mark) {
    if (mark_ != PlainFunction::no_mark && holding.hold != nullptr) holding.hold(mark_);
}

HeldMark::~HeldMark() {
    if (mark_ != PlainFunction::no_mark && holding.let_go != nullptr) holding.let_go(mark_);
}

}  // namespace ovsdr::dr
