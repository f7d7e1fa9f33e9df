/* Marks by which dpif-netdev knows the megaflow of a packet that the NIC has matched already.
 *
 * dpif-netdev gives a megaflow's mark to another one as soon as the first has gone. A thread that receives may have
 * read the mark of a packet of the first one just before, and would take it for the second's. So a mark that packets no
 * longer come up with rests until every thread has been quiescent, and no megaflow is put with it meanwhile.
 *
 * Threads: any.
 */
#ifndef CTRL_SHIM_FLOW_MARK_H
#define CTRL_SHIM_FLOW_MARK_H

#include <stdbool.h>
#include <stdint.h>

/* Once. */
void flow_mark_init(void);

/* Whether a thread may still take the mark for that of a megaflow that has gone. */
bool flow_mark_rests(uint32_t mark);

#endif
