/* DPDK's net_af_xdp does not delete the memory of a queue when its device is closed (eth_dev_close() takes its count of
 * users down by one and compares it as if it had not): the queue's socket stays, and the interface's queue with it, so
 * that a port cannot be opened on it again before the process ends.
 *
 * The driver keeps that memory to itself, and so everything that links DPDK's drivers is linked with --wrap for the two
 * functions of libxdp that make and delete it: what has been made is written down, and the port deletes what is left.
 * A driver that does it itself is none the worse.
 *
 * Source: read in DPDK 22.11.
 */
#include "datapath/ports/xdp_umem.h"

#include <pthread.h>
#include <stddef.h>
#include <xdp/xsk.h>

enum { most_umems = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct xsk_umem *made[most_umems]; /* and not deleted; NULL: free */
static _Thread_local struct xsk_umem *last;

/* Puts `to` in the place of `from`. */
static int replace(const struct xsk_umem *from, struct xsk_umem *to) {
    int found = 0;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < most_umems && !found; ++i) {
        if (made[i] != from) continue;
        made[i] = to;
        found = 1;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

int __real_xsk_umem__create(struct xsk_umem **umem, void *area, __u64 size, struct xsk_ring_prod *fill,
                            struct xsk_ring_cons *completion, const struct xsk_umem_config *config);
int __wrap_xsk_umem__create(struct xsk_umem **umem, void *area, __u64 size, struct xsk_ring_prod *fill,
                            struct xsk_ring_cons *completion, const struct xsk_umem_config *config);
int __real_xsk_umem__delete(struct xsk_umem *umem);
int __wrap_xsk_umem__delete(struct xsk_umem *umem);

int __wrap_xsk_umem__create(struct xsk_umem **umem, void *area, __u64 size, struct xsk_ring_prod *fill,
                            struct xsk_ring_cons *completion, const struct xsk_umem_config *config) {
    const int result = __real_xsk_umem__create(umem, area, size, fill, completion, config);
    last = result == 0 && replace(NULL, *umem) ? *umem : NULL;
    return result;
}

int __wrap_xsk_umem__delete(struct xsk_umem *umem) {
    const int result = __real_xsk_umem__delete(umem);
    if (result == 0) (void)replace(umem, NULL);
    if (result == 0 && last == umem) last = NULL;
    return result;
}

struct xsk_umem *ovsdr_last_xdp_umem(void) {
    return last;
}

void ovsdr_delete_xdp_umem(struct xsk_umem *umem) {
    if (umem != NULL && replace(umem, NULL)) (void)__real_xsk_umem__delete(umem);
}
