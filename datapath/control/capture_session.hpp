// `drnic capture`: one at a vport, for as long as the connection lasts that asked for it.
//
//   {"command": "capture", "port": 3 | "vm1" | "uplink", "direction": "in" | "out" | "both", "snap_length": N,
//    "buffer": bytes for each worker, a power of two, "program": [[code, jt, jf, k], …], "filter": "its text"}
//   {"command": "capture", "stop": true}    packets are final when the answer comes
//
// All but "port" may be left out. The answer to the first comes with the descriptor of the capture's memory
// (common/capture/memory.hpp) and has "device", "vport", "interfaces" (their names, in the order of their numbers) and
// "layout". Should the vport be removed, a line {"ended": "why"} comes unasked.
//
// Threads: the control thread.
#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "datapath/capture/capture.hpp"
#include "datapath/vport_id.hpp"

namespace ovsdr::soft {

class SoftDevice;
class SoftNic;
struct Session;

class CaptureSession {
public:
    CaptureSession(SoftNic& nic, SoftDevice& device, const nlohmann::json& request, pid_t peer);
    ~CaptureSession();
    CaptureSession(const CaptureSession&) = delete;
    CaptureSession& operator=(const CaptureSession&) = delete;

    [[nodiscard]] int descriptor() const noexcept { return capture_.descriptor(); }
    [[nodiscard]] nlohmann::json started() const;
    /// For `drnic list` and `drnic stats`.
    [[nodiscard]] nlohmann::json statistics() const;

    /// Why it has ended by itself; told once.
    [[nodiscard]] std::optional<std::string> take_end();

private:
    SoftNic& nic_;
    SoftDevice& device_;
    const VportId vport_;
    const pid_t peer_;
    const std::string direction_;
    const std::string filter_;
    Capture capture_;
    bool end_told_ = false;
};

/// The command's answer. Throws ConfigError.
[[nodiscard]] nlohmann::json capture_command(SoftNic& nic, Session& session, const nlohmann::json& request);

/// Statistics of all that run.
[[nodiscard]] nlohmann::json capture_list(const SoftNic& nic);

}  // namespace ovsdr::soft
