/* ctrl/shim/copies.c for C++, its two threads on a receiver and a tender (ctrl/copies.h) that a test plays. */
#ifndef TESTS_UNIT_CTRL_SHIM_COPIES_PROBE_H
#define TESTS_UNIT_CTRL_SHIM_COPIES_PROBE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

void probe_copies_start(void);
void probe_copies_stop(void);

/* The tender is called, now, and that call takes so long: returns when it is in there. */
void probe_tend(unsigned milliseconds);

/* Whether it has left there. */
bool probe_has_tended(void);

/* How often the receiver has let go of all that it holds, and whether the tender was called behind that. */
unsigned probe_let_go_calls(void);
bool probe_tended_last(void);

#ifdef __cplusplus
}
#endif
#endif
