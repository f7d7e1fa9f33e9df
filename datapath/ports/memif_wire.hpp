// memif's protocol: messages on a Unix socket of type SOCK_SEQPACKET, and rings in shared memory.
//
// All numbers are in the machine's byte order; both ends run on the same one. A client offers shared memory and rings
// in it; a server accepts them. "c2s" packets go from client to server.
//
//   server: HELLO                                  client: INIT, ADD_REGION…, ADD_RING…, CONNECT
//   server: ACK to INIT and each ADD_…             either: DISCONNECT at any time, with a reason
//   server: CONNECTED to CONNECT
//
// The client sends one message and waits for its answer. HELLO says how many regions and rings the server would take; a
// client makes as many as it wants of those, each direction's rings numbered from 0.
//
// Source: the protocol as FD.io's libmemif and DPDK's net_memif (22.11, drivers/net/memif/memif.h) speak it,
// version 2.0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ovsdr::soft::memif {

inline constexpr std::uint16_t version = 2 << 8;
inline constexpr std::uint32_t ring_cookie = 0x3E31F20;
inline constexpr unsigned most_regions = 16;
inline constexpr unsigned largest_log2_ring = 14;

enum class MessageType : std::uint16_t { none, ack, hello, init, add_region, add_ring, connect, connected, disconnect };

struct [[gnu::packed]] Hello {
    char name[32];
    std::uint16_t lowest_version, highest_version;
    std::uint16_t last_region;    ///< highest index
    std::uint16_t last_s2c_ring;  ///< likewise
    std::uint16_t last_c2s_ring;
    std::uint8_t largest_log2_ring;
};

struct [[gnu::packed]] Init {
    std::uint16_t version;
    std::uint32_t id;
    std::uint8_t mode;  ///< 0: Ethernet frames
    char secret[24];
    char name[32];
};

/// With the memory's descriptor.
struct [[gnu::packed]] AddRegion {
    std::uint16_t index;
    std::uint64_t size;
};

/// With the descriptor of an eventfd that wakes the ring's consumer.
struct [[gnu::packed]] AddRing {
    std::uint16_t flags;  ///< 1: c2s
    std::uint16_t index;
    std::uint16_t region;
    std::uint32_t offset;
    std::uint8_t log2_size;
    std::uint16_t private_header_size;
};

/// CONNECT and CONNECTED.
struct [[gnu::packed]] Name {
    char interface[32];
};

struct [[gnu::packed]] Disconnect {
    std::uint32_t code;
    char reason[96];
};

struct [[gnu::packed]] Message {
    MessageType type;
    union {
        Hello hello;
        Init init;
        AddRegion add_region;
        AddRing add_ring;
        Name name;
        Disconnect disconnect;
        std::byte bytes[126];
    };
};
static_assert(sizeof(Message) == 128);
static_assert(offsetof(Message, init.mode) == 8 && offsetof(Message, add_ring.log2_size) == 12);

struct Descriptor {
    std::uint16_t flags;  ///< 1: the frame goes on in the next descriptor
    std::uint16_t region;
    std::uint32_t length;
    std::uint32_t offset;
    std::uint32_t metadata;
};
static_assert(sizeof(Descriptor) == 16);
inline constexpr std::uint16_t descriptor_next = 1;

/// c2s: the client fills the descriptors up to `head`, the server takes them up to `tail`. s2c: the client offers empty
/// buffers up to `head`, the server fills them up to `tail`. Both are counted without end, modulo 65536.
struct Ring {
    std::uint32_t cookie;
    std::uint16_t flags;  ///< 1: the consumer polls and wants no wake-up
    std::uint16_t head;
    alignas(64) std::uint16_t tail;
    alignas(64) Descriptor descriptors[];
};
static_assert(offsetof(Ring, tail) == 64 && offsetof(Ring, descriptors) == 128);
inline constexpr std::uint16_t ring_no_wake_up = 1;

}  // namespace ovsdr::soft::memif
