/* Keeps the main thread from receiving packets, and from changing the datapath's ports, while flows are deleted or
 * modified.
 *
 * The main thread alone classifies what dr ports receive, in dpif_run(), but for ports of PMD threads (deletion.h). It
 * closes the gate while it does so, and while it changes ports, since dpif-netdev asks no flow_get() then; threads that
 * change flows hold it open together. The main thread comes first: it must not starve.
 *
 * Waiting to enter is bounded, since the main thread may wait for the thread that wants to enter: 100 ms, once each
 * time the gate is closed. Whoever did not get in goes on without, and what it reads last of a flow's statistics may
 * be short.
 */
#ifndef CTRL_SHIM_GATE_H
#define CTRL_SHIM_GATE_H

enum gate_entry {
    GATE_ENTERED,       /* The main thread is kept out until gate_leave(). */
    GATE_TIMED_OUT,     /* It was busy for too long; a warning says so. */
    GATE_NO_USE,        /* This thread closed the gate itself, or has timed out since it was closed. */
};

/* Any thread. */
enum gate_entry gate_enter(void);
void gate_leave(enum gate_entry);

/* Main thread, one within the other not. Waits until all have left. */
void gate_close(void);
void gate_open(void);

#endif
