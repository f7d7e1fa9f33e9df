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

static void
leave(struct dp_packet *packet, enum probe_left left)
{
    switch (left) {
    case PROBE_TCP: dp_packet_hwol_set_csum_tcp(packet); break;
    case PROBE_UDP: dp_packet_hwol_set_csum_udp(packet); break;
    case PROBE_SCTP: dp_packet_hwol_set_csum_sctp(packet); break;
    case PROBE_NOTHING: break;
    }
}

static bool
finish(struct dp_packet *packet, uint8_t *frame)
{
    bool finished = finish_checksum(packet);

    memcpy(frame, dp_packet_data(packet), dp_packet_size(packet));
    dp_packet_delete(packet);
    return finished;
}

bool
probe_finish(uint8_t *frame, size_t size, enum probe_left left)
{
    struct dp_packet *packet = packet_of(frame, size);

    leave(packet, left);
    return finish(packet, frame);
}

bool
probe_finish_cut(uint8_t *frame, size_t size, size_t keep, enum probe_left left)
{
    struct dp_packet *packet = packet_of(frame, size), *cut;

    leave(packet, left);
    dp_packet_hwol_set_tcp_seg(packet);
    /* In memory that ends with the frame: who reads beyond it is seen. */
    cut = dp_packet_clone_data(dp_packet_data(packet), keep);
    cut->l2_5_ofs = packet->l2_5_ofs;
    cut->l3_ofs = packet->l3_ofs;
    cut->l4_ofs = packet->l4_ofs;
    *dp_packet_ol_flags_ptr(cut) = *dp_packet_ol_flags_ptr(packet);
    dp_packet_delete(packet);
    if (is_to_be_segmented(cut, UINT32_MAX)) {
        dp_packet_delete(cut);
        return false;
    }
    return finish(cut, frame);
}

bool
probe_finish_ip(uint8_t *frame, size_t size, enum probe_left left)
{
    struct dp_packet *packet = packet_of(frame, size);

    leave(packet, left);
    dp_packet_hwol_set_tx_ipv4(packet);
    return finish(packet, frame);
}

size_t
probe_segment(const uint8_t *frame, size_t size, size_t keep, enum probe_left left, uint32_t mtu,
              uint32_t frame_size, uint8_t *segments)
{
    struct dp_packet *packet = packet_of(frame, size);
    struct segmentation segmentation;
    uint8_t *next = segments;
    uint32_t made;

    leave(packet, left);
    dp_packet_hwol_set_tcp_seg(packet);
    dp_packet_set_size(packet, keep);
    if (is_to_be_segmented(packet, frame_size) && segmentation_start(&segmentation, packet, mtu, frame_size)) {
        while ((made = segmentation_next(&segmentation, next + sizeof made))) {
            memcpy(next, &made, sizeof made);
            next += sizeof made + made;
        }
    }
    dp_packet_delete(packet);
    return next - segments;
}
