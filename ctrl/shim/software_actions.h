/* Which parts of an action list are software's work on a copy of the packet (ctrl/shim/copies.h).
 *
 * Pure functions: any thread. They read nothing behind the size that they are given, whatever the attributes claim.
 */
#ifndef CTRL_SHIM_SOFTWARE_ACTIONS_H
#define CTRL_SHIM_SOFTWARE_ACTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nlattr;

/* A userspace action that OVS does beside forwarding the packet: a sample, a packet for a controller. Not one of OVS's
 * own slow path (BFD, LACP, ...): that does to the packet all that is done to it. */
bool is_userspace_beside(const struct nlattr *action);

/* How many bytes of the list are the work that it begins with, 0 if it begins with none. `size` is the list's; `*last`
 * becomes the action that ends the work, and stays as it is where there is none.
 *
 * userspace(...)                  is one
 * meter(N),userspace(...)         at the end of the list, where nothing else depends on the meter
 * trunc(N),...,output or userspace  with changes of the packet in between, which the packet itself goes through too */
size_t software_work_size(const struct nlattr *list, size_t size, const struct nlattr **last);

/* Whether the work is trunc(N),output(P) and nothing else; then `*cut_at` becomes the most
 * bytes that are put out, which is never 0, and `*port` P. */
bool is_cut_output(const struct nlattr *work, size_t size, uint32_t *cut_at, uint32_t *port);

/* Whether all of the list is software's: a sample's, mostly. */
bool is_software_work(const struct nlattr *list, size_t size);

/* How many bytes of software's work are the meter that it begins with, whose number `*number` becomes; 0: it begins
 * with something else, or there is nothing behind the meter, or the same meter again. */
size_t meter_in_front(const struct nlattr *work, size_t size, uint32_t *number);

/* Whom a copy with this work is for, by the first of the work's userspace actions: "sflow", "ipfix", "flow_sample",
 * "controller"; static storage. NULL: the work has none. */
const char *sampler_of_work(const struct nlattr *work, size_t size);

/* One of how many packets a sample takes that has this probability; 0: it is no such part. */
uint32_t one_of_how_many(uint32_t probability);

#endif
