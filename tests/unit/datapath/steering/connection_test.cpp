// Tracked connections: conversations of two endpoints, and segments that no endpoint sends.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "tracked.hpp"

namespace ovsdr::soft::test {
namespace {

using namespace tracked;

/// A segment with a SACK option: blocks from 0 to each of `ends`.
Bytes with_sack(Words words, const std::vector<std::uint32_t>& ends) {
    const auto length = static_cast<unsigned>(2 + 8 * ends.size());
    words.payload += length + 2;
    Bytes frame = segment(words);
    frame[46] = static_cast<std::uint8_t>((5 + (length + 2) / 4) << 4);
    auto at = frame.begin() + 54;
    for (const unsigned byte : {1U, 1U, 5U, length}) *at++ = static_cast<std::uint8_t>(byte);  // behind two NOPs
    for (const std::uint32_t end : ends) {
        at = std::fill_n(at, 4, std::uint8_t{0});
        for (unsigned shift = 32; shift > 0; shift -= 8) *at++ = static_cast<std::uint8_t>(end >> (shift - 8));
    }
    return frame;
}

class Connection : public ::testing::Test {
protected:
    explicit Connection(const Object& object = after_syn_ack()) { become(object); }

    void become(const Object& object) { track.exchange(object.image, ~0ULL); }
    [[nodiscard]] Object now() { return Object{.image = track.exchange({}, 0)}; }
    std::uint8_t pass(ConnTrack::Direction direction, const Bytes& frame) {
        return track.track(direction, frame.data(), static_cast<std::uint32_t>(frame.size()));
    }
    std::uint8_t from_client(const Words& words) { return pass(initiator, segment(words)); }
    std::uint8_t from_server(const Words& words) { return pass(responder, segment(words)); }

    ConnTrack track;
};

TEST_F(Connection, IsOpenedUsedAndClosed) {
    EXPECT_EQ(from_client({1001, 5001}), changed);
    EXPECT_EQ(now().get(state), 1U);
    EXPECT_EQ(now().get(assured), 0U);
    EXPECT_EQ(from_client({1001, 5001, ack, 1000, 100}), valid);
    EXPECT_EQ(now().get(assured), 1U);
    EXPECT_EQ(now().get(original_sent_end), 1101U);
    EXPECT_EQ(from_server({5001, 1101, ack, 500, 300}), valid);
    EXPECT_EQ(now().get(original_reply_end), 2001U) << "a smaller window takes nothing back";
    EXPECT_EQ(from_client({1101, 5301, ack | fin}), changed);
    EXPECT_EQ(now().get(state), 2U);
    EXPECT_EQ(now().get(original_closed), 1U);
    EXPECT_EQ(from_server({5301, 1102}), changed);
    EXPECT_EQ(now().get(state), 3U);
    EXPECT_EQ(from_server({5301, 1102, ack, 1000, 50}), valid) << "the other half is open";
    EXPECT_EQ(from_server({5351, 1102, ack | fin}), changed);
    EXPECT_EQ(now().get(state), 4U);
    EXPECT_EQ(from_client({1102, 5352}), changed);
    EXPECT_EQ(now().get(state), 5U);
    EXPECT_EQ(now().get(heartbeat), 1U);
    EXPECT_EQ(now().get(object_valid), 1U);
}

TEST_F(Connection, BothCloseAtOnce) {
    ASSERT_EQ(from_client({1001, 5001}), changed);
    EXPECT_EQ(from_client({1001, 5001, ack | fin}), changed);
    EXPECT_EQ(from_server({5001, 1001, ack | fin}), changed);
    EXPECT_EQ(now().get(state), 4U);
    EXPECT_EQ(from_client({1002, 5002}), valid) << "the client's own is not acknowledged";
    EXPECT_EQ(from_server({5002, 1002}), changed);
    EXPECT_EQ(now().get(state), 5U);
}

TEST_F(Connection, IsResetByEitherSide) {
    EXPECT_EQ(from_server({5001, 1001, rst | ack}), changed);
    EXPECT_EQ(now().get(state), 5U);
}

TEST_F(Connection, SegmentsOutsideTheWindowEndTheTracking) {
    const Words outside[] = {{2002, 5001},                        // past what the server allows
                             {1001, 5002},                        // acknowledges what was never sent
                             {0, 5001},                           // further back than a window
                             {1001, 5001U - 66001U},                // acknowledges what was acknowledged long ago
                             {1001, 5001, syn}, {1001, 5001, syn | ack}};
    for (const Words& words : outside) {
        become(after_syn_ack());
        ASSERT_EQ(from_client({1001, 5001}), changed);
        EXPECT_EQ(from_client(words), invalid) << words.seq << ' ' << words.acked;
        EXPECT_EQ(now().get(object_valid), 0U);
        EXPECT_EQ(from_client({1001, 5001}), trap);
    }
}

TEST_F(Connection, SegmentsAtTheEdgesOfTheWindowAreInside) {
    for (const Words& words : {Words{2001, 5001}, Words{1, 5001, ack, 1000, 0}, Words{1001, 5001U - 66000U}}) {
        become(after_syn_ack());
        ASSERT_EQ(from_client({1001, 5001}), changed);
        EXPECT_EQ(from_client(words), valid) << words.seq << ' ' << words.acked;
    }
}

TEST_F(Connection, LiberalOnesAreNotChecked) {
    become(after_syn_ack().set(original_liberal, 1));
    EXPECT_EQ(from_client({0x80000000, 77}), changed);
    EXPECT_EQ(from_server({0x80000000, 77}), invalid) << "the other direction is";
}

TEST_F(Connection, TheHandshakeMayBeRepeatedButNotBegunAgain) {
    EXPECT_EQ(from_client({1000, 0, syn}), valid);
    EXPECT_EQ(from_server({5000, 1001, syn | ack}), valid);
    EXPECT_EQ(now().get(state), 0U);
    EXPECT_EQ(from_server({5000, 0, syn}), invalid);
}

TEST_F(Connection, AHandshakeThatComesLateChangesNothing) {
    ASSERT_EQ(from_client({1001, 5001}), changed);
    const Object open = now();
    EXPECT_EQ(from_server({5000, 1001, syn | ack}), valid) << "the client's acknowledgement was lost";
    EXPECT_EQ(from_client({1000, 0, syn}), valid);
    EXPECT_EQ(now().image, open.image);
    for (const Words& words : {Words{5001, 1001, syn | ack}, Words{5000, 1002, syn | ack}, Words{5000, 0, syn}}) {
        become(open);
        EXPECT_EQ(from_server(words), invalid) << words.seq << ' ' << words.acked;
    }
    for (const Object& object : {open, after_syn_ack()}) {
        become(object);
        EXPECT_EQ(from_client({1001, 0, syn}), invalid) << "another connection's";
    }
}

TEST_F(Connection, NothingLeadsOutOfTheLastState) {
    ASSERT_EQ(from_client({1001, 5001}), changed);
    ASSERT_EQ(from_client({1001, 5001, ack | fin}), changed);
    ASSERT_EQ(from_server({5001, 1001, rst}), changed);
    EXPECT_EQ(from_client({1002, 5001}), valid);
    EXPECT_EQ(from_server({5001, 1002, ack | fin}), valid);
    EXPECT_EQ(from_server({5002, 1002, ack, 1000, 10}), valid);
    EXPECT_EQ(now().get(state), 5U);
}

TEST_F(Connection, ARstIsNotOlderThanWhatWasAcknowledged) {
    ASSERT_EQ(from_client({1001, 5001}), changed);
    ASSERT_EQ(from_server({5001, 1001, ack, 1000, 400}), valid);
    ASSERT_EQ(from_client({1001, 5401}), valid);
    const Object open = now();
    EXPECT_EQ(from_server({5400, 1001, rst}), invalid);
    become(open);
    EXPECT_EQ(from_server({5401, 1001, rst}), changed);
    become(Object(open).set(reply_liberal, 1));
    EXPECT_EQ(from_server({5001, 1001, rst}), changed);
}

TEST_F(Connection, ARstThatAcknowledgesZeroAcknowledgesNothing) {
    const Object far = after_syn_ack().set(original_sent_end, 0x40000000).set(original_reply_end, 0x40001000);
    for (const bool resets : {true, false}) {
        become(far);
        ASSERT_EQ(from_client({0x40000000, 5001}), changed);
        EXPECT_EQ(from_server({5001, 0, static_cast<std::uint16_t>(resets ? rst | ack : ack)}),
                  resets ? changed : invalid);
    }
}

TEST_F(Connection, NoWindowIsLargerThanHalfOfAllNumbers) {
    become(after_syn_ack().set(reply_max_win, 0xffffffff));
    EXPECT_EQ(from_client({1001, 5001}), changed) << "as written";
    become(after_syn_ack().set(reply_max_win, 0x7ffffff0).set(original_liberal, 1));
    EXPECT_EQ(from_client({0x70000000, 5001}), changed);
    EXPECT_EQ(now().get(reply_max_win), 0x7fffffffU) << "by data past the window";
    for (const auto& ends :
         {std::vector<std::uint32_t>{1001U + 0x7fffffff}, {1001U + 0x7fffffff, 1001U + 0xfffffffe}}) {
        become(after_syn_ack().set(reply_liberal, 1).set(sack, 1));
        EXPECT_EQ(pass(responder, with_sack({5001, 1001}, ends)), valid);
        EXPECT_EQ(now().get(reply_max_win), 0x7fffffffU) << "by SACK";
    }
}

TEST_F(Connection, AnOldAcknowledgementIsInsideIfItsSackIs) {
    for (const bool permitted : {true, false}) {
        become(after_syn_ack()
                   .set(sack, permitted ? 1 : 0)
                   .set(original_sent_end, 100000)
                   .set(original_reply_end, 101000));
        ASSERT_EQ(from_client({100000, 5001}), changed);
        EXPECT_EQ(pass(responder, with_sack({5001, 33999}, {100000})), permitted ? valid : invalid);
    }
}

TEST_F(Connection, FrozenAndInvalidOnesTrapAndStay) {
    for (const Object& object : {after_syn_ack().set(freeze, 1), after_syn_ack().set(object_valid, 0)}) {
        become(object);
        EXPECT_EQ(from_client({1001, 5001}), trap);
        EXPECT_EQ(now().image, object.image);
    }
}

TEST_F(Connection, BadPacketsChangeNothing) {
    Bytes cut = segment({1001, 5001}), long_header = segment({1001, 5001});
    cut.resize(50);
    long_header[46] = 0xf0;  // a header of 60 bytes in a segment of 20
    FrameSpec fragment;
    fragment.protocol = 6;
    fragment.place = 0x2000;
    for (const Bytes& frame :
         {make_frame(FrameSpec{}), cut, long_header, make_frame(fragment), segment({1001, 5001, fin}),
          segment({1001, 5001, syn | fin}), segment({1001, 5001, 0}), segment({1001, 5001, syn | rst})}) {
        EXPECT_EQ(pass(initiator, frame), bad);
        EXPECT_EQ(now().image, after_syn_ack().image);
    }
}

TEST_F(Connection, SegmentsHaveFlagsThatGoTogether) {
    constexpr std::uint16_t psh = 8, urg = 32;
    for (std::uint16_t flags = 0; flags < 256; ++flags) {
        const std::uint16_t kind = flags & (fin | syn | rst | ack | urg);
        const bool possible = kind == ack || kind == (ack | urg) || kind == (fin | ack) || kind == (fin | ack | urg) ||
                              kind == (syn | ack) || kind == syn || kind == (syn | urg) || kind == rst ||
                              kind == (rst | ack);
        become(after_syn_ack().set(original_liberal, 1));
        EXPECT_EQ(from_client({1001, 5001, flags}) == bad, !possible) << flags;
    }
    become(after_syn_ack());
    EXPECT_EQ(from_client({1001, 5001, ack | psh | urg}), changed);
}

TEST_F(Connection, HeadersOfLessThanTwentyBytesAreBad) {
    for (unsigned words = 0; words < 16; ++words) {
        become(after_syn_ack());
        Bytes frame = segment({1001, 5001, ack, 1000, 4});
        frame[46] = static_cast<std::uint8_t>(words << 4);
        EXPECT_EQ(pass(initiator, frame), words == 5 || words == 6 ? changed : bad) << words;
    }
}

/// Options of a segment that acknowledges 1001 while 1401 was sent: whether they name a number beyond.
TEST_F(Connection, TheHighestSelectiveAcknowledgementCounts) {
    const auto number = [](std::uint32_t value) {
        return Bytes{0, 0, static_cast<std::uint8_t>(value >> 8), static_cast<std::uint8_t>(value)};
    };
    const auto joined = [](std::initializer_list<Bytes> parts) {
        Bytes all;
        for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
        while (all.size() % 4 != 0) all.push_back(0xee);
        return all;
    };
    const Bytes inside = number(1401), beyond = number(1402), low = number(1100);
    const std::pair<Bytes, bool> cases[] = {
        {joined({{5, 10}, low, beyond}), true},
        {joined({{5, 10}, low, inside}), false},
        {joined({{5, 10}, beyond, low}), false},
        {joined({{1, 5, 10}, low, beyond}), true},
        {joined({{2, 4, 5, 180, 5, 10}, low, beyond}), true},
        {joined({{0, 5, 10}, low, beyond}), false},
        {joined({{5, 18}, low, inside, low, beyond}), true},
        {joined({{5, 18}, low, beyond, low, inside}), true},
        {joined({{5, 18}, low, inside, low, inside}), false},
        {joined({{8, 10}, low, beyond}), false},
        {joined({{5, 9}, low, beyond}), false},
        {joined({{5, 2, 5, 10}, low, beyond}), true},
        {joined({{8, 0, 5, 10}, low, beyond}), false},
        {joined({{8, 1, 5, 10}, low, beyond}), false},
        {joined({{8, 2, 5, 10}, low, beyond}), true},
        {joined({{5, 13}, low, beyond}), false},
        {joined({{5, 12}, low, beyond, {0, 0}}), true},
        {joined({{1, 1, 1, 5}}), false},
        {joined({{1, 1, 1, 5, 10}, low, {0, 0, 5}}), false}};
    for (const auto& [options, counts] : cases) {
        become(after_syn_ack().set(sack, 1));
        ASSERT_EQ(from_client({1001, 5001}), changed);
        ASSERT_EQ(from_client({1001, 5001, ack, 1000, 400}), valid);
        Bytes frame = segment({5001, 1001, ack, 1000, static_cast<unsigned>(options.size())});
        frame[46] = static_cast<std::uint8_t>((5 + options.size() / 4) << 4);
        std::copy(options.begin(), options.end(), frame.begin() + 54);
        EXPECT_EQ(pass(responder, frame), counts ? invalid : valid) << ::testing::PrintToString(options);
    }
}

TEST_F(Connection, ObjectsAreReplacedByteByByte) {
    const ConnTrack::Image was = now().image;
    ConnTrack::Image next;
    for (unsigned i = 0; i < 64; ++i) next[i] = static_cast<std::uint8_t>(i + 100);
    for (const std::uint64_t bytes : {1ULL, 1ULL << 63, 0x00f0'0000'0000'1001ULL}) {
        track.exchange(was, ~0ULL);
        EXPECT_EQ(track.exchange(next, bytes), was);
        ConnTrack::Image expected = was;
        for (unsigned i = 0; i < 64; ++i) {
            if ((bytes >> (63 - i) & 1) != 0) expected[i] = next[i];
        }
        EXPECT_EQ(now().image, expected);
    }
}

TEST_F(Connection, RepetitionsAreCounted) {
    become(after_syn_ack().set(limit, 2));
    ASSERT_EQ(from_client({1001, 5001, ack, 1000, 10}), changed);
    for (unsigned times = 1; times < 10; ++times) {
        EXPECT_EQ(from_client({1001, 5001, ack, 1000, 10}), valid);
        EXPECT_EQ(now().get(retransmissions), std::min(times, 7U));
        EXPECT_EQ(now().get(exceeded), times > 2 ? 1U : 0U);
    }
    EXPECT_EQ(from_client({1011, 5001, ack, 1000, 10}), valid);
    EXPECT_EQ(now().get(retransmissions), 0U);
}

TEST_F(Connection, WindowsAreScaled) {
    become(after_syn_ack().set(reply_scale, 3));
    ASSERT_EQ(from_client({1001, 5001}), changed);
    ASSERT_EQ(from_server({5001, 1001, ack, 1000}), valid);
    EXPECT_EQ(now().get(original_reply_end), 1001U + 8000);
    EXPECT_EQ(now().get(reply_max_win), 8000U);
    EXPECT_EQ(from_client({9001, 5001}), valid);
    EXPECT_EQ(from_client({9002, 5001}), invalid);
}

TEST_F(Connection, SelectiveAcknowledgementsCountWhereTheyArePermitted) {
    for (const bool permitted : {true, false}) {
        become(after_syn_ack().set(sack, permitted ? 1 : 0));
        ASSERT_EQ(from_client({1001, 5001}), changed);
        ASSERT_EQ(from_client({1001, 5001, ack, 1000, 400}), valid);
        EXPECT_EQ(pass(responder, with_sack({5001, 1001}, {1501})), permitted ? invalid : valid) << "1501 was not sent";
    }
}

TEST_F(Connection, TwoWorkersHaveItInTurns) {
    become(after_syn_ack().set(original_liberal, 1).set(reply_liberal, 1));
    constexpr std::uint32_t rounds = 5000;
    const auto run = [&](ConnTrack::Direction direction, std::uint32_t begin, std::uint32_t other) {
        for (std::uint32_t i = 0; i < rounds; ++i) {
            EXPECT_NE(pass(direction, segment({begin + i, other, ack, 1000, 1})) & 0xc0, trap);
        }
    };
    std::thread client(run, initiator, 1001, 5001), server(run, responder, 5001, 1001);
    client.join();
    server.join();
    EXPECT_EQ(now().get(original_sent_end), 1001 + rounds);
    EXPECT_EQ(now().get(reply_sent_end), 5001 + rounds);
    EXPECT_EQ(now().get(state), 1U);
}

/// An endpoint that keeps to its peer's window, as RFC 9293 has it.
struct Endpoint {
    std::uint32_t next, acked, peer_next, allowed;
    unsigned scale;
    std::uint32_t window;
    bool closed = false;
};

/// Whatever two endpoints that obey the rules say to each other, in whatever sizes, is valid; numbers wrap.
TEST_F(Connection, ConversationsAreValid) {
    for (unsigned seed = 1; seed <= 200; ++seed) {
        std::mt19937 random(seed);
        const auto pick = [&random](std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); };
        const std::uint32_t one = ~0U - pick(5000), two = pick(2) != 0 ? ~0U - pick(5000) : pick(100000);
        Endpoint ends[2] = {{one + 1, one + 1, two + 1, 0, pick(4), 3000},
                            {two + 1, two + 1, one + 1, 0, pick(4), 3000}};
        ends[0].allowed = one + 1 + 3000;
        ends[1].allowed = two + 1 + 3000;
        Object object;
        object.set(object_valid, 1).set(limit, 7).set(original_scale, ends[0].scale).set(reply_scale, ends[1].scale);
        object.set(original_sent_end, one + 1).set(original_reply_end, one + 3001).set(original_max_win, 3000);
        object.set(reply_sent_end, two + 1)
            .set(reply_end, two + 3001)
            .set(reply_max_win, 3000)
            .set(reply_max_ack, one + 1);
        become(object);
        ASSERT_EQ(from_client({one + 1, two + 1, ack, 3000}) & 0xc1, 0);
        for (unsigned step = 0; step < 200; ++step) {
            const unsigned who = pick(2);
            Endpoint &self = ends[who], &peer = ends[1 - who];
            const std::uint32_t room = self.allowed - self.next;
            const std::uint32_t size = self.closed ? 0 : std::min(pick(3) == 0 ? 0 : pick(1400), room);
            const bool closes = !self.closed && step > 150 && room > size && pick(10) == 0;
            self.window = pick(2) != 0 ? 3000 : 3000 + pick(60000);
            const auto shown = static_cast<std::uint16_t>(self.window >> self.scale);
            const Words words{self.next, self.peer_next, static_cast<std::uint16_t>(ack | (closes ? fin : 0)), shown,
                              size};
            ASSERT_EQ(pass(who == 0 ? initiator : responder, segment(words)) & 0xc1, 0)
                << "seed " << seed << " step " << step;
            self.next += size + (closes ? 1 : 0);
            self.closed = self.closed || closes;
            peer.peer_next = self.next;
            peer.acked = self.peer_next;
            const std::uint32_t reach = self.peer_next + (static_cast<std::uint32_t>(shown) << self.scale);
            if (static_cast<std::int32_t>(reach - peer.allowed) > 0) peer.allowed = reach;
        }
        Endpoint& self = ends[0];
        ASSERT_EQ(from_client({self.allowed + 1 + pick(1000), self.peer_next}), invalid) << "seed " << seed;
    }
}

/// A connection as conn_track.hpp describes it, in plain numbers: numbers that go round are told apart by their
/// distance.
struct Model {
    struct End {
        std::uint32_t max_ack, max_win, reply_end, sent_end, scale;
        bool closed = false, liberal = false, unacked = false, acked = false;
    };
    End ends[2];  ///< by Direction
    bool valid = true, assured = false, heartbeat = false, exceeded = false, sack = false;
    unsigned state = 0, repeated = 0, limit = 7, shift = 0;
    struct Last {
        std::uint32_t end = 0, acked = 0, seq = 0, window = 0, from_initiator = 0, kind = 0;
        bool operator==(const Last&) const = default;
    } last;

    static std::int64_t behind(std::uint32_t from, std::uint32_t to) { return static_cast<std::int32_t>(to - from); }

    /// `sacked`: the highest number of its SACK option, or what it acknowledges.
    std::uint8_t see(ConnTrack::Direction direction, const Words& words, std::uint32_t sacked) {
        if (!valid) return trap;
        const bool initiates = direction == initiator;
        End &own = ends[initiates ? 0 : 1], &peer = ends[initiates ? 1 : 0];
        const bool synchronizes = (words.flags & syn) != 0, finishes = (words.flags & fin) != 0,
                   resets = (words.flags & rst) != 0;
        const bool has_ack = (words.flags & ack) != 0 && (!resets || words.acked != 0);
        const std::uint32_t end = words.seq + words.payload + (synchronizes ? 1 : 0) + (finishes ? 1 : 0);
        const std::uint32_t reaches = sack ? sacked : words.acked;
        const bool repeats = synchronizes && initiates != has_ack && behind(end, own.sent_end) >= 0 &&
                             (initiates || behind(words.acked, peer.sent_end) >= 0);
        if (repeats && state != 0) return tracked::valid;
        bool good = !synchronizes || repeats;
        if (good && !own.liberal) {
            const std::int64_t oldest = std::clamp<std::int64_t>(std::int64_t{own.max_win} << shift, 66000, 0x7fffffff);
            good = behind(words.seq, own.reply_end) >= 0 &&
                   (!resets || !peer.acked || behind(peer.max_ack, words.seq) >= 0) &&
                   (peer.max_win == 0 || behind(own.sent_end - peer.max_win, end) >= 0) &&
                   (!has_ack || (behind(reaches, peer.sent_end) >= 0 &&
                                 behind(peer.sent_end - static_cast<std::uint32_t>(oldest), reaches) >= 0));
        }
        if (!good) {
            valid = false;
            return invalid;
        }
        const unsigned was = state;
        advance(own, peer, words, end, has_ack ? reaches : peer.sent_end);
        if (was >= 1 && words.flags == ack) assured = true;
        own.closed = own.closed || finishes;
        if (resets || was == 5) {
            state = 5;
        } else if (own.closed && peer.closed) {
            state = own.unacked || peer.unacked ? 4 : 5;
        } else if (own.closed || peer.closed) {
            state = (own.closed ? own.unacked : peer.unacked) ? 2 : 3;
        } else if (was == 0 && initiates && words.flags == ack) {
            state = 1;
        }
        const unsigned kind = resets ? 16 : synchronizes ? (has_ack ? 2 : 1) : finishes ? 4 : 8;
        const Last now{end, words.acked, words.seq, words.window, initiates ? 1U : 0U, kind};
        repeated = kind == 8 && now == last ? std::min(repeated + 1, 7U) : 0;
        exceeded = exceeded || repeated > limit;
        last = now;
        heartbeat = true;
        return state != was ? changed : tracked::valid;
    }
    void advance(End& own, End& peer, const Words& words, std::uint32_t end, std::uint32_t reaches) {
        const bool scaled = (words.flags & syn) == 0 && own.scale != 15;
        const std::uint32_t window = static_cast<std::uint32_t>(words.window) << (scaled ? own.scale : 0);
        if (behind(own.sent_end, end) > 0) {
            own.sent_end = end;
            own.unacked = true;
        }
        if ((words.flags & rst) != 0) return;
        const bool has_ack = (words.flags & ack) != 0;
        own.max_win =
            std::min(std::max(own.max_win, window + (reaches - (has_ack ? words.acked : reaches))), 0x7fffffffU);
        if (peer.max_win != 0 && behind(own.reply_end, end) > 0) {
            peer.max_win = std::min(peer.max_win + (end - own.reply_end), 0x7fffffffU);
        }
        const std::uint32_t allows = reaches + std::max(window, 1U);
        if (behind(peer.reply_end, allows) > 0) peer.reply_end = allows;
        if (!has_ack) return;
        if (!own.acked || behind(own.max_ack, words.acked) > 0) own.max_ack = words.acked;
        own.acked = true;
        if (words.acked == peer.sent_end) peer.unacked = false;
    }
    [[nodiscard]] Object object() const {
        Object all;
        constexpr ObjectField windows[2][4] = {
            {original_max_ack, original_max_win, original_reply_end, original_sent_end},
            {reply_max_ack, reply_max_win, reply_end, reply_sent_end}};
        for (unsigned i = 0; i < 2; ++i) {
            const End& one = ends[i];
            all.set(windows[i][0], one.max_ack).set(windows[i][1], one.max_win);
            all.set(windows[i][2], one.reply_end).set(windows[i][3], one.sent_end);
            const unsigned flags = i == 0 ? 464 : 448;
            all.set({flags, 4}, one.scale).set({flags + 4, 1}, one.closed).set({flags + 5, 1}, one.liberal);
            all.set({flags + 6, 1}, one.unacked).set({flags + 7, 1}, one.acked);
        }
        all.set({256, 32}, last.end).set({288, 32}, last.acked).set({320, 32}, last.seq).set({352, 16}, last.window);
        all.set({378, 1}, last.from_initiator).set({379, 5}, last.kind);
        all.set(object_valid, valid).set(tracked::state, state).set(tracked::assured, assured).set(tracked::sack, sack);
        all.set(tracked::heartbeat, heartbeat).set({501, 3}, shift).set(retransmissions, repeated);
        return all.set(tracked::exceeded, exceeded).set(tracked::limit, limit);
    }
};

/// Segments near the edges of what is allowed, and well past them: each verdict and every bit of the object.
TEST_F(Connection, IsTheModelBitByBit) {
    constexpr std::uint16_t kinds[] = {ack, ack, ack, ack, ack, ack | fin, rst, rst | ack, syn, syn | ack};
    unsigned verdicts[256] = {};
    for (unsigned seed = 1; seed <= 3000; ++seed) {
        std::mt19937 random(seed);
        const auto pick = [&random](std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); };
        const std::uint32_t one = random(), two = random();
        Model model{
            .ends = {{0, 1 + pick(5000), one + 1 + pick(5000), one + 1, pick(2) ? 15 : pick(15)},
                     {one + 1, pick(4) ? 1 + pick(70000) : 0, two + 1 + pick(5000), two + 1, pick(2) ? 15 : pick(8)}}};
        model.sack = pick(2) != 0;
        model.limit = pick(8);
        model.shift = pick(3);
        for (Model::End& end : model.ends) end.liberal = pick(8) == 0;
        become(model.object());
        for (unsigned step = 0; step < 30 && model.valid; ++step) {
            const auto direction = pick(2) != 0 ? initiator : responder;
            const Model::End &own = model.ends[direction == initiator ? 0 : 1],
                             &peer = model.ends[direction == initiator ? 1 : 0];
            const auto near = [&](std::uint32_t edge) { return edge + pick(3) - 1; };
            Words words{own.sent_end, peer.sent_end, kinds[pick(10)],
                        static_cast<std::uint16_t>(pick(4) ? random() : 0)};
            if (pick(4) == 0) words.seq = near(own.reply_end);
            if (pick(4) == 0) words.seq = own.sent_end - pick(3000);
            if (pick(6) == 0) words.seq = near(own.sent_end - peer.max_win);
            if (pick(6) == 0) words.acked = near(peer.sent_end - 66000);
            if (pick(6) == 0) words.acked = near(peer.sent_end - std::min(own.max_win << model.shift, 0x7ffffff0U));
            if (pick(4) == 0) words.acked = near(peer.sent_end - pick(300));
            if ((words.flags & syn) == 0 && pick(2) != 0) words.payload = 12 + pick(1400);
            if (step != 0 && pick(4) == 0) {
                words.seq = model.last.seq;
                words.acked = model.last.acked;
                words.window = static_cast<std::uint16_t>(model.last.window);
                words.payload = model.last.end - model.last.seq;
                if (words.payload > 1500) words.payload = 0;
            }
            Bytes frame = segment(words);
            std::uint32_t sacked = words.acked;
            if (words.payload >= 12 && pick(2) != 0) {
                words.payload -= 12;
                const std::uint32_t high = words.acked + pick(2000) - 20;
                if (Model::behind(words.acked, high) > 0) sacked = high;
                frame = with_sack(words, {high});
            }
            const std::uint8_t expected = model.see(direction, words, sacked);
            const std::uint8_t verdict = pass(direction, frame);
            ASSERT_EQ(verdict, expected) << "seed " << seed << " step " << step;
            ASSERT_EQ(now().image, model.object().image) << "seed " << seed << " step " << step;
            ++verdicts[verdict];
        }
    }
    for (const std::uint8_t verdict : {valid, changed, invalid}) EXPECT_GT(verdicts[verdict], 1000U);
}

}  // namespace
}  // namespace ovsdr::soft::test
