#include "datapath/steering/tunnel.hpp"

#include <algorithm>

#include "datapath/steering/parser.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t port_vxlan = 4789, port_vxlan_gpe = 4790, port_geneve = 6081;
constexpr std::uint16_t port_gtpu = 2152, port_mpls = 6635;
constexpr std::uint8_t protocol_ipip = 4, protocol_tcp = 6, protocol_udp = 17, protocol_ipv6 = 41, protocol_gre = 47;
constexpr std::uint16_t type_mpls = 0x8847, type_mpls_upstream = 0x8848;
constexpr std::uint8_t vni_flag = 0x08;
constexpr std::uint8_t gtpu_options = 0x07, gtpu_extended = 0x04;  ///< flags: E, S, PN; E
constexpr std::uint8_t gtpu_packet = 255;                          ///< message type of a G-PDU
constexpr std::uint16_t gre_checksum = 0x8000, gre_routing = 0x4000, gre_key = 0x2000, gre_sequence = 0x1000;
constexpr std::uint16_t gre_version = 0x0007, gre_acknowledge = 0x0080;  ///< the latter is a flag of version 1

[[nodiscard]] bool is_mpls(std::uint16_t type) noexcept { return type == type_mpls || type == type_mpls_upstream; }

/// By VXLAN-GPE's next protocol.
[[nodiscard]] std::uint16_t gpe_type(std::uint8_t next) noexcept {
    switch (next) {
        case 1: return Tunnel::type_ipv4;
        case 2: return Tunnel::type_ipv6;
        case 3: return Tunnel::type_ethernet;
        default: return 0;
    }
}

/// Sets the inner packet, of at least the smallest header of its type.
void carry(Tunnel& tunnel, unsigned header_size, std::uint16_t type) noexcept {
    const unsigned inner = tunnel.header + header_size;
    unsigned least = 0;
    switch (type) {
        case Tunnel::type_ethernet: least = 14; break;
        case Tunnel::type_ipv4: least = 20; break;
        case Tunnel::type_ipv6: least = 40; break;
        default: return;
    }
    if (inner + least > tunnel.end) return;
    tunnel.inner = static_cast<std::uint16_t>(inner);
    tunnel.type = type;
}

/// A G-PDU's packet: behind the third word, if any flag asks for one, and the chain of extension headers, each of which
/// says its length in units of 4 bytes first and the next one's type last. TS 29.281, 5.
void enter_gtpu(const std::uint8_t* header, Tunnel& tunnel) noexcept {
    tunnel.kind = Tunnel::Kind::gtpu;
    const std::uint32_t size = tunnel.end - tunnel.header;
    std::uint32_t at = 8;
    if ((header[0] & gtpu_options) != 0) {
        at = 12;
        if (at > size) return;
        std::uint8_t next = (header[0] & gtpu_extended) != 0 ? header[11] : 0;
        while (next != 0) {
            const std::uint32_t length = at < size ? header[at] * 4u : 0;
            if (length == 0 || at + length > size) return;
            at += length;
            next = header[at - 1];
        }
    }
    if (header[1] != gtpu_packet || at >= size) return;
    const unsigned version = header[at] >> 4;
    if (version == 4 || version == 6) carry(tunnel, at, version == 4 ? Tunnel::type_ipv4 : Tunnel::type_ipv6);
}

void enter_udp(const std::uint8_t* frame, const Headers& outer, Tunnel& tunnel) noexcept {
    if (outer.l4 == 0) return;
    const std::uint8_t* header = frame + outer.l4 + 8;
    const std::uint16_t port = load_be16(frame + outer.l4 + 2);
    tunnel.header = static_cast<std::uint16_t>(outer.l4 + 8);
    if (tunnel.header + (port == port_mpls ? 4u : 8u) > tunnel.end) return;
    switch (port) {
        case port_vxlan:
            tunnel.kind = Tunnel::Kind::vxlan;
            if ((header[0] & vni_flag) != 0) carry(tunnel, 8, Tunnel::type_ethernet);
            break;
        case port_vxlan_gpe:
            tunnel.kind = Tunnel::Kind::vxlan_gpe;
            carry(tunnel, 8, gpe_type(header[3]));
            break;
        case port_geneve:
            if (header[0] >> 6 != 0) break;
            tunnel.kind = Tunnel::Kind::geneve;
            carry(tunnel, 8 + (header[0] & 0x3fu) * 4, load_be16(header + 2));
            break;
        case port_gtpu:
            // Version 1, and GTP, not GTP'.
            if (header[0] >> 4 == 3) enter_gtpu(header, tunnel);
            break;
        case port_mpls: tunnel.kind = Tunnel::Kind::mpls; break;
        default: break;
    }
}

[[nodiscard]] unsigned gre_size(std::uint16_t flags) noexcept {
    unsigned size = 4;
    for (const std::uint16_t bit : {gre_checksum, gre_key, gre_sequence}) size += (flags & bit) != 0 ? 4 : 0;
    return size;
}

/// Whether what stands behind a GRE header with these flags is where gre_size() says.
[[nodiscard]] bool is_known_gre(std::uint16_t flags) noexcept {
    if ((flags & gre_routing) != 0) return false;
    const unsigned version = flags & gre_version;
    return version == 0 || (version == 1 && (flags & gre_acknowledge) == 0);
}

void enter_gre(const std::uint8_t* frame, const Headers& outer, Tunnel& tunnel) noexcept {
    if (outer.payload + 4u > tunnel.end) return;
    const std::uint16_t flags = load_be16(frame + outer.payload);
    if (!is_known_gre(flags) || outer.payload + gre_size(flags) > tunnel.end) return;
    tunnel.kind = Tunnel::Kind::gre;
    tunnel.header = outer.payload;
    carry(tunnel, gre_size(flags), load_be16(frame + outer.payload + 2));
}

[[nodiscard]] Tunnel tunnel_of(const std::uint8_t* frame, const Headers& outer) noexcept {
    Tunnel tunnel;
    if (outer.payload == 0) return tunnel;
    tunnel.end = outer.end;
    switch (outer.l4_protocol) {
        case protocol_udp: enter_udp(frame, outer, tunnel); break;
        case protocol_gre: enter_gre(frame, outer, tunnel); break;
        case protocol_ipip:
        case protocol_ipv6:
            tunnel.kind = Tunnel::Kind::ip;
            tunnel.header = outer.payload;
            carry(tunnel, 0, outer.l4_protocol == protocol_ipip ? Tunnel::type_ipv4 : Tunnel::type_ipv6);
            break;
        default: break;
    }
    return tunnel;
}

/// With any flag of E, S and PN the header has a third word; with E, the type of an extension header is in it.
void fill_gtpu(const std::uint8_t* header, std::uint32_t size, std::uint8_t* out) noexcept {
    std::memcpy(out + key_offset::gtpu_dw_0, header, 4);
    std::memcpy(out + key_offset::gtpu_teid, header + 4, 4);
    out[key_offset::gtpu_type] = header[1];
    out[key_offset::gtpu_flags] = header[0];
    if ((header[0] & gtpu_options) == 0 || size < 12) return;
    std::memcpy(out + key_offset::gtpu_dw_2, header + 8, 4);
    const bool extension = (header[0] & gtpu_extended) != 0 && header[11] != 0;
    if (extension && size >= 16) std::memcpy(out + key_offset::gtpu_extension, header + 12, 4);
}

/// The first option of that class, type and length. RFC 8926, 3.5.
void fill_geneve_option(const std::uint8_t* header, std::uint32_t size, const GeneveOption& wanted,
                        std::uint8_t* out) noexcept {
    const std::uint32_t end = 8 + (header[0] & 0x3fu) * 4;
    if (wanted.length == 0 || end > size) return;
    for (std::uint32_t at = 8; at + 4 <= end;) {
        const GeneveOption found{load_be16(header + at), header[at + 2],
                                 static_cast<std::uint8_t>(header[at + 3] & 0x1f)};
        const std::uint32_t next = at + 4 + found.length * 4u;
        if (next > end) return;
        if (found == wanted) {
            out[key_offset::geneve_oam] |= geneve_option_exists;
            std::memcpy(out + key_offset::geneve_option, header + at + 4, 4);
            return;
        }
        at = next;
    }
}

/// The fields of a tunnel's own header.
void fill_tunnel(const std::uint8_t* frame, const Tunnel& tunnel, const ParserSetup& setup,
                 std::uint8_t* out) noexcept {
    const std::uint8_t* header = frame + tunnel.header;
    switch (tunnel.kind) {
        case Tunnel::Kind::vxlan: std::memcpy(out + key_offset::vxlan_vni, header + 4, 3); break;
        case Tunnel::Kind::vxlan_gpe:
            std::memcpy(out + key_offset::gpe_vni, header + 4, 3);
            out[key_offset::gpe_next_protocol] = header[3];
            out[key_offset::gpe_flags] = header[0];
            break;
        case Tunnel::Kind::geneve:
            std::memcpy(out + key_offset::geneve_vni, header + 4, 3);
            out[key_offset::geneve_oam] = header[1] >> 7;
            out[key_offset::geneve_opt_len] = header[0] & 0x3f;
            std::memcpy(out + key_offset::geneve_protocol, header + 2, 2);
            fill_geneve_option(header, tunnel.end - tunnel.header, setup.option, out);
            break;
        case Tunnel::Kind::gtpu: fill_gtpu(header, tunnel.end - tunnel.header, out); break;
        case Tunnel::Kind::mpls: std::memcpy(out + key_offset::mpls_over_udp, header, 4); return;
        case Tunnel::Kind::gre: {
            out[key_offset::gre_flags] |= header[0] & gre_bits;
            std::memcpy(out + key_offset::gre_protocol, header + 2, 2);
            const unsigned key = (header[0] & gre_c_bit) != 0 ? 8 : 4;
            if ((header[0] & gre_k_bit) != 0) std::memcpy(out + key_offset::gre_key, header + key, 4);
            const std::uint32_t behind = tunnel.header + gre_size(load_be16(header));
            if (is_mpls(load_be16(header + 2)) && behind + 4 <= tunnel.end) {
                std::memcpy(out + key_offset::mpls_over_gre, frame + behind, 4);
            }
            break;
        }
        default: return;
    }
    const unsigned size = tunnel.kind == Tunnel::Kind::gre ? gre_size(load_be16(header)) : 8;
    if (tunnel.kind != Tunnel::Kind::ip) std::memcpy(out + key_offset::tunnel_header, header, std::min(size, 8u));
}

/// What stands behind the addresses and ports of one of the two headers.
void fill_rest(const std::uint8_t* frame, const Headers& headers, std::uint8_t* label, std::uint8_t* seq,
               std::uint8_t* ack) noexcept {
    if (headers.l3_version == 6) store_be32(label, load_be32(frame + headers.l3) & 0xfffff);
    if (headers.l4 == 0 || headers.fragment || headers.l4_protocol != protocol_tcp) return;
    std::memcpy(seq, frame + headers.l4 + 4, 4);
    std::memcpy(ack, frame + headers.l4 + 8, 4);
}

void fill_mpls(const std::uint8_t* frame, std::uint32_t size, std::uint16_t type_offset, std::uint8_t* out) noexcept {
    if (type_offset == 0 || type_offset + 6u > size) return;
    if (is_mpls(load_be16(frame + type_offset))) std::memcpy(out, frame + type_offset + 2, 4);
}

void fill_inner(const std::uint8_t* frame, const Tunnel& tunnel, std::uint8_t* out) noexcept {
    const std::uint8_t* packet = frame + tunnel.inner;
    const std::uint32_t size = tunnel.end - tunnel.inner;
    Key key;  // its first half is all that is written, and read
    Headers headers;
    if (tunnel.type == Tunnel::type_ethernet) {
        parse(packet, size, key);
        headers = locate(packet, size);
        fill_mpls(packet, size, headers.type, out + key_offset::inner_mpls);
    } else {
        parse_ip(packet, size, tunnel.type, key);
        headers = locate_ip(packet, size, tunnel.type);
    }
    const std::uint8_t* in = key.bytes();
    std::memcpy(out + key_offset::inner, in, 64);
    std::memcpy(out + key_offset::inner_second_vlan, in + key_offset::second_vlan, 2);
    out[key_offset::second_qualifier] |= in[key_offset::second_qualifier] >> 1;
    fill_rest(packet, headers, out + key_offset::inner_flow_label, out + key_offset::inner_tcp_seq,
              out + key_offset::inner_tcp_ack);
}

/// Fields that mean the same of the outer packet and of the inner one.
struct Pair {
    unsigned outer, inner, size;
};
constexpr Pair pairs[] = {
    {0, key_offset::inner, 64},
    {key_offset::second_vlan, key_offset::inner_second_vlan, 2},
    {key_offset::outer_flow_label, key_offset::inner_flow_label, 4},
    {key_offset::outer_mpls, key_offset::inner_mpls, 4},
    {key_offset::outer_tcp_seq, key_offset::inner_tcp_seq, 4},
    {key_offset::outer_tcp_ack, key_offset::inner_tcp_ack, 4},
};

}  // namespace

void add_inner_of_outer(Key& mask) noexcept {
    std::uint8_t* bytes = mask.bytes();
    for (const Pair& pair : pairs) {
        for (unsigned i = 0; i < pair.size; ++i) bytes[pair.inner + i] |= bytes[pair.outer + i];
    }
    bytes[key_offset::second_qualifier] |=
        (bytes[key_offset::second_qualifier] & (second_cvlan_bit | second_svlan_bit)) >> 1;
}

void taint_by_decapsulation(Key& taint) noexcept {
    const Key before = taint;
    taint_headers(taint);
    for (const Pair& pair : pairs) std::memcpy(taint.bytes() + pair.outer, before.bytes() + pair.inner, pair.size);
    constexpr std::uint8_t outer_bits = second_cvlan_bit | second_svlan_bit;
    std::uint8_t& qualifier = taint.bytes()[key_offset::second_qualifier];
    qualifier = static_cast<std::uint8_t>(
        ~outer_bits | (before.bytes()[key_offset::second_qualifier] << 1 & outer_bits));
}

void taint_headers(Key& taint) noexcept {
    std::memset(taint.bytes(), 0xff, key_offset::gre_flags);
    std::memset(taint.bytes() + key_offset::second_vlan, 0xff, key_offset::reg_c_7 - key_offset::second_vlan);
    taint_deep(taint);
}

void taint_deep(Key& taint) noexcept {
    std::uint8_t* bytes = taint.bytes();
    bytes[key_offset::gre_flags] |= gre_bits;
    std::memset(bytes + key_offset::inner_second_vlan, 0xff, 2);
    bytes[key_offset::second_qualifier] |= inner_second_cvlan_bit | inner_second_svlan_bit;
    std::memset(bytes + key_offset::gre_protocol, 0xff, 2);
    std::memset(bytes + key_offset::inner, 0xff, sizeof(Key) - key_offset::inner);
}

Tunnel find_tunnel(const std::uint8_t* frame, std::uint32_t size) noexcept {
    return tunnel_of(frame, locate(frame, size));
}

void parse_deep(const std::uint8_t* frame, std::uint32_t size, const ParserSetup& setup, Key& key) noexcept {
    std::uint8_t* out = key.bytes();
    std::memset(out + key_offset::inner, 0, sizeof(Key) - key_offset::inner);
    const Headers outer = locate(frame, size);
    fill_rest(frame, outer, out + key_offset::outer_flow_label, out + key_offset::outer_tcp_seq,
              out + key_offset::outer_tcp_ack);
    fill_mpls(frame, size, outer.type, out + key_offset::outer_mpls);
    const Tunnel tunnel = tunnel_of(frame, outer);
    if (tunnel.kind == Tunnel::Kind::none) return;
    fill_tunnel(frame, tunnel, setup, out);
    const bool entered = tunnel.kind != Tunnel::Kind::gtpu || setup.gtpu;
    if (tunnel.inner != 0 && entered) fill_inner(frame, tunnel, out);
}

}  // namespace ovsdr::soft
