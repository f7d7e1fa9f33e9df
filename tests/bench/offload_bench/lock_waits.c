/* Preloaded: how long threads wait for mutexes and read-write locks, by the place in the code that asks, from
 * lock_waits_begin() to lock_waits_end(). The program finds these two by name. A lock that nobody else has costs a try.
 *
 * Threads: any. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_PLACES = 256 };

/* Found by its address; taken once, never given back. */
static struct place {
    _Atomic(uintptr_t) address;
    atomic_ullong nanoseconds, waits;
} places[N_PLACES];

static atomic_bool counting;

static int (*real_mutex_lock)(pthread_mutex_t *);
static int (*real_rdlock)(pthread_rwlock_t *);
static int (*real_wrlock)(pthread_rwlock_t *);

__attribute__((constructor)) static void
find_real(void)
{
    real_mutex_lock = (int (*)(pthread_mutex_t *)) dlsym(RTLD_NEXT, "pthread_mutex_lock");
    real_rdlock = (int (*)(pthread_rwlock_t *)) dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
    real_wrlock = (int (*)(pthread_rwlock_t *)) dlsym(RTLD_NEXT, "pthread_rwlock_wrlock");
}

static uint64_t
now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t) time.tv_sec * 1000000000 + (uint64_t) time.tv_nsec;
}

static void
note(const void *address, uint64_t since)
{
    uintptr_t wanted = (uintptr_t) address;

    for (size_t i = 0; i < N_PLACES; i++) {
        struct place *place = &places[(wanted + i) % N_PLACES];
        uintptr_t found = 0;

        if (atomic_compare_exchange_strong(&place->address, &found, wanted) || found == wanted) {
            atomic_fetch_add_explicit(&place->nanoseconds, now() - since, memory_order_relaxed);
            atomic_fetch_add_explicit(&place->waits, 1, memory_order_relaxed);
            return;
        }
    }
}

/* Takes a lock by `TRY` or, where that fails, by `LOCK`, and notes how long that took. */
#define TIMED(REAL, TRY, LOCK)                              \
    do {                                                    \
        uint64_t since;                                     \
        int error;                                          \
                                                            \
        if (!REAL) {                                        \
            find_real();                                    \
        }                                                   \
        if (!counting) {                                    \
            return REAL(LOCK);                              \
        }                                                   \
        error = TRY(LOCK);                                  \
        if (error != EBUSY) {                               \
            return error;                                   \
        }                                                   \
        since = now();                                      \
        error = REAL(LOCK);                                 \
        note(__builtin_return_address(0), since);           \
        return error;                                       \
    } while (0)

int
pthread_mutex_lock(pthread_mutex_t *mutex)
{
    TIMED(real_mutex_lock, pthread_mutex_trylock, mutex);
}

int
pthread_rwlock_rdlock(pthread_rwlock_t *lock)
{
    TIMED(real_rdlock, pthread_rwlock_tryrdlock, lock);
}

int
pthread_rwlock_wrlock(pthread_rwlock_t *lock)
{
    TIMED(real_wrlock, pthread_rwlock_trywrlock, lock);
}

void lock_waits_begin(void);
void lock_waits_end(void);

void
lock_waits_begin(void)
{
    counting = true;
}

/* Writes a line for each place that has waited to the file that OVSDR_LOCK_WAITS names: nanoseconds, how often, the
 * object's path and the place in it. */
void
lock_waits_end(void)
{
    const char *path = getenv("OVSDR_LOCK_WAITS");
    FILE *file = path ? fopen(path, "w") : NULL;

    counting = false;
    if (!file) {
        return;
    }
    for (size_t i = 0; i < N_PLACES; i++) {
        uintptr_t address = places[i].address;
        Dl_info info;

        if (address && dladdr((void *) address, &info)) {
            /* The call, not what comes behind it. */
            fprintf(file, "%llu %llu %s %#zx\n", (unsigned long long) places[i].nanoseconds,
                    (unsigned long long) places[i].waits, info.dli_fname, address - 1 - (uintptr_t) info.dli_fbase);
        }
    }
    fclose(file);
}
