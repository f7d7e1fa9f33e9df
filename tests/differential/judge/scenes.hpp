// What becomes of a few megaflows while other things change, one after the other, as the scenario's changes hardly ever
// come. They are played before those.
//
// Threads: one. Errors: std::runtime_error where a megaflow is not in the NIC, or is, and should not be.
#pragma once

#include <functional>

#include "offload/dr/eswitch.hpp"

namespace ovsdr::differential {

/// One waits for a table, and changes while it waits. `trouble(1)`: the next call fails that makes something; 0: none.
/// The eswitch has this proof's ports.
void play_waiting(dr::Eswitch& eswitch, const std::function<void(unsigned nth)>& trouble);

/// Several come while the device is full, with each of the calls in turn that make something for them. `trouble` tells
/// for 0 whether a call has failed.
void play_full_device(dr::Eswitch& eswitch, const std::function<bool(unsigned nth)>& trouble, bool has_samplers);

/// Three tables of a tunnel port have a megaflow of one match each; one waits in a table for another one to go.
void play_twins(dr::Eswitch& eswitch);

/// Whether a rule uses a meter.
void play_meter(dr::Eswitch& eswitch);

/// As many samplers as a device has tables in a row, and one more, in a tunnel behind a meter too; and such as are
/// counted apart.
void play_samplers(dr::Eswitch& eswitch);

/// A storage mirror wants one packet of two.
void play_sampled_mirror(dr::Eswitch& eswitch, dr::CopyKind mirror, bool has_samplers);

}  // namespace ovsdr::differential
