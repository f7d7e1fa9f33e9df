/* DPDK's net_vhost offers guests checksum offload: a guest then sends TCP and UDP packets whose checksums are not
 * computed, and the driver completes those of the outer headers only. What a guest sends inside a tunnel of its own
 * would enter the eSwitch unfinished, and leave it so. Hence nothing of the kind is negotiated: a guest computes its
 * checksums and cuts its segments itself, and gets packets as they were on the wire.
 *
 * The driver says which features to leave out between making the socket and opening it to guests, and only there is it
 * in time: everything that links DPDK's drivers is linked with --wrap=rte_vhost_driver_disable_features, and this
 * function adds ours.
 *
 * Source: virtio 1.1, 5.1.3; read in DPDK 22.11.
 */
#include <linux/virtio_net.h>
#include <stdint.h>

static const uint64_t unfinished_packets =
    1ULL << VIRTIO_NET_F_CSUM | 1ULL << VIRTIO_NET_F_HOST_TSO4 | 1ULL << VIRTIO_NET_F_HOST_TSO6 |
    1ULL << VIRTIO_NET_F_HOST_ECN | 1ULL << VIRTIO_NET_F_HOST_UFO | 1ULL << VIRTIO_NET_F_GUEST_CSUM |
    1ULL << VIRTIO_NET_F_GUEST_TSO4 | 1ULL << VIRTIO_NET_F_GUEST_TSO6 | 1ULL << VIRTIO_NET_F_GUEST_ECN |
    1ULL << VIRTIO_NET_F_GUEST_UFO;

int __real_rte_vhost_driver_disable_features(const char *path, uint64_t features);
int __wrap_rte_vhost_driver_disable_features(const char *path, uint64_t features);

int __wrap_rte_vhost_driver_disable_features(const char *path, uint64_t features) {
    return __real_rte_vhost_driver_disable_features(path, features | unfinished_packets);
}
