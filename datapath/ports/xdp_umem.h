/* Memory of AF_XDP queues that DPDK's net_af_xdp has made, and forgets: see xdp_umem.c. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct xsk_umem;

/* What this thread has made last; NULL when that is deleted, or there is none. */
struct xsk_umem *ovsdr_last_xdp_umem(void);

/* Deletes it, unless the driver has. Its socket must be deleted. */
void ovsdr_delete_xdp_umem(struct xsk_umem *umem);

#ifdef __cplusplus
}
#endif
