// From a switch's ring to a collector's file, on a soft NIC, with what can go wrong on the way: what was appended is in
// the file, once and in order, or its loss is told there.
#include <signal.h>
#include <sys/resource.h>

#include "tests/unit/tools/drcollect/collector.hpp"
#include "tests/unit/tools/drcollect/rogue.hpp"

namespace ovsdr::drcollect {
namespace {

using namespace test;

TEST_F(Collector, EveryFrameIsInTheFileWithEachSignature) {
    start();
    for (const SignatureName& known : signature_names) {
        for (const std::uint16_t block : {std::uint16_t{512}, std::uint16_t{4160}}) {
            SCOPED_TRACE(std::string(known.name) + " " + std::to_string(block));
            const auto mirror = sender({known.type, block});
            append_all(*mirror, 0, 500);
            ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
            EXPECT_EQ(frames(), all(500));
            const Scan found = only_scan();
            EXPECT_TRUE(found.sound()) << (found.findings.empty() ? "" : found.findings[0].what);
            EXPECT_EQ(found.frames, 500u);
            EXPECT_EQ(found.dropped, 0u);
            EXPECT_GT(found.blocks, 500'000u / block);
            EXPECT_EQ(found.unprotected, 0u);
            EXPECT_TRUE(found.has_statistics);
            const SenderStats stats = mirror->stats();
            EXPECT_EQ(stats.acknowledged, stats.sealed);
            EXPECT_EQ(stats.resent, 0u);
            EXPECT_EQ(stats.connections, 1u);
            EXPECT_TRUE(becomes([&] { return counted(*mirror).finished; }));
            EXPECT_EQ(counted(*mirror).frames, 500u);
            std::filesystem::remove(files()[0]);
        }
    }
}

TEST_F(Collector, StrippedFilesAreVerifiedByTheirCrc) {
    spec.session.keep_fields = false;
    start();
    const auto mirror = sender();
    append_all(*mirror, 0, 200);
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    const Scan found = only_scan();
    EXPECT_TRUE(found.sound());
    EXPECT_EQ(found.blocks, 0u);
    EXPECT_EQ(found.unprotected, found.segments);
    EXPECT_EQ(frames(), all(200));
}

TEST_F(Collector, AnOldSegmentIsSentThoughItIsNotFull) {
    start();
    const auto mirror = sender();
    ASSERT_TRUE(append(*mirror, 0));
    EXPECT_TRUE(becomes([&] {
        mirror->tick();
        return mirror->stats().acknowledged == 1;
    }));
    EXPECT_EQ(frames(), all(1)) << "acknowledged, so it is there";
}

TEST_F(Collector, ABitThatFlipsInTheRingCostsItsSegmentAndIsTold) {
    start();
    stop();   // nobody is there yet: segments wait in the ring
    const auto mirror = sender();
    for (std::uint32_t number = 0; number < 100; ++number) ASSERT_TRUE(append(*mirror, number));
    ASSERT_GE(mirror->stats().sealed, 2u);
    mirror->memory()[32768 + 5000] ^= std::byte{4};   // in segment 1
    start();
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    const SenderStats stats = mirror->stats();
    EXPECT_EQ(stats.bad[at(BadKind::payload)], 1u);
    EXPECT_EQ(stats.resent, 1u);
    EXPECT_GT(stats.damaged, 20u);
    EXPECT_NE(stats.last_bad.find("segment 1, "), std::string::npos) << stats.last_bad;
    const Scan found = only_scan();
    EXPECT_TRUE(found.sound());
    EXPECT_EQ(found.dropped, stats.damaged);
    EXPECT_EQ(found.frames, 100 - stats.damaged);
    EXPECT_EQ(counted(*mirror).bad[at(BadKind::payload)], 1u);
}

TEST_F(Collector, WhatChangesInTheCollectorsMemoryIsSentAgain) {
    struct Damage {
        BadKind kind;
        void (*harm)(std::span<std::byte>);
    };
    constexpr Damage damages[] = {
        {BadKind::payload, [](std::span<std::byte> segment) { segment[2000] ^= std::byte{0x80}; }},
        {BadKind::header, [](std::span<std::byte> segment) { segment[20] ^= std::byte{1}; }},
        {BadKind::payload,
         [](std::span<std::byte> segment) {   // two blocks change places
             std::swap_ranges(segment.begin() + 1024, segment.begin() + 1536, segment.begin() + 4096);
         }},
        // Another segment, and a right one at that: an old one from the same ring.
        {BadKind::sequence,
         [](std::span<std::byte> segment) {
             SegmentHeader header = decode_header(segment).header;
             header.sequence -= 1;
             encode(header, segment.first<header_size>());
         }},
        {BadKind::size,
         [](std::span<std::byte> segment) {
             SegmentHeader header = decode_header(segment).header;
             header.used = 4000;
             encode(header, segment.first<header_size>());
         }},
    };
    start();
    for (const Damage& damage : damages) {
        SCOPED_TRACE(text_of(damage.kind));
        int times = 0;
        set_hook([&](std::span<std::byte> segment, std::uint64_t sequence) {
            if (sequence == 3 && times++ < 2) damage.harm(segment);
        });
        const auto mirror = sender();
        append_all(*mirror, 0, 400);
        ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
        set_hook({});
        const SenderStats stats = mirror->stats();
        EXPECT_EQ(stats.bad[at(damage.kind)], 2u);
        EXPECT_EQ(stats.resent, 2u);
        EXPECT_EQ(stats.damaged, 0u) << "the ring itself was right";
        EXPECT_NE(stats.last_bad.find("segment 3, "), std::string::npos) << stats.last_bad;
        EXPECT_TRUE(only_scan().sound());
        EXPECT_EQ(frames(), all(400));
        std::filesystem::remove(files()[0]);
    }
}

TEST_F(Collector, ASegmentThatIsNeverRightDoesNotGoRoundForEver) {
    start();
    set_hook([](std::span<std::byte> segment, std::uint64_t sequence) {
        if (sequence == 0) segment[100] ^= std::byte{1};
    });
    const auto mirror = sender();
    ASSERT_TRUE(append(*mirror, 0));
    mirror->finish(300ms);
    EXPECT_TRUE(becomes([&] { return mirror->stats().last_error.find("was bad 16 times") != std::string::npos; }))
        << mirror->stats().last_error;
    set_hook({});
    EXPECT_TRUE(mirror->finish(20s)) << "it is tried again all the same";
    EXPECT_EQ(frames(), all(1));
}

TEST_F(Collector, NeitherDoSeveralThatAreCalledBadInTurn) {
    start();
    set_hook([](std::span<std::byte> segment, std::uint64_t sequence) {
        if (sequence < 3) segment[100] ^= std::byte{1};
    });
    const auto mirror = sender();
    for (std::uint32_t number = 0; number < 150; ++number) ASSERT_TRUE(append(*mirror, number));   // five segments
    EXPECT_TRUE(becomes([&] { return mirror->stats().last_error.find("was bad 16 times") != std::string::npos; }))
        << mirror->stats().last_error;
    set_hook({});
    EXPECT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(frames(), all(150));
}

TEST_F(Collector, ACollectorThatComesBackGoesOnWhereItsFileEnds) {
    start();
    const auto mirror = sender();
    for (std::uint32_t round = 0; round < 5; ++round) {
        append_all(*mirror, round * 300, round * 300 + 300);
        stop();
        if (round == 2) {   // as if it had been killed within a segment
            std::ofstream file(files()[0], std::ios::binary | std::ios::app);
            file << std::string(777, 'x');
        }
        start();
    }
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(frames(), all(1500)) << "each once, in order";
    EXPECT_TRUE(only_scan().sound());
    EXPECT_GE(mirror->stats().connections, 5u);
}

TEST_F(Collector, AnInterfaceThatComesLaterBeginsAnotherFile) {
    start();
    const auto mirror = sender();
    const auto all_is_there = [&] {
        mirror->tick();
        return mirror->stats().released == mirror->stats().sealed;
    };
    EXPECT_FALSE(append(*mirror, 0, 1000, 2)) << "of an interface that nobody has heard of";
    for (std::uint32_t round = 0; round < 3; ++round) {
        if (round == 2) stop();   // while nobody is there
        append_all(*mirror, round * 100, round * 100 + 60);
        if (round < 2) {
            ASSERT_TRUE(becomes(all_is_there));
        }
        std::vector<MirrorInterface> list = two_interfaces();
        for (std::uint32_t more = 0; more <= round; ++more) list.push_back({"later" + std::to_string(more), 65535});
        ASSERT_TRUE(mirror->set_interfaces(list));
        for (std::uint32_t number = round * 100 + 60; number < round * 100 + 100; ++number) {
            ASSERT_TRUE(append(*mirror, number, 1000, number % (3 + round)));
        }
        EXPECT_FALSE(append(*mirror, 0, 1000, 3 + round));
        if (round < 2) {
            ASSERT_TRUE(becomes(all_is_there));
            EXPECT_EQ(mirror->stats().last_error, "") << "a frame of an unknown interface was sent";
        }
    }
    start();
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(mirror->stats().dropped, 4u);
    EXPECT_EQ(frames(), all(300)) << "each once, in order";
    EXPECT_EQ(files().size(), 4u);
    std::uint64_t next = 0;
    for (const std::string& file : files()) {
        const Scan found = scan(file);
        EXPECT_TRUE(found.sound()) << file;
        EXPECT_EQ(found.beginning->first, next) << file;
        next = found.next;
    }
    EXPECT_EQ(mirror->stats().last_bad, "");
}

TEST_F(Collector, AnInterfaceThatThereIsStaysAsItIs) {
    const auto mirror = sender();
    EXPECT_FALSE(mirror->set_interfaces({{"vm1", 65535}}));
    EXPECT_FALSE(mirror->set_interfaces({{"vm2", 65535}, {"vm1", 65535}, {"vm3", 65535}}));
    EXPECT_FALSE(mirror->set_interfaces({{"vm1", 65535}, {"vm2", 65535}, {"a\nb", 65535}}));
    std::vector<MirrorInterface> many(257, {"vm", 65535});
    std::ranges::copy(two_interfaces(), many.begin());
    EXPECT_FALSE(mirror->set_interfaces(many));
    EXPECT_FALSE(append(*mirror, 0, 1000, 2)) << "none of these lists has been taken";
    EXPECT_TRUE(mirror->set_interfaces({{"vm1", 65535}, {"vm2", 65535}, {"vm3", 65535}}));
    EXPECT_TRUE(append(*mirror, 0, 1000, 2));
}

TEST_F(Collector, AFullRingDropsAndTheFileSaysHowMany) {
    start();
    stop();
    const auto mirror = sender({SignatureType::crc32c, 4096}, 4);
    std::uint32_t kept = 0;
    while (append(*mirror, kept)) ++kept;
    for (int i = 0; i < 9; ++i) EXPECT_FALSE(append(*mirror, 1));
    start();
    ASSERT_TRUE(becomes([&] { return mirror->stats().released == 4; })) << mirror->stats().last_error;
    ASSERT_TRUE(append(*mirror, kept));
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_EQ(mirror->stats().dropped, 10u);
    const Scan found = only_scan();
    EXPECT_TRUE(found.sound());
    EXPECT_EQ(found.dropped, 10u);
    EXPECT_EQ(found.frames, kept + 1);
    EXPECT_EQ(counted(*mirror).dropped, 10u);
}

/// A limit of this process's files stands for the disk's end.
TEST_F(Collector, AFullDiskIsWaitedForAndNothingIsAcknowledgedMeanwhile) {
    signal(SIGXFSZ, SIG_IGN);
    start();
    const auto mirror = sender();
    append_all(*mirror, 0, 200);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    ASSERT_TRUE(becomes([&] { return mirror->stats().acknowledged == mirror->stats().sealed; }));
    const rlimit tight{std::filesystem::file_size(files()[0]) + 10'000, before.rlim_max};
    const std::uint64_t acknowledged = mirror->stats().acknowledged;
    setrlimit(RLIMIT_FSIZE, &tight);
    for (std::uint32_t number = 200; number < 300; ++number) ASSERT_TRUE(append(*mirror, number));
    EXPECT_TRUE(becomes([&] { return !counted(*mirror).stalled.empty(); }));
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(mirror->stats().acknowledged, acknowledged);
    EXPECT_TRUE(only_scan().sound()) << "it opens meanwhile";
    setrlimit(RLIMIT_FSIZE, &before);
    append_all(*mirror, 300, 400);
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_TRUE(becomes([&] { return counted(*mirror).stalled.empty(); }));
    EXPECT_EQ(frames(), all(400));
    EXPECT_TRUE(only_scan().sound());
}

TEST_F(Collector, FilesFollowEachOtherBySize) {
    spec.session.limits.size = 100'000;
    start();
    const auto mirror = sender();
    append_all(*mirror, 0, 600);
    stop();   // and one that comes back goes on in the last
    start();
    append_all(*mirror, 600, 900);
    ASSERT_TRUE(mirror->finish(20s)) << mirror->stats().last_error;
    EXPECT_GT(files().size(), 4u);
    EXPECT_EQ(frames(), all(900));
    std::uint64_t next = 0;
    for (const std::string& file : files()) {
        const Scan found = scan(file);
        EXPECT_TRUE(found.sound()) << file;
        EXPECT_EQ(found.beginning->first, next) << file;
        EXPECT_TRUE(found.has_statistics) << file;
        EXPECT_LT(found.size, 100'000u + 40'000) << "a segment more than the limit at most";
        next = found.next;
    }
    EXPECT_EQ(next, mirror->stats().sealed);
}

TEST_F(Collector, SeveralSwitchesHaveFilesOfTheirOwn) {
    start();
    const auto one = sender({SignatureType::crc64, 512}), two = sender({SignatureType::t10dif_csum, 520});
    for (std::uint32_t number = 0; number < 200; ++number) {
        append_all(*one, number, number + 1);
        append_all(*two, number, number + 1);
    }
    ASSERT_TRUE(one->finish(20s)) << one->stats().last_error;
    ASSERT_TRUE(two->finish(20s)) << two->stats().last_error;
    ASSERT_EQ(files().size(), 2u);
    for (const std::string& file : files()) {
        EXPECT_TRUE(scan(file).sound());
        EXPECT_EQ(scan(file).frames, 200u);
    }
    EXPECT_EQ(server->counters().json().at("sessions").size(), 2u);
}

TEST_F(Collector, ARingThatIsTooLargeIsRefusedWithTheReason) {
    spec.session.largest_ring = 100'000;
    start();
    const auto mirror = sender();
    EXPECT_TRUE(becomes([&] { return mirror->stats().last_error.find("is larger than 100000") != std::string::npos; }))
        << mirror->stats().last_error;
    EXPECT_FALSE(mirror->stats().connected);
    EXPECT_TRUE(files().empty()) << "a switch that is refused leaves nothing";
}

TEST_F(Collector, NonsenseOnThePortIsAnsweredAndForgotten) {
    start();
    constexpr char zeros[12]{};
    for (const char* nonsense : {"GET / HTTP/1.0\r\n\r\n", zeros}) {
        auto socket = MessageSocket::connect("127.0.0.1", spec.port, 5s, -1);
        ASSERT_TRUE(socket);
        ASSERT_EQ(write(socket->fd(), nonsense, 12), 12);
        const auto answer = socket->await(5s, -1);
        ASSERT_TRUE(answer) << answer.error().what;
        ASSERT_TRUE(std::holds_alternative<Refuse>(*answer));
        EXPECT_EQ(std::get<Refuse>(*answer).reason, RefuseReason::malformed);
    }
    auto socket = MessageSocket::connect("127.0.0.1", spec.port, 5s, -1);
    ASSERT_TRUE(socket->send(Progress{3})) << "what only a collector says";
    EXPECT_TRUE(std::holds_alternative<Refuse>(*socket->await(5s, -1)));
    const auto mirror = sender();
    append_all(*mirror, 0, 50);
    EXPECT_TRUE(mirror->finish(20s));
    EXPECT_EQ(frames(), all(50));
    EXPECT_EQ(server->counters().json().at("refused"), 3);
}

TEST_F(Collector, AReplayedSegmentIsFoundByTheTagOrByTheHeader) {
    for (const SignatureType type : {SignatureType::t10dif_crc, SignatureType::crc32c}) {
        start();
        {
            Rogue rogue(spec.port, {type, 512}, 4);
            for (std::uint64_t sequence = 0; sequence < 4; ++sequence) {
                rogue.seal();
                rogue.write(sequence, sequence, sequence);
            }
            while (rogue.hear<Progress>().next < 4) {}
            // Under its own name: of no segment that anybody waits for.
            rogue.write(1, 1, 1);
            EXPECT_TRUE(becomes([&] {
                return server->counters().of(77).bad[at(BadKind::sequence)] == 1;
            }));
            // Under the name of the one that should come there: tags 16 per segment, so the name gives the right ones.
            rogue.write(1, 5, 5);
            Bad bad = rogue.hear<Bad>();
            if (type == SignatureType::t10dif_crc) {
                // What the NIC said of the write before counts against the next one in its slot: it is sent again.
                EXPECT_EQ(bad.kind, BadKind::reference_tag) << text_of(bad.kind);
                EXPECT_EQ(bad.expected, 16u) << "of segment 1";
                rogue.write(1, 5, 5);
                bad = rogue.hear<Bad>();
            }
            EXPECT_EQ(bad.sequence, 5u);
            EXPECT_EQ(bad.kind, BadKind::sequence) << text_of(bad.kind);
            EXPECT_EQ(bad.actual, 1u);
            EXPECT_EQ(bad.expected, 5u);
        }
        EXPECT_TRUE(becomes([&] { return !server->counters().of(77).connected; }));
        EXPECT_TRUE(only_scan().sound());
        EXPECT_EQ(only_scan().segments, 4u);
        EXPECT_EQ(std::filesystem::path(files().at(0)).parent_path(), folder) << "whatever the mirror's name is";
        stop();
        std::filesystem::remove(files()[0]);
    }
}

/// The NIC's verdict is asked for once. A replayed write makes the collector ask for all slots, while a damaged
/// segment's completion is still to be looked at.
TEST_F(Collector, AReplayHidesNoDamagedSegment) {
    start();
    std::atomic<bool> waits{true};
    set_hook([&](std::span<std::byte>, std::uint64_t sequence) {
        if (sequence == 0) becomes([&] { return !waits.load(); });
    });
    Rogue rogue(spec.port, {SignatureType::t10dif_crc, 512}, 4);
    for (int i = 0; i < 3; ++i) rogue.seal();
    rogue.write(0, 0, 0);
    // Meanwhile both of these arrive: one that is of no segment, and one with a wrong tag in its fields only.
    rogue.write(2, 2, 1000);
    rogue.tag = 6;
    rogue.write(1, 1, 1);
    waits = false;
    std::optional<Bad> bad;
    while (!bad || bad->sequence != 1) {
        const auto message = rogue.socket.await(5s, -1);
        ASSERT_TRUE(message) << "nobody has said that segment 1 is bad";
        if (std::holds_alternative<Bad>(*message)) bad = std::get<Bad>(*message);
    }
    EXPECT_EQ(bad->kind, BadKind::application_tag) << text_of(bad->kind);
    set_hook({});
}

TEST_F(Collector, ASegmentWithSomethingElseThanPacketsEndsTheConnection) {
    start();
    Rogue rogue(spec.port, {SignatureType::crc64, 512}, 4);
    rogue.seal(9);   // an interface that there is not
    rogue.write(0, 0, 0);
    EXPECT_NE(rogue.hear<Refuse>().detail.find("interface 9"), std::string::npos);
    EXPECT_TRUE(becomes([&] { return !server->counters().of(77).connected; }));
    EXPECT_EQ(only_scan().segments, 0u);
    EXPECT_TRUE(only_scan().sound());
}

TEST_F(Collector, TheSameSessionTwiceEndsTheFirst) {
    start();
    Rogue first(spec.port, {SignatureType::crc32, 512}, 4);
    first.seal();
    first.write(0, 0, 0);
    EXPECT_EQ(first.hear<Progress>().next, 1u);
    const Rogue second(spec.port, {SignatureType::crc32, 512}, 4);
    EXPECT_EQ(second.accept.next, 1u) << "it goes on behind the first";
    EXPECT_FALSE(first.socket.await(5s, -1));
}

TEST_F(Collector, AGapIsCountedOnceHoweverOftenTheConnectionBreaks) {
    start();
    const Signature signature{SignatureType::crc32, 512};
    {
        Rogue rogue(spec.port, signature, 4);
        rogue.seal();
        rogue.write(0, 0, 0);
        while (rogue.hear<Progress>().next < 1) {}
    }
    for (int times = 0; times < 3; ++times) {
        const Rogue rogue(spec.port, signature, 4, 3);
        EXPECT_EQ(rogue.accept.next, 3u);
    }
    EXPECT_TRUE(becomes([&] { return !server->counters().of(77).connected; }));
    EXPECT_EQ(server->counters().of(77).gap, 0u) << "no file tells of it yet";
    Rogue rogue(spec.port, signature, 4, 3);
    for (const std::uint64_t sequence : {3, 4}) {
        rogue.seal();
        rogue.write(sequence, sequence, sequence);
        while (rogue.hear<Progress>().next < sequence + 1) {}
    }
    EXPECT_TRUE(becomes([&] { return server->counters().of(77).next == 5; }));
    EXPECT_EQ(server->counters().of(77).gap, 2u);
    EXPECT_EQ(only_scan().gaps, 2u);
}

}  // namespace
}  // namespace ovsdr::drcollect
