/* How dpif-netdev's offload threads sleep: until there is something to do.
 *
 * An offload thread looks into its queue, and while that is empty it sleeps for 1 ms, 2 ms and so on up to 64 ms before
 * it looks again: the first megaflow after a pause would reach the NIC only then. Looking (mpsc_queue_tail()), sleeping
 * (xnanosleep()) and putting into the queue (mpsc_queue_insert()) go through libopenvswitch's PLT. So a thread that has
 * looked sleeps no longer than until something is put into the queue that it looked into.
 *
 * A thread that has received packets wakes nobody before it has sent them: where cores are few, the offload thread
 * would take one of them while the packet that made the megaflow waits.
 *
 * Where new flows come one after the other, a thread that was woken a moment ago lets them gather for a millisecond: it
 * takes several at a time then, and nobody has to wake it meanwhile.
 *
 * What is put in between the look and the sleep is not missed. A thread may be woken for another one's queue, now and
 * then; it looks again, as after any sleep.
 *
 * Threads: any. Other threads than those that look into queues sleep as ever.
 */
#ifndef CTRL_SHIM_OFFLOAD_SLEEP_H
#define CTRL_SHIM_OFFLOAD_SLEEP_H

#include <stdint.h>

struct mpsc_queue;

/* Before the thread looks into the queue. */
void offload_sleep_look(const struct mpsc_queue *);

/* After something was put into the queue. */
void offload_sleep_wake(const struct mpsc_queue *);

/* From here on this thread's offload_sleep_wake() waits for its offload_sleep_release(). Where that never comes, since
 * the thread has lost its last interface, offload threads look after their time as ever, at most 64 ms. */
void offload_sleep_hold(void);
void offload_sleep_release(void);

/* xnanosleep(). */
void offload_sleep(uint64_t nanoseconds);

#endif
