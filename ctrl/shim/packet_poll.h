/* How the main thread sleeps: packets first, and on with the sleep.
 *
 * dpif-netdev receives and classifies in dpif_run(), somewhere on the main thread's way through vswitchd's loop, which
 * is some twenty system calls long, and takes 0.3 ms when everything is cold. At its end the thread sleeps, in
 * poll_block(), which calls time_poll() through libopenvswitch's PLT. Where packets of dr ports end that sleep, the
 * datapath runs in there, before the loop does; then the thread sleeps on, since answers mostly come at once. The loop
 * goes on when anything else happens that it waits for, when the run has changed something or has slept, and in any
 * case 2 ms after the first packets, or as soon as the run that is under way then has ended. What the loop finds out
 * only by looking (a MAC that has moved, say) it finds so much later.
 *
 * Only dpif_wait() makes dr ports wait, so a sleep in which they do is the loop's. A sleep within the datapath's run,
 * for RCU say, is OVS's own.
 *
 * Threads: any; the main thread alone runs datapaths. Others sleep as ever.
 */
#ifndef CTRL_SHIM_PACKET_POLL_H
#define CTRL_SHIM_PACKET_POLL_H

#include <stdbool.h>

struct dpif;
struct pollfd;

/* dpif_run(): all packets that are there, and those that come meanwhile, for a while. */
bool packet_poll_run(struct dpif *dpif);

/* dpif_wait(): packets of its dr ports are taken in the sleep that follows. */
void packet_poll_wait(struct dpif *dpif);

/* Before the datapath is closed. */
void packet_poll_forget(const struct dpif *dpif);

/* time_poll(), which on Linux takes no handles. */
int packet_poll(struct pollfd *, int n, long long int timeout_when, int *elapsed);

#endif
