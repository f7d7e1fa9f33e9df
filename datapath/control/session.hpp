// What a connection to the control socket holds in the NIC. It goes when the connection does, however that ends.
#pragma once

#include <sys/types.h>

#include <memory>

#include "datapath/control/capture_session.hpp"

namespace ovsdr::soft {

struct Session {
    pid_t peer = 0;  ///< the process that connected, 0 where the system does not say
    std::unique_ptr<CaptureSession> capture;
    int descriptor = -1;  ///< goes with the next answer, -1 for none; `capture` owns it
};

}  // namespace ovsdr::soft
