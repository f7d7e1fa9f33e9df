// A memif peer that says anything about its rings and writes anything into them. Whatever it does, frames are of a
// possible size, no memory outside is touched, and all packet buffers come back.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "datapath/ports/memif_connection.hpp"
#include "tests/fuzz/check.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

using namespace ovsdr::soft;

namespace {

constexpr std::uint64_t region_size = 16384;
constexpr std::uint32_t s2c_offset = 4096, ring_stride = 512;
constexpr std::uint8_t log2_ring = 3;
constexpr unsigned most_rings = 3;  ///< each way

struct Peer {
    Peer() : file(memfd_create("peer", MFD_ALLOW_SEALING)) {
        FUZZ_CHECK(ftruncate(file, region_size) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        memory = static_cast<std::byte*>(mmap(nullptr, region_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    }
    memif::Ring& ring(std::uint32_t offset) { return *reinterpret_cast<memif::Ring*>(memory + offset); }
    static std::uint32_t offset(bool c2s, unsigned index) { return (c2s ? 0 : s2c_offset) + index * ring_stride; }
    int file;
    std::byte* memory;
};

memif::FileDescriptor event() {
    return memif::FileDescriptor(eventfd(0, EFD_NONBLOCK));
}

// In their order, where they are.
void add_rings(memif::Connection& connection, bool c2s, unsigned length) {
    for (unsigned index = 0; index < length; ++index) {
        const memif::AddRing ring{.flags = c2s,
                                  .index = static_cast<std::uint16_t>(index),
                                  .offset = Peer::offset(c2s, index),
                                  .log2_size = log2_ring};
        FUZZ_CHECK(connection.add_ring(ring, event()) == nullptr);
    }
}

// What the input says of rings; some of it is right.
void add_any_rings(FuzzedDataProvider& input, memif::Connection& connection) {
    const unsigned messages = input.ConsumeIntegralInRange<unsigned>(0, 2 * most_rings + 2);
    for (unsigned i = 0; i < messages; ++i) {
        memif::AddRing ring{.flags = input.ConsumeIntegralInRange<std::uint16_t>(0, 3),
                            .index = input.ConsumeIntegralInRange<std::uint16_t>(0, most_rings),
                            .region = input.ConsumeIntegralInRange<std::uint16_t>(0, 1),
                            .offset = input.ConsumeIntegralInRange<std::uint32_t>(0, region_size / 64) * 64,
                            .log2_size = input.ConsumeIntegralInRange<std::uint8_t>(0, 16)};
        if (input.ConsumeProbability<float>() < 0.1F) ring.index = input.ConsumeIntegral<std::uint16_t>();
        if (input.ConsumeProbability<float>() < 0.1F) ring.offset = input.ConsumeIntegral<std::uint32_t>();
        (void)connection.add_ring(ring, event());
    }
    for (const auto direction : {memif::Direction::client_to_server, memif::Direction::server_to_client}) {
        FUZZ_CHECK(connection.ring_count(direction) <= most_rings);
    }
}

// What the input makes of the rings.
void scribble(FuzzedDataProvider& input, Peer& peer) {
    const unsigned index = input.ConsumeIntegralInRange<unsigned>(0, most_rings - 1);
    for (const bool c2s : {true, false}) {
        memif::Ring& ring = peer.ring(Peer::offset(c2s, index));
        const unsigned changes = input.ConsumeIntegralInRange<unsigned>(0, 8);
        for (unsigned i = 0; i < changes; ++i) {
            memif::Descriptor& descriptor = ring.descriptors[input.ConsumeIntegralInRange<unsigned>(0, 7)];
            descriptor.flags = input.ConsumeIntegral<std::uint8_t>();
            descriptor.region = input.ConsumeIntegralInRange<std::uint16_t>(0, 2);
            descriptor.length = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::uint32_t>(0, 4096)
                                                    : input.ConsumeIntegral<std::uint32_t>();
            descriptor.offset = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::uint32_t>(8192, region_size)
                                                    : input.ConsumeIntegral<std::uint32_t>();
        }
        ring.head = static_cast<std::uint16_t>(ring.head + input.ConsumeIntegralInRange<std::uint16_t>(0, 9));
        if (input.ConsumeProbability<float>() < 0.1F) ring.tail = input.ConsumeIntegral<std::uint16_t>();
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Peer& peer = *new Peer;
    FuzzedDataProvider input(data, size);
    rte_mempool* pool = test::packet_pool();
    const unsigned buffers = rte_mempool_avail_count(pool);
    std::memset(peer.memory, 0, region_size);
    for (std::uint32_t offset = 0; offset < 2 * s2c_offset; offset += ring_stride) {
        peer.ring(offset).cookie = memif::ring_cookie;
    }
    {
        memif::Connection connection(memif::Role::server, pool, most_rings);
        memif::AddRegion region{.index = 0, .size = region_size};
        FUZZ_CHECK(connection.add_region(region, memif::FileDescriptor(dup(peer.file))) == nullptr);
        const bool any = input.ConsumeBool();
        if (any) {
            add_any_rings(input, connection);
        } else {
            for (const bool c2s : {true, false}) {
                add_rings(connection, c2s, input.ConsumeIntegralInRange<unsigned>(1, most_rings));
            }
        }
        const char* const problem = connection.complete();
        FUZZ_CHECK(any || problem == nullptr);
        for (unsigned step = 0; problem == nullptr && step < 8 && input.remaining_bytes() > 0; ++step) {
            scribble(input, peer);
            rte_mbuf* packets[batch_length];
            const unsigned from = input.ConsumeIntegralInRange<unsigned>(0, most_rings);
            const unsigned received = connection.receive(from, packets, batch_length);
            FUZZ_CHECK(received <= (any ? batch_length : 8));
            FUZZ_CHECK(received == 0 || from < connection.ring_count(connection.receiving()));
            for (unsigned i = 0; i < received; ++i) {
                FUZZ_CHECK(packets[i]->nb_segs == 1 && packets[i]->data_len > 0);
                FUZZ_CHECK(packets[i]->data_len <= rte_pktmbuf_tailroom(packets[i]) + packets[i]->data_len);
            }
            const unsigned to = input.ConsumeIntegralInRange<unsigned>(0, most_rings);
            const unsigned sent = connection.send(to, packets, static_cast<std::uint16_t>(received));
            FUZZ_CHECK(sent <= received);
            FUZZ_CHECK(sent == 0 || to < connection.ring_count(connection.sending()));
            connection.arm(from, input.ConsumeBool());
            rte_pktmbuf_free_bulk(packets + sent, received - sent);
        }
    }
    FUZZ_CHECK(rte_mempool_avail_count(pool) == buffers);
    return 0;
}
