// A memif peer that writes anything into the shared rings. Whatever it does, frames are of a possible size, no memory
// outside is touched, and all packet buffers come back.
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
constexpr std::uint32_t s2c_offset = 4096;
constexpr std::uint8_t log2_ring = 3;

struct Peer {
    Peer() : file(memfd_create("peer", MFD_ALLOW_SEALING)) {
        FUZZ_CHECK(ftruncate(file, region_size) == 0 && fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        memory = static_cast<std::byte*>(mmap(nullptr, region_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    }
    memif::Ring& ring(std::uint32_t offset) { return *reinterpret_cast<memif::Ring*>(memory + offset); }
    int file;
    std::byte* memory;
};

// What the input makes of the rings.
void scribble(FuzzedDataProvider& input, Peer& peer) {
    for (const std::uint32_t offset : {0U, s2c_offset}) {
        memif::Ring& ring = peer.ring(offset);
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
    for (const std::uint32_t offset : {0U, s2c_offset}) peer.ring(offset).cookie = memif::ring_cookie;
    {
        memif::Connection connection(memif::Role::server, pool);
        memif::AddRegion region{.index = 0, .size = region_size};
        FUZZ_CHECK(connection.add_region(region, memif::FileDescriptor(dup(peer.file))) == nullptr);
        for (const bool c2s : {true, false}) {
            memif::AddRing ring{.flags = c2s, .offset = c2s ? 0 : s2c_offset, .log2_size = log2_ring};
            FUZZ_CHECK(connection.add_ring(ring, memif::FileDescriptor(eventfd(0, EFD_NONBLOCK))) == nullptr);
        }
        FUZZ_CHECK(connection.complete() == nullptr);
        for (unsigned step = 0; step < 8 && input.remaining_bytes() > 0; ++step) {
            scribble(input, peer);
            rte_mbuf* packets[batch_length];
            const unsigned received = connection.receive(packets, batch_length);
            FUZZ_CHECK(received <= 8);
            for (unsigned i = 0; i < received; ++i) {
                FUZZ_CHECK(packets[i]->nb_segs == 1 && packets[i]->data_len > 0);
                FUZZ_CHECK(packets[i]->data_len <= rte_pktmbuf_tailroom(packets[i]) + packets[i]->data_len);
            }
            const unsigned sent = connection.send(packets, static_cast<std::uint16_t>(received));
            FUZZ_CHECK(sent <= received);
            rte_pktmbuf_free_bulk(packets + sent, received - sent);
        }
    }
    FUZZ_CHECK(rte_mempool_avail_count(pool) == buffers);
    return 0;
}
