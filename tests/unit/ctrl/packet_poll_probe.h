/* ctrl/shim/packet_poll.h for C++, on a datapath, ports, sleeps and a clock that a test plays. */
#ifndef TESTS_UNIT_CTRL_PACKET_POLL_PROBE_H
#define TESTS_UNIT_CTRL_PACKET_POLL_PROBE_H

#include <poll.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct dpif;

/* What a dr port waits for. */
extern const short probe_packets_in;

/* What is called in OVS's and the ports' places. */
struct packet_poll_parts {
    bool (*run)(struct dpif *, bool gate_is_closed);
    void (*wait)(struct dpif *);
    int (*sleep)(struct pollfd *, int n, long long timeout_when);
    unsigned (*received)(void);
    bool (*waits)(void);
    bool (*wait_again)(void);
    void (*woke)(void);
    void (*sent)(void);     /* offload_sleep_release() */
};
void probe_packet_poll_parts(const struct packet_poll_parts *);

extern long long probe_now_us;

bool probe_packet_poll_run(struct dpif *);
void probe_packet_poll_forget(struct dpif *);
void probe_packet_poll_wait(struct dpif *);
int probe_packet_poll(struct pollfd *, int n, long long timeout_when, int *elapsed);

#ifdef __cplusplus
}
#endif
#endif
