/* OVS's own software datapath as a judge: its flow extraction, its classifier, its actions.
 *
 * Megaflows and actions come as text, as ovs-dpctl(8) takes them; they are also given as ctrl/'s shim passes them to
 * offload/.
 *
 * Threads: one at a time.
 */
#ifndef TESTS_DIFFERENTIAL_JUDGE_OVS_H
#define TESTS_DIFFERENTIAL_JUDGE_OVS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/dr/megaflow.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ovs_judge;

struct ovs_judge *ovs_judge_create(void);
void ovs_judge_destroy(struct ovs_judge *);

/* How many tags OVS parses, of megaflows and packets, from now on: other_config:vlan-limit. */
void ovs_judge_limit_vlans(int limit);

struct ovs_judge_megaflow {
    const char *match, *actions;
    int looks_at_tags;   /* 0: whatever tags there are; 1: not at the second; 2: at both, where the text has none too */
};

/* The next megaflow: they are numbered from 0. `error`, if false is returned, points at a static buffer. */
bool ovs_judge_add(struct ovs_judge *, const struct ovs_judge_megaflow *, struct ovsdr_megaflow *, const char **error);

typedef void ovs_judge_output(void *aux, uint32_t port, const uint8_t *bytes, size_t size);

/* The number of the megaflow that takes the packet, -1 for none. Calls `output` in the order of outputs. */
int ovs_judge_forward(struct ovs_judge *, uint32_t in_port, const uint8_t *bytes, size_t size, ovs_judge_output *,
                      void *aux);

#ifdef __cplusplus
}
#endif
#endif
