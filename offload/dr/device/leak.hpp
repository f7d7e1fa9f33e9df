// What becomes of an object that the device would not destroy.
//
// It is asked a second time: what failed once (memory, an interrupted command) need not stay. Then the object is leaked
// and counted, because the daemon that we live in must go on.
//
// Ownership makes EBUSY impossible (rule → actions, matcher → table → domain), but for what a leaked object still
// refers to; if it happens all the same it is a defect of ours: an assertion in debug builds.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace ovsdr::dr {

/// `code`: what a destroy function returned at last, 0 or an errno. True: the object is gone.
bool note_destroyed(int code) noexcept;

/// `call` destroys an object and returns 0 or an errno. True: the object is gone.
template <typename Call>
bool destroyed(Call&& call) noexcept {
    const int code = call();
    return code == 0 || note_destroyed(call());
}

/// Objects that were leaked since the process started.
[[nodiscard]] std::uint64_t leaked_objects() noexcept;

}  // namespace ovsdr::dr
