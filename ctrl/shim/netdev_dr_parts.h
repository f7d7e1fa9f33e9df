/* What the files of the netdev class "dr" share; the contracts are those of netdev-provider.h. */
#ifndef CTRL_SHIM_NETDEV_DR_PARTS_H
#define CTRL_SHIM_NETDEV_DR_PARTS_H

#include <poll.h>

#include "shim/netdev_dr.h"

struct dp_packet_batch;
struct netdev_custom_stats;
struct smap;

/* netdev_dr.c. The mutex guards the list of all of the class, and is taken before a netdev's own lock. */
extern struct ovs_mutex netdev_dr_list_mutex;
extern struct ovs_list netdev_dr_list OVS_GUARDED_BY(netdev_dr_list_mutex);
void netdev_dr_close_port(struct netdev_dr *);
bool netdev_dr_release_removed(const char *device, uint16_t vport);
void netdev_dr_changed(struct netdev_dr *);
void netdev_dr_tell_notice(struct netdev_dr *);

/* netdev_dr_ifindex.c */
int netdev_dr_get_ifindex(const struct netdev *);

/* netdev_dr_options.c */
int netdev_dr_get_config(const struct netdev *, struct smap *);
int netdev_dr_set_config(struct netdev *, const struct smap *, char **errp);
int netdev_dr_reconfigure(struct netdev *);

/* netdev_dr_io.c */
struct dp_packet *netdev_dr_packet_new(const void *frame, uint32_t size);
int netdev_dr_send(struct netdev *, int qid, struct dp_packet_batch *, bool concurrent_txq);
void netdev_dr_send_wait(struct netdev *, int qid);
struct netdev_rxq *netdev_dr_rxq_alloc(void);
int netdev_dr_rxq_construct(struct netdev_rxq *);
void netdev_dr_rxq_destruct(struct netdev_rxq *);
void netdev_dr_rxq_dealloc(struct netdev_rxq *);
/* How many packets the calling thread has received since it asked last. */
unsigned int netdev_dr_received(void);
int netdev_dr_rxq_recv(struct netdev_rxq *, struct dp_packet_batch *, int *qfill);
void netdev_dr_rxq_wait(struct netdev_rxq *);
/* What a port waits for, so that it is known among the descriptors of a sleep: no other one asks for both. */
#define NETDEV_DR_PACKETS_IN (POLLIN | POLLRDNORM)
/* Whether a port waits in the main thread's next sleep, or the one that it is in. Only while offload is on. */
bool netdev_dr_waits(void);
/* That sleep goes on: asks anew for all ports that wait. False where packets are there already, or a port's descriptor
 * is another one by now. */
bool netdev_dr_wait_again(void);
/* That sleep has ended. */
void netdev_dr_woke(void);
int netdev_dr_rxq_drain(struct netdev_rxq *);
int netdev_dr_get_stats(const struct netdev *, struct netdev_stats *);
int netdev_dr_get_custom_stats(const struct netdev *, struct netdev_custom_stats *);

#endif
