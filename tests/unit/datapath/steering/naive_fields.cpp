#include "naive_fields.hpp"

#include <utility>

namespace ovsdr::soft::test {
namespace {

/// Reads only what is there: anything past the end is "nothing".
class Reader {
public:
    explicit Reader(const Bytes& frame) : frame_(frame), end_(frame.size()) {}

    [[nodiscard]] bool has(std::size_t at, std::size_t size) const { return at + size <= end_; }
    [[nodiscard]] std::uint64_t number(std::size_t at, std::size_t size) const {
        std::uint64_t value = 0;
        for (std::size_t i = 0; i < size; ++i) value = value << 8 | frame_.at(at + i);
        return value;
    }
    void cut(std::size_t end) { end_ = end; }
    [[nodiscard]] std::size_t end() const { return end_; }

private:
    const Bytes& frame_;
    std::size_t end_;
};

void take_l4(const Reader& reader, std::size_t at, std::uint64_t protocol, bool v6, Parameters& out) {
    if (protocol == 6 && reader.has(at, 20)) {
        out.set(field::tcp_sport, reader.number(at, 2)).set(field::tcp_dport, reader.number(at + 2, 2));
        out.set(field::tcp_flags, reader.number(at + 12, 2) & 0x1ff);
        out.set(field::outer_seq, reader.number(at + 4, 4)).set(field::outer_ack, reader.number(at + 8, 4));
    }
    if (protocol == 17 && reader.has(at, 8)) {
        out.set(field::udp_sport, reader.number(at, 2)).set(field::udp_dport, reader.number(at + 2, 2));
    }
    if (protocol == 1 && !v6 && reader.has(at, 8)) {
        out.set(field::icmp_data, reader.number(at + 4, 4));
        out.set(field::icmp_type, reader.number(at, 1)).set(field::icmp_code, reader.number(at + 1, 1));
    }
    if (protocol == 58 && v6 && reader.has(at, 8)) {
        out.set(field::icmpv6_data, reader.number(at + 4, 4));
        out.set(field::icmpv6_type, reader.number(at, 1)).set(field::icmpv6_code, reader.number(at + 1, 1));
    }
}

constexpr unsigned nothing = 99;  ///< for Carried::ip_version

/// What an unfragmented IP packet has behind its headers.
struct Payload {
    std::uint64_t protocol = 256;  ///< none
    std::size_t begin = 0, end = 0;
};

void take_ipv4(Reader reader, std::size_t at, Parameters& out, Payload& payload) {
    if (!reader.has(at, 20) || reader.number(at, 1) >> 4 != 4) return;
    const std::size_t header = (reader.number(at, 1) & 15) * 4;
    const std::size_t total = reader.number(at + 2, 2);
    if (header < 20 || total < header || !reader.has(at, total)) return;
    reader.cut(at + total);
    const std::uint64_t protocol = reader.number(at + 9, 1);
    const bool fragment = (reader.number(at + 6, 2) & 0x3fff) != 0;  // more, or an offset
    out.set(field::ip_version, 4).set(field::ipv4_ihl, header / 4).set(field::ip_protocol, protocol);
    out.set(field::ip_dscp, reader.number(at + 1, 1) >> 2).set(field::ip_ecn, reader.number(at + 1, 1) & 3);
    out.set(field::ttl, reader.number(at + 8, 1)).set(field::frag, fragment ? 1 : 0);
    out.set(field::src_31_0, reader.number(at + 12, 4)).set(field::dst_31_0, reader.number(at + 16, 4));
    if (fragment) return;
    take_l4(reader, at + header, protocol, false, out);
    payload = {protocol, at + header, reader.end()};
}

void take_ipv6(Reader reader, std::size_t at, Parameters& out, Payload& payload) {
    if (!reader.has(at, 40) || reader.number(at, 1) >> 4 != 6) return;
    const std::size_t said = at + 40 + reader.number(at + 4, 2);
    if (said < reader.end()) reader.cut(said);
    std::uint64_t next = reader.number(at + 6, 1);
    std::size_t here = at + 40;
    bool fragment = false;
    bool later = false;
    bool broken = false;
    while (!later && !broken && (next == 0 || next == 43 || next == 44 || next == 51 || next == 60)) {
        if (!reader.has(here, 8)) {
            broken = true;
            break;
        }
        std::size_t size = (reader.number(here + 1, 1) + 1) * 8;
        if (next == 44) size = 8;
        if (next == 51) size = (reader.number(here + 1, 1) + 2) * 4;
        broken = !reader.has(here, size);
        if (broken) break;
        if (next == 44) {
            const std::uint64_t place = reader.number(here + 2, 2);
            later = place / 8 != 0;
            fragment = fragment || later || (place & 1) != 0;
            if (later) break;
        }
        next = reader.number(here, 1);
        here += size;
    }
    out.set(field::ip_version, 6).set(field::ip_protocol, next).set(field::frag, fragment ? 1 : 0);
    const std::uint64_t traffic_class = reader.number(at, 4) >> 20 & 0xff;
    out.set(field::ip_dscp, traffic_class >> 2).set(field::ip_ecn, traffic_class & 3);
    out.set(field::ttl, reader.number(at + 7, 1));
    out.set(field::src_127_96, reader.number(at + 8, 4)).set(field::src_95_64, reader.number(at + 12, 4));
    out.set(field::src_63_32, reader.number(at + 16, 4)).set(field::src_31_0, reader.number(at + 20, 4));
    out.set(field::dst_127_96, reader.number(at + 24, 4)).set(field::dst_95_64, reader.number(at + 28, 4));
    out.set(field::dst_63_32, reader.number(at + 32, 4)).set(field::dst_31_0, reader.number(at + 36, 4));
    out.set(field::outer_label, reader.number(at, 4) & 0xfffff);
    if (fragment || broken) return;
    take_l4(reader, here, next, true, out);
    payload = {next, here, reader.end()};
}

void take_gre(const Bytes& frame, const Payload& payload, Parameters& out, Carried& carried) {
    Reader reader(frame);
    reader.cut(payload.end);
    if (!reader.has(payload.begin, 4)) return;
    const std::uint64_t first = reader.number(payload.begin, 2);
    const bool checksum = (first & 0x8000) != 0, key = (first & 0x2000) != 0, sequence = (first & 0x1000) != 0;
    const bool version_1 = (first & 7) == 1 && (first & 0x80) == 0;
    if ((first & 0x4000) != 0 || ((first & 7) != 0 && !version_1)) return;
    const std::size_t size = 4 + 4U * checksum + 4U * key + 4U * sequence;
    if (!reader.has(payload.begin, size)) return;
    const std::uint64_t protocol = reader.number(payload.begin + 2, 2);
    out.set(field::gre_c, checksum).set(field::gre_k, key).set(field::gre_s, sequence);
    out.set(field::gre_protocol, protocol);
    if (key) {
        const std::uint64_t number = reader.number(payload.begin + 4 + 4U * checksum, 4);
        out.set(field::gre_key_h, number >> 8).set(field::gre_key_l, number & 0xff);
    }
    out.set(field::tunnel_0, reader.number(payload.begin, 4));
    if (size >= 8) out.set(field::tunnel_1, reader.number(payload.begin + 4, 4));
    const bool mpls = protocol == 0x8847 || protocol == 0x8848;
    if (mpls && reader.has(payload.begin + size, 4)) {
        out.set(field::mpls_over_gre, reader.number(payload.begin + size, 4));
    }
    const Bytes rest(frame.begin() + static_cast<long>(payload.begin + size),
                     frame.begin() + static_cast<long>(payload.end));
    if (protocol == 0x6558) carried = {rest, 0};
    if (protocol == 0x0800) carried = {rest, 4};
    if (protocol == 0x86dd) carried = {rest, 6};
}

/// `header`: of GTP-U, whose 8 bytes are there.
void take_gtpu(const Reader& reader, std::size_t header, Parameters& out) {
    const std::uint64_t first = reader.number(header, 1);
    out.set(field::gtpu_dw_0, reader.number(header, 4)).set(field::gtpu_teid, reader.number(header + 4, 4));
    out.set(field::gtpu_type, reader.number(header + 1, 1)).set(field::gtpu_flags, first);
    out.set(field::tunnel_0, reader.number(header, 4)).set(field::tunnel_1, reader.number(header + 4, 4));
    if ((first & 7) == 0 || !reader.has(header + 8, 4)) return;
    out.set(field::gtpu_dw_2, reader.number(header + 8, 4));
    if ((first & 4) == 0 || reader.number(header + 11, 1) == 0 || !reader.has(header + 12, 4)) return;
    out.set(field::gtpu_extension, reader.number(header + 12, 4));
}

/// Where the packet of a G-PDU begins; nothing for other messages, and for headers that do not end.
[[nodiscard]] std::optional<std::size_t> gtpu_packet(const Reader& reader, std::size_t header) {
    const std::uint64_t first = reader.number(header, 1);
    if (reader.number(header + 1, 1) != 255) return std::nullopt;
    if ((first & 7) == 0) return header + 8;
    std::size_t at = header + 12;
    if (!reader.has(header, 12)) return std::nullopt;
    if ((first & 4) == 0) return at;
    for (std::size_t type_at = header + 11; reader.number(type_at, 1) != 0; type_at = at - 1) {
        if (!reader.has(at, 1) || reader.number(at, 1) == 0) return std::nullopt;
        const std::size_t size = 4 * reader.number(at, 1);
        if (!reader.has(at, size)) return std::nullopt;
        at += size;
    }
    return at;
}

/// `size`: of the Geneve header with its options, all of which is there.
void take_geneve_option(const Reader& reader, std::size_t header, std::size_t size, const NaiveParser::Option& option,
                        Parameters& out) {
    for (std::size_t at = header + 8; at < header + size;) {
        const std::size_t length = (reader.number(at + 3, 1) & 0x1f) * 4;
        if (at + 4 + length > header + size) return;
        if (reader.number(at, 3) == option.kind && length == option.length) {
            out.set(field::geneve_exists, 1).set(field::geneve_option, reader.number(at + 4, 4));
            return;
        }
        at += 4 + length;
    }
}

void take_udp(const Bytes& frame, const Payload& payload, const NaiveParser& parser, Parameters& out,
              Carried& carried) {
    Reader reader(frame);
    reader.cut(payload.end);
    if (!reader.has(payload.begin, 8)) return;
    const std::uint64_t port = reader.number(payload.begin + 2, 2);
    const std::size_t header = payload.begin + 8;
    if (port == 6635 && reader.has(header, 4)) out.set(field::mpls_over_udp, reader.number(header, 4));
    if (!reader.has(header, 8)) return;
    if (port == 2152 && (reader.number(header, 1) & 0xf0) == 0x30) {
        take_gtpu(reader, header, out);
        const std::optional<std::size_t> at = gtpu_packet(reader, header);
        if (!parser.gtpu || !at || !reader.has(*at, 1)) return;
        const auto version = static_cast<unsigned>(reader.number(*at, 1) >> 4);
        if (version != 4 && version != 6) return;
        carried = {Bytes(frame.begin() + static_cast<long>(*at), frame.begin() + static_cast<long>(payload.end)),
                   version};
        return;
    }
    const std::uint64_t vni = reader.number(header + 4, 3);
    std::size_t size = 8;
    unsigned version = nothing;
    if (port == 4789) {
        out.set(field::vxlan_vni, vni);
        if ((reader.number(header, 1) & 8) != 0) version = 0;
    } else if (port == 4790) {
        const std::uint64_t next = reader.number(header + 3, 1);
        out.set(field::gpe_vni, vni).set(field::gpe_next, next).set(field::gpe_flags, reader.number(header, 1));
        version = next == 3 ? 0 : next == 1 ? 4 : next == 2 ? 6 : nothing;
    } else if (port == 6081 && reader.number(header, 1) < 0x40) {
        const std::uint64_t protocol = reader.number(header + 2, 2);
        out.set(field::geneve_vni, vni).set(field::geneve_opt_len, reader.number(header, 1));
        out.set(field::geneve_oam, reader.number(header + 1, 1) >> 7).set(field::geneve_protocol, protocol);
        size += reader.number(header, 1) * 4;
        if (parser.option && reader.has(header, size)) take_geneve_option(reader, header, size, *parser.option, out);
        version = protocol == 0x6558 ? 0 : protocol == 0x0800 ? 4 : protocol == 0x86dd ? 6 : nothing;
    } else {
        return;
    }
    out.set(field::tunnel_0, reader.number(header, 4)).set(field::tunnel_1, reader.number(header + 4, 4));
    if (version == nothing || !reader.has(header, size)) return;
    carried = {Bytes(frame.begin() + static_cast<long>(header + size), frame.begin() + static_cast<long>(payload.end)),
               version};
}

struct Apart {
    Parameters parts;
    Carried carried{{}, nothing};
};

/// `version` 0: an Ethernet frame.
[[nodiscard]] std::optional<Apart> take(const Bytes& frame, unsigned version, const NaiveParser& parser) {
    const Reader reader(frame);
    Apart apart;
    Parameters& out = apart.parts;
    std::size_t at = 0;
    if (version == 0) {
        if (!reader.has(0, 14)) return std::nullopt;
        out.set(field::dmac_47_16, reader.number(0, 4)).set(field::dmac_15_0, reader.number(4, 2));
        out.set(field::smac_47_16, reader.number(6, 4)).set(field::smac_15_0, reader.number(10, 2));
        at = 14;
        std::uint64_t type = reader.number(12, 2);
        for (int tag = 0; tag < 2 && (type == 0x8100 || type == 0x88a8) && reader.has(at, 4); ++tag) {
            const std::uint64_t tci = reader.number(at, 2);
            const bool first = tag == 0;
            out.set(first ? field::first_prio : field::second_prio, tci >> 13);
            out.set(first ? field::first_cfi : field::second_cfi, tci >> 12 & 1);
            out.set(first ? field::first_vid : field::second_vid, tci & 0xfff);
            out.set(type == 0x8100 ? (first ? field::cvlan_tag : field::second_cvlan)
                                   : (first ? field::svlan_tag : field::second_svlan), 1);
            type = reader.number(at + 2, 2);
            at += 4;
        }
        out.set(field::ethertype, type);
        if ((type == 0x8847 || type == 0x8848) && reader.has(at, 4)) out.set(field::outer_mpls, reader.number(at, 4));
        version = type == 0x0800 ? 4 : type == 0x86dd ? 6 : 0;
    }
    Payload payload;
    if (version == 4) take_ipv4(reader, at, out, payload);
    if (version == 6) take_ipv6(reader, at, out, payload);
    if (payload.protocol == 17) take_udp(frame, payload, parser, out, apart.carried);
    if (payload.protocol == 47) take_gre(frame, payload, out, apart.carried);
    if (payload.protocol == 4 || payload.protocol == 41) {
        apart.carried = {
            Bytes(frame.begin() + static_cast<long>(payload.begin), frame.begin() + static_cast<long>(payload.end)),
            payload.protocol == 4 ? 4U : 6U};
    }
    const std::size_t least = apart.carried.ip_version == 0 ? 14 : apart.carried.ip_version == 4 ? 20 : 40;
    if (apart.carried.packet.size() < least) apart.carried.ip_version = nothing;
    return apart;
}

/// What of an inner packet there are fields for.
void add_inner(const Parameters& inner, Parameters& out) {
    for (unsigned bit = 0; bit < 512; ++bit) out.set({1024 + bit, 1}, inner.get({bit, 1}));
    const std::pair<Field, Field> others[] = {
        {field::second_prio, field::inner_second_prio}, {field::second_cfi, field::inner_second_cfi},
        {field::second_vid, field::inner_second_vid}, {field::second_cvlan, field::inner_second_cvlan},
        {field::second_svlan, field::inner_second_svlan}, {field::outer_label, field::inner_label},
        {field::outer_mpls, field::inner_mpls}, {field::outer_seq, field::inner_seq},
        {field::outer_ack, field::inner_ack}};
    for (const auto& [from, to] : others) out.set(to, inner.get(from));
}

}  // namespace

std::optional<Parameters> take_apart(const Bytes& frame, const NaiveParser& parser) {
    std::optional<Apart> apart = take(frame, 0, parser);
    if (!apart) return std::nullopt;
    if (apart->carried.ip_version != nothing) {
        const std::optional<Apart> inner = take(apart->carried.packet, apart->carried.ip_version, parser);
        if (inner) add_inner(inner->parts, apart->parts);
    }
    return apart->parts;
}

std::optional<Carried> carried_by(const Bytes& frame, const NaiveParser& parser) {
    const std::optional<Apart> apart = take(frame, 0, parser);
    if (!apart || apart->carried.ip_version == nothing) return std::nullopt;
    return apart->carried;
}

}  // namespace ovsdr::soft::test
