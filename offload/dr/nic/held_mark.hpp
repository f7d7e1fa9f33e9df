// A number of the caller's that a megaflow's packets come up with, for as long as they may.
//
// The caller must not give the number to another megaflow meanwhile, whatever it believes to be deleted: a rule may be
// left to whoever deletes it, and one that waits for the device may be made later. So it is told of each holder.
#pragma once

#include <cstdint>
#include <utility>

#include "offload/dr/nic/plain_function.hpp"

namespace ovsdr::dr {

/// Called by the thread that puts or deletes the megaflow; as often as each other for a mark.
struct MarkHolding {
    void (*hold)(std::uint32_t mark) = nullptr;
    void (*let_go)(std::uint32_t mark) = nullptr;   ///< no tag stands for it any more, by this holder
};

/// One for the process, before the first mark.
void on_marks(const MarkHolding& holding) noexcept;

class HeldMark {
public:
    HeldMark() noexcept = default;
    explicit HeldMark(std::uint32_t mark) noexcept;
    HeldMark(HeldMark&& other) noexcept : mark_(std::exchange(other.mark_, PlainFunction::no_mark)) {}
    HeldMark& operator=(HeldMark&& other) noexcept {
        std::swap(mark_, other.mark_);
        return *this;
    }
    ~HeldMark();

    [[nodiscard]] std::uint32_t number() const noexcept { return mark_; }

private:
    std::uint32_t mark_ = PlainFunction::no_mark;
};

}  // namespace ovsdr::dr
