#include "frames.hpp"

#include <algorithm>

namespace ovsdr::soft::test {
namespace {

void put(Bytes& frame, std::uint64_t value, unsigned size) {
    for (unsigned i = size; i-- > 0;) frame.push_back(static_cast<std::uint8_t>(value >> 8 * i));
}

[[nodiscard]] unsigned number(const Bytes& frame, std::size_t at) { return frame[at] * 256U + frame[at + 1]; }

[[nodiscard]] std::uint32_t sum(const Bytes& frame, std::size_t begin, std::size_t end, std::uint32_t start) {
    for (std::size_t i = begin; i < end; i += 2) start += frame[i] * 256U + (i + 1 < end ? frame[i + 1] : 0);
    while (start > 0xffff) start = (start & 0xffff) + (start >> 16);
    return start;
}

struct Places {
    std::size_t l3 = 0, l4 = 0, end = 0, checksum = 0;
    unsigned version = 0, protocol = 0;
};

/// Only of whole frames as make_frame() builds them (rewritten or not).
[[nodiscard]] Places places_of(const Bytes& frame) {
    Places places;
    std::size_t at = 12;
    while (number(frame, at) == 0x8100 || number(frame, at) == 0x88a8) at += 4;
    const unsigned type = number(frame, at);
    places.l3 = at + 2;
    if (type == 0x0800) {
        places.version = 4;
        places.protocol = frame[places.l3 + 9];
        places.l4 = places.l3 + (frame[places.l3] & 15) * 4U;
        places.end = places.l3 + number(frame, places.l3 + 2);
        if ((number(frame, places.l3 + 6) & 0x1fff) != 0) places.protocol = 0;
        if ((number(frame, places.l3 + 6) & 0x2000) != 0) places.protocol = 0;
    } else if (type == 0x86dd) {
        places.version = 6;
        places.protocol = frame[places.l3 + 6];
        places.l4 = places.l3 + 40;
        places.end = places.l4 + number(frame, places.l3 + 4);
        while (places.protocol == 0 || places.protocol == 44) {
            const bool fragment = places.protocol == 44;
            const unsigned place = number(frame, places.l4 + 2);
            places.protocol = frame[places.l4];
            places.l4 += 8;
            if (fragment && place != 0) {
                places.protocol = 255;
                break;
            }
        }
    }
    const unsigned icmp = places.version == 4 ? 1 : 58;
    places.checksum = places.protocol == 6 ? 16 : places.protocol == 17 ? 6 : places.protocol == icmp ? 2 : 0;
    return places;
}

[[nodiscard]] std::uint32_t pseudo_sum(const Bytes& frame, const Places& places) {
    if (places.protocol == 1) return 0;
    const std::size_t first = places.version == 4 ? places.l3 + 12 : places.l3 + 8;
    const std::size_t size = places.version == 4 ? 8 : 32;
    return sum(frame, first, first + size, static_cast<std::uint32_t>(places.protocol + places.end - places.l4));
}

void put_l4(Bytes& frame, const FrameSpec& spec) {
    switch (spec.protocol) {
        case 6:
            put(frame, spec.sport, 2);
            put(frame, spec.dport, 2);
            put(frame, 0x01020304, 4);
            put(frame, 0x05060708, 4);
            put(frame, 0x5000U | spec.tcp_flags, 2);
            put(frame, 0xffff, 2);
            put(frame, 0, 4);
            break;
        case 17:
            put(frame, spec.sport, 2);
            put(frame, spec.dport, 2);
            put(frame, 8 + spec.payload, 2);
            put(frame, 0, 2);
            break;
        case 1:
        case 58:
            put(frame, spec.sport >> 8, 1);
            put(frame, spec.sport & 255, 1);
            put(frame, 0, 2);
            put(frame, 0x00010002, 4);
            break;
        default: break;
    }
    for (unsigned i = 0; i < spec.payload; ++i) frame.push_back(static_cast<std::uint8_t>(i * 7 + 3));
}

void put_ipv4(Bytes& frame, const FrameSpec& spec, const Bytes& l4) {
    put(frame, 0x45, 1);
    put(frame, spec.tos, 1);
    put(frame, 20 + l4.size(), 2);
    put(frame, 0x1234, 2);
    put(frame, spec.place, 2);
    put(frame, spec.ttl, 1);
    put(frame, spec.protocol, 1);
    put(frame, 0, 2);
    put(frame, spec.source, 4);
    put(frame, spec.destination, 4);
}

void put_ipv6(Bytes& frame, const FrameSpec& spec, const Bytes& l4) {
    const std::size_t extensions = (spec.hop_by_hop ? 8U : 0U) + (spec.fragment_header ? 8U : 0U);
    put(frame, 6U << 28 | static_cast<std::uint32_t>(spec.tos) << 20 | 0x12345, 4);
    put(frame, l4.size() + extensions, 2);
    const std::uint8_t after_hop = spec.fragment_header ? 44 : spec.protocol;
    put(frame, spec.hop_by_hop ? 0 : after_hop, 1);
    put(frame, spec.ttl, 1);
    for (const std::uint32_t address : {spec.source, spec.destination}) {
        put(frame, 0x20010db800000000, 8);
        put(frame, 0, 4);
        put(frame, address, 4);
    }
    if (spec.hop_by_hop) put(frame, static_cast<std::uint64_t>(after_hop) << 56 | 0x0104, 8);
    if (spec.fragment_header) {
        put(frame, spec.protocol, 1);
        put(frame, 0, 1);
        put(frame, spec.place, 2);
        put(frame, 0x11223344, 4);
    }
}

}  // namespace

Bytes make_frame(const FrameSpec& spec) {
    Bytes frame;
    put(frame, spec.dmac, 6);
    put(frame, spec.smac, 6);
    for (const std::uint32_t tag : spec.tags) put(frame, tag, 4);
    if (spec.version == 0) {
        put(frame, 0x0806, 2);
        for (unsigned i = 0; i < 46; ++i) frame.push_back(static_cast<std::uint8_t>(i));
        return frame;
    }
    Bytes l4;
    put_l4(l4, spec);
    put(frame, spec.version == 4 ? 0x0800 : 0x86dd, 2);
    spec.version == 4 ? put_ipv4(frame, spec, l4) : put_ipv6(frame, spec, l4);
    frame.insert(frame.end(), l4.begin(), l4.end());
    fix_checksums(frame);
    if (spec.protocol == 17 && !spec.udp_checksum) {
        const std::size_t at = frame.size() - l4.size() + 6;
        frame[at] = frame[at + 1] = 0;
    }
    return frame;
}

void fix_checksums(Bytes& frame) {
    const Places places = places_of(frame);
    const auto store = [&frame](std::size_t at, std::uint32_t value) {
        frame[at] = static_cast<std::uint8_t>(value >> 8);
        frame[at + 1] = static_cast<std::uint8_t>(value);
    };
    if (places.version == 4) {
        store(places.l3 + 10, 0);
        store(places.l3 + 10, ~sum(frame, places.l3, places.l4, 0) & 0xffff);
    }
    if (places.version == 0 || places.checksum == 0 || places.l4 + 8 > places.end) return;
    store(places.l4 + places.checksum, 0);
    std::uint32_t value = ~sum(frame, places.l4, places.end, pseudo_sum(frame, places)) & 0xffff;
    if (places.protocol == 17 && value == 0) value = 0xffff;
    store(places.l4 + places.checksum, value);
}

Bytes make_frame(FrameSpec spec, const Bytes& content) {
    spec.payload = static_cast<unsigned>(content.size());
    Bytes frame = make_frame(spec);
    std::copy(content.begin(), content.end(), frame.end() - static_cast<std::ptrdiff_t>(content.size()));
    fix_checksums(frame);
    return frame;
}

bool checksums_right(const Bytes& frame) {
    const Places places = places_of(frame);
    if (places.version == 4 && sum(frame, places.l3, places.l4, 0) != 0xffff) return false;
    if (places.version == 0 || places.checksum == 0 || places.l4 + 8 > places.end) return true;
    if (places.protocol == 17 && number(frame, places.l4 + 6) == 0) return true;
    return sum(frame, places.l4, places.end, pseudo_sum(frame, places)) == 0xffff;
}

}  // namespace ovsdr::soft::test
