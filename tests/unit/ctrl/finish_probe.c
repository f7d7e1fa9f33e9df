#include <config.h>

#include "tests/unit/ctrl/finish_probe.h"

#include <string.h>

#include "dp-packet.h"
#include "flow.h"
#include "shim/finish.h"

static struct dp_packet *
packet_of(const uint8_t *frame, size_t size)
{
    struct dp_packet *packet = dp_packet_clone_data(frame, size);
    struct flow flow;

    flow_extract(packet, &flow);
    return packet;
}

bool
probe_finish(uint8_t *frame, size_t size, enum probe_left left)
{
    struct dp_packet *packet = packet_of(frame, size);
    bool finished;

    switch (left) {
    case PROBE_TCP: dp_packet_hwol_set_csum_tcp(packet); break;
    case PROBE_UDP: dp_packet_hwol_set_csum_udp(packet); break;
    case PROBE_SCTP: dp_packet_hwol_set_csum_sctp(packet); break;
    case PROBE_NOTHING: break;
    }
    finished = finish_checksum(packet);
    memcpy(frame, dp_packet_data(packet), size);
    dp_packet_delete(packet);
    return finished;
}

size_t
probe_segment(const uint8_t *frame, size_t size, uint32_t mtu, uint32_t frame_size, uint8_t *segments)
{
    struct dp_packet *packet = packet_of(frame, size);
    struct segmentation segmentation;
    uint8_t *next = segments;
    uint32_t made;

    if (segmentation_start(&segmentation, packet, mtu, frame_size)) {
        while ((made = segmentation_next(&segmentation, next + sizeof made))) {
            memcpy(next, &made, sizeof made);
            next += sizeof made + made;
        }
    }
    dp_packet_delete(packet);
    return next - segments;
}
