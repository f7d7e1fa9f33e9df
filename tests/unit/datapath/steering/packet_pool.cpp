#include "packet_pool.hpp"

#include <rte_eal.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace ovsdr::soft::test {
namespace {

rte_mempool* make_pool() {
    std::string prefix = "--file-prefix=steering-test-" + std::to_string(::getpid());
    std::vector<std::string> words{"test", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", "64",
                                   "--log-level=error", "--lcores=0", prefix};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0) throw std::runtime_error("EAL");
    rte_mempool* made = rte_pktmbuf_pool_create("packets", 4095, 0, 0, 2048 + RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);
    if (made == nullptr) throw std::runtime_error("packet pool");
    return made;
}

}  // namespace

rte_mempool* pool() {
    static rte_mempool* const made = make_pool();
    return made;
}

unsigned mbufs_in_use() { return rte_mempool_in_use_count(pool()); }

rte_mbuf* packet_of(const Frame& frame) {
    rte_mbuf* packet = rte_pktmbuf_alloc(pool());
    if (packet == nullptr) throw std::runtime_error("out of packets");
    if (!frame.empty()) {
        std::memcpy(rte_pktmbuf_append(packet, static_cast<std::uint16_t>(frame.size())), frame.data(), frame.size());
    }
    return packet;
}

Frame frame_of(const rte_mbuf* packet) {
    const auto* begin = rte_pktmbuf_mtod(packet, const std::uint8_t*);
    return {begin, begin + packet->data_len};
}

void Collector::deliver(void* self, unsigned, rte_mbuf** packets, unsigned length) noexcept {
    EXPECT_GT(length, 0U);
    EXPECT_LE(length, batch_length);
    for (unsigned i = 0; i < length; ++i) {
        EXPECT_EQ(packets[i]->pkt_len, packets[i]->data_len);
        static_cast<Collector*>(self)->taken.push_back(
            {frame_of(packets[i]), tag_of(packets[i]), source_of(packets[i]), reg_b_of(packets[i])});
        rte_pktmbuf_free(packets[i]);
    }
}

void SteeringTest::send(std::uint16_t vport, const Frame& frame, unsigned times) {
    lane.online();
    for (unsigned i = 0; i < times; ++i) {
        rte_mbuf* packet = packet_of(frame);
        lane.from_vport(VportId{vport}, &packet, 1);
    }
    lane.offline();
}

void SteeringTest::send_batch(std::uint16_t vport, const std::vector<Frame>& frames) {
    std::vector<rte_mbuf*> packets;
    for (const Frame& frame : frames) packets.push_back(packet_of(frame));
    lane.online();
    lane.from_vport(VportId{vport}, packets.data(), static_cast<unsigned>(packets.size()));
    lane.offline();
}

void SteeringTest::send_from_queue(std::uint32_t sqn, const Frame& frame, unsigned times) {
    lane.online();
    for (unsigned i = 0; i < times; ++i) {
        rte_mbuf* packet = packet_of(frame);
        lane.from_queue(sqn, &packet, 1);
    }
    lane.offline();
}

}  // namespace ovsdr::soft::test
