// What a plain function does beside an Eswitch's work: a function without rights on an eSwitch, such as a VF that was
// given to a guest. It has no FDB and no vports. It is one port, vport 0, and all that the NIC can do for it happens in
// its own NIC_RX and NIC_TX.
//
// Megaflows. One that drops is in NIC_RX as a whole. Any other is partly in the NIC: its packets come up with a flow
// tag that says whose they are, and the caller does all its actions. The caller knows the megaflow by a number of its
// own, its mark, and asks for the mark of each tag. A tag that has been given back comes again as another number.
//
// Threads: any. Nothing throws. No OVS.
#pragma once

#include <cstdint>

#include "offload/dr/ids.hpp"
#include "offload/dr/result.hpp"

namespace ovsdr::dr {

class PlainFunction {
public:
    static constexpr std::uint32_t no_mark = 0;

    /// Whose packets come up with this tag; no_mark: of no megaflow, or of one that has gone.
    [[nodiscard]] virtual std::uint32_t mark_of(std::uint32_t tag) const noexcept = 0;

    /// Down: NIC_RX and NIC_TX drop everything, and count it. Up at first. An error: the state is as it was.
    [[nodiscard]] virtual Result<void> set_up(bool up) noexcept = 0;
    [[nodiscard]] virtual bool is_up() const noexcept = 0;

    /// Asked of the device. Of the time that the port has been attached.
    struct Counts {
        std::uint64_t received_dropped = 0;   ///< by megaflows in NIC_RX
        std::uint64_t received_marked = 0;    ///< that came up with a megaflow's tag
        std::uint64_t received_down = 0;      ///< dropped in NIC_RX while the function was down
        std::uint64_t sent = 0;               ///< let through by NIC_TX
        std::uint64_t sent_down = 0;          ///< dropped there while the function was down
    };
    [[nodiscard]] virtual Counts counts() noexcept = 0;

protected:
    ~PlainFunction() = default;
};

}  // namespace ovsdr::dr
