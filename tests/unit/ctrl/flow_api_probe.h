/* The flow-API provider as dpif-netdev and the deleting threads call it, as plain C: OVS's headers are not C++.
 *
 * The NIC beneath is the test's own: it defines the functions of ctrl/flow.h. */
#ifndef TESTS_UNIT_CTRL_FLOW_API_PROBE_H
#define TESTS_UNIT_CTRL_FLOW_API_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ctrl/flow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A dr port's netdev, and dpif-netdev's flow. The ports that they name are the test's. */
struct probe_netdev;
struct probe_flow;
struct probe_watch;

struct netdev;
struct probe_netdev *probe_netdev_new(struct ovsdr_port *);
/* A tunnel's netdev of this type, in the userspace datapath under this number. */
struct probe_netdev *probe_tunnel_new(const char *type, uint32_t odp_port);
bool probe_is_tunnel(const struct netdev *);
void probe_tunnel_moves_to(struct probe_netdev *, const char *dpif_type);
/* Whether the provider says that it is for this netdev. */
bool probe_takes(struct probe_netdev *);
void probe_netdev_free(struct probe_netdev *);
struct probe_flow *probe_flow_new(uint64_t mega_ufid);
void probe_flow_free(struct probe_flow *);
void probe_flow_dies(struct probe_flow *);

/* What dpif-netdev's offload thread calls. A put returns a positive errno value. */
int probe_put(struct probe_netdev *, struct probe_flow *);
void probe_del(struct probe_netdev *, struct probe_flow *);
/* False: dpif-netdev is told that the NIC does not have it. */
bool probe_get(struct probe_netdev *, struct probe_flow *, uint64_t *packets);

/* What dpif-netdev does with a packet that came up with this tag. */
struct probe_recovered {
    int error;
    bool gone;                  /* the provider has freed the packet */
    uint32_t recirc_id, in_port;
    uint64_t tunnel_id;
    size_t size;
    bool has_mark;
    uint32_t mark;
};
struct probe_recovered probe_recover(struct probe_netdev *, uint32_t tag);
struct probe_recovered probe_recover_packet(struct probe_netdev *, uint32_t tag, const uint8_t *, size_t size);

/* Has the provider told of marks that are held. dpif-netdev frees a mark; how many are back in its pool since the last
 * call of probe_marks_back(). */
void probe_marks_init(void);
void probe_mark_free(uint32_t mark);
size_t probe_marks_back(void);

/* Until every thread of OVS's has been quiescent, and what waited for that is done. */
void probe_quiesce(void);
/* Whether OVS's threads need not wait for this one. */
bool probe_is_quiescent(void);

/* What a deleting thread does: watches while dpif-netdev asks flow_get about the flow; takes the rules of many out at
 * once. */
struct probe_watch *probe_watch_new(struct probe_netdev *, struct probe_flow *);
/* The same, of two flows one after the other; the offload thread deletes the first one in between. */
struct probe_watch *probe_watch_of_two(struct probe_netdev *, struct probe_flow *, struct probe_flow *);
void probe_delete(struct probe_watch *[], size_t n);
bool probe_watch_has_last(const struct probe_watch *, uint64_t *packets);
void probe_watch_free(struct probe_watch *);
extern const size_t probe_many;

#ifdef __cplusplus
}
#endif
#endif
