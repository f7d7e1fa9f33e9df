/* DPDK's net_af_packet asks the kernel to reassemble IPv4 fragments (PACKET_FANOUT_FLAG_DEFRAG). A NIC forwards fragments as
 * they are, and what the kernel has reassembled is too large for any port. Everything that links DPDK's drivers is linked
 * with --wrap=setsockopt: this function takes that flag out and leaves every other option as it is.
 *
 * Source: packet(7), PACKET_FANOUT; seen with DPDK 22.11.
 */
#include <linux/if_packet.h>
#include <sys/socket.h>

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
    if (level == SOL_PACKET && name == PACKET_FANOUT && size == sizeof(int)) {
        /* The upper half holds the mode and its flags. */
        const int fanout = *(const int *)value & ~(PACKET_FANOUT_FLAG_DEFRAG << 16);
        return __real_setsockopt(fd, level, name, &fanout, sizeof fanout);
    }
    return __real_setsockopt(fd, level, name, value, size);
}
