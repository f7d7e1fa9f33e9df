// Faults on demand: `drnic fault CALL ERRNO N` makes the Nth next call of an exported function fail.
//
// Every exported function that creates, changes or commands something asks here first. No fault armed costs one
// relaxed load.
#pragma once

#include <string>
#include <string_view>

namespace ovsdr::soft {

/// The errno that this call of `call` must fail with now, or 0. Threads: any. Never called per packet.
[[nodiscard]] int injected_fault(std::string_view call) noexcept;

/// Arms: the `nth` call of `call` from now on (1 is the next one) fails with `error`, once. Replaces an earlier arming
/// of the same call.
void arm_fault(std::string_view call, int error, unsigned nth);

/// Whether `call` is a function that this library exports, or an inline one of the public headers. Where the soft NIC is not the drop-in library (unit tests
/// link it into a program), every name will do.
[[nodiscard]] bool can_fault(const std::string& call);

}  // namespace ovsdr::soft
