// The calls of offload/ to its provider that this program stands in front of: it counts those that wait, and makes one
// fail that waits, or that makes something. A wait: until rules are in the device (Domain::wait_written()). A drain:
// until no packet is under way on rules that went, too (Domain::drain()). Made are tables, matchers, rules and actions.
//
// Threads: any. Errors: std::runtime_error.
#pragma once

#include <functional>

#include "offload/dr/result.hpp"

namespace ovsdr::differential {

/// Runs `attempt` again and again, each time with another one of its waits failing (offload/ asks twice: both times),
/// until none fails. It must report an error where a wait has failed, and leave nothing behind; else it must succeed.
/// In all it waits `times` times. `what`: begins a sentence.
void expect_waits(unsigned times, const char* what, const std::function<Result<void>()>& attempt);

/// The same with what it makes: a call fails with ENOMEM. What a failed attempt keeps for later, as offload/ does with
/// counters' actions, the next attempt does not make, so that no call for it fails.
void expect_makes(unsigned times, const char* what, const std::function<Result<void>()>& attempt);

/// One call or more.
void expect_makes(const char* what, const std::function<Result<void>()>& attempt);

/// At least so many times. Others may drain, too, while `change` is under way.
void expect_drains(unsigned times, const char* what, const std::function<void()>& change);

}  // namespace ovsdr::differential
