// The calls of offload/ to its provider that this program stands in front of: it counts those that wait, and makes one
// fail that waits, or that makes something. A wait: until rules are in the device (Domain::wait_written()). A drain:
// until no packet is under way on rules that went, too (Domain::drain()). Made are tables, matchers, rules and actions.
//
// Threads: any. Errors: std::runtime_error.
#pragma once

#include <functional>

namespace ovsdr::differential {

struct Syncs {
    unsigned waits = 0, drains = 0;
};
/// That have been called since the call before.
Syncs take_syncs();

/// The `nth` wait from now on (1: the next one) fails, and so does that which repeats it; 0: none. Tells whether the
/// one of before has failed.
bool fail_wait(unsigned nth);

/// `attempt` waits so many times: with each of them failing in turn it fails, too, else it succeeds. It leaves nothing
/// behind where it fails. `what`: begins a sentence.
void expect_waits(unsigned times, const char* what, const std::function<bool()>& attempt);

/// The same of what it makes, one thing at least. With no memory for it.
void expect_makes(const char* what, const std::function<bool()>& attempt);

/// At least so many times. Others may drain, too, while `change` is under way.
void expect_drains(unsigned times, const char* what, const std::function<void()>& change);

}  // namespace ovsdr::differential
