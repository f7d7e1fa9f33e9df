#include "datapath/steering/parser.hpp"

#include <emmintrin.h>

#include <algorithm>

#include "datapath/steering/vlan.hpp"

namespace ovsdr::soft {
namespace {

constexpr std::uint16_t type_ipv4 = 0x0800, type_ipv6 = 0x86dd;
constexpr std::uint8_t protocol_icmp = 1, protocol_tcp = 6, protocol_udp = 17, protocol_icmpv6 = 58;
constexpr std::uint8_t next_hop_by_hop = 0, next_routing = 43, next_fragment = 44, next_ah = 51, next_options = 60;

/// What is left of a frame: where the next header begins, where the data ends.
struct Cursor {
    const std::uint8_t* frame;
    std::uint32_t offset;
    std::uint32_t end;

    [[nodiscard]] const std::uint8_t* at() const noexcept { return frame + offset; }
    [[nodiscard]] std::uint32_t left() const noexcept { return end - offset; }
};

struct Layer3 {
    std::uint8_t protocol = 0;
    bool fragment = false;  ///< any fragment, first ones too
    bool later = false;     ///< a fragment that is not the first
    bool valid = false;
};

inline void clear(Key& key) noexcept {
    const __m128i zero = _mm_setzero_si128();
    auto* lines = reinterpret_cast<__m128i*>(key.words.data());
    for (unsigned i = 0; i < Key::shallow_length * 8 / sizeof zero; ++i) _mm_store_si128(lines + i, zero);
}

/// Leaves the cursor behind the header (and options), its end at the end of the IP packet.
inline Layer3 enter_ipv4(Cursor& cursor) noexcept {
    Layer3 layer;
    const std::uint8_t* header = cursor.at();
    if (cursor.left() < 20 || header[0] >> 4 != 4) return layer;
    const unsigned header_size = (header[0] & 0xf) * 4u;
    const unsigned total = load_be16(header + 2);
    if (header_size < 20 || header_size > cursor.left() || total < header_size || total > cursor.left()) return layer;
    layer.valid = true;
    layer.protocol = header[9];
    const std::uint16_t place = load_be16(header + 6);
    layer.fragment = (place & 0x3fff) != 0;
    layer.later = (place & 0x1fff) != 0;
    cursor.end = cursor.offset + total;
    cursor.offset += header_size;
    return layer;
}

/// Size of the extension header `next` that begins at `header`, 0 for what is none.
inline std::uint32_t extension_size(std::uint8_t next, const std::uint8_t* header) noexcept {
    switch (next) {
        case next_hop_by_hop:
        case next_routing:
        case next_options: return (header[1] + 1u) * 8;
        case next_ah: return (header[1] + 2u) * 4;
        case next_fragment: return 8;
        default: return 0;
    }
}

inline Layer3 enter_ipv6(Cursor& cursor) noexcept {
    Layer3 layer;
    const std::uint8_t* header = cursor.at();
    if (cursor.left() < 40 || header[0] >> 4 != 6) return layer;
    // A length past the frame is none of the matching hardware's business (rdma-core's own flow tests send such
    // frames): the headers count, and the frame's end is the packet's.
    const unsigned payload = std::min<unsigned>(load_be16(header + 4), cursor.left() - 40);
    layer.valid = true;
    layer.protocol = header[6];
    cursor.offset += 40;
    cursor.end = cursor.offset + payload;
    while (true) {
        const std::uint8_t next = layer.protocol;
        const bool extension = next == next_hop_by_hop || next == next_routing || next == next_options ||
                               next == next_ah || next == next_fragment;
        if (!extension) return layer;
        const std::uint8_t* option = cursor.at();
        // A chain that is cut short says nothing about what follows it.
        if (cursor.left() < 8 || extension_size(next, option) > cursor.left()) {
            cursor.offset = cursor.end;
            return layer;
        }
        if (next == next_fragment) {
            const std::uint16_t place = load_be16(option + 2);
            if ((place & 0xfff9) != 0) layer.fragment = true;
            layer.later = (place & 0xfff8) != 0;
            if (layer.later) return layer;
        }
        layer.protocol = option[0];
        cursor.offset += extension_size(next, option);
    }
}

inline void fill_l4(const Cursor& cursor, std::uint8_t version, std::uint8_t protocol, std::uint8_t* out) noexcept {
    const std::uint8_t* header = cursor.at();
    if (protocol == protocol_tcp && cursor.left() >= 20) {
        std::memcpy(out + key_offset::tcp_sport, header, 4);
        out[key_offset::l3_flags] |= header[12] & 1;
        out[key_offset::tcp_flags] = header[13];
    } else if (protocol == protocol_udp && cursor.left() >= 8) {
        std::memcpy(out + key_offset::udp_sport, header, 4);
    } else if (protocol == protocol_icmp && version == 4 && cursor.left() >= 8) {
        std::memcpy(out + key_offset::icmp, header, 2);
        std::memcpy(out + key_offset::icmp_data, header + 4, 4);
    } else if (protocol == protocol_icmpv6 && version == 6 && cursor.left() >= 8) {
        std::memcpy(out + key_offset::icmp + 2, header, 2);
        std::memcpy(out + key_offset::icmpv6_data, header + 4, 4);
    }
}

inline void fill_ipv4(Cursor cursor, std::uint8_t* out) noexcept {
    const std::uint8_t* header = cursor.at();
    const Layer3 layer = enter_ipv4(cursor);
    if (!layer.valid) return;
    out[key_offset::ip_protocol] = layer.protocol;
    out[key_offset::tos] = header[1];
    out[key_offset::l3_flags] |= ip_version_4 | (layer.fragment ? frag_bit : 0);
    out[key_offset::ihl] = static_cast<std::uint8_t>(header[0] << 4);
    out[key_offset::ttl] = header[8];
    std::memcpy(out + key_offset::source_ip + 12, header + 12, 4);
    std::memcpy(out + key_offset::destination_ip + 12, header + 16, 4);
    if (!layer.fragment) fill_l4(cursor, 4, layer.protocol, out);
}

inline void fill_ipv6(Cursor cursor, std::uint8_t* out) noexcept {
    const std::uint8_t* header = cursor.at();
    const Layer3 layer = enter_ipv6(cursor);
    if (!layer.valid) return;
    out[key_offset::ip_protocol] = layer.protocol;
    out[key_offset::tos] = static_cast<std::uint8_t>(load_be16(header) >> 4);
    out[key_offset::l3_flags] |= ip_version_6 | (layer.fragment ? frag_bit : 0);
    out[key_offset::ttl] = header[7];
    std::memcpy(out + key_offset::source_ip, header + 8, 32);
    if (!layer.fragment) fill_l4(cursor, 6, layer.protocol, out);
}

/// Writes down the tags, and returns the ethertype behind them.
inline EtherType fill_vlans(const std::uint8_t* frame, std::uint32_t size, std::uint8_t* out) noexcept {
    return follow_vlan_tags(frame, size, [out](unsigned tag, std::uint16_t type, const std::uint8_t* tci) {
        std::memcpy(out + (tag == 0 ? key_offset::first_vlan : key_offset::second_vlan), tci, 2);
        if (tag == 0) {
            out[key_offset::l3_flags] |= type == type_cvlan ? cvlan_bit : svlan_bit;
        } else {
            out[key_offset::second_qualifier] = type == type_cvlan ? second_cvlan_bit : second_svlan_bit;
        }
    });
}

[[nodiscard]] bool whole_l4(const Cursor& cursor, std::uint8_t version, std::uint8_t protocol) noexcept {
    switch (protocol) {
        case protocol_tcp: return cursor.left() >= 20;
        case protocol_udp: return cursor.left() >= 8;
        case protocol_icmp: return version == 4 && cursor.left() >= 8;
        case protocol_icmpv6: return version == 6 && cursor.left() >= 8;
        default: return false;
    }
}

inline void fill_l3(const Cursor& cursor, std::uint16_t type, std::uint8_t* out) noexcept {
    if (type == type_ipv4) {
        fill_ipv4(cursor, out);
    } else if (type == type_ipv6) {
        fill_ipv6(cursor, out);
    }
}

void locate_l3(Cursor cursor, std::uint16_t type, Headers& headers) noexcept {
    if (type != type_ipv4 && type != type_ipv6) return;
    const auto begin = static_cast<std::uint16_t>(cursor.offset);
    const std::uint8_t version = type == type_ipv4 ? 4 : 6;
    const Layer3 layer = version == 4 ? enter_ipv4(cursor) : enter_ipv6(cursor);
    if (!layer.valid) return;
    headers.l3 = begin;
    headers.l3_version = version;
    headers.l4_protocol = layer.protocol;
    headers.fragment = layer.fragment;
    headers.end = cursor.end;
    if (!layer.fragment) headers.payload = static_cast<std::uint16_t>(cursor.offset);
    if (!layer.later && whole_l4(cursor, version, layer.protocol)) {
        headers.l4 = static_cast<std::uint16_t>(cursor.offset);
    }
}

}  // namespace

bool parse(const std::uint8_t* frame, std::uint32_t size, Key& key) noexcept {
    clear(key);
    if (size < least_frame) return false;
    std::uint8_t* out = key.bytes();
    std::memcpy(out + key_offset::dmac, frame, 6);
    std::memcpy(out + key_offset::smac, frame + 6, 6);
    const EtherType ethertype = fill_vlans(frame, size, out);
    store_be16(out + key_offset::ethertype, ethertype.type);
    fill_l3({frame, ethertype.offset + 2, size}, ethertype.type, out);
    return true;
}

void parse_ip(const std::uint8_t* packet, std::uint32_t size, std::uint16_t type, Key& key) noexcept {
    clear(key);
    fill_l3({packet, 0, size}, type, key.bytes());
}

Headers locate(const std::uint8_t* frame, std::uint32_t size) noexcept {
    Headers headers{};
    if (size < least_frame) return headers;
    const EtherType ethertype = ethertype_of(frame, size);
    headers.type = static_cast<std::uint16_t>(ethertype.offset);
    if (ethertype.tags != 0) headers.vlan = 12;
    locate_l3({frame, ethertype.offset + 2, size}, ethertype.type, headers);
    return headers;
}

Headers locate_ip(const std::uint8_t* packet, std::uint32_t size, std::uint16_t type) noexcept {
    Headers headers{};
    locate_l3({packet, 0, size}, type, headers);
    return headers;
}

}  // namespace ovsdr::soft
