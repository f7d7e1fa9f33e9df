/* What OVS leaves to ports with other_config:userspace-tso-enable=true: the L4 checksum of a packet that the host's own
 * stack sent through a tap (LOCAL, for one), and TCP packets that are longer than the MTU, to be sent as several.
 *
 * dr ports announce all of it (netdev's ol_flags), since OVS drops such packets otherwise. It is done here, in
 * software: each byte is touched anyway when it is copied into the send queue's buffers, and what is sent is then the
 * same on every device.
 *
 * Threads: pure functions, each packet one thread's. Offsets in the packet are those of miniflow_extract().
 */
#ifndef CTRL_SHIM_FINISH_H
#define CTRL_SHIM_FINISH_H

#include <stdbool.h>
#include <stdint.h>

#include "dp-packet.h"

/* NETDEV_TX_OFFLOAD_*: what a port announces that finishes its packets. 0 without userspace-tso-enable. */
uint64_t finished_features(void);

/* One that OVS has cut (max_len, a mirror's snaplen) goes as it is, unless it is longer than `frame_size`. */
bool is_to_be_segmented(const struct dp_packet *, uint32_t frame_size);

/* Makes the checksums of IPv4 and L4 that are asked for. False: the packet has no such header. One that OVS has cut is
 * left alone: its checksum is that of more than there is. */
bool finish_checksum(struct dp_packet *);

struct segmentation {
    const struct dp_packet *packet;
    uint32_t headers;       /* Bytes, Ethernet to TCP. */
    uint32_t most;          /* Of the payload in a segment. */
    uint32_t next, size;    /* Of the payload: where the next segment begins; all of it, as IP says. */
    uint32_t there;         /* How much of it OVS has not cut off. */
    uint16_t number;        /* Of the next segment. */
};

/* Of a packet that is to be segmented. False: it is no TCP packet, or one inside of a tunnel's; its headers leave no
 * room in the MTU, or a segment may be longer than `frame_size` with what is in front of IP. */
bool segmentation_start(struct segmentation *, const struct dp_packet *, uint32_t mtu, uint32_t frame_size);

/* Writes the next segment, whole. Returns its size, 0 behind the last. Sequence numbers and IPv4's id go on; FIN and
 * PSH are in the last segment only, CWR in the first. Of what OVS has cut: the segments in front of the cut, the one
 * that it goes through, cut there and with its checksum unfinished, and none behind it. */
uint32_t segmentation_next(struct segmentation *, uint8_t *frame);

#endif
