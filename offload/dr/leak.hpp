// What becomes of an object that the device would not destroy.
//
// Ownership makes EBUSY impossible (rule → actions, matcher → table → domain); if it happens all the same it is a defect of
// ours: an assertion in debug builds. In release builds the object is leaked and counted, because the daemon that we live
// in must go on.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace ovsdr::dr {

/// `code`: what a destroy function returned, 0 or an errno.
void note_destroyed(int code) noexcept;

/// Objects that were leaked since the process started.
[[nodiscard]] std::uint64_t leaked_objects() noexcept;

}  // namespace ovsdr::dr
