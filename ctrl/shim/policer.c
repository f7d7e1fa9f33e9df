/* See policer.h. */
#include <config.h>

#include "shim/policer.h"

#include <string.h>

#include "util.h"

/* vswitchd.conf.db(5). */
enum { DEFAULT_KBITS_BURST = 8000, DEFAULT_KPKTS_BURST = 16 };

/* A bit, a packet: in tokens. */
#define ONE UINT64_C(1000000)
#define KILO UINT64_C(1000)

static struct policer_bucket
full_bucket(uint32_t rate, uint32_t burst, uint32_t default_burst)
{
    uint64_t size = (burst ? burst : default_burst) * KILO * ONE;

    return (struct policer_bucket) {.rate = rate, .size = size, .level = size};
}

static void
fill(struct policer_bucket *bucket, uint64_t ns)
{
    uint64_t missing = bucket->size - bucket->level;

    if (bucket->rate) {
        bucket->level = ns > missing / bucket->rate ? bucket->size : bucket->level + ns * bucket->rate;
    }
}

static bool
has(const struct policer_bucket *bucket, uint64_t tokens)
{
    return !bucket->rate || bucket->level >= tokens;
}

static void
take(struct policer_bucket *bucket, uint64_t tokens)
{
    if (bucket->rate) {
        bucket->level -= tokens;
    }
}

void
policer_init(struct policer *policer)
{
    memset(policer, 0, sizeof *policer);
    atomic_init(&policer->active, false);
    ovs_mutex_init(&policer->lock);
}

void
policer_destroy(struct policer *policer)
{
    ovs_mutex_destroy(&policer->lock);
}

bool
policer_set(struct policer *policer, const struct policing *limits)
{
    bool active = limits->kbits_rate || limits->kpkts_rate;

    ovs_mutex_lock(&policer->lock);
    if (memcmp(&policer->limits, limits, sizeof *limits)) {
        policer->limits = *limits;
        policer->bits = full_bucket(limits->kbits_rate, limits->kbits_burst, DEFAULT_KBITS_BURST);
        policer->packets = full_bucket(limits->kpkts_rate, limits->kpkts_burst, DEFAULT_KPKTS_BURST);
        atomic_store_relaxed(&policer->active, active);
    }
    ovs_mutex_unlock(&policer->lock);
    return active;
}

bool
policer_is_active(const struct policer *policer)
{
    bool active;

    atomic_read_relaxed(&CONST_CAST(struct policer *, policer)->active, &active);
    return active;
}

bool
policer_passes(struct policer *policer, uint32_t size, long long int now_us)
{
    uint64_t bits = size * UINT64_C(8) * ONE;
    bool passes;

    if (!policer_is_active(policer)) {
        return true;
    }
    ovs_mutex_lock(&policer->lock);
    /* Queues look at the clock one after another, and take this lock in any order. */
    if (now_us > policer->filled_us) {
        fill(&policer->bits, (now_us - policer->filled_us) * KILO);
        fill(&policer->packets, (now_us - policer->filled_us) * KILO);
        policer->filled_us = now_us;
    }
    passes = has(&policer->bits, bits) && has(&policer->packets, ONE);
    if (passes) {
        take(&policer->bits, bits);
        take(&policer->packets, ONE);
    } else {
        policer->dropped++;
    }
    ovs_mutex_unlock(&policer->lock);
    return passes;
}

uint64_t
policer_dropped(struct policer *policer)
{
    uint64_t dropped;

    ovs_mutex_lock(&policer->lock);
    dropped = policer->dropped;
    ovs_mutex_unlock(&policer->lock);
    return dropped;
}
