/* See offload_sleep.h. */
#include <config.h>

#include "shim/offload_sleep.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hash.h"
#include "ovs-rcu.h"
#include "shim/real.h"

/* More than there are offload threads: two queues hardly share one. */
enum { N_BELLS = 64 };

/* A thread that is woken again so soon lets megaflows gather for that long. */
enum { SOON_NS = 5000000, GATHER_NS = 1000000 };

static struct bell {
    _Alignas(64) atomic_uint rung;      /* Changes whenever something was put into the queue. */
    atomic_uint sleepers;
} bells[N_BELLS];

/* Of the queue that this thread looked into last; NULL: into none. */
static __thread struct bell *my_bell;
static __thread unsigned int rung_at_look;

/* When this thread was woken last, CLOCK_MONOTONIC. */
static __thread uint64_t woken_at;

/* Of a thread that has packets to send first: whom it has not woken yet. */
static __thread bool holds;
static __thread struct bell *held;

static struct bell *
bell_of(const struct mpsc_queue *queue)
{
    return &bells[hash_pointer(queue, 0) % N_BELLS];
}

void
offload_sleep_look(const struct mpsc_queue *queue)
{
    my_bell = bell_of(queue);
    rung_at_look = atomic_load(&my_bell->rung);
}

static void
wake_sleepers(struct bell *bell)
{
    if (atomic_load(&bell->sleepers)) {
        syscall(SYS_futex, &bell->rung, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

void
offload_sleep_wake(const struct mpsc_queue *queue)
{
    struct bell *bell = bell_of(queue);

    atomic_fetch_add(&bell->rung, 1);
    if (!holds) {
        wake_sleepers(bell);
        return;
    }
    if (held && held != bell) {
        wake_sleepers(held);
    }
    held = bell;
}

void
offload_sleep_hold(void)
{
    holds = true;
}

void
offload_sleep_release(void)
{
    if (held) {
        wake_sleepers(held);
    }
    held = NULL;
    holds = false;
}

static uint64_t
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

static bool
woken_again(void)
{
    uint64_t before = woken_at;

    woken_at = now();
    return woken_at - before < SOON_NS;
}

void
offload_sleep(uint64_t nanoseconds)
{
    enum { NS_PER_S = 1000000000 };
    const struct timespec longest = {.tv_sec = nanoseconds / NS_PER_S, .tv_nsec = nanoseconds % NS_PER_S};
    const struct timespec a_moment = {.tv_nsec = GATHER_NS};

    if (!my_bell) {
        real_xnanosleep(nanoseconds);
        return;
    }
    ovsrcu_quiesce_start();
    atomic_fetch_add(&my_bell->sleepers, 1);
    syscall(SYS_futex, &my_bell->rung, FUTEX_WAIT_PRIVATE, rung_at_look, &longest, NULL, 0);
    atomic_fetch_sub(&my_bell->sleepers, 1);
    if (atomic_load(&my_bell->rung) != rung_at_look && woken_again()) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &a_moment, NULL);
    }
    ovsrcu_quiesce_end();
}
