#include <config.h>

#include "tests/unit/ctrl/policer_probe.h"

#include <stdlib.h>

#include "shim/policer.h"
#include "util.h"

struct policer *
probe_policer_new(void)
{
    struct policer *policer = xmalloc(sizeof *policer);

    policer_init(policer);
    return policer;
}

void
probe_policer_free(struct policer *policer)
{
    policer_destroy(policer);
    free(policer);
}

bool
probe_policer_set(struct policer *policer, uint32_t kbits_rate, uint32_t kbits_burst, uint32_t kpkts_rate,
                  uint32_t kpkts_burst)
{
    struct policing limits = {kbits_rate, kbits_burst, kpkts_rate, kpkts_burst};

    return policer_set(policer, &limits);
}

bool
probe_policer_passes(struct policer *policer, uint32_t size, long long now_us)
{
    return policer_passes(policer, size, now_us);
}

uint64_t
probe_policer_dropped(struct policer *policer)
{
    return policer_dropped(policer);
}
