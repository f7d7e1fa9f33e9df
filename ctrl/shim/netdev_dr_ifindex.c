/* The ifindex of a dr port, by which sFlow and IPFIX name it.
 *
 * Model. A vport need not have a network device of the kernel's, so the number is ours: bit 23, then 7 bits for the
 * device, then the vport. It stays the same as long as the device's and the vport's names do, fits into the 24 bits
 * that sFlow has for a data source, and is far above the numbers that the kernel counts up from 1: it names no tap or
 * bridge of the same switch.
 *
 * Nothing is ever to be asked of the kernel by this number. tc_flow_api.c sees to OVS's tc offload.
 */
#include <config.h>

#include <errno.h>

#include "hash.h"
#include "shim/netdev_dr_parts.h"
#include "util.h"

enum { N_DEVICES = 1 << 7, OUR_RANGE = 1 << 23 };

/* Names of devices, each at its hash or behind it. They are not forgotten: a device that comes again has its number. */
static struct ovs_mutex mutex = OVS_MUTEX_INITIALIZER;
static char *devices[N_DEVICES] OVS_GUARDED_BY(mutex);

/* -1: there are more devices than numbers. */
static int
number_of(const char *device)
{
    int number = -1;

    ovs_mutex_lock(&mutex);
    for (uint32_t i = 0; i < N_DEVICES && number < 0; i++) {
        uint32_t place = (hash_string(device, 0) + i) % N_DEVICES;

        if (!devices[place]) {
            devices[place] = xstrdup(device);
        }
        if (!strcmp(devices[place], device)) {
            number = place;
        }
    }
    ovs_mutex_unlock(&mutex);
    return number;
}

int
netdev_dr_get_ifindex(const struct netdev *netdev)
{
    struct netdev_dr *dev = netdev_dr_cast(netdev);
    int number = -1;
    int vport = 0;

    ovs_rwlock_rdlock(&dev->lock);
    if (dev->device) {
        number = number_of(dev->device);
        vport = dev->vport;
    }
    ovs_rwlock_unlock(&dev->lock);
    return number < 0 ? -ENODEV : OUR_RANGE | number << 16 | vport;
}
