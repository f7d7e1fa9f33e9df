// Faults on demand: `drnic fault CALL ERRNO N` makes the Nth next call of an exported function fail.
//
// Every exported function that creates, changes or commands something asks here first. No fault armed costs one
// relaxed load.
//
// "work_request_send" and "work_request_receive" are no functions: the Nth next request of a raw packet queue completes
// with an error, and the queue fails as a device's does (EMSGSIZE: local length error, EFAULT: local protection error,
// any other: general error). "work_request_aso" does the same to the Nth next ACCESS_ASO of any queue: the object stays
// as it was.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ovsdr::soft {

/// The errno that this call of `call` must fail with now, or 0. Threads: any. Called per packet only where
/// faults_are_armed().
[[nodiscard]] int injected_fault(std::string_view call) noexcept;
/// One relaxed load. For a batch.
[[nodiscard]] bool faults_are_armed() noexcept;

/// Arms: the `nth` call of `call` from now on (1 is the next one) fails with `error`, once. Replaces an earlier arming
/// of the same call.
void arm_fault(std::string_view call, int error, unsigned nth);

struct ArmedFault {
    std::string call;
    int error;
    unsigned calls_left;   ///< 1: the next one fails
};
/// Those that have not happened yet.
[[nodiscard]] std::vector<ArmedFault> armed_faults();
void disarm_faults() noexcept;

/// Every name that some function asks injected_fault() with, sorted. A fault of another name would never happen.
[[nodiscard]] std::span<const std::string_view> fault_points() noexcept;

}  // namespace ovsdr::soft
