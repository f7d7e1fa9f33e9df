// Options of an interface of type=drmirror, as a user writes them and as the mirror takes them.
//
// Every option is understood whole or refused, with its name, its value and what would be right. What they mean is in
// docs/storage-mirror.md.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "offload/dr/result.hpp"
#include "offload/dr/software.hpp"
#include "offload/mirror/collector_address.hpp"
#include "offload/mirror/wire/segment.hpp"

namespace ovsdr::ctrl {

struct MirrorOption {
    std::string_view key, value;
};

struct MirrorOptions {
    // What a session is made of: another value begins another session.
    mirror::CollectorAddress collector{};
    std::vector<mirror::CollectorAddress> standby{};   ///< tried in this order when it cannot be reached
    bool plain = false;                   ///< the handshake; else with TLS
    mirror::Geometry geometry{};
    std::uint16_t application_tag = 0;
    std::uint32_t snap_length = 0;        ///< bytes of a frame; 0: all that a segment can hold
    std::string device;                   ///< empty: that of the dr ports
    int gid_index = -1;                   ///< -1: the first that is not link-local

    dr::MirrorSteering steering{};

    [[nodiscard]] bool needs_other_session(const MirrorOptions& other) const noexcept;
};

/// EINVAL, with a sentence for the user. A device is not asked for.
[[nodiscard]] Result<MirrorOptions> parse_mirror_options(std::span<const MirrorOption> options);

}  // namespace ovsdr::ctrl
