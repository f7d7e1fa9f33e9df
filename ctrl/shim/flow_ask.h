/* Makes dpif-netdev ask flow_get() in this thread, so that its watch (flow_watch.h) learns the flow. */
#ifndef CTRL_SHIM_FLOW_ASK_H
#define CTRL_SHIM_FLOW_ASK_H

#include <stdbool.h>

#include "dpif.h"

/* `buffer` and `flow` need not be there. False: there is no such flow. */
bool flow_ask(struct dpif *, const struct dpif_flow_get *);

#endif
