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
/// for 0 whether a call has failed. Then each is put again, which makes nothing, and one like it, which makes one rule.
void play_full_device(dr::Eswitch& eswitch, const std::function<bool(unsigned nth)>& trouble, bool has_samplers);

/// A Geneve option comes while the device is full, and another one while that is there.
void play_options(dr::Eswitch& eswitch, const std::function<bool(unsigned nth)>& trouble);

/// What megaflows lead to is in the device before them, and goes when no packet is under way to it.
void play_syncs(dr::Eswitch& eswitch, bool has_samplers);

/// Megaflows that differ in what no device matches, in a tag, or in what software is to do: each has its own
/// actions.
void play_alike(dr::Eswitch& eswitch, bool has_samplers);

/// Megaflows whose mask has the whole TPID and nothing of the TCI, as some that went through netlink, or has less than
/// OVS asks for, or bits that are 0 in every packet.
void play_loose_masks(dr::Eswitch& eswitch, bool parses_icmp);

/// Counters that cannot be read are told of.
void play_failed_read(dr::Eswitch& eswitch, const std::function<void()>& fail_next_read,
                      const std::function<bool(unsigned nth)>& trouble, bool has_samplers);

/// Three tables of a tunnel port have a megaflow of one match each; one waits in a table for another one to go.
void play_twins(dr::Eswitch& eswitch);

/// Rules have no more tables of their own than the order of their actions needs.
void play_tables(dr::Eswitch& eswitch, bool is_connectx_5);

/// Megaflows of tunnels that ask for less than OVS does, or for what is always 0; and the shortest header.
void play_loose_tunnels(dr::Eswitch& eswitch);

/// Whether a rule uses a meter, and at which rate.
void play_meter(dr::Eswitch& eswitch);

/// Several meters, each of which is to have a place of its own in the device.
void play_meters(dr::Eswitch& eswitch);

/// As many outputs as a megaflow may have, to ports that are gone; one comes back.
void play_flood(dr::Eswitch& eswitch);

/// As many samplers as a device has tables in a row, and one more, in a tunnel behind a meter too; and such as are
/// counted apart.
void play_samplers(dr::Eswitch& eswitch);

/// A storage mirror wants one packet of two.
void play_sampled_mirror(dr::Eswitch& eswitch, dr::CopyKind mirror, bool has_samplers);

/// Packets are led to another queue like the one before, and to another one again.
void play_next_queue(const dr::Eswitch& eswitch, const std::function<void()>& lead_to_next);

/// A mirror's services change while it has a queue and while it has none, in another order, and while calls fail.
void play_services(dr::Eswitch& eswitch, dr::CopyKind mirror, const std::function<bool(unsigned nth)>& trouble,
                   const std::function<void()>& lead);

}  // namespace ovsdr::differential
