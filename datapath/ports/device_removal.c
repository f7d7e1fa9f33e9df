/* DPDK's word that the kernel wants a device back. DPDK calls that interface experimental, though it has been as it is
 * since 18.05; in C, because C++ files here share a precompiled header that does not allow it. */
#define ALLOW_EXPERIMENTAL_API
#include <errno.h>
#include <rte_dev.h>
#include <sched.h>

/* `removed` is called from DPDK's interrupt thread, again and again until the device is let go of. 0 or a negative
 * errno. */
int ovsdr_watch_removal(const char *device, rte_dev_event_cb_fn removed, void *told);
int ovsdr_watch_removal(const char *device, rte_dev_event_cb_fn removed, void *told) {
    return rte_dev_event_callback_register(device, removed, told);
}

/* Once it returns, `removed` is not being called, and will not be. */
void ovsdr_forget_removal(const char *device, rte_dev_event_cb_fn removed, void *told);
void ovsdr_forget_removal(const char *device, rte_dev_event_cb_fn removed, void *told) {
    while (rte_dev_event_callback_unregister(device, removed, told) == -EAGAIN) sched_yield();
}
