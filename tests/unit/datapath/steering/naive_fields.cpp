#include "naive_fields.hpp"

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
    }
    if (protocol == 17 && reader.has(at, 8)) {
        out.set(field::udp_sport, reader.number(at, 2)).set(field::udp_dport, reader.number(at + 2, 2));
    }
    if (protocol == 1 && !v6 && reader.has(at, 8)) {
        out.set(field::icmp_type, reader.number(at, 1)).set(field::icmp_code, reader.number(at + 1, 1));
    }
    if (protocol == 58 && v6 && reader.has(at, 8)) {
        out.set(field::icmpv6_type, reader.number(at, 1)).set(field::icmpv6_code, reader.number(at + 1, 1));
    }
}

void take_ipv4(Reader reader, std::size_t at, Parameters& out) {
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
    if (!fragment) take_l4(reader, at + header, protocol, false, out);
}

void take_ipv6(Reader reader, std::size_t at, Parameters& out) {
    if (!reader.has(at, 40) || reader.number(at, 1) >> 4 != 6) return;
    if (!reader.has(at + 40, reader.number(at + 4, 2))) return;
    reader.cut(at + 40 + reader.number(at + 4, 2));
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
    if (!fragment && !broken) take_l4(reader, here, next, true, out);
}

}  // namespace

std::optional<Parameters> take_apart(const Bytes& frame) {
    const Reader reader(frame);
    if (!reader.has(0, 14)) return std::nullopt;
    Parameters out;
    out.set(field::dmac_47_16, reader.number(0, 4)).set(field::dmac_15_0, reader.number(4, 2));
    out.set(field::smac_47_16, reader.number(6, 4)).set(field::smac_15_0, reader.number(10, 2));
    std::size_t at = 14;
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
    if (type == 0x0800) take_ipv4(reader, at, out);
    if (type == 0x86dd) take_ipv6(reader, at, out);
    return out;
}

}  // namespace ovsdr::soft::test
