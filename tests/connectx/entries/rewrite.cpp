#include "tests/connectx/entries/rewrite.hpp"

#include "tests/connectx/entries/bits.hpp"
#include "tests/connectx/entries/stopped.hpp"

namespace ovsdr::connectx::entries {

namespace {

constexpr std::uint8_t protocol_tcp = 6, protocol_udp = 17, protocol_icmpv6 = 58;
constexpr std::uint32_t type_tcp = 1, type_udp = 2;   ///< Field::l4_type
/// Where checksums stand in their headers, and where the addresses begin in IP's.
constexpr std::size_t ipv4_checksum = 10, tcp_checksum = 16, udp_checksum = 6, icmpv6_checksum = 2;
constexpr std::uint8_t ipv4_addresses = 12, ipv6_addresses = 8, ipv6_destination = 24;

std::uint32_t& register_of(Packet& packet, std::uint8_t number) {
    if (number < packet.reg_c.size()) return packet.reg_c[number];
    return number == packet.reg_c.size() ? packet.reg_a : packet.reg_b;
}

constexpr std::uint32_t folded(std::uint32_t sum) {
    while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
    return sum;
}

/// RFC 1624, equation 3, for two words at once.
std::uint16_t mended(std::uint16_t checksum, std::uint32_t before, std::uint32_t after) {
    const std::uint32_t left_out = ~before;
    const std::uint32_t sum = (~checksum & 0xFFFFU) + (left_out >> 16) + (left_out & 0xFFFF) + (after >> 16) +
                              (after & 0xFFFF);
    return static_cast<std::uint16_t>(~folded(sum));
}

void mend_at(std::uint8_t* checksum, std::uint32_t before, std::uint32_t after) {
    store16(checksum, mended(load16(checksum), before, after));
}

}  // namespace

const HeaderFields& Rewriter::headers() {
    if (!headers_) headers_.emplace().parse(packet_.bytes);
    return *headers_;
}

bool Rewriter::has(Header header) {
    switch (header) {
        case Header::registers: return true;
        case Header::ethernet:
        case Header::ethertype: return headers().offsets().ethertype != 0;
        case Header::tag: return headers().offsets().tag != 0;
        case Header::ipv4: return headers().offsets().ipv4 != 0;
        case Header::ipv6: return headers().offsets().ipv6 != 0;
        case Header::ports: return headers()[Field::l4_type] != 0;
        case Header::tcp: return headers()[Field::l4_type] == type_tcp;
    }
    return false;
}

std::size_t Rewriter::begin_of(Header header) {
    const HeaderOffsets& offsets = headers().offsets();
    switch (header) {
        case Header::tag: return offsets.tag;
        case Header::ethertype: return offsets.ethertype;
        case Header::ipv4: return offsets.ipv4;
        case Header::ipv6: return offsets.ipv6;
        case Header::ports:
        case Header::tcp: return offsets.transport;
        default: return 0;
    }
}

std::uint32_t Rewriter::load(const FieldPlace& field) {
    if (field.header == Header::registers) return register_of(packet_, field.offset);
    const std::uint8_t* const word = packet_.bytes.data() + begin_of(field.header) + field.offset;
    return field.size == 2 ? load16(word) : load32(word);
}

void Rewriter::store(const FieldPlace& field, std::uint32_t word) {
    if (field.header == Header::registers) {
        register_of(packet_, field.offset) = word;
        return;
    }
    std::uint8_t* const place = packet_.bytes.data() + begin_of(field.header) + field.offset;
    if (field.size == 2) {
        store16(place, static_cast<std::uint16_t>(word));
    } else {
        store32(place, word);
    }
}

std::uint32_t Rewriter::read(const FieldPlace& field) { return load(field) >> field.shift & low_ones(field.length); }

void Rewriter::write(const FieldPlace& field, std::uint32_t value) {
    const std::uint32_t mask = low_ones(field.length) << field.shift;
    const std::uint32_t before = load(field), after = (before & ~mask) | (value << field.shift & mask);
    if (before == after) return;
    mend(field, before, after);
    store(field, after);
}

void Rewriter::mend(const FieldPlace& field, std::uint32_t before, std::uint32_t after) {
    switch (field.header) {
        case Header::ipv4:
            if (field.offset >= ipv4_addresses) mend_pseudo_header(false, before, after);
            mend_at(packet_.bytes.data() + begin_of(Header::ipv4) + ipv4_checksum, before, after);
            break;
        case Header::ipv6:
            if (field.offset >= ipv6_addresses) mend_pseudo_header(field.offset >= ipv6_destination, before, after);
            break;
        case Header::ports:
        case Header::tcp: mend_transport(before, after); break;
        default: break;
    }
}

void Rewriter::mend_pseudo_header(bool is_ipv6_destination, std::uint32_t before, std::uint32_t after) {
    if (headers()[Field::fragment] != 0) throw Stopped("a modify-header action on an address of a fragment");
    if (is_ipv6_destination && headers().offsets().routed) {
        throw Stopped("a modify-header action on the IPv6 destination before a routing header");
    }
    const std::uint32_t protocol = headers()[Field::protocol];
    const bool is_icmpv6 = protocol == protocol_icmpv6 && has(Header::ipv6);
    if (protocol != protocol_tcp && protocol != protocol_udp && !is_icmpv6) return;
    if (headers().offsets().transport == 0) {
        throw Stopped("a modify-header action on an address before a TCP, UDP or ICMPv6 header that is cut short");
    }
    mend_transport(before, after);
}

void Rewriter::mend_transport(std::uint32_t before, std::uint32_t after) {
    std::uint8_t* const header = packet_.bytes.data() + headers().offsets().transport;
    switch (headers()[Field::l4_type]) {
        case type_tcp: return mend_at(header + tcp_checksum, before, after);
        case type_udp: {
            std::uint8_t* const checksum = header + udp_checksum;
            if (load16(checksum) == 0) return;
            mend_at(checksum, before, after);
            if (load16(checksum) == 0) store16(checksum, 0xFFFF);
            return;
        }
        default: return mend_at(header + icmpv6_checksum, before, after);
    }
}

}  // namespace ovsdr::connectx::entries
