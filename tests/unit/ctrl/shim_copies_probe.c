#include <config.h>

#include "tests/unit/ctrl/shim_copies_probe.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "ctrl/copies.h"
#include "dp-packet.h"
#include "ovs-atomic.h"
#include "shim/copies.h"
#include "shim/netdev_dr_parts.h"
#include "shim/real.h"
#include "util.h"

static int receiver_fd = -1, tender_fd = -1;
static atomic_uint tending_ms, let_go;
static atomic_bool in_long_call, tended_last;

void
probe_copies_start(void)
{
    receiver_fd = eventfd(0, EFD_NONBLOCK);
    tender_fd = eventfd(0, EFD_NONBLOCK);
    copies_start();
}

void
probe_copies_stop(void)
{
    copies_stop();
}

static void
wake(int fd)
{
    const uint64_t one = 1;

    ovs_assert(write(fd, &one, sizeof one) == sizeof one);
}

static void
clear(int fd)
{
    uint64_t count;

    ignore(read(fd, &count, sizeof count));
}

void
probe_tend(unsigned milliseconds)
{
    bool is_there = false;

    atomic_store(&tending_ms, milliseconds);
    wake(tender_fd);
    while (!is_there) {
        usleep(1000);
        atomic_read(&in_long_call, &is_there);
    }
}

bool
probe_has_tended(void)
{
    bool is_there;

    atomic_read(&in_long_call, &is_there);
    return !is_there;
}

unsigned
probe_let_go_calls(void)
{
    unsigned calls;

    atomic_read(&let_go, &calls);
    return calls;
}

bool
probe_tended_last(void)
{
    bool last;

    atomic_read(&tended_last, &last);
    return last;
}

unsigned
ovsdr_copies_receive(struct ovsdr_copy *copies OVS_UNUSED, bool *waits)
{
    *waits = false;
    return 0;
}

int
ovsdr_copies_arm(void (*wait_for)(int fd))
{
    clear(receiver_fd);
    wait_for(receiver_fd);
    return -1;
}

int
ovsdr_copies_tend(void (*wait_for)(int fd))
{
    unsigned milliseconds;

    clear(tender_fd);
    wait_for(tender_fd);
    atomic_store(&tended_last, probe_let_go_calls() != 0);
    atomic_read(&tending_ms, &milliseconds);
    if (milliseconds) {
        atomic_store(&tending_ms, 0);
        atomic_store(&in_long_call, true);
        usleep(milliseconds * 1000);
        atomic_store(&in_long_call, false);
    }
    return -1;
}

void
ovsdr_copies_wake(void)
{
    wake(receiver_fd);
    wake(tender_fd);
}

void
ovsdr_copies_let_go(void)
{
    unsigned before;

    atomic_add(&let_go, 1, &before);
}

/* What copies.c calls besides, and never in these tests: nothing comes. */
struct dp_packet *
netdev_dr_packet_new(const void *frame OVS_UNUSED, uint32_t size OVS_UNUSED)
{
    OVS_NOT_REACHED();
}

void
real_dpif_operate(struct dpif *dpif OVS_UNUSED, struct dpif_op **ops OVS_UNUSED, size_t n_ops OVS_UNUSED,
                  enum dpif_offload_type offload_type OVS_UNUSED)
{
    OVS_NOT_REACHED();
}
