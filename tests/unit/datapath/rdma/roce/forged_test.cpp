// Packets that no peer of ours sends: what breaks the rules is refused, what is for somebody else is not there.
#include "two_nodes.hpp"

namespace ovsdr::soft::roce::test {
namespace {

/// A packet over IPv4, apart: put together again it has its lengths, its checksum and its ICRC.
struct Packet {
    static constexpr std::size_t ip = 14, udp = 34, front = 42;

    explicit Packet(const Frame& frame) : head(frame.begin(), frame.begin() + front) {
        std::memcpy(&bth, frame.data() + front, sizeof bth);
        const std::size_t pad = bth.flags >> 4 & 3;
        body.assign(frame.begin() + front + sizeof bth, frame.end() - static_cast<long>(icrc_size + pad));
    }
    [[nodiscard]] Frame frame() const {
        Frame all = head;
        Bth header = bth;
        const std::size_t pad = -body.size() & 3;
        header.flags = static_cast<std::uint8_t>((header.flags & ~0x30) | pad << 4);
        const auto bytes = std::as_bytes(std::span{&header, 1});
        all.insert(all.end(), bytes.begin(), bytes.end());
        all.insert(all.end(), body.begin(), body.end());
        all.resize(all.size() + pad + icrc_size);
        put(all, ip + 2, static_cast<unsigned>(all.size() - ip));
        put(all, udp + 4, static_cast<unsigned>(all.size() - udp));
        put(all, ip + 10, 0);
        std::uint32_t sum = 0;
        for (std::size_t at = ip; at < udp; at += 2) {
            sum += std::to_integer<unsigned>(all[at]) << 8 | std::to_integer<unsigned>(all[at + 1]);
        }
        sum = (sum & 0xffff) + (sum >> 16);
        put(all, ip + 10, ~(sum + (sum >> 16)) & 0xffff);
        const std::uint32_t crc = icrc(all.data() + ip, true, all.size() - ip - icrc_size);
        std::memcpy(all.data() + all.size() - icrc_size, &crc, icrc_size);
        return all;
    }
    /// The length that a RETH announces.
    void announce(std::uint32_t size) {
        const __be32 word = htobe32(size);
        std::memcpy(body.data() + offsetof(Reth, size), &word, sizeof word);
    }
    void grow(std::size_t bytes) { body.resize(body.size() + bytes); }
    void shrink(std::size_t bytes) { body.resize(body.size() - bytes); }

    std::vector<std::byte> head;
    Bth bth{};
    std::vector<std::byte> body;  ///< extension headers and payload

private:
    static void put(Frame& frame, std::size_t at, unsigned value) {
        frame[at] = static_cast<std::byte>(value >> 8);
        frame[at + 1] = static_cast<std::byte>(value);
    }
};

struct ForgedTest : TwoNodes {
    struct Ends {
        Queue client, server;
        Ends(Node& left, Node& right, const Queue::Options& options = {})
            : client(left, options), server(right, options) {
            client.connect(server);
            server.connect(client);
            server.post_receive(5, {server.piece(0, 8000)});
            fill(client.memory, 1);
        }
    };
    using Edit = std::function<void(Packet&)>;

    /// Edits the packet of that number, from 0, which left or right sends. Each time that it comes, if `always`.
    void forge(bool of_left, unsigned number, const Edit& edit, bool always = false) {
        wire = [=, this, sent = 0U](const Frame& frame, bool from_left) mutable {
            if (from_left != of_left || (!always && sent++ != number)) return 1u;
            Packet packet(frame);
            edit(packet);
            (from_left ? right : left).receive(packet.frame());
            return 0u;
        };
    }
    static Queue::Work work(const Ends& ends, std::uint8_t opcode, std::size_t size) {
        return {.opcode = opcode, .sges = {ends.client.piece(0, size)}, .remote = ends.server.address(),
                .rkey = ends.server.region.key};
    }
    /// What becomes of a request; it must be over.
    ibv_wc_status outcome(Ends& ends, std::uint8_t opcode, std::size_t size) {
        ends.client.post(work(ends, opcode, size));
        run();
        const auto done = ends.client.sends();
        EXPECT_EQ(done.size(), 1U);
        return done.empty() ? IBV_WC_GENERAL_ERR : done[0].status;
    }
};


struct Forgery {
    const char* name;
    std::uint8_t opcode;
    std::size_t size;  ///< of the message; packets have 1024 bytes
    unsigned number;   ///< of the packet
    std::function<void(Packet&)> edit;
};

TEST_F(ForgedTest, AnUntouchedPacketPutTogetherAgainIsTaken) {
    for (const std::uint8_t opcode : {a_send, a_write, a_read}) {
        Ends ends(left, right);
        forge(true, 0, [](Packet&) {}, true);
        EXPECT_EQ(outcome(ends, opcode, 2999), IBV_WC_SUCCESS);
    }
}

TEST_F(ForgedTest, RequestsThatBreakTheRulesAreInvalid) {
    const auto opcode = [](std::uint8_t other) { return [other](Packet& packet) { packet.bth.opcode = other; }; };
    const auto announce = [](std::uint32_t size) { return [size](Packet& packet) { packet.announce(size); }; };
    const auto shrink = [](Packet& packet) { packet.shrink(4); };
    const auto grow = [](Packet& packet) { packet.grow(4); };
    const Forgery all[] = {
        {"a write of more than 2^31 bytes", a_write, 100, 0, announce(0x80000001)},
        {"a read of more than 2^31 bytes", a_read, 100, 0, announce(0x80000001)},
        {"a write that brings less than it says", a_write, 100, 0, announce(104)},
        {"a write that brings more than it says", a_write, 100, 0, announce(96)},
        {"a long write that brings less than it says", a_write, 3000, 0, announce(3001)},
        {"a long write that brings more than it says", a_write, 3000, 0, announce(2999)},
        {"the middle of no send", a_send, 3000, 0, opcode(0x01)},
        {"the end of no send", a_send, 1000, 0, opcode(0x02)},
        {"the end of no write", a_write, 1000, 0, opcode(0x08)},
        {"a send in a send", a_send, 3000, 1, opcode(0x00)},
        {"a send in a write", a_write, 3000, 1, opcode(0x00)},
        {"a write that goes on as a send", a_write, 3000, 1, opcode(0x01)},
        {"a send that goes on as a write", a_send, 3000, 1, opcode(0x07)},
        {"a send that ends as a write", a_send, 3000, 2, opcode(0x08)},
        {"a short beginning", a_send, 3000, 0, shrink},
        {"a short middle", a_send, 3000, 1, shrink},
        {"a long middle", a_send, 3000, 1, grow},
        {"an end of nothing", a_send, 3000, 2, [](Packet& packet) { packet.body.clear(); }},
        {"an end past the MTU", a_send, 2048, 1, grow},
        {"more than a packet in one", a_send, 1024, 0, grow},
        {"a read that brings something", a_read, 100, 0, grow},
        {"an atomic that brings something", an_atomic, 8, 0, grow},
    };
    for (const Forgery& one : all) {
        SCOPED_TRACE(one.name);
        Ends ends(left, right);
        forge(true, one.number, one.edit);
        EXPECT_EQ(outcome(ends, one.opcode, one.size), IBV_WC_REM_INV_REQ_ERR);
        EXPECT_EQ(ends.server.pair->state(), IBV_QPS_ERR);
        EXPECT_EQ(ends.server.events, std::vector{IBV_EVENT_QP_REQ_ERR});
        wire = [](const Frame&, bool) { return 1u; };
        run();
    }
}

TEST_F(ForgedTest, WhatAnUnreliableConnectionDoesNotUnderstandIsLost) {
    const Queue::Options unreliable{.type = IBV_QPT_UC};
    const auto opcode = [](std::uint8_t other) { return [other](Packet& packet) { packet.bth.opcode = other; }; };
    const Forgery all[] = {
        {"a write of more than 2^31 bytes", a_write, 100, 0, [](Packet& packet) { packet.announce(0x80000001); }},
        {"a write that brings less than it says", a_write, 100, 0, [](Packet& packet) { packet.announce(104); }},
        {"a write that brings more than it says", a_write, 3000, 0, [](Packet& packet) { packet.announce(2999); }},
        {"a send that goes on as a write", a_send, 3000, 1, opcode(0x27)},
        {"a short middle", a_send, 3000, 1, [](Packet& packet) { packet.shrink(4); }},
        {"the end of no send", a_send, 100, 0, opcode(0x22)},
        {"a read", a_write, 100, 0, opcode(0x2c)},
    };
    for (const Forgery& one : all) {
        SCOPED_TRACE(one.name);
        Ends ends(left, right, unreliable);
        forge(true, one.number, one.edit);
        EXPECT_EQ(outcome(ends, one.opcode, one.size), IBV_WC_SUCCESS) << "the sender does not know";
        EXPECT_TRUE(ends.server.receives_done().empty());
        EXPECT_EQ(ends.server.pair->state(), IBV_QPS_RTS);
        EXPECT_TRUE(ends.server.events.empty());
        EXPECT_EQ(outcome(ends, a_send, 3000), IBV_WC_SUCCESS);
        EXPECT_EQ(ends.server.receives_done().size(), 1U) << "the next message has the entry";
        EXPECT_TRUE(
            std::equal(ends.client.memory.begin(), ends.client.memory.begin() + 3000, ends.server.memory.begin()));
    }
}

TEST_F(ForgedTest, WhatIsForSomebodyElseIsNotTaken) {
    const Forgery all[] = {
        {"another partition", a_write, 100, 0, [](Packet& packet) { packet.bth.pkey = htobe16(0x1234); }},
        {"a queue pair that is not there", a_write, 100, 0, [](Packet& packet) { packet.bth.qpn = htobe32(0xfffffe); }},
        {"an unreliable connection's packet", a_write, 100, 0, [](Packet& packet) { packet.bth.opcode |= 0x20; }},
        {"an opcode that is not there", a_write, 100, 0, [](Packet& packet) { packet.bth.opcode = 0x1f; }},
        {"an opcode of DC alone", a_write, 100, 0, [](Packet& packet) { packet.bth.opcode = 0x18; }},
        {"another version", a_write, 100, 0, [](Packet& packet) { packet.bth.flags |= 1; }},
        {"headers that are cut off", a_write, 100, 0, [](Packet& packet) { packet.body.resize(12); }},
        {"another address", a_write, 100, 0, [](Packet& packet) { packet.head[Packet::ip + 19] ^= std::byte{8}; }},
        {"another sender", a_write, 100, 0, [](Packet& packet) { packet.head[Packet::ip + 15] ^= std::byte{8}; }},
    };
    for (const Forgery& one : all) {
        SCOPED_TRACE(one.name);
        Ends ends(left, right);
        forge(true, 0, one.edit, true);
        ends.client.post(work(ends, one.opcode, one.size));
        run({}, 1'000'000);
        EXPECT_TRUE(ends.client.sends().empty());
        EXPECT_EQ(ends.server.memory, std::vector<std::byte>(ends.server.memory.size()));
        wire = [](const Frame&, bool) { return 1u; };
        run();
        const auto done = ends.client.sends();
        ASSERT_EQ(done.size(), 1U);
        EXPECT_EQ(done[0].status, IBV_WC_SUCCESS) << "it is there when the rest of the way is right";
    }
}

TEST_F(ForgedTest, ALimitedMemberOfThePartitionIsHeard) {
    Ends ends(left, right);
    forge(true, 0, [](Packet& packet) { packet.bth.pkey = htobe16(0x7fff); }, true);
    EXPECT_EQ(outcome(ends, a_write, 100), IBV_WC_SUCCESS);
}

TEST_F(ForgedTest, AnswersThatDoNotFitTheirReadAreBad) {
    const auto cut_header = [](Packet& packet) { packet.body.erase(packet.body.begin(), packet.body.begin() + 4); };
    const auto add_header = [](Packet& packet) {
        packet.body.insert(packet.body.begin(), {std::byte{0x1f}, {}, {}, {}});
    };
    const Forgery all[] = {
        {"a short beginning", a_read, 3000, 0, [](Packet& packet) { packet.shrink(4); }},
        {"a short middle", a_read, 3000, 1, [](Packet& packet) { packet.shrink(4); }},
        {"a long end", a_read, 3000, 2, [](Packet& packet) { packet.grow(1); }},
        {"an end in the middle", a_read, 3000, 1,
         [=](Packet& packet) { packet.bth.opcode = 0x0f, add_header(packet); }},
        {"a middle at the end", a_read, 3000, 2, [=](Packet& packet) { packet.bth.opcode = 0x0e, cut_header(packet); }},
        {"an atomic's answer", a_read, 8, 0, [](Packet& packet) { packet.bth.opcode = 0x12; }},
        {"an atomic with a read's answer", an_atomic, 8, 0, [](Packet& packet) { packet.bth.opcode = 0x10; }},
    };
    for (const Forgery& one : all) {
        SCOPED_TRACE(one.name);
        Ends ends(left, right);
        forge(false, one.number, one.edit);
        EXPECT_EQ(outcome(ends, one.opcode, one.size), IBV_WC_BAD_RESP_ERR);
        EXPECT_EQ(ends.client.pair->state(), IBV_QPS_ERR);
        wire = [](const Frame&, bool) { return 1u; };
        run();
    }
}

TEST_F(ForgedTest, TheCodeOfARefusalIsTheStatus) {
    constexpr std::pair<std::uint8_t, ibv_wc_status> codes[] = {
        {0x61, IBV_WC_REM_INV_REQ_ERR}, {0x62, IBV_WC_REM_ACCESS_ERR}, {0x63, IBV_WC_REM_OP_ERR}};
    for (const auto& [syndrome, status] : codes) {
        Ends ends(left, right);
        forge(false, 0, [code = syndrome](Packet& packet) { packet.body[0] = std::byte{code}; });
        EXPECT_EQ(outcome(ends, a_write, 3000), status);
        wire = [](const Frame&, bool) { return 1u; };
        run();
    }
}

TEST_F(ForgedTest, AcknowledgementsOfWhatWasNotSentSayNothing) {
    const auto move_psn = [](std::uint32_t by) {
        return [by](Packet& packet) { packet.bth.psn = htobe32(psn_add(be32toh(packet.bth.psn) & mask24, by)); };
    };
    const Forgery all[] = {
        {"the next packet's number", a_write, 100, 0, move_psn(1)},
        {"a number far ahead", a_write, 100, 0, move_psn(1000)},
        {"an old number", a_write, 100, 0, move_psn(mask24)},
        {"a syndrome that is not there", a_write, 100, 0, [](Packet& packet) { packet.body[0] = std::byte{0x40}; }},
        {"an old refusal", a_write, 100, 0,
         [=](Packet& packet) { packet.body[0] = std::byte{0x62}, move_psn(mask24)(packet); }},
        {"an early refusal", a_write, 100, 0,
         [=](Packet& packet) { packet.body[0] = std::byte{0x62}, move_psn(1)(packet); }},
    };
    for (const Forgery& one : all) {
        SCOPED_TRACE(one.name);
        Ends ends(left, right);
        forge(false, 0, one.edit, true);
        ends.client.post(work(ends, one.opcode, one.size));
        run({}, 1'000'000);
        EXPECT_TRUE(ends.client.sends().empty());
        EXPECT_EQ(ends.client.pair->state(), IBV_QPS_RTS);
        wire = [](const Frame&, bool) { return 1u; };
        run();
        EXPECT_EQ(ends.client.sends().size(), 1U) << "an answer that is one completes it";
    }
}

}  // namespace
}  // namespace ovsdr::soft::roce::test
