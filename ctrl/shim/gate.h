/* Keeps the main thread from receiving packets while flows are deleted or modified.
 *
 * The main thread alone classifies what dr ports receive, in dpif_run(). It closes the gate while it does so; threads
 * that change flows hold it open together. The main thread comes first: it must not starve.
 *
 * Waiting to enter is bounded, since the main thread may wait for the thread that wants to enter. Whoever did not get in
 * goes on without, and what it reads last of a flow's statistics may be short.
 */
#ifndef CTRL_SHIM_GATE_H
#define CTRL_SHIM_GATE_H

#include <stdbool.h>

/* Any thread. True: the main thread is kept out until gate_leave(). False, with a warning: it was busy for too long; and
 * false within dpif_run() itself, where there is nobody to keep out. */
bool gate_enter(void);
void gate_leave(bool entered);

/* Around dpif_run(), main thread. Waits until all have left. */
void gate_close(void);
void gate_open(void);

#endif
