/* ctrl/shim/netdev_dr_io.c for C++, on ports (ctrl/port.h) that a test plays. */
#ifndef TESTS_UNIT_CTRL_NETDEV_DR_IO_PROBE_H
#define TESTS_UNIT_CTRL_NETDEV_DR_IO_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "ctrl/port.h"

#ifdef __cplusplus
extern "C" {
#endif

struct netdev_dr;

/* An interface on `port`, which outlives it. */
struct netdev_dr *probe_dr_new(struct ovsdr_port *port);
void probe_dr_free(struct netdev_dr *);
void probe_dr_set_port(struct netdev_dr *, struct ovsdr_port *port);    /* NULL: not configured. */
void probe_dr_set_pmd_receives(struct netdev_dr *, bool);
/* One that recovers misses, or another one. */
void probe_dr_set_flow_api(struct netdev_dr *, bool recovers_misses);
void probe_dr_police(struct netdev_dr *, uint32_t kpkts_rate, uint32_t kpkts_burst);

/* netdev_is_flow_api_enabled() */
extern bool probe_offload_is_on;
/* 'r' for offload_sleep_release(), 'h' for offload_sleep_hold(), as they came; the first ones. */
extern char probe_dr_log[64];
/* What was waited for since last asked: a descriptor, -1 for none; and how often an immediate wake was asked for. */
extern int probe_waited_for, probe_immediate_wakes;
extern short probe_waited_events;
extern const short probe_dr_packets_in;

/* The calling thread is a PMD thread from now on. */
void probe_become_pmd(void);

void probe_dr_wait(struct netdev_dr *, int queue);
bool probe_dr_waits(void);
bool probe_dr_wait_again(void);
void probe_dr_woke(void);

struct probe_packet {
    uint8_t data[64];
    uint32_t size;
    bool marked;
    uint32_t mark;
    uint32_t headroom, tailroom;
};
/* Returns the error, with at most OVSDR_BATCH packets and their number. */
int probe_dr_receive(struct netdev_dr *, int queue, struct probe_packet *, unsigned *n);
void probe_dr_drain(struct netdev_dr *, int queue);
unsigned probe_dr_received(void);

/* What is played of shim/finish.h: a frame's first byte says it. */
enum { PROBE_PLAIN = 0, PROBE_SEGMENTS = 1, PROBE_UNFINISHABLE = 2, PROBE_NO_SEGMENTS = 3 };
enum { PROBE_SEGMENT_SIZE = 60 };
struct probe_frame {
    const uint8_t *data;
    uint32_t size;
    bool is_ip;     /* Without an Ethernet header. */
};
int probe_dr_send(struct netdev_dr *, const struct probe_frame *, unsigned n);

struct probe_stats {
    uint64_t rx_packets, rx_bytes, rx_errors, rx_dropped;
    uint64_t tx_packets, tx_bytes, tx_errors, tx_dropped;
    uint64_t multicast;     /* Which is not known. */
};
int probe_dr_stats(struct netdev_dr *, struct probe_stats *);
/* The value of a custom counter; UINT64_MAX: there is none of that name. */
uint64_t probe_dr_custom(struct netdev_dr *, const char *name);

#ifdef __cplusplus
}
#endif
#endif
