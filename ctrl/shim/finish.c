/* See finish.h. */
#include <config.h>

#include "shim/finish.h"

#include <string.h>

#include "crc32c.h"
#include "csum.h"
#include "netdev-provider.h"
#include "packets.h"
#include "unaligned.h"
#include "userspace-tso.h"
#include "util.h"

uint64_t
finished_features(void)
{
    return userspace_tso_enabled()
           ? NETDEV_TX_OFFLOAD_IPV4_CKSUM | NETDEV_TX_OFFLOAD_TCP_CKSUM | NETDEV_TX_OFFLOAD_UDP_CKSUM
             | NETDEV_TX_OFFLOAD_SCTP_CKSUM | NETDEV_TX_OFFLOAD_TCP_TSO
           : 0;
}

static bool
is_ipv4(const void *l3)
{
    return IP_VER(((const struct ip_header *) l3)->ip_ihl_ver) == 4;
}

/* Over the pseudo-header, too. The field is 0. */
static ovs_be16
checksum_of(const void *l3, const void *l4, uint16_t size, uint8_t protocol)
{
    return is_ipv4(l3) ? csum_finish(csum_continue(packet_csum_pseudoheader(l3), l4, size))
                       : packet_csum_upperlayer6(l3, l4, protocol, size);
}

static void
put_tcp_checksum(const void *l3, struct tcp_header *tcp, uint16_t size)
{
    tcp->tcp_csum = 0;
    tcp->tcp_csum = checksum_of(l3, tcp, size, IPPROTO_TCP);
}

static void
put_udp_checksum(const void *l3, struct udp_header *udp, uint16_t size)
{
    udp->udp_csum = 0;
    udp->udp_csum = checksum_of(l3, udp, size, IPPROTO_UDP);
    if (!udp->udp_csum) {
        udp->udp_csum = htons(0xffff);      /* 0 stands for none. */
    }
}

static void
put_sctp_checksum(struct sctp_header *sctp, uint16_t size)
{
    put_16aligned_be32(&sctp->sctp_csum, 0);
    put_16aligned_be32(&sctp->sctp_csum, crc32c((const uint8_t *) sctp, size));
}

static void
put_ip_checksum(struct ip_header *ip)
{
    ip->ip_csum = 0;
    ip->ip_csum = csum(ip, IP_IHL(ip->ip_ihl_ver) * 4);
}

/* Where the packet ends, as IP says. */
static uint32_t
ip_end(const struct dp_packet *packet)
{
    const void *l3 = dp_packet_l3(packet);
    const struct ovs_16aligned_ip6_hdr *ip6 = l3;

    return packet->l3_ofs + (is_ipv4(l3) ? ntohs(((const struct ip_header *) l3)->ip_tot_len)
                                         : sizeof *ip6 + ntohs(ip6->ip6_ctlun.ip6_un1.ip6_un1_plen));
}

/* Has all that IP says. OVS cuts a packet by its size alone: offsets and what is asked for stay as they were, and
 * dp_packet_l4_size() of what ends in front of L4 is nonsense. */
static bool
is_whole(const struct dp_packet *packet)
{
    uint32_t size = dp_packet_size(packet);

    return dp_packet_l3(packet) && dp_packet_l4(packet) && packet->l4_ofs <= size && ip_end(packet) <= size;
}

bool
is_to_be_segmented(const struct dp_packet *packet, uint32_t frame_size)
{
    return dp_packet_hwol_is_tso(packet) && (is_whole(packet) || dp_packet_size(packet) > frame_size);
}

bool
finish_checksum(struct dp_packet *packet)
{
    void *l3 = dp_packet_l3(packet), *l4 = dp_packet_l4(packet);
    bool of_l4 = dp_packet_hwol_tx_l4_checksum(packet);
    size_t size;

    if (!l3 || !l4) {
        return !of_l4;
    }
    if (!is_whole(packet)) {
        return true;
    }
    /* What connection tracking changes in a header, it leaves to be summed up. */
    if (dp_packet_hwol_is_ipv4(packet) && is_ipv4(l3)) {
        put_ip_checksum(l3);
    }
    size = dp_packet_l4_size(packet);
    if (!of_l4) {
        return true;
    }
    if (dp_packet_hwol_l4_is_tcp(packet) && size >= TCP_HEADER_LEN) {
        put_tcp_checksum(l3, l4, size);
    } else if (dp_packet_hwol_l4_is_udp(packet) && size >= UDP_HEADER_LEN) {
        put_udp_checksum(l3, l4, size);
    } else if (dp_packet_hwol_l4_is_sctp(packet) && size >= SCTP_HEADER_LEN) {
        put_sctp_checksum(l4, size);
    } else {
        return false;
    }
    return true;
}

bool
segmentation_start(struct segmentation *to, const struct dp_packet *packet, uint32_t mtu, uint32_t frame_size)
{
    const struct tcp_header *tcp = dp_packet_l4(packet);
    uint32_t end, there, tcp_size, behind_ethernet;

    if (!dp_packet_hwol_l4_is_tcp(packet) || !dp_packet_l3(packet) || !tcp) {
        return false;
    }
    end = ip_end(packet);
    there = MIN(end, dp_packet_size(packet));
    if (there < packet->l4_ofs + TCP_HEADER_LEN) {
        return false;
    }
    tcp_size = TCP_OFFSET(tcp->tcp_ctl) * 4;
    behind_ethernet = packet->l4_ofs - packet->l3_ofs + tcp_size;
    if (tcp_size < TCP_HEADER_LEN || there < packet->l4_ofs + tcp_size || behind_ethernet >= mtu
        || packet->l3_ofs + mtu > frame_size) {
        return false;
    }
    *to = (struct segmentation) {
        .packet = packet,
        .headers = packet->l4_ofs + tcp_size,
        .most = mtu - behind_ethernet,
        .next = 0,
        .size = end - packet->l4_ofs - tcp_size,
        .there = there - packet->l4_ofs - tcp_size,
        .number = 0,
    };
    return true;
}

static void
put_ip_length(void *l3, uint16_t behind_l3, uint16_t l3_size, uint16_t number)
{
    if (is_ipv4(l3)) {
        struct ip_header *ip = l3;

        ip->ip_tot_len = htons(l3_size + behind_l3);
        ip->ip_id = htons(ntohs(ip->ip_id) + number);
        put_ip_checksum(ip);
    } else {
        struct ovs_16aligned_ip6_hdr *ip6 = l3;

        ip6->ip6_ctlun.ip6_un1.ip6_un1_plen = htons(l3_size - sizeof *ip6 + behind_l3);
    }
}

static void
put_tcp(struct tcp_header *tcp, uint32_t from, bool is_first, bool is_last)
{
    uint16_t flags = TCP_FLAGS(tcp->tcp_ctl);

    if (!is_last) {
        flags &= ~(TCP_FIN | TCP_PSH);
    }
    if (!is_first) {
        flags &= ~TCP_CWR;
    }
    tcp->tcp_ctl = TCP_CTL(flags, TCP_OFFSET(tcp->tcp_ctl));
    put_16aligned_be32(&tcp->tcp_seq, htonl(ntohl(get_16aligned_be32(&tcp->tcp_seq)) + from));
}

uint32_t
segmentation_next(struct segmentation *from, uint8_t *frame)
{
    const struct dp_packet *packet = from->packet;
    uint32_t payload = MIN(from->most, from->size - from->next);
    uint32_t there = from->next < from->there ? MIN(payload, from->there - from->next) : 0;
    uint16_t l3_size = packet->l4_ofs - packet->l3_ofs, l4_size = from->headers - packet->l4_ofs + payload;
    void *l3 = frame + packet->l3_ofs, *l4 = frame + packet->l4_ofs;
    bool is_first = !from->number;

    /* A packet without a payload is one segment. */
    if (!there && !is_first) {
        return 0;
    }
    memcpy(frame, dp_packet_data(packet), from->headers);
    memcpy(frame + from->headers, (const uint8_t *) dp_packet_data(packet) + from->headers + from->next, there);
    put_ip_length(l3, l4_size, l3_size, from->number);
    put_tcp(l4, from->next, is_first, from->next + payload == from->size);
    if (there == payload) {
        put_tcp_checksum(l3, l4, l4_size);
    }
    from->next += payload;
    from->number++;
    return from->headers + there;
}
