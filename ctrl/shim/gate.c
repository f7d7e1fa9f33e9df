/* The lock between dpif_run() and changes of flows. See gate.h. */
#include <config.h>

#include "shim/gate.h"

#include <pthread.h>
#include <time.h>

#include "openvswitch/vlog.h"

VLOG_DEFINE_THIS_MODULE(gate);

static struct vlog_rate_limit limit = VLOG_RATE_LIMIT_INIT(1, 5);

/* Held by dpif_run() alone, by changes together. Prefers dpif_run(). */
static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static __thread bool in_dpif_run;

enum { PATIENCE_MS = 100 };

bool
gate_enter(void)
{
    struct timespec until;

    if (in_dpif_run) {
        return false;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PATIENCE_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    if (pthread_rwlock_clockrdlock(&gate, CLOCK_MONOTONIC, &until)) {
        VLOG_WARN_RL(&limit, "the main thread is busy: a flow's last statistics may be short");
        return false;
    }
    return true;
}

void
gate_leave(bool entered)
{
    if (entered) {
        pthread_rwlock_unlock(&gate);
    }
}

void
gate_close(void)
{
    pthread_rwlock_wrlock(&gate);
    in_dpif_run = true;
}

void
gate_open(void)
{
    in_dpif_run = false;
    pthread_rwlock_unlock(&gate);
}
