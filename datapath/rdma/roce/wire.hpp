// RoCEv2 on the wire: headers and opcodes.
//
// Model. Behind the UDP header (destination port 4791) come the BTH, the extension headers that its opcode names, the
// payload, padded to a multiple of four, and the ICRC. An opcode's upper three bits are the transport service. All
// integers are big-endian but the ICRC.
//
// DC (dynamically connected) is Mellanox's and in no public specification whole. What is public: its packets have RC's
// opcodes in the class of the reliable datagram, 0x40 (Wireshark 4.0's InfiniBand dissector, which calls them DC; 0x55
// it knows without a meaning); a connect packet goes before the first request and data does not wait for its answer
// (US patents 8213315, 8761189); connecting has an extension header of its own, the DCCETH (mlx5's match definers,
// ib_l4). The layouts of DcEth and DcConnectEth and the opcode of the disconnect are this device's own. They are chosen
// so that a dissector that reads the class as RD's (RDETH, DETH) finds what it names: the source queue, and what
// follows in place.
//
// Source: IBTA volume 1 release 1.4, chapter 9 (9.2 BTH opcodes, 9.3 extension headers), annexes A14 (XRC), A17
// (RoCEv2).
#pragma once

#include <endian.h>
#include <linux/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ovsdr::soft::roce {

inline constexpr std::uint16_t udp_port = 4791;
inline constexpr std::size_t icrc_size = 4;

struct Bth {
    std::uint8_t opcode;
    std::uint8_t flags;  ///< solicited 0x80, migration 0x40, pad count 0x30, version 0x0f
    __be16 pkey;
    __be32 qpn;  ///< FECN, BECN and six reserved bits, then 24 bits
    __be32 psn;  ///< acknowledge request in bit 31, then 24 bits
};
struct [[gnu::packed]] Reth {
    __be64 address;
    __be32 rkey;
    __be32 size;
};
struct [[gnu::packed]] AtomicEth {
    __be64 address;
    __be32 rkey;
    __be64 swap_add;
    __be64 compare;
};
struct Deth {
    __be32 qkey;
    __be32 source;  ///< 24 bits
};
struct Aeth {
    __be32 syndrome_msn;  ///< syndrome in the upper 8 bits
};
/// Of each DC request. Its answers begin with the stream alone.
struct DcEth {
    __be32 stream;   ///< of the initiator: 24 bits
    __be32 session;  ///< counts the connections of a stream
    __be32 source;   ///< the initiator's number: 24 bits
};
/// Behind it, of a connect packet.
struct DcConnectEth {
    __be64 access_key;
};
static_assert(sizeof(Bth) == 12 && sizeof(Reth) == 16 && sizeof(AtomicEth) == 28 && sizeof(Deth) == 8 &&
              sizeof(Aeth) == 4 && sizeof(DcEth) == 12 && sizeof(DcConnectEth) == 8);

inline constexpr std::uint8_t bth_solicited = 0x80, bth_migrated = 0x40;
inline constexpr std::uint32_t bth_ack_request = 0x80000000;
inline constexpr std::uint32_t mask24 = 0xffffff;
inline constexpr std::uint16_t default_pkey = 0xffff;

// AETH syndromes.
inline constexpr std::uint8_t aeth_ack = 0x1f;  ///< no end-to-end credits
inline constexpr std::uint8_t aeth_rnr = 0x20;  ///< | timer
inline constexpr std::uint8_t aeth_nak = 0x60;  ///< | code
enum class Nak : std::uint8_t { sequence = 0, invalid_request = 1, access = 2, operation = 3 };

enum class ServiceType : std::uint8_t { rc = 0x00, uc = 0x20, dc = 0x40, ud = 0x60, xrc = 0xa0 };

enum class Kind : std::uint8_t {
    none,
    send,
    write,
    read,
    compare_swap,
    fetch_add,
    connect,
    disconnect,
    read_response,
    acknowledge,
    atomic_acknowledge,
};

/// What an opcode's lower five bits say.
struct Operation {
    Kind kind = Kind::none;
    bool first = false;  ///< begins a message
    bool last = false;   ///< ends it
    bool immediate = false, invalidate = false;
    bool reth = false, aeth = false;
    bool uc = false;  ///< there for the unreliable connection too
    bool dc = false;  ///< there for DC alone

    [[nodiscard]] constexpr bool is_request() const noexcept { return kind >= Kind::send && kind <= Kind::disconnect; }
};

inline constexpr std::array<Operation, 32> operations = [] {
    std::array<Operation, 32> table{};
    using enum Kind;
    table[0x00] = {.kind = send, .first = true, .uc = true};
    table[0x01] = {.kind = send, .uc = true};
    table[0x02] = {.kind = send, .last = true, .uc = true};
    table[0x03] = {.kind = send, .last = true, .immediate = true, .uc = true};
    table[0x04] = {.kind = send, .first = true, .last = true, .uc = true};
    table[0x05] = {.kind = send, .first = true, .last = true, .immediate = true, .uc = true};
    table[0x06] = {.kind = write, .first = true, .reth = true, .uc = true};
    table[0x07] = {.kind = write, .uc = true};
    table[0x08] = {.kind = write, .last = true, .uc = true};
    table[0x09] = {.kind = write, .last = true, .immediate = true, .uc = true};
    table[0x0a] = {.kind = write, .first = true, .last = true, .reth = true, .uc = true};
    table[0x0b] = {.kind = write, .first = true, .last = true, .immediate = true, .reth = true, .uc = true};
    table[0x0c] = {.kind = read, .first = true, .last = true, .reth = true};
    table[0x0d] = {.kind = read_response, .first = true, .aeth = true};
    table[0x0e] = {.kind = read_response};
    table[0x0f] = {.kind = read_response, .last = true, .aeth = true};
    table[0x10] = {.kind = read_response, .first = true, .last = true, .aeth = true};
    table[0x11] = {.kind = acknowledge, .first = true, .last = true, .aeth = true};
    table[0x12] = {.kind = atomic_acknowledge, .first = true, .last = true, .aeth = true};
    table[0x13] = {.kind = compare_swap, .first = true, .last = true};
    table[0x14] = {.kind = fetch_add, .first = true, .last = true};
    table[0x15] = {.kind = connect, .first = true, .last = true, .dc = true};
    table[0x16] = {.kind = send, .last = true, .invalidate = true};
    table[0x17] = {.kind = send, .first = true, .last = true, .invalidate = true};
    table[0x18] = {.kind = disconnect, .first = true, .last = true, .dc = true};
    return table;
}();

/// The opcode's lower five bits; what exists is in the table.
[[nodiscard]] constexpr std::uint8_t opcode_of(Kind kind, bool first, bool last, bool immediate = false,
                                               bool invalidate = false) noexcept {
    for (std::uint8_t i = 0; i < operations.size(); ++i) {
        const Operation& entry = operations[i];
        if (entry.kind == kind && entry.first == first && entry.last == last && entry.immediate == immediate &&
            entry.invalidate == invalidate) {
            return i;
        }
    }
    return 0xff;
}

/// The operation of an opcode as the service has it; Kind::none where it has not.
[[nodiscard]] constexpr Operation operation_of(std::uint8_t opcode) noexcept {
    const auto service = static_cast<ServiceType>(opcode & 0xe0);
    const Operation& entry = operations[opcode & 0x1f];
    switch (service) {
        case ServiceType::rc:
        case ServiceType::xrc: return entry.dc ? Operation{} : entry;
        case ServiceType::dc: return entry;
        case ServiceType::uc: return entry.uc ? entry : Operation{};
        case ServiceType::ud: return entry.kind == Kind::send && entry.first && entry.last && !entry.invalidate ? entry
                                                                                                          : Operation{};
    }
    return Operation{};
}

/// Bytes that the service puts behind the BTH, before what the opcode names.
[[nodiscard]] constexpr unsigned service_header_size(ServiceType service, const Operation& operation) noexcept {
    switch (service) {
        case ServiceType::xrc: return operation.is_request() ? 4 : 0;
        case ServiceType::dc: return operation.is_request() ? sizeof(DcEth) : sizeof(DcEth::stream);
        case ServiceType::ud: return sizeof(Deth);
        default: return 0;
    }
}

/// Bytes of the extension headers behind the BTH.
[[nodiscard]] constexpr unsigned extensions_size(ServiceType service, const Operation& operation) noexcept {
    unsigned size = service_header_size(service, operation);
    if (operation.kind == Kind::connect) size += sizeof(DcConnectEth);
    if (operation.reth) size += sizeof(Reth);
    if (operation.kind == Kind::compare_swap || operation.kind == Kind::fetch_add) size += sizeof(AtomicEth);
    if (operation.aeth) size += sizeof(Aeth);
    if (operation.kind == Kind::atomic_acknowledge) size += 8;
    if (operation.immediate || operation.invalidate) size += 4;
    return size;
}

/// Writes extension headers one behind another.
struct HeaderWriter {
    std::byte* at;
    template <typename Header>
    void put(const Header& header) noexcept {
        std::memcpy(at, &header, sizeof header);
        at += sizeof header;
    }
};

// Packet sequence numbers: 24 bits, compared within half of the circle.
[[nodiscard]] constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t count) noexcept {
    return (psn + count) & mask24;
}
/// How far `to` is ahead of `from`; negative when behind.
[[nodiscard]] constexpr std::int32_t psn_distance(std::uint32_t from, std::uint32_t to) noexcept {
    return static_cast<std::int32_t>((to - from) << 8) >> 8;
}

}  // namespace ovsdr::soft::roce
