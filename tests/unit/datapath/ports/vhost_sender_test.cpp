// What guests get by net_vhost, as DPDK's driver is handed it.
#include "datapath/ports/vhost_sender.hpp"

#include "unfinished_frames.hpp"

namespace ovsdr::soft {
namespace {

/// DPDK's queue: takes the messages that the guest has buffers for, one for each packet, up to the first that it has
/// too few for, and frees them as the driver does.
struct Driver {
    struct Taken {
        VirtioHeader says{};
        Bytes bytes;
        bool headers_together = false;
        unsigned buffers = 0;
    };
    std::vector<Taken> taken;
    unsigned room = batch_length;
    std::vector<unsigned> offered;  ///< messages in each call

    static std::uint16_t send(void* self, rte_mbuf** messages, std::uint16_t length) noexcept {
        auto& driver = *static_cast<Driver*>(self);
        driver.offered.push_back(length);
        std::uint16_t number = 0;
        for (; number < length; ++number) {
            const unsigned packets = std::max(messages[number]->nb_segs - 1, 1);
            if (packets > driver.room) break;
            driver.room -= packets;
            driver.taken.push_back(read(messages[number]));
            rte_pktmbuf_free(messages[number]);
        }
        return number;
    }

    /// virtio's header is made of the flags as DPDK's library makes it.
    static Taken read(const rte_mbuf* message) {
        Taken taken;
        const char* wrong = nullptr;
        EXPECT_EQ(rte_mbuf_check(message, 1, &wrong), 0) << wrong;
        for (const rte_mbuf* piece = message; piece != nullptr; piece = piece->next, ++taken.buffers) {
            const auto* begin = rte_pktmbuf_mtod(piece, const std::uint8_t*);
            taken.bytes.insert(taken.bytes.end(), begin, begin + piece->data_len);
        }
        EXPECT_EQ(taken.bytes.size(), message->pkt_len);
        const std::uint32_t headers = message->l2_len + message->l3_len + message->l4_len;
        taken.headers_together = message->data_len >= headers;
        if ((message->ol_flags & RTE_MBUF_F_TX_TCP_SEG) == 0) return taken;
        const bool v4 = (message->ol_flags & RTE_MBUF_F_TX_IPV4) != 0;
        taken.says = {.flags = VirtioHeader::needs_checksum,
                      .gso_type = v4 ? VirtioHeader::gso_tcp4 : VirtioHeader::gso_tcp6,
                      .hdr_len = static_cast<std::uint16_t>(headers),
                      .gso_size = static_cast<std::uint16_t>(message->tso_segsz),
                      .csum_start = static_cast<std::uint16_t>(message->l2_len + message->l3_len),
                      .csum_offset = 16};
        return taken;
    }
};

class VhostSenderTest : public UnfinishedTest {
protected:
    VhostSenderTest() : sender_({.send = Driver::send, .queue = &driver_}, pool_.get()) {}

    /// A frame that can be cut and joined, as the packets that it is cut into.
    std::vector<Bytes> packets_of(Maker& maker, bool v4, unsigned payload = 20000) {
        Frame frame = maker.frame(v4, true, payload, 1000);
        while (v4 && frame.bytes[frame.l3] != 0x45) frame = maker.frame(v4, true, payload, 1000);
        frame.bytes[frame.says.csum_start + 13u] = ack | push;
        return cut(frame.bytes, frame.says);
    }
    std::vector<rte_mbuf*> made(const std::vector<Bytes>& packets) {
        std::vector<rte_mbuf*> result;
        for (const Bytes& bytes : packets) result.push_back(packet(bytes));
        return result;
    }
    unsigned send(std::vector<rte_mbuf*>& packets, std::size_t from = 0) {
        return VhostSender::send(&sender_, packets.data() + from, static_cast<std::uint16_t>(packets.size() - from));
    }
    /// As the guest's stack, or a NIC behind it, would cut what it got.
    std::vector<Bytes> cut_again() {
        std::vector<Bytes> result;
        for (const Driver::Taken& taken : driver_.taken) append_all(result, cut(taken.bytes, taken.says));
        return result;
    }
    static void expect_untouched(std::span<rte_mbuf* const> buffers, std::span<const Bytes> packets, std::size_t from) {
        for (std::size_t i = from; i < buffers.size(); ++i) {
            ASSERT_EQ(buffers[i]->next, nullptr);
            ASSERT_EQ(bytes_of(buffers[i]), packets[i]) << i;
            ASSERT_EQ(buffers[i]->pkt_len, packets[i].size());
        }
    }
    static unsigned free_buffers() { return rte_mempool_avail_count(pool_.get()); }

    Driver driver_;
    VhostSender sender_;
};

TEST_F(VhostSenderTest, PacketsGoAsTheyAreToAGuestThatTakesNoOthers) {
    Maker maker(1);
    const std::vector<Bytes> packets = packets_of(maker, true);
    std::vector<rte_mbuf*> buffers = made(packets);
    EXPECT_EQ(send(buffers), packets.size());
    EXPECT_EQ(driver_.offered, std::vector<unsigned>{static_cast<unsigned>(packets.size())});
    EXPECT_EQ(difference(cut_again(), packets), "");
}

TEST_F(VhostSenderTest, PacketsThatFollowEachOtherGoAsOne) {
    Maker maker(2);
    const unsigned before = free_buffers();
    sender_.set_joins(VhostSender::joins_ipv4 | VhostSender::joins_ipv6);
    for (unsigned round = 0; round < 100; ++round) {
        const std::vector<Bytes> packets = packets_of(maker, maker.chance(), maker.number(1001, 30000));
        std::vector<rte_mbuf*> buffers = made(packets);
        driver_ = {};
        EXPECT_EQ(send(buffers), packets.size());
        ASSERT_EQ(driver_.taken.size(), 1U) << round;
        EXPECT_EQ(driver_.taken[0].buffers, packets.size() + 1);
        EXPECT_FALSE(driver_.taken[0].headers_together) << "the library would spoil the pseudo-header's sum";
        EXPECT_EQ(difference(cut_again(), packets), "") << round;
    }
    EXPECT_EQ(free_buffers(), before) << "buffers of headers are used again";
}

TEST_F(VhostSenderTest, OnlyWhatTheGuestTakesIsJoined) {
    Maker maker(3);
    for (const unsigned families : {VhostSender::joins_ipv4, VhostSender::joins_ipv6, 0U}) {
        for (const bool v4 : {true, false}) {
            sender_.set_joins(families);
            driver_ = {};
            const std::vector<Bytes> packets = packets_of(maker, v4);
            std::vector<rte_mbuf*> buffers = made(packets);
            EXPECT_EQ(send(buffers), packets.size());
            const bool joins = families == (v4 ? VhostSender::joins_ipv4 : VhostSender::joins_ipv6);
            EXPECT_EQ(driver_.taken.size(), joins ? 1U : packets.size()) << families << v4;
            EXPECT_EQ(difference(cut_again(), packets), "");
        }
    }
}

// Two flows by turns, with a packet of neither in between; the guest makes room for one of them after the other.
TEST_F(VhostSenderTest, WhatFindsNoRoomStaysTheCallersAsItWas) {
    Maker maker(4);
    sender_.set_joins(VhostSender::joins_ipv4 | VhostSender::joins_ipv6);
    std::vector<Bytes> packets = packets_of(maker, true, 5000);
    packets.push_back(maker.bytes(60));
    append_all(packets, packets_of(maker, false, 7000));
    append_all(packets, packets_of(maker, true, 4000));
    ASSERT_LE(packets.size(), batch_length);
    std::vector<rte_mbuf*> buffers = made(packets);
    std::size_t sent = 0;
    for (const unsigned room : {5U, 1U, 7U, 4U}) {
        driver_.room = 0;
        ASSERT_EQ(send(buffers, sent), 0U);
        expect_untouched(buffers, packets, sent);
        driver_.room = room;
        ASSERT_EQ(send(buffers, sent), room);
        sent += room;
        expect_untouched(buffers, packets, sent);
    }
    EXPECT_EQ(sent, packets.size());
    EXPECT_EQ(driver_.taken.size(), 7U) << "the first behind a refusal goes alone, to see whether there is room";
    EXPECT_EQ(difference(cut_again(), packets), "");
}

TEST_F(VhostSenderTest, AGuestWithoutRoomForAllGetsSome) {
    Maker maker(7);
    sender_.set_joins(VhostSender::joins_ipv4);
    std::vector<Bytes> packets = packets_of(maker, true, 9000);
    std::vector<rte_mbuf*> buffers = made(packets);
    driver_.room = 4;
    ASSERT_EQ(send(buffers), 4U);
    EXPECT_EQ(driver_.taken.size(), 4U);
    expect_untouched(buffers, packets, 4);
    driver_.room = batch_length;
    EXPECT_EQ(send(buffers, 4), 5U);
    EXPECT_EQ(driver_.taken.size(), 5U) << "the others as one";
    EXPECT_EQ(difference(cut_again(), packets), "");
}

TEST_F(VhostSenderTest, AGuestThatTakesNothingIsOfferedOnePacket) {
    Maker maker(8);
    sender_.set_joins(VhostSender::joins_ipv4);
    const std::vector<Bytes> packets = packets_of(maker, true, 9000);
    std::vector<rte_mbuf*> buffers = made(packets);
    driver_.room = 0;
    ASSERT_EQ(send(buffers), 0U);
    driver_.offered.clear();
    for (unsigned i = 0; i < 3; ++i) ASSERT_EQ(send(buffers), 0U);
    EXPECT_EQ(driver_.offered, (std::vector<unsigned>{1, 1, 1}));
    driver_.room = batch_length;
    EXPECT_EQ(send(buffers), 9U);
    EXPECT_EQ(difference(cut_again(), packets), "");
}

// A mirror's, for instance: another port's queue has the same buffer.
TEST_F(VhostSenderTest, WhatOthersHoldAsWellGoesByItself) {
    Maker maker(5);
    sender_.set_joins(VhostSender::joins_ipv4 | VhostSender::joins_ipv6);
    const std::vector<Bytes> packets = packets_of(maker, true, 6000);
    std::vector<rte_mbuf*> buffers = made(packets);
    ASSERT_EQ(buffers.size(), 6U);
    rte_mbuf* const shared = buffers[3];
    rte_mbuf_refcnt_update(shared, 1);
    EXPECT_EQ(send(buffers), 6U);
    EXPECT_EQ(driver_.taken.size(), 3U) << "three, the shared one, two";
    EXPECT_EQ(difference(cut_again(), packets), "");
    EXPECT_EQ(bytes_of(shared), packets[3]);
    rte_pktmbuf_free(shared);
}

TEST_F(VhostSenderTest, MoreJoinedPacketsThanItHasBuffersForHeaders) {
    Maker maker(6);
    sender_.set_joins(VhostSender::joins_ipv4);
    std::vector<Bytes> packets;
    while (packets.size() < 2 * batch_length) append_all(packets, packets_of(maker, true, 1500));
    std::vector<rte_mbuf*> buffers = made(packets);
    driver_.room = 1000;
    std::size_t sent = 0;
    while (sent < buffers.size()) {
        const unsigned gone = send(buffers, sent);
        ASSERT_GT(gone, 0U);
        sent += gone;
    }
    EXPECT_LT(driver_.taken.size(), packets.size());
    EXPECT_EQ(difference(cut_again(), packets), "");
}

}  // namespace
}  // namespace ovsdr::soft
