/* DPDK's net_af_packet puts each of its sockets into a fanout group (PACKET_FANOUT). We read one socket a port, and for
 * one socket a group does nothing but harm: its flag PACKET_FANOUT_FLAG_DEFRAG has the kernel reassemble IPv4
 * fragments, which a NIC forwards as they are, into packets that are too large for any port; and its number, process id
 * xor interface index, may be that of another process's group in the same network namespace, and then the port does not
 * open. drgen is linked with --wrap=setsockopt: this function leaves that option out and every other as it is.
 *
 * Source: packet(7), PACKET_FANOUT; seen with DPDK 22.11.
 */
#include <linux/if_packet.h>
#include <sys/socket.h>

int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
    if (level == SOL_PACKET && name == PACKET_FANOUT) return 0;
    return __real_setsockopt(fd, level, name, value, size);
}
