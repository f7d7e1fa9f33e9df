/* A megaflow as the offload code sees it: a plain value that C and C++ can both build.
 *
 * Made by the C shim out of OVS's `struct match` and netlink actions, or by a test. Nothing behind it knows OVS. The
 * shim clears each mask bit that it carries over; the names of all fields that have no place here are left in
 * `unsupported_match`, the name of each action that has none in an OVSDR_ACTION_UNSUPPORTED entry. The value owns
 * nothing: names point at static storage, a tunnel's header and software's actions at bytes that whoever made the value
 * keeps as long as it.
 *
 * Byte order: `be` fields are as on the wire, all others are the host's.
 */
#ifndef OFFLOAD_DR_MEGAFLOW_H
#define OFFLOAD_DR_MEGAFLOW_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As OVS's struct flow holds them; one instance is the key, one the mask (all ones = exact). */
struct ovsdr_flow_fields {
    uint32_t in_port;          /* datapath port number (odp_port_t) */
    uint32_t recirc_id;
    uint8_t eth_dst[6];
    uint8_t eth_src[6];
    uint16_t be_eth_type;      /* of the payload behind all VLAN tags, as in struct flow */
    uint16_t be_vlan_tpid[2];  /* [0] is the outermost tag; tpid and tci 0 where there is none */
    uint16_t be_vlan_tci[2];   /* OVS sets bit 12 (VLAN_CFI) where there is a tag */
    uint8_t ip_proto;          /* ARP: opcode */
    uint8_t ip_tos;            /* DSCP and ECN, 8 bits */
    uint8_t ip_ttl;
    uint8_t ip_frag;           /* bit 0 any fragment, bit 1 later fragment */
    uint8_t ipv6;              /* addresses are IPv6; key only */
    uint8_t arp;               /* addresses are ARP's; key only */
    uint8_t src[16];           /* IPv4 in the first 4 bytes */
    uint8_t dst[16];
    uint32_t be_ipv6_label;
    uint16_t be_tp_src;        /* ICMP: type in the low byte of the host-order value */
    uint16_t be_tp_dst;        /* ICMP: code */
    uint16_t be_tcp_flags;
    uint8_t vlan_limit;        /* tags that OVS parses, 1 or 2: the TPID of a further one is its eth_type; key only */
    uint8_t reserved;          /* 0, also in the mask; no padding: all bytes are values and compare as such */
};

enum {
    OVSDR_TUNNEL_CSUM = 1,     /* flags, as OVS's FLOW_TNL_F_CSUM, _KEY, _OAM */
    OVSDR_TUNNEL_KEY = 2,
    OVSDR_TUNNEL_OAM = 4,
};

/* What a tunnel had around the packet, as OVS's struct flow_tnl holds it; one instance is the key, one the mask. All
 * zero: the packet came through none, or nothing is asked. */
struct ovsdr_tunnel_fields {
    uint64_t be_id;            /* VNI or GRE's key */
    uint8_t src[16];           /* IPv4 in the first 4 bytes */
    uint8_t dst[16];
    uint16_t be_tp_src;
    uint16_t be_tp_dst;
    uint8_t ipv6;              /* addresses are IPv6; key only */
    uint8_t tos;
    uint8_t ttl;
    uint8_t flags;             /* OVSDR_TUNNEL_* */
    uint8_t options_size;      /* bytes of Geneve options */
    uint8_t option[8];         /* the first of them, as on the wire */
    uint8_t reserved[7];       /* 0, also in the mask: no padding */
};

/* Some names of a table: bit i stands for names[i]. */
struct ovsdr_names {
    uint64_t bits;
    const char *const *names;  /* static storage; NULL when no bit is set */
};

enum ovsdr_action_type {
    OVSDR_ACTION_OUTPUT,
    OVSDR_ACTION_PUSH_VLAN,
    OVSDR_ACTION_POP_VLAN,
    OVSDR_ACTION_SET,
    OVSDR_ACTION_TUNNEL_PUSH,    /* the packet goes on inside of a tunnel's packet */
    OVSDR_ACTION_TUNNEL_POP,     /* what is inside goes on as if it had come in by a tunnel port */
    OVSDR_ACTION_RECIRC,         /* the packet goes on in the table of this recirc_id */
    OVSDR_ACTION_COPY_BEGIN,     /* up to COPY_END: for a copy; the packet goes on behind it as it was here */
    OVSDR_ACTION_COPY_END,
    OVSDR_ACTION_METER,          /* what exceeds this meter is dropped here */
    OVSDR_ACTION_SOFTWARE,       /* a copy goes to software as the packet is here; the packet itself goes on */
    OVSDR_ACTION_UNSUPPORTED,
};

/* Header fields that can be written; value and mask are as on the wire, from the first byte on. */
enum ovsdr_header_field {
    OVSDR_HEADER_ETH_DST,        /* 6 bytes */
    OVSDR_HEADER_ETH_SRC,
    OVSDR_HEADER_IP_SRC,         /* 4 bytes */
    OVSDR_HEADER_IP_DST,
    OVSDR_HEADER_IPV6_SRC,       /* 16 bytes */
    OVSDR_HEADER_IPV6_DST,
    OVSDR_HEADER_IP_TOS,         /* 1 byte: DSCP and ECN; IPv6: traffic class */
    OVSDR_HEADER_IP_TTL,         /* 1 byte; IPv6: hop limit */
    OVSDR_HEADER_TCP_SRC,        /* 2 bytes */
    OVSDR_HEADER_TCP_DST,
    OVSDR_HEADER_UDP_SRC,
    OVSDR_HEADER_UDP_DST,
};

/* The bits of a field that are set in the mask are written; of the value no others are set, and no bytes behind the
 * field. A mask is not empty. */
struct ovsdr_set {
    uint8_t field;               /* enum ovsdr_header_field */
    uint8_t value[16];
    uint8_t mask[16];
};

/* The headers that go in front of the packet: Ethernet, IP, what follows. OVS fills in the lengths, the IPv4 header's
 * checksum, UDP's source port and its checksum if that is not 0 in `header`. */
struct ovsdr_tunnel_push {
    const uint8_t *header;       /* NULL in a value that keeps its headers elsewhere (megaflow_store.hpp) */
    uint16_t header_size;
    uint16_t udp_source_first;   /* of those that OVS takes source ports of UDP from, host order */
    uint16_t udp_source_end;     /* behind the last */
    uint32_t out_port;           /* in_port of what comes out: OVS begins with new metadata then */
};

enum { OVSDR_MAX_TUNNEL_HEADER = 512 };   /* bytes; OVS has no longer ones */

/* What software does to a copy. Equal bytes are equal work; nothing in offload/ looks into them. */
struct ovsdr_software {
    const uint8_t *actions;      /* NULL in a value that keeps them elsewhere (megaflow_store.hpp) */
    uint16_t actions_size;       /* 1 to OVSDR_MAX_SOFTWARE_ACTIONS; longer ones are OVSDR_ACTION_UNSUPPORTED */
    uint16_t metered_from;       /* not 0: the actions begin with a meter, and what it lets pass begins at this byte */
    uint32_t meter;              /* then: the datapath's number of it */
    uint32_t one_of;             /* one of so many packets is copied, at random; 1: each */
    uint32_t cut_at;             /* not 0: it is an output of at most so many bytes of the frame, and nothing else */
    uint32_t output;             /* then: to this datapath port */
    const char *name;            /* of what is done, for people and reasons: "userspace"; static storage */
    const char *sampler;         /* whom the copy is for: "sflow", "ipfix", "flow_sample", "controller"; static storage.
                                  * NULL: nobody who samples */
};

enum { OVSDR_MAX_SOFTWARE_ACTIONS = 512 };   /* bytes */

struct ovsdr_action {
    enum ovsdr_action_type type;
    union {
        uint32_t output;                /* datapath port number */
        struct {
            uint16_t be_tpid;
            uint16_t be_tci;            /* with OVS's VLAN_CFI bit, which is not part of the wire's PCP/DEI/VID */
        } push_vlan;
        struct ovsdr_set set;
        struct ovsdr_tunnel_push tunnel_push;
        uint32_t tunnel_port;           /* of TUNNEL_POP: datapath port number */
        uint32_t recirc_id;
        uint32_t meter;                 /* the datapath's number of it */
        struct ovsdr_software software;
        const char *unsupported;        /* OVS_ACTION_ATTR_*'s name without prefix, lower case: "meter", "ct" */
    };
};

enum { OVSDR_MAX_ACTIONS = 32 };

struct ovsdr_megaflow {
    struct ovsdr_flow_fields key;
    struct ovsdr_flow_fields mask;
    struct ovsdr_tunnel_fields tunnel_key;  /* of a megaflow whose in_port is a tunnel port */
    struct ovsdr_tunnel_fields tunnel_mask;
    struct ovsdr_names unsupported_match;   /* "ct_state", "tun_gbp_id"; no bit when every masked field is above */
    uint32_t n_actions;                     /* 0: drop; above OVSDR_MAX_ACTIONS: too many, the first are listed */
    struct ovsdr_action actions[OVSDR_MAX_ACTIONS];
};

#ifdef __cplusplus
}
#endif
#endif
