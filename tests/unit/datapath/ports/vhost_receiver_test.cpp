// What comes from guests by net_vhost, as DPDK's driver hands it over.
#include "datapath/ports/vhost_receiver.hpp"

#include <deque>

#include "unfinished_frames.hpp"

namespace ovsdr::soft {
namespace {

/// DPDK's queue: gives what waits, and remembers how many it was asked for.
struct Driver {
    std::deque<rte_mbuf*> waits;
    std::vector<unsigned> asked;

    static std::uint16_t receive(void* self, rte_mbuf** packets, std::uint16_t length) noexcept {
        auto& driver = *static_cast<Driver*>(self);
        driver.asked.push_back(length);
        std::uint16_t number = 0;
        for (; number < length && !driver.waits.empty(); ++number) {
            packets[number] = driver.waits.front();
            driver.waits.pop_front();
        }
        return number;
    }
};

class VhostReceiverTest : public UnfinishedTest {
protected:
    VhostReceiverTest() : receiver_({.receive = Driver::receive, .queue = &driver_}, pool_.get()) {}

    void plain(unsigned number) {
        for (unsigned i = 0; i < number; ++i) driver_.waits.push_back(packet(Bytes(60)));
    }
    /// A TCP packet that its guest leaves to be cut, in as many buffers as it takes.
    void long_one(unsigned payload, unsigned segment) {
        const Frame frame = maker_.frame(true, true, payload, segment);
        rte_mbuf* first = nullptr;
        rte_mbuf** end = &first;
        std::uint16_t number = 0;
        for (std::size_t at = 0; at < frame.bytes.size(); ++number) {
            rte_mbuf* const piece = rte_pktmbuf_alloc(pool_.get());
            const std::size_t size = std::min<std::size_t>(rte_pktmbuf_tailroom(piece), frame.bytes.size() - at);
            std::memcpy(rte_pktmbuf_append(piece, static_cast<std::uint16_t>(size)), &frame.bytes[at], size);
            at += size;
            *end = piece;
            end = &piece->next;
        }
        first->pkt_len = static_cast<std::uint32_t>(frame.bytes.size());
        first->nb_segs = number;
        first->ol_flags = RTE_MBUF_F_RX_LRO | RTE_MBUF_F_RX_L4_CKSUM_NONE;
        first->tso_segsz = static_cast<std::uint16_t>(segment);
        driver_.waits.push_back(first);
    }
    unsigned receive() {
        rte_mbuf* packets[batch_length];
        const unsigned received = VhostReceiver::receive(&receiver_, packets, batch_length);
        for (unsigned i = 0; i < received; ++i) EXPECT_EQ(packets[i]->nb_segs, 1);
        rte_pktmbuf_free_bulk(packets, received);
        return received;
    }

    Maker maker_{1};
    Driver driver_;
    VhostReceiver receiver_;
};

TEST_F(VhostReceiverTest, WhatIsWholeComesByTheUsualNumber) {
    plain(70);
    for (const unsigned expected : {poll_length, poll_length, 6U, 0U}) EXPECT_EQ(receive(), expected);
    for (const unsigned asked : driver_.asked) EXPECT_EQ(asked, poll_length);
}

TEST_F(VhostReceiverTest, TheSegmentsOfOnePacketStayTogether) {
    long_one(45 * 1400, 1400);
    long_one(45 * 1400, 1400);
    long_one(20 * 1400, 1400);
    long_one(20 * 1400, 1400);
    for (const unsigned expected : {45U, 45U, 40U, 0U}) EXPECT_EQ(receive(), expected);
}

TEST_F(VhostReceiverTest, TheyFitBehindOthersAndOnlyWhatIsCutTooFineIsSplit) {
    plain(poll_length - 1);
    long_one(45 * 1400, 1400);
    plain(3);
    for (const unsigned expected : {poll_length - 1 + 45, 3U, 0U}) EXPECT_EQ(receive(), expected);
    long_one(100 * 500, 500);
    plain(3);
    for (const unsigned expected : {batch_length, 100 - batch_length + 3, 0U}) EXPECT_EQ(receive(), expected);
}

}  // namespace
}  // namespace ovsdr::soft
