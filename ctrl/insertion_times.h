/* How long it took to put megaflows into devices, as histograms by outcome, for dr/metrics.
 *
 * Model. Each thread that puts megaflows counts in cells of its own; a reader adds them up. A call costs two readings
 * of the clock and two additions to memory that only its thread writes. The cells of a thread stay when it ends: OVS's
 * offload threads live as long as the process.
 *
 * What is timed is the flow-API provider's own call. How long a megaflow waited in OVS's queue before is not in it; the
 * queue's length is a metric too (metrics.h).
 *
 * Threads: any. Nothing here throws.
 */
#ifndef CTRL_INSERTION_TIMES_H
#define CTRL_INSERTION_TIMES_H

#include <stdint.h>

#include "ctrl/flow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* CLOCK_MONOTONIC, in nanoseconds. */
uint64_t ovsdr_insertion_begins(void) OVSDR_NOEXCEPT;

/* `began`: what ovsdr_insertion_begins() said. OVSDR_PUT_NOWHERE is not counted. */
void ovsdr_insertion_ends(uint64_t began, enum ovsdr_put_outcome) OVSDR_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
