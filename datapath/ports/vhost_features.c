/* DPDK's net_vhost would offer guests to send and to receive UDP in fragments to be made: none of that is negotiated.
 * What guests may leave to us are checksums, and TCP to be cut (vhost_receiver.hpp), and what they may get are joined
 * TCP packets, whose checksum is not made (vhost_sender.hpp).
 *
 * The driver says which features to leave out between making the socket and opening it to guests, and only there is it
 * in time: everything that links DPDK's drivers is linked with --wrap=rte_vhost_driver_disable_features, and this
 * function adds ours.
 *
 * Source: virtio 1.1, 5.1.3; read in DPDK 22.11.
 */
#include <linux/virtio_net.h>
#include <stdint.h>

static const uint64_t not_ours =
    1ULL << VIRTIO_NET_F_HOST_UFO | 1ULL << VIRTIO_NET_F_GUEST_ECN | 1ULL << VIRTIO_NET_F_GUEST_UFO;
/* The driver would leave these out. */
static const uint64_t ours = 1ULL << VIRTIO_NET_F_HOST_TSO4 | 1ULL << VIRTIO_NET_F_HOST_TSO6;

int __real_rte_vhost_driver_disable_features(const char *path, uint64_t features);
int __wrap_rte_vhost_driver_disable_features(const char *path, uint64_t features);

int __wrap_rte_vhost_driver_disable_features(const char *path, uint64_t features) {
    return __real_rte_vhost_driver_disable_features(path, (features & ~ours) | not_ours);
}
