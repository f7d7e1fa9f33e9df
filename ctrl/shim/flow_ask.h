/* Makes dpif-netdev ask flow_get() in this thread, so that its watch (flow_watch.h) learns the flow.
 *
 * dpif-netdev does not ask while the datapath's ports are about to change. */
#ifndef CTRL_SHIM_FLOW_ASK_H
#define CTRL_SHIM_FLOW_ASK_H

#include <stdbool.h>

#include "dpif.h"

struct flow_watch;

/* `buffer` and `flow` need not be there. Tries again each millisecond for `*patience_ms`, from which it takes what it
 * waits. False: dpif-netdev has not asked by then. True: it has, or there is no such flow. */
bool flow_ask(struct dpif *, const struct dpif_flow_get *, const struct flow_watch *, unsigned int *patience_ms);

#endif
