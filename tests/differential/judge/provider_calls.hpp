// The calls of offload/ to its provider that this program stands in front of: it counts those that wait, and makes one
// fail that waits, or that makes something. A wait: until rules are in the device (Domain::wait_written()). A drain:
// until no packet is under way on rules that went, too (Domain::drain()). Made are tables, matchers, rules and actions.
//
// Threads: any. Errors: std::runtime_error.
#pragma once

#include <functional>

#include "offload/dr/result.hpp"

namespace ovsdr::differential {

/// `attempt` waits so many times: with each of them failing in turn, and when it is asked again, too, it fails, else it
/// succeeds. It leaves nothing behind where it fails. `what`: begins a sentence.
void expect_waits(unsigned times, const char* what, const std::function<Result<void>()>& attempt);

/// The same of what it makes, so many things: there is no memory for one. What an attempt that failed keeps all the
/// same is not made by the next one, and does not fail.
void expect_makes(unsigned times, const char* what, const std::function<Result<void>()>& attempt);

/// One at least.
void expect_makes(const char* what, const std::function<Result<void>()>& attempt);

/// At least so many times. Others may drain, too, while `change` is under way.
void expect_drains(unsigned times, const char* what, const std::function<void()>& change);

}  // namespace ovsdr::differential
