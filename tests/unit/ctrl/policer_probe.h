/* ctrl/shim/policer.h for C++, which cannot include OVS's headers. */
#ifndef TESTS_UNIT_CTRL_POLICER_PROBE_H
#define TESTS_UNIT_CTRL_POLICER_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct policer;

struct policer *probe_policer_new(void);
void probe_policer_free(struct policer *);
bool probe_policer_set(struct policer *, uint32_t kbits_rate, uint32_t kbits_burst, uint32_t kpkts_rate,
                       uint32_t kpkts_burst);
bool probe_policer_passes(struct policer *, uint32_t size, long long now_us);
uint64_t probe_policer_dropped(struct policer *);

#ifdef __cplusplus
}
#endif
#endif
