// What becomes of megaflows when there are many of them, or when the device goes on refusing some: whose counts are
// read, whose turn it is, and how often a device that is full is asked.
//
// All but check_first() are played on an eswitch that has this proof's ports and no megaflow, over an emulated ConnectX
// whose calls can fail.
//
// Threads: one. Errors: std::runtime_error, which says what is not as it should be.
#pragma once

#include "offload/dr/eswitch.hpp"
#include "tests/connectx/device.hpp"

namespace ovsdr::differential {

/// Each takes its own packets of megaflows that differ in a value that no two of one program may differ in
/// (offload/dr/plan_cache.hpp): there are enough for some to meet in one place of the cache.
void check_shapes(dr::Eswitch& eswitch, connectx::Device& device, bool parses_icmp);

/// Megaflows of one shape into one tunnel: the outer source port is of each, not of all.
void check_source_ports(dr::Eswitch& eswitch, connectx::Device& device);

/// Megaflows of fragments and whole packets take fragments only where OVS would.
void check_fragments(dr::Eswitch& eswitch, connectx::Device& device);

/// Some are refused always: the others get in all the same, and the device is not asked each time.
void check_turns(dr::Eswitch& eswitch, connectx::Device& device);

/// The device says of a rule that it has one like it.
void check_same_rule(dr::Eswitch& eswitch, connectx::Device& device);

/// One waits for a table. Then it changes, so that it needs that table no more, and the device is full: it gets in when
/// there is room.
void check_parked(dr::Eswitch& eswitch, connectx::Device& device);

/// A Geneve option is refused so often that whoever wants it waits, and nobody else comes.
void check_lone_option(dr::Eswitch& eswitch, connectx::Device& device);

/// Geneve's OAM flag is matched where a megaflow asks for it, and only there.
void check_flags(dr::Eswitch& eswitch, connectx::Device& device);

/// A tunnel port comes to which thousands belong.
void check_many_in_tunnel(dr::Eswitch& eswitch);

/// What an eswitch's very first megaflows count is read, though none has gone yet. It opens an eswitch of its own.
void check_first(connectx::Device& device);

/// More than can be asked for their counts one by one; then the device has no more counters, some go, and others come.
/// Behind all that lets any call fail: from then on counters are made ahead, in another thread.
void check_many(dr::Eswitch& eswitch, connectx::Device& device);

}  // namespace ovsdr::differential
