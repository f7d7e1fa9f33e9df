/* Does in software what devices cannot do with packets that they forward: the software branch.
 *
 * Model. A device takes a copy where a megaflow needs software, and sends it up with the id of what is to be done to it
 * (ctrl/copies.h). A thread of its own receives the copies of all devices and gives each, with the work's actions, to
 * dpif-netdev's execute, which does to it what it would have done to the packet at that place of the megaflow's list:
 * an output, a userspace action with its cookie, a truncated output, a meter before a userspace action. No copy is
 * classified, and none comes near a port's receive queue: nothing is forwarded twice.
 *
 * In execute the thread waits for the main thread, as handlers do: both use the datapath's own queues. An upcall finds
 * the lock of upcalls taken while ofproto stops its threads, and is lost then, as a PMD thread's is.
 *
 * Another thread, dr_queues, makes and destroys the devices' queues for copies.
 *
 * Life cycle. The threads start with the first dr port, sleep while there is nothing to do, and end with the process:
 * either may be the last that has a device, and the process must not end while a device is being closed. The first
 * uses ofproto's own handle of the datapath, which dpif_run() shows and dpif_close() takes away; in between it may be
 * without one, and copies that come then are dropped.
 */
#ifndef CTRL_SHIM_COPIES_H
#define CTRL_SHIM_COPIES_H

struct dpif;

/* A dr port has been opened. Main thread. */
void copies_start(void);

/* OVS's own parts have ended. Main thread. Waits for the threads, some seconds at most. */
void copies_stop(void);

/* ofproto runs this datapath, or lets go of it. Main thread. When copies_close() returns, nobody uses it. */
void copies_run(struct dpif *);
void copies_close(struct dpif *);

#endif
