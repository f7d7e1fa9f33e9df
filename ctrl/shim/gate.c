/* See gate.h. */
#include <config.h>

#include "shim/gate.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "openvswitch/vlog.h"
#include "ovs-atomic.h"

VLOG_DEFINE_THIS_MODULE(gate);

static struct vlog_rate_limit limit = VLOG_RATE_LIMIT_INIT(1, 5);

/* Held by the main thread alone, by changes of flows together. Prefers the main thread. */
static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static atomic_uint n_closings = 1;

static __thread bool closed_by_me;
static __thread unsigned int gave_up_at;    /* Of n_closings; 0: never. */

enum { PATIENCE_MS = 100 };

static struct timespec
in_ms(long ms)
{
    struct timespec when;

    clock_gettime(CLOCK_MONOTONIC, &when);
    when.tv_nsec += ms * 1000000;
    if (when.tv_nsec >= 1000000000) {
        when.tv_sec++;
        when.tv_nsec -= 1000000000;
    }
    return when;
}

enum gate_entry
gate_enter(void)
{
    struct timespec until;
    unsigned int closing;

    if (closed_by_me) {
        return GATE_NO_USE;
    }
    atomic_read(&n_closings, &closing);
    if (!pthread_rwlock_tryrdlock(&gate)) {
        return GATE_ENTERED;
    }
    if (closing == gave_up_at) {
        return GATE_NO_USE;
    }
    until = in_ms(PATIENCE_MS);
    if (!pthread_rwlock_clockrdlock(&gate, CLOCK_MONOTONIC, &until)) {
        return GATE_ENTERED;
    }
    gave_up_at = closing;
    VLOG_WARN_RL(&limit, "the main thread is busy: flows' last statistics may be short");
    return GATE_TIMED_OUT;
}

void
gate_leave(enum gate_entry entry)
{
    if (entry == GATE_ENTERED) {
        pthread_rwlock_unlock(&gate);
    }
}

void
gate_close(void)
{
    unsigned int before;

    pthread_rwlock_wrlock(&gate);
    closed_by_me = true;
    atomic_add(&n_closings, 1, &before);
}

void
gate_open(void)
{
    closed_by_me = false;
    pthread_rwlock_unlock(&gate);
}
