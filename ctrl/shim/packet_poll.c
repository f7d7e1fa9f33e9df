/* See packet_poll.h. */
#include <config.h>

#include "shim/packet_poll.h"

#include <poll.h>

#include "coverage.h"
#include "shim/gate.h"
#include "shim/netdev_dr_parts.h"
#include "shim/offload_sleep.h"
#include "shim/real.h"
#include "timeval.h"
#include "util.h"

COVERAGE_DEFINE(dr_packet_poll);    /* Sleeps of the main loop that packets have ended. */

/* How long the thread stays with packets while others wait for it, and how long the loop waits for more of them. */
enum { LONGEST_RUN_US = 500, MOST_RUNS = 16, LONGEST_STAY_MS = 2 };

/* Of the calling thread's next sleep, or the one that it is in. */
static __thread struct dpif *datapath;  /* The one whose dr ports wait; NULL: none waits. */
static __thread bool staying;           /* Packets have ended it. */
static __thread bool slept_within;      /* The datapath's run has slept, too. */

/* The datapath whose dpif_run() returned true in a sleep: its next one in the loop must return true. */
static __thread const struct dpif *changed;

/* Packets that follow each other closely are taken together. */
static bool
run(struct dpif *dpif)
{
    bool result;
    long long int begin;

    (void) netdev_dr_received();    /* Forgets those of a run before. */
    result = real_dpif_run(dpif);
    begin = time_usec();
    for (int i = 0; i < MOST_RUNS && netdev_dr_received() && time_usec() - begin < LONGEST_RUN_US; i++) {
        result |= real_dpif_run(dpif);
    }
    return result;
}

bool
packet_poll_run(struct dpif *dpif)
{
    bool result = run(dpif);

    if (changed == dpif) {
        changed = NULL;
        result = true;
    }
    return result;
}

void
packet_poll_forget(const struct dpif *dpif)
{
    if (changed == dpif) {
        changed = NULL;
    }
}

void
packet_poll_wait(struct dpif *dpif)
{
    real_dpif_wait(dpif);
    if (!datapath && netdev_dr_waits()) {
        datapath = dpif;
    }
}

/* What has ended a sleep. */
struct ready {
    struct pollfd *packets;     /* A dr port's; NULL: none. */
    bool others;
};

static struct ready
what_is_ready(struct pollfd *pollfds, int n, int n_ready)
{
    struct ready ready = {NULL, false};

    for (int i = 0; i < n && n_ready > 0; i++) {
        if (pollfds[i].revents) {
            if (pollfds[i].events == NETDEV_DR_PACKETS_IN) {
                ready.packets = &pollfds[i];
            } else {
                ready.others = true;
            }
            n_ready--;
        }
    }
    return ready;
}

/* The run must not ask for descriptors or times, as *_wait() functions do: poll_block() has counted those there are. */
static void
take_packets(bool loop_goes_on)
{
    gate_close();
    if (loop_goes_on ? real_dpif_run(datapath) : run(datapath)) {
        changed = datapath;
    }
    gate_open();
}

/* A sleep that packets have ended goes on. `result` and `elapsed` are as time_poll() left them. */
static int
stay(struct pollfd *pollfds, int n, long long int timeout_when, int *elapsed, int result)
{
    long long int leave_at = MIN(timeout_when, time_msec() + LONGEST_STAY_MS);
    struct ready ready = what_is_ready(pollfds, n, result);
    struct pollfd *first = ready.packets;

    if (first) {
        COVERAGE_INC(dr_packet_poll);
    }
    while (ready.packets) {
        /* Once is enough then: the loop is about to run the datapath itself. */
        bool loop_goes_on = ready.others || time_msec() >= leave_at;
        bool armed;
        int longer;

        take_packets(loop_goes_on);
        if (loop_goes_on || changed == datapath || slept_within) {
            break;
        }
        armed = netdev_dr_wait_again();
        result = real_time_poll(pollfds, n, armed ? leave_at : LLONG_MIN, &longer);
        *elapsed += longer;
        ready = what_is_ready(pollfds, n, result);
        if (!armed) {
            ready.packets = first;
        }
    }
    if (first) {
        offload_sleep_release();    /* Whatever came has been sent. */
    }
    /* Or poll_block() would log that the next of the loop's times has ended the sleep. */
    if (!result && first && leave_at < timeout_when) {
        first->revents = POLLIN;
        result = 1;
    }
    return result;
}

int
packet_poll(struct pollfd *pollfds, int n, long long int timeout_when, int *elapsed)
{
    int result = real_time_poll(pollfds, n, timeout_when, elapsed);

    if (staying) {
        slept_within = true;
    } else if (datapath) {
        staying = true;
        slept_within = false;
        result = stay(pollfds, n, timeout_when, elapsed, result);
        staying = false;
        datapath = NULL;
        netdev_dr_woke();
    }
    return result;
}
