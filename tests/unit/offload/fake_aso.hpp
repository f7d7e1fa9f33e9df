// Beside the recording provider: memory, a doorbell page and a send queue of DEVX, whose ACCESS_ASO requests a thread
// answers as a device would. Where the rings are it reads from CREATE_CQ and CREATE_SQ.
#pragma once

#include <array>
#include <cstdint>

namespace ovsdr::test {

struct FakeAso {
    /// Before the device is opened.
    static void install();
    /// Half `half` of a flow meter's object, as last written.
    [[nodiscard]] static std::array<std::uint8_t, 32> parameters(std::uint32_t object, unsigned half);
    [[nodiscard]] static unsigned requests();
};

}  // namespace ovsdr::test
