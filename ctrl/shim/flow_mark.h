/* Marks by which dpif-netdev knows the megaflow of a packet that the NIC has matched already.
 *
 * dpif-netdev frees a megaflow's mark as soon as it has asked for the deletion, and gives it to the next megaflow. Two
 * things may stand behind the old megaflow's packets then: a rule in the NIC, which whoever deletes the flow takes out
 * later, and a thread that has just read a packet's mark. So a mark goes back to dpif-netdev's pool when no megaflow in
 * a NIC holds it and every thread has been quiescent since (ovs-rcu.h).
 *
 * Threads: any, those that OVS knows nothing of too.
 */
#ifndef CTRL_SHIM_FLOW_MARK_H
#define CTRL_SHIM_FLOW_MARK_H

#include <stdint.h>

struct id_fpool;

/* Once. */
void flow_mark_init(void);

/* In place of id_fpool_free_id(). */
void flow_mark_free(struct id_fpool *, unsigned int user, uint32_t mark);

#endif
