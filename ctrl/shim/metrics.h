/* What dpif-netdev adds to dr/metrics (ctrl/metrics.h).
 *
 * Threads: the main thread.
 */
#ifndef CTRL_SHIM_METRICS_H
#define CTRL_SHIM_METRICS_H

/* The caller frees it. NULL: out of memory. */
char *metrics_text(void);

#endif
