#include "tests/differential/judge/named_differences.hpp"

#include <algorithm>

#include "tests/differential/judge/frames.hpp"
#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

namespace {

using enum NamedDifference;
using Bytes = std::vector<std::uint8_t>;

/// As long as nobody has asked for others (tnl/egress_port_range).
constexpr unsigned first_source_port = 32768, source_ports_end = 61000;

constexpr std::array<NamedDifferenceRow, named_difference_length> rows = {{
    {tunnel_source_port, "the UDP source port of a tunnel",
     "OVS hashes each packet; a reformat's header is a megaflow's (docs/tunnels.md)"},
    {connection_end, "a packet with FIN or RST that goes up", "one rule ahead of all megaflows (docs/architecture.md)"},
    {broken_header, "a packet with a broken IP or an LLC header that goes up",
     "rules ask for a version and an ethertype where megaflows do not"},
    {no_checksum_answer, "left out: a rewrite of a packet whose checksum has no right answer",
     "a header that is cut short, a routing header, an atomic fragment (docs/fidelity.md)"},
    {recirculates_too_often, "left out: a packet that recirculates more than six times",
     "OVS drops it; behind a miss OVS counts anew"},
    {tcp_data_offset, "a TCP data offset below 5 or beyond the packet",
     "to OVS such a header has neither ports nor flags; only a card can tell what its parser makes of it"},
    {ipv6_length, "an IPv6 payload length beyond the frame", "OVS takes such a packet for no IPv6"},
    {ipv6_chain, "a chain of IPv6 extension headers beyond the packet",
     "OVS has the addresses then, and no traffic class, hop limit or protocol"},
    {fragment_bits, "reserved bits in an IPv6 fragment header", "to OVS they make a fragment"},
    {dropped_in_pop, "a tunnel's packet that goes up, where OVS drops it",
     "IPv4 options in front of a tunnel: rules of its port ask for none"},
    {gre_checksum, "a GRE packet with a checksum that goes up in front of the tunnel",
     "no device would check it: the rule of a tnl_pop asks for none (docs/tunnels.md)"},
    {tunnel_headers, "a tunnel's headers that are not true, or parsed nobody knows how (the entries are not asked)",
     "wrong checksums and UDP lengths, reserved bits, no Ethernet frame inside, an option twice (docs/tunnels.md)"},
    {meter_overshoot, "a meter by bytes that lets one packet more pass",
     "a device lets the packet pass that empties the bucket, OVS only one that it holds (docs/meters.md)"},
}};

constexpr unsigned most_parsed_tags = 2;
constexpr std::size_t ipv6_size = 40, tcp_size = 20;

unsigned half(const Bytes& frame, std::size_t at) {
    return at + 1 < frame.size() ? static_cast<unsigned>(frame[at] << 8 | frame[at + 1]) : 0;
}

bool is_offset_untrue(const Bytes& frame, std::size_t tcp, std::size_t end) {
    if (tcp + tcp_size > std::min(end, frame.size())) return false;
    const std::size_t header = (frame[tcp + 12] >> 4) * std::size_t{4};
    return header < tcp_size || tcp + header > end;
}

NamedDifference untrue_ipv6(const Bytes& frame, std::size_t l3) {
    if (l3 + ipv6_size > frame.size()) return count_of_differences;
    const std::size_t end = l3 + ipv6_size + half(frame, l3 + 4);
    if (end > frame.size()) return ipv6_length;
    std::uint8_t protocol = frame[l3 + 6];
    std::size_t at = l3 + ipv6_size;
    while (protocol == fragment_header || std::ranges::count(stepped_over, protocol) != 0) {
        if (at + 8 > end) return ipv6_chain;
        const bool fragment = protocol == fragment_header;
        if (fragment && (frame[at + 3] & 6) != 0) return fragment_bits;
        protocol = frame[at];
        at += fragment ? 8 : (frame[at + 1] + 1U) * 8U;
        if (at > end) return ipv6_chain;
    }
    return protocol == protocol_tcp && is_offset_untrue(frame, at, end) ? tcp_data_offset : count_of_differences;
}

}  // namespace

const std::array<NamedDifferenceRow, named_difference_length>& named_differences() { return rows; }

void Excused::add(const Excused& others) {
    for (std::size_t i = 0; i < times.size(); ++i) times[i] += others.times[i];
}

NamedDifference untrue_header(const Bytes& frame) {
    std::size_t at = 12;
    const auto tag_at = [&](std::size_t place) { return is_tag(static_cast<std::uint16_t>(half(frame, place))); };
    for (unsigned tags = 0; tags < most_parsed_tags && tag_at(at); ++tags) at += 4;
    const unsigned type = half(frame, at);
    const std::size_t l3 = at + 2;
    if (type == type_ipv6) return untrue_ipv6(frame, l3);
    if (type != type_ipv4 || l3 + 20 > frame.size() || frame[l3 + 9] != protocol_tcp) return count_of_differences;
    const std::size_t l4 = l3 + (frame[l3] & 15U) * 4U, end = l3 + half(frame, l3 + 2);
    return is_offset_untrue(frame, l4, end) ? tcp_data_offset : count_of_differences;
}

bool differ_in_source_port(const Bytes& nic, const Bytes& ovs, std::size_t source_port_at) {
    if (source_port_at == 0 || nic.size() != ovs.size() || source_port_at >= ovs.size()) return false;
    const auto at = static_cast<std::ptrdiff_t>(source_port_at);
    const auto end = static_cast<std::ptrdiff_t>(std::min(source_port_at + 2, ovs.size()));   // of one that is cut
    if (end == at + 2) {
        const unsigned port = nic[source_port_at] << 8 | nic[source_port_at + 1];
        if (port < first_source_port || port >= source_ports_end) return false;
    }
    return std::equal(nic.begin(), nic.begin() + at, ovs.begin()) &&
           std::equal(nic.begin() + end, nic.end(), ovs.begin() + end);
}

}  // namespace ovsdr::differential
