#include <config.h>

#include "tests/unit/ctrl/packet_poll_probe.h"

#include "shim/gate.h"
#include "shim/netdev_dr_parts.h"
#include "shim/offload_sleep.h"
#include "shim/packet_poll.h"
#include "shim/real.h"
#include "timeval.h"

const short probe_packets_in = NETDEV_DR_PACKETS_IN;

long long probe_now_us;

static struct packet_poll_parts parts;
static bool gate_is_closed;

void
probe_packet_poll_parts(const struct packet_poll_parts *those)
{
    parts = *those;
}

bool
probe_packet_poll_run(struct dpif *dpif)
{
    return packet_poll_run(dpif);
}

void
probe_packet_poll_forget(struct dpif *dpif)
{
    packet_poll_forget(dpif);
}

void
probe_packet_poll_wait(struct dpif *dpif)
{
    packet_poll_wait(dpif);
}

int
probe_packet_poll(struct pollfd *pollfds, int n, long long timeout_when, int *elapsed)
{
    return packet_poll(pollfds, n, timeout_when, elapsed);
}

long long int
time_msec(void)
{
    return probe_now_us / 1000;
}

long long int
time_usec(void)
{
    return probe_now_us;
}

bool
real_dpif_run(struct dpif *dpif)
{
    return parts.run(dpif, gate_is_closed);
}

void
real_dpif_wait(struct dpif *dpif)
{
    parts.wait(dpif);
}

int
real_time_poll(struct pollfd *pollfds, int n, long long int timeout_when, int *elapsed)
{
    *elapsed = 1;
    return parts.sleep(pollfds, n, timeout_when);
}

unsigned int
netdev_dr_received(void)
{
    return parts.received();
}

bool
netdev_dr_waits(void)
{
    return parts.waits();
}

bool
netdev_dr_wait_again(void)
{
    return parts.wait_again();
}

void
netdev_dr_woke(void)
{
    parts.woke();
}

void
offload_sleep_release(void)
{
    parts.sent();
}

void
gate_close(void)
{
    gate_is_closed = true;
}

void
gate_open(void)
{
    gate_is_closed = false;
}
