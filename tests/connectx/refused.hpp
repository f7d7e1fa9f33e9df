// How a call of the kernel fails: thrown by whoever finds out, caught where the call came in (uverbs.cpp,
// firmware.cpp).
#pragma once

#include <cstdint>
#include <string>

namespace ovsdr::connectx {

/// The kernel refuses: `error` becomes errno, `why` goes into the log.
struct Refused {
    int error;
    std::string why;
};

/// Something that a real device may well do and this one does not. EOPNOTSUPP to the caller (EPROTONOSUPPORT would make
/// libibverbs try an older ABI), its name into the log, and into Device::not_emulated().
struct NotEmulated {
    std::string what;
};

/// Firmware refuses a command: EREMOTEIO to the caller, the status in the command's answer.
struct BadStatus {
    /// MLX5_CMD_STAT_* of the PRM, those that are used here.
    enum Status : std::uint8_t {
        bad_operation = 0x2,
        bad_parameter = 0x3,
        bad_resource = 0x5,
        exceeds_limit = 0x8,
        bad_resource_state = 0x9,
        no_resources = 0xf,
        bad_input_length = 0x50,
        bad_output_length = 0x51,
    };
    Status status;
    std::string why;
};

}   // namespace ovsdr::connectx
