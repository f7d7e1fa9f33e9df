// A capture's rings, read as one: records in the order of their times.
#pragma once

#include <optional>
#include <vector>

#include "common/capture/memory.hpp"

namespace ovsdr::drnic {

class CaptureReader {
public:
    explicit CaptureReader(const capture::Memory& memory);

    /// The oldest record; its bytes are valid until the next call. While packets still come, those of the last moment
    /// are held back if there are several rings: a worker may be about to publish an older one. Throws
    /// std::runtime_error when a ring is damaged.
    [[nodiscard]] std::optional<capture::Consumer::Record> next(bool packets_still_come);

    /// Sums over rings.
    [[nodiscard]] capture::Counts counts(unsigned interface) const noexcept;

private:
    std::vector<capture::Consumer> rings_;
    capture::Consumer* last_ = nullptr;  ///< whose record next() has returned
};

/// The clock of records, ns.
[[nodiscard]] std::uint64_t monotonic_now() noexcept;

}  // namespace ovsdr::drnic
