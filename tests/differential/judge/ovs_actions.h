/* What the judge changes in a megaflow's list of OVS's actions, and in the lists in it.
 *
 * Threads: pure.
 */
#ifndef TESTS_DIFFERENTIAL_JUDGE_OVS_ACTIONS_H
#define TESTS_DIFFERENTIAL_JUDGE_OVS_ACTIONS_H

#include <stddef.h>

#include "netlink.h"

/* Has samples take every packet. Which ones a sampler takes is chance: verdicts have what it could take, and
 * sampled.hpp knows how many it should. */
void ovs_sample_all(struct nlattr *actions, size_t size);

/* Clears what OVS's reader of texts leaves unset: equal texts must be equal lists to who compares bytes. */
void ovs_clear_unset(struct nlattr *actions, size_t size);

#endif
